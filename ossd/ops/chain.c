/* SPDX-License-Identifier: Apache-2.0 */
/* oss_chain_set, oss_forward, oss_commit, oss_resolve: messages of the metadata server and of
 * other members of a chain. */
#include "ossd/chain/apply.h"
#include "ossd/chain/chains.h"
#include "ossd/ops/handlers.h"
#include "ossd/ops/op.h"

int op_chain_set(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_chain_set_req *req = in;
	struct target *t = op_target(r);

	(void)out;
	if (r->peer->role != ROLE_MDS)
		return -LE_PERM;
	if (!t->ready)
		return -LE_NOT_READY;
	if (r->hdr.target != t->id)
		return -LE_NO_TARGET;
	TRY(chains_addrs(t->chains, req->targets));
	return chains_adopt(t->chains, req->chains, 0);
}

static int admit_member(struct rpc_req *r, enum chain_need need, struct chain **ret_chain)
{
	const struct target *t = op_target(r);

	if (r->peer->role != ROLE_OSSD)
		return -LE_PERM;
	if (r->hdr.target != t->id)
		return -LE_NO_TARGET;
	return chain_admit(t->chains, r->hdr.chain, r->hdr.epoch, need, ret_chain);
}

int op_forward(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_forward_req *req = in;
	struct chain *c;
	int rc;

	(void)out;
	TRY(admit_member(r, CHAIN_MEMBER, &c));
	if (op_is_client(req->session))
		TRY(writer_sessions_know(&op_target(r)->store->writers, &op_target(r)->store->gc,
				 req->session));
	rc = chain_apply(c, r, req);
	/* The base of the version is damaged here, and other members may have it. The request's
	 * data is still held, unless the version has joined. */
	for (uint32_t i = 0; i < REPAIRS_MAX && rc == -LE_CORRUPT; i++) {
		struct chunk_key id = chunk_key_of(c->id, &req->chunk);

		if (req->kind == FORWARD_WRITE && !r->n_bulk)
			break;
		TRY(op_repair(op_target(r), c, &id));
		rc = chain_apply(c, r, req);
	}
	return rc;
}

int op_commit(struct rpc_req *r, const void *in, void *out)
{
	struct chain *c;

	(void)out;
	TRY(admit_member(r, CHAIN_MEMBER, &c));
	return chain_committed(c, in);
}

int op_resolve(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_resolve_req *req = in;
	struct oss_resolve_rep *rep = out;
	struct chain *c;
	struct wire_w w;
	/* A reply has at most the length of its request. */
	void *buf = rpc_req_alloc(r, req->versions.len + 1);

	TRY(admit_member(r, CHAIN_MEMBER, &c));
	if (!chain_is_sync(c))
		return -LE_NOT_HEAD;
	if (!buf)
		return -LE_NOMEM;
	wire_w_init(&w, buf, req->versions.len);
	TRY(chain_resolve(c, req->versions, &w));
	rep->answers = bytes_of(buf, (uint32_t)w.len);
	return 0;
}
