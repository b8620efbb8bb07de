/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/scrub/scrub.h"

#include <stdlib.h>

#include "common/base/clocks.h"
#include "common/base/log.h"
#include "common/base/planted_bug.h"
#include "ossd/chain/receive.h"
#include "ossd/chain/repair.h"
#include "ossd/chunk/chunk_names.h"
#include "ossd/chunk/chunk_tx.h"

WIRE_DEFINE_MESSAGE(scrub_row)

#define SCRUB_KEY      "Mscrub"
#define SCRUB_KEY_SIZE 6u
#define ROW_MAX        192u
#define STEP           64u /* chunks between comparisons with the members of their chain */
#define LIST_MAX       256u
#define SAVE_US        5000000u
#define DAMAGE_MAX     16u /* number of damaged blocks that triggers a scrub */
#define IDLE_US        500000u
#define CALL_MS        5000u
#define HOLD_MS        2000u

struct scrub {
	struct maintenance *k;
	struct maintenance_turns turns;
	struct scrub_row row;
	/* Number of the latest scrub, and of the one to which the page being processed belongs. If
	 * a newer scrub has begun, that page is counted in `former`. */
	uint64_t begun, walking;
	struct scrub_row former;
	bool stopping, alarmed;
	uint64_t saved_us;
	/* Time since the last scrub: rested_us, and what has passed since rest_us (monotonic
	 * clock). */
	uint64_t rest_us, rested_us;
	struct fiber *fiber;
	struct latch running;
};

static bool goes_on(const struct scrub *s)
{
	return s->row.running && s->walking == s->begun && !s->stopping;
}

static struct scrub_row *counts(struct scrub *s)
{
	return s->walking == s->begun ? &s->row : &s->former;
}

/* ---- stored progress ---- */

static void put_row(struct scrub *s)
{
	struct kv_batch *b = group_commit_batch(&s->k->s->gc);
	uint8_t buf[ROW_MAX];
	struct wire_w w;

	wire_w_init(&w, buf, sizeof(buf));
	wire_put_scrub_row(&w, &s->row);
	ASSERT(w.status == 0);
	kv_batch_put(b, SCRUB_KEY, SCRUB_KEY_SIZE, buf, w.len);
}

static int save(struct scrub *s)
{
	TRY(chunk_store_status(s->k->s));
	put_row(s);
	return group_commit_wait(&s->k->s->gc, group_commit_join(&s->k->s->gc, NULL, false));
}

static int load(struct scrub *s)
{
	struct kv_value v;
	struct wire_r r;
	int rc = kv_get(s->k->s->kv, SCRUB_KEY, SCRUB_KEY_SIZE, &v);

	if (rc < 0)
		return rc == -LE_NOENT ? 0 : rc;
	wire_r_init(&r, v.data, v.len);
	wire_get_scrub_row(&r, &s->row);
	kv_value_fini(&v);
	return r.status < 0 ? -LE_CORRUPT_STORE : 0;
}

/* ---- chunks in order ---- */

struct page {
	struct chunk_key k[STEP];
	uint64_t version[STEP], sum[STEP];
	bool damaged[STEP]; /* not to be copied to other members */
	bool lost[STEP];    /* and no member has it */
	uint32_t n;
	bool more;
	struct chunk_names seen;
};

static int page_row(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct page *p = arg;
	struct chunk_summary_info info;

	TRY(chunk_key_decode(ROW_CHUNK, key, key_len, &p->k[p->n]));
	p->damaged[p->n] = chunk_record_summary(&p->k[p->n], value, len, &info) < 0;
	p->lost[p->n] = false;
	p->version[p->n] = p->damaged[p->n] ? 0 : info.version;
	p->sum[p->n] = p->damaged[p->n] ? 0 : info.sum;
	chunk_names_add(&p->seen, &p->k[p->n]);
	p->n++;
	return 0;
}

static int read_rows(struct scrub *s, const struct chunk_key *next, struct page *p)
{
	uint8_t begin[CHUNK_KEY_SIZE], end = ROW_CHUNK + 1;
	struct kv_range range = {begin, sizeof(begin), &end, 1, STEP};

	chunk_key_encode(ROW_CHUNK, next, begin);
	p->n = 0;
	p->seen = (struct chunk_names){0};
	TRY(group_commit_barrier(&s->k->s->gc));
	return kv_scan(s->k->s->kv, NULL, &range, page_row, p, &p->more);
}

static int read_page(struct scrub *s, struct page *p)
{
	struct chunk_key next = chunk_key_of(s->row.chain, &s->row.next);
	struct chunk_key last = {UINT32_MAX, {UINT64_MAX}, UINT32_MAX, UINT64_MAX};
	bool again;

	do {
		TRY(read_rows(s, &next, p));
		TRY(chunk_find_lost_rows(s->k->s, &next, p->more ? &p->k[p->n - 1] : &last, &p->seen,
					&again));
	} while (again);
	return 0;
}

/* Shortens the page to chunks of one chain, so that one list per member covers it. */
static void one_chain(struct page *p)
{
	uint32_t n = 0;

	while (n < p->n && p->k[n].chain == p->k[0].chain)
		n++;
	if (n < p->n) /* the following chunks are of another chain */
		p->more = false;
	p->n = n;
}

/* ---- this target's blocks ---- */

static int check_chunk(struct scrub *s, struct page *p, uint32_t i)
{
	struct scrub_row *row;
	struct maintenance_turn w;
	struct repair r;
	int rc;

	maintenance_turn_begin(&s->turns, &w);
	rc = repair_chunk(s->k, &p->k[i], &r);
	maintenance_turn_end(&s->turns, &w, r.bytes);
	row = counts(s);
	row->chunks++;
	row->bytes += r.bytes;
	row->damaged += r.found;
	row->repaired += r.repaired;
	row->unrepaired += r.found - r.repaired;
	metric_add(&s->k->metrics->scrubbed, 1);
	metric_add(&s->k->metrics->scrubbed_bytes, r.bytes);
	p->damaged[i] |= r.found > r.repaired;
	p->lost[i] = r.nobody;
	if (rc == 0 && p->version[i] == 0) /* the chunk has changed since it was listed */
		p->damaged[i] = true;
	return rc == -LE_CORRUPT || rc == -LE_BUSY || rc == -LE_STALE ? 0 : rc;
}

/* ---- the other members ---- */

/* A member's version, as listed. */
struct theirs {
	uint64_t version, sum; /* 0: the member has none */
};

/* Called while the chunk is held here: true if the member still has this version, committed. */
static bool still_theirs(struct chain *c, uint32_t target, const struct chunk_key *key,
			 const struct theirs *t)
{
	struct version_state st = {0};

	return member_state(c, target, key, &st) == 0 && st.newest == t->version &&
	       st.committed == t->version;
}

/*
 * Copies a chunk that a member has and its head has not. Members have committed only what their
 * head had, and all members execute a removal before it is committed. So either the head has lost
 * the chunk, or the member has lost its removal. They cannot be distinguished; a chunk that is
 * restored in error only occupies space.
 */
static int take_lost(struct scrub *s, struct chain *c, uint32_t target, const struct chunk_own *own,
		     const struct oss_resync_chunk_req *req)
{
	uint64_t bytes = 0;

	TRY(replace_own(s->k, c, req, own, &bytes));
	counts(s)->differing++;
	metric_add(&s->k->metrics->scrub_differing, 1);
	log_error("chain=%u inode=%llu gen=%u chunk=%llu: lost by the head, restored from "
		  "target %u",
		  c->id, (unsigned long long)req->chunk.ino.v, req->chunk.gen,
		  (unsigned long long)req->chunk.idx, target);
	return 0;
}

static int make_equal(struct scrub *s, struct chain *c, uint32_t target,
		      const struct oss_resync_chunk_req *req)
{
	struct oss_resync_chunk_rep rep = {0};
	struct rpc_call call = {.op = OP_oss_resync_chunk,
				.flags = RPC_CALL_NO_WAIT,
				.req = req,
				.rep = &rep,
				.deadline_us = loop_deadline_ms(RESYNC_COPY_MS)};
	int rc = chain_call(c, target, &call);

	rpc_call_fini(&call);
	if (rc < 0 || rep.done == RESYNC_SAME)
		return rc;
	counts(s)->differing++;
	metric_add(&s->k->metrics->scrub_differing, 1);
	log_error("chain=%u inode=%llu gen=%u chunk=%llu: target %u differed from the head: %s",
		  c->id, (unsigned long long)req->chunk.ino.v, req->chunk.gen,
		  (unsigned long long)req->chunk.idx, target,
		  req->version == VERSION_LOST ? "it is lost"
		  : rep.done == RESYNC_COPIED  ? "replaced"
					       : "removed");
	return 0;
}

/* Marks a chunk as lost at a member, which would otherwise treat it as a hole. */
static int report_lost(struct scrub *s, struct chain *c, uint32_t target,
		       const struct chunk_key *key)
{
	struct oss_resync_chunk_req req = {.chunk = chunk_key_id(key),
					   .version = VERSION_LOST,
					   .source = s->k->chains->target};
	struct chunk_tx tx;
	int rc = 0;

	TRY(chunk_hold_over(s->k->s, key, loop_deadline_ms(HOLD_MS), &tx));
	if (!chain_is_head(c))
		rc = -LE_STALE_EPOCH;
	else if (tx.over)
		rc = make_equal(s, c, target, &req);
	chunk_release(&tx);
	return rc;
}

/* Holds the chunk. If it still differs, makes the member equal, or the head if that has an older
 * version. */
static int settle_difference(struct scrub *s, struct chain *c, uint32_t target,
			     const struct chunk_key *key, const struct theirs *t)
{
	struct oss_resync_chunk_req req = {.chunk = chunk_key_id(key),
					   .source = s->k->chains->target};
	struct chunk_own own = {0};
	bool lost = false;
	struct chunk_tx tx;
	int rc = 0;

	TRY(chunk_hold(s->k->s, key, loop_deadline_ms(HOLD_MS), &tx));
	own.epoch = c->epoch;
	req.version = own.version = tx.old ? tx.old->version : 0;
	req.sum = own.sum = tx.old ? chunk_record_sum(tx.old) : 0;
	/* A target that is no longer head may lack versions. */
	if (!chain_is_head(c))
		rc = -LE_STALE_EPOCH;
	else if (t->version > own.version && !PLANTED_BUG(SCRUB_REMOVE_LOST))
		lost = still_theirs(c, target, key, t);
	else
		rc = make_equal(s, c, target, &req);
	chunk_release(&tx);
	if (!lost)
		return rc;
	req = (struct oss_resync_chunk_req){req.chunk, t->version, t->sum, target};
	return take_lost(s, c, target, &own, &req);
}

struct member_list {
	struct chunk_key k[LIST_MAX];
	uint64_t version[LIST_MAX], sum[LIST_MAX];
	uint32_t n;
	bool more;
};

static int list_member(struct chain *c, uint32_t target, const struct chunk_key *from,
		       struct member_list *l)
{
	struct oss_list_req req = {chunk_key_id(from), LIST_MAX};
	struct oss_list_rep rep = {0};
	struct rpc_call call = {.op = OP_oss_list,
				.flags = RPC_CALL_NO_WAIT,
				.req = &req,
				.rep = &rep,
				.deadline_us = loop_deadline_ms(CALL_MS)};
	int rc = chain_call(c, target, &call);
	struct wire_r r;

	wire_r_init(&r, rep.chunks.data, rep.chunks.len);
	l->n = 0;
	while (rc == 0 && l->n < LIST_MAX && !wire_r_end(&r)) {
		struct chunk_summary m;

		wire_get_chunk_summary(&r, &m);
		rc = r.status;
		l->k[l->n] = chunk_key_of(c->id, &m.chunk);
		l->version[l->n] = m.version;
		l->sum[l->n++] = m.sum;
	}
	l->more = rep.more;
	rpc_call_fini(&call);
	return rc;
}

/* Compares the page and the member's list of the same range. As writes are always in flight, a
 * difference counts only if it still exists when the chunk is held. */
static int compare_member(struct scrub *s, struct chain *c, uint32_t target, const struct page *p,
			  const struct chunk_key *from)
{
	struct member_list *l = malloc(sizeof(*l));
	uint32_t a = 0, b = 0;
	int rc = l ? list_member(c, target, from, l) : -LE_NOMEM;

	while (rc == 0 && (a < p->n || b < l->n)) {
		int order = a == p->n ? 1 : b == l->n ? -1 : chunk_key_compare(&p->k[a], &l->k[b]);
		bool ours = order <= 0, theirs = order >= 0;

		if (!ours && p->more && chunk_key_compare(&l->k[b], &p->k[p->n - 1]) > 0)
			break; /* part of the next page */
		if (!theirs && b == l->n && l->more)
			break; /* its list ends earlier: the rest is compared in the next page */
		struct theirs t = {theirs ? l->version[b] : 0, theirs ? l->sum[b] : 0};

		if (ours && !theirs && p->lost[a])
			rc = report_lost(s, c, target, &p->k[a]);
		else if (!(ours && p->damaged[a]) &&
			 !(ours && theirs && p->version[a] == t.version && p->sum[a] == t.sum))
			rc = settle_difference(s, c, target, ours ? &p->k[a] : &l->k[b], &t);
		if (rc == -LE_CORRUPT) { /* damaged here: other members may have it */
			struct repair r;

			rc = repair_chunk(s->k, ours ? &p->k[a] : &l->k[b], &r);
			rc = rc == -LE_CORRUPT || rc == -LE_BUSY || rc == -LE_STALE ? 0 : rc;
		}
		if (rc == -LE_TIMEDOUT) { /* written continuously: the next scrub compares it */
			counts(s)->uncompared++;
			rc = 0;
		}
		a += ours;
		b += theirs;
	}
	free(l);
	return rc;
}

static void compare_members(struct scrub *s, const struct page *p, const struct chunk_key *from)
{
	struct chain *c = chain_find(s->k->chains, from->chain);

	if (!c || !chain_is_head(c))
		return;
	/* A member that is not SYNC is compared by resync when it is filled. */
	counts(s)->uncompared += (uint64_t)(c->n_members - c->n_sync) * p->n;
	for (uint32_t i = 1; i < c->n_sync && chain_is_head(c); i++) {
		uint32_t target = c->members[i].target;
		int rc = compare_member(s, c, target, p, from);

		if (rc == 0)
			continue;
		maintenance_noticed(s->k, rc);
		counts(s)->uncompared += p->n;
		log_debug("chain %u: comparing with target %u: %s", c->id, target, status_text(rc));
	}
}

/* Compares chains, from that of `from` up to `before`, of which there are no further chunks
 * here. */
static void compare_gap(struct scrub *s, struct chunk_key from, uint32_t before)
{
	static const struct page none;

	while (from.chain < before && goes_on(s)) {
		struct chain *next = NULL;

		compare_members(s, &none, &from);
		for (struct chain *c = chain_next(s->k->chains, NULL); c;
		     c = chain_next(s->k->chains, c))
			if (c->id > from.chain && (!next || c->id < next->id))
				next = c;
		if (!next)
			return;
		from = (struct chunk_key){.chain = next->id};
	}
}

/* ---- progress ---- */

static void advance(struct scrub *s, const struct page *p)
{
	const struct chunk_key *last = &p->k[p->n - 1];

	s->row.chain = last->chain;
	s->row.next = chunk_key_id(last);
	s->row.next.idx++; /* no index is the last one */
}

/* Epochs only grow, so equal sums mean equal epochs. */
static uint64_t sum_of_epochs(const struct scrub *s)
{
	uint64_t sum = 0;

	for (struct chain *c = chain_next(s->k->chains, NULL); c; c = chain_next(s->k->chains, c))
		sum += c->epoch;
	return sum;
}

/* Counts chunks that are lost together with their names. The scrub cannot repair them: those that
 * other members have are restored when they are requested. */
static void count_uncertain(void *arg, const struct inventory_uncertain *d)
{
	struct scrub *s = arg;

	s->row.damaged += d->n_lost;
	s->row.unrepaired += d->n_lost;
	log_error("chain=%u target=%u: %llu chunks and their names are lost, of files with inode "
		  "numbers up to %llu",
		  d->chain, s->k->chains->target, (unsigned long long)d->n_lost,
		  (unsigned long long)d->upto);
}

/* Schedules the next scrub an interval from now, independent of the wall clock. */
static void rest(struct scrub *s)
{
	s->rest_us = env_now_us(s->k->env);
	s->rested_us = 0;
}

static void finish(struct scrub *s)
{
	struct scrub_row *r = &s->row;

	inventory_each_uncertain(&s->k->s->inventory, count_uncertain, s);
	r->moved = r->epochs != sum_of_epochs(s);
	r->running = 0;
	r->chain = 0;
	r->next = (struct chunk_id){0};
	r->ended_ns = env_wall_ns(s->k->env);
	rest(s);
	log_info("scrub: %llu chunks, %llu bytes: %llu damaged blocks, %llu repaired, %llu not; "
		 "%llu chunks of other members differed, %llu were not compared%s",
		 (unsigned long long)r->chunks, (unsigned long long)r->bytes,
		 (unsigned long long)r->damaged, (unsigned long long)r->repaired,
		 (unsigned long long)r->unrepaired, (unsigned long long)r->differing,
		 (unsigned long long)r->uncompared,
		 r->moved ? "; members of chains have changed meanwhile" : "");
}

static int walk(struct scrub *s)
{
	struct chunk_key from = chunk_key_of(s->row.chain, &s->row.next);
	struct page *p = calloc(1, sizeof(*p));
	int rc;

	s->walking = s->begun;
	rc = p ? read_page(s, p) : -LE_NOMEM;
	if (rc == 0)
		compare_gap(s, from, p->n ? p->k[0].chain : UINT32_MAX);
	if (!goes_on(s)) {
		free(p);
		return rc;
	}
	if (rc == 0 && p->n == 0) {
		finish(s);
		rc = save(s);
	} else if (rc == 0) {
		one_chain(p);
		if (p->k[0].chain != from.chain)
			from = (struct chunk_key){.chain = p->k[0].chain};
		for (uint32_t i = 0; i < p->n && rc == 0 && goes_on(s); i++)
			rc = check_chunk(s, p, i);
		if (rc == 0 && goes_on(s))
			compare_members(s, p, &from);
		if (rc == 0 && goes_on(s))
			advance(s, p);
	}
	free(p);
	return rc;
}

static void maybe_save(struct scrub *s)
{
	uint64_t now = env_now_us(s->k->env);

	if (now - s->saved_us < SAVE_US || chunk_store_status(s->k->s) < 0)
		return;
	s->saved_us = now;
	put_row(s);
	(void)group_commit_join_lazy(&s->k->s->gc, NULL, false);
}

static bool due(const struct scrub *s)
{
	uint64_t hours = s->k->p->scrub_interval_h;
	bool suspicious = s->k->damage_seen >= DAMAGE_MAX || s->k->s->space.frozen;
	uint64_t rested_us = s->rested_us + (env_now_us(s->k->env) - s->rest_us);

	/* So much damage suggests more. Only once, as what remains then cannot be repaired. */
	if (suspicious && !s->alarmed && s->k->members_known)
		return true;
	return hours && rested_us > hours * 3600 * 1000000;
}

static void scrub_fiber(void *arg)
{
	struct scrub *s = arg;

	s->fiber = fiber_self();
	while (!s->stopping) {
		int rc = 0;

		if (!s->row.running && due(s)) {
			rc = scrub_start(s);
			s->alarmed |= rc == 0 && s->k->damage_seen >= DAMAGE_MAX;
			s->alarmed |= s->k->s->space.frozen;
		}
		if (rc == 0 && s->row.running) {
			rc = walk(s);
			maybe_save(s);
		}
		maintenance_noticed(s->k, rc);
		if (s->k->index_damaged)
			s->row.running = 0; /* the next process continues, if there is one */
		if (rc < 0 && !s->stopping)
			log_warn("scrub: %s", status_text(rc));
		if ((rc < 0 || !s->row.running) && !s->stopping)
			(void)fiber_sleep_us(IDLE_US);
	}
	s->fiber = NULL;
	latch_done(&s->running);
}

/* ---- control ---- */

int scrub_start(struct scrub *s)
{
	if (s->row.running)
		return 0;
	s->row = (struct scrub_row){
		.running = 1, .began_ns = env_wall_ns(s->k->env), .epochs = sum_of_epochs(s)};
	s->begun++;
	rest(s);
	return save(s);
}

int scrub_stop(struct scrub *s)
{
	if (!s->row.running)
		return 0;
	s->row.running = 0;
	s->row.ended_ns = env_wall_ns(s->k->env);
	rest(s);
	return save(s);
}

const struct scrub_row *scrub_state(const struct scrub *s)
{
	return &s->row;
}

/* Saves the time from which the next interval counts. On failure the server starts anyway. */
static void save_when(struct scrub *s)
{
	int rc = save(s);

	if (rc < 0)
		log_warn("target %u: cannot save the time of the last scrub: %s",
			 s->k->chains->target, status_text(rc));
}

/* Computes the time since the last scrub from the wall clock, at a start. If the last scrub is in
 * the future, this clock or the earlier one is wrong: the interval begins now. A store that was
 * never scrubbed is new: its first scrub is due after an interval. */
static void rested_before(struct scrub *s)
{
	int64_t now_ns = env_wall_ns(s->k->env);
	int64_t last_ns = s->row.ended_ns > s->row.began_ns ? s->row.ended_ns : s->row.began_ns;
	char then[CLOCK_TIME_TEXT], now[CLOCK_TIME_TEXT];

	rest(s);
	if (s->row.began_ns == 0) {
		s->row.began_ns = now_ns;
		return;
	}
	if (last_ns <= now_ns) {
		s->rested_us = (uint64_t)(now_ns - last_ns) / 1000;
		return;
	}
	log_warn("target %u: the last scrub was at %s, but this machine's clock shows %s: one of "
		 "them is wrong; the interval to the next scrub begins now",
		 s->k->chains->target, clock_format_time(last_ns, then),
		 clock_format_time(now_ns, now));
	s->row.began_ns = s->row.began_ns < now_ns ? s->row.began_ns : now_ns;
	s->row.ended_ns = s->row.ended_ns < now_ns ? s->row.ended_ns : now_ns;
	save_when(s);
}

int scrub_open(struct maintenance *k, struct scrub **ret_scrub)
{
	struct scrub *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -LE_NOMEM;
	s->k = k;
	maintenance_turns_init(&s->turns, k->env, k->metrics, k->p->scrub_rate_mib_s,
			       k->p->resync_share);
	latch_init(&s->running, 1);
	rc = load(s);
	if (rc == 0)
		rested_before(s);
	if (rc == 0)
		rc = fiber_spawn("scrub", scrub_fiber, s);
	if (rc < 0) {
		free(s);
		return rc;
	}
	*ret_scrub = s;
	return 0;
}

void scrub_close(struct scrub *s)
{
	s->stopping = true;
	if (s->fiber)
		fiber_interrupt(s->fiber);
	latch_wait(&s->running);
}

void scrub_free(struct scrub *s)
{
	free(s);
}
