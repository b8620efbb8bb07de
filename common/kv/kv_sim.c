/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated engine: an ordered store in memory per (process, path) that survives crashes as
 * RocksDB would: all that was synced, and a prefix of the later write groups.
 *
 * A skip list of keys, each with its versions (newest first). A group of commits gets one sequence
 * number; a reader reads versions up to its number. So a snapshot is a number, and a crash drops
 * everything after some number. Versions that no reader can reach are dropped when their key is
 * written again.
 *
 * Commits collect while a write runs, in call order, as in kv_committer.c; the write takes a random
 * time. A write that was running when the process crashed, or that failed, is found done or not
 * done when the store is opened again: as a whole.
 */
#include "common/kv/kv_sim.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/checksum.h"
#include "common/rt/sim/sim.h"

#define KV_SIM_MAGIC 0x4b565353u
#define LEVELS       12
#define CHUNK_ITEMS  64
#define SWEEP_EVERY  1024   /* groups */
#define GET_MISS_PPM 250000 /* gets that wait although the value is in memory */

struct version {
	struct version *older;
	uint64_t seq;
	bool deleted;
	size_t len;
	uint8_t data[];
};

struct node {
	struct node *next[LEVELS]; /* only the first `height` are used */
	struct version *newest;
	size_t key_len;
	uint8_t key[];
};

/* On the stack of the committing fiber. */
struct request {
	struct request *next;
	struct kv_batch *batch;
	bool sync, leads;
	int status;
	struct latch done;
};

/* Owned by the simulation; outlives the process that has it open. */
struct store {
	struct sim_durable durable; /* first: the simulation returns a pointer to this member */
	struct sim *sim;
	struct node *head[LEVELS];
	uint64_t seq, synced_seq;
	struct list pins;       /* struct kv_snapshot: sequence numbers with readers */
	struct kv_batch *group; /* being written; stays after a failure */
	bool group_sync, group_pending;
	struct kv_sim *handle; /* of the process that has it open */
};

struct kv_snapshot {
	struct list link;
	uint64_t seq;
};

struct kv_sim {
	struct kv kv;
	uint32_t magic;
	struct store *store;
	bool no_sync, busy; /* busy: a fiber leads */
	int failed;
	struct request *first, **last; /* queued */
	struct kv_stats stats;
};

static struct kv_sim *self(struct kv *kv)
{
	return CAST_OBJ(container_of(kv, struct kv_sim, kv), struct kv_sim, KV_SIM_MAGIC);
}

/* ---- the ordered map ---- */

static int compare(const struct node *n, const void *key, size_t len)
{
	size_t min = n->key_len < len ? n->key_len : len;
	int c = min > 0 ? memcmp(n->key, key, min) : 0;
	return c != 0 ? c : n->key_len < len ? -1 : n->key_len > len;
}

/* Returns the first node at or after key; ret_prev: the links to it. */
static struct node *seek(struct store *s, const void *key, size_t len,
			 struct node **ret_prev[LEVELS])
{
	struct node **links = s->head;
	for (int i = LEVELS - 1; i >= 0; i--) {
		while (links[i] != NULL && compare(links[i], key, len) < 0)
			links = links[i]->next;
		if (ret_prev != NULL)
			ret_prev[i] = &links[i];
	}
	return links[0];
}

static struct node *node_get(struct store *s, const void *key, size_t len)
{
	struct node **prev[LEVELS];
	struct node *n = seek(s, key, len, prev);
	if (n != NULL && compare(n, key, len) == 0)
		return n;
	n = calloc(1, sizeof(*n) + len);
	ASSERT(n != NULL);
	n->key_len = len;
	if (len > 0)
		memcpy(n->key, key, len);
	/* The height depends on the key only, so it does not depend on history. */
	uint64_t bits = checksum64(key, len);
	for (int i = 0; i < LEVELS && (i == 0 || (bits >> (2 * i - 2) & 3) == 0); i++) {
		n->next[i] = *prev[i];
		*prev[i] = n;
	}
	return n;
}

static void node_remove(struct store *s, struct node *n)
{
	struct node **prev[LEVELS];
	seek(s, n->key, n->key_len, prev);
	for (int i = 0; i < LEVELS; i++) {
		if (*prev[i] == n)
			*prev[i] = n->next[i];
	}
	free(n);
}

static const struct version *visible(const struct node *n, uint64_t seq)
{
	const struct version *v = n->newest;
	while (v != NULL && v->seq > seq)
		v = v->older;
	return v != NULL && !v->deleted ? v : NULL;
}

/* Returns the oldest sequence number that a reader or a crash may still need. */
static uint64_t horizon(const struct store *s)
{
	uint64_t seq = s->synced_seq;
	list_for_each (l, &s->pins) {
		const struct kv_snapshot *p = list_entry(l, struct kv_snapshot, link);
		seq = p->seq < seq ? p->seq : seq;
	}
	return seq;
}

static void drop_versions(struct version *v)
{
	while (v != NULL) {
		struct version *older = v->older;
		free(v);
		v = older;
	}
}

static void add_version(struct store *s, struct node *n, bool deleted, const void *data, size_t len)
{
	struct version *v = malloc(sizeof(*v) + len);
	ASSERT(v != NULL);
	*v = (struct version){.older = n->newest, .seq = s->seq, .deleted = deleted, .len = len};
	if (len > 0)
		memcpy(v->data, data, len);
	n->newest = v;
	uint64_t keep = horizon(s);
	while (v != NULL && v->seq > keep)
		v = v->older;
	if (v != NULL) {
		drop_versions(v->older);
		v->older = NULL;
	}
}

static void delete_range(struct store *s, const struct kv_record *r)
{
	struct node *n = seek(s, r->key, r->key_len, NULL);
	while (n != NULL && compare(n, r->value, r->value_len) < 0) {
		if (visible(n, s->seq) != NULL)
			add_version(s, n, true, NULL, 0);
		n = n->next[0];
	}
}

static void apply(struct store *s, struct kv_batch *b)
{
	struct kv_record r;
	size_t len, at = KV_BATCH_HEAD;
	const uint8_t *rep = kv_batch_rep(b, &len);
	s->seq++;
	while (kv_batch_next(rep, len, &at, &r)) {
		if (r.op == KV_OP_DELETE_RANGE)
			delete_range(s, &r);
		else
			add_version(s, node_get(s, r.key, r.key_len), r.op == KV_OP_DELETE, r.value,
				    r.value_len);
	}
}

/* Drops versions newer than seq, and keys without versions. */
static void roll_back(struct store *s, uint64_t seq)
{
	for (struct node *n = s->head[0], *next; n != NULL; n = next) {
		next = n->next[0];
		while (n->newest != NULL && n->newest->seq > seq) {
			struct version *v = n->newest;
			n->newest = v->older;
			free(v);
		}
		if (n->newest == NULL || (n->newest->deleted && n->newest->older == NULL)) {
			drop_versions(n->newest);
			node_remove(s, n);
		}
	}
	s->seq = seq;
}

/* ---- life of a store ---- */

/* Decides whether the write that was in flight or had failed is done. */
static void settle(struct store *s)
{
	if (s->group_pending && sim_random_below(s->sim, 2) == 0)
		apply(s, s->group);
	s->group_pending = false;
}

static void store_crash(struct sim_durable *d)
{
	struct store *s = container_of(d, struct store, durable);
	/* Snapshots are memory of the process, which has ended. */
	list_init(&s->pins);
	free(s->handle);
	s->handle = NULL;
	settle(s);
	if (s->seq > s->synced_seq)
		roll_back(s, s->synced_seq + sim_random_below(s->sim, s->seq - s->synced_seq + 1));
	s->synced_seq = s->seq;
}

static void store_destroy(struct sim_durable *d)
{
	struct store *s = container_of(d, struct store, durable);
	for (struct node *n = s->head[0], *next; n != NULL; n = next) {
		next = n->next[0];
		drop_versions(n->newest);
		free(n);
	}
	kv_batch_destroy(s->group);
	free(s->handle);
	free(s);
}

static int store_create(struct sim_proc *p, struct sim *sim, const char *path,
			struct store **ret_store)
{
	struct store *s = calloc(1, sizeof(*s));
	if (s == NULL)
		return -LE_NOMEM;
	s->durable = (struct sim_durable){.crash = store_crash, .destroy = store_destroy};
	s->sim = sim;
	s->group = kv_batch_create();
	list_init(&s->pins);
	int rc = s->group != NULL ? sim_durable_put(p, path, &s->durable) : -LE_NOMEM;
	if (rc < 0) {
		store_destroy(&s->durable);
		return rc;
	}
	*ret_store = s;
	return 0;
}

/* ---- get ---- */

static int sim_get(struct kv *kv, const void *key, size_t key_len, bool may_wait,
		   struct kv_value *ret_value)
{
	struct kv_sim *k = self(kv);
	struct store *s = k->store;
	k->stats.gets++;
	if (sim_chance_ppm(s->sim, GET_MISS_PPM)) {
		if (!may_wait)
			return -LE_MISS;
		k->stats.get_misses++;
		TRY(sim_disk_wait(kv->env, sim_worker_us_max(s->sim)));
	}
	struct node *n = seek(s, key, key_len, NULL);
	const struct version *v = NULL;
	if (n != NULL && compare(n, key, key_len) == 0)
		v = visible(n, s->seq);
	if (v == NULL)
		return -LE_NOENT;
	uint8_t *copy = malloc(v->len + 1);
	if (copy == NULL)
		return -LE_NOMEM;
	memcpy(copy, v->data, v->len);
	*ret_value =
		(struct kv_value){.data = copy, .len = v->len, .own = kv_value_tag_malloc(copy)};
	return 0;
}

/* ---- commit ---- */

/* Takes all queued requests as the group, and joins their batches in the store. */
static int take_group(struct kv_sim *k, struct request **ret_group)
{
	struct store *s = k->store;
	*ret_group = k->first;
	k->first = NULL;
	k->last = &k->first;
	kv_batch_clear(s->group);
	s->group_sync = false;
	for (struct request *r = *ret_group; r != NULL; r = r->next) {
		TRY(kv_batch_append(s->group, r->batch));
		s->group_sync = s->group_sync || (r->sync && !k->no_sync);
	}
	return 0;
}

/* Drops deleted keys that no reader can reach. */
static void sweep(struct store *s)
{
	uint64_t keep = horizon(s);
	for (struct node *n = s->head[0], *next; n != NULL; n = next) {
		next = n->next[0];
		if (n->newest->deleted && n->newest->seq <= keep) {
			drop_versions(n->newest);
			node_remove(s, n);
		}
	}
}

static int write_group(struct kv_sim *k)
{
	struct store *s = k->store;
	s->group_pending = true;
	TRY(sim_disk_wait(k->kv.env, sim_disk_us_max(s->sim)));
	s->group_pending = false;
	apply(s, s->group);
	if (s->group_sync) {
		s->synced_seq = s->seq;
		k->stats.syncs++;
	}
	if (s->seq % SWEEP_EVERY == 0)
		sweep(s);
	return 0;
}

/*
 * Writes, on the caller's fiber, the group that begins with the caller's request. Then the first
 * request that queued meanwhile leads.
 */
static int lead(struct kv_sim *k, struct request *own)
{
	struct request *group = NULL;
	int status = take_group(k, &group);
	ASSERT(group == own);
	if (k->failed == 0) {
		if (status == 0)
			status = write_group(k);
		k->failed = status;
	}
	for (struct request *r = group->next, *next; r != NULL; r = next) {
		next = r->next;
		r->status = k->failed;
		latch_done(&r->done);
	}
	k->busy = k->first != NULL;
	if (k->busy) {
		k->first->leads = true;
		latch_done(&k->first->done);
	}
	return k->failed;
}

static int sim_commit(struct kv *kv, struct kv_batch *b, bool sync)
{
	struct kv_sim *k = self(kv);
	struct request r = {.batch = b, .sync = sync};
	latch_init(&r.done, 1);
	k->stats.commits++;
	*k->last = &r;
	k->last = &r.next;
	if (!k->busy) {
		k->busy = true;
		return lead(k, &r);
	}
	latch_wait(&r.done);
	return r.leads ? lead(k, &r) : r.status;
}

/* ---- snapshots and scans ---- */

static void pin(struct store *s, struct kv_snapshot *snap)
{
	snap->seq = s->seq;
	list_push(&s->pins, &snap->link);
}

static int sim_snapshot_take(struct kv *kv, struct kv_snapshot **ret_snap)
{
	struct kv_snapshot *snap = malloc(sizeof(*snap));
	if (snap == NULL)
		return -LE_NOMEM;
	pin(self(kv)->store, snap);
	*ret_snap = snap;
	return 0;
}

static void sim_snapshot_drop(struct kv *kv, struct kv_snapshot *snap)
{
	(void)kv;
	list_remove(&snap->link);
	free(snap);
}

/* Copies of items, like a chunk that a worker has read; on the heap of the scanning fiber. */
struct chunk {
	uint64_t seq;
	uint8_t last_key[KV_KEY_MAX + 1]; /* the scan continues here: with a 0 byte after it */
	uint32_t n;
	bool more;
	struct {
		const struct node *node; /* valid while the seq is pinned */
		const struct version *version;
	} items[CHUNK_ITEMS];
};

static bool in_range(const struct node *n, const struct kv_range *r)
{
	return n != NULL && (r->end == NULL || compare(n, r->end, r->end_len) < 0);
}

static void fill(struct store *s, const struct kv_range *r, uint32_t max, struct chunk *c)
{
	c->n = 0;
	struct node *n = seek(s, r->begin, r->begin_len, NULL);
	for (; in_range(n, r); n = n->next[0]) {
		const struct version *v = visible(n, c->seq);
		if (v == NULL)
			continue;
		if (c->n == max || c->n == CHUNK_ITEMS)
			break;
		c->items[c->n].node = n;
		c->items[c->n++].version = v;
	}
	c->more = in_range(n, r);
}

static int scan_chunks(struct kv_sim *k, struct kv_range r, struct chunk *c,
		       int (*each)(void *arg, const void *key, size_t key_len, const void *value,
				   size_t len),
		       void *arg)
{
	struct store *s = k->store;
	uint32_t left = r.max_items;
	do {
		if (sim_random_below(s->sim, 2) == 0)
			TRY(sim_disk_wait(k->kv.env, sim_worker_us_max(s->sim)));
		fill(s, &r, left, c);
		for (uint32_t i = 0; i < c->n; i++) {
			const struct node *n = c->items[i].node;
			const struct version *v = c->items[i].version;
			/* each() does not yield, so no version is dropped meanwhile. */
			if (each(arg, n->key, n->key_len, v->data, v->len) != 0) {
				c->more = c->more || i + 1 < c->n;
				return 0;
			}
			left--;
		}
		if (c->n > 0) {
			const struct node *n = c->items[c->n - 1].node;
			memcpy(c->last_key, n->key, n->key_len);
			c->last_key[n->key_len] = 0;
			r.begin = c->last_key;
			r.begin_len = n->key_len + 1;
		}
	} while (c->more && left > 0);
	return 0;
}

static int sim_scan(struct kv *kv, struct kv_snapshot *snap, const struct kv_range *range,
		    int (*each)(void *arg, const void *key, size_t key_len, const void *value,
				size_t len),
		    void *arg, bool *ret_more)
{
	struct kv_sim *k = self(kv);
	struct kv_snapshot own;
	struct chunk *c = malloc(sizeof(*c));
	if (c == NULL)
		return -LE_NOMEM;
	k->stats.scans++;
	pin(k->store, &own);
	c->seq = snap != NULL ? snap->seq : own.seq;
	int rc = scan_chunks(k, *range, c, each, arg);
	list_remove(&own.link);
	if (rc == 0)
		*ret_more = c->more;
	free(c);
	return rc;
}

/* ---- checkpoint, statistics, open and close ---- */

static int sim_checkpoint(struct kv *kv, const char *path)
{
	struct kv_sim *k = self(kv);
	struct sim_proc *p = sim_proc_of_env(kv->env);
	struct store *copy;
	TRY(sim_disk_wait(kv->env, sim_disk_us_max(k->store->sim)));
	if (sim_durable_find(p, path) != NULL)
		return -LE_EXIST;
	TRY(store_create(p, k->store->sim, path, &copy));
	copy->seq = copy->synced_seq = 1;
	for (struct node *n = k->store->head[0]; n != NULL; n = n->next[0]) {
		const struct version *v = visible(n, k->store->seq);
		if (v != NULL)
			add_version(copy, node_get(copy, n->key, n->key_len), false, v->data,
				    v->len);
	}
	return 0;
}

static void sim_stats(struct kv *kv, struct kv_stats *ret_stats)
{
	*ret_stats = self(kv)->stats;
	ret_stats->disk_free = ret_stats->disk_size = UINT64_MAX;
}

static void sim_close(struct kv *kv)
{
	struct kv_sim *k = self(kv);
	ASSERT(!k->busy);
	settle(k->store);
	k->store->handle = NULL;
	k->magic = 0;
	free(k);
}

static const struct kv_ops sim_kv_ops = {
	.close = sim_close,
	.get = sim_get,
	.commit = sim_commit,
	.snapshot_take = sim_snapshot_take,
	.snapshot_drop = sim_snapshot_drop,
	.scan = sim_scan,
	.checkpoint = sim_checkpoint,
	.stats = sim_stats,
};

int kv_sim_open(struct env *env, const char *path, const struct kv_options *opts,
		struct kv **ret_kv)
{
	struct sim_proc *p = sim_proc_of_env(env);
	struct sim *sim = sim_of_env(env);
	TRY(sim_disk_wait(env, sim_disk_us_max(sim)));
	struct sim_durable *d = sim_durable_find(p, path);
	struct store *s = d != NULL ? container_of(d, struct store, durable) : NULL;
	if (s != NULL && s->handle != NULL)
		return -LE_STORE_IN_USE;
	if (s == NULL && !opts->create)
		return -LE_NOENT;
	if (s == NULL)
		TRY(store_create(p, sim, path, &s));
	/* RocksDB writes the log's data to tables and syncs them before the first read. */
	s->synced_seq = s->seq;
	struct kv_sim *k = calloc(1, sizeof(*k));
	if (k == NULL)
		return -LE_NOMEM;
	k->kv = (struct kv){.ops = &sim_kv_ops, .env = env};
	k->magic = KV_SIM_MAGIC;
	k->store = s;
	k->no_sync = opts->no_sync;
	k->last = &k->first;
	s->handle = k;
	*ret_kv = &k->kv;
	return 0;
}
