#include "client/lock.h"

#include <stdlib.h>

#include "client/delegation.h"
#include "client/retry.h"
#include "client/session.h"
#include "common/base/log.h"

/* Who waits asks again after so long even if no word has come. By that it is found that a holder is
 * silent. */
#define ASK_AGAIN_US  2000000u
#define MEND_EVERY_US 1000000u

static int lock_call(struct idata *d, const struct file_lock *l, uint32_t flags)
{
	struct mds_lock_req req = {.ino = d->inode->ino, .lock = *l, .flags = flags};
	struct mds_lock_rep rep;
	struct rpc_call call;
	int rc = mds_call(d->c, OP_mds_lock, &req, &rep, &call);

	rpc_call_fini(&call);
	return rc;
}

/* ---- making the MDS have what we think we have ---- */

static bool is_held(const struct idata *d, const struct file_lock *l)
{
	list_for_each (n, &d->locks.held) {
		const struct held_lock *h = list_entry(n, struct held_lock, link);

		if (file_lock_same_owner(&h->lock, l) && file_lock_overlap(&h->lock, l))
			return true;
	}
	return false;
}

/* What the owner holds of the range from `first` on: one stretch of one type. */
static struct file_lock held_from(const struct idata *d, const struct file_lock *range,
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

static void lost(struct idata *d, const struct file_lock *l)
{
	struct file_lock none = *l;

	log_warn("client %s: a lock on ino %llu is lost: somebody else has it", d->c->name,
		 (unsigned long long)d->inode->ino.v);
	none.type = FILE_LOCK_NONE;
	if (file_locks_set(&d->locks, 0, 0, &none) < 0)
		log_error("client %s: out of memory", d->c->name);
	wb_set_error(d, -LE_IO);
}

static void ask_again(struct idata *d)
{
	d->n_unlocked++;
	waitq_wake_all(&d->lock_q);
}

/* While this file's locks are mended nothing else is asked about them, and the other way round:
 * else what is set right could be what somebody has changed meanwhile. Who mends comes first, so
 * that those who ask again and again do not keep it from its turn. */
static int turn_begin(struct idata *d)
{
	while (d->mending || d->n_menders > 0)
		TRY(waitq_wait(&d->lock_turn, NO_DEADLINE));
	d->n_lock_calls++;
	return 0;
}

static void turn_end(struct idata *d)
{
	if (--d->n_lock_calls == 0)
		waitq_wake_all(&d->lock_turn);
}

/* Sets the range at the MDS as it is here, piece by piece, so that nothing that is held is free for
 * a moment. */
static int mend_once(struct idata *d, const struct file_lock *range)
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

static int mend_in_turn(struct idata *d, const struct file_lock *range)
{
	int rc = 0;

	d->n_menders++;
	while (rc >= 0 && (d->mending || d->n_lock_calls > 0))
		rc = waitq_wait(&d->lock_turn, NO_DEADLINE);
	d->n_menders--;
	if (rc >= 0) {
		d->mending = true;
		rc = mend_once(d, range);
		d->mending = false;
	}
	waitq_wake_all(&d->lock_turn);
	/* Who has begun to wait for that range since is not known there any more. */
	ask_again(d);
	return rc;
}

struct mending {
	struct idata *d;
	struct inode *i;
	struct file_lock range;
};

static void mend_fiber(void *arg)
{
	struct mending m = *(struct mending *)arg;
	struct client *c = m.d->c;
	uint32_t session_gen = c->session_gen;

	free(arg);
	/* A new session begins with what we hold. */
	while (!c->stopping && c->session_gen == session_gen && m.i->data == m.d) {
		int rc = mend_in_turn(m.d, &m.range);

		if (rc >= 0 || rc == -LE_STALE)
			break;
		log_debug("client %s: lock of ino %llu: %s", c->name,
			  (unsigned long long)m.i->ino.v, status_name(rc));
		fiber_sleep_us(MEND_EVERY_US);
	}
	c->n_mends--;
	inode_put(c, m.i);
	client_bg_end(c);
}

/* What the MDS has on that range is not known. */
static void mend(struct idata *d, const struct file_lock *range)
{
	struct mending *m = malloc(sizeof(*m));

	if (m != NULL) {
		*m = (struct mending){d, d->inode, *range};
		inode_ref(d->inode);
		d->c->n_mends++;
		if (client_bg_spawn(d->c, "mend-lock", mend_fiber, m) == 0)
			return;
		d->c->n_mends--;
		inode_put(d->c, d->inode);
		free(m);
	}
	log_error("client %s: a lock on ino %llu may stay: out of memory", d->c->name,
		  (unsigned long long)d->inode->ino.v);
}

/* ---- taking and giving back ---- */

/* Others may have written since we read. */
static void forget_data(struct idata *d)
{
	if (lease_held(d->c, d->inode))
		return;
	ra_drop_all(d);
	d->inode->attr_us = 0;
	d->inode->settled_us = 0;
}

/* Asks once, and notes what was given. */
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

static int give_back(struct idata *d, const struct file_lock *none)
{
	int rc, local;

	if (!is_held(d, none))
		return 0;
	if (wb_show(d) < 0)
		log_debug("client %s: unlocking ino %llu before its data is seen", d->c->name,
			  (unsigned long long)d->inode->ino.v);
	while (turn_begin(d) == -LE_INTR)
		continue;
	rc = lock_call(d, none, 0);
	/* It would cut one in two, and there are too many. */
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

/* Somebody else has the lock. As everywhere flock(2) gives back what it had before it takes another
 * one, also when it does not get that: else two who share a lock and both want it alone would wait,
 * or ask, for ever. */
static int convert_flock(struct idata *d, const struct file_lock *want)
{
	struct file_lock none = *want;

	none.type = FILE_LOCK_NONE;
	TRY(give_back(d, &none));
	return -LE_LOCKED;
}

static bool surely_refused(int rc)
{
	return rc == -LE_LOCKED || rc == -LE_DEADLK || rc == -LE_NOLCK;
}

static int take(struct ll_file *f, const struct file_lock *want, bool wait)
{
	struct idata *d = f->d;
	bool waited = false;
	int rc;

	do
		rc = delegation_tell(f->c, f->inode);
	while (wait && rc == -LE_IO);
	TRY(rc);
	/* A weaker lock gives a stronger one back. */
	if (is_held(d, want))
		TRY(wb_show(d));
	for (;;) {
		uint32_t seen = d->n_unlocked;

		rc = ask(f, want, wait);
		if (rc == -LE_LOCKED && want->kind == FILE_LOCK_FLOCK)
			rc = convert_flock(d, want);
		/* A server that is away is waited for as well. */
		if ((rc != -LE_LOCKED && rc != -LE_IO) || !wait)
			break;
		waited = true;
		if (seen == d->n_unlocked)
			rc = waitq_wait(&d->lock_q, loop_now_us() + ASK_AGAIN_US);
		if (rc == -LE_INTR)
			break;
	}
	/* The MDS may have given it, or still think that somebody waits. */
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

/* ---- sessions ---- */

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
		ask_again(list_entry(l, struct idata, open_link));
}

int lock_list(struct client *c, uint8_t **ret_buf, uint32_t *ret_len)
{
	size_t n = 0;
	struct wire_w w;
	uint8_t *buf;

	list_for_each (l, &c->inodes.open)
		n += list_entry(l, struct idata, open_link)->locks.n;
	buf = malloc(n * LOCK_RECLAIM_ENTRY + 1);
	if (buf == NULL)
		return -LE_NOMEM;
	wire_w_init(&w, buf, n * LOCK_RECLAIM_ENTRY);
	list_for_each (l, &c->inodes.open) {
		const struct idata *d = list_entry(l, struct idata, open_link);

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

void lock_session_gone(struct idata *d)
{
	if (d->locks.n == 0)
		return;
	log_warn("client %s: the locks on ino %llu were not held for a while: somebody else may "
		 "have had them",
		 d->c->name, (unsigned long long)d->inode->ino.v);
	wb_set_error(d, -LE_IO);
}

int lock_renew(struct client *c, struct idata *d, uint16_t flags)
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
