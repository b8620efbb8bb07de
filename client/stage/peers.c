#include "client/stage/peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "client/leat_impl.h"
#include "client/retry.h"
#include "common/base/checksum.h"
#include "common/base/hmap.h"
#include "common/base/log.h"
#include "common/rt/loop.h"

#define CONNECT_MS  1000u
#define WAIT_MIN_MS 2500u
#define WAIT_MAX_MS 20000u
#define SLOW_MAX    2u       /* late answers before a node is left out */
#define AWAY_US     500000u  /* "not mine": asked again after this time */
#define BAN_US      5000000u /* no answer: tried again after this time */
#define REFRESH_US  500000u
#define TRIES       3u
#define ADDR_SIZE   256u

struct member {
	char addr[ADDR_SIZE];
	struct rpc_client *rpc; /* made when it is first asked */
	bool fixed, ready, seen, lied;
	bool told; /* by the answer at hand */
	uint64_t ban_until_us;
	uint32_t slow;
};

struct swarm {
	struct swarm_options o;
	char self[ADDR_SIZE];
	struct member **members; /* not this node */
	uint32_t n, cap;
	bool fixed, stopping;
	struct latch fibers;
	struct waitq stop;
	struct swarm_stats stats;
};

uint64_t swarm_weight(const char *node, uint64_t chunk)
{
	return hash_u64(checksum64(node, strlen(node)) ^ hash_u64(chunk));
}

/* ---- members ---- */

static struct member *find(struct swarm *w, const char *addr)
{
	for (uint32_t i = 0; i < w->n; i++) {
		if (strcmp(w->members[i]->addr, addr) == 0)
			return w->members[i];
	}
	return NULL;
}

static struct member *add(struct swarm *w, const char *addr, size_t len)
{
	char text[ADDR_SIZE];
	if (len == 0 || len >= sizeof(text) || w->n == PEERS_MAX)
		return NULL;
	snprintf(text, sizeof(text), "%.*s", (int)len, addr);
	if (strcmp(text, w->self) == 0)
		return NULL;
	struct member *m = find(w, text);
	if (m)
		return m;
	if (w->n == w->cap) {
		uint32_t cap = w->cap ? w->cap * 2 : 16;
		struct member **more = realloc(w->members, cap * sizeof(struct member *));
		if (!more)
			return NULL;
		w->members = more;
		w->cap = cap;
	}
	m = calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	memcpy(m->addr, text, sizeof(m->addr));
	w->members[w->n++] = m;
	return m;
}

/* The one at place self is this node, whatever it calls itself. */
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
	while (*(text += strspn(text, " ,"))) {
		size_t len = strcspn(text, " ,");
		struct member *m = add(w, text, len);
		if (m)
			m->fixed = true;
		text += len;
	}
}

static int take_page(struct swarm *w, const struct mds_residency_get_rep *rep)
{
	struct wire_r r;
	wire_r_init(&r, rep->rows.data, rep->rows.len);
	while (!wire_r_end(&r)) {
		struct residency_node n = {0};
		wire_get_residency_node(&r, &n);
		if (r.status < 0)
			break;
		struct member *m = add(w, n.addrs.data, n.addrs.len);
		if (!m)
			continue;
		m->told = m->seen = true;
		m->ready = n.state == LEAT_COPY_READY || n.state == LEAT_COPY_STALE;
	}
	return r.status;
}

/* Who makes or has it, as the metadata server has been told. */
static void refresh(struct swarm *w)
{
	struct mds_residency_get_req req = {
		.what = bytes_of(w->o.job->m->id, (uint32_t)strlen(w->o.job->m->id))};
	int rc = 0;
	for (uint32_t i = 0; i < w->n; i++)
		w->members[i]->told = false;
	do {
		struct mds_residency_get_rep rep;
		struct rpc_call call;
		rc = mds_call(w->o.fs->client, OP_mds_residency_get, &req, &rep, &call);
		uint32_t next = rc == 0 ? rep.next : 0;
		if (rc == 0)
			rc = take_page(w, &rep);
		rpc_call_fini(&call);
		req.from = next;
	} while (rc == 0 && req.from != 0 && !w->stopping);
	/* Only a whole answer says who is not there any more. */
	for (uint32_t i = 0; i < w->n && rc == 0; i++)
		w->members[i]->seen = w->members[i]->told;
}

static void refresh_fiber(void *arg)
{
	struct swarm *w = arg;
	while (!w->stopping) {
		refresh(w);
		int rc = waitq_wait(&w->stop, loop_now_us() + REFRESH_US);
		(void)rc;
	}
	latch_done(&w->fibers);
}

/* Where those who take part are named, others count only once they have all of it: they may be the
 * same nodes under other names. */
static bool is_in(const struct swarm *w, const struct member *m)
{
	return (m->fixed || (m->seen && (!w->fixed || m->ready))) && !m->lied &&
	       m->ban_until_us <= loop_now_us();
}

static void drop(struct swarm *w, struct member *m, const char *why)
{
	m->ban_until_us = loop_now_us() + BAN_US;
	m->slow = 0;
	w->stats.dropped++;
	log_warn("staging: node %s is left out: %s", m->addr, why);
}

/* ---- asking ---- */

static int connect(struct swarm *w, struct member *m)
{
	struct rpc_client_options o = {.transport = w->o.fs->transport,
				       .addrs = m->addr,
				       .name = "staging",
				       .role = ROLE_AGENT,
				       .cluster = ll_cluster(w->o.fs->client),
				       .key = *w->o.key};
	if (!m->rpc)
		TRY(rpc_client_create(&o, &m->rpc));
	for (uint64_t end = loop_deadline_ms(CONNECT_MS); !rpc_client_connected(m->rpc);) {
		if (w->stopping || !is_in(w, m) || loop_now_us() >= end)
			return -LE_DISCONNECTED;
		TRY(fiber_sleep_us(10000));
	}
	return 0;
}

static uint32_t patience_ms(const struct swarm *w)
{
	uint64_t ms = w->o.job->source_us / 1000 * 8;
	return ms < WAIT_MIN_MS ? WAIT_MIN_MS : ms > WAIT_MAX_MS ? WAIT_MAX_MS : (uint32_t)ms;
}

static int check(struct swarm *w, uint64_t chunk, const struct slot *s, uint32_t len)
{
	const struct manifest *m = w->o.job->m;
	const struct manifest_file *f = &m->files[manifest_file_of_chunk(m, chunk)];
	uint64_t index = chunk - f->first_chunk;
	if (len != manifest_chunk_len(f, index))
		return -LE_CORRUPT;
	return manifest_check(m, f, index * MANIFEST_CHUNK, s->data, len) < 0 ? 0 : -LE_CORRUPT;
}

static int ask_one(struct swarm *w, struct member *m, uint64_t chunk, struct slot *s, bool demand)
{
	uint32_t wait_ms = demand ? patience_ms(w) : 0;
	struct peer_chunk_req req = {.id = bytes_str(w->o.job->m->id),
				     .chunk = chunk,
				     .wait_ms = wait_ms,
				     .demand = demand};
	struct peer_chunk_rep rep = {0};
	struct slot_vec room = {s, 0, MANIFEST_CHUNK};
	struct rpc_call call = {.op = OP_peer_chunk,
				.req = &req,
				.rep = &rep,
				.deadline_us = loop_deadline_ms(wait_ms + 2000),
				.bulk_in = &room,
				.n_bulk_in = 1};
	int rc = connect(w, m);
	if (rc == 0) {
		rc = rpc_call(m->rpc, &call);
		if (rc >= 0)
			rc = check(w, chunk, s, call.ret_bulk_len);
		rpc_call_fini(&call);
	}
	return rc;
}

static int ask(struct swarm *w, struct member *m, uint64_t chunk, struct slot *s, bool demand)
{
	int rc = ask_one(w, m, chunk, s, demand);
	/* Another fiber may have left it out meanwhile. */
	if (rc == 0) {
		m->slow = 0;
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
	return rc;
}

/* The highest in rank below `below`; NULL: it is this node, or nobody. */
static struct member *owner_below(struct swarm *w, uint64_t chunk, uint64_t below, bool ready,
				  uint64_t *ret_weight)
{
	struct member *best = NULL;
	uint64_t own = swarm_weight(w->self, chunk), top = ready || own >= below ? 0 : own;
	for (uint32_t i = 0; i < w->n; i++) {
		struct member *m = w->members[i];
		uint64_t x = swarm_weight(m->addr, chunk);
		if (is_in(w, m) && x > top && x < below && (!ready || m->ready)) {
			best = m;
			top = x;
		}
	}
	*ret_weight = top;
	return best;
}

/* Down the ranks until this node's turn comes. */
static int ask_ranks(struct swarm *w, uint64_t chunk, struct slot *s, bool ready, bool demand)
{
	uint64_t below = UINT64_MAX;
	for (uint32_t i = 0; i < TRIES; i++) {
		struct member *m = owner_below(w, chunk, below, ready, &below);
		if (!m)
			return -LE_AGAIN;
		if (ask(w, m, chunk, s, demand) == 0)
			return 0;
	}
	return -LE_AGAIN;
}

int swarm_get(void *arg, uint64_t chunk, struct slot *s, enum fetch_ask how)
{
	struct swarm *w = arg;
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

/* ---- life ---- */

int swarm_create(const struct swarm_options *opts, struct swarm **ret_swarm)
{
	struct swarm *w = calloc(1, sizeof(*w));
	if (!w)
		return -LE_NOMEM;
	w->o = *opts;
	snprintf(w->self, sizeof(w->self), "%s", opts->self);
	latch_init(&w->fibers, 0);
	waitq_init(&w->stop);
	if (opts->members && opts->members[0])
		add_fixed(w, opts->members, opts->self_member);
	/* Before the first chunk is asked for. */
	refresh(w);
	latch_add(&w->fibers, 1);
	int rc = fiber_spawn("swarm", refresh_fiber, w);
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
	for (uint32_t i = 0; i < w->n; i++) {
		if (w->members[i]->rpc)
			rpc_client_destroy(w->members[i]->rpc);
		free(w->members[i]);
	}
	free(w->members);
	free(w);
}

void swarm_stats(const struct swarm *w, struct swarm_stats *ret_stats)
{
	*ret_stats = w->stats;
	ret_stats->members = 0;
	for (uint32_t i = 0; i < w->n; i++)
		ret_stats->members += is_in(w, w->members[i]);
}
