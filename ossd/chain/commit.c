/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chain/commit.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/planted_bug.h"
#include "common/base/state_machine.h"
#include "ossd/chain/forward_data.h"
#include "ossd/chunk/chunk_tx.h"
#include "ossd/chunk/chunk_write.h"
#include "ossd/chunk/store_record.h"

#define RESOLVE_US   1000000u /* without a message about a version for so long, query the head */
#define RESOLVE_TICK 250000u
#define RESOLVE_MAX  64u
#define NOTE_SIZE    48u /* encoded size of one version_note or version_state */
#define CALL_MS      2000u

#define TO(state) (1u << VERSION_##state)
STATE_MACHINE(version_moves, "version", N_VERSION_PHASES,
	   .states = {"new", "joined", "durable", "committed", "aborted", "dropped"},
	   .allowed = {
		   [VERSION_NEW] = TO(JOINED),
		   [VERSION_JOINED] = TO(DURABLE) | TO(ABORTED) | TO(DROPPED),
		   [VERSION_DURABLE] = TO(COMMITTED) | TO(ABORTED) | TO(DROPPED),
	   })

static void version_move(struct version *v, int to)
{
	v->state = state_machine_move(&version_moves, v->state, to);
}

/* ---- lifetime ---- */

struct version *version_create(struct chain *c)
{
	struct list *l = list_pop(&c->all->free_versions);
	struct version *v = l ? list_entry(l, struct version, link) : malloc(sizeof(*v));

	if (!v)
		return NULL;
	memset(v, 0, sizeof(*v));
	v->chain = c;
	v->refs = 1;
	list_init(&v->link);
	list_init(&v->chain_link);
	waitq_init(&v->q);
	return v;
}

void version_ref(struct version *v)
{
	ASSERT(v->refs > 0);
	v->refs++;
}

void version_unref(struct version *v)
{
	ASSERT(v->refs > 0);
	if (--v->refs)
		return;
	ASSERT(waitq_empty(&v->q) && list_empty(&v->chain_link));
	forward_release(v);
	list_push(&v->chain->all->free_versions, &v->link);
}

static void leave_pending(struct version *v)
{
	if (list_empty(&v->chain_link))
		return;
	ASSERT(v->chain->n_pending > 0 && v->chain->all->n_pending >= v->chain->n_pending);
	list_remove(&v->chain_link);
	v->chain->n_pending--;
	metric_set(&v->chain->all->metrics->pending, --v->chain->all->n_pending);
}

static void enter_pending(struct version *v)
{
	struct chain *c = v->chain;

	v->serial = v->known = ++c->serial;
	v->head_contact_us = env_now_us(c->all->env);
	list_push(&c->pending, &v->chain_link);
	c->n_pending++;
	metric_set(&c->all->metrics->pending, ++c->all->n_pending);
	version_move(v, VERSION_JOINED);
	version_ref(v); /* for the group commit */
	version_ref(v); /* for the chain */
}

/* ---- notifying the members downstream ---- */

static void notify(struct chain *c, const struct oss_commit_req *req)
{
	uint32_t targets[CHAIN_MEMBERS_MAX], n = forward_targets(c, NULL, targets);

	for (uint32_t i = 0; i < n; i++) {
		struct oss_commit_rep rep;
		struct rpc_call call = {.op = OP_oss_commit,
					.req = req,
					.rep = &rep,
					.deadline_us = loop_deadline_ms(CALL_MS)};
		int rc = chain_call(c, targets[i], &call);

		rpc_call_fini(&call);
		if (rc < 0)
			log_debug("chain %u: notice to target %u: %s", c->id, targets[i],
				  status_text(rc)); /* the member will query the head */
	}
}

static void notify_main(void *arg)
{
	struct chain *c = arg;
	uint8_t *buf = malloc((size_t)CHAIN_NOTES_MAX * NOTE_SIZE);

	while (buf && (c->n_notes || c->expedite) && !c->all->stopping) {
		struct oss_commit_req req = {.flags = c->expedite ? COMMIT_EXPEDITE : 0};
		struct wire_w w;

		wire_w_init(&w, buf, (size_t)CHAIN_NOTES_MAX * NOTE_SIZE);
		for (uint32_t i = 0; i < c->n_notes; i++)
			wire_put_version_note(&w, &c->notes[i]);
		ASSERT(w.status == 0);
		req.versions = bytes_of(buf, (uint32_t)w.len);
		c->n_notes = 0;
		c->expedite = false;
		notify(c, &req);
	}
	c->n_notes = 0;
	c->expedite = false;
	free(buf);
	c->notifier = false;
	latch_done(&c->all->fibers);
}

static void kick_notifier(struct chain *c)
{
	if (c->notifier || c->all->stopping)
		return;
	c->notifier = true;
	latch_add(&c->all->fibers, 1);
	if (fiber_spawn("chain-notify", notify_main, c) < 0) {
		c->notifier = false;
		c->n_notes = 0;
		latch_done(&c->all->fibers);
	}
}

static void note(struct chain *c, const struct chunk_key *k, uint64_t version)
{
	uint32_t targets[CHAIN_MEMBERS_MAX];

	/* With a full buffer the note is dropped: the member will query. */
	if (c->n_notes == CHAIN_NOTES_MAX || forward_targets(c, NULL, targets) == 0)
		return;
	c->notes[c->n_notes++] = (struct version_note){chunk_key_id(k), version};
	kick_notifier(c);
}

/* A request waits for pending versions: expedites commits here and downstream. Does not yield. */
static void expedite(struct chain *c)
{
	uint32_t targets[CHAIN_MEMBERS_MAX];

	group_commit_expedite(&c->all->store->gc);
	if (c->n_pending == 0 || c->expedite || forward_targets(c, NULL, targets) == 0)
		return;
	c->expedite = true;
	kick_notifier(c);
}

/* ---- the end of a version ---- */

static bool ripe(const struct version *v)
{
	const struct chain *c = v->chain;

	if (v->state == VERSION_DROPPED)
		return v->keep && v->durable;
	if (v->state != VERSION_DURABLE)
		return false;
	/* The head sends no notice that a reply without a chunk is committed: a member commits it
	 * when all members downstream have it. */
	if (!chain_is_head(c))
		return v->told &&
		       (!v->chunkless || v->durable_behind || PLANTED_BUG(CHAIN_LONE_ANSWER));
	return (v->durable_behind && !v->behind) || PLANTED_BUG(CHAIN_EARLY_ACK);
}

static void end_waits(struct version *v)
{
	v->ended = true;
	waitq_wake_all(&v->q);
	waitq_wake_all(&v->chain->settled);
}

static void finish(struct version *v)
{
	struct chains *cs = v->chain->all;
	bool committed = v->state == VERSION_DURABLE, quiet = false;

	list_remove(&v->link);
	leave_pending(v);
	if (committed)
		version_move(v, VERSION_COMMITTED);
	if (v->replay && committed)
		replay_settle(v->replay, v->seq, true);
	if (!v->chunkless) {
		quiet = v->tx.ent->n_pend == 1;
		waitq_wake_all(&v->tx.ent->moved);
		chunk_tx_commit(&v->tx);
		if (committed)
			note(v->chain, &v->key, v->number);
		if (quiet && committed)
			chain_log_committed(cs->log, &v->key);
		else if (quiet)
			chain_log_kept(cs->log, &v->key);
	}
	if (committed)
		metric_add(&cs->metrics->versions_committed, 1);
	forward_release(v);
	end_waits(v);
	version_unref(v);
}

void version_settle(struct version *v)
{
	struct chunk_cache *cache = &v->chain->all->store->cache;
	struct chunk_ent *e;
	NO_YIELD();

	if (!version_pending(v) && !(v->state == VERSION_DROPPED && v->keep))
		return;
	if (v->chunkless) {
		if (ripe(v))
			finish(v);
		return;
	}
	e = chunk_ent_find(cache, &v->key);
	ASSERT(e);
	while (!list_empty(&e->held)) {
		struct version *first = list_entry(e->held.next, struct version, link);

		if (!ripe(first))
			break;
		finish(first);
	}
	chunk_ent_put(cache, e);
}

/* Called when its group is durable, or the store has failed. */
static void version_durable(struct version *v, int status)
{
	if (status < 0) {
		v->status = status;
		end_waits(v);
		version_unref(v);
		return;
	}
	v->durable = true;
	if (v->state == VERSION_JOINED)
		version_move(v, VERSION_DURABLE);
	waitq_wake_all(&v->q);
	version_settle(v);
	version_unref(v);
}

static void tx_durable(struct chunk_tx *tx, int status)
{
	version_durable(container_of(tx, struct version, tx), status);
}

static void answer_committed(struct commit_member *m)
{
	version_durable(container_of(m, struct version, tx.member), 0);
}

static void answer_failed(struct commit_member *m)
{
	version_durable(container_of(m, struct version, tx.member), -LE_IO);
}

/* ---- beginning a version ---- */

static uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* A waiting writer occupies slots that other requests and members need: the number of waiting
 * writers is limited. */
static int wait_for_space(struct version *v, struct chunk_ent *e)
{
	struct chains *cs = v->chain->all;
	int rc;

	if (cs->n_waiting >= cs->o.waiting_max)
		return -LE_OVERLOAD;
	cs->n_waiting++;
	expedite(v->chain);
	rc = waitq_wait(&e->moved, fiber_deadline());
	ASSERT(cs->n_waiting > 0);
	cs->n_waiting--;
	return cs->stopping ? -LE_SHUTDOWN : rc;
}

/* True if the window has space, and w (NULL: not a write) does not overlap a pending write of
 * another session. */
static bool has_space(const struct chain *c, const struct chunk_ent *e, const struct chunk_write *w)
{
	if (e->n_pend >= c->all->o.window_max || (e->n_pend && !e->pend))
		return false;
	if (!w)
		return true;
	list_for_each(l, &e->held)
		if (chunk_tx_in_the_way(&list_entry(l, struct version, link)->tx, w))
			return false;
	return true;
}

static int begin(struct version *v, const struct chunk_key *id, const struct chunk_write *w,
		 bool over)
{
	struct chain *c = v->chain;
	struct chunk_store *s = c->all->store;
	struct chunk_ent *e;

	for (;;) {
		int rc;

		TRY(over ? chunk_tx_begin_over(s, id, &v->tx) : chunk_tx_begin(s, id, &v->tx));
		e = v->tx.ent;
		if (has_space(c, e, w))
			break;
		e->refs++;
		chunk_tx_cancel(&v->tx);
		rc = wait_for_space(v, e);
		chunk_ent_put(&s->cache, e);
		TRY(rc);
	}
	/* Members downstream treat a number that they have received in this epoch as history, and
	 * remember it for longer than this cache may. */
	v->tx.version = max_u64(v->tx.version, max_u64(e->seen, c->taken_back) + 1);
	if (!v->tx.old)
		v->tx.version = max_u64(v->tx.version, c->floor + 1);
	else if (PLANTED_BUG(CHAIN_REUSE_NUMBER))
		v->tx.version = v->tx.old->version;
	return 0;
}

int version_begin(struct version *v, const struct chunk_key *id)
{
	return begin(v, id, NULL, false);
}

int version_begin_write(struct version *v, const struct chunk_write *w)
{
	return begin(v, &w->id, w, false);
}

int version_begin_over(struct version *v, const struct chunk_key *id)
{
	return begin(v, id, NULL, true);
}

static void put_floor(struct chain *c, uint64_t version, struct kv_batch *b)
{
	uint8_t key[CHAIN_KEY_SIZE], value[FLOOR_VALUE_SIZE];

	if (version <= c->floor)
		return;
	c->floor = version;
	chain_key_encode(ROW_FLOOR, c->id, key);
	floor_value_encode(version, value);
	kv_batch_put(b, key, sizeof(key), value, sizeof(value));
}

void version_join(struct version *v)
{
	struct chain *c = v->chain;
	struct chunk_tx *tx = &v->tx;
	struct chunk_ent *e = tx->ent;
	struct kv_batch *b = group_commit_batch(&c->all->store->gc);
	NO_YIELD();

	ASSERT(v->state == VERSION_NEW && tx->locked);
	ASSERT(!tx->old || tx->version > tx->old->version);
	ASSERT(!tx->rec || tx->rec->version == tx->version);
	v->key = e->id;
	v->number = tx->version;
	v->base = tx->old ? tx->old->version : 0;
	v->sum = tx->rec ? chunk_record_sum(tx->rec) : 0;
	chain_log_joined(c->all->log, &v->key, b);
	if (!tx->rec)
		put_floor(c, v->number, b);
	if (v->replay)
		replay_join(v->replay, b, v->answer, v->answer_len);
	e->seen = max_u64(e->seen_epoch == c->epoch ? e->seen : 0, v->number);
	e->seen_epoch = c->epoch;
	list_push(&e->held, &v->link);
	enter_pending(v);
	tx->held = tx_durable;
	waitq_wake_all(&e->moved);
	chunk_tx_join(tx);
	v->chain->all->forward(v);
}

void version_join_answer(struct version *v)
{
	struct group_commit *g = &v->chain->all->store->gc;
	NO_YIELD();

	v->chunkless = true;
	v->tx.member.committed = answer_committed;
	v->tx.member.failed = answer_failed;
	if (v->replay)
		replay_join(v->replay, group_commit_batch(g), v->answer, v->answer_len);
	enter_pending(v);
	(void)group_commit_join(g, &v->tx.member, false);
	v->chain->all->forward(v);
}

int version_wait(struct version *v, struct rpc_req *r)
{
	bool accepted = false;

	while (!v->ended) {
		int rc;

		if (v->chain->all->stopping)
			return -LE_SHUTDOWN;
		if (v->accepted_behind && !accepted && version_pending(v)) {
			accepted = true;
			rpc_accept(r);
			continue;
		}
		rc = waitq_wait(&v->q, NO_DEADLINE);
		(void)rc; /* it has joined: only its end releases the request */
	}
	return v->state == VERSION_COMMITTED ? 0 : v->status;
}

/* ---- taking back ---- */

static void undone(struct commit_member *m)
{
	struct version *v = container_of(m, struct version, undo);

	chunk_tx_taken_back(&v->tx);
	version_unref(v);
}

static void forget_answer(const struct version *v, struct kv_batch *b)
{
	struct replay_key k = {v->chain->id, v->slot, v->session};
	struct replay_row row = {v->seq, 0, v->op, bytes_of(v->answer, v->answer_len)};

	if (v->seq == 0)
		return;
	replay_take_back(&v->chain->all->store->replay, &k, &row, b);
	if (v->replay)
		replay_settle(v->replay, v->seq, false);
}

uint64_t versions_take_back(struct version *v, int state, int status, struct list *gone)
{
	struct chains *cs = v->chain->all;
	struct group_commit *g = &cs->store->gc;
	struct chunk_ent *e = v->tx.ent;
	struct version *last;
	uint64_t group;
	NO_YIELD();

	do {
		last = list_entry(e->held.prev, struct version, link);
		list_remove(&last->link);
		list_push_front(gone, &last->link);
		leave_pending(last);
		last->status = last == v ? status : -LE_ABORTED;
		version_move(last, state);
		last->chain->taken_back = max_u64(last->chain->taken_back, last->number);
		chunk_tx_take_back(&last->tx);
		forget_answer(last, group_commit_batch(g));
		last->undo.committed = undone;
		version_ref(last);
		group = group_commit_join(g, &last->undo, false);
		metric_add(&cs->metrics->versions_taken_back, 1);
		waitq_wake_all(&last->q);
	} while (last != v);
	chain_log_taken_back(cs->log, &v->key, e->n_pend == 0);
	waitq_wake_all(&e->moved);
	return group;
}

void versions_gone(struct list *gone)
{
	struct list *l;

	while ((l = list_pop(gone)) != NULL) {
		struct version *v = list_entry(l, struct version, link);

		end_waits(v);
		version_unref(v);
	}
}

/* ---- waiting for pending versions ---- */

int chain_barrier(struct chain *c)
{
	uint64_t mark = c->serial;
	uint32_t epoch = c->epoch;

	expedite(c);
	while (!list_empty(&c->pending) &&
	       list_entry(c->pending.next, struct version, chain_link)->serial <= mark) {
		TRY(waitq_wait(&c->settled, fiber_deadline()));
		if (c->epoch != epoch)
			return -LE_STALE_EPOCH;
		if (c->all->stopping)
			return -LE_SHUTDOWN;
		TRY(chain_outcome(c, chunk_store_status(c->all->store)));
	}
	return chain_outcome(c, group_commit_barrier(&c->all->store->gc));
}

int chunk_barrier(struct chain *c, const struct chunk_key *id)
{
	struct chunk_cache *cache = &c->all->store->cache;
	struct chunk_ent *e = chunk_ent_find(cache, id);
	uint32_t epoch = c->epoch;
	uint64_t mark;
	int rc = 0;

	if (!e)
		return 0;
	mark = list_empty(&e->held) ? 0 : list_entry(e->held.prev, struct version, link)->number;
	if (mark)
		expedite(c);
	while (rc == 0 && !list_empty(&e->held) &&
	       list_entry(e->held.next, struct version, link)->number <= mark) {
		rc = waitq_wait(&e->moved, fiber_deadline());
		if (rc == 0 && c->epoch != epoch)
			rc = -LE_STALE_EPOCH;
		if (rc == 0 && c->all->stopping)
			rc = -LE_SHUTDOWN;
		if (rc == 0)
			rc = chain_outcome(c, chunk_store_status(c->all->store));
	}
	chunk_ent_put(cache, e);
	return rc;
}

/* ---- messages of the head ---- */

/* Marks the versions as committed by the head that the head was confirmed to have at that
 * serial. */
static void told(struct chain *c, const struct version_note *n, uint64_t serial)
{
	struct chunk_cache *cache = &c->all->store->cache;
	struct chunk_key k = chunk_key_of(c->id, &n->chunk);
	struct chunk_ent *e = chunk_ent_find(cache, &k);

	if (!e)
		return;
	list_for_each (l, &e->held) {
		struct version *v = list_entry(l, struct version, link);

		v->head_contact_us = env_now_us(c->all->env);
		if (v->number <= n->version && v->known <= serial)
			v->told = true;
	}
	if (!list_empty(&e->held))
		version_settle(list_entry(e->held.next, struct version, link));
	chunk_ent_put(cache, e);
}

int chain_committed(struct chain *c, const struct oss_commit_req *req)
{
	struct wire_r r;

	if (chain_is_head(c))
		return -LE_STALE_EPOCH;
	wire_r_init(&r, req->versions.data, req->versions.len);
	while (!wire_r_end(&r)) {
		struct version_note n;

		wire_get_version_note(&r, &n);
		if (r.status == 0)
			told(c, &n, UINT64_MAX);
	}
	if (req->flags & COMMIT_EXPEDITE)
		expedite(c);
	if (req->leases_ms)
		chain_leases_announced(c, req->leases_ms);
	return r.status;
}

static int state_of(struct chain *c, const struct chunk_key *k, struct version_state *ret_state)
{
	struct chunk_store *s = c->all->store;
	struct chunk_ent *e = chunk_ent_get(&s->cache, k);
	struct chunk_record *rec;
	int rc;

	if (!e)
		return -LE_NOMEM;
	rc = chunk_store_record(s, k, &rec);
	if (rc == -LE_CORRUPT) {
		ret_state->newest = VERSION_LOST;
		rc = 0;
	} else if (rc == 0) {
		chunk_record_unref(&s->cache, rec);
		ret_state->committed = e->rec ? e->rec->version : 0;
		ret_state->newest = ret_state->committed;
		if (e->n_pend && e->pend)
			ret_state->newest = e->pend->version;
		if (!list_empty(&e->held))
			ret_state->newest = list_entry(e->held.prev, struct version, link)->number;
	}
	chunk_ent_put(&s->cache, e);
	return rc;
}

int chain_resolve(struct chain *c, struct bytes notes, struct wire_w *answers)
{
	struct wire_r r;

	wire_r_init(&r, notes.data, notes.len);
	while (!wire_r_end(&r)) {
		struct version_state st = {0};
		struct version_note n;
		struct chunk_key k;

		wire_get_version_note(&r, &n);
		TRY(r.status);
		k = chunk_key_of(c->id, &n.chunk);
		TRY(state_of(c, &k, &st));
		wire_put_version_state(answers, &st);
		TRY(answers->status);
	}
	return r.status;
}

/* ---- queries to the head ---- */

/* A query, with the newest serial at the time it was sent: a version that arrives from the head
 * later may have the same number. */
struct question {
	const struct version_note *note;
	uint64_t serial;
};

static void drop(struct chain *c, const struct chunk_key *k, uint64_t above,
		 const struct question *q)
{
	struct chunk_cache *cache = &c->all->store->cache;
	struct chunk_ent *e = chunk_ent_find(cache, k);
	struct version *v = NULL;
	struct list gone;

	if (!e)
		return;
	list_init(&gone);
	fmutex_lock(&e->lock);
	list_for_each (l, &e->held) {
		struct version *h = list_entry(l, struct version, link);

		if (!v && version_pending(h) && h->number > above &&
		    h->number <= q->note->version && h->known <= q->serial)
			v = h;
	}
	if (v)
		(void)versions_take_back(v, VERSION_DROPPED, -LE_STALE_EPOCH, &gone);
	fmutex_unlock(&e->lock);
	versions_gone(&gone);
	chunk_ent_put(cache, e);
}

static void resolve_one(struct chain *c, const struct question *q, const struct version_state *st)
{
	struct chunk_cache *cache = &c->all->store->cache;
	const struct version_note *n = q->note;
	struct version_note committed = {n->chunk, st->committed};
	struct chunk_key k = chunk_key_of(c->id, &n->chunk);
	struct chunk_ent *e;
	bool removed;

	if (st->committed)
		told(c, &committed, UINT64_MAX);
	if (st->newest) {
		if (n->version > st->newest)
			drop(c, &k, st->newest, q);
		return;
	}
	/* The head has no such chunk: it has removed it, or never had it. */
	e = chunk_ent_find(cache, &k);
	if (!e)
		return;
	removed = e->n_pend && !e->pend;
	chunk_ent_put(cache, e);
	if (removed)
		told(c, n, q->serial);
	else
		drop(c, &k, 0, q);
}

static void resolve(struct chain *c, const struct version_note *notes, uint32_t n)
{
	uint8_t buf[RESOLVE_MAX * NOTE_SIZE];
	struct oss_resolve_req req;
	struct oss_resolve_rep rep = {0};
	struct rpc_call call = {.op = OP_oss_resolve,
				.req = &req,
				.rep = &rep,
				.deadline_us = loop_deadline_ms(CALL_MS)};
	struct question q = {.serial = c->serial};
	uint32_t epoch = c->epoch;
	struct wire_w w;
	struct wire_r r;
	int rc;

	wire_w_init(&w, buf, sizeof(buf));
	for (uint32_t i = 0; i < n; i++)
		wire_put_version_note(&w, &notes[i]);
	ASSERT(w.status == 0);
	req.versions = bytes_of(buf, (uint32_t)w.len);
	rc = chain_call(c, c->members[0].target, &call);
	metric_add(&c->all->metrics->resolves, 1);
	wire_r_init(&r, rep.answers.data, rep.answers.len);
	for (uint32_t i = 0; i < n && rc == 0 && c->epoch == epoch; i++) {
		struct version_state st = {0};

		wire_get_version_state(&r, &st);
		rc = r.status;
		q.note = &notes[i];
		if (rc == 0)
			resolve_one(c, &q, &st);
	}
	rpc_call_fini(&call);
	if (rc < 0)
		log_debug("chain %u: querying the head: %s", c->id, status_text(rc));
}

static void resolve_chain(struct chain *c)
{
	struct version_note notes[RESOLVE_MAX];
	uint64_t now = env_now_us(c->all->env);
	uint32_t n = 0;

	list_for_each (l, &c->pending) {
		struct version *v = list_entry(l, struct version, chain_link);

		if (v->chunkless || v->told || now - v->head_contact_us < RESOLVE_US ||
		    n == RESOLVE_MAX)
			continue;
		v->head_contact_us = now;
		notes[n++] = (struct version_note){chunk_key_id(&v->key), v->number};
	}
	if (n)
		resolve(c, notes, n);
}

static void feed(struct chains *cs)
{
	cs->starved = false;
	for (struct chain *c = chain_next(cs, NULL); c; c = chain_next(cs, c))
		list_for_each (l, &c->pending) {
			struct version *v = list_entry(l, struct version, chain_link);

			if (!v->durable_behind && !v->behind)
				v->chain->all->forward(v);
		}
}

static void resolve_main(void *arg)
{
	struct chains *cs = arg;

	while (!cs->stopping) {
		if (cs->starved)
			feed(cs);
		for (struct chain *c = chain_next(cs, NULL); c && !cs->stopping;
		     c = chain_next(cs, c))
			if (c->n_pending && !chain_is_head(c) && c->n_sync &&
			    c->self < c->n_members)
				resolve_chain(c);
		chain_log_tick(cs->log);
		int rc = waitq_wait(&cs->stop, env_now_us(cs->env) + RESOLVE_TICK);
		(void)rc;
	}
	latch_done(&cs->fibers);
}

/* ---- another epoch ---- */

static void leave_one(struct version *v)
{
	version_ref(v);
	leave_pending(v);
	v->status = -LE_STALE_EPOCH;
	v->keep = true;
	forward_release(v);
	version_move(v, VERSION_DROPPED);
	/* The reply of another member answers a change that was committed before. */
	if (v->replay)
		replay_settle(v->replay, v->seq, v->chunkless && v->told);
	end_waits(v);
	version_settle(v);
	version_unref(v);
}

/* Leaves all versions as they are, for a resync to compare: they will not be committed here. */
static void leave(struct chain *c)
{
	while (!list_empty(&c->pending))
		leave_one(list_entry(c->pending.next, struct version, chain_link));
}

/* A reply of an earlier epoch. If its head has been replaced, no message about it will come: the
 * reply is valid, and the new head has it for repeated requests. If the head is the same, all
 * members downstream have acknowledged it, or the head sends it again. */
static struct version *an_answer(const struct chain *c)
{
	list_for_each (l, &c->pending) {
		struct version *v = list_entry(l, struct version, chain_link);

		if (v->chunkless)
			return v;
	}
	return NULL;
}

static void forget_main(void *arg)
{
	struct chain *c = arg;

	while (!list_empty(&c->pending)) {
		struct version *v = list_entry(c->pending.next, struct version, chain_link);
		const struct version_note newest = {chunk_key_id(&v->key), UINT64_MAX};
		const struct question all = {&newest, UINT64_MAX};
		struct chunk_key k = v->key;

		if (v->chunkless)
			break;
		drop(c, &k, 0, &all);
	}
	latch_done(&c->all->fibers);
}

static void take_over(struct chain *c, bool was_head)
{
	bool again;

	if (PLANTED_BUG(CHAIN_FORGET_PENDING) && !was_head) {
		latch_add(&c->all->fibers, 1);
		if (fiber_spawn("chain-forget", forget_main, c) < 0)
			latch_done(&c->all->fibers);
		return;
	}
	do {
		again = false;
		list_for_each (l, &c->pending) {
			struct version *v = list_entry(l, struct version, chain_link);
			uint32_t n = c->n_pending;

			version_ref(v);
			version_settle(v);
			version_unref(v);
			if (c->n_pending != n) {
				again = true;
				break;
			}
		}
	} while (again);
}

/* Makes the fiber that waits for the next member check the epoch again. */
static void interrupt_forward(struct version *v)
{
	if (v->forwarder)
		fiber_interrupt(v->forwarder);
}

void versions_adopted(struct chain *c, const struct adoption *how)
{
	bool member = c->self < c->n_members && c->members[c->self].state != MEMBER_OUT;
	struct version *v;

	/* A member that was SYNC and is now SYNCING was away, even if it has not noticed. */
	if (!member || (how->was_sync && !chain_is_sync(c)))
		leave(c);
	while (!chain_is_head(c) && (v = an_answer(c)) != NULL)
		leave_one(v);
	list_for_each (l, &c->pending) {
		v = list_entry(l, struct version, chain_link);

		v->head_contact_us = env_now_us(c->all->env);
		v->behind = 0;
		v->unconfirmed = how->head_may_lack || (v->unconfirmed && !chain_is_head(c));
		if (how->behind_may_lack || v->unconfirmed)
			v->durable_behind = false;
		if (v->unconfirmed)
			v->head_contact_us = 0; /* query the head soon */
		interrupt_forward(v);
		if (!v->durable_behind)
			v->chain->all->forward(v);
		if (!v->chunkless)
			waitq_wake_all(&v->tx.ent->moved);
	}
	if (member && chain_is_head(c))
		take_over(c, how->was_head);
	waitq_wake_all(&c->settled);
}

/* ---- start and end ---- */

int versions_start(struct chains *cs)
{
	int rc;

	latch_add(&cs->fibers, 1);
	rc = fiber_spawn("chain-resolve", resolve_main, cs);
	if (rc < 0)
		latch_done(&cs->fibers);
	return rc;
}

void versions_stop(struct chains *cs)
{
	for (struct chain *c = chain_next(cs, NULL); c; c = chain_next(cs, c)) {
		list_for_each (l, &c->pending) {
			struct version *v = list_entry(l, struct version, chain_link);

			interrupt_forward(v);
			waitq_wake_all(&v->q);
			if (!v->chunkless)
				waitq_wake_all(&v->tx.ent->moved);
		}
		waitq_wake_all(&c->settled);
	}
}

void versions_end(struct chains *cs)
{
	int rc = group_commit_barrier(&cs->store->gc);

	(void)rc; /* if it fails, nothing is durable, and there are no requests left */
	for (struct chain *c = chain_next(cs, NULL); c; c = chain_next(cs, c))
		leave(c);
}

void versions_free(struct chains *cs)
{
	struct list *l;

	while ((l = list_pop(&cs->free_versions)) != NULL)
		free(list_entry(l, struct version, link));
}
