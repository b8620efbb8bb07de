#include "client/lock.h"

#include <stdlib.h>

#include "client/retry.h"
#include "client/session.h"
#include "common/base/log.h"

/* Who waits asks again after so long even if no word has come. */
#define ASK_AGAIN_US  5000000u
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

/* The owner's own locks on the range: a copy, NULL without memory (*ret_n 1) or when there are
 * none. */
static struct file_lock *copy_held(const struct idata *d, const struct file_lock *range,
				   uint32_t *ret_n)
{
	struct file_lock *v = malloc((d->locks.n + 1) * sizeof(*v));

	*ret_n = v == NULL;
	if (v == NULL)
		return NULL;
	list_for_each (n, &d->locks.held) {
		const struct held_lock *h = list_entry(n, struct held_lock, link);

		if (range == NULL ||
		    (file_lock_same_owner(&h->lock, range) && file_lock_overlap(&h->lock, range)))
			v[(*ret_n)++] = h->lock;
	}
	return v;
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

/* Takes away at the MDS what it may have on the range, then sets what is ours there. */
static int mend_once(struct idata *d, const struct file_lock *range)
{
	struct file_lock none = *range, *v;
	uint32_t n;
	int rc;

	none.type = FILE_LOCK_NONE;
	TRY(lock_call(d, range, LOCK_CANCEL));
	TRY(lock_call(d, &none, 0));
	v = copy_held(d, range, &n);
	if (v == NULL)
		return -LE_NOMEM;
	rc = 0;
	for (uint32_t i = 0; i < n && rc >= 0; i++) {
		rc = lock_call(d, &v[i], 0);
		if (rc == -LE_LOCKED) {
			lost(d, &v[i]);
			rc = 0;
		}
	}
	free(v);
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
		int rc = mend_once(m.d, &m.range);

		if (rc >= 0 || rc == -LE_STALE)
			break;
		log_debug("client %s: lock of ino %llu: %s", c->name,
			  (unsigned long long)m.i->ino.v, status_name(rc));
		fiber_sleep_us(MEND_EVERY_US);
	}
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
		if (client_bg_spawn(d->c, "mend-lock", mend_fiber, m) == 0)
			return;
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
	ra_drop_all(d);
	d->inode->attr_us = 0;
	d->inode->settled_us = 0;
	d->inode->created_us = 0;
}

static int ask(struct idata *d, const struct file_lock *want, bool wait)
{
	for (;;) {
		uint32_t seen = d->n_unlocked;
		int rc = lock_call(d, want, wait ? LOCK_WAIT : 0);

		if (rc != -LE_LOCKED || !wait)
			return rc;
		if (seen != d->n_unlocked)
			continue;
		rc = waitq_wait(&d->lock_q, loop_now_us() + ASK_AGAIN_US);
		if (rc < 0 && rc != -LE_TIMEDOUT)
			return rc;
	}
}

static int take(struct ll_file *f, const struct file_lock *want, bool wait)
{
	struct idata *d = f->d;
	int rc;

	/* A weaker lock gives a stronger one back. */
	if (is_held(d, want))
		TRY(wb_show(d));
	rc = ask(d, want, wait);
	if (rc >= 0)
		rc = file_locks_set(&d->locks, 0, (uintptr_t)f, want);
	/* Else it is known that we have not got it. */
	if (rc < 0 && rc != -LE_LOCKED && rc != -LE_DEADLK && rc != -LE_NOLCK)
		mend(d, want);
	TRY(rc);
	forget_data(d);
	return 0;
}

static int give_back(struct idata *d, const struct file_lock *none)
{
	int rc;

	if (!is_held(d, none))
		return 0;
	if (wb_show(d) < 0)
		log_debug("client %s: unlocking ino %llu before its data is seen", d->c->name,
			  (unsigned long long)d->inode->ino.v);
	TRY(file_locks_set(&d->locks, 0, 0, none));
	rc = lock_call(d, none, 0);
	if (rc < 0)
		mend(d, none);
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

void lock_release(struct ll_file *f)
{
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
	if (i->data != NULL) {
		i->data->n_unlocked++;
		waitq_wake_all(&i->data->lock_q);
	}
	inode_put(c, i);
}

void lock_ask_again(struct client *c)
{
	list_for_each (l, &c->inodes.open) {
		struct idata *d = list_entry(l, struct idata, open_link);

		d->n_unlocked++;
		waitq_wake_all(&d->lock_q);
	}
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

int lock_renew(struct client *c, struct idata *d, uint16_t flags)
{
	struct file_lock *v;
	uint32_t n;
	int rc = 0;

	if (d->locks.n == 0)
		return 0;
	v = copy_held(d, NULL, &n);
	if (v == NULL)
		return -LE_NOMEM;
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
