#include "client/departed.h"

#include <stdlib.h>

#include "client/client.h"
#include "common/base/log.h"

#define RETURNS_MAX   512u /* in one request */
#define RETURNING_MAX 4u   /* requests under way */
#define EXACT_US      5000000u

struct departed {
	struct hmap_node node; /* by ino */
	struct list link;
	struct ino ino;
	uint64_t due_us;
	uint64_t left_us; /* older requests give no lease; 0: it was not given back yet */
	enum {
		DUE,
		WAITING,
		LEAVING,
		LEFT
	} state;
	bool again; /* LEAVING, and given meanwhile for a request of before */
};

struct returning {
	struct client *c;
	uint32_t n;
	struct departed *all[RETURNS_MAX];
};

static uint64_t *slot_of(struct departures *ds, struct ino ino)
{
	return &ds->old_us[hash_u64(ino.v) % DEPARTED_SLOTS];
}

static void note_old(struct departures *ds, struct ino ino, uint64_t at_us)
{
	uint64_t *slot = slot_of(ds, ino);

	if (at_us > *slot)
		*slot = at_us;
}

static struct departed *find(const struct departures *ds, struct ino ino)
{
	struct hmap_node *n = hmap_find(&ds->map, hash_u64(ino.v));

	for (; n != NULL; n = hmap_find_next(n)) {
		struct departed *d = container_of(n, struct departed, node);

		if (ino_equal(d->ino, ino))
			return d;
	}
	return NULL;
}

/* ---- lists ---- */

/* One that is leaving is in none of them. */
static void take_out(struct departures *ds, struct departed *d)
{
	if (d->state == LEAVING)
		return;
	list_remove(&d->link);
	ds->n_due -= d->state == DUE;
}

static void put_into(struct departures *ds, struct departed *d, int state)
{
	struct list *to = state == DUE ? &ds->due : state == WAITING ? &ds->waiting : &ds->left;

	d->state = state;
	list_push(to, &d->link);
	ds->n_due += state == DUE;
}

static void put_off(struct departures *ds, struct departed *d)
{
	put_into(ds, d, d->due_us > loop_now_us() ? WAITING : DUE);
}

/* What is known of it is known of its hash from now on. */
static void drop(struct departures *ds, struct departed *d)
{
	note_old(ds, d->ino, d->left_us);
	hmap_remove(&ds->map, &d->node);
	list_remove(&d->link);
	free(d);
}

static struct departed *first(struct list *l)
{
	return list_empty(l) ? NULL : list_entry(l->next, struct departed, link);
}

void departures_init(struct departures *ds)
{
	hmap_init(&ds->map, 0);
	list_init(&ds->due);
	list_init(&ds->waiting);
	list_init(&ds->left);
}

void departures_fini(struct departures *ds)
{
	struct list *lists[] = {&ds->due, &ds->waiting, &ds->left};

	for (uint32_t i = 0; i < 3; i++)
		for (struct departed *d = first(lists[i]); d != NULL; d = first(lists[i]))
			drop(ds, d);
	hmap_fini(&ds->map);
}

/* ---- giving back ---- */

/* It has come back since, with a lease (the MDS knows of one only), or is open, which the MDS may
 * have to ask for. */
static bool is_back(struct client *c, struct ino ino)
{
	struct inode *i = inode_peek(c, ino);
	bool held = i != NULL && (lease_held(c, i) || i->data != NULL);

	if (i != NULL)
		inode_put(c, i);
	return held;
}

/* What is asked for from now on is answered behind it. */
static void returned(struct returning *r)
{
	struct departures *ds = &r->c->leases.departures;

	ds->n_returning--;
	for (uint32_t k = 0; k < r->n; k++) {
		struct departed *d = r->all[k];

		d->left_us = loop_now_us();
		if (d->again)
			put_off(ds, d);
		else
			put_into(ds, d, LEFT);
		d->again = false;
	}
	free(r);
}

static void send_due(struct client *c);

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
	/* If it is lost, the MDS believes that we have them: they are recalled in vain some day. */
	if (rpc_call(c->mds, &call) < 0)
		log_debug("client %s: %u leases not returned", c->name, r->n);
	rpc_call_fini(&call);
	returned(r);
	send_due(c);
	client_bg_end(c);
}

/* The next one whose time has come. */
static struct departed *next_due(struct departures *ds)
{
	struct departed *d = first(&ds->due);

	if (d == NULL)
		d = first(&ds->waiting);
	return d != NULL && d->due_us <= loop_now_us() ? d : NULL;
}

static void collect(struct client *c, struct returning *r)
{
	struct departures *ds = &c->leases.departures;
	struct departed *d;

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
	struct departures *ds = &c->leases.departures;

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

bool departed(struct client *c, struct ino ino, uint64_t kernel_until_us)
{
	struct departures *ds = &c->leases.departures;
	struct departed *d = find(ds, ino);

	if (d == NULL) {
		if (ds->map.n >= DEPARTED_MAX && first(&ds->left) != NULL)
			drop(ds, first(&ds->left));
		d = ds->map.n < DEPARTED_MAX ? malloc(sizeof(*d)) : NULL;
		if (d == NULL)
			return false;
		*d = (struct departed){.ino = ino};
		hmap_insert(&ds->map, &d->node, hash_u64(ino.v));
	} else {
		take_out(ds, d);
	}
	if (kernel_until_us > d->due_us)
		d->due_us = kernel_until_us;
	d->again = d->state == LEAVING;
	if (d->again)
		return true;
	put_off(ds, d); /* sent by the next tick: the inode is being removed just now */
	return true;
}

void departed_recalled(struct client *c, struct ino ino, uint64_t at_us)
{
	note_old(&c->leases.departures, ino, at_us);
}

bool departed_since(const struct client *c, struct ino ino, uint64_t sent_us)
{
	const struct departures *ds = &c->leases.departures;
	const struct departed *d = find(ds, ino);

	return sent_us <= ds->old_us[hash_u64(ino.v) % DEPARTED_SLOTS] ||
	       (d != NULL && (d->state == LEAVING || sent_us <= d->left_us));
}

void departures_tick(struct client *c)
{
	struct departures *ds = &c->leases.departures;
	struct departed *d = first(&ds->left);

	for (; d != NULL && d->left_us + EXACT_US < loop_now_us(); d = first(&ds->left))
		drop(ds, d);
	send_due(c);
}

void departures_invalidate(struct client *c)
{
	list_for_each (n, &c->leases.departures.waiting)
		c->invalidate(c->arg, list_entry(n, struct departed, link)->ino, false);
}
