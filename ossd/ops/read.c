/* SPDX-License-Identifier: Apache-2.0 */
/* oss_read and oss_sums: data of a chunk with its checksums, and the checksums alone. */
#include "ossd/ops/read.h"

#include "common/base/planted_bug.h"
#include "ossd/chain/commit.h"
#include "ossd/chunk/chunk_read.h"
#include "ossd/chunk/store_record.h"
#include "ossd/ops/handlers.h"
#include "ossd/ops/op.h"

static int encode_pieces(struct rpc_req *r, const struct piece *pieces, uint32_t n,
			 struct bytes *ret_bytes)
{
	uint8_t *buf = rpc_req_alloc(r, (size_t)n * PIECE_WIRE_SIZE);

	if (!buf && n)
		return -LE_NOMEM;
	for (uint32_t i = 0; i < n; i++)
		piece_encode(&pieces[i], buf + (size_t)i * PIECE_WIRE_SIZE);
	*ret_bytes = bytes_of(buf, n * PIECE_WIRE_SIZE);
	return 0;
}

static void drop_vec(struct chunk_read *cr)
{
	for (uint32_t i = 0; i < cr->n_vec; i++)
		slot_unref(cr->vec[i].slot);
}

/* In a replicated chain only committed changes are visible. The head waits for changes that are
 * pending at the request, as they may have been accepted. Other members, and reads with `quiet`,
 * send the client to the head. */
static int wait_committed(struct chain *c, struct chunk_read *cr)
{
	cr->committed = chain_replicated(c) && !PLANTED_BUG(CHAIN_SERVE_EARLY);
	cr->quiet = cr->committed && (cr->quiet || !chain_is_head(c));
	return cr->committed && !cr->quiet ? chunk_barrier(c, &cr->id) : 0;
}

/* Time may have passed since the request arrived: checks lease and epoch again. */
static int still_admitted(void *arg)
{
	struct chain *c;

	return op_admit(arg, CHAIN_SYNC, &c);
}

int op_read_chunk(struct rpc_req *r, struct chain *c, struct chunk_read *cr)
{
	struct target *t = op_target(r);
	int rc;

	cr->admit = still_admitted;
	cr->admit_arg = r;
	touched_note(&t->grace.touched, &(struct touched_bytes){&cr->id, cr->off, cr->len},
		     TOUCHED_READ, r->hdr.session);
	TRY(wait_committed(c, cr));
	rc = chunk_read(t->store, cr);
	for (uint32_t i = 0; i < REPAIRS_MAX && (rc == -LE_CORRUPT || rc == -LE_IO); i++) {
		int status = op_repair(t, c, &cr->id);

		if (status < 0)
			return status == -LE_CORRUPT ? rc : status;
		rc = chunk_read(t->store, cr);
	}
	return rc;
}

static int read_part(struct rpc_req *r, struct chain *c, const struct oss_read_req *req,
		     struct oss_read_rep *rep)
{
	struct chunk_read cr = {.id = chunk_key_of(op_chain(r), &req->chunk),
				.off = req->off,
				.len = req->len,
				.verify = req->flags & READ_VERIFY};
	int rc;

	cr.n_pieces_max = chunk_read_pieces_max(req->len);
	cr.pieces = rpc_req_alloc(r, cr.n_pieces_max * sizeof(*cr.pieces));
	if (!cr.pieces)
		return -LE_NOMEM;
	TRY(op_read_chunk(r, c, &cr));
	rc = encode_pieces(r, cr.pieces, cr.n_pieces, &rep->pieces);
	if (rc < 0) {
		drop_vec(&cr);
		return rc;
	}
	rep->version = cr.version;
	rep->end = cr.end;
	rep->mtime_ns = cr.mtime_ns;
	for (uint32_t i = 0; i < cr.n_vec; i++)
		r->reply_bulk[i] = cr.vec[i];
	r->n_reply_bulk = cr.n_vec;
	return 0;
}

static int read_leased(struct rpc_req *r, struct chain *c, const struct oss_read_req *req,
		       struct oss_read_rep *rep)
{
	struct chunk_leases *l = &op_target(r)->leases;
	const struct chunk_key k = chunk_key_of(op_chain(r), &req->chunk);
	uint64_t serial;
	int rc;

	/* First announce the lease to the other members, and store it for a later process. */
	TRY(chain_announce_leases(c));
	rc = chunk_store_leased(op_target(r)->store, r->hdr.session,
				env_now_us(op_target(r)->env) + 2 * CHUNK_LEASE_MS * 1000ull);
	TRY(chain_outcome(c, rc));
	TRY(op_admit(r, CHAIN_HEAD, &c));
	TRY(chunk_lease_take(l, &k, r->hdr.session, req->lease, &serial));
	rc = read_part(r, c, req, rep);
	if (rc < 0)
		chunk_lease_drop(l, serial);
	return rc;
}

int op_read(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_read_req *req = in;
	struct chain *c;

	TRY(op_admit(r, req->lease ? CHAIN_HEAD : CHAIN_SYNC, &c));
	TRY(op_check_cap(r, &req->cap, req->chunk.ino, req->chunk.gen, CAP_READ));
	if (req->len > op_target(r)->p->bulk_max)
		return -LE_TOO_BIG;
	if (rpc_req_canceled(r))
		return -LE_CANCELED;
	return req->lease ? read_leased(r, c, req, out) : read_part(r, c, req, out);
}

int op_sums(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_sums_req *req = in;
	struct oss_sums_rep *rep = out;
	struct target *t = op_target(r);
	struct chunk_key id = chunk_key_of(op_chain(r), &req->chunk);
	struct chunk_record *rec;
	uint32_t max = 2 * LEAT_BLOCKS_PER_CHUNK_MAX + 2;
	struct chunk_read cr = {.id = id};
	struct piece *pieces;
	struct chain *c;
	int rc;

	TRY(op_admit(r, CHAIN_SYNC, &c));
	TRY(op_check_cap(r, &req->cap, req->chunk.ino, req->chunk.gen, CAP_READ));
	touched_note_whole(&t->grace.touched, &id, TOUCHED_SUMS, r->hdr.session);
	pieces = rpc_req_alloc(r, max * sizeof(*pieces));
	if (!pieces)
		return -LE_NOMEM;
	TRY(wait_committed(c, &cr));
	if (cr.committed)
		TRY(chunk_store_committed(t->store, &id, cr.quiet, &rec));
	else
		TRY(chunk_store_record(t->store, &id, &rec));
	if (!rec)
		return 0;
	rep->version = rec->version;
	rep->end = rec->end;
	rc = encode_pieces(r, pieces, chunk_record_pieces(rec, pieces, max), &rep->pieces);
	chunk_record_unref(&t->store->cache, rec);
	return rc < 0 ? rc : op_admit(r, CHAIN_SYNC, &c);
}
