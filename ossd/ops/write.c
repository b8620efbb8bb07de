/* oss_write: a part of a chunk, accepted as soon as readers see it, durable and answered exactly
 * once in the same group commit; in a replicated chain, at every member. */
#include "ossd/ops/op.h"

#include "ossd/chain/forward.h"

static void fill_rep(const struct mutation *m, const struct oss_write_req *req,
		     const struct chunk_record *rec, struct oss_write_rep *rep)
{
	struct space *sp = &m->t->store->space;
	uint64_t session = m->r->hdr.session;

	rep->version = rec->version;
	rep->end = rec->end;
	rep->mtime_ns = rec->mtime_ns;
	rep->grant = req->grant_want
			     ? space_grant(sp, session, req->grant_want, env_now_us(m->t->env))
			     : space_grant_held(sp, session);
}

/* A copy is as old as what it was made of; what was written behind, as programs have been told. No
 * chunk becomes older than it was. */
static void keep_time(const struct mutation *m, const struct oss_write_req *req,
		      struct chunk_tx *tx)
{
	int64_t now = env_wall_ns(m->t->env), told = req->mtime_ns;
	int64_t before = tx->old ? tx->old->mtime_ns : 0;

	if (m->r->hdr.session == SESSION_COPY && told)
		tx->rec->mtime_ns = told;
	else if (told > now - WRITTEN_BEFORE_S * 1000000000ll && told < now)
		tx->rec->mtime_ns = told > before ? told : before;
}

/* Under the chunk's lock. */
static int check_base(const struct oss_write_req *req, const struct chunk_tx *tx)
{
	uint64_t version = tx->old ? tx->old->version : 0;

	return (req->flags & WRITE_ON_BASE) && version != req->base ? -LE_STALE : 0;
}

/* The data is on the disk, and in a version as long as there is room: the slots are for others
 * now. */
static void drop_bulk(struct rpc_req *r)
{
	for (uint32_t i = 0; i < r->n_bulk; i++)
		slot_unref(r->bulk[i].slot);
	r->n_bulk = 0;
}

/* A page that is written back may be what a lease waits for, for its kernel is to drop it. */
static void await_readers(const struct rpc_req *r, struct chain *c, const struct oss_write_req *req)
{
	const struct chunk_key id = chunk_key_of(c->id, &req->chunk);
	const struct chunk_leased of = {c, id.ino, &id, r->hdr.session};

	if (!(req->flags & (WRITE_PAGES | WRITE_ALONE)))
		chunk_leases_await(&op_target(r)->leases, &of);
}

/* Others may be members by now, or this target none; others may have used what is repeated late. */
static int may_join(const struct mutation *m, const struct chunk_tx *tx,
		    const struct chunk_write *w)
{
	TRY(op_still_head(m));
	return grace_may_write(&m->t->grace, m->chain, m->r, tx, w);
}

struct writing {
	const struct oss_write_req *req;
	bool made; /* now, so that it was not answered before */
};

static int write_version(struct mutation *m, const struct oss_write_req *req, struct chunk_write *w,
			 struct oss_write_rep *rep)
{
	struct version *v = version_create(m->chain);
	int rc;

	if (!v)
		return -LE_NOMEM;
	w->keep = true;
	rc = version_begin_write(v, w);
	if (rc < 0)
		goto out;
	rc = check_base(req, &v->tx);
	if (rc < 0) {
		chunk_tx_cancel(&v->tx);
		goto out;
	}
	rc = chunk_tx_write(&v->tx, w);
	if (rc < 0)
		goto out;
	rc = may_join(m, &v->tx, w);
	if (rc < 0) {
		chunk_tx_abort(&v->tx);
		goto out;
	}
	keep_time(m, req, &v->tx);
	fill_rep(m, req, v->tx.rec, rep);
	v->tx.lazy = req->flags & WRITE_LAZY;
	op_answer_version(m, rep, v);
	forward_keep(v, w);
	version_join(v);
	drop_bulk(m->r);
	await_readers(m->r, m->chain, req);
	rc = version_wait(v, m->r);
out:
	version_unref(v);
	return rc;
}

static int write_chunk(struct mutation *m, const void *in, void *out)
{
	struct writing *writing = (struct writing *)in;
	const struct oss_write_req *req = writing->req;
	struct oss_write_rep *rep = out;
	struct chunk_store *s = m->t->store;
	struct chunk_write w = {
		.id = chunk_key_of(m->chain->id, &req->chunk),
		.chunk_size = req->chunk_size,
		.off = req->off,
		.len = req->len,
		.session = m->r->hdr.session,
		.pack = req->flags & WRITE_PACK,
		.placed = req->flags & WRITE_PLACED,
		.pieces = req->pieces,
		.bulk = m->r->bulk,
		.n_bulk = m->r->n_bulk,
	};
	struct chunk_tx tx;
	int rc;

	writing->made = true;
	TRY(chunk_write_check(&w));
	touched_note(&m->t->grace.touched, &(struct touched_bytes){&w.id, w.off, w.len},
		     TOUCHED_WRITTEN, w.session);
	if (chain_replicated(m->chain))
		return write_version(m, req, &w, rep);
	TRY(chunk_tx_begin_write(s, &w, &tx));
	/* A chain that was replicated until now: what it holds back must be committed before. */
	if (!list_empty(&tx.ent->held) || chain_replicated(m->chain)) {
		chunk_tx_cancel(&tx);
		return -LE_STALE_EPOCH;
	}
	rc = check_base(req, &tx);
	if (rc < 0) {
		chunk_tx_cancel(&tx);
		return rc;
	}
	TRY(chunk_tx_write(&tx, &w));
	rc = may_join(m, &tx, &w);
	if (rc < 0) {
		chunk_tx_abort(&tx);
		return rc;
	}
	keep_time(m, req, &tx);
	fill_rep(m, req, tx.rec, rep);
	tx.lazy = req->flags & WRITE_LAZY;
	op_answer(m, rep);
	chunk_tx_join(&tx);
	drop_bulk(m->r);
	await_readers(m->r, m->chain, req);
	rpc_accept(m->r);
	return chunk_tx_wait(&tx);
}

int op_write(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_write_req *req = in;
	struct writing w = {.req = req};
	struct chain *c;
	int rc;

	TRY(op_admit(r, CHAIN_HEAD, &c));
	TRY(op_check_cap(r, &req->cap, req->chunk.ino, req->chunk.gen, CAP_WRITE));
	rc = op_mutate(r, write_chunk, &w, out);
	/* An old block to merge with is damaged here: another member has it. The data is still
	 * there: it is given up when the version has joined, not before. */
	for (uint32_t i = 0; i < REPAIRS_MAX && rc == -LE_CORRUPT && r->n_bulk; i++) {
		struct chunk_key id = chunk_key_of(c->id, &req->chunk);

		TRY(op_repair(op_target(r), c, &id));
		rc = op_mutate(r, write_chunk, &w, out);
	}
	/* Whoever made it may have died before it had waited. */
	if (rc == 0 && !w.made) {
		drop_bulk(r);
		await_readers(r, c, req);
	}
	return rc;
}
