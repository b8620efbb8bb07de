/* SPDX-License-Identifier: Apache-2.0 */
/* oss_scrub: starts, stops or reports a scrub. For servers and tools. */
#include "ossd/ops/handlers.h"
#include "ossd/ops/op.h"
#include "ossd/scrub/scrub.h"

int op_scrub(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_scrub_req *req = in;
	struct oss_scrub_rep *rep = out;
	struct target *t = op_target(r);
	const struct scrub_row *s;

	if (r->peer->role != ROLE_MDS && r->peer->role != ROLE_TOOL && r->peer->role != ROLE_OSSD)
		return -LE_PERM;
	if (!t->ready || !t->scrub)
		return -LE_NOT_READY;
	if (r->hdr.target != t->id)
		return -LE_NO_TARGET;
	if (req->what > SCRUB_STOP)
		return -LE_INVAL;
	if (req->what == SCRUB_START)
		TRY(scrub_start(t->scrub));
	else if (req->what == SCRUB_STOP)
		TRY(scrub_stop(t->scrub));
	s = scrub_state(t->scrub);
	*rep = (struct oss_scrub_rep){.running = s->running,
				      .chunks = s->chunks,
				      .bytes = s->bytes,
				      .used = space_used(&t->store->space),
				      .damaged = s->damaged,
				      .repaired = s->repaired,
				      .unrepaired = s->unrepaired,
				      .differing = s->differing,
				      .uncompared = s->uncompared,
				      .moved = s->moved,
				      .began_ns = s->began_ns,
				      .ended_ns = s->ended_ns};
	return 0;
}
