/*
 * The locks that sessions hold and wait for: soft state, like opens, reclaimed by the clients after
 * a restart. Who has to wait does so at its client; the table tells whom to wake.
 *
 * Owned by the loop; nothing here yields.
 */
#ifndef LEAT_MDS_SESSION_LOCKS_H
#define LEAT_MDS_SESSION_LOCKS_H

#include "common/base/hmap.h"
#include "common/proto/file_locks.h"
#include "common/rt/fiber.h"

struct locks {
	struct hmap files;   /* struct locked_file */
	struct hmap waiters; /* struct lock_wait, by owner */
	struct list news;    /* struct lock_wait that may try again */
	struct waitq work;   /* there are news */
	uint32_t n, n_waits, n_max;
};

/* n_max: locks and waiters together. */
void locks_init(struct locks *ls, uint32_t n_max);
void locks_fini(struct locks *ls);
/* 0, -LE_LOCKED (wait: and it is noted that the session waits), -LE_DEADLK, -LE_NOLCK, -LE_NOMEM.
 * What the owner had waited for on that range it waits for no more. */
int locks_set(struct locks *ls, struct ino ino, uint64_t session, const struct file_lock *want,
	      bool wait) CHECK_RESULT;
/* The first lock that forbids it, or NULL. */
const struct file_lock *locks_find(const struct locks *ls, struct ino ino, uint64_t session,
				   const struct file_lock *want);
/* Whose locks forbid it; each of them as often as it has some. */
void locks_holders(const struct locks *ls, struct ino ino, uint64_t session,
		   const struct file_lock *want, void (*holder)(void *arg, uint64_t session),
		   void *arg);
/* It does not want it any more. */
void locks_cancel(struct locks *ls, struct ino ino, uint64_t session, const struct file_lock *want);
/* The locks of the session behind the first `from` of them, until each says enough (true): how many
 * were told. The order holds while none is taken or given back. */
uint32_t locks_each(const struct locks *ls, uint64_t session, uint32_t from,
		    bool (*each)(void *arg, struct ino ino, const struct file_lock *l), void *arg);
/* What the session has asked for it asks for again, if it still wants it. */
void locks_drop_waits(struct locks *ls, uint64_t session);
/* The session has ended. */
void locks_drop_session(struct locks *ls, uint64_t session);
/* Whom to tell next: true, or there is nobody. */
bool locks_next(struct locks *ls, uint64_t *ret_session, struct ino *ret_ino);

#endif
