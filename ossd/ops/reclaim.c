/* SPDX-License-Identifier: Apache-2.0 */
/* oss_replay_done: a client reports that it has repeated the changes that a crashed server had
 * accepted. */
#include "ossd/ops/handlers.h"
#include "ossd/ops/op.h"

int op_replay_done(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_replay_done_req *req = in;
	struct oss_replay_done_rep *rep = out;
	struct target *t = op_target(r);
	struct group_commit *gc = &t->store->gc;
	uint64_t group = 0;

	if (r->hdr.target != t->id && t->id)
		return -LE_NO_TARGET;
	if (req->done > DONE_ALL)
		return -LE_INVAL;
	rep->incarnation = t->incarnation;
	chunk_leases_end_before(&t->leases, r->hdr.session, req->leases);
	if (req->done != DONE_NOTHING)
		group = writer_sessions_returned(&t->store->writers, gc, r->hdr.session,
					 req->done == DONE_ALL ? OWES_NOTHING : OWES_UNSEEN);
	grace_check_end(&t->grace);
	return group ? group_commit_wait(gc, group) : 0;
}
