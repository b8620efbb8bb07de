/*
 * The rights of a copy age: those of its source may have been narrowed since they were given. Here
 * one copy is looked at again, READY, partial or in flight:
 *
 *   1. its manifest, which has what was granted last; of an unpacked one that of its archives, too
 *   2. the source, without a lock, until two looks show the same: what changes meanwhile must not
 *      be put together of two times
 *   3. different? The lock; nobody else has granted anything meanwhile? grant_again
 *
 * In fibers; yields. Owned by the caller's loop.
 */
#ifndef LEAT_STAGE_AGE_H
#define LEAT_STAGE_AGE_H

#include "client/stage/grant.h"
#include "client/stage/io.h"
#include "client/stage/local_store.h"

/* Between looks of a job, and of an agent unless it is told otherwise: twice, for a copy that was
 * locked at the first, and what it takes, are within the minute that is promised. */
#define AGE_US 20000000u

struct age_options {
	struct stage_io *io;
	struct local_store *s; /* store_init, and no more */
	/* Of the job that makes the copy, which has it locked: these two are brought up to date as
	 * well. NULL: nobody's; the lock is taken. */
	struct manifest *m;
	struct grants *grants;
	int (*pace)(void *arg, uint32_t n); /* as in source_rights.h */
	void *arg;
	const int *stop; /* not 0: no more is read */
};
/* 1: its rights were changed; 0: they are those of the source, or that is in another cluster.
 * -LE_BUSY: somebody else has it locked; -LE_NOENT: it is gone; else why it cannot be told, or
 * done. */
int age_copy(const struct age_options *o) CHECK_RESULT;

#endif
