/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cache/lease_return.h"

#include <stdlib.h>

#include "client/base/background.h"
#include "client/cache/inode_cache.h"
#include "client/cache/lease.h"
#include "client/client.h"
#include "common/base/assert.h"
#include "common/base/hmap.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/proto/mds_proto.h"
#include "common/proto/types.h"
#include "common/proto/wire.h"
#include "common/rpc/rpc.h"
#include "common/rt/loop.h"

#define RETURNS_MAX   512u /* in one request */
#define RETURNING_MAX 4u   /* requests in flight */
#define EXACT_US      5000000u

/* A lease that is queued, in flight or returned. */
struct lease_return_add {
	struct hmap_node node; /* by ino */
	struct list link;
	struct ino ino;
	uint64_t due_us;
	uint64_t left_us; /* replies to older requests grant no lease; 0: not returned yet */
	enum {
		DUE,
		WAITING,
		LEAVING,
		LEFT
	} state;
	bool again; /* in flight, and granted again by an older request */
};

struct returning {
	struct client *c;
	uint32_t n;
	struct lease_return_add *all[RETURNS_MAX];
};

static void send_due(struct client *c);

uint64_t lease_returns_bytes(const struct lease_returns *ds)
{
	return ds->map.n * sizeof(struct lease_return_add) + (ds->map.mask + 1) * sizeof(void *);
}

static uint64_t *slot_of(struct lease_returns *ds, struct ino ino)
{
	return &ds->old_us[hash_u64(ino.v) % LEASE_RETURN_SLOTS];
}

static void note_old(struct lease_returns *ds, struct ino ino, uint64_t at_us)
{
	uint64_t *slot = slot_of(ds, ino);

	if (at_us > *slot)
		*slot = at_us;
}

static struct lease_return_add *find(const struct lease_returns *ds, struct ino ino)
{
	struct hmap_node *n = hmap_find(&ds->map, hash_u64(ino.v));

	for (; n != NULL; n = hmap_find_next(n)) {
		struct lease_return_add *d = container_of(n, struct lease_return_add, node);

		if (ino_equal(d->ino, ino))
			return d;
	}
	return NULL;
}

/* Removes the entry from its list. An entry that is in flight is in none. */
static void take_out(struct lease_returns *ds, struct lease_return_add *d)
{
	if (d->state == LEAVING)
		return;
	list_remove(&d->link);
	ds->n_due -= d->state == DUE;
}

static void put_into(struct lease_returns *ds, struct lease_return_add *d, int state)
{
	struct list *to = state == DUE ? &ds->due : state == WAITING ? &ds->waiting : &ds->left;

	d->state = state;
	list_push(to, &d->link);
	ds->n_due += state == DUE;
}

static void put_off(struct lease_returns *ds, struct lease_return_add *d)
{
	put_into(ds, d, d->due_us > loop_now_us() ? WAITING : DUE);
}

/* Drops an entry; its hash bucket keeps the time of return. */
static void drop(struct lease_returns *ds, struct lease_return_add *d)
{
	note_old(ds, d->ino, d->left_us);
	hmap_remove(&ds->map, &d->node);
	list_remove(&d->link);
	free(d);
}

static struct lease_return_add *first(struct list *l)
{
	return list_empty(l) ? NULL : list_entry(l->next, struct lease_return_add, link);
}

void lease_returns_init(struct lease_returns *ds)
{
	hmap_init(&ds->map, 0);
	list_init(&ds->due);
	list_init(&ds->waiting);
	list_init(&ds->left);
}

void lease_returns_fini(struct lease_returns *ds)
{
	struct list *lists[] = {&ds->due, &ds->waiting, &ds->left};

	for (uint32_t i = 0; i < 3; i++)
		for (struct lease_return_add *d = first(lists[i]); d != NULL; d = first(lists[i]))
			drop(ds, d);
	hmap_fini(&ds->map);
}

/* Returns true if the inode must keep its lease: it is cached again with a lease (the MDS counts
 * only one for both), or it is open, which the MDS may need to recall. */
static bool is_back(struct client *c, struct ino ino)
{
	struct inode *i = inode_peek(c, ino);
	bool held = i != NULL && (lease_held(c, i) || i->data != NULL);

	if (i != NULL)
		inode_put(c, i);
	return held;
}

/* Called when the request has ended: from now on, replies to later requests can grant leases. */
static void returned(struct returning *r)
{
	struct lease_returns *ds = &r->c->leases.lease_returns;

	ds->n_returning--;
	for (uint32_t k = 0; k < r->n; k++) {
		struct lease_return_add *d = r->all[k];

		d->left_us = loop_now_us();
		if (d->again)
			put_off(ds, d);
		else
			put_into(ds, d, LEFT);
		d->again = false;
	}
	free(r);
}

static void return_fiber(void *arg)
{
	struct returning *r = arg;
	struct client *c = r->c;
	uint8_t buf[RETURNS_MAX * 8];
	struct mds_lease_return_req req;
	struct mds_lease_return_rep rep;
	struct rpc_call call;
	struct wire_w w;

	wire_w_init(&w, buf, sizeof(buf));
	for (uint32_t i = 0; i < r->n; i++)
		wire_put_u64(&w, &r->all[i]->ino.v);
	req.inos = bytes_of(buf, (uint32_t)w.len);
	call = (struct rpc_call){
		.op = OP_mds_lease_return,
		.flags = RPC_CALL_NO_WAIT,
		.req = &req,
		.rep = &rep,
		.session = c->session,
		.deadline_us = loop_deadline_ms(1000),
	};
	/* If the request is lost, the MDS recalls these leases later, without effect. */
	if (rpc_call(c->mds, &call) < 0)
		log_debug("client %s: cannot return %u leases: they will be recalled", c->name,
			  r->n);
	rpc_call_fini(&call);
	returned(r);
	send_due(c);
	client_bg_end(c);
}

/* Returns the next entry that is due, or NULL. */
static struct lease_return_add *next_due(struct lease_returns *ds)
{
	struct lease_return_add *d = first(&ds->due);

	if (d == NULL)
		d = first(&ds->waiting);
	return d != NULL && d->due_us <= loop_now_us() ? d : NULL;
}

static void collect(struct client *c, struct returning *r)
{
	struct lease_returns *ds = &c->leases.lease_returns;
	struct lease_return_add *d;

	while (r->n < RETURNS_MAX && (d = next_due(ds)) != NULL) {
		take_out(ds, d);
		if (is_back(c, d->ino)) {
			put_into(ds, d, LEFT);
			continue;
		}
		d->state = LEAVING;
		r->all[r->n++] = d;
	}
}

static void send_due(struct client *c)
{
	struct lease_returns *ds = &c->leases.lease_returns;

	while (ds->n_returning < RETURNING_MAX && c->session != 0 && !c->stopping &&
	       next_due(ds) != NULL) {
		struct returning *r = malloc(sizeof(*r));

		if (r == NULL)
			return;
		r->c = c;
		r->n = 0;
		collect(c, r);
		if (r->n == 0) {
			free(r);
			return;
		}
		ds->n_returning++;
		if (client_bg_spawn(c, "return-leases", return_fiber, r) < 0) {
			returned(r);
			return;
		}
	}
}

bool lease_return_add(struct client *c, struct ino ino, uint64_t kernel_until_us)
{
	struct lease_returns *ds = &c->leases.lease_returns;
	struct lease_return_add *d = find(ds, ino);

	if (d == NULL) {
		if (ds->map.n >= LEASE_RETURN_MAX && first(&ds->left) != NULL)
			drop(ds, first(&ds->left));
		d = ds->map.n < LEASE_RETURN_MAX ? malloc(sizeof(*d)) : NULL;
		if (d == NULL)
			return false;
		*d = (struct lease_return_add){.ino = ino};
		hmap_insert(&ds->map, &d->node, hash_u64(ino.v));
	} else {
		take_out(ds, d);
	}
	if (kernel_until_us > d->due_us)
		d->due_us = kernel_until_us;
	d->again = d->state == LEAVING;
	if (d->again)
		return true;
	put_off(ds, d); /* sent by the next tick, because the inode is just being removed */
	return true;
}

void lease_return_recalled(struct client *c, struct ino ino, uint64_t at_us)
{
	note_old(&c->leases.lease_returns, ino, at_us);
}

bool lease_return_is_newer(const struct client *c, struct ino ino, uint64_t sent_us)
{
	const struct lease_returns *ds = &c->leases.lease_returns;
	const struct lease_return_add *d = find(ds, ino);

	return sent_us <= ds->old_us[hash_u64(ino.v) % LEASE_RETURN_SLOTS] ||
	       (d != NULL && (d->state == LEAVING || sent_us <= d->left_us));
}

void lease_returns_tick(struct client *c)
{
	struct lease_returns *ds = &c->leases.lease_returns;
	struct lease_return_add *d = first(&ds->left);

	for (; d != NULL && d->left_us + EXACT_US < loop_now_us(); d = first(&ds->left))
		drop(ds, d);
	send_due(c);
}

void lease_returns_invalidate(struct client *c)
{
	list_for_each (n, &c->leases.lease_returns.waiting)
		c->invalidate(c->arg, list_entry(n, struct lease_return_add, link)->ino, false);
}
