/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/fetch/peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/stage/fetch/spread.h"
#include "common/base/assert.h"
#include "common/base/checksum.h"
#include "common/base/hmap.h"
#include "common/base/log.h"
#include "common/rt/loop.h"

#define WAIT_MIN_MS   2500u
#define WAIT_FIRST_MS 5000u
#define WAIT_MAX_MS   20000u
#define SLOW_MAX      2u      /* late answers in a row before a node is left out */
#define AWAY_US       500000u /* pause after "-LE_NOENT": the node does not have the data set */
#define BAN_US        5000000u
#define BAN_MAX_US    80000000u /* a node that failed is left out for BAN_US, then each time
				 * twice as long, up to this */
#define REFRESH_US    500000u
/* Minimum poll interval per node. Each poll reads one row for each node, so many nodes poll more
 * rarely: the load of the metadata server grows no faster than their number. */
#define REFRESH_EACH_US 10000u
#define TRIES           3u
/* A node that is to make the copy but has not begun: the interval between requests to it, and
 * how long the others wait before they fetch its part. */
#define ASK_AGAIN_US 50000u
#define ASK_STEP_US  20000u /* poll interval of a waiting fiber: does its job end? */
#define LATE_US      10000000u
/* Time limits for a part of a chunk; the servers are the alternative, and they are fast. */
#define QUICK_FIRST_MS 1000u
#define QUICK_MIN_MS   250u
#define QUICK_MAX_MS   2000u
#define GATHER_US       5000000u
#define GATHER_STEP_US  50000u

/* The bools are independent: how the swarm learned of the node (fixed, seen, told), whether it has
 * the whole copy (ready), and what it has done (began, lied). */
struct member {
	struct swarm_peer peer;
	uint64_t key; /* checksum of the address */
	uint32_t at;  /* if fixed: the index among the named members */
	bool fixed, ready, seen, lied;
	bool told;  /* listed by the present poll */
	bool began; /* has served a chunk */
	uint64_t ban_until_us, ban_us;
	uint64_t ask_again_us, begin_by_us; /* it has not begun; begin_by_us 0: no fiber waits
					     * for it */
	uint32_t slow, asking; /* late answers in a row; fibers with a request to it */
};

#define SWARM_MAGIC 0x4c53574du /* LSWM */

struct swarm {
	uint32_t magic;
	struct swarm_options o;
	char self[PEER_ADDR_SIZE];
	uint64_t self_key;
	struct member **members; /* without this node */
	uint32_t n, cap;
	bool fixed, stopping;
	struct spread *spread;
	struct latch fibers;
	struct waitq stop;
	struct swarm_stats stats;
	uint64_t answer_us; /* average time of a good answer */
	uint64_t part_us;   /* ... of one with a part of a chunk */
};

static uint64_t key_of(const char *addr)
{
	return checksum64(addr, strlen(addr));
}

static uint64_t weight(uint64_t key, uint64_t chunk)
{
	return hash_u64(key ^ hash_u64(chunk));
}

uint64_t swarm_weight(const char *node, uint64_t chunk)
{
	return weight(key_of(node), chunk);
}

/* ---- members ---- */

static uint32_t find(const struct swarm *w, const char *addr)
{
	uint64_t key = key_of(addr);
	for (uint32_t i = 0; i < w->n; i++) {
		if (w->members[i]->key == key && strcmp(w->members[i]->peer.addr, addr) == 0)
			return i;
	}
	return SPREAD_SELF;
}

static struct member *add(struct swarm *w, const char *addr, size_t len)
{
	char text[PEER_ADDR_SIZE];
	if (len == 0 || len >= sizeof(text) || w->n == PEERS_MAX)
		return NULL;
	snprintf(text, sizeof(text), "%.*s", (int)len, addr);
	if (strcmp(text, w->self) == 0)
		return NULL;
	uint32_t at = find(w, text);
	if (at != SPREAD_SELF)
		return w->members[at];
	if (w->n == w->cap) {
		uint32_t cap = w->cap ? w->cap * 2 : 16;
		struct member **more = realloc(w->members, cap * sizeof(struct member *));
		if (!more)
			return NULL;
		w->members = more;
		w->cap = cap;
	}
	struct member *m = calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	memcpy(m->peer.addr, text, sizeof(m->peer.addr));
	m->key = key_of(text);
	w->members[w->n++] = m;
	return m;
}

/* The member at index self is this node, under any address. */
static void add_fixed(struct swarm *w, const char *text, uint32_t self)
{
	const char *all = text;
	for (uint32_t i = 0; *(text += strspn(text, " ,")); i++) {
		size_t len = strcspn(text, " ,");
		if (i == self && len < sizeof(w->self))
			snprintf(w->self, sizeof(w->self), "%.*s", (int)len, text);
		text += len;
	}
	text = all;
	w->fixed = true;
	for (uint32_t i = 0; *(text += strspn(text, " ,")); i++) {
		size_t len = strcspn(text, " ,");
		struct member *m = add(w, text, len);
		if (m) {
			m->fixed = true;
			m->at = i;
		}
		text += len;
	}
}

static int on_node(void *arg, const char *addr, size_t len, bool ready)
{
	struct swarm *w = CAST_OBJ(arg, struct swarm, SWARM_MAGIC);
	struct member *m = add(w, addr, len);
	if (m) {
		m->told = m->seen = true;
		m->ready = ready;
	}
	return w->stopping ? -LE_SHUTDOWN : 0;
}

/* Reads from the metadata server which nodes make or have the copy. */
static void refresh(struct swarm *w)
{
	for (uint32_t i = 0; i < w->n; i++)
		w->members[i]->told = false;
	int rc = w->o.ops->look(w->o.net, w->o.manifest->id, on_node, w);
	/* Only a complete answer shows which nodes are missing. */
	for (uint32_t i = 0; i < w->n && rc == 0; i++)
		w->members[i]->seen = w->members[i]->told;
	for (uint32_t i = 0; i < w->n; i++) {
		struct member *m = w->members[i];
		if (!m->seen && !m->fixed && m->asking == 0 && m->peer.conn)
			w->o.ops->leave(w->o.net, &m->peer);
	}
	if (w->o.looked)
		w->o.looked(w->o.looked_arg, w);
}

static uint64_t refresh_us(const struct swarm *w)
{
	uint64_t us = (uint64_t)w->n * REFRESH_EACH_US;
	uint64_t min = w->o.poll_ms ? (uint64_t)w->o.poll_ms * 1000 : REFRESH_US;
	return us > min ? us : min;
}

static void refresh_fiber(void *arg)
{
	struct swarm *w = CAST_OBJ(arg, struct swarm, SWARM_MAGIC);
	while (!w->stopping) {
		refresh(w);
		int rc = waitq_wait(&w->stop, loop_now_us() + refresh_us(w));
		(void)rc;
	}
	latch_done(&w->fibers);
}

/* Returns whether the member may be sent requests. If the members are named, a further node
 * counts only with the whole copy: it may be a named one under another address. */
static bool is_in(const struct swarm *w, const struct member *m)
{
	return (m->fixed || (m->seen && (!w->fixed || m->ready))) && !m->lied &&
	       m->ban_until_us <= loop_now_us();
}

static void drop(struct swarm *w, struct member *m, const char *why)
{
	m->ban_us = m->ban_us == 0 ? BAN_US : m->ban_us < BAN_MAX_US ? m->ban_us * 2 : BAN_MAX_US;
	m->ban_until_us = loop_now_us() + m->ban_us;
	m->slow = 0;
	m->peer.away = true;
	w->stats.dropped++;
	log_warn("staging: node %s is left out: %s", m->peer.addr, why);
}

/* ---- requests to other nodes ---- */

static uint32_t patience_ms(const struct swarm *w)
{
	uint64_t source = w->o.source_us ? *w->o.source_us * 8 : 0, peers = w->answer_us * 4,
		 ms = (source > peers ? source : peers) / 1000;
	/* No node has answered yet. */
	if (w->answer_us == 0)
		return WAIT_FIRST_MS;
	return ms < WAIT_MIN_MS ? WAIT_MIN_MS : ms > WAIT_MAX_MS ? WAIT_MAX_MS : (uint32_t)ms;
}

static uint32_t quick_ms(const struct swarm *w)
{
	uint64_t ms = w->part_us * 8 / 1000;
	if (w->part_us == 0)
		return QUICK_FIRST_MS;
	return ms < QUICK_MIN_MS ? QUICK_MIN_MS : ms > QUICK_MAX_MS ? QUICK_MAX_MS : (uint32_t)ms;
}

static int check(struct swarm *w, const struct swarm_ask *q, const struct slot *s, uint32_t len)
{
	const struct manifest *m = w->o.manifest;
	const struct manifest_file *f = &m->files[manifest_file_of_chunk(m, q->chunk)];
	uint64_t index = q->chunk - f->first_chunk, at = index * MANIFEST_CHUNK + q->off;
	if (len != (q->len ? q->len : manifest_chunk_len(f, index)))
		return -LE_CORRUPT;
	return manifest_check(m, f, at, s->data, len) < 0 ? 0 : -LE_CORRUPT;
}

/* Updates a member by the result of a request. */
static void judge(struct swarm *w, struct member *m, int rc)
{
	/* Another fiber may have left the member out already. */
	if (rc == 0) {
		m->slow = 0;
		m->ban_us = 0;
		m->begin_by_us = 0;
		m->began = true;
	} else if (rc == -LE_CORRUPT) {
		if (!m->lied) {
			drop(w, m, "what it gave is not what the data set says");
			w->stats.lied++;
		}
		m->lied = true;
	} else if (rc == -LE_NOENT) {
		m->ban_until_us = loop_now_us() + AWAY_US;
	} else if (rc == -LE_TIMEDOUT) {
		if (++m->slow >= SLOW_MAX && is_in(w, m))
			drop(w, m, "it is slow");
	} else if (rc != -LE_AGAIN && is_in(w, m)) {
		drop(w, m, status_text(rc));
	}
}

/* Returns whether to wait for a member that has not begun, after the result rc of a demand.
 * Nodes that make the copy together do not begin at the same moment. */
static bool is_late(struct member *m, int rc)
{
	uint64_t now = loop_now_us();
	/* A member that has served a chunk and lacks the copy now has lost it. */
	if (rc != -LE_NOT_READY && (rc != -LE_NOENT || !m->fixed || m->began))
		return false;
	if (m->begin_by_us == 0)
		m->begin_by_us = now + LATE_US;
	m->ask_again_us = now + ASK_AGAIN_US;
	return now < m->begin_by_us;
}

/* Waits until the next request to the member is due. False: this node's job ends. */
static bool wait_for_late(struct swarm *w, const struct member *m)
{
	while (m->begin_by_us != 0 && loop_now_us() < m->ask_again_us) {
		if (w->stopping || (w->o.stop && *w->o.stop) || fiber_sleep_us(ASK_STEP_US) < 0)
			return false;
	}
	return true;
}

static int ask_one(struct swarm *w, struct member *m, const struct swarm_ask *q, struct slot *s,
		   struct swarm_answer *a)
{
	m->peer.away = w->stopping;
	a->ask[0] = 0;
	uint64_t begin_us = loop_now_us();
	m->asking++;
	int rc = w->o.ops->ask(w->o.net, &m->peer, q, s, a);
	m->asking--;
	/* A referral is only valid as the answer to a first demand. */
	if (rc >= 0 && a->ask[0] && (!q->demand || q->again))
		rc = -LE_BAD_MESSAGE;
	if (rc >= 0 && !a->ask[0]) {
		uint64_t *usual_us = q->len ? &w->part_us : &w->answer_us;
		rc = check(w, q, s, a->len);
		if (rc == 0)
			*usual_us += (loop_now_us() - begin_us) / 8 - *usual_us / 8;
	}
	if (q->demand && is_late(m, rc))
		return -LE_NOT_READY;
	/* The wait has ended: treat the member as one without the data set. */
	if (rc == -LE_NOT_READY)
		rc = q->demand ? -LE_NOENT : -LE_AGAIN;
	judge(w, m, rc);
	return rc;
}

/* On the heap, since fibers have small stacks. */
struct asking {
	struct swarm_ask q;
	struct swarm_answer a;
};

/* Requests a chunk from a member, or from the node that the member refers to. */
static int ask(struct swarm *w, struct member *m, uint64_t chunk, struct slot *s, bool demand)
{
	struct asking *x = malloc(sizeof(*x));
	if (!x)
		return -LE_NOMEM;
	x->q = (struct swarm_ask){.id = w->o.manifest->id,
				  .from = w->self,
				  .chunk = chunk,
				  .wait_ms = demand ? patience_ms(w) : 0,
				  .demand = demand};
	int rc = ask_one(w, m, &x->q, s, &x->a);
	if (rc == 0 && x->a.ask[0]) {
		uint32_t at = demand ? find(w, x->a.ask) : SPREAD_SELF;
		rc = -LE_AGAIN;
		x->q.demand = false;
		x->q.wait_ms /= 2; /* so that time remains for the owner */
		if (at != SPREAD_SELF && is_in(w, w->members[at]))
			rc = ask_one(w, w->members[at], &x->q, s, &x->a);
		if (rc < 0 && demand) {
			x->q.demand = x->q.again = true;
			x->q.wait_ms = patience_ms(w);
			rc = ask_one(w, m, &x->q, s, &x->a);
		}
	}
	free(x);
	return rc;
}

/* Returns whether the member is to hold the file. */
static bool holds(const struct swarm *w, const struct member *m, uint32_t file)
{
	const struct share *s = w->o.share;
	return !s || m->ready || (m->fixed && share_has(s, file, m->at));
}

/* Returns the member with the highest weight below `below`. NULL: none, or this node has a
 * higher one. */
static struct member *owner_below(struct swarm *w, uint64_t chunk, uint64_t below, bool ready,
				  uint64_t *ret_weight)
{
	struct member *best = NULL;
	uint64_t own = weight(w->self_key, chunk), top = ready || own >= below ? 0 : own;
	uint32_t file = w->o.share ? manifest_file_of_chunk(w->o.manifest, chunk) : 0;
	for (uint32_t i = 0; i < w->n; i++) {
		struct member *m = w->members[i];
		uint64_t x = weight(m->key, chunk);
		if (x > top && x < below && (!ready || m->ready) && is_in(w, m) &&
		    holds(w, m, file)) {
			best = m;
			top = x;
		}
	}
	*ret_weight = top;
	return best;
}

/* Requests the chunk from the owners in the order of rank, down to this node's own rank. */
static int ask_ranks(struct swarm *w, uint64_t chunk, struct slot *s, bool ready, bool demand)
{
	uint64_t below = UINT64_MAX;
	for (uint32_t i = 0; i < TRIES; i++) {
		struct member *m = owner_below(w, chunk, below, ready, &below);
		if (!m)
			return -LE_AGAIN;
		int rc = -LE_NOT_READY;
		while (rc == -LE_NOT_READY && wait_for_late(w, m))
			rc = ask(w, m, chunk, s, demand);
		if (rc == 0)
			return 0;
	}
	return -LE_AGAIN;
}

int swarm_get(void *arg, uint64_t chunk, struct slot *s, enum fetch_ask how)
{
	struct swarm *w = CAST_OBJ(arg, struct swarm, SWARM_MAGIC);
	if (how == ASK_OWNER && ask_ranks(w, chunk, s, false, true) == 0)
		return 0;
	if (how != ASK_ALL)
		return ask_ranks(w, chunk, s, true, false);
	for (uint32_t i = 0; i < w->n; i++) {
		struct member *m = w->members[i];
		if (is_in(w, m) && ask(w, m, chunk, s, false) == 0)
			return 0;
	}
	return -LE_AGAIN;
}

int swarm_get_part(struct swarm *w, uint64_t chunk, uint32_t off, uint32_t len, struct slot *s)
{
	uint64_t below = UINT64_MAX;
	struct asking *x = malloc(sizeof(*x));
	int rc = -LE_AGAIN;
	if (!x)
		return -LE_NOMEM;
	x->q = (struct swarm_ask){
		.id = w->o.manifest->id, .from = w->self, .chunk = chunk, .off = off, .len = len};
	for (uint32_t i = 0; i < TRIES && rc < 0; i++) {
		struct member *m = owner_below(w, chunk, below, true, &below);
		if (!m)
			break;
		x->q.quick_ms = quick_ms(w);
		rc = ask_one(w, m, &x->q, s, &x->a);
		/* Only the answer to a demand may be a referral. */
		if (rc == 0 && x->a.ask[0])
			rc = -LE_AGAIN;
	}
	free(x);
	return rc < 0 ? -LE_AGAIN : 0;
}

int swarm_damaged(struct swarm *w, uint64_t chunk)
{
	int rc = -LE_NOENT;
	for (uint32_t i = 0; i < w->n && w->o.ops->damaged && !w->stopping; i++) {
		struct member *m = w->members[i];
		if (!m->ready)
			continue;
		/* The agent may have been left out because of this very chunk. */
		m->peer.away = false;
		m->asking++;
		int one = w->o.ops->damaged(w->o.net, &m->peer, w->o.manifest->id, chunk);
		m->asking--;
		/* With several agents on this machine, any one may own the copy. */
		rc = rc == 0 || one == -LE_NOENT ? rc : one;
	}
	return rc;
}

uint32_t swarm_n_ready(const struct swarm *w)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < w->n; i++)
		n += w->members[i]->ready && is_in(w, w->members[i]);
	return n;
}

/* ---- requests from other nodes ---- */

static bool can_be_sent_others(void *arg, uint32_t who)
{
	struct swarm *w = arg;
	return who < w->n && is_in(w, w->members[who]);
}

int swarm_serve(struct swarm *w, struct fetch *ft, const struct swarm_ask *q,
		struct slot_pool *pool, struct slot **ret_slot, struct swarm_answer *ret_answer)
{
	const struct manifest *m = w->o.manifest;
	uint32_t who = q->demand && !q->again ? find(w, q->from) : SPREAD_SELF;
	enum fetch_give_how how = q->demand ? GIVE_DEMAND : q->wait_ms ? GIVE_COMING : GIVE_PRESENT;
	*ret_slot = NULL;
	ret_answer->ask[0] = 0;
	if (q->chunk >= m->n_chunks)
		return -LE_INVAL;
	if (who != SPREAD_SELF)
		who = spread_refer(w->spread, q->chunk, who, can_be_sent_others, w);
	if (who != SPREAD_SELF) {
		ASSERT(who < w->n);
		memcpy(ret_answer->ask, w->members[who]->peer.addr, sizeof(ret_answer->ask));
		return 0;
	}
	const struct manifest_file *f = &m->files[manifest_file_of_chunk(m, q->chunk)];
	ret_answer->len = manifest_chunk_len(f, q->chunk - f->first_chunk);
	int rc = fetch_give(ft, q->chunk, how, loop_deadline_ms(q->wait_ms), pool, ret_slot);
	/* A node that waits for another one itself is not counted as late. */
	return rc == -LE_TIMEDOUT && how == GIVE_COMING ? -LE_AGAIN : rc;
}

uint32_t swarm_turn(const struct swarm *w)
{
	/* Named members begin at equal distances, others as the hash of their address says. */
	if (w->fixed)
		return (uint32_t)(((uint64_t)w->o.self_member << 32) / (w->n + 1));
	return (uint32_t)(w->self_key >> 32);
}

uint32_t swarm_count(const char *members)
{
	uint32_t n = 0;
	while (members && *(members += strspn(members, " ,"))) {
		members += strcspn(members, " ,");
		n++;
	}
	return n;
}

/* ---- creation and destruction ---- */

static void gather(struct swarm *w)
{
	uint64_t end = loop_now_us() + GATHER_US;
	while (!w->fixed && w->n + 1 < w->o.expect && loop_now_us() < end &&
	       !(w->o.stop && *w->o.stop)) {
		int rc = fiber_sleep_us(GATHER_STEP_US);
		(void)rc;
		refresh(w);
	}
}

int swarm_create(const struct swarm_options *opts, struct swarm **ret_swarm)
{
	struct swarm *w = calloc(1, sizeof(*w));
	if (!w)
		return -LE_NOMEM;
	w->magic = SWARM_MAGIC;
	w->o = *opts;
	snprintf(w->self, sizeof(w->self), "%s", opts->self);
	latch_init(&w->fibers, 0);
	waitq_init(&w->stop);
	if (opts->members && opts->members[0])
		add_fixed(w, opts->members, opts->self_member);
	w->self_key = key_of(w->self);
	int rc = spread_create(&w->spread);
	/* Must be complete before the first request for a chunk. */
	if (rc == 0) {
		refresh(w);
		gather(w);
	}
	latch_add(&w->fibers, 1);
	if (rc == 0)
		rc = fiber_spawn("swarm", refresh_fiber, w);
	if (rc < 0) {
		latch_done(&w->fibers);
		swarm_destroy(w);
		return rc;
	}
	*ret_swarm = w;
	return 0;
}

void swarm_destroy(struct swarm *w)
{
	if (!w)
		return;
	w->stopping = true;
	waitq_wake_all(&w->stop);
	latch_wait(&w->fibers);
	/* leave() yields, and other fibers use the remaining members meanwhile. */
	while (w->n > 0) {
		struct member *m = w->members[--w->n];
		ASSERT(m->asking == 0);
		w->o.ops->leave(w->o.net, &m->peer);
		free(m);
	}
	free(w->members);
	spread_destroy(w->spread);
	w->magic = 0;
	free(w);
}

void swarm_stats(const struct swarm *w, struct swarm_stats *ret_stats)
{
	*ret_stats = w->stats;
	ret_stats->members = 0;
	for (uint32_t i = 0; i < w->n; i++)
		ret_stats->members += is_in(w, w->members[i]);
}

void swarm_conns(const struct swarm *w, void (*fn)(void *arg, void *conn), void *arg)
{
	for (uint32_t i = 0; i < w->n; i++)
		if (w->members[i]->peer.conn)
			fn(arg, w->members[i]->peer.conn);
}
