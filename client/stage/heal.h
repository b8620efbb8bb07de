/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repairs damaged chunks of a READY copy where they lie: the files keep their names, so a loader
 * or a mount that has one open reads right bytes from then on. No reader trusts a chunk without
 * its bit (DEGRADED), so after a crash at any step the next `stage in`, or the next repair, checks
 * it again:
 *
 *   lock; find the wrong chunks; clear their bits, synced; write their wrong blocks; sync the
 *   files; set the bits, synced
 *
 * Writes only to the copy's files: regular ones with one name, of the owner that the manifest says
 * or, where the copy is not root's, of this user, on no other mount. A block of zeros becomes the
 * hole that it was.
 *
 * In fibers; yields. Owned by the caller's loop.
 */
#ifndef LEAT_CLIENT_STAGE_HEAL_H
#define LEAT_CLIENT_STAGE_HEAL_H

#include <stdint.h>

#include "client/dataset/manifest.h"
#include "common/base/status.h"

struct env;

struct heal_options {
	struct env *env;
	const char *to, *id; /* DIR/.leat/ID */
	const struct manifest *m;
	/* Reads blocks of a file, verified, from elsewhere. Yields. */
	int (*read)(void *arg, uint32_t file, uint64_t off, uint64_t len, void *ret_bytes);
	void *arg;
};
struct heal_report {
	uint32_t healed; /* chunks */
	uint32_t left;   /* chunks still wrong: no source has right bytes now, or `stage in` is
			  * needed (a file is missing or has another length) */
	char why[400];   /* a file that was not written because another user may own it, and the
			  * remedy; "": none */
};
/* Repairs those of the chunks that are wrong. -LE_BUSY: another process changes the copy;
 * -LE_ACCES, -LE_PERM, -LE_ROFS: this process may not write; -LE_NOENT: the copy is no longer
 * READY. Yields. */
int copy_heal(const struct heal_options *o, const uint64_t *chunks, uint32_t n,
	      struct heal_report *ret_report) CHECK_RESULT;

#endif
