/*
 * Damaged chunks of a READY copy, put right where they lie: the same files keep their names, so who
 * has one open, a loader or a mount, sees right bytes from then on. A chunk without its bit is not
 * believed by anybody (DEGRADED), so after a crash at any step the next `stage in`, or the next one
 * who heals, looks at it again:
 *
 *   lock; look which chunks are wrong; clear their bits, synced; write what is wrong in them; sync
 *   the files; set the bits, synced
 *
 * Only the copy's own files are written to: regular ones with one name, of the owner that the
 * manifest says or, where the copy is not root's, of this user, on no other mount. A block of zeros
 * becomes the hole that it was.
 *
 * In fibers; yields. Owned by the caller's loop.
 */
#ifndef LEAT_STAGE_HEAL_H
#define LEAT_STAGE_HEAL_H

#include <stdint.h>

#include "client/stage/manifest.h"
#include "common/base/status.h"

struct env;

struct heal_options {
	struct env *env;
	const char *to, *id; /* DIR/.leat/ID */
	const struct manifest *m;
	/* Blocks of a file, as the manifest says that they are; or a status. Yields. */
	int (*read)(void *arg, uint32_t file, uint64_t off, uint64_t len, void *ret_bytes);
	void *arg;
};
struct heal_report {
	uint32_t healed; /* chunks */
	uint32_t left;   /* that are wrong still: nobody has right bytes now, or it takes `stage in`
			    (a file that is gone, or of another length) */
	char why[400];   /* a file that is left as it is, since it may be somebody else's, and what
			    to do; "": none */
};
/* Of these chunks those that are wrong. -LE_BUSY: somebody else changes the copy; -LE_ACCES,
 * -LE_PERM, -LE_ROFS: this process may not; -LE_NOENT: it is READY no more. */
int copy_heal(const struct heal_options *o, const uint64_t *chunks, uint32_t n,
	      struct heal_report *ret_report) CHECK_RESULT;

#endif
