/*
 * The locks on one file, as fcntl(2) and flock(2) have them: which of them may be held together,
 * and what becomes of the locks of an owner who sets another one. Used by the MDS for everybody's
 * and by a mount for its own. Locks of the two kinds know nothing of each other.
 *
 * An owner is (session, owner, kind). Its ranges never overlap, and neighbours of one type are
 * one. Belongs to whoever owns the file; nothing here yields.
 */
#ifndef LEAT_PROTO_FILE_LOCKS_H
#define LEAT_PROTO_FILE_LOCKS_H

#include "common/base/list.h"
#include "common/proto/types.h"

struct held_lock {
	struct list link;
	uint64_t session;
	uint64_t via; /* of a mount: the open file by which it was taken */
	struct file_lock lock;
};

struct file_locks {
	struct list held;
	uint32_t n;
};

void file_locks_init(struct file_locks *fl);
void file_locks_fini(struct file_locks *fl);
/* From outside: is it one? */
bool file_lock_valid(const struct file_lock *l);
bool file_lock_same_owner(const struct file_lock *a, const struct file_lock *b);
static inline bool file_lock_overlap(const struct file_lock *a, const struct file_lock *b)
{
	return a->kind == b->kind && a->first <= b->last && b->first <= a->last;
}
/* Does held (of h_session) forbid that session gets want? */
bool file_lock_forbids(uint64_t h_session, const struct file_lock *held, uint64_t session,
		       const struct file_lock *want);
/* The one that forbids it and begins first, as F_GETLK shall tell; NULL: none. */
const struct held_lock *file_locks_find(const struct file_locks *fl, uint64_t session,
					const struct file_lock *want);
/* One that this owner has in that range; NULL: none. */
const struct held_lock *file_locks_own(const struct file_locks *fl, uint64_t session,
				       const struct file_lock *range);
/* Is the range in the midst of one, so that to give it back makes two of that? */
bool file_locks_splits(const struct file_locks *fl, uint64_t session,
		       const struct file_lock *range);
/* Makes the owner's locks on that range what want says (NONE: none), whatever others have.
 * -LE_NOMEM: nothing has changed. */
int file_locks_set(struct file_locks *fl, uint64_t session, uint64_t via,
		   const struct file_lock *want) CHECK_RESULT;
/* Takes one out. */
void file_locks_drop(struct file_locks *fl, struct held_lock *h);

#endif
