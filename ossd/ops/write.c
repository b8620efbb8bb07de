/* oss_write: a part of a chunk, accepted as soon as readers see it, durable and answered exactly
 * once in the same group commit. */
#include "ossd/ops/op.h"

static int write_chunk(struct mutation *m, const void *in, void *out)
{
	const struct oss_write_req *req = in;
	struct oss_write_rep *rep = out;
	struct chunk_store *s = m->t->store;
	struct chunk_write w = {
		.id = chunk_key_of(op_chain(m->r), &req->chunk),
		.chunk_size = req->chunk_size,
		.off = req->off,
		.len = req->len,
		.session = m->r->hdr.session,
		.pieces = req->pieces,
		.bulk = m->r->bulk,
		.n_bulk = m->r->n_bulk,
	};
	struct chunk_tx tx;

	TRY(chunk_write_begin(s, &w, &tx));
	rep->version = tx.rec->version;
	rep->end = tx.rec->end;
	rep->mtime_ns = tx.rec->mtime_ns;
	rep->grant = req->grant_want ? space_grant(&s->space, w.session, req->grant_want,
						   env_now_us(s->env))
				     : space_grant_held(&s->space, w.session);
	tx.lazy = req->flags & WRITE_LAZY;
	op_answer(m, rep);
	chunk_tx_join(&tx);
	rpc_accept(m->r);
	return chunk_tx_wait(&tx);
}

int op_write(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_write_req *req = in;

	TRY(op_admit(r));
	TRY(op_check_cap(r, &req->cap, req->chunk.ino, req->chunk.gen, CAP_WRITE));
	return op_mutate(r, write_chunk, in, out);
}
