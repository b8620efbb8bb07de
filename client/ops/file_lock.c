/* SPDX-License-Identifier: Apache-2.0 */
#include "client/ops/file_lock.h"

#include <stdlib.h>

#include "client/base/background.h"
#include "client/cache/inode_cache.h"
#include "client/cache/lease.h"
#include "client/cache/prefetch_cache.h"
#include "client/client.h"
#include "client/data/flush.h"
#include "client/data/open_file.h"
#include "client/data/write_error.h"
#include "client/ll.h"
#include "client/ops/delegated_open.h"
#include "client/servers/mds_call.h"
#include "client/servers/session.h"
#include "common/base/assert.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/proto/file_locks.h"
#include "common/proto/mds_proto.h"
#include "common/proto/types.h"
#include "common/proto/wire.h"
#include "common/rpc/rpc.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

/* A waiting fiber requests the lock again after this time, even without a notification. That also
 * makes the MDS notice that a holder is silent. */
#define ASK_AGAIN_US  2000000u
#define MEND_EVERY_US 1000000u

static int lock_call(struct inode_io *d, const struct file_lock *l, uint32_t flags)
{
	struct mds_lock_req req = {.ino = d->inode->ino, .lock = *l, .flags = flags};
	struct mds_lock_rep rep;
	struct rpc_call call;
	int rc = mds_call(d->c, OP_mds_lock, &req, &rep, &call);

	rpc_call_fini(&call);
	return rc;
}

static bool is_held(const struct inode_io *d, const struct file_lock *l)
{
	list_for_each (n, &d->locks.held) {
		const struct held_lock *h = list_entry(n, struct held_lock, link);

		if (file_lock_same_owner(&h->lock, l) && file_lock_overlap(&h->lock, l))
			return true;
	}
	return false;
}

/* Returns the part of the range from `first` on that the owner holds with one type. Type NONE: the
 * part that it does not hold. */
static struct file_lock held_from(const struct inode_io *d, const struct file_lock *range,
				  uint64_t first)
{
	struct file_lock l = *range;

	l.first = first;
	l.type = FILE_LOCK_NONE;
	list_for_each (n, &d->locks.held) {
		const struct file_lock *h = &list_entry(n, struct held_lock, link)->lock;

		if (!file_lock_same_owner(h, &l) || !file_lock_overlap(h, &l))
			continue;
		if (h->first > first) {
			l.last = h->first - 1;
			continue;
		}
		l.type = h->type;
		l.last = h->last < range->last ? h->last : range->last;
		break;
	}
	return l;
}

/* Drops a lock that another client has taken. Records an error. */
static void lost(struct inode_io *d, const struct file_lock *l)
{
	struct file_lock none = *l;

	log_warn("client %s: lock on ino %llu lost: another client has it", d->c->name,
		 (unsigned long long)d->inode->ino.v);
	none.type = FILE_LOCK_NONE;
	if (file_locks_set(&d->locks, 0, 0, &none) < 0)
		log_error("client %s: out of memory: cannot drop a lost lock", d->c->name);
	wb_set_error(d, -LE_IO);
}

static void ask_again(struct inode_io *d)
{
	d->n_unlocked++;
	waitq_wake_all(&d->lock_q);
}

/* turn_begin and turn_end enclose lock requests. While a repair of this file's locks is in
 * progress, no other request about them is sent, and no repair starts while requests are in flight:
 * else the repair could undo a newer change. A repair comes first, so that repeated requests do not
 * delay it. turn_begin yields. */
static int turn_begin(struct inode_io *d)
{
	while (d->resyncing || d->n_repairs > 0)
		TRY(waitq_wait(&d->lock_turn, NO_DEADLINE));
	d->n_lock_calls++;
	return 0;
}

static void turn_end(struct inode_io *d)
{
	ASSERT(d->n_lock_calls > 0 && !d->resyncing);
	if (--d->n_lock_calls == 0)
		waitq_wake_all(&d->lock_turn);
}

/* Sets the range at the MDS to the locks held here, piece by piece, so that no lock that is held
 * becomes free in between. Yields. */
static int mend_once(struct inode_io *d, const struct file_lock *range)
{
	uint64_t first = range->first;

	TRY(lock_call(d, range, LOCK_CANCEL));
	for (;;) {
		struct file_lock l = held_from(d, range, first);
		int rc = lock_call(d, &l, 0);

		if (rc == -LE_LOCKED)
			lost(d, &l);
		else
			TRY(rc);
		if (l.last == range->last)
			return 0;
		first = l.last + 1;
	}
}

static int mend_in_turn(struct inode_io *d, const struct file_lock *range)
{
	int rc = 0;

	d->n_repairs++;
	while (rc >= 0 && (d->resyncing || d->n_lock_calls > 0))
		rc = waitq_wait(&d->lock_turn, NO_DEADLINE);
	ASSERT(d->n_repairs > 0);
	d->n_repairs--;
	if (rc >= 0) {
		d->resyncing = true;
		rc = mend_once(d, range);
		d->resyncing = false;
	}
	waitq_wake_all(&d->lock_turn);
	/* The MDS may have dropped waiters for that range since. */
	ask_again(d);
	return rc;
}

struct resyncing {
	struct inode_io *d;
	struct inode *i;
	struct file_lock range;
};

static void mend_fiber(void *arg)
{
	struct resyncing m = *(struct resyncing *)arg;
	struct client *c = m.d->c;
	uint32_t session_gen = c->session_gen;

	free(arg);
	/* In a new session lock_renew takes the locks that are held here. */
	while (!c->stopping && c->session_gen == session_gen && m.i->data == m.d) {
		int rc = mend_in_turn(m.d, &m.range);

		if (rc >= 0 || rc == -LE_STALE)
			break;
		log_debug("client %s: cannot repair lock on ino %llu: %s", c->name,
			  (unsigned long long)m.i->ino.v, status_name(rc));
		fiber_sleep_us(MEND_EVERY_US);
	}
	ASSERT(c->n_mends > 0);
	c->n_mends--;
	inode_put(c, m.i);
	client_bg_end(c);
}

/* Called when the MDS's state of the range is unknown: starts a background fiber that repairs it.
 * Does not yield. */
static void mend(struct inode_io *d, const struct file_lock *range)
{
	struct resyncing *m = malloc(sizeof(*m));

	if (m != NULL) {
		*m = (struct resyncing){d, d->inode, *range};
		inode_ref(d->inode);
		d->c->n_mends++;
		if (client_bg_spawn(d->c, "mend-lock", mend_fiber, m) == 0)
			return;
		d->c->n_mends--;
		inode_put(d->c, d->inode);
		free(m);
	}
	log_error("client %s: out of memory: a lock on ino %llu may last until the session ends",
		  d->c->name, (unsigned long long)d->inode->ino.v);
}

/* Drops cached data: other clients may have written since it was read. */
static void forget_data(struct inode_io *d)
{
	if (lease_held(d->c, d->inode))
		return;
	ra_drop_all(d);
	d->inode->attr_us = 0;
	d->inode->settled_us = 0;
}

/* Requests the lock once and records it if it is granted. Yields. */
static int ask(struct ll_file *f, const struct file_lock *want, bool wait)
{
	int rc;

	TRY(turn_begin(f->d));
	rc = lock_call(f->d, want, wait ? LOCK_WAIT : 0);
	if (rc >= 0)
		rc = file_locks_set(&f->d->locks, 0, (uintptr_t)f, want);
	turn_end(f->d);
	return rc;
}

/* Releases the owner's locks in the range. Yields. */
static int give_back(struct inode_io *d, const struct file_lock *none)
{
	int rc, local;

	if (!is_held(d, none))
		return 0;
	if (wb_flush_visible(d) < 0)
		log_debug("client %s: unlocking ino %llu before its data is visible", d->c->name,
			  (unsigned long long)d->inode->ino.v);
	while (turn_begin(d) == -LE_INTR)
		continue;
	rc = lock_call(d, none, 0);
	/* The release would split a lock in two, and there are too many. */
	if (rc == -LE_NOLCK) {
		turn_end(d);
		return rc;
	}
	local = file_locks_set(&d->locks, 0, 0, none);
	turn_end(d);
	if (rc < 0 || local < 0)
		mend(d, none);
	return local;
}

/* Another client has the lock. flock(2) releases the old lock before it takes the new one, even if
 * that fails: else two clients that share a lock and both request it exclusively would wait for
 * each other for ever. Yields. */
static int convert_flock(struct inode_io *d, const struct file_lock *want)
{
	struct file_lock none = *want;

	none.type = FILE_LOCK_NONE;
	TRY(give_back(d, &none));
	return -LE_LOCKED;
}

/* Returns true if the MDS has certainly not granted the lock. */
static bool surely_refused(int rc)
{
	return rc == -LE_LOCKED || rc == -LE_DEADLK || rc == -LE_NOLCK;
}

static int take(struct ll_file *f, const struct file_lock *want, bool wait)
{
	struct inode_io *d = f->d;
	bool waited = false;
	int rc;

	do
		rc = delegation_report(f->c, f->inode);
	while (wait && rc == -LE_IO);
	TRY(rc);
	/* A downgrade releases a stronger lock. */
	if (is_held(d, want))
		TRY(wb_flush_visible(d));
	for (;;) {
		uint32_t seen = d->n_unlocked;

		rc = ask(f, want, wait);
		if (rc == -LE_LOCKED && want->kind == FILE_LOCK_FLOCK)
			rc = convert_flock(d, want);
		/* Waits for an unreachable server too. */
		if ((rc != -LE_LOCKED && rc != -LE_IO) || !wait)
			break;
		waited = true;
		if (seen == d->n_unlocked)
			rc = waitq_wait(&d->lock_q, loop_now_us() + ASK_AGAIN_US);
		if (rc == -LE_INTR)
			break;
	}
	/* The MDS may have granted it, or may still record a waiter. */
	if (rc < 0 && (waited || !surely_refused(rc)))
		mend(d, want);
	TRY(rc);
	forget_data(d);
	return 0;
}

int ll_lock(struct ll_file *file, const struct file_lock *want, bool wait)
{
	struct ll_file *f = CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC);

	if (!file_lock_valid(want))
		return -LE_INVAL;
	return want->type == FILE_LOCK_NONE ? give_back(f->d, want) : take(f, want, wait);
}

int ll_lock_test(struct ll_file *file, const struct file_lock *want, struct file_lock *ret_lock)
{
	struct ll_file *f = CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC);
	struct mds_lock_test_req req = {.ino = f->inode->ino, .lock = *want};
	struct mds_lock_test_rep rep;
	struct rpc_call call;
	int rc;

	if (!file_lock_valid(want))
		return -LE_INVAL;
	rc = mds_call(f->c, OP_mds_lock_test, &req, &rep, &call);
	rpc_call_fini(&call);
	TRY(rc);
	if (!file_lock_valid(&rep.lock))
		return -LE_BAD_MESSAGE;
	*ret_lock = rep.lock;
	return 0;
}

void ll_unlock_all(struct ll_file *file)
{
	struct ll_file *f = CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC);

	for (;;) {
		struct file_lock none = {.type = FILE_LOCK_NONE, .last = UINT64_MAX};
		bool found = false;

		list_for_each (n, &f->d->locks.held) {
			const struct held_lock *h = list_entry(n, struct held_lock, link);

			if (h->via != (uintptr_t)f)
				continue;
			none = h->lock;
			none.type = FILE_LOCK_NONE;
			found = true;
			break;
		}
		if (!found || give_back(f->d, &none) < 0)
			return;
	}
}

void lock_unlocked(struct client *c, struct ino ino)
{
	struct inode *i = inode_peek(c, ino);

	if (i == NULL)
		return;
	if (i->data != NULL)
		ask_again(i->data);
	inode_put(c, i);
}

void lock_ask_again(struct client *c)
{
	list_for_each (l, &c->inodes.open)
		ask_again(list_entry(l, struct inode_io, open_link));
}

int lock_list(struct client *c, uint8_t **ret_buf, uint32_t *ret_len)
{
	size_t n = 0;
	struct wire_w w;
	uint8_t *buf;

	list_for_each (l, &c->inodes.open)
		n += list_entry(l, struct inode_io, open_link)->locks.n;
	buf = malloc(n * LOCK_RECLAIM_ENTRY + 1);
	if (buf == NULL)
		return -LE_NOMEM;
	wire_w_init(&w, buf, n * LOCK_RECLAIM_ENTRY);
	list_for_each (l, &c->inodes.open) {
		const struct inode_io *d = list_entry(l, struct inode_io, open_link);

		list_for_each (k, &d->locks.held) {
			wire_put_ino(&w, &d->inode->ino);
			wire_put_file_lock(&w, &list_entry(k, struct held_lock, link)->lock);
		}
	}
	ASSERT(w.status == 0);
	*ret_buf = buf;
	*ret_len = (uint32_t)w.len;
	return 0;
}

void lock_session_gone(struct inode_io *d)
{
	if (d->locks.n == 0)
		return;
	log_warn("client %s: locks on ino %llu were lost with the session: another client may have "
		 "held them since",
		 d->c->name, (unsigned long long)d->inode->ino.v);
	wb_set_error(d, -LE_IO);
}

int lock_renew(struct client *c, struct inode_io *d, uint16_t flags)
{
	struct file_lock *v;
	uint32_t n = 0;
	int rc = 0;

	if (d->locks.n == 0)
		return 0;
	v = malloc(d->locks.n * sizeof(*v));
	if (v == NULL)
		return -LE_NOMEM;
	list_for_each (l, &d->locks.held)
		v[n++] = list_entry(l, struct held_lock, link)->lock;
	for (uint32_t i = 0; i < n && rc >= 0; i++) {
		struct mds_lock_req req = {.ino = d->inode->ino, .lock = v[i]};
		struct mds_lock_rep rep;

		rc = session_setup_call(c, flags, OP_mds_lock, &req, &rep);
		if (rc < 0 && status_retry(rc) == RETRY_NEVER) {
			lost(d, &v[i]);
			rc = 0;
		}
	}
	free(v);
	return rc;
}
