/* SPDX-License-Identifier: Apache-2.0 */
/* See damage.h. */
#include "tests/sim/damage.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/kv/kv.h"
#include "common/rt/loop.h"
#include "ossd/chunk/chunk_inventory.h"
#include "ossd/chunk/chunk_record.h"
#include "tests/sim/peek.h"

#define CALL_MS    1000u
#define POLL_US    100000u
#define ROWS_MAX   400u
#define WAITS_MAX  200u /* draws without effect until every chain is whole */
#define MEET_US    5000000u
#define LOSSES     3u
#define ALONE_US   1500000u /* until the other servers are detected as down */
#define LATE_US    50000u /* a second copy of a request has come by then */
#define REMOVED_US 20000000u /* until removed chunks are deleted from the disks */

enum window {
	WINDOW_NONE,
	WINDOW_WANTED, /* no other fault starts, so that every chain becomes whole */
	WINDOW_DISK,   /* the server is down, its disk is being damaged */
	WINDOW_OPEN,   /* the server runs, and has not been scrubbed */
};

struct block_at {
	uint64_t off, len;
};

struct damage {
	struct cluster *c;
	struct node keeper;
	struct rpc_client *client[N_OSSD]; /* of the keeper */
	enum window window;
	uint32_t bad; /* the damaged server */
	uint32_t n_waits, target[N_OSSD];
	bool lose;             /* chunks vanish */
	bool at_the_end;       /* no client writes */
	bool unseen;           /* with at_the_end: and no record shows the loss */
	bool unnamed;          /* with at_the_end: all chunks, with their names, of the only member
				* in sync */
	bool replicated[1024]; /* chain - 1 */
	uint64_t n_damages;    /* until now: a scrub need not find damage that was made during the
				* scrub */
	uint32_t to_scrub;     /* bits of servers */
	uint32_t n_crashes;    /* and network cuts, that are left for this window */
};

static uint64_t rnd(struct damage *d, uint64_t n)
{
	return sim_random_below(d->c->sim, n);
}

static struct node *bad_node(struct damage *d)
{
	return &d->c->ossd[d->bad];
}

/* Every chain is whole, and every server runs and reaches the others. */
static bool all_well(const struct cluster *c)
{
	if (!c->mds.running || c->mds.mds == NULL || c->n_cuts > 0 || !peek_all_sync(c->mds.mds))
		return false;
	for (uint32_t i = 0; i < N_OSSD; i++)
		if (!c->ossd[i].running || !ossd_ready(c->ossd[i].ossd))
			return false;
	return true;
}

/* ---- scrubs ---- */

static int scrub(struct damage *d, uint32_t i, enum scrub_what what, struct oss_scrub_rep *rep)
{
	struct oss_scrub_req req = {what};
	struct rpc_call call = {.op = OP_oss_scrub,
				.req = &req,
				.rep = rep,
				.target = d->target[i],
				.deadline_us = loop_deadline_ms(CALL_MS)};
	int rc = rpc_call(d->client[i], &call);

	rpc_call_fini(&call);
	return rc;
}

/* Scrubs from the first chunk to the last. Returns 1 if the scrub found nothing, 0 if it found
 * something, or a status. */
static int scrub_once(struct damage *d, uint32_t i)
{
	struct oss_scrub_rep rep;
	int64_t began_ns;

	TRY(scrub(d, i, SCRUB_STOP, &rep));
	/* A late copy of that request would stop the scrub that starts now, which would find
	 * nothing. */
	(void)!fiber_sleep_us(LATE_US);
	TRY(scrub(d, i, SCRUB_START, &rep));
	began_ns = rep.began_ns;
	d->c->count.scrubs++;
	while (rep.running && !d->c->failed) {
		int rc = fiber_sleep_us(1 + rnd(d, POLL_US));

		if (rc == 0)
			rc = scrub(d, i, SCRUB_STATUS, &rep);
		if (rc < 0) /* the scrub continues from its position when the server has
			     * restarted */
			rep.running = 1;
	}
	log_debug("keeper: scrub of %s: %llu chunks, %llu damaged, %llu not repaired, %llu differ",
		  d->c->ossd[i].name, (unsigned long long)rep.chunks,
		  (unsigned long long)rep.damaged, (unsigned long long)rep.unrepaired,
		  (unsigned long long)rep.differing);
	d->c->count.repaired += rep.repaired;
	d->c->count.differing += rep.differing;
	return rep.began_ns == began_ns && rep.damaged == 0 && rep.differing == 0;
}

/* Chains change hands with every epoch. */
static uint64_t all_epochs(const struct cluster *c)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; all_well(c) && i < peek_n_chains(c->mds.mds); i++)
		sum += peek_chain(c->mds.mds, i).epoch;
	return sum;
}

/* Only the head of a chain compares, and only members that are in sync. So a scrub without findings
 * proves nothing if a member was down, or if a scrubbed member became head instead of one that is
 * still to be scrubbed. */
static bool scrub_cleanly(struct damage *d)
{
	uint64_t damages = d->n_damages, crashes = d->c->count.server_crashes;
	uint64_t epochs = all_epochs(d->c);
	bool clean = epochs != 0;

	for (uint32_t i = 0; i < N_OSSD && !d->c->failed; i++)
		if (d->to_scrub & 1u << i)
			clean = scrub_once(d, i) == 1 && clean;
	return clean && epochs == all_epochs(d->c) && damages == d->n_damages &&
	       crashes == d->c->count.server_crashes;
}

static void keep(struct damage *d)
{
	/* Mostly requests reach the damage before a scrub. */
	if (!d->at_the_end && (d->c->plan.damaged || rnd(d, 4) != 0))
		(void)!fiber_sleep_us(d->c->plan.damaged ? MEET_US : rnd(d, MEET_US));
	while (!d->c->failed && !scrub_cleanly(d))
		(void)!fiber_sleep_us(1 + rnd(d, POLL_US));
	d->to_scrub = 0;
	d->window = WINDOW_NONE;
	log_debug("keeper: all is clean");
}

static void keeper_main(struct loop *loop, void *arg)
{
	struct node *n = arg;
	struct damage *d = n->cluster->damage;

	n->loop = loop;
	n->running = true;
	for (uint32_t i = 0; i < N_OSSD; i++) {
		struct rpc_client_options o = {.transport = d->c->transport,
					       .addrs = d->c->ossd[i].addr,
					       .name = "keeper",
					       .role = ROLE_TOOL,
					       .key = d->c->key,
					       .backoff_max_ms = 100};

		if (rpc_client_create(&o, &d->client[i]) < 0)
			cluster_fail(d->c, "the keeper cannot start");
	}
	while (!d->c->failed) {
		if (d->window == WINDOW_OPEN)
			keep(d);
		(void)!fiber_sleep_us(POLL_US);
	}
}

struct damage *damage_start(struct cluster *c)
{
	struct damage *d = calloc(1, sizeof(*d));

	if (d == NULL) {
		cluster_fail(c, "no memory");
		return NULL;
	}
	d->c = c;
	d->keeper.cluster = c;
	snprintf(d->keeper.name, sizeof(d->keeper.name), "keeper");
	d->keeper.proc = sim_proc_create(c->sim, d->keeper.name);
	c->damage = d;
	if (sim_proc_start(d->keeper.proc, keeper_main, &d->keeper) < 0)
		cluster_fail(c, "the keeper cannot start");
	return d;
}

/* ---- the disk ---- */

static void flip(struct damage *d, const struct block_at *b)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/data", bad_node(d)->dir);
	if (sim_proc_corrupt(bad_node(d)->proc, path, b->off, b->len) == 0) {
		d->n_damages++;
		d->c->count.damages++;
	}
}

/* A row of the index and what the test does with it. */
struct row {
	uint8_t key[64], value[CHUNK_RECORD_MAX];
	size_t key_len, len;
};

struct rows {
	struct damage *d;
	struct kv *kv;
	struct kv_batch *batch;
	struct node *node;
	bool lose, vanish; /* vanish: from a server that runs */
};

static void flip_blocks(struct damage *d, const struct chunk_key *key, const void *value,
			size_t len, const struct chunk_summary_info *info)
{
	struct chunk_record *rec = calloc(1, chunk_record_size(info->n_blocks, info->n_gaps));

	if (rec == NULL || chunk_record_decode(key, value, len, rec, info->n_blocks) < 0)
		cluster_fail(d->c, "a record on the disk cannot be read");
	for (uint32_t i = 0; !d->c->failed && i < info->n_blocks; i++) {
		const struct chunk_block *b = &rec->blocks[i];
		struct block_at at = {(uint64_t)b->unit * UNIT_SIZE, b->stored_len};

		if (b->len > 0 && rnd(d, 3) != 0)
			flip(d, &at);
	}
	free(rec);
}

static void spoil_record(struct damage *d, struct kv_batch *b, const struct row *r)
{
	struct row bad = *r;

	bad.value[rnd(d, r->len)] ^= (uint8_t)(1u << rnd(d, 8));
	kv_batch_put(b, bad.key, bad.key_len, bad.value, bad.len);
	d->n_damages++;
	d->c->count.damages++;
}

/* May the chunk have a version that is not committed on every member? It may be the only one. */
static bool may_be_pending(const struct rows *rows, const uint8_t *key)
{
	uint8_t row[CHUNK_KEY_SIZE];
	struct kv_value v;
	int rc;

	memcpy(row, key, sizeof(row));
	row[0] = ROW_PENDING;
	rc = kv_try_get(rows->kv, row, sizeof(row), &v);
	if (rc == 0)
		kv_value_fini(&v);
	return rc != -LE_NOENT;
}

/* Mostly the name row stays, because it is elsewhere on the disk. */
static void lose_row(struct rows *rows, const uint8_t *key, const struct chunk_key *k,
		     uint64_t version)
{
	bool name = !rows->vanish && (rows->d->unnamed || rnd(rows->d, 4) == 0);
	uint8_t row[CHUNK_KEY_SIZE];

	log_debug("damage: %s loses chunk %u/%llu/%u/%llu version %llu%s", rows->node->name,
		  k->chain, (unsigned long long)k->ino.v, k->gen, (unsigned long long)k->idx,
		  (unsigned long long)version, name ? " and its name" : "");
	memcpy(row, key, sizeof(row));
	kv_batch_delete(rows->batch, row, sizeof(row));
	row[0] = ROW_NAME;
	if (name)
		kv_batch_delete(rows->batch, row, sizeof(row));
	rows->d->n_damages++;
	if (rows->vanish)
		rows->d->c->count.vanished++;
	else
		rows->d->c->count.losses++;
}

static int damage_row(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct rows *rows = arg;
	struct damage *d = rows->d;
	struct chunk_summary_info info;
	struct chunk_key k;
	struct row *r;

	TRY(chunk_key_decode(ROW_CHUNK, key, key_len, &k));
	if (chunk_record_is_lost(&k, value, len))
		return 0;
	TRY(chunk_record_summary(&k, value, len, &info));
	if (k.chain > ARRAY_SIZE(d->replicated) || !d->replicated[k.chain - 1])
		return 0;
	if (!d->unnamed && rnd(d, 3) >= (rows->lose ? 1 : 2))
		return 0;
	if (rows->lose && !rows->vanish && may_be_pending(rows, key))
		return 0;
	if (rows->lose) {
		lose_row(rows, key, &k, info.version);
		return 0;
	}
	log_debug("damage: %s damages chunk %u/%llu/%u/%llu version %llu", rows->node->name,
		  k.chain, (unsigned long long)k.ino.v, k.gen, (unsigned long long)k.idx,
		  (unsigned long long)info.version);
	/* A server that finds a damaged record when it starts scrubs immediately. */
	if (d->c->plan.damaged || rnd(d, 4)) {
		flip_blocks(d, &k, value, len, &info);
		return 0;
	}
	r = calloc(1, sizeof(*r));
	if (r == NULL || key_len > sizeof(r->key) || len > sizeof(r->value))
		return -LE_NOMEM;
	r->key_len = key_len;
	r->len = len;
	memcpy(r->key, key, key_len);
	memcpy(r->value, value, len);
	spoil_record(d, rows->batch, r);
	free(r);
	return 0;
}

/* Then the server takes the rows that it finds as complete. */
static void forget_inventory(struct kv_batch *b)
{
	static const uint8_t begin = ROW_INVENTORY, end = ROW_INVENTORY + 1;
	static const uint8_t names = ROW_NAME, names_end = ROW_NAME + 1;

	kv_batch_delete_range(b, &begin, 1, &end, 1);
	kv_batch_delete_range(b, &names, 1, &names_end, 1);
	kv_batch_delete(b, INVENTORY_BEGAN_KEY, INVENTORY_BEGAN_KEY_SIZE);
}

static int damage_disk(struct damage *d, struct env *env)
{
	static const uint8_t begin = ROW_CHUNK, end = ROW_CHUNK + 1;
	struct kv_range range = {&begin, 1, &end, 1, ROWS_MAX};
	struct kv_options o = {.create = false};
	struct rows rows = {
		.d = d, .batch = kv_batch_create(), .node = bad_node(d), .lose = d->lose};
	char path[64];
	struct kv *kv;
	bool more;
	int rc;

	if (rows.batch != NULL && d->unseen)
		forget_inventory(rows.batch);
	if (rows.batch == NULL)
		return -LE_NOMEM;
	snprintf(path, sizeof(path), "%s/index", bad_node(d)->dir);
	TRY(kv_open(env, path, &o, &kv));
	rows.kv = kv;
	rc = kv_scan(kv, NULL, &range, damage_row, &rows, &more);
	if (rc == 0)
		rc = kv_commit(kv, rows.batch, true);
	kv_close(kv);
	kv_batch_destroy(rows.batch);
	return rc;
}

static void back_again(void *arg)
{
	struct damage *d = arg;

	d->window = d->lose && !d->at_the_end ? WINDOW_NONE : WINDOW_OPEN;
	cluster_restart(bad_node(d));
}

static void disk_main(struct loop *loop, void *arg)
{
	struct node *n = arg;
	struct damage *d = n->cluster->damage;
	int rc = damage_disk(d, loop_env(loop));

	if (rc < 0)
		cluster_fail(d->c, "damaging %s: %s", n->name, status_name(rc));
	else if (sim_after(d->c->sim, 1 + rnd(d, 1000000), NULL, back_again, d) < 0)
		cluster_fail(d->c, "no memory");
}

/* Removes rows of a server that runs: the rows that it has cached stay in its memory. */
static void vanish_main(void *arg)
{
	static const uint8_t begin = ROW_CHUNK, end = ROW_CHUNK + 1;
	struct kv_range range = {&begin, 1, &end, 1, ROWS_MAX};
	struct node *n = arg;
	struct rows rows = {.d = n->cluster->damage,
			    .batch = kv_batch_create(),
			    .node = n,
			    .lose = true,
			    .vanish = true};
	bool more;
	int rc = rows.batch != NULL ? kv_scan(n->kv, NULL, &range, damage_row, &rows, &more)
				    : -LE_NOMEM;

	if (rc == 0)
		rc = kv_commit(n->kv, rows.batch, true);
	if (rc < 0)
		cluster_fail(n->cluster, "vanishing on %s: %s", n->name, status_name(rc));
	kv_batch_destroy(rows.batch);
}

static void look_around(struct damage *d)
{
	const struct mds *m = d->c->mds.mds;

	for (uint32_t i = 0; i < peek_n_chains(m) && i < ARRAY_SIZE(d->replicated); i++)
		d->replicated[i] = peek_chain(m, i).replicas > 1;
	for (uint32_t i = 0; i < N_OSSD; i++)
		d->target[i] = peek_target(m, d->c->ossd[i].addr);
	d->bad = (uint32_t)rnd(d, N_OSSD);
}

/* Until scrubs have found the loss no other server may lose these chunks: as with damage. */
static void vanish(struct damage *d)
{
	look_around(d);
	d->lose = false;
	d->window = WINDOW_OPEN;
	log_debug("damage: rows of %s vanish", bad_node(d)->name);
	if (fiber_spawn_on(bad_node(d)->loop, "vanish", vanish_main, bad_node(d)) < 0)
		cluster_fail(d->c, "no memory");
}

static void damage_bad(void *arg)
{
	struct damage *d = arg;

	log_debug("damage: the disk of %s", bad_node(d)->name);
	cluster_crash(bad_node(d));
	/* No other code starts it. */
	bad_node(d)->want_up = true;
	if (sim_proc_start(bad_node(d)->proc, disk_main, bad_node(d)) < 0)
		cluster_fail(d->c, "cannot damage %s", bad_node(d)->name);
}

/* Stops the server and damages its disk. unnamed: the other servers stop first, so that this one
 * becomes head of all its chains, and fills the others. */
static void damage_server(struct damage *d)
{
	look_around(d);
	d->window = WINDOW_DISK;
	if (!d->unnamed) {
		damage_bad(d);
		return;
	}
	for (uint32_t i = 0; i < N_OSSD; i++)
		if (i != d->bad)
			cluster_crash_for(&d->c->ossd[i], 2 * ALONE_US + rnd(d, 1000000));
	if (sim_after(d->c->sim, ALONE_US, NULL, damage_bad, d) < 0)
		cluster_fail(d->c, "no memory");
}

/* ---- among other faults ---- */

static void draw_in_window(struct damage *d)
{
	struct cluster *c = d->c;
	uint64_t kind = rnd(d, 8);

	if (d->n_crashes == 0) {
		return;
	} else if (kind < 5 && c->plan.crash_servers) {
		d->n_crashes--;
		cluster_crash_for(bad_node(d), 1 + rnd(d, 2000000));
	} else if (kind == 5 && c->plan.crash_servers) {
		d->n_crashes--;
		cluster_crash_for(&c->mds, 1 + rnd(d, 2000000));
	} else if (kind == 6 && c->plan.cut_network) {
		d->n_crashes--;
		cluster_cut_from(bad_node(d), rnd(d, N_OSSD + 1 + c->plan.n_clients),
				 1 + rnd(d, 3000000));
	}
}

bool damage_draw(struct damage *d)
{
	switch (d->window) {
	case WINDOW_NONE:
		if (!d->c->plan.damaged && rnd(d, 2))
			return false;
		d->window = WINDOW_WANTED;
		/* Not where a member that is down is replaced, and with it data that only it
		 * has. */
		d->lose = rnd(d, 3) == 0 && !d->c->plan.move_members;
		d->n_waits = 0;
		return true;
	case WINDOW_WANTED:
		if (all_well(d->c)) {
			if (d->lose && rnd(d, 2))
				vanish(d);
			else
				damage_server(d);
			d->to_scrub = 1u << d->bad;
			d->n_crashes = (uint32_t)rnd(d, 4);
			if (d->lose && d->c->plan.crash_servers && rnd(d, 3) == 0)
				cluster_cut_power(d->c);
		} else if (++d->n_waits == WAITS_MAX) {
			d->window = WINDOW_NONE;
		}
		return true;
	case WINDOW_OPEN:
		draw_in_window(d);
		return true;
	case WINDOW_DISK:
		return !d->lose;
	}
	return true;
}

bool damage_waits(const struct damage *d)
{
	return d->window == WINDOW_WANTED || (d->window != WINDOW_NONE && !d->lose);
}

bool damage_over(void *arg)
{
	struct damage *d = arg;

	if (d->window == WINDOW_WANTED)
		d->window = WINDOW_NONE;
	return d->window == WINDOW_NONE;
}

/* ---- when no client writes ---- */

static struct node *pick(struct damage *d)
{
	if (!d->unseen)
		return rnd(d, 4) ? &d->c->ossd[rnd(d, N_OSSD)] : &d->c->mds;
	return rnd(d, 3) ? bad_node(d) : &d->c->mds;
}

/* If no record shows the loss, not the server with the only good replica: a resync from a source
 * that has lost chunks would remove them from that replica. */
static void crash_somebody(void *arg)
{
	struct damage *d = arg;
	struct cluster *c = d->c;

	if (d->n_crashes == 0 || c->failed)
		return;
	if (d->window == WINDOW_OPEN && all_well(c) && c->plan.crash_servers) {
		d->n_crashes--;
		cluster_crash_for(pick(d), 1 + rnd(d, 1500000));
	}
	if (sim_after(c->sim, 1 + rnd(d, 300000), NULL, crash_somebody, d) < 0)
		cluster_fail(c, "no memory");
}

static bool calm(void *arg)
{
	struct damage *d = arg;

	return all_well(d->c);
}

static bool never(void *arg)
{
	(void)arg;
	return false;
}

void damage_lose_chunks(struct damage *d)
{
	d->at_the_end = true;
	/* Removed files' chunks are deleted first: if the head has lost such a chunk when it is to
	 * delete it, the chunk would be restored from another member, and keep its space. */
	if (sim_run(d->c->sim, never, NULL, sim_now_us(d->c->sim) + REMOVED_US) != -LE_TIMEDOUT)
		cluster_fail(d->c, "nothing happens any more");
	for (uint32_t i = 0; i < LOSSES && !d->c->failed; i++) {
		cluster_run(d->c, calm, d, 300);
		if (d->c->failed)
			return;
		d->lose = true;
		d->unseen = i == 1;
		/* Not where a member that is down is replaced, and with it data that only it
		 * has. */
		d->unnamed = i == 2 && !d->c->plan.move_members;
		d->c->back_by_itself = true;
		damage_server(d);
		d->to_scrub = (1u << N_OSSD) - 1;
		d->n_crashes = (uint32_t)rnd(d, 6);
		crash_somebody(d);
		cluster_run(d->c, damage_over, d, 600);
		d->n_crashes = 0;
		/* Every server that is down now restarts soon. */
		cluster_run(d->c, calm, d, 300);
	}
	d->lose = false;
}
