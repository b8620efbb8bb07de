/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oss_copy copies a chunk of this chain to a chunk on another chain: of another generation of the
 * file (the metadata server converts a file to another number of replicas), or of another file
 * (copy_file_range). The head reads committed, verified data and writes it like a client, one part
 * at a time. Holes stay holes. The requester must ensure that the chunk does not change meanwhile,
 * or discard the copy.
 */
#include "common/base/log.h"
#include "common/rt/loop.h"
#include "ossd/chain/commit.h"
#include "ossd/chunk/chunk_files.h"
#include "ossd/chunk/chunk_read.h"
#include "ossd/ops/handlers.h"
#include "ossd/ops/op.h"

#define PART_LEN (1u << 20)
#define WRITE_MS 5000u

struct copy {
	struct rpc_req *r;
	struct target *t;
	const struct oss_copy_req *req;
	struct chunk_read cr;
	uint64_t bytes;
	int64_t at_ns; /* time of the newest write */
	uint64_t base; /* version of the other chunk on which the next write builds */
};

/* Selects bytes [at, at + len) of what was read, for a request. Returns the number of entries. */
static uint32_t cut(const struct chunk_read *cr, uint32_t at, uint32_t len,
		    struct slot_vec out[CHUNK_READ_VECS])
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < cr->n_vec && len; i++) {
		struct slot_vec v = cr->vec[i];

		if (at >= v.len) {
			at -= v.len;
			continue;
		}
		v.off += at;
		v.len -= at;
		at = 0;
		if (v.len > len)
			v.len = len;
		len -= v.len;
		out[n++] = v;
	}
	return n;
}

/* Maps temporary errors to -LE_BUSY: the metadata server must repeat the request, as only it can
 * determine what has changed. Another attempt may still be writing to the other chain. */
static int foreign(int rc)
{
	bool passes = rc == -LE_STALE || rc == -LE_CAP_EXPIRED ||
		      (rc < 0 && status_retry(rc) != RETRY_NEVER);

	return passes ? -LE_BUSY : rc;
}

/* ---- the other chain ---- */

static struct chunk_id target_chunk(const struct copy *k)
{
	const struct oss_copy_req *req = k->req;

	if (req->to_ino.v != 0)
		return (struct chunk_id){req->to_ino, req->to_gen, req->to_idx};
	return (struct chunk_id){req->ino, req->to_gen, k->cr.id.idx};
}

static struct rpc_call call_of(const struct copy *k, uint16_t op, const void *req, void *rep)
{
	return (struct rpc_call){.op = op,
				 .req = req,
				 .rep = rep,
				 .deadline_us = loop_deadline_ms(WRITE_MS),
				 .session = SESSION_COPY,
				 .chain = k->req->to_chain,
				 .epoch = k->req->to_epoch};
}

static int find_base(struct copy *k)
{
	struct oss_sums_req req = {k->req->to_cap, target_chunk(k)};
	struct oss_sums_rep rep = {0};
	struct rpc_call call = call_of(k, OP_oss_sums, &req, &rep);
	int rc = chains_call(k->t->chains, k->req->to_target, &call);

	k->base = rep.version;
	rpc_call_fini(&call);
	return foreign(rc);
}

/* Writes pieces [first, first + n), which are adjacent and have data, from byte `at` of what was
 * read. Compressed ones stay compressed. */
static int write_run(struct copy *k, uint32_t first, uint32_t n, uint32_t at)
{
	const struct oss_copy_req *req = k->req;
	const struct chunk_read *cr = &k->cr;
	uint32_t off = cr->pieces[first].off, len = 0, bulk = 0;
	uint8_t *buf = rpc_req_alloc(k->r, (size_t)n * PIECE_WIRE_SIZE);
	struct slot_vec vec[CHUNK_READ_VECS];
	struct oss_write_req w = {.cap = req->to_cap,
				  .chunk = target_chunk(k),
				  .chunk_size = req->chunk_size,
				  .off = off,
				  .flags = WRITE_ON_BASE,
				  .mtime_ns = req->to_ino.v ? 0 : cr->mtime_ns,
				  .base = k->base};
	struct oss_write_rep rep;
	struct rpc_call call = call_of(k, OP_oss_write, &w, &rep);
	int rc;

	if (!buf)
		return -LE_NOMEM;
	for (uint32_t i = 0; i < n; i++) {
		struct piece p = cr->pieces[first + i];

		len += p.len;
		bulk += piece_space(&p);
		p.flags &= PIECE_LZ4;
		piece_encode(&p, buf + (size_t)i * PIECE_WIRE_SIZE);
	}
	w.len = len;
	w.pieces = bytes_of(buf, n * PIECE_WIRE_SIZE);
	call.bulk_out = vec;
	call.n_bulk_out = cut(cr, at, bulk, vec);
	rc = chains_call(k->t->chains, req->to_target, &call);
	rpc_call_fini(&call);
	k->bytes += len;
	if (rc == 0) {
		k->base = rep.version;
		k->at_ns = rep.mtime_ns;
	}
	if (rc < 0)
		log_debug("copy of inode=%llu gen=%u chunk=%llu to target %u: %s",
			  (unsigned long long)req->ino.v, req->gen, (unsigned long long)cr->id.idx,
			  req->to_target, status_name(rc));
	return foreign(rc);
}

static int write_part(struct copy *k)
{
	const struct chunk_read *cr = &k->cr;
	uint32_t i = 0, at = 0;

	while (i < cr->n_pieces) {
		uint32_t n = 0, end = cr->pieces[i].off, space = piece_space(&cr->pieces[i]);

		while (i + n < cr->n_pieces && !(cr->pieces[i + n].flags & PIECE_HOLE) &&
		       cr->pieces[i + n].off == end) {
			space += n ? piece_space(&cr->pieces[i + n]) : 0;
			end += cr->pieces[i + n++].len;
		}
		if (n)
			TRY(write_run(k, i, n, at));
		at += space;
		i += n ? n : 1;
	}
	return 0;
}

static int still_admitted(void *arg)
{
	struct chain *c;

	return op_admit(arg, CHAIN_HEAD, &c);
}

static int read_part(struct copy *k, struct chain *c)
{
	struct chunk_read *cr = &k->cr;
	int rc;

	touched_note(&k->t->grace.touched, &(struct touched_bytes){&cr->id, cr->off, cr->len},
		     TOUCHED_READ, SESSION_COPY);
	rc = chunk_read(k->t->store, cr);

	for (uint32_t i = 0; i < REPAIRS_MAX && (rc == -LE_CORRUPT || rc == -LE_IO); i++) {
		TRY(op_repair(k->t, c, &cr->id));
		rc = chunk_read(k->t->store, cr);
	}
	return rc;
}

static int copy_chunk(struct copy *k, struct chain *c)
{
	struct chunk_read *cr = &k->cr;
	uint32_t off = 0;

	cr->committed = chain_replicated(c);
	cr->n_pieces_max = chunk_read_pieces_max(PART_LEN);
	cr->pieces = rpc_req_alloc(k->r, cr->n_pieces_max * sizeof(*cr->pieces));
	if (!cr->pieces)
		return -LE_NOMEM;
	if (cr->committed)
		TRY(chunk_barrier(c, &cr->id));
	TRY(find_base(k));
	do {
		int rc;

		if (rpc_req_canceled(k->r))
			return -LE_CANCELED;
		cr->off = off;
		cr->len = PART_LEN;
		cr->n_vec = 0;
		TRY(read_part(k, c));
		rc = write_part(k);
		for (uint32_t i = 0; i < cr->n_vec; i++)
			slot_unref(cr->vec[i].slot);
		TRY(rc);
		off += PART_LEN;
	} while (off < cr->end);
	return 0;
}

static int take_id(void *arg, const struct chunk_summary *s)
{
	*(struct chunk_id *)arg = s->chunk;
	return 0;
}

static int list_next(struct copy *k, const struct chunk_key *from, uint64_t *ret_next)
{
	struct chunk_id id = {{0}, 0, 0};
	bool more;

	TRY(chunk_list(k->t->store, from, 1, take_id, &id, &more));
	*ret_next = id.ino.v == from->ino.v && id.gen == from->gen ? id.idx : COPY_NONE;
	return 0;
}

/* Finds the first chunk of the generation from idx on. A lost chunk is included: reading it
 * reports the loss. */
static int find_next(struct copy *k, const struct chunk_key *from, uint64_t *ret_next)
{
	struct chunk_store *s = k->t->store;
	struct chunk_key last = *from, lost;

	TRY(list_next(k, from, ret_next));
	last.idx = UINT64_MAX;
	switch (inventory_range(&s->inventory, from, &last, &lost)) {
	case INVENTORY_NONE:
		return 0;
	case INVENTORY_LOST:
		*ret_next = lost.idx < *ret_next ? lost.idx : *ret_next;
		return 0;
	case INVENTORY_UNSURE:
		break;
	}
	return inventory_whole(&s->inventory, from->chain) ? -LE_CORRUPT : -LE_NOT_READY;
}

int op_copy(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_copy_req *req = in;
	struct oss_copy_rep *rep = out;
	struct copy k = {.r = r, .t = op_target(r), .req = req};
	struct chunk_key from = {op_chain(r), req->ino, req->gen, 0};
	struct chain *c;

	if (r->peer->role != ROLE_MDS)
		return -LE_PERM;
	TRY(op_admit(r, CHAIN_HEAD, &c));
	if (req->idx != COPY_NONE) {
		from.idx = req->idx;
		k.cr = (struct chunk_read){
			.id = from, .verify = true, .admit = still_admitted, .admit_arg = r};
		TRY(chains_addrs(k.t->chains, req->targets));
		TRY(copy_chunk(&k, c));
		from.idx++; /* a chunk index is far from its largest value */
	} else if (chain_replicated(c)) {
		TRY(chain_barrier(c));
	} else {
		TRY(group_commit_barrier(&k.t->store->gc));
	}
	TRY(find_next(&k, &from, &rep->next));
	rep->bytes = k.bytes;
	rep->at_ns = k.at_ns;
	return op_admit(r, CHAIN_HEAD, &c);
}
