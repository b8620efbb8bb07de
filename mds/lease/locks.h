/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of file locks (fcntl, flock) that sessions hold and wait for: soft state, like
 * opens, reclaimed by the clients after a restart. A program waits at its client; when no lock
 * is in its way any longer the table queues a notice for its session (session/lock_notify.h).
 *
 * Owned by the loop; nothing here yields.
 */
#ifndef LEAT_MDS_LEASE_LOCKS_H
#define LEAT_MDS_LEASE_LOCKS_H

#include "common/base/hmap.h"
#include "common/proto/file_locks.h"
#include "common/rt/fiber.h"

struct locks {
	struct hmap files;   /* struct locked_file */
	struct hmap waiters; /* struct lock_wait, by owner */
	struct list news;    /* struct lock_wait to notify */
	struct waitq work;   /* woken when news gets an entry */
	uint32_t n, n_waits, n_max;
};

/* Makes an empty table for at most n_max locks and waiters together. */
void locks_init(struct locks *ls, uint32_t n_max);
/* Frees the table. */
void locks_fini(struct locks *ls);
/* Sets or removes a lock. Returns 0; -LE_LOCKED if another owner's lock excludes it (wait: the wait
 * is noted, and the session is notified later); -LE_DEADLK if waiting would close a circle;
 * -LE_NOLCK if the table is full; -LE_NOMEM. An earlier wait of the owner on that range ends. */
int locks_set(struct locks *ls, struct ino ino, uint64_t session, const struct file_lock *want,
	      bool wait) CHECK_RESULT;
/* The first lock that excludes the wanted one; NULL: none. */
const struct file_lock *locks_find(const struct locks *ls, struct ino ino, uint64_t session,
				   const struct file_lock *want);
/* Calls holder() for each lock that excludes the wanted one, with its session. */
void locks_holders(const struct locks *ls, struct ino ino, uint64_t session,
		   const struct file_lock *want, void (*holder)(void *arg, uint64_t session),
		   void *arg);
/* Removes a wait: the program no longer wants the lock. */
void locks_cancel(struct locks *ls, struct ino ino, uint64_t session, const struct file_lock *want);
/* Calls each() for the locks of the session, except the first `from` ones, until it returns
 * true. Returns the number of calls. The order stays while no lock is set or removed. */
uint32_t locks_each(const struct locks *ls, uint64_t session, uint32_t from,
		    bool (*each)(void *arg, struct ino ino, const struct file_lock *l), void *arg);
/* Removes all waits of the session. Its client requests the locks again that it still wants. */
void locks_drop_waits(struct locks *ls, uint64_t session);
/* Removes all locks and waits of a session that has ended. */
void locks_drop_session(struct locks *ls, uint64_t session);
/* Removes the next notice from the queue and returns its session and inode; false if the queue
 * is empty. */
bool locks_next(struct locks *ls, uint64_t *ret_session, struct ino *ret_ino);

#endif
