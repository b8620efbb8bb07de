/* The cluster map and its changes; see cluster.h. */
#include "mds/cluster.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/rt/loop.h"

#define ADDRS_MAX  1023u
#define HOST_MAX   255u
#define CHAINS_MAX 256u /* the maximum of targets_max: the whole map must fit into one message */

struct target *cluster_target(const struct cluster *c, uint32_t id)
{
	return id >= 1 && id <= c->n_targets ? c->targets[id - 1] : NULL;
}

struct target *cluster_chain_target(const struct cluster *c, uint32_t table, uint32_t index)
{
	if (table < 1 || table > c->table_n || index >= table)
		return NULL;
	return cluster_target(c, c->chains[index].member);
}

uint32_t cluster_chain_epoch(const struct cluster *c, const struct target *t)
{
	return t->chain >= 1 && t->chain <= c->table_n ? c->chains[t->chain - 1].epoch : 0;
}

static struct target *target_find(const struct cluster *c, const struct uuid *uuid)
{
	for (uint32_t i = 0; i < c->n_targets; i++)
		if (uuid_equal(&c->targets[i]->info.uuid, uuid))
			return c->targets[i];
	return NULL;
}

static void target_free(struct target *t)
{
	if (t == NULL)
		return;
	free(t->addrs);
	free(t->host);
	free(t);
}

static char *text_of(struct bytes b)
{
	return strndup(b.len > 0 ? b.data : "", b.len);
}

static int target_set_text(struct target *t, struct bytes addrs, struct bytes host)
{
	char *a = text_of(addrs), *h = text_of(host);

	if (a == NULL || h == NULL) {
		free(a);
		free(h);
		return -LE_NOMEM;
	}
	free(t->addrs);
	free(t->host);
	t->addrs = a;
	t->host = h;
	t->info.addrs = bytes_str(a);
	t->info.host = bytes_str(h);
	return 0;
}

/* ---- start ---- */

struct load {
	struct cluster *c;
	int status;
};

static int load_target(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct load *l = arg;
	struct cluster *c = l->c;
	struct target_rec rec;
	struct target *t;
	struct wire_r r;

	wire_r_init(&r, value, len);
	wire_get_target_rec(&r, &rec);
	l->status = -LE_CORRUPT_STORE;
	if (key_len != 6 || r.status < 0 || rec.info.id != c->n_targets + 1 ||
	    c->n_targets >= c->params->targets_max)
		return 1;
	t = calloc(1, sizeof(*t));
	l->status = -LE_NOMEM;
	if (t == NULL)
		return 1;
	(void)key;
	t->info = rec.info;
	t->commits = t->commits_stored = rec.commits;
	t->chain = rec.chain;
	t->heard_us = loop_now_us();
	if (target_set_text(t, rec.info.addrs, rec.info.host) < 0) {
		free(t);
		return 1;
	}
	c->targets[c->n_targets++] = t;
	l->status = 0;
	return 0;
}

static int load_chain(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct load *l = arg;
	struct chain_info rec;
	struct wire_r r;

	(void)key;
	wire_r_init(&r, value, len);
	wire_get_chain_info(&r, &rec);
	if (key_len != 6 || r.status < 0 || rec.id != l->c->table_n + 1 || rec.members.len != 4 ||
	    rec.id > l->c->n_targets) {
		l->status = -LE_CORRUPT_STORE;
		return 1;
	}
	l->c->chains[l->c->table_n++] = (struct chain){rec.id, rec.epoch, 0};
	wire_r_init(&r, rec.members.data, 4);
	wire_get_u32(&r, &l->c->chains[rec.id - 1].member);
	return 0;
}

static int load_kind(struct cluster *c, char kind,
		     int (*each)(void *arg, const void *key, size_t key_len, const void *value,
				 size_t len))
{
	const uint8_t begin[2] = {'C', (uint8_t)kind}, end[2] = {'C', (uint8_t)(kind + 1)};
	struct kv_range range = {begin, 2, end, 2, UINT32_MAX};
	struct load l = {c, 0};
	bool more;

	TRY(kv_scan(c->store->kv, NULL, &range, each, &l, &more));
	return l.status;
}

int cluster_load(struct cluster *c, struct store *s, const struct mds_params *p)
{
	int rc;

	*c = (struct cluster){.store = s, .params = p, .epoch = s->cluster.map_epoch};
	c->rotor = (uint32_t)env_random_u64(s->env);
	fmutex_init(&c->lock);
	waitq_init(&c->changed);
	c->targets = calloc(p->targets_max, sizeof(struct target *));
	c->chains = calloc(p->targets_max, sizeof(*c->chains));
	if (c->targets == NULL || c->chains == NULL)
		return -LE_NOMEM;
	rc = load_kind(c, 't', load_target);
	if (rc == 0)
		rc = load_kind(c, 'c', load_chain);
	if (rc < 0)
		log_error("cluster map in the store: %s", status_text(rc));
	return rc;
}

void cluster_fini(struct cluster *c)
{
	for (uint32_t i = 0; i < c->n_targets; i++)
		target_free(c->targets[i]);
	free(c->targets);
	free(c->chains);
}

/* ---- changes; under c->lock ---- */

static void put_target(struct cluster *c, const struct target *t, const struct target_info *info)
{
	struct target_rec rec = {*info, t->commits, t->chain};

	TXN_PUT(c->store, key_cluster('t', info->id), target_rec, &rec);
}

static void put_new_chain(struct cluster *c, uint32_t id)
{
	struct store *s = c->store;
	uint8_t member[4], chains[4 * CHAINS_MAX];
	struct wire_w w;

	wire_w_init(&w, member, sizeof(member));
	wire_put_u32(&w, &id);
	TXN_PUT(s, key_cluster('c', id), chain_info,
		&((struct chain_info){id, 1, bytes_of(member, 4)}));
	wire_w_init(&w, chains, sizeof(chains));
	for (uint32_t k = 1; k <= id; k++)
		wire_put_u32(&w, &k);
	TXN_PUT(s, key_cluster('v', id), table_info,
		&((struct table_info){id, bytes_of(chains, 4 * id)}));
}

/* Makes the new epoch and what goes with it durable; then it counts. */
static int commit_epoch(struct cluster *c)
{
	struct store *s = c->store;

	s->cluster.map_epoch++;
	txn_cluster(s);
	TRY(store_wait(s, txn_end(s)));
	c->epoch = s->cluster.map_epoch;
	return 0;
}

static void tell(struct cluster *c, struct target *t)
{
	if (t != NULL && c->target_changed != NULL)
		c->target_changed(c->arg, t);
	waitq_wake_all(&c->changed);
}

static int register_new(struct cluster *c, const struct mds_target_register_req *in,
			struct target **ret_t)
{
	uint32_t id = c->n_targets + 1;
	struct target *t;
	int rc;

	if (c->n_targets >= c->params->targets_max)
		return -LE_OVERLOAD;
	t = calloc(1, sizeof(*t));
	if (t == NULL)
		return -LE_NOMEM;
	t->info = (struct target_info){.id = id,
				       .state = TARGET_UP,
				       .uuid = in->uuid,
				       .loop = in->loop,
				       .capacity = in->capacity,
				       .used = in->used,
				       .free = in->free,
				       .epoch = 1};
	t->commits = t->commits_stored = in->commits;
	t->incarnation = in->incarnation;
	t->chain = id;
	rc = target_set_text(t, in->addrs, in->host);
	if (rc == 0)
		rc = txn_begin(c->store);
	if (rc == 0) {
		put_target(c, t, &t->info);
		put_new_chain(c, id);
		rc = commit_epoch(c);
	}
	if (rc < 0) {
		target_free(t);
		return rc;
	}
	t->heard_us = loop_now_us();
	c->targets[c->n_targets++] = t;
	c->chains[c->table_n++] = (struct chain){id, 1, id};
	log_info("target %u registered at %s, chain table version %u", id, t->addrs, c->table_n);
	*ret_t = t;
	return 0;
}

static int register_again(struct cluster *c, struct target *t,
			  const struct mds_target_register_req *in)
{
	bool moved = !bytes_equal(t->info.addrs, in->addrs) || t->info.loop != in->loop;
	bool changed = moved || t->info.state != TARGET_UP;
	struct target_info info = t->info;

	if (in->commits < t->commits) {
		/* Of the process that we have heard already it is an older message, overtaken by
		 * a newer one; it asks again. */
		if (in->incarnation != t->incarnation)
			log_error("target %u: its store went back in time (commit %llu, was %llu): "
				  "refused",
				  t->info.id, (unsigned long long)in->commits,
				  (unsigned long long)t->commits);
		return -LE_STORE_OLD;
	}
	info.addrs = in->addrs;
	info.host = in->host;
	info.loop = in->loop;
	info.state = TARGET_UP;
	info.capacity = in->capacity;
	info.used = in->used;
	info.free = in->free;
	TRY(txn_begin(c->store));
	t->commits = in->commits;
	put_target(c, t, &info);
	if (changed)
		TRY(commit_epoch(c));
	else
		TRY(store_wait(c->store, txn_end(c->store)));
	t->info = info;
	TRY(target_set_text(t, in->addrs, in->host));
	t->commits_stored = t->commits;
	t->incarnation = in->incarnation;
	t->heard_us = loop_now_us();
	log_info("target %u is back at %s", t->info.id, t->addrs);
	return 0;
}

static int register_locked(struct cluster *c, const struct mds_target_register_req *in,
			   struct mds_target_register_rep *out)
{
	struct target *t = target_find(c, &in->uuid);
	const struct uuid *ours = &c->store->cluster.cluster;

	if (uuid_is_zero(&in->uuid) || in->addrs.len == 0 || in->addrs.len > ADDRS_MAX ||
	    in->host.len > HOST_MAX)
		return -LE_INVAL;
	if (!uuid_is_zero(&in->cluster) && !uuid_equal(&in->cluster, ours))
		return -LE_WRONG_CLUSTER;
	if (in->target != 0 && (t == NULL || t->info.id != in->target)) {
		log_error("target %u at %.*s is not known here under its uuid: refused", in->target,
			  (int)in->addrs.len, (const char *)in->addrs.data);
		return -LE_WRONG_CLUSTER;
	}
	if (t == NULL)
		TRY(register_new(c, in, &t));
	else
		TRY(register_again(c, t, in));
	*out = (struct mds_target_register_rep){
		.target = t->info.id,
		.chain = t->chain,
		.epoch = cluster_chain_epoch(c, t),
		.map_epoch = c->epoch,
		.heartbeat_ms = c->params->heartbeat_ms,
	};
	tell(c, t);
	return 0;
}

int cluster_register(struct cluster *c, const struct mds_target_register_req *in,
		     struct mds_target_register_rep *out)
{
	int rc;

	fmutex_lock(&c->lock);
	rc = register_locked(c, in, out);
	fmutex_unlock(&c->lock);
	return rc;
}

static int set_state(struct cluster *c, struct target *t, enum target_state state)
{
	struct target_info info = t->info;

	info.state = state;
	TRY(txn_begin(c->store));
	put_target(c, t, &info);
	TRY(commit_epoch(c));
	t->commits_stored = t->commits;
	t->info.state = state;
	log_info("target %u is %s, map epoch %u", info.id, state == TARGET_UP ? "up" : "down",
		 c->epoch);
	tell(c, t);
	return 0;
}

int cluster_heartbeat(struct cluster *c, const struct mds_target_heartbeat_req *in,
		      struct mds_target_heartbeat_rep *out)
{
	struct target *t = cluster_target(c, in->target);
	int rc = 0;

	if (t == NULL || !uuid_equal(&t->info.uuid, &in->uuid) || t->incarnation != in->incarnation)
		return -LE_NO_TARGET;
	/* Of one and the same process: fewer commits mean an older message, overtaken. */
	if (in->commits > t->commits)
		t->commits = in->commits;
	t->info.capacity = in->capacity;
	t->info.used = in->used;
	t->info.free = in->free;
	t->heard_us = loop_now_us();
	if (t->info.state != TARGET_UP) {
		fmutex_lock(&c->lock);
		if (t->info.state != TARGET_UP)
			rc = set_state(c, t, TARGET_UP);
		fmutex_unlock(&c->lock);
	}
	out->epoch = cluster_chain_epoch(c, t);
	out->map_epoch = c->epoch;
	return rc;
}

void cluster_watch(struct cluster *c, bool store_commits)
{
	uint64_t down_us = c->params->target_down_ms * 1000ull;
	int rc = 0;

	fmutex_lock(&c->lock);
	for (uint32_t i = 0; rc == 0 && i < c->n_targets; i++) {
		struct target *t = c->targets[i];

		if (t->info.state == TARGET_UP && t->heard_us + down_us < loop_now_us()) {
			rc = set_state(c, t, TARGET_DOWN);
		} else if (store_commits && t->commits > t->commits_stored) {
			rc = txn_begin(c->store);
			if (rc < 0)
				break;
			put_target(c, t, &t->info);
			t->commits_stored = t->commits;
			rc = store_wait(c->store, txn_end(c->store));
		}
	}
	fmutex_unlock(&c->lock);
}

/* ---- the map on the wire ---- */

size_t cluster_map_size(const struct cluster *c)
{
	size_t n = 64;

	for (uint32_t i = 0; i < c->n_targets; i++)
		n += 128 + c->targets[i]->info.addrs.len + c->targets[i]->info.host.len;
	for (uint32_t v = 1; v <= c->table_n; v++)
		n += 64 + 4u * v;
	return n;
}

static void encode_tables(const struct cluster *c, struct wire_w *w)
{
	uint8_t chains[4 * CHAINS_MAX];
	struct wire_w cw;

	wire_w_init(&cw, chains, sizeof(chains));
	for (uint32_t i = 0; i < c->table_n; i++)
		wire_put_u32(&cw, &c->chains[i].id);
	for (uint32_t v = 1; v <= c->table_n; v++) {
		struct table_info info = {v, bytes_of(chains, 4 * v)};

		wire_put_table_info(w, &info);
	}
}

int cluster_map_encode(const struct cluster *c, void *buf, size_t size, struct mds_map_get_rep *out)
{
	struct wire_w w;
	uint8_t *p = buf;
	size_t at;

	wire_w_init(&w, buf, size);
	for (uint32_t i = 0; i < c->n_targets; i++)
		wire_put_target_info(&w, &c->targets[i]->info);
	out->targets = bytes_of(p, (uint32_t)w.len);
	at = w.len;
	for (uint32_t i = 0; i < c->table_n; i++) {
		uint8_t member[4];
		struct wire_w mw;
		struct chain_info info = {c->chains[i].id, c->chains[i].epoch, bytes_of(member, 4)};

		wire_w_init(&mw, member, 4);
		wire_put_u32(&mw, &c->chains[i].member);
		wire_put_chain_info(&w, &info);
	}
	out->chains = bytes_of(p + at, (uint32_t)(w.len - at));
	at = w.len;
	encode_tables(c, &w);
	out->tables = bytes_of(p + at, (uint32_t)(w.len - at));
	return w.status;
}

void cluster_space(const struct cluster *c, uint64_t *ret_total, uint64_t *ret_free)
{
	*ret_total = *ret_free = 0;
	for (uint32_t i = 0; i < c->n_targets; i++) {
		*ret_total += c->targets[i]->info.capacity;
		*ret_free += c->targets[i]->info.free;
	}
}
