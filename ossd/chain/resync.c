/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chain/resync.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/state_machine.h"
#include "ossd/chain/commit.h"
#include "ossd/chain/repair.h"
#include "ossd/chain/restore_from_syncing.h"
#include "ossd/chunk/chunk_files.h"

#define PAGE       1000u /* chunks in one message */
#define ITEMS_MAX  4096u /* chunks of the source in a window */
#define DIRTY_MAX  4096u
#define TODO_MAX   (ITEMS_MAX + PAGE + DIRTY_MAX) /* for a window of a full comparison */
#define WORKERS    4u
#define ROWS       500u
#define CALL_MS    5000u
#define HOLD_MS    10000u
#define PAUSE_MS   100u
#define REPORT_MS  20u
#define PAUSE_MAX  5000u
#define OTHERS_MAX 300u /* pauses to wait for other members, which may never complete */
#define RESTORE_MAX 8u   /* attempts; other writers may interfere */

#define TO(phase) (1u << RESYNC_##phase)
STATE_MACHINE(resync_moves, "resync", N_RESYNC_PHASES,
	   .states = {"idle", "logged", "full", "rows", "reported", "failed"},
	   .allowed = {
		   [RESYNC_IDLE] = TO(LOGGED) | TO(FULL) | TO(FAILED),
		   [RESYNC_LOGGED] = TO(FULL) | TO(ROWS) | TO(FAILED),
		   [RESYNC_FULL] = TO(ROWS) | TO(FAILED),
		   [RESYNC_ROWS] = TO(REPORTED) | TO(FAILED),
		   [RESYNC_FAILED] = TO(IDLE),
	   })

struct todo {
	struct chunk_key k;
	bool done;
};

struct item {
	struct chunk_key k;
	uint64_t version, sum;
};

struct job {
	struct list link;
	struct resync *r;
	struct chain *c;
	uint32_t target, epoch;
	int phase; /* The bools are independent of it: other fibers set them at any time. */
	bool cancel;   /* another epoch, or the end */
	bool spoilt;   /* a version has not reached the member */
	bool reported; /* the member may be SYNC on record: nothing is committed without it */
	bool overflow; /* more changes than can be recorded */
	uint64_t incarnation; /* of the member */
	struct fiber *fiber, *workers[WORKERS];
	/* Covered: everything before lo, and [lo, hi] except the todo list. */
	bool watching, listing;
	struct chunk_key lo, hi;
	struct todo *todo; /* sorted */
	uint32_t n_todo, todo_space, next_todo, n_done;
	struct chunk_key *dirty;
	uint32_t n_dirty, dirty_max;
	struct item *items; /* ITEMS_MAX of the source, then PAGE of the member */
	uint32_t n_items, n_theirs;
	int rc; /* first error of the workers */
	uint64_t compared, copied, removed, bytes;
	bool logged;
	uint32_t log_epoch; /* chunks not in that log have not changed since the member was SYNC */
};

struct resync {
	struct resync_options o;
	struct chunk_store *s;
	struct list jobs;
	uint32_t n_running;
	struct waitq turn;
	bool stopping;
	struct latch fibers;
};

static const struct chunk_key KEY_MIN;
static const struct chunk_key KEY_MAX = {UINT32_MAX, {UINT64_MAX}, UINT32_MAX, UINT64_MAX};

static void job_move(struct job *j, int to)
{
	j->phase = state_machine_move(&resync_moves, j->phase, to);
}

const char *resync_phase_name(enum resync_phase phase)
{
	return resync_moves.states[phase];
}

static bool ended(const struct job *j)
{
	return j->cancel || j->spoilt || j->r->stopping;
}

/* ---- what is covered ---- */

static struct todo *todo_find(const struct job *j, const struct chunk_key *k)
{
	uint32_t lo = 0, hi = j->n_todo;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		int c = chunk_key_compare(&j->todo[mid].k, k);

		if (c == 0)
			return &j->todo[mid];
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

static bool covered(const struct job *j, const struct chunk_key *k)
{
	const struct todo *t;

	if (j->phase == RESYNC_ROWS || j->phase == RESYNC_REPORTED)
		return true;
	if ((j->phase != RESYNC_LOGGED && j->phase != RESYNC_FULL) || !j->watching)
		return false;
	if (chunk_key_compare(k, &j->lo) < 0)
		return true;
	if (j->listing || chunk_key_compare(k, &j->hi) > 0)
		return false;
	t = todo_find(j, k);
	return !t || t->done;
}

static struct job *job_find(const struct resync *r, const struct chain *c, uint32_t target)
{
	list_for_each (l, &r->jobs) {
		struct job *j = list_entry(l, struct job, link);

		if (j->c == c && j->target == target && !j->cancel)
			return j;
	}
	return NULL;
}

bool resync_fills(struct resync *r, struct chain *c, uint32_t target, const struct chunk_key *k)
{
	const struct job *j = job_find(r, c, target);

	if (!j || j->spoilt)
		return false;
	return k ? covered(j, k) : j->phase != RESYNC_IDLE && j->phase != RESYNC_FAILED;
}

/* Called when a change of the chunk has joined. */
static void joined(void *arg, const struct chunk_key *k)
{
	struct resync *r = arg;

	list_for_each (l, &r->jobs) {
		struct job *j = list_entry(l, struct job, link);

		if (j->c->id != k->chain || j->cancel || !j->watching || !j->listing ||
		    chunk_key_compare(k, &j->lo) < 0 || chunk_key_compare(k, &j->hi) > 0)
			continue;
		if (j->n_dirty < j->dirty_max)
			j->dirty[j->n_dirty++] = *k;
		else
			j->overflow = true;
	}
}

bool resync_failed(struct resync *r, struct chain *c, uint32_t target)
{
	struct job *j = job_find(r, c, target);

	if (j && j->reported)
		return false;
	if (j)
		j->spoilt = true;
	return true;
}

static int compare_todo(const void *a, const void *b)
{
	return chunk_key_compare(&((const struct todo *)a)->k, &((const struct todo *)b)->k);
}

static int todo_add(struct job *j, const struct chunk_key *k)
{
	if (j->n_todo == j->todo_space) {
		uint32_t space = j->todo_space * 2;
		struct todo *t;

		if (space > 2 * j->r->o.p->resync_log_max + 2 * TODO_MAX)
			return -LE_TOO_BIG;
		t = realloc(j->todo, space * sizeof(*t));
		if (!t)
			return -LE_NOMEM;
		j->todo = t;
		j->todo_space = space;
	}
	j->todo[j->n_todo++] = (struct todo){*k, false};
	return 0;
}

static int add_pending(void *arg, const struct chunk_key *k)
{
	struct job *j = arg;

	if (chunk_key_compare(k, &j->lo) < 0 || chunk_key_compare(k, &j->hi) > 0)
		return 0;
	return todo_add(j, k);
}

/* Begins with the pending chunks: a list may have their earlier versions. */
static int window_open(struct job *j, const struct chunk_key *lo, const struct chunk_key *hi)
{
	j->lo = *lo;
	j->hi = *hi;
	j->n_dirty = j->n_todo = j->next_todo = j->n_done = 0;
	j->overflow = false;
	j->watching = j->listing = true;
	return chain_log_each_pending(j->r->o.log, j->c->id, add_pending, j);
}

/* Adds the recorded changes to the list: the rest of the window is covered. Does not yield. */
static int window_close(struct job *j)
{
	uint32_t n = 0;

	if (j->overflow)
		return -LE_TOO_BIG;
	for (uint32_t i = 0; i < j->n_dirty; i++)
		TRY(todo_add(j, &j->dirty[i]));
	qsort(j->todo, j->n_todo, sizeof(*j->todo), compare_todo);
	for (uint32_t i = 0; i < j->n_todo; i++)
		if (chunk_key_compare(&j->todo[i].k, &j->hi) <= 0 &&
		    (n == 0 || !chunk_key_equal(&j->todo[i].k, &j->todo[n - 1].k)))
			j->todo[n++] = j->todo[i];
	j->n_todo = n;
	j->listing = false;
	return 0;
}

/* ---- one chunk ---- */

static int call_member(struct job *j, struct rpc_call *call, uint32_t ms)
{
	if (ended(j) || j->c->epoch != j->epoch)
		return -LE_CANCELED;
	call->flags = RPC_CALL_NO_WAIT;
	call->deadline_us = loop_deadline_ms(ms);
	return chain_call(j->c, j->target, call);
}

static int check_incarnation(const struct job *j, uint64_t incarnation)
{
	return incarnation == j->incarnation ? 0 : -LE_DISCONNECTED;
}

/* Makes the member's chunk equal. Call under the chunk's lock, with no change pending. */
static int make_equal(struct job *j, const struct chunk_tx *tx, uint64_t *ret_bytes)
{
	/* A chunk that may be lost is sent as none: uncertain cells are sent with the last rows. */
	struct oss_resync_chunk_req req = {
		.chunk = chunk_key_id(&tx->ent->id),
		.version = tx->old                    ? tx->old->version
			   : tx->over && tx->over_row ? VERSION_LOST
						      : 0,
		.sum = tx->old ? chunk_record_sum(tx->old) : 0,
		.source = j->r->o.chains->target,
	};
	struct oss_resync_chunk_rep rep = {0};
	struct rpc_call call = {.op = OP_oss_resync_chunk, .req = &req, .rep = &rep};
	struct ossd_metrics *m = j->r->o.metrics;
	int rc = call_member(j, &call, RESYNC_COPY_MS);

	rpc_call_fini(&call);
	TRY(rc < 0 ? rc : check_incarnation(j, rep.incarnation));
	if (rep.done == RESYNC_COPIED) {
		j->copied++;
		j->bytes += rep.bytes;
		metric_add(&m->resync_copied, 1);
		metric_add(&m->resync_bytes, rep.bytes);
	} else if (rep.done == RESYNC_REMOVED) {
		j->removed++;
		metric_add(&m->resync_removed, 1);
	}
	*ret_bytes = rep.bytes;
	return 0;
}

/* ---- what the source has lost ---- */

/* The other members being filled may have been found equal without the chunk. */
static int spoil_others(struct job *j)
{
	list_for_each (l, &j->r->jobs) {
		struct job *other = list_entry(l, struct job, link);

		if (other == j || other->c != j->c || other->cancel)
			continue;
		if (other->reported)
			return -LE_AGAIN;
		other->spoilt = true;
	}
	return 0;
}

/* Restores a chunk that cannot be read here. Returns 1 if no member has it. */
static int restore(struct job *j, const struct chunk_key *k)
{
	struct restore g = {j->c, j->target, j->epoch,
			   chain_log_valid(j->r->o.log, j->c->id, j->log_epoch)};
	struct maintenance *maintenance = j->r->o.maintenance;
	struct oss_resync_chunk_req req;
	struct repair r;
	int rc = 1;

	if (j->c->n_sync == 1) {
		rc = restore_find(maintenance, &g, k, &req);
		if (rc == 0)
			rc = spoil_others(j);
		if (rc == 0)
			rc = restore_take(maintenance, &g, &req);
	} else if (repair_chunk(maintenance, k, &r) != -LE_CORRUPT) {
		rc = 0;
	} else if (!r.nobody) {
		rc = -LE_AGAIN;
	}
	return rc;
}

/* Holds a chunk. One that cannot be read here, and that no other member has, is lost. */
static int hold_own(struct job *j, const struct chunk_key *k, struct chunk_tx *tx)
{
	struct chunk_store *s = j->r->s;

	for (uint32_t i = 0; i < RESTORE_MAX; i++) {
		int rc = chunk_hold(s, k, loop_deadline_ms(HOLD_MS), tx);

		if (rc != -LE_CORRUPT)
			return rc;
		rc = restore(j, k);
		if (rc == 1)
			return chunk_hold_over(s, k, loop_deadline_ms(HOLD_MS), tx);
		TRY(rc);
	}
	return -LE_CORRUPT;
}

static int do_one(struct job *j, struct todo *t)
{
	struct resync *r = j->r;
	struct maintenance_turn w;
	struct chunk_tx tx;
	uint64_t bytes = 0;
	int rc;

	maintenance_turn_begin(r->o.turns, &w);
	rc = hold_own(j, &t->k, &tx);
	if (rc == 0) {
		rc = make_equal(j, &tx, &bytes);
		if (rc == 0)
			t->done = true;
		chunk_release(&tx);
	}
	maintenance_turn_end(r->o.turns, &w, bytes);
	j->n_done++;
	j->compared++;
	metric_add(&r->o.metrics->resync_compared, 1);
	return rc;
}

struct worker {
	struct job *j;
	uint32_t n;
};

static void worker(void *arg)
{
	struct worker *w = arg;
	struct job *j = w->j;

	j->workers[w->n] = fiber_self();
	while (j->rc == 0 && !ended(j) && j->next_todo < j->n_todo) {
		int rc = do_one(j, &j->todo[j->next_todo++]);

		if (rc < 0 && j->rc == 0)
			j->rc = rc;
	}
	j->workers[w->n] = NULL;
}

static int do_todo(struct job *j)
{
	struct worker args[WORKERS];

	for (uint32_t i = 0; i < WORKERS; i++)
		args[i] = (struct worker){j, i};
	j->rc = 0;
	fiber_parallel("resync-chunk", worker, args, sizeof(args[0]), WORKERS, WORKERS);
	return j->rc < 0 ? j->rc : ended(j) ? -LE_CANCELED : 0;
}

/* ---- the logged chunks ---- */

static struct chunk_key key_after(struct chunk_key k)
{
	if (++k.idx == 0 && ++k.gen == 0)
		k.ino.v++;
	return k;
}

static int add_rows(struct job *j, enum row_kind kind)
{
	struct chunk_key from = {.chain = j->c->id};
	struct chunk_keys keys = {.k = calloc(PAGE, sizeof(struct chunk_key)), .more = true};
	int rc = keys.k ? 0 : -LE_NOMEM;

	while (rc == 0 && keys.more) {
		rc = chain_log_list(j->r->o.log, kind, &from, PAGE, &keys);
		for (uint32_t i = 0; rc == 0 && i < keys.n; i++)
			rc = todo_add(j, &keys.k[i]);
		if (keys.n)
			from = key_after(keys.k[keys.n - 1]);
	}
	free(keys.k);
	return rc;
}

/* Requests one page of the chunks that the member suspects. */
static int ask(struct job *j, const struct chunk_id *from, struct oss_resync_ask_rep *rep,
	       struct rpc_call *call)
{
	struct oss_resync_ask_req req = {.from = *from, .max = PAGE};

	*call = (struct rpc_call){.op = OP_oss_resync_ask, .req = &req, .rep = rep};
	return call_member(j, call, CALL_MS);
}

static int add_suspects(struct job *j, const struct oss_resync_ask_rep *first)
{
	struct oss_resync_ask_rep rep = *first;
	struct rpc_call call = {0};
	struct chunk_id id = {0};
	int rc = 0;

	while (rc == 0) {
		struct wire_r w;

		wire_r_init(&w, rep.chunks.data, rep.chunks.len);
		while (rc == 0 && !wire_r_end(&w)) {
			struct chunk_key k;

			wire_get_chunk_id(&w, &id);
			k = chunk_key_of(j->c->id, &id);
			rc = w.status < 0 ? w.status : todo_add(j, &k);
		}
		if (rc < 0 || !rep.more || rep.chunks.len == 0)
			break;
		id.idx++; /* no index is the last one */
		rpc_call_fini(&call);
		rc = ask(j, &id, &rep, &call);
	}
	rpc_call_fini(&call);
	return rc;
}

static int run_logged(struct job *j, const struct oss_resync_ask_rep *rep)
{
	uint32_t log_max = j->r->o.p->resync_log_max;

	job_move(j, RESYNC_LOGGED);
	/* Changes meanwhile are limited like the log that is being read. */
	j->dirty_max = log_max < DIRTY_MAX ? log_max : DIRTY_MAX;
	TRY(window_open(j, &KEY_MIN, &KEY_MAX));
	TRY(add_rows(j, ROW_CHANGED));
	TRY(add_rows(j, ROW_PENDING));
	TRY(add_suspects(j, rep));
	/* The log may have been discarded, with its rows, while it was read. */
	TRY(chain_log_valid(j->r->o.log, j->c->id, j->log_epoch) ? window_close(j) : -LE_TOO_BIG);
	log_info("chain %u: target %u returns: %u chunks to compare", j->c->id, j->target,
		 j->n_todo);
	return do_todo(j);
}

/* ---- all chunks ---- */

struct list_arg {
	struct job *j;
	struct item *to;
	uint32_t n, max;
	uint32_t chain;
	const struct chunk_key *last; /* stop after it */
	bool behind;
};

static int list_one(void *arg, const struct chunk_summary *c)
{
	struct list_arg *a = arg;
	struct chunk_key k = chunk_key_of(a->chain, &c->chunk);

	if (a->last && chunk_key_compare(&k, a->last) > 0)
		a->behind = true;
	else if (a->n < a->max)
		a->to[a->n++] = (struct item){k, c->version, c->sum};
	return 0;
}

/* Lists the source's chunks in [lo, hi]. Lowers hi if there are more than fit. */
static int list_own(struct job *j)
{
	struct list_arg a = {
		.j = j, .to = j->items, .max = ITEMS_MAX, .chain = j->c->id, .last = &j->hi};
	struct chunk_key from = j->lo;
	bool more = true;

	while (more && !a.behind) {
		uint32_t before = a.n;

		TRY(chunk_list(j->r->s, &from, PAGE, list_one, &a, &more));
		if (more && !a.behind && a.n == before)
			return -LE_AGAIN; /* a page with only chunks that are not yet committed */
		if (a.n == ITEMS_MAX) {
			j->hi = a.to[a.n - 1].k;
			break;
		}
		if (a.n)
			from = key_after(a.to[a.n - 1].k);
	}
	j->n_items = a.n;
	return 0;
}

static int list_theirs(struct job *j, const struct chunk_key *from, bool *ret_more)
{
	struct oss_list_req req = {.from = chunk_key_id(from), .max = PAGE};
	struct oss_list_rep rep = {0};
	struct rpc_call call = {.op = OP_oss_list, .req = &req, .rep = &rep};
	struct list_arg a = {.j = j, .to = j->items + ITEMS_MAX, .max = PAGE, .chain = j->c->id};
	int rc = call_member(j, &call, CALL_MS);
	struct wire_r w;

	wire_r_init(&w, rep.chunks.data, rep.chunks.len);
	while (rc == 0 && !wire_r_end(&w)) {
		struct chunk_summary c;

		wire_get_chunk_summary(&w, &c);
		rc = w.status < 0 ? w.status : list_one(&a, &c);
	}
	j->n_theirs = a.n;
	*ret_more = rep.more && a.n;
	rpc_call_fini(&call);
	return rc;
}

/* Chooses the end of a window from lo: neither side has more than a page in it. */
static int choose_end(struct job *j, const struct chunk_key *lo, struct chunk_key *ret_hi)
{
	struct list_arg a = {.j = j, .to = j->items, .max = PAGE, .chain = j->c->id};
	const struct item *theirs = j->items + ITEMS_MAX;
	struct chunk_key hi = KEY_MAX;
	bool more;

	TRY(list_theirs(j, lo, &more));
	if (more)
		hi = theirs[j->n_theirs - 1].k;
	TRY(chunk_list(j->r->s, lo, PAGE, list_one, &a, &more));
	if (more && a.n && chunk_key_compare(&a.to[a.n - 1].k, &hi) < 0)
		hi = a.to[a.n - 1].k;
	*ret_hi = hi;
	return 0;
}

/* Both lists are sorted. A chunk with a damaged record has version 0. */
static int compare_lists(struct job *j)
{
	const struct item *a = j->items, *a_end = a + j->n_items;
	const struct item *b = j->items + ITEMS_MAX, *b_end = b + j->n_theirs;

	while (a < a_end || (b < b_end && chunk_key_compare(&b->k, &j->hi) <= 0)) {
		int c = a == a_end ? 1 : b == b_end ? -1 : chunk_key_compare(&a->k, &b->k);
		const struct chunk_key *k = c > 0 ? &b->k : &a->k;
		bool equal = c == 0 && a->version && a->version == b->version && a->sum == b->sum;

		if (!equal)
			TRY(todo_add(j, k));
		j->compared += equal;
		metric_add(&j->r->o.metrics->resync_compared, equal);
		a += c <= 0;
		b += c >= 0;
	}
	return 0;
}

struct lost_arg {
	struct job *j;
	int rc;
};

static void add_lost_one(void *arg, const struct chunk_key *k)
{
	struct lost_arg *a = arg;
	const struct job *j = a->j;

	if (k->chain == j->c->id && chunk_key_compare(&j->lo, k) <= 0 &&
	    chunk_key_compare(k, &j->hi) <= 0 && a->rc == 0)
		a->rc = todo_add(a->j, k);
}

/* Chunks that are lost here may be lost at the member too, or never have been there. */
static int add_lost(struct job *j)
{
	struct lost_arg a = {j, 0};

	inventory_each_lost(&j->r->s->inventory, add_lost_one, &a);
	return a.rc;
}

static int run_window(struct job *j, const struct chunk_key *lo)
{
	struct chunk_key hi;

	TRY(choose_end(j, lo, &hi));
	TRY(window_open(j, lo, &hi));
	TRY(list_own(j));
	TRY(compare_lists(j));
	TRY(add_lost(j));
	return window_close(j);
}

static int run_full(struct job *j)
{
	struct chunk_key lo = {.chain = j->c->id};

	job_move(j, RESYNC_FULL);
	j->dirty_max = DIRTY_MAX;
	j->watching = false;
	log_info("chain %u: target %u returns: all chunks are compared", j->c->id, j->target);
	for (;;) {
		struct maintenance_turn w;
		int rc;

		maintenance_turn_begin(j->r->o.turns, &w);
		rc = run_window(j, &lo);
		maintenance_turn_end(j->r->o.turns, &w, 0);
		TRY(rc);
		TRY(do_todo(j));
		if (chunk_key_compare(&j->hi, &KEY_MAX) == 0)
			return 0;
		lo = key_after(j->hi);
		j->lo = lo; /* all of the window is covered while the next is chosen */
	}
}

/* ---- replies ---- */

struct rows_arg {
	struct chain *c;
	uint8_t *buf;
	struct wire_w w;
	uint8_t next[REPLAY_KEY_SIZE + 1];
	size_t next_len;
};

/* True if the row is the reply of a pending version. It is sent with that version: a member with
 * only the reply would report a write as done that may yet be aborted. */
static bool answers_pending(const struct chain *c, const struct resync_row *row)
{
	list_for_each (l, &c->pending) {
		const struct version *v = list_entry(l, struct version, chain_link);
		bool same = v->slot == row->slot && v->seq == row->seq;

		if (same && v->session == row->session && !v->chunkless)
			return true;
	}
	return false;
}

static int row_one(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct rows_arg *a = arg;
	struct replay_key k;
	struct replay_row row;
	struct resync_row out;

	TRY(replay_key_decode(key, key_len, &k));
	TRY(replay_parse(value, len, &row));
	out = (struct resync_row){k.session, k.slot, row.seq, row.op, row.reply};
	if (!answers_pending(a->c, &out))
		wire_put_resync_row(&a->w, &out);
	memcpy(a->next, key, key_len);
	a->next[key_len] = 0;
	a->next_len = key_len + 1;
	return a->w.status;
}

static int send_rows(struct job *j, struct bytes rows)
{
	struct oss_resync_rows_req req = {.rows = rows, .floor = j->c->floor};
	struct oss_resync_rows_rep rep = {0};
	struct rpc_call call = {.op = OP_oss_resync_rows, .req = &req, .rep = &rep};
	uint8_t uncertain[INVENTORY_UNCERTAIN_MAX];
	int rc;

	if (rows.len == 0) /* the last message */
		req.uncertain = bytes_of(uncertain, inventory_put_uncertain(&j->r->s->inventory,
									    j->c->id, uncertain));
	rc = call_member(j, &call, CALL_MS);
	rpc_call_fini(&call);
	return rc < 0 ? rc : check_incarnation(j, rep.incarnation);
}

/* Sends the rows. Everything is covered, so later replies are sent with their versions. */
static int run_rows(struct job *j)
{
	size_t size = ROWS * (REPLAY_REPLY_MAX + 40u);
	struct rows_arg a = {.c = j->c, .buf = malloc(size)};
	uint8_t end[REPLAY_KEY_SIZE + 1] = {0};
	struct replay_key last = {j->c->id, UINT32_MAX, UINT64_MAX};
	bool more = true;
	int rc;

	job_move(j, RESYNC_ROWS);
	if (!a.buf)
		return -LE_NOMEM;
	replay_key_encode(&(struct replay_key){.chain = j->c->id}, a.next);
	a.next_len = REPLAY_KEY_SIZE;
	replay_key_encode(&last, end);
	rc = group_commit_barrier(&j->r->s->gc);
	while (rc == 0 && more) {
		struct kv_range range = {a.next, a.next_len, end, sizeof(end), ROWS};

		wire_w_init(&a.w, a.buf, size);
		rc = kv_scan(j->r->s->kv, NULL, &range, row_one, &a, &more);
		if (rc == 0 && a.w.len)
			rc = send_rows(j, bytes_of(a.buf, (uint32_t)a.w.len));
	}
	if (rc == 0) /* marks the end */
		rc = send_rows(j, bytes_of(a.buf, 0));
	free(a.buf);
	return rc;
}

/* ---- jobs ---- */

static int run_compare(struct job *j)
{
	struct oss_resync_ask_rep rep = {0};
	struct rpc_call call;
	int rc = ask(j, &(struct chunk_id){0}, &rep, &call);

	if (rc < 0)
		goto out;
	j->incarnation = rep.incarnation;
	j->log_epoch = chain_log_epoch(j->r->o.log, j->c->id);
	if (j->log_epoch > rep.synced_epoch + 1)
		j->log_epoch = 0;
	/* No log contains rows that were lost here. */
	j->logged = j->log_epoch && !inventory_is_uncertain(&j->r->s->inventory, j->c->id);
	rc = j->logged ? run_logged(j, &rep) : -LE_TOO_BIG;
	if (rc == -LE_TOO_BIG && !ended(j)) {
		j->logged = false;
		rc = run_full(j);
	}
out:
	rpc_call_fini(&call);
	return rc;
}

/* True if another member is being filled and was not compared yet: it may have what is lost here,
 * and the member that becomes SYNC first may replace it. */
static bool others_may_have(const struct job *j)
{
	if (!inventory_is_uncertain(&j->r->s->inventory, j->c->id))
		return false;
	for (uint32_t i = j->c->n_sync; i < j->c->n_members; i++) {
		const struct chain_member *m = &j->c->members[i];
		const struct job *other = job_find(j->r, j->c, m->target);

		if (m->state == MEMBER_SYNCING && other != j &&
		    (!other || (other->phase != RESYNC_ROWS && other->phase != RESYNC_REPORTED)))
			return true;
	}
	return false;
}

/* Repeats until success or another epoch: an earlier report may still take effect. */
static int report(struct job *j)
{
	struct resync *r = j->r;
	uint64_t pause_ms = REPORT_MS;

	j->reported = true;
	for (;;) {
		int rc = r->o.synced(r->o.arg, j->c->id, j->epoch, j->target);

		if (rc == 0 || ended(j))
			return rc;
		log_debug("chain %u: reporting target %u: %s", j->c->id, j->target,
			  status_text(rc));
		(void)fiber_sleep_us(pause_ms * 1000);
		if (ended(j))
			return rc;
		pause_ms = pause_ms * 2 < PAUSE_MAX ? pause_ms * 2 : PAUSE_MAX;
	}
}

static int run_job(struct job *j)
{
	int rc;

	j->todo_space = TODO_MAX;
	j->todo = malloc(j->todo_space * sizeof(*j->todo));
	j->dirty = malloc(DIRTY_MAX * sizeof(*j->dirty));
	j->items = malloc((ITEMS_MAX + PAGE) * sizeof(*j->items));
	rc = j->todo && j->dirty && j->items ? run_compare(j) : -LE_NOMEM;
	if (rc == 0)
		rc = run_rows(j);
	for (uint32_t i = 0; rc == 0 && !ended(j) && i < OTHERS_MAX && others_may_have(j); i++)
		rc = fiber_sleep_us(PAUSE_MS * 1000);
	if (rc == 0 && !ended(j))
		rc = report(j);
	if (rc == 0 && ended(j))
		rc = -LE_CANCELED;
	if (rc == 0) {
		job_move(j, RESYNC_REPORTED);
		log_info("chain %u: target %u is up to date: %llu chunks compared, %llu copied "
			 "(%llu bytes), %llu removed",
			 j->c->id, j->target, (unsigned long long)j->compared,
			 (unsigned long long)j->copied, (unsigned long long)j->bytes,
			 (unsigned long long)j->removed);
	}
	j->watching = false;
	j->n_todo = j->n_done = 0;
	free(j->todo);
	free(j->dirty);
	free(j->items);
	j->todo = NULL;
	j->dirty = NULL;
	j->items = NULL;
	return rc;
}

static int take_turn(struct job *j)
{
	struct resync *r = j->r;

	while (r->n_running >= r->o.p->resync_parallel && !j->cancel && !r->stopping)
		TRY(waitq_wait(&r->turn, NO_DEADLINE));
	if (j->cancel || r->stopping)
		return -LE_CANCELED;
	r->n_running++;
	return 0;
}

static void attempt(struct job *j)
{
	struct resync *r = j->r;
	int rc;

	if (take_turn(j) < 0)
		return;
	metric_set(&r->o.metrics->resync_jobs, r->n_running);
	rc = run_job(j);
	r->n_running--;
	metric_set(&r->o.metrics->resync_jobs, r->n_running);
	waitq_wake_one(&r->turn);
	/* if the job has ended, rc may come from the metadata server */
	maintenance_noticed(r->o.maintenance, ended(j) ? 0 : rc);
	if (rc < 0) {
		job_move(j, RESYNC_FAILED);
		metric_add(&r->o.metrics->resync_failures, 1);
		if (!j->cancel && !r->stopping)
			log_warn("chain %u: filling target %u: %s", j->c->id, j->target,
				 status_text(rc));
	}
}

static void job_fiber(void *arg)
{
	struct job *j = arg;
	struct resync *r = j->r;
	uint64_t pause_ms = PAUSE_MS;

	j->fiber = fiber_self();
	while (!j->cancel && !r->stopping) {
		if (j->phase == RESYNC_FAILED)
			job_move(j, RESYNC_IDLE);
		if (j->phase == RESYNC_IDLE) {
			j->spoilt = false;
			attempt(j);
			pause_ms = pause_ms * 2 < PAUSE_MAX ? pause_ms * 2 : PAUSE_MAX;
		}
		if (!j->cancel && !r->stopping)
			(void)fiber_sleep_us(pause_ms * 1000);
	}
	j->fiber = NULL;
	list_remove(&j->link);
	free(j);
	latch_done(&r->fibers);
}

static void job_create(struct resync *r, struct chain *c, uint32_t target)
{
	struct job *j = calloc(1, sizeof(*j));

	if (!j)
		return; /* the next epoch or start retries */
	*j = (struct job){.r = r, .c = c, .target = target, .epoch = c->epoch};
	list_push(&r->jobs, &j->link);
	latch_add(&r->fibers, 1);
	if (fiber_spawn("resync", job_fiber, j) < 0) {
		list_remove(&j->link);
		free(j);
		latch_done(&r->fibers);
	}
}

static void job_cancel(struct job *j)
{
	j->cancel = true;
	if (j->fiber)
		fiber_interrupt(j->fiber);
	for (uint32_t i = 0; i < WORKERS; i++)
		if (j->workers[i] && j->workers[i] != j->fiber)
			fiber_interrupt(j->workers[i]);
}

void resync_adopted(struct resync *r, struct chain *c)
{
	list_for_each_safe (l, &r->jobs) {
		struct job *j = list_entry(l, struct job, link);

		if (j->c == c && j->epoch != c->epoch && !j->cancel)
			job_cancel(j);
	}
	if (r->stopping || c->phase == CHAIN_DROPPED || !chain_is_tail(c))
		return;
	for (uint32_t i = 0; i < c->n_members; i++)
		if (c->members[i].state == MEMBER_SYNCING && !job_find(r, c, c->members[i].target))
			job_create(r, c, c->members[i].target);
}

uint32_t resync_progress(const struct resync *r, struct resync_progress *ret, uint32_t max)
{
	uint32_t n = 0;

	list_for_each (l, &r->jobs) {
		const struct job *j = list_entry(l, struct job, link);

		if (j->cancel || n == max)
			continue;
		ret[n++] = (struct resync_progress){.chain = j->c->id,
						    .target = j->target,
						    .epoch = j->epoch,
						    .phase = (enum resync_phase)j->phase,
						    .logged = j->logged,
						    .compared = j->compared,
						    .copied = j->copied,
						    .removed = j->removed,
						    .bytes = j->bytes,
						    .left = j->n_todo - j->n_done};
	}
	return n;
}

int resync_start(const struct resync_options *o, struct resync **ret_resync)
{
	struct resync *r = calloc(1, sizeof(*r));

	if (!r)
		return -LE_NOMEM;
	r->o = *o;
	r->s = o->chains->store;
	list_init(&r->jobs);
	waitq_init(&r->turn);
	latch_init(&r->fibers, 0);
	o->log->watch = joined;
	o->log->watch_arg = r;
	*ret_resync = r;
	return 0;
}

void resync_stop(struct resync *r)
{
	r->stopping = true;
	list_for_each (l, &r->jobs)
		job_cancel(list_entry(l, struct job, link));
	waitq_wake_all(&r->turn);
	latch_wait(&r->fibers);
	r->o.log->watch = NULL;
	free(r);
}
