/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oss_trim, oss_punch, oss_remove: truncate, punch or remove files. Each is repeatable by content.
 * Its reply is stored after all its steps are durable. A client that reads the zeros of a hole may
 * write there before the whole hole is punched. So a repeated punch, by the next head or after a
 * crash, skips the chunks that were punched before (replay.h).
 */
#include <stdlib.h>
#include <string.h>

#include "ossd/chain/forward.h"
#include "ossd/chunk/chunk_files.h"
#include "ossd/chunk/chunk_tx.h"
#include "ossd/chunk/store_record.h"
#include "ossd/ops/handlers.h"
#include "ossd/ops/op.h"

/* ---- as versions of a replicated chain ---- */

struct versions {
	struct mutation *m;
	struct version *v[CHUNK_EDITS_MAX];
	uint32_t n;
	struct version *next;  /* has begun, or has ended without a change */
	struct chunk_key last; /* the chunk of `next` */
};

/* Begins the removal of a chunk that cannot be read. If a member has it, it is repaired from there
 * first, so that the removal reaches that member. If no member has it, it is removed as it is. */
static int begin_over(struct versions *vs, const struct chunk_key *id)
{
	int rc = op_repair_removed(vs->m->t, vs->m->chain, id);

	if (rc < 0)
		return rc;
	TRY(op_still_head(vs->m));
	return rc ? version_begin_over(vs->next, id) : version_begin(vs->next, id);
}

static int begin_version(void *arg, const struct chunk_key *id, bool whole, struct chunk_tx *tx)
{
	struct versions *vs = arg;
	int rc;

	if (!vs->next)
		vs->next = version_create(vs->m->chain);
	if (!vs->next)
		return -LE_NOMEM;
	vs->last = *id;
	rc = version_begin(vs->next, id);
	if (rc == -LE_CORRUPT && whole)
		rc = begin_over(vs, id);
	TRY(rc);
	*tx = vs->next->tx;
	return 0;
}

static int join_version(void *arg, struct chunk_tx *tx)
{
	struct versions *vs = arg;
	int rc = op_still_head(vs->m);

	ASSERT(vs->n < CHUNK_EDITS_MAX);
	if (rc < 0) {
		chunk_tx_abort(tx);
		return rc;
	}
	vs->next->tx = *tx;
	version_join(vs->next);
	vs->v[vs->n++] = vs->next;
	vs->next = NULL;
	return 0;
}

static int wait_versions(void *arg)
{
	struct versions *vs = arg;
	int rc = 0;

	for (uint32_t i = 0; i < vs->n; i++) {
		int one = version_wait(vs->v[i], vs->m->r);

		rc = rc < 0 ? rc : one;
		version_unref(vs->v[i]);
	}
	vs->n = 0;
	return rc;
}

/* In a chain of one: other members may have joined meanwhile, or this target have left. */
static int may_change(void *arg)
{
	return op_still_head(((struct versions *)arg)->m);
}

/* Selects how this request changes chunks. */
static const struct chunk_edits *edits_begin(struct versions *vs, struct chunk_edits *e,
					     struct mutation *m)
{
	*vs = (struct versions){.m = m};
	if (chain_replicated(m->chain))
		*e = (struct chunk_edits){vs, NULL, begin_version, join_version, wait_versions};
	else
		*e = (struct chunk_edits){vs, may_change, NULL, NULL, NULL};
	return e;
}

/* Returns -LE_AGAIN if damage was repaired: the caller repeats the request. */
static int edits_end(struct versions *vs, int rc)
{
	if (vs->next)
		version_unref(vs->next);
	if (rc != -LE_CORRUPT || !vs->last.ino.v)
		return rc;
	TRY(op_repair(vs->m->t, vs->m->chain, &vs->last));
	return -LE_AGAIN;
}

/* A repeated execution skips what is already done. */
static int mutate(struct rpc_req *r, int (*fn)(struct mutation *m, const void *in, void *out),
		  const void *in, void *out)
{
	int rc = op_mutate(r, fn, in, out);

	for (uint32_t i = 0; i < REPAIRS_MAX && rc == -LE_AGAIN; i++)
		rc = op_mutate(r, fn, in, out);
	return rc == -LE_AGAIN ? -LE_CORRUPT : rc;
}

/* ---- once for each chunk ---- */

/* The steps that have joined are of different lanes. */
struct steps {
	struct versions vs; /* vs.v: in a replicated chain; else tx */
	struct chunk_tx tx[REPLAY_LANES];
	struct replay_step step[REPLAY_LANES];
	uint32_t n;
	struct replay_step next; /* has begun, or has ended without a change */
	uint64_t idx;
	bool versions, busy[REPLAY_LANES];
};

static void step_end(struct replay_step *s, bool durable)
{
	if (s->ent)
		replay_end(s->ent, s->run, durable);
	s->ent = NULL;
}

static int wait_steps(void *arg)
{
	struct steps *st = arg;
	int rc = 0;

	step_end(&st->next, false);
	for (uint32_t i = 0; i < st->n; i++) {
		struct version *v = st->vs.v[i];
		int one = st->versions ? version_wait(v, st->vs.m->r) : chunk_tx_wait(&st->tx[i]);

		if (st->versions)
			version_unref(v);
		step_end(&st->step[i], one == 0);
		rc = rc < 0 ? rc : one;
	}
	st->n = 0;
	memset(st->busy, 0, sizeof(st->busy));
	return rc;
}

/* Returns 1 if the step was made before. */
static int begin_step(void *arg, const struct chunk_key *id, bool whole, struct chunk_tx *tx)
{
	struct steps *st = arg;
	struct mutation *m = st->vs.m;
	const struct frame_hdr *h = &m->r->hdr;
	const struct replay_key key = {op_chain(m->r), h->slot, h->session};
	struct chunk_store *s = m->t->store;

	step_end(&st->next, false);
	if (st->busy[replay_lane(id->idx)])
		TRY(wait_steps(st));
	st->idx = id->idx;
	/* Lost chunks are changed out of order, and no client can have read them. */
	if (h->seq && chunk_store_lost(s, id) == INVENTORY_NONE) {
		int rc = replay_step_begin(&s->replay, &key, h->seq, h->op, id->idx, &st->next);

		if (rc)
			return rc;
	}
	if (st->versions)
		return begin_version(&st->vs, id, whole, tx);
	return whole ? chunk_tx_begin_over(s, id, tx) : chunk_tx_begin(s, id, tx);
}

/* Adds the row of the lane to the batch of the change, and sends it to all members with the
 * version. */
static void join_lane(struct steps *st, struct version *v)
{
	struct replay_ent *e = st->next.ent;
	uint8_t idx[REPLAY_STEP_SIZE];

	if (!e)
		return;
	replay_step_encode(st->idx, idx);
	replay_join(e, group_commit_batch(&st->vs.m->t->store->gc), idx, sizeof(idx));
	if (!v)
		return;
	v->session = e->key.session;
	v->slot = e->key.slot;
	v->seq = e->seqs.running;
	v->op = e->next_op;
	v->answer_len = sizeof(idx);
	memcpy(v->answer, idx, sizeof(idx));
}

static int join_step(void *arg, struct chunk_tx *tx)
{
	struct steps *st = arg;
	uint32_t i = st->n;
	int rc = op_still_head(st->vs.m);

	ASSERT(i < REPLAY_LANES && !st->busy[replay_lane(st->idx)]);
	/* The chain was replicated until now: versions it holds pending must be committed first. */
	if (rc == 0 && !st->versions && !list_empty(&tx->ent->held))
		rc = -LE_STALE_EPOCH;
	if (rc < 0) {
		chunk_tx_abort(tx);
		return rc;
	}
	join_lane(st, st->versions ? st->vs.next : NULL);
	if (st->versions) {
		st->vs.next->tx = *tx;
		version_join(st->vs.next);
		st->vs.v[i] = st->vs.next;
		st->vs.next = NULL;
	} else {
		st->tx[i] = *tx;
		chunk_tx_join(&st->tx[i]);
	}
	st->step[i] = st->next;
	st->next.ent = NULL;
	st->busy[replay_lane(st->idx)] = true;
	st->n++;
	return 0;
}

/* ---- the operations ---- */

static bool is_shown(const struct rpc_req *r, const struct chain *c, struct ino ino)
{
	const struct chunk_leased of = {c, ino, NULL, r->hdr.session};

	return chunk_leases_any(&op_target(r)->leases, &of);
}

static int trim(struct mutation *m, const void *in, void *out)
{
	const struct oss_trim_req *req = in;
	struct oss_trim_rep *rep = out;
	struct chunk_key file = {op_chain(m->r), req->ino, req->gen, 0};
	struct chunk_edits e;
	struct versions vs;
	uint64_t n = 0;
	int rc;

	touched_note_whole(&m->t->grace.touched, &file, TOUCHED_CUT, m->r->hdr.session);
	rc = chunk_trim_file(m->t->store, edits_begin(&vs, &e, m), &file, req->chunk_size,
			     req->size, &n);
	rc = edits_end(&vs, rc);
	rep->n_chunks += n; /* including earlier attempts */
	return rc < 0 ? rc : op_answer_durable(m, rep);
}

int op_trim(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_trim_req *req = in;
	struct oss_trim_rep *rep = out;
	struct chain *c;

	TRY(op_admit(r, CHAIN_HEAD, &c));
	TRY(op_check_cap(r, &req->cap, req->ino, req->gen, CAP_WRITE));
	TRY(mutate(r, trim, in, out));
	rep->shown = is_shown(r, c, req->ino);
	rep->at_ns = mds_clock_stamp_ns(&op_target(r)->store->clock, op_target(r)->env);
	return 0;
}

static int punch(struct mutation *m, const void *in, void *out)
{
	const struct oss_punch_req *req = in;
	struct oss_punch_rep *rep = out;
	struct chunk_punch p = {
		{op_chain(m->r), req->ino, req->gen, 0}, req->chunk_size, req->off, req->len};
	struct steps *st = calloc(1, sizeof(*st));
	struct chunk_edits e = {st, NULL, begin_step, join_step, wait_steps};
	uint64_t n = 0;
	int rc;

	if (!st)
		return -LE_NOMEM;
	touched_note_whole(&m->t->grace.touched, &p.file, TOUCHED_CUT, m->r->hdr.session);
	st->vs.m = m;
	st->versions = chain_replicated(m->chain);
	rc = chunk_punch_file(m->t->store, &e, &p, &n);
	rc = edits_end(&st->vs, rc);
	free(st);
	rep->n_chunks += n;
	return rc < 0 ? rc : op_answer_durable(m, rep);
}

int op_punch(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_punch_req *req = in;
	struct oss_punch_rep *rep = out;
	struct chain *c;

	TRY(op_admit(r, CHAIN_HEAD, &c));
	TRY(op_check_cap(r, &req->cap, req->ino, req->gen, CAP_WRITE));
	TRY(mutate(r, punch, in, out));
	rep->shown = is_shown(r, c, req->ino);
	rep->at_ns = mds_clock_stamp_ns(&op_target(r)->store->clock, op_target(r)->env);
	return 0;
}

#define FILE_SIZE    12u /* u64 ino, u32 gen */
#define RUN_MAX      64u /* files that are scanned together */
#define REMOVALS_MAX 8u  /* concurrent runs: their changes share group commits */

/* Files that are adjacent in the index. */
struct removal {
	struct mutation *m;
	const struct chunk_key *files;
	uint32_t n;
	uint64_t n_chunks;
	int status;
};

static int remove_some(struct removal *f, uint32_t from, uint32_t n)
{
	struct chunk_edits e;
	struct versions vs;
	uint64_t n_chunks = 0;
	int rc = chunk_remove_files(f->m->t->store, edits_begin(&vs, &e, f->m), f->files + from, n,
				    &n_chunks);

	f->n_chunks += n_chunks;
	return edits_end(&vs, rc);
}

/* Removes a run. If that fails, removes each file alone, so that one file does not block the
 * others. */
static void remove_run(void *arg)
{
	struct removal *f = arg;
	int rc;

	for (uint32_t i = 0; i < f->n; i++)
		touched_note_whole(&f->m->t->grace.touched, &f->files[i], TOUCHED_CUT,
				   f->m->r->hdr.session);
	rc = remove_some(f, 0, f->n);

	if (rc < 0 && f->n > 1) {
		rc = 0;
		for (uint32_t i = 0; i < f->n; i++) {
			int one = remove_some(f, i, 1);

			rc = rc < 0 ? rc : one;
		}
	}
	f->status = rc;
}

static int compare_files(const void *a, const void *b)
{
	return chunk_key_compare(a, b);
}

/* Decodes the files, sorted and without duplicates. Returns their number. */
static uint32_t files_decode(struct chunk_key *files, uint32_t chain, struct bytes list)
{
	uint32_t n = list.len / FILE_SIZE, kept = 0;
	struct wire_r w;

	wire_r_init(&w, list.data, list.len);
	for (uint32_t i = 0; i < n; i++) {
		files[i] = (struct chunk_key){.chain = chain};
		wire_get_u64(&w, &files[i].ino.v);
		wire_get_u32(&w, &files[i].gen);
	}
	qsort(files, n, sizeof(*files), compare_files);
	for (uint32_t i = 0; i < n; i++)
		if (kept == 0 || !chunk_key_equal(&files[kept - 1], &files[i]))
			files[kept++] = files[i];
	return kept;
}

static int remove_files(struct mutation *m, const void *in, void *out)
{
	const struct oss_remove_req *req = in;
	struct oss_remove_rep *rep = out;
	uint32_t n = req->files.len / FILE_SIZE, n_runs;
	struct chunk_key *files = malloc((n + 1) * sizeof(*files));
	struct removal *runs = calloc(n / RUN_MAX + 1, sizeof(*runs));
	int rc = 0;

	if (!files || !runs) {
		free(files);
		free(runs);
		return -LE_NOMEM;
	}
	n = files_decode(files, op_chain(m->r), req->files);
	n_runs = (n + RUN_MAX - 1) / RUN_MAX;
	for (uint32_t i = 0; i < n_runs; i++) {
		uint32_t from = i * RUN_MAX, left = n - from;

		runs[i] = (struct removal){
			.m = m, .files = files + from, .n = left < RUN_MAX ? left : RUN_MAX};
	}
	fiber_parallel("remove", remove_run, runs, sizeof(*runs), n_runs, REMOVALS_MAX);
	for (uint32_t i = 0; i < n_runs; i++) {
		rc = rc < 0 ? rc : runs[i].status;
		rep->n_chunks += runs[i].n_chunks;
	}
	free(runs);
	free(files);
	return rc < 0 ? rc : op_answer_durable(m, rep);
}

int op_remove(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_remove_req *req = in;

	if (r->peer->role != ROLE_MDS)
		return -LE_PERM;
	if (req->files.len % FILE_SIZE != 0)
		return -LE_BAD_MESSAGE;
	return mutate(r, remove_files, in, out);
}
