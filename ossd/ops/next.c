/* SPDX-License-Identifier: Apache-2.0 */
/* oss_next: finds the first data of a file after a hole. */
#include "ossd/chain/commit.h"
#include "ossd/chunk/chunk_next.h"
#include "ossd/ops/handlers.h"
#include "ossd/ops/op.h"

int op_next(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_next_req *req = in;
	struct oss_next_rep *rep = out;
	struct chunk_key from = {op_chain(r), req->ino, req->gen, req->from};
	struct chain *c;

	TRY(op_admit(r, CHAIN_HEAD, &c));
	TRY(op_check_cap(r, &req->cap, req->ino, req->gen, CAP_READ));
	touched_note_whole(&op_target(r)->grace.touched, &from, TOUCHED_SUMS, r->hdr.session);
	/* Pending changes may have been accepted, and rows in the index may never be committed. */
	if (chain_replicated(c))
		TRY(chain_barrier(c));
	TRY(chain_outcome(c, chunk_next(op_target(r)->store, &from, req->last, &rep->next)));
	/* Time has passed: check that this target is still head. */
	return op_admit(r, CHAIN_HEAD, &c);
}
