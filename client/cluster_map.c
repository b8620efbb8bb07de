#include "client/cluster_map.h"

#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "client/retry.h"
#include "common/base/log.h"

/* So long a member's connection is waited for before the map is asked whether it is still one. */
#define CONNECT_WAIT_US 20000u

/* A parsed reply, before it is taken over. */
struct new_chain {
	uint32_t id, epoch, n_members;
	uint32_t members[MAP_MEMBERS_MAX];
	bool sync[MAP_MEMBERS_MAX];
	struct chain *chain;
};

struct new_map {
	struct new_chain *chains;
	struct chain_table *tables;
	uint32_t n_chains, n_tables;
};

int map_init(struct cluster_map *m)
{
	*m = (struct cluster_map){0};
	hmap_init(&m->targets, 64);
	hmap_init(&m->chains, 64);
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
		free(t);
	}
	hmap_fini(&m->targets);
	n = hmap_next(&m->chains, NULL);
	while (n != NULL) {
		struct chain *ch = container_of(n, struct chain, node);

		n = hmap_next(&m->chains, n);
		if (ch->has_seqs)
			seq_table_fini(&ch->seqs);
		free(ch);
	}
	hmap_fini(&m->chains);
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

struct target *map_target(const struct client *c, uint32_t id)
{
	return target_find(&c->map, id);
}

static struct chain *chain_find(const struct cluster_map *m, uint32_t id)
{
	struct hmap_node *n = hmap_find(&m->chains, hash_u64(id));

	for (; n != NULL; n = hmap_find_next(n)) {
		struct chain *ch = container_of(n, struct chain, node);
		if (ch->id == id)
			return ch;
	}
	return NULL;
}

static uint32_t load_u32(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static int parse_chains(struct bytes in, struct new_map *nm)
{
	struct wire_r r;
	uint32_t room = 0;

	wire_r_init(&r, in.data, in.len);
	while (!wire_r_end(&r)) {
		struct chain_info info;
		struct new_chain *ch;

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
		*ch = (struct new_chain){.id = info.id, .epoch = info.epoch};
		for (uint32_t i = 0;
		     i + 4 <= info.members.len && ch->n_members < MAP_MEMBERS_MAX; i += 4) {
			ch->sync[ch->n_members] = true;
			ch->members[ch->n_members++] =
				load_u32((const uint8_t *)info.members.data + i);
		}
	}
	return r.status;
}

static int parse_tables(struct client *c, struct bytes in, struct new_map *nm)
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
			t->chains[i] = chain_find(&c->map, id);
		}
	}
	return r.status;
}

/* New chains are there, without members, even if the rest of the reply is refused. */
static int make_chains(struct client *c, struct new_map *nm)
{
	for (uint32_t i = 0; i < nm->n_chains; i++) {
		struct new_chain *nc = &nm->chains[i];
		struct chain *ch = chain_find(&c->map, nc->id);

		if (ch == NULL) {
			ch = calloc(1, sizeof(*ch));
			if (ch == NULL)
				return -LE_NOMEM;
			ch->id = nc->id;
			list_init(&ch->flights);
			hmap_insert(&c->map.chains, &ch->node, hash_u64(ch->id));
		}
		nc->chain = ch;
	}
	return 0;
}

/* ---- who is asked has changed ---- */

void flight_begin(struct chain *ch, struct flight *f, const struct target *t, bool head)
{
	*f = (struct flight){.fiber = fiber_self(), .target = t, .head = head};
	list_push(&ch->flights, &f->link);
}

int flight_end(struct flight *f, int status)
{
	list_remove(&f->link);
	if (!f->moved)
		return status;
	/* The answer may have come in the same moment. */
	if (status != -LE_INTR)
		fiber_interrupt_clear();
	return status == -LE_INTR ? -LE_STALE_EPOCH : status;
}

static bool still_right(const struct chain *ch, const struct flight *f)
{
	for (uint32_t i = 0; i < ch->n_members; i++)
		if (ch->members[i].target == f->target)
			return f->head ? i == 0 : ch->members[i].sync;
	return false;
}

static void end_moved_flights(struct chain *ch)
{
	list_for_each (l, &ch->flights) {
		struct flight *f = list_entry(l, struct flight, link);

		if (f->moved || still_right(ch, f))
			continue;
		f->moved = true;
		fiber_interrupt(f->fiber);
	}
}

static void take_chain(struct client *c, const struct new_chain *nc)
{
	struct chain *ch = nc->chain;

	/* Answers may overtake each other: epochs never go back. */
	if (nc->epoch < ch->epoch)
		return;
	ch->epoch = nc->epoch;
	ch->n_members = 0;
	for (uint32_t i = 0; i < nc->n_members; i++) {
		struct target *t = target_find(&c->map, nc->members[i]);

		/* Whoever is not in the list of targets cannot be asked. */
		if (t != NULL)
			ch->members[ch->n_members++] = (struct map_member){t, nc->sync[i]};
	}
	end_moved_flights(ch);
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
	t->up = t->lost = false;
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
		t->c = c;
		waitq_init(&t->up_q);
		t->id = info->id;
		hmap_insert(&c->map.targets, &t->node, hash_u64(t->id));
	} else if (t->rpc != NULL && (strcmp(t->addrs, addrs) != 0 || t->loop != info->loop)) {
		target_drop_rpc(t);
	}
	memcpy(t->addrs, addrs, sizeof(addrs));
	t->near = info->host.len > 0 && info->host.len == strlen(c->host) &&
		  memcmp(info->host.data, c->host, info->host.len) == 0;
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
		rc = make_chains(c, &nm);
	if (rc == 0)
		rc = parse_tables(c, rep->tables, &nm);
	if (rc == 0)
		rc = take_targets(c, rep->targets);
	if (rc < 0) {
		free(nm.chains);
		free_tables(nm.tables, nm.n_tables);
		return rc;
	}
	for (uint32_t i = 0; i < nm.n_chains; i++)
		take_chain(c, &nm.chains[i]);
	free(nm.chains);
	free_tables(m->tables, m->n_tables);
	m->tables = nm.tables;
	m->n_tables = nm.n_tables;
	m->epoch = rep->epoch;
	return 0;
}

static int fetch(struct client *c)
{
	struct mds_map_get_req req = {.have_epoch = c->map.epoch};
	struct mds_map_get_rep rep;
	struct rpc_call call;
	int rc = mds_call(c, OP_mds_map_get, &req, &rep, &call);

	/* Nothing in it: what we have is what there is. */
	if (rc >= 0 && (rep.targets.len > 0 || rep.epoch != c->map.epoch))
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

static int target_connected(void *arg, struct rpc_client *rpc)
{
	struct target *t = arg;

	if (t->rpc == rpc) {
		t->up = true;
		t->lost = false;
		waitq_wake_all(&t->up_q);
	}
	return 0;
}

static void target_disconnected(void *arg, struct rpc_client *rpc, int why)
{
	struct target *t = arg;

	(void)why;
	/* A server that went away may have forgotten what it granted. */
	t->grant = 0;
	t->grant_asked_us = 0;
	if (t->rpc == rpc) {
		t->up = false;
		t->lost = true;
	}
}

int target_connect(struct target *t)
{
	struct client *c = t->c;
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
		.connected = target_connected,
		.disconnected = target_disconnected,
	};

	if (t->rpc != NULL)
		return 0;
	if (t->addrs[0] == '\0')
		return -LE_NO_TARGET;
	return rpc_client_create(&opts, &t->rpc);
}

int target_await_up(struct target *t, uint64_t deadline_us)
{
	uint64_t until = loop_now_us() + CONNECT_WAIT_US;

	while (!t->up) {
		int rc = waitq_wait(&t->up_q, until < deadline_us ? until : deadline_us);

		if (rc < 0 && !t->up)
			return rc == -LE_TIMEDOUT ? -LE_DISCONNECTED : rc;
	}
	return 0;
}

static const struct chain_table *table_find(const struct cluster_map *m, uint32_t version)
{
	for (uint32_t i = m->n_tables; i-- > 0;)
		if (m->tables[i].version == version)
			return &m->tables[i];
	return NULL;
}

struct chain *map_chain(const struct client *c, const struct layout *l, uint64_t idx)
{
	const struct chain_table *ct = table_find(&c->map, l->table);

	if (ct == NULL || ct->n == 0 || l->width == 0)
		return NULL;
	return ct->chains[layout_chain_index(l, ct->n, idx)];
}

struct target *map_head(const struct client *c, const struct layout *l, uint64_t idx)
{
	const struct chain *ch = map_chain(c, l, idx);

	return ch != NULL && ch->n_members > 0 ? ch->members[0].target : NULL;
}

uint32_t map_width(const struct client *c, const struct layout *l)
{
	const struct chain_table *ct = table_find(&c->map, l->table);

	if (ct == NULL)
		return l->width;
	return l->width < ct->n ? l->width : ct->n;
}
