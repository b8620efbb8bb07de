/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The committer, and the writing half of critical sections. Inodes and entries are encoded when
 * their batch closes, once each, however often they changed in it.
 */
#include "mds/store/txn.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/planted_bug.h"
#include "common/rt/loop.h"
#include "mds/store/acl.h"

#define RESERVE 16u /* objects of each kind that one critical section may allocate */

/* ---- critical sections ---- */

static bool batch_full(struct store *s)
{
	struct batch *b = open_batch(s);

	return b->n_ops >= s->opt.batch_ops_max || kv_batch_bytes(b->kv) >= s->opt.batch_bytes_max;
}

int txn_begin(struct store *s)
{
	while (s->failed == 0 && !s->stopping && batch_full(s)) {
		store_expedite(s, s->open_no);
		TRY(waitq_wait(&s->space, NO_DEADLINE));
	}
	if (s->failed < 0)
		return -LE_IO;
	if (s->stopping)
		return -LE_SHUTDOWN;
	TRY(pool_reserve(&s->inode_pool, RESERVE));
	TRY(pool_reserve(&s->rec_pool, RESERVE));
	for (int c = 0; c < NAME_CLASSES; c++)
		TRY(pool_reserve(&s->name_pool[c], RESERVE));
	s->depends = 0;
	s->wrote = false;
	return 0;
}

static uint64_t section_end(struct store *s)
{
	if (!s->wrote)
		return 0;
	s->wrote = false;
	open_batch(s)->n_ops++;
	return s->open_no;
}

void inode_expedite(struct store *s, const struct inode *i)
{
	if (i->o.in[s->open_no & 1])
		store_expedite(s, s->open_no);
}

uint64_t txn_end(struct store *s)
{
	uint64_t no = section_end(s);

	store_expedite(s, no);
	return no;
}

uint64_t txn_end_lazy(struct store *s)
{
	uint64_t no = section_end(s);
	struct batch *b = open_batch(s);

	if (no != 0 && s->opt.lazy_us == 0) {
		store_expedite(s, no);
	} else if (no != 0 && b->commit_by_us == 0) {
		b->commit_by_us = loop_now_us() + s->opt.lazy_us;
		if (!b->due)
			waitq_wake_one(&s->work);
	}
	return no;
}

int store_wait(struct store *s, uint64_t no)
{
	store_expedite(s, no);
	return store_wait_lazy(s, no);
}

int store_wait_lazy(struct store *s, uint64_t no)
{
	ASSERT(no <= s->open_no);
	while (s->durable_no < no && s->failed == 0) {
		int rc = waitq_wait(&s->batch[no & 1].done, NO_DEADLINE);

		/* An interrupted caller waits as well, because its change has been written. */
		if (rc < 0 && rc != -LE_INTR)
			return rc;
	}
	return s->durable_no >= no ? 0 : -LE_IO;
}

int store_settle(struct store *s)
{
	return store_wait(s, s->open_no - 1);
}

static bool cobj_pin(struct store *s, struct cobj *o)
{
	uint32_t p = s->open_no & 1;

	s->wrote = true;
	if (o->in[p])
		return false;
	if (!o->in[p ^ 1])
		store_pin(s, o);
	o->in[p] = true;
	list_push(&s->batch[p].dirty, &o->dirty[p]);
	return true;
}

struct inode_rec *inode_edit(struct store *s, struct inode *i)
{
	uint32_t p = s->open_no & 1;
	const struct inode_rec *newest = i->o.in[p ^ 1] ? i->ver[p ^ 1] : &i->durable;

	if (cobj_pin(s, &i->o)) {
		i->ver[p] = pool_get(&s->rec_pool);
		*i->ver[p] = *newest;
		acl_ref(newest->acl);
		acl_ref(newest->acl_default);
		acl_ref(newest->preallocated);
	}
	return i->ver[p];
}

struct inode *inode_create(struct store *s, struct inode_rec **ret_rec)
{
	struct ino ino = {s->counters.next_ino++};
	struct inode *i = inode_insert(s, ino);

	i->o.hot = true;
	s->counters.n_inodes++;
	s->counters_dirty = true;
	*ret_rec = inode_edit(s, i);
	(*ret_rec)->attr.ino = ino;
	return i;
}

void inode_delete(struct store *s, struct inode *i)
{
	struct inode_rec *rec = inode_edit(s, i);

	if (rec->n_xattrs > 0)
		txn_delete_prefix(s, key_of('X', i->ino.v));
	if (S_ISDIR(rec->attr.mode) && (rec->flags & INODE_TOMBS) != 0)
		dentry_remove_range(s, i->ino);
	acl_unref(s, rec->acl);
	acl_unref(s, rec->acl_default);
	acl_unref(s, rec->preallocated);
	s->counters.unwritten -= rec->unwritten;
	*rec = (struct inode_rec){0};
	s->counters.n_inodes--;
	s->counters_dirty = true;
}

static struct dentry_val *dentry_edit(struct store *s, struct dentry *d)
{
	uint32_t p = s->open_no & 1;
	const struct dentry_val *newest = d->o.in[p ^ 1] ? &d->ver[p ^ 1] : &d->durable;

	if (cobj_pin(s, &d->o))
		d->ver[p] = *newest;
	return &d->ver[p];
}

/* Stores in the inode the place of its newest name. */
static void name_given(struct store *s, const struct dentry *d, struct ino ino)
{
	struct inode_rec *rec;
	struct inode *i;

	if (inode_get(s, ino, VIEW_NEWEST, &i, NULL) < 0)
		PANIC("inode %llu gets a name and is not in memory", (unsigned long long)ino.v);
	rec = inode_edit(s, i);
	rec->parent = d->parent;
	rec->place = d->cookie;
}

void dentry_put(struct store *s, struct dentry *d, struct ino ino, uint32_t mode)
{
	struct dentry_val *v = dentry_edit(s, d), before;
	struct dentry *prev;

	name_given(s, d, ino);

	*v = (struct dentry_val){ino, DENTRY_LIVE, (uint8_t)(mode >> 12), v->flags};
	if ((d->cookie & 15) == 0)
		return;
	/* The search passed that place, so it is in memory. */
	if (dentry_at(s, d->parent, d->cookie - 1, VIEW_NEWEST, &prev, &before) < 0)
		PANIC("collision chain of directory %llu is not in memory",
		      (unsigned long long)d->parent.v);
	if ((before.flags & DENTRY_MORE) == 0)
		dentry_edit(s, prev)->flags |= DENTRY_MORE;
}

void dentry_replace(struct store *s, struct dentry *d, struct ino ino, uint32_t mode)
{
	struct dentry_val *v = dentry_edit(s, d);

	v->ino = ino;
	v->type = (uint8_t)(mode >> 12);
	name_given(s, d, ino);
}

bool dentry_remove(struct store *s, struct dentry *d)
{
	struct dentry_val *v = dentry_edit(s, d);
	bool tomb = (v->flags & DENTRY_MORE) != 0;

	*v = (struct dentry_val){.state = tomb ? DENTRY_TOMB : DENTRY_ABSENT,
				 .flags = tomb ? DENTRY_MORE : 0};
	return tomb;
}

void dentry_remove_range(struct store *s, struct ino dir)
{
	txn_delete_prefix(s, key_of('D', dir.v));
}

void txn_put(struct store *s, struct key k, const void *value, size_t len)
{
	s->wrote = true;
	kv_batch_put(open_batch(s)->kv, k.b, k.len, value, len);
}

void txn_delete(struct store *s, struct key k)
{
	s->wrote = true;
	kv_batch_delete(open_batch(s)->kv, k.b, k.len);
}

void txn_delete_prefix(struct store *s, struct key k)
{
	struct key end = key_after(k);

	s->wrote = true;
	kv_batch_delete_range(open_batch(s)->kv, k.b, k.len, end.b, end.len);
}

void txn_cluster(struct store *s)
{
	TXN_PUT(s, key_cluster('m', 0), cluster_rec, &s->cluster);
}

/* ---- the committer ---- */

static void encode_inode(struct batch *b, struct inode *i)
{
	const struct inode_rec *rec = i->ver[b->no & 1];
	struct key k = key_inode(i->ino);
	uint8_t buf[RECORD_MAX];

	if (rec->attr.mode == 0)
		kv_batch_delete(b->kv, k.b, k.len);
	else
		kv_batch_put(b->kv, k.b, k.len, buf, inode_encode(rec, buf, sizeof(buf)));
}

static void encode_dentry(struct batch *b, struct dentry *d)
{
	const struct dentry_val *v = &d->ver[b->no & 1];
	struct key k = key_dentry(d->parent, d->cookie);
	struct dentry_rec rec = {v->ino, v->type, v->flags, {NULL, 0}};
	uint8_t buf[512];
	struct wire_w w;

	if (v->state == DENTRY_ABSENT) {
		kv_batch_delete(b->kv, k.b, k.len);
		return;
	}
	if (v->state == DENTRY_LIVE)
		rec.name = bytes_of(d->name, d->name_len);
	wire_w_init(&w, buf, sizeof(buf));
	wire_put_dentry_rec(&w, &rec);
	ASSERT(w.status == 0);
	kv_batch_put(b->kv, k.b, k.len, buf, w.len);
}

static void encode(struct store *s, struct batch *b)
{
	NO_YIELD();

	list_for_each (n, &b->dirty) {
		struct cobj *o = list_entry(n, struct cobj, dirty[b->no & 1]);

		if (o->kind == COBJ_INODE) {
			struct inode *i = container_of(o, struct inode, o);

			/* The previous batch is published, so `durable` is the state before this
			 * one. */
			quota_count(s, &i->durable, i->ver[b->no & 1]);
			encode_inode(b, i);
		} else
			encode_dentry(b, container_of(o, struct dentry, o));
	}
	quotas_encode(s, b->kv);
	if (s->counters_dirty && !PLANTED_BUG(MDS_LOSE_COUNTERS)) {
		struct key k = key_cluster('n', 0);
		uint8_t buf[128];
		struct wire_w w;

		wire_w_init(&w, buf, sizeof(buf));
		wire_put_counters_rec(&w, &s->counters);
		ASSERT(w.status == 0);
		kv_batch_put(b->kv, k.b, k.len, buf, w.len);
		s->counters_dirty = false;
	}
}

static void publish(struct store *s, struct batch *b)
{
	uint32_t p = b->no & 1, n = 0;
	struct list *l;
	NO_YIELD();

	ASSERT(b->no == s->durable_no + 1 && b->no + 1 == s->open_no);
	for (; (l = list_pop(&b->dirty)) != NULL; n++) {
		struct cobj *o = list_entry(l, struct cobj, dirty[p]);

		ASSERT(o->in[p]);
		o->in[p] = false;
		if (o->kind == COBJ_INODE) {
			struct inode *i = container_of(o, struct inode, o);

			acl_unref(s, i->durable.acl);
			acl_unref(s, i->durable.acl_default);
			acl_unref(s, i->durable.preallocated);
			i->durable = *i->ver[p]; /* takes over the references */
			pool_put(&s->rec_pool, i->ver[p]);
			i->ver[p] = NULL;
		} else {
			struct dentry *d = container_of(o, struct dentry, o);

			d->durable = d->ver[p];
		}
		store_unpin(s, o);
	}
	kv_batch_clear(b->kv);
	b->n_ops = 0;
	b->due = false;
	b->commit_by_us = 0;
	s->durable_no = b->no;
	store_shrink(s, n);
}

/* Encodes and commits the open batch. Returns false if the store has failed. */
static bool commit_open(struct store *s)
{
	struct batch *b = open_batch(s);
	uint64_t start_us = env_now_us(s->env);
	uint32_t n_ops = b->n_ops;
	int rc;

	encode(s, b);
	s->open_no++;
	s->batch[s->open_no & 1].no = s->open_no;
	waitq_wake_all(&s->space);
	rc = kv_commit(s->kv, b->kv, s->opt.sync);
	if (rc < 0) {
		log_error("metadata store failed: %s; all changes are refused until a restart",
			  status_text(rc));
		s->failed = rc;
		waitq_wake_all(&s->batch[0].done);
		waitq_wake_all(&s->batch[1].done);
		waitq_wake_all(&s->space);
		return false;
	}
	publish(s, b);
	waitq_wake_all(&b->done);
	metric_add(&s->opt.metrics->batches, 1);
	metric_add(&s->opt.metrics->mutations, n_ops);
	metric_set(&s->opt.metrics->inodes, s->counters.n_inodes);
	metric_hist_add(&s->opt.metrics->commit_us, env_now_us(s->env) - start_us);
	return true;
}

/* Waits until the open batch is due. Returns false if the store stops and the batch is empty. */
static bool wait_due(struct store *s)
{
	for (;;) {
		struct batch *b = open_batch(s);
		bool lazy = b->n_ops > 0 && b->commit_by_us != 0;

		if (b->n_ops == 0 && s->stopping)
			return false;
		if (b->n_ops > 0 && (b->due || s->stopping))
			return true;
		if (lazy && loop_now_us() >= b->commit_by_us)
			return true;
		/* Checks again, also after an interrupt. */
		if (waitq_wait(&s->work, lazy ? b->commit_by_us : NO_DEADLINE) < 0)
			continue;
	}
}

static void committer(void *arg)
{
	struct store *s = arg;
	bool ok = true;

	while (ok && wait_due(s))
		ok = commit_open(s);
	if (!ok && s->opt.failed != NULL)
		s->opt.failed(s->opt.arg, s->failed);
	s->running = false;
	latch_done(&s->committer);
}

int store_run(struct store *s)
{
	latch_add(&s->committer, 1);
	s->running = true;
	int rc = fiber_spawn("committer", committer, s);

	if (rc < 0) {
		s->running = false;
		latch_done(&s->committer);
	}
	return rc;
}

void store_stop(struct store *s)
{
	s->stopping = true;
	waitq_wake_all(&s->work);
	waitq_wake_all(&s->space);
	latch_wait(&s->committer);
}
