/* SPDX-License-Identifier: Apache-2.0 */
/* oss_release: a client releases a lease of a chunk. */
#include "ossd/ops/handlers.h"
#include "ossd/ops/op.h"

int op_release(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_release_req *req = in;
	const struct chunk_key k = chunk_key_of(op_chain(r), &req->chunk);
	struct chain *c;

	(void)out;
	TRY(op_admit(r, CHAIN_HEAD, &c));
	TRY(op_check_cap(r, &req->cap, req->chunk.ino, req->chunk.gen, CAP_READ));
	chunk_lease_end(&op_target(r)->leases, &k, r->hdr.session, req->lease);
	return 0;
}
