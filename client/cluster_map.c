#include "client/cluster_map.h"

#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "client/reclaim.h"
#include "client/retry.h"
#include "common/base/log.h"

/* So long a member's connection is waited for before the map is asked whether it is still one. */
#define CONNECT_WAIT_US 20000u

/* A parsed reply, before it is taken over. */
struct new_chain {
	uint32_t id, epoch, replicas, n_members;
	struct chain_member members[CHAIN_MEMBERS_MAX];
	struct chain *chain;
};

struct new_map {
	struct new_chain *chains;
	struct chain_class classes[LEAT_REPLICAS_MAX + 1];
	struct table_info *tables;
	uint32_t n_chains, n_tables;
};

int map_init(struct cluster_map *m)
{
	*m = (struct cluster_map){0};
	hmap_init(&m->targets, 64);
	hmap_init(&m->chains, 64);
	waitq_init(&m->q);
	waitq_init(&m->changed);
	return 0;
}

static void free_classes(struct chain_class classes[LEAT_REPLICAS_MAX + 1])
{
	for (uint32_t i = 0; i <= LEAT_REPLICAS_MAX; i++)
		free(classes[i].chains);
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
	free_classes(m->classes);
	free(m->tables);
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

static int compare_chains(const void *a, const void *b)
{
	const struct new_chain *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

static int add_chain(struct new_map *nm, uint32_t *room, const struct chain_info *info)
{
	struct new_chain *ch;
	int n;

	if (info->replicas < 1 || info->replicas > LEAT_REPLICAS_MAX)
		return -LE_BAD_MESSAGE;
	if (nm->n_chains == *room) {
		*room = *room != 0 ? *room * 2 : 64;
		ch = realloc(nm->chains, *room * sizeof(*ch));
		if (ch == NULL)
			return -LE_NOMEM;
		nm->chains = ch;
	}
	ch = &nm->chains[nm->n_chains];
	*ch = (struct new_chain){.id = info->id, .epoch = info->epoch, .replicas = info->replicas};
	n = chain_members_get(info, ch->members);
	TRY(n);
	ch->n_members = (uint32_t)n;
	nm->n_chains++;
	return 0;
}

static int parse_chains(struct bytes in, struct new_map *nm)
{
	struct wire_r r;
	uint32_t room = 0;

	wire_r_init(&r, in.data, in.len);
	while (!wire_r_end(&r)) {
		struct chain_info info;

		memset(&info, 0, sizeof(info));
		wire_get_chain_info(&r, &info);
		TRY(r.status);
		TRY(add_chain(nm, &room, &info));
	}
	if (nm->n_chains > 0)
		qsort(nm->chains, nm->n_chains, sizeof(*nm->chains), compare_chains);
	return r.status;
}

static int make_classes(struct new_map *nm)
{
	for (uint32_t k = 1; k <= LEAT_REPLICAS_MAX; k++) {
		struct chain_class *cl = &nm->classes[k];

		cl->chains = calloc(nm->n_chains + 1, sizeof(struct chain *));
		if (cl->chains == NULL)
			return -LE_NOMEM;
		for (uint32_t i = 0; i < nm->n_chains; i++)
			if (nm->chains[i].replicas == k)
				cl->chains[cl->n++] = nm->chains[i].chain;
	}
	return 0;
}

/* Versions are consecutive, so that they are found at once. */
static int parse_tables(struct bytes in, struct new_map *nm)
{
	struct wire_r r;
	uint32_t room = 0;

	wire_r_init(&r, in.data, in.len);
	while (!wire_r_end(&r)) {
		struct table_info info;

		memset(&info, 0, sizeof(info));
		wire_get_table_info(&r, &info);
		TRY(r.status);
		if (info.version != nm->n_tables + 1 || info.replicas < 1 || info.n == 0 ||
		    info.replicas > LEAT_REPLICAS_MAX || info.n > nm->classes[info.replicas].n)
			return -LE_BAD_MESSAGE;
		if (nm->n_tables == room) {
			struct table_info *t;

			room = room != 0 ? room * 2 : 64;
			t = realloc(nm->tables, room * sizeof(*t));
			if (t == NULL)
				return -LE_NOMEM;
			nm->tables = t;
		}
		nm->tables[nm->n_tables++] = info;
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
		struct target *t = target_find(&c->map, nc->members[i].target);

		/* Whoever is not in the list of targets cannot be asked. */
		if (t != NULL)
			ch->members[ch->n_members++] =
				(struct map_member){t, nc->members[i].state == MEMBER_SYNC};
	}
	end_moved_flights(ch);
}

static void destroy_rpc_fiber(void *arg)
{
	rpc_client_destroy(arg);
}

/* The target moved: calls under way end and are repeated. */
static void target_drop_rpc(struct target *t)
{
	struct rpc_client *old = t->rpc;

	t->rpc = NULL;
	t->up = t->lost = false;
	t->incarnation = 0;
	if (fiber_spawn("target_moved", destroy_rpc_fiber, old) < 0)
		rpc_client_destroy(old);
}

static int take_target(struct client *c, const struct target_info *info)
{
	struct target *t = target_find(&c->map, info->id);
	char addrs[TARGET_ADDRS_MAX];
	bool moved = false;
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
		moved = true;
	}
	memcpy(t->addrs, addrs, sizeof(addrs));
	t->near = info->host.len > 0 && info->host.len == strlen(c->host) &&
		  memcmp(info->host.data, c->host, info->host.len) == 0;
	t->loop = info->loop;
	t->state = (enum target_state)info->state;
	t->total = info->capacity;
	t->free = info->free;
	/* It may wait for what this client has to repeat. */
	if (moved && target_connect(t) < 0)
		log_debug("target %u: connected when it is needed", t->id);
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
		rc = make_classes(&nm);
	if (rc == 0)
		rc = parse_tables(rep->tables, &nm);
	if (rc == 0)
		rc = take_targets(c, rep->targets);
	if (rc < 0) {
		free(nm.chains);
		free_classes(nm.classes);
		free(nm.tables);
		return rc;
	}
	for (uint32_t i = 0; i < nm.n_chains; i++)
		take_chain(c, &nm.chains[i]);
	free(nm.chains);
	free_classes(m->classes);
	memcpy(m->classes, nm.classes, sizeof(m->classes));
	free(m->tables);
	m->tables = nm.tables;
	m->n_tables = nm.n_tables;
	m->epoch = rep->epoch;
	waitq_wake_all(&m->changed);
	return 0;
}

/* The map comes in pages, which are put together; a bound for what a server may say. */
#define PAGES_BYTES_MAX (16u << 20)
#define PAGE_RESTARTS   8u

struct pages {
	uint8_t *data[3]; /* targets, chains, tables */
	uint32_t len[3];
	uint32_t epoch, next;
};

static int pages_add(struct pages *p, const struct mds_map_get_rep *rep)
{
	const struct bytes part[3] = {rep->targets, rep->chains, rep->tables};

	for (uint32_t i = 0; i < 3; i++) {
		uint8_t *d;

		if (part[i].len == 0)
			continue;
		if (p->len[i] + part[i].len > PAGES_BYTES_MAX)
			return -LE_BAD_MESSAGE;
		d = realloc(p->data[i], p->len[i] + part[i].len);
		if (d == NULL)
			return -LE_NOMEM;
		memcpy(d + p->len[i], part[i].data, part[i].len);
		p->data[i] = d;
		p->len[i] += part[i].len;
	}
	p->epoch = rep->epoch;
	p->next = rep->next;
	return 0;
}

static void pages_fini(struct pages *p)
{
	for (uint32_t i = 0; i < 3; i++)
		free(p->data[i]);
	*p = (struct pages){0};
}

/* The next page; 1: the map has changed meanwhile, the first one again. */
static int fetch_page(struct client *c, struct pages *p, uint32_t *restarts)
{
	struct mds_map_get_req req = {.have_epoch = p->next == 0 ? c->map.epoch : 0,
				      .from = p->next};
	struct mds_map_get_rep rep;
	struct rpc_call call;
	int rc = mds_call(c, OP_mds_map_get, &req, &rep, &call);

	if (rc >= 0 && rep.next != 0 && rep.next <= req.from)
		rc = -LE_BAD_MESSAGE;
	if (rc >= 0 && req.from != 0 && rep.epoch != p->epoch) {
		pages_fini(p);
		rc = ++*restarts > PAGE_RESTARTS ? -LE_STALE_EPOCH : 1;
	} else if (rc >= 0) {
		rc = pages_add(p, &rep);
	}
	rpc_call_fini(&call);
	return rc;
}

static int fetch(struct client *c)
{
	struct pages p = {0};
	uint32_t restarts = 0;
	int rc;

	do
		rc = fetch_page(c, &p, &restarts);
	while (rc > 0 || (rc == 0 && p.next != 0));
	/* Nothing in it: what we have is what there is. */
	if (rc >= 0 && (p.len[0] > 0 || p.epoch != c->map.epoch)) {
		struct mds_map_get_rep rep = {.epoch = p.epoch,
					      .targets = bytes_of(p.data[0], p.len[0]),
					      .chains = bytes_of(p.data[1], p.len[1]),
					      .tables = bytes_of(p.data[2], p.len[2])};

		rc = map_apply(c, &rep);
	}
	pages_fini(&p);
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
		reclaim_start(t);
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

/* NULL: unknown, or not of the layout's class. */
static const struct table_info *table_find(const struct cluster_map *m, const struct layout *l)
{
	const struct table_info *t;

	if (l->table < 1 || l->table > m->n_tables)
		return NULL;
	t = &m->tables[l->table - 1];
	return t->replicas == l->replicas ? t : NULL;
}

struct chain *map_chain(const struct client *c, const struct layout *l, uint64_t idx)
{
	const struct table_info *t = table_find(&c->map, l);

	if (t == NULL || l->width == 0)
		return NULL;
	return c->map.classes[t->replicas].chains[layout_chain_index(l, t->n, idx)];
}

struct target *map_head(const struct client *c, const struct layout *l, uint64_t idx)
{
	const struct chain *ch = map_chain(c, l, idx);

	return ch != NULL && ch->n_members > 0 ? ch->members[0].target : NULL;
}

uint32_t map_width(const struct client *c, const struct layout *l)
{
	const struct table_info *ct = table_find(&c->map, l);

	if (ct == NULL)
		return l->width;
	return l->width < ct->n ? l->width : ct->n;
}
