#include "ossd/ops/grace.h"

#include "common/base/fault.h"
#include "common/base/log.h"
#include "ossd/ops/op.h"

void grace_init(struct grace *g, struct chunk_store *s, uint32_t waiting_max)
{
	*g = (struct grace){.s = s, .waiting_max = waiting_max};
	waitq_init(&g->ended);
	g->over = s->writers.n_awaited == 0 || FAULT(OSS_NO_GRACE);
	if (!g->over)
		touched_begin(&g->touched);
}

void grace_fini(struct grace *g)
{
	touched_end(&g->touched);
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

/* Those who are late are so also for the next process, before anybody is told anything. */
static void look_ending(struct grace *g)
{
	const struct group_commit *gc = &g->s->gc;

	if (gc->durable >= g->late_group || gc->status < 0)
		end(g);
}

void grace_look(struct grace *g)
{
	struct writers *w = &g->s->writers;
	uint64_t now = env_now_us(g->s->env);

	if (g->over && w->n_late == 0)
		touched_end(&g->touched);
	if (g->over)
		return;
	if (g->ending) {
		look_ending(g);
	} else if (w->n_awaited == 0) {
		log_info("target %u: all have repeated what was under way, after %llu ms",
			 g->s->super.target,
			 (unsigned long long)(g->began_us ? (now - g->began_us) / 1000 : 0));
		end(g);
	} else if (g->until_us && now >= g->until_us) {
		log_warn("target %u: %u sessions have not repeated what was under way: it goes on "
			 "without them, and refuses what they repeat where others were meanwhile",
			 g->s->super.target, w->n_awaited);
		g->late_group = writers_all_late(w, &g->s->gc);
		g->ending = true;
		look_ending(g);
	}
}

/* What concerns nobody's data. */
static bool is_exempt(const struct rpc_req *r)
{
	return r->desc->kind == MSG_CTRL || r->hdr.op == OP_oss_release;
}

/* A repetition: is it its turn? */
static int admit_again(const struct grace *g, const struct rpc_req *r)
{
	if ((r->hdr.flags & FRAME_SEEN) || g->s->writers.n_seen == 0 || FAULT(OSS_UNORDERED))
		return 0;
	return -LE_NOT_READY;
}

static int wait_for_all(struct grace *g)
{
	int rc = 0;

	if (g->n_waiting >= g->waiting_max)
		return -LE_NOT_READY;
	g->n_waiting++;
	while (!g->over && (rc == 0 || rc == -LE_TIMEDOUT)) {
		if (g->ending)
			rc = group_commit_wait(&g->s->gc, g->late_group);
		else
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
		return admit_again(g, r);
	/* Nor may data that waits take the buffers of what is repeated. */
	if (writers_awaits(&g->s->writers, r->hdr.session) || r->n_bulk)
		return -LE_NOT_READY;
	/* What is repeated is at the head first. */
	if (!chain_is_head(c))
		return -LE_PENDING;
	return wait_for_all(g);
}

/* Have others changed what it writes, since the start? */
static bool is_newer(const struct grace *g, const struct chunk_write *w)
{
	const struct touched_bytes b = {&w->id, w->off, w->len};

	return touched_by_others(&g->touched, &b, TOUCHED_WRITTEN, w->session) ||
	       touched_whole_by_others(&g->touched, &w->id, TOUCHED_CUT, w->session);
}

/* Have they seen that it is not there? */
static bool is_missed(const struct grace *g, const struct chunk_tx *tx, const struct chunk_write *w)
{
	const struct touched_bytes b = {&w->id, w->off, w->len};
	bool grows = !tx->old || w->off + w->len > tx->old->end;

	return touched_by_others(&g->touched, &b, TOUCHED_READ, w->session) ||
	       touched_whole_by_others(&g->touched, &w->id, TOUCHED_SUMS, w->session) ||
	       (grows &&
		touched_whole_by_others(&g->touched, &w->id, TOUCHED_SIZE, w->session));
}

int grace_may_write(const struct grace *g, const struct chain *c, const struct rpc_req *r,
		    const struct chunk_tx *tx, const struct chunk_write *w)
{
	enum writer_late late = writers_late(&g->s->writers, r->hdr.session);
	bool seen = r->hdr.flags & FRAME_SEEN;

	if (late == NOT_LATE || !(r->hdr.flags & FRAME_AGAIN) || w->placed || FAULT(OSS_LATE))
		return 0;
	if (chain_replicated(c))
		return seen ? -LE_LATE : 0;
	if (late == LATE && !is_newer(g, w) && !(seen && is_missed(g, tx, w)))
		return 0;
	return -LE_LATE;
}

int op_reclaim(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_reclaim_req *req = in;
	struct oss_reclaim_rep *rep = out;
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
		group = writers_returned(&t->store->writers, gc, r->hdr.session,
					 req->done == DONE_ALL ? OWES_NOTHING : OWES_UNSEEN);
	grace_look(&t->grace);
	return group ? group_commit_wait(gc, group) : 0;
}
