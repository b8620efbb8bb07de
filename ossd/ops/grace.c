#include "ossd/ops/grace.h"

#include "common/base/fault.h"
#include "common/base/log.h"
#include "ossd/ops/op.h"

void grace_init(struct grace *g, struct chunk_store *s, uint32_t waiting_max)
{
	*g = (struct grace){.s = s, .waiting_max = waiting_max};
	waitq_init(&g->ended);
	g->over = s->writers.n_awaited == 0 || FAULT(OSS_NO_GRACE);
}

static void end(struct grace *g)
{
	g->over = true;
	waitq_wake_all(&g->ended);
}

void grace_begin(struct grace *g, uint32_t grace_ms)
{
	if (g->over || g->until_us)
		return;
	g->began_us = env_now_us(g->s->env);
	g->until_us = g->began_us + grace_ms * 1000ull;
	log_info("target %u: waits for %u sessions to repeat what was under way",
		 g->s->super.target, g->s->writers.n_awaited);
}

void grace_look(struct grace *g)
{
	uint64_t now = env_now_us(g->s->env);

	if (g->over)
		return;
	if (g->s->writers.n_awaited == 0) {
		log_info("target %u: all have repeated what was under way, after %llu ms",
			 g->s->super.target,
			 (unsigned long long)(g->began_us ? (now - g->began_us) / 1000 : 0));
		end(g);
	} else if (g->until_us && now >= g->until_us) {
		log_warn("target %u: %u sessions have not repeated what was under way: it goes on "
			 "without them",
			 g->s->super.target, g->s->writers.n_awaited);
		writers_all_returned(&g->s->writers);
		end(g);
	}
}

/* What concerns nobody's data. */
static bool is_exempt(const struct rpc_req *r)
{
	return r->desc->kind == MSG_CTRL || r->hdr.op == OP_oss_release;
}

static int wait_for_all(struct grace *g)
{
	int rc = 0;

	if (g->n_waiting >= g->waiting_max)
		return -LE_NOT_READY;
	g->n_waiting++;
	while (!g->over && (rc == 0 || rc == -LE_TIMEDOUT)) {
		rc = waitq_wait(&g->ended, g->until_us ? g->until_us : NO_DEADLINE);
		grace_look(g);
	}
	g->n_waiting--;
	return g->over ? 1 : rc;
}

int grace_admit(struct grace *g, const struct chain *c, const struct rpc_req *r)
{
	grace_look(g);
	if (g->over || c->filled || is_exempt(r))
		return 0;
	if (r->hdr.flags & FRAME_AGAIN)
		return 0;
	/* Nor may data that waits take the buffers of what is repeated. */
	if (writers_awaits(&g->s->writers, r->hdr.session) || r->n_bulk)
		return -LE_NOT_READY;
	/* What is repeated is at the head first. */
	if (!chain_is_head(c))
		return -LE_PENDING;
	return wait_for_all(g);
}

int op_reclaim(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_reclaim_req *req = in;
	struct oss_reclaim_rep *rep = out;
	struct target *t = op_target(r);

	if (r->hdr.target != t->id && t->id)
		return -LE_NO_TARGET;
	rep->incarnation = t->incarnation;
	chunk_leases_end_before(&t->leases, r->hdr.session, req->leases);
	if (req->done) {
		writers_returned(&t->store->writers, r->hdr.session);
		grace_look(&t->grace);
	}
	return 0;
}
