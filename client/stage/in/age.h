/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Brings one copy in line with the present rights of its source, which may have been narrowed
 * since they were granted. The copy may be READY, partial or in the making:
 *
 *   1. read its manifest, which has what was granted last, and for an unpacked copy the manifest
 *      of its archives
 *   2. read the rights of the source, without a lock, until two readings are equal, so that rights
 *      of two times are not combined
 *   3. if they differ: take the lock, check that no other process has granted anything meanwhile,
 *      and call grant_again
 *
 * In fibers; yields. Owned by the caller's loop.
 */
#ifndef LEAT_CLIENT_STAGE_IN_AGE_H
#define LEAT_CLIENT_STAGE_IN_AGE_H

#include "client/dataset/io_context.h"
#include "client/stage/store/grant.h"
#include "client/stage/store/local_store.h"

/* Poll interval of a job, and the default of an agent. Two intervals (if the copy is locked the
 * first time) and the reading itself are within the minute that is promised. */
#define AGE_US 20000000u

struct age_options {
	struct stage_io *io;
	struct local_store *s; /* after store_init only */
	/* The job that makes the copy has it locked: its manifest and grants are brought up to date
	 * as well. NULL: no job; the lock is taken. */
	struct manifest *m;
	struct grants *grants;
	int (*pace)(void *arg, uint32_t n); /* as in source_rights.h */
	void *arg;
	const int *stop; /* not 0: reading stops */
};
/* Brings the copy in line. Returns 1: its rights were changed; 0: they are those of the source,
 * or the source is in another cluster. -LE_BUSY: another process has it locked; -LE_NOENT: it
 * was removed; or the reason why the source cannot be read or the rights not be changed. Yields. */
int age_copy(const struct age_options *o) CHECK_RESULT;

#endif
