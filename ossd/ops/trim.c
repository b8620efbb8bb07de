/*
 * oss_trim, oss_punch, oss_remove: what makes files shorter or empty. Each is repeatable by
 * content; its answer is remembered after all its steps are durable. Who reads the zeros of a hole
 * may write there before all of it is punched: so a punch that is repeated, by the next head or
 * after a crash, leaves alone what it has punched (replay.h).
 */
#include "ossd/ops/op.h"

#include <stdlib.h>
#include <string.h>

#include "ossd/chain/forward.h"

/* ---- as versions of a replicated chain ---- */

struct versions {
	struct mutation *m;
	struct version *v[CHUNK_EDITS_MAX];
	uint32_t n;
	struct version *next;  /* has begun, or has ended without a change */
	struct chunk_key last; /* the chunk that it is, or was to be, a version of */
};

/* A chunk that cannot be read goes wholly. Whoever has it must not keep it, so that it is first
 * made good from there; what nobody has is removed as it is. */
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

/* In a chain of one: others may have become members meanwhile, or this target none. */
static int may_change(void *arg)
{
	return op_still_head(((struct versions *)arg)->m);
}

/* How this request changes chunks. */
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

/* -LE_AGAIN: what was damaged is repaired. */
static int edits_end(struct versions *vs, int rc)
{
	if (vs->next)
		version_unref(vs->next);
	if (rc != -LE_CORRUPT || !vs->last.ino.v)
		return rc;
	TRY(op_repair(vs->m->t, vs->m->chain, &vs->last));
	return -LE_AGAIN;
}

/* Each that is begun again finds done what was done. */
static int mutate(struct rpc_req *r, int (*fn)(struct mutation *m, const void *in, void *out),
		  const void *in, void *out)
{
	int rc = op_mutate(r, fn, in, out);

	for (uint32_t i = 0; i < REPAIRS_MAX && rc == -LE_AGAIN; i++)
		rc = op_mutate(r, fn, in, out);
	return rc == -LE_AGAIN ? -LE_CORRUPT : rc;
}

/* ---- once for each chunk ---- */

/* What has joined is of different lanes, one step of each at most. */
struct steps {
	struct versions vs; /* vs.v: of a replicated chain; else tx */
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

/* 1: it has been made. */
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
	/* A chunk that is lost comes before its turn, and nobody can have read any of it. */
	if (h->seq && chunk_store_lost(s, id) == LEDGER_NONE) {
		int rc = replay_step_begin(&s->replay, &key, h->seq, h->op, id->idx, &st->next);

		if (rc)
			return rc;
	}
	if (st->versions)
		return begin_version(&st->vs, id, whole, tx);
	return whole ? chunk_tx_begin_over(s, id, tx) : chunk_tx_begin(s, id, tx);
}

/* The row of the lane is in the batch of the change, and goes with it to all members. */
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
	v->seq = e->running_seq;
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
	/* Of a chain that was replicated until now: what it holds back must be committed before. */
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
	rep->n_chunks += n; /* also of what is begun again */
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
	rep->at_ns = env_wall_ns(op_target(r)->env);
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
	rep->at_ns = env_wall_ns(op_target(r)->env);
	return 0;
}

#define FILE_SIZE    12u /* u64 ino, u32 gen */
#define RUN_MAX      64u /* files that are looked for together */
#define REMOVALS_MAX 8u  /* runs at a time: their changes share commits */

/* Some files that follow each other in the index. */
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

/* A file that cannot be removed keeps none of the others. */
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

/* In the order of their rows, each once. How many. */
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
