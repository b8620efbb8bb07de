/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oss_readv: many small reads of one chain in one request. Each part is executed like oss_read
 * (op_read_chunk), in a separate fiber, so that all disk reads are in flight together. They share
 * one slot, from which the reply is sent. A part that fails, or does not fit into the slot, gets
 * its status, and the client reads it with oss_read.
 */
#include "ossd/chunk/chunk_read.h"
#include "ossd/ops/handlers.h"
#include "ossd/ops/op.h"
#include "ossd/ops/read.h"

struct readv {
	struct rpc_req *r;
	struct chain *c;
	struct read_space space;
	uint32_t n, n_caps;
	struct cap *caps;
	int *cap_status;
	struct part *parts;
};

struct part {
	struct readv *v;
	struct readv_part in;
	struct readv_result res;
	struct piece *pieces;
	struct slot_vec vec; /* in.len bytes */
};

/* ---- the request ---- */

/* Upper bound for the number of entries of at least min bytes each, limited to the allowed number
 * of parts. */
static uint32_t count_max(const struct bytes *b, uint32_t min)
{
	uint32_t n = b->len / min + 1;

	return n < READV_PARTS_MAX ? n : READV_PARTS_MAX;
}

static int decode_caps(struct readv *v, const struct bytes *in)
{
	uint32_t max = count_max(in, 2);
	struct wire_r w;

	v->caps = rpc_req_alloc(v->r, max * sizeof(*v->caps));
	v->cap_status = rpc_req_alloc(v->r, max * sizeof(*v->cap_status));
	if (!v->caps || !v->cap_status)
		return -LE_NOMEM;
	wire_r_init(&w, in->data, in->len);
	while (!wire_r_end(&w)) {
		struct cap *cap = &v->caps[v->n_caps];

		if (v->n_caps == max)
			return -LE_TOO_BIG;
		*cap = (struct cap){0};
		wire_get_cap(&w, cap);
		if (w.status < 0)
			break;
		v->cap_status[v->n_caps++] = op_check_cap(v->r, cap, cap->ino, cap->gen, CAP_READ);
	}
	return w.status;
}

static int decode_parts(struct readv *v, const struct bytes *in)
{
	uint32_t max = count_max(in, 2);
	uint64_t bulk = 0;
	struct wire_r w;

	v->parts = rpc_req_alloc(v->r, max * sizeof(*v->parts));
	if (!v->parts)
		return -LE_NOMEM;
	wire_r_init(&w, in->data, in->len);
	while (!wire_r_end(&w)) {
		struct part *p = &v->parts[v->n];

		if (v->n == max)
			return -LE_TOO_BIG;
		*p = (struct part){.v = v};
		wire_get_readv_part(&w, &p->in);
		if (w.status < 0)
			break;
		if (p->in.cap >= v->n_caps || p->in.len == 0)
			return -LE_BAD_MESSAGE;
		bulk += p->in.len;
		if (bulk > READV_BULK_MAX)
			return -LE_TOO_BIG;
		v->n++;
	}
	return w.status;
}

/* ---- one part ---- */

static void drop_vec(struct chunk_read *cr)
{
	for (uint32_t i = 0; i < cr->n_vec; i++)
		slot_unref(cr->vec[i].slot);
	cr->n_vec = 0;
}

/* Uses the data that was read, followed by zeros up to the requested length. */
static void take_data(struct part *p, struct chunk_read *cr)
{
	struct slot *zero = op_target(p->v->r)->store->zero;

	for (uint32_t i = 0; i < cr->n_vec; i++)
		p->res.sent += cr->vec[i].len;
	if (cr->n_vec == 1 && cr->vec[0].slot == p->v->space.slot) {
		p->vec = cr->vec[0];
		memset(p->vec.slot->data + p->vec.off + p->vec.len, 0, p->in.len - p->vec.len);
		p->vec.len = p->in.len;
		return;
	}
	drop_vec(cr);
	p->vec = (struct slot_vec){slot_ref(zero), 0, p->in.len};
}

static int read_part(struct part *p)
{
	struct readv *v = p->v;
	const struct cap *cap = &v->caps[p->in.cap];
	struct chunk_id id = {cap->ino, cap->gen, p->in.idx};
	struct chunk_read cr = {.id = chunk_key_of(op_chain(v->r), &id),
				.off = p->in.off,
				.len = p->in.len,
				/* Does not wait for a write while holding a slot that its
				 * forwarding may need: oss_read does. */
				.quiet = true,
				.space = &v->space,
				.pieces = p->pieces,
				.n_pieces_max = chunk_read_pieces_max(p->in.len)};

	TRY(v->cap_status[p->in.cap]);
	TRY(op_read_chunk(v->r, v->c, &cr));
	p->res.n_pieces = cr.n_pieces;
	take_data(p, &cr);
	return 0;
}

static void part_fiber(void *arg)
{
	struct part *p = arg;
	struct slot *zero = op_target(p->v->r)->store->zero;

	p->res.status = read_part(p);
	if (p->res.status < 0)
		p->vec = (struct slot_vec){slot_ref(zero), 0, p->in.len};
}

/* ---- the reply ---- */

#define RESULT_WIRE_SIZE 14u

static int encode(struct readv *v, struct oss_readv_rep *rep)
{
	uint8_t *results = rpc_req_alloc(v->r, (size_t)v->n * RESULT_WIRE_SIZE), *pieces;
	uint32_t n_pieces = 0, at = 0;
	struct wire_w w;

	for (uint32_t i = 0; i < v->n; i++)
		n_pieces += v->parts[i].res.n_pieces;
	pieces = rpc_req_alloc(v->r, (size_t)n_pieces * PIECE_WIRE_SIZE);
	if (!results || !pieces)
		return -LE_NOMEM;
	wire_w_init(&w, results, (size_t)v->n * RESULT_WIRE_SIZE);
	for (uint32_t i = 0; i < v->n; i++) {
		const struct part *p = &v->parts[i];

		wire_put_readv_result(&w, &p->res);
		for (uint32_t k = 0; k < p->res.n_pieces; k++)
			piece_encode(&p->pieces[k], pieces + (size_t)at++ * PIECE_WIRE_SIZE);
	}
	ASSERT(w.status == 0);
	rep->results = bytes_of(results, (uint32_t)w.len);
	rep->pieces = bytes_of(pieces, n_pieces * PIECE_WIRE_SIZE);
	return 0;
}

static int read_parts(struct readv *v, struct oss_readv_rep *rep)
{
	int rc;

	for (uint32_t i = 0; i < v->n; i++) {
		struct part *p = &v->parts[i];

		p->pieces =
			rpc_req_alloc(v->r, chunk_read_pieces_max(p->in.len) * sizeof(*p->pieces));
		if (!p->pieces)
			return -LE_NOMEM;
	}
	fiber_parallel("readv", part_fiber, v->parts, sizeof(v->parts[0]), v->n, v->n);
	rc = encode(v, rep);
	for (uint32_t i = 0; i < v->n; i++) {
		if (rc < 0)
			slot_unref(v->parts[i].vec.slot);
		else
			v->r->reply_bulk[i] = v->parts[i].vec;
	}
	if (rc == 0)
		v->r->n_reply_bulk = v->n;
	return rc;
}

int op_readv(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_readv_req *req = in;
	struct readv v = {.r = r};
	int rc;

	_Static_assert(READV_PARTS_MAX <= RPC_BULK_VECS_MAX, "each part is a vec of the reply");
	TRY(op_admit(r, CHAIN_SYNC, &v.c));
	TRY(decode_caps(&v, &req->caps));
	TRY(decode_parts(&v, &req->parts));
	if (v.n == 0)
		return 0;
	if (rpc_req_canceled(r))
		return -LE_CANCELED;
	TRY(slot_get(op_target(r)->store->read_pool, fiber_deadline(), &v.space.slot));
	rc = read_parts(&v, out);
	slot_unref(v.space.slot);
	return rc;
}
