#include "client/cluster_map.h"

#include <stdlib.h>

#include "client/client.h"
#include "client/retry.h"
#include "common/base/log.h"

/* A parsed reply, before it is taken over. */
struct new_map {
	struct chain *chains;
	struct chain_table *tables;
	uint32_t n_chains, n_tables;
};

int map_init(struct cluster_map *m)
{
	*m = (struct cluster_map){0};
	hmap_init(&m->targets, 64);
	waitq_init(&m->q);
	return 0;
}

static void free_tables(struct chain_table *tables, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		free(tables[i].chains);
	free(tables);
}

void map_fini(struct cluster_map *m)
{
	struct hmap_node *n = hmap_next(&m->targets, NULL);

	while (n != NULL) {
		struct target *t = container_of(n, struct target, node);

		n = hmap_next(&m->targets, n);
		if (t->rpc != NULL)
			rpc_client_destroy(t->rpc);
		seq_table_fini(&t->seqs);
		free(t);
	}
	hmap_fini(&m->targets);
	free(m->chains);
	free_tables(m->tables, m->n_tables);
}

static struct target *target_find(const struct cluster_map *m, uint32_t id)
{
	struct hmap_node *n = hmap_find(&m->targets, hash_u64(id));

	for (; n != NULL; n = hmap_find_next(n)) {
		struct target *t = container_of(n, struct target, node);
		if (t->id == id)
			return t;
	}
	return NULL;
}

static uint32_t load_u32(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* The position of a chain in an array sorted by id. */
static uint32_t chain_pos(const struct chain *chains, uint32_t n, uint32_t id)
{
	uint32_t lo = 0, hi = n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		if (chains[mid].id < id)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < n && chains[lo].id == id ? lo : UINT32_MAX;
}

static int compare_chains(const void *a, const void *b)
{
	const struct chain *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

static int parse_chains(struct bytes in, struct new_map *nm)
{
	struct wire_r r;
	uint32_t room = 0;

	wire_r_init(&r, in.data, in.len);
	while (!wire_r_end(&r)) {
		struct chain_info info;
		struct chain *ch;

		memset(&info, 0, sizeof(info));
		wire_get_chain_info(&r, &info);
		TRY(r.status);
		if (nm->n_chains == room) {
			room = room != 0 ? room * 2 : 64;
			ch = realloc(nm->chains, room * sizeof(*ch));
			if (ch == NULL)
				return -LE_NOMEM;
			nm->chains = ch;
		}
		ch = &nm->chains[nm->n_chains++];
		*ch = (struct chain){.id = info.id, .epoch = info.epoch};
		for (uint32_t i = 0; i + 4 <= info.members.len && ch->n_members < CHAIN_MEMBERS_MAX;
		     i += 4)
			ch->members[ch->n_members++] =
				load_u32((const uint8_t *)info.members.data + i);
	}
	if (nm->n_chains > 0)
		qsort(nm->chains, nm->n_chains, sizeof(*nm->chains), compare_chains);
	return r.status;
}

static int parse_tables(struct bytes in, struct new_map *nm)
{
	struct wire_r r;

	wire_r_init(&r, in.data, in.len);
	while (!wire_r_end(&r)) {
		struct table_info info;
		struct chain_table *t;

		memset(&info, 0, sizeof(info));
		wire_get_table_info(&r, &info);
		TRY(r.status);
		t = realloc(nm->tables, (nm->n_tables + 1) * sizeof(*t));
		if (t == NULL)
			return -LE_NOMEM;
		nm->tables = t;
		t += nm->n_tables;
		*t = (struct chain_table){.version = info.version, .n = info.chains.len / 4};
		t->chains = calloc(t->n + 1, sizeof(*t->chains));
		if (t->chains == NULL)
			return -LE_NOMEM;
		nm->n_tables++;
		for (uint32_t i = 0; i < t->n; i++) {
			uint32_t id = load_u32((const uint8_t *)info.chains.data + (size_t)i * 4);
			t->chains[i] = chain_pos(nm->chains, nm->n_chains, id);
		}
	}
	return r.status;
}

static void destroy_rpc_fiber(void *arg)
{
	rpc_client_destroy(arg);
}

/* The target moved: the next call makes a new connection, those under way end and are repeated. */
static void target_drop_rpc(struct target *t)
{
	struct rpc_client *old = t->rpc;

	t->rpc = NULL;
	if (fiber_spawn("target_moved", destroy_rpc_fiber, old) < 0)
		rpc_client_destroy(old);
}

static int take_target(struct client *c, const struct target_info *info)
{
	struct target *t = target_find(&c->map, info->id);
	char addrs[TARGET_ADDRS_MAX];
	uint32_t len =
		info->addrs.len < sizeof(addrs) - 1 ? info->addrs.len : (uint32_t)sizeof(addrs) - 1;

	if (len > 0)
		memcpy(addrs, info->addrs.data, len);
	addrs[len] = '\0';
	if (t == NULL) {
		t = calloc(1, sizeof(*t));
		if (t == NULL)
			return -LE_NOMEM;
		if (seq_table_init(&t->seqs, c->params.writes_in_flight) < 0) {
			free(t);
			return -LE_NOMEM;
		}
		t->c = c;
		t->id = info->id;
		hmap_insert(&c->map.targets, &t->node, hash_u64(t->id));
	} else if (t->rpc != NULL && (strcmp(t->addrs, addrs) != 0 || t->loop != info->loop)) {
		target_drop_rpc(t);
	}
	memcpy(t->addrs, addrs, sizeof(addrs));
	t->loop = info->loop;
	t->state = (enum target_state)info->state;
	t->total = info->capacity;
	t->free = info->free;
	return 0;
}

static int take_targets(struct client *c, struct bytes in)
{
	struct wire_r r;

	wire_r_init(&r, in.data, in.len);
	while (!wire_r_end(&r)) {
		struct target_info info;

		memset(&info, 0, sizeof(info));
		wire_get_target_info(&r, &info);
		TRY(r.status);
		TRY(take_target(c, &info));
	}
	return r.status;
}

int map_apply(struct client *c, const struct mds_map_get_rep *rep)
{
	struct cluster_map *m = &c->map;
	struct new_map nm = {0};
	int rc = parse_chains(rep->chains, &nm);

	if (rc == 0)
		rc = parse_tables(rep->tables, &nm);
	if (rc == 0)
		rc = take_targets(c, rep->targets);
	if (rc < 0) {
		free(nm.chains);
		free_tables(nm.tables, nm.n_tables);
		return rc;
	}
	free(m->chains);
	free_tables(m->tables, m->n_tables);
	m->chains = nm.chains;
	m->n_chains = nm.n_chains;
	m->tables = nm.tables;
	m->n_tables = nm.n_tables;
	m->epoch = rep->epoch;
	return 0;
}

static int fetch(struct client *c)
{
	struct mds_map_get_req req = {.have_epoch = 0};
	struct mds_map_get_rep rep;
	struct rpc_call call;
	int rc = mds_call(c, OP_mds_map_get, &req, &rep, &call);

	if (rc >= 0)
		rc = map_apply(c, &rep);
	rpc_call_fini(&call);
	if (rc < 0)
		log_debug("client %s: no cluster map: %s", c->name, status_name(rc));
	return rc;
}

int map_refresh(struct client *c, uint64_t deadline_us)
{
	struct cluster_map *m = &c->map;
	int rc;

	if (m->refreshing)
		return waitq_wait(&m->q, deadline_us);
	m->refreshing = true;
	rc = fetch(c);
	m->refreshing = false;
	waitq_wake_all(&m->q);
	return rc;
}

static void refresh_fiber(void *arg)
{
	struct client *c = arg;
	int rc = 0;

	while (rc >= 0 && c->map.epoch < c->map.wanted && !c->stopping) {
		uint32_t before = c->map.epoch;

		rc = map_refresh(c, loop_deadline_ms(c->params.request_timeout_ms));
		/* What was seen may have been nonsense: not a reason to ask for ever. */
		if (c->map.epoch == before)
			break;
	}
	client_bg_end(c);
}

void map_saw_epoch(struct client *c, uint32_t epoch)
{
	if (epoch <= c->map.epoch || epoch <= c->map.wanted)
		return;
	c->map.wanted = epoch;
	/* Without a fiber now, the next answer that carries the epoch tries again. */
	if (client_bg_spawn(c, "map_refresh", refresh_fiber, c) < 0)
		c->map.wanted = c->map.epoch;
}

static void target_disconnected(void *arg, struct rpc_client *rpc, int why)
{
	struct target *t = arg;

	(void)rpc, (void)why;
	/* A server that went away may have forgotten what it granted. */
	t->grant = 0;
	t->grant_asked_us = 0;
}

static int target_connect(struct client *c, struct target *t)
{
	struct rpc_client_options opts = {
		.transport = c->transport,
		.addrs = t->addrs,
		.name = c->name,
		.role = ROLE_CLIENT,
		.key = c->key,
		.cluster = *rpc_client_cluster(c->mds),
		.loop = t->loop,
		.in_flight_max = CLIENT_IN_FLIGHT_MAX,
		.rails_max = c->params.rails,
		.arg = t,
		.disconnected = target_disconnected,
	};

	return rpc_client_create(&opts, &t->rpc);
}

static const struct chain_table *table_find(const struct cluster_map *m, uint32_t version)
{
	for (uint32_t i = m->n_tables; i-- > 0;)
		if (m->tables[i].version == version)
			return &m->tables[i];
	return NULL;
}

int map_find(struct client *c, const struct layout *l, uint64_t idx, struct target **ret_target,
	     uint32_t *ret_epoch)
{
	struct cluster_map *m = &c->map;
	const struct chain_table *ct = table_find(m, l->table);
	const struct chain *ch;
	struct target *t;
	uint32_t pos;

	if (ct == NULL || ct->n == 0 || l->width == 0)
		return -LE_NO_TARGET;
	pos = ct->chains[layout_chain_index(l, ct->n, idx)];
	if (pos == UINT32_MAX)
		return -LE_NO_TARGET;
	ch = &m->chains[pos];
	t = ch->n_members > 0 ? target_find(m, ch->members[0]) : NULL;
	if (t == NULL || t->addrs[0] == '\0')
		return -LE_NO_TARGET;
	if (t->rpc == NULL)
		TRY(target_connect(c, t));
	t->epoch = ch->epoch;
	*ret_target = t;
	*ret_epoch = ch->epoch;
	return 0;
}

uint32_t map_width(const struct client *c, const struct layout *l)
{
	const struct chain_table *ct = table_find(&c->map, l->table);

	if (ct == NULL)
		return l->width;
	return l->width < ct->n ? l->width : ct->n;
}
