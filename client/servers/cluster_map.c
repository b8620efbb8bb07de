/* SPDX-License-Identifier: Apache-2.0 */
#include "client/servers/cluster_map.h"

#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "client/servers/request_slots.h"
#include "client/servers/target.h"
#include "common/base/assert.h"
#include "common/base/hmap.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/proto/mds_proto.h"
#include "common/proto/types.h"
#include "common/proto/wire.h"
#include "common/rpc/rpc.h"
#include "common/rt/fiber.h"

/* A chain of a parsed reply, before the reply is applied. */
struct new_chain {
	uint32_t id, epoch, replicas, n_members;
	bool lost;
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
			request_slots_fini(&ch->seqs);
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

static int add_chain(struct new_map *nm, uint32_t *space, const struct chain_info *info)
{
	struct new_chain *ch;
	int n;

	if (info->replicas < 1 || info->replicas > LEAT_REPLICAS_MAX)
		return -LE_BAD_MESSAGE;
	if (nm->n_chains == *space) {
		*space = *space != 0 ? *space * 2 : 64;
		ch = realloc(nm->chains, *space * sizeof(*ch));
		if (ch == NULL)
			return -LE_NOMEM;
		nm->chains = ch;
	}
	ch = &nm->chains[nm->n_chains];
	*ch = (struct new_chain){.id = info->id,
				 .epoch = info->epoch,
				 .replicas = info->replicas,
				 .lost = (info->flags & CHAIN_LOST) != 0};
	n = chain_members_get(info, ch->members);
	TRY(n);
	/* Members of a lost chain serve no requests. */
	ch->n_members = ch->lost ? 0 : (uint32_t)n;
	nm->n_chains++;
	return 0;
}

static int parse_chains(struct bytes in, struct new_map *nm)
{
	struct wire_r r;
	uint32_t space = 0;

	wire_r_init(&r, in.data, in.len);
	while (!wire_r_end(&r)) {
		struct chain_info info;

		memset(&info, 0, sizeof(info));
		wire_get_chain_info(&r, &info);
		TRY(r.status);
		TRY(add_chain(nm, &space, &info));
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

/* Appends the tables. Versions must be consecutive, so that a version is an array index. */
static int parse_tables(struct bytes in, struct new_map *nm)
{
	struct wire_r r;
	uint32_t space = 0;

	wire_r_init(&r, in.data, in.len);
	while (!wire_r_end(&r)) {
		struct table_info info;

		memset(&info, 0, sizeof(info));
		wire_get_table_info(&r, &info);
		TRY(r.status);
		if (info.version != nm->n_tables + 1 || info.replicas < 1 || info.n == 0 ||
		    info.replicas > LEAT_REPLICAS_MAX || info.n > nm->classes[info.replicas].n)
			return -LE_BAD_MESSAGE;
		if (nm->n_tables == space) {
			struct table_info *t;

			space = space != 0 ? space * 2 : 64;
			t = realloc(nm->tables, space * sizeof(*t));
			if (t == NULL)
				return -LE_NOMEM;
			nm->tables = t;
		}
		nm->tables[nm->n_tables++] = info;
	}
	return r.status;
}

/* Finds or creates a chain for each entry. A new one stays, without members, if the reply is
 * refused. */
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
	/* The reply may have arrived together with the interrupt. */
	if (status != -LE_INTR)
		fiber_interrupt_clear();
	return status == -LE_INTR ? -LE_STALE_EPOCH : status;
}

/* Returns true if the request's member is still the right one. */
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

	/* Replies may arrive out of order: a chain's epoch never decreases. */
	if (nc->epoch < ch->epoch)
		return;
	ch->epoch = nc->epoch;
	ch->lost = nc->lost;
	ASSERT(nc->n_members <= MAP_MEMBERS_MAX);
	ch->n_members = 0;
	for (uint32_t i = 0; i < nc->n_members; i++) {
		struct target *t = target_find(&c->map, nc->members[i].target);

		/* Without an entry in the target list the member has no address. */
		if (t != NULL)
			ch->members[ch->n_members++] =
				(struct map_member){t, nc->members[i].state == MEMBER_SYNC};
	}
	end_moved_flights(ch);
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
	t->removed = (info->flags & TARGET_REMOVED) != 0;
	t->total = info->capacity;
	t->free = info->free;
	/* The server may be waiting for this client's crash replay. */
	if (moved && target_connect(t) < 0)
		log_debug("target %u: cannot connect to its new address yet", t->id);
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

void map_saw_epoch(struct client *c, uint32_t epoch)
{
	if (epoch <= c->map.epoch || epoch <= c->map.wanted)
		return;
	c->map.wanted = epoch;
	/* If no fiber can be started now, the next reply with this epoch tries again. */
	if (c->map.refresh(c) < 0)
		c->map.wanted = c->map.epoch;
}

/* Returns NULL if the table is unknown or has another number of replicas than the layout. */
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
