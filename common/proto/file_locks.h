/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The locks on one file, as fcntl(2) and flock(2) define them: which of them conflict, and how a
 * new lock of an owner changes its former ones. The MDS uses it for the locks of all sessions, a
 * mount for its own. Locks of different kinds do not affect each other.
 *
 * An owner is (session, owner, kind). Its ranges never overlap, and adjacent ranges of one type are
 * merged. Owned by the owner of the file. Nothing here yields.
 */
#ifndef LEAT_COMMON_PROTO_FILE_LOCKS_H
#define LEAT_COMMON_PROTO_FILE_LOCKS_H

#include "common/base/list.h"
#include "common/proto/types.h"

struct held_lock {
	struct list link;
	uint64_t session;
	uint64_t via; /* in a mount: the open file that took the lock */
	struct file_lock lock;
};

struct file_locks {
	struct list held;
	uint32_t n;
};

void file_locks_init(struct file_locks *fl);
void file_locks_fini(struct file_locks *fl);
/* Returns whether a lock from outside is well-formed. */
bool file_lock_valid(const struct file_lock *l);
bool file_lock_same_owner(const struct file_lock *a, const struct file_lock *b);
static inline bool file_lock_overlap(const struct file_lock *a, const struct file_lock *b)
{
	return a->kind == b->kind && a->first <= b->last && b->first <= a->last;
}
/* Returns whether held, of session h_session, conflicts with want, of session. */
bool file_lock_forbids(uint64_t h_session, const struct file_lock *held, uint64_t session,
		       const struct file_lock *want);
/* Returns the conflicting lock that begins first, as F_GETLK reports it, or NULL. */
const struct held_lock *file_locks_find(const struct file_locks *fl, uint64_t session,
					const struct file_lock *want);
/* Returns a lock of this owner in that range, or NULL. */
const struct held_lock *file_locks_own(const struct file_locks *fl, uint64_t session,
				       const struct file_lock *range);
/* Returns whether the range lies inside one lock, so that unlocking it makes two of that lock. */
bool file_locks_splits(const struct file_locks *fl, uint64_t session,
		       const struct file_lock *range);
/* Replaces the owner's locks on the range by want (NONE: by none). Does not check for conflicts.
 * Returns 0, or -LE_NOMEM and changes nothing. */
int file_locks_set(struct file_locks *fl, uint64_t session, uint64_t via,
		   const struct file_lock *want) CHECK_RESULT;
/* Removes one lock. */
void file_locks_drop(struct file_locks *fl, struct held_lock *h);

#endif
