/* SPDX-License-Identifier: Apache-2.0 */
/* oss_write: writes a part of a chunk. Accepted when it is visible to readers; durable, with its
 * reply, by one group commit; in a replicated chain at every member. */
#include "ossd/chain/forward.h"
#include "ossd/chain/forward_data.h"
#include "ossd/chunk/chunk_tx.h"
#include "ossd/chunk/chunk_write.h"
#include "ossd/ops/handlers.h"
#include "ossd/ops/op.h"

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

/* Sets mtime. A copy keeps the mtime of its source. A write-back keeps the time that the client
 * has reported to programs, unless that is more than WRITTEN_BEFORE_S old; it never decreases
 * mtime. */
static void keep_time(const struct mutation *m, const struct oss_write_req *req,
		      struct chunk_tx *tx)
{
	int64_t now = mds_clock_stamp_ns(&m->t->store->clock, m->t->env), told = req->mtime_ns;
	int64_t before = tx->old ? tx->old->mtime_ns : 0;

	if (m->r->hdr.session == SESSION_COPY && told)
		tx->rec->mtime_ns = told;
	else if (told > now - WRITTEN_BEFORE_S * 1000000000ll && told < now)
		tx->rec->mtime_ns = told > before ? told : before;
}

/* Call under the chunk's lock. */
static int check_base(const struct oss_write_req *req, const struct chunk_tx *tx)
{
	uint64_t version = tx->old ? tx->old->version : 0;

	return (req->flags & WRITE_ON_BASE) && version != req->base ? -LE_STALE : 0;
}

/* Releases the slots: the data is on disk, and held by the version if slots permit. */
static void drop_bulk(struct rpc_req *r)
{
	for (uint32_t i = 0; i < r->n_bulk; i++)
		slot_unref(r->bulk[i].slot);
	r->n_bulk = 0;
}

/* Waits for leases of readers. A page that is written back must not wait: the lease may depend on
 * that write, because the holder's kernel is to drop the page. */
static void await_readers(const struct rpc_req *r, struct chain *c, const struct oss_write_req *req)
{
	const struct chunk_key id = chunk_key_of(c->id, &req->chunk);
	const struct chunk_leased of = {c, id.ino, &id, r->hdr.session};

	if (!(req->flags & (WRITE_PAGES | WRITE_ALONE)))
		chunk_leases_await(&op_target(r)->leases, &of);
}

/* Other members may have joined, or this target have left; other sessions may have used the bytes
 * of a late repetition. */
static int may_join(const struct mutation *m, const struct chunk_tx *tx,
		    const struct chunk_write *w)
{
	TRY(op_still_head(m));
	return grace_may_write(&m->t->grace, m->chain, m->r, tx, w);
}

struct writing {
	const struct oss_write_req *req;
	bool made; /* executed by this request, not by an earlier copy of it */
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
		.placed = req->flags & WRITE_RESERVED,
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
	/* The chain was replicated until now: versions it holds pending must be committed first. */
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
	/* An old block to merge with is damaged here, and another member may have it. The data is
	 * held until the version has joined. */
	for (uint32_t i = 0; i < REPAIRS_MAX && rc == -LE_CORRUPT && r->n_bulk; i++) {
		struct chunk_key id = chunk_key_of(c->id, &req->chunk);

		TRY(op_repair(op_target(r), c, &id));
		rc = op_mutate(r, write_chunk, &w, out);
	}
	/* An earlier execution may have been interrupted before it had waited. */
	if (rc == 0 && !w.made) {
		drop_bulk(r);
		await_readers(r, c, req);
	}
	return rc;
}
