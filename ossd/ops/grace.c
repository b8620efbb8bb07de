/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/ops/grace.h"

#include "common/base/log.h"
#include "common/base/planted_bug.h"
#include "common/rpc/rpc.h"
#include "ossd/chain/chain.h"
#include "ossd/chunk/chunk_tx.h"
#include "ossd/chunk/chunk_write.h"

void grace_init(struct grace *g, struct chunk_store *s, uint32_t waiting_max)
{
	*g = (struct grace){.s = s, .waiting_max = waiting_max};
	waitq_init(&g->ended);
	g->over = s->writers.n_awaited == 0 || PLANTED_BUG(OSS_NO_GRACE);
	if (!g->over)
		touched_begin(&g->touched);
}

void grace_fini(struct grace *g)
{
	touched_end(&g->touched);
}

static void end(struct grace *g)
{
	ASSERT(!g->over);
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

/* Ends the grace period only when the late sessions are durably late: a later process must treat
 * them as late too. */
static void check_end(struct grace *g)
{
	const struct group_commit *gc = &g->s->gc;

	if (gc->durable >= g->late_group || gc->status < 0)
		end(g);
}

void grace_check_end(struct grace *g)
{
	struct writer_sessions *w = &g->s->writers;
	uint64_t now = env_now_us(g->s->env);

	if (g->over && w->n_late == 0)
		touched_end(&g->touched);
	if (g->over)
		return;
	if (g->ending) {
		check_end(g);
	} else if (w->n_awaited == 0) {
		log_info("target %u: all have repeated what was under way, after %llu ms",
			 g->s->super.target,
			 (unsigned long long)(g->began_us ? (now - g->began_us) / 1000 : 0));
		end(g);
	} else if (g->until_us && now >= g->until_us) {
		log_warn("target %u: %u sessions have not repeated what was under way: it goes on "
			 "without them, and refuses what they repeat where others were meanwhile",
			 g->s->super.target, w->n_awaited);
		g->late_group = writer_sessions_all_late(w, &g->s->gc);
		g->ending = true;
		check_end(g);
	}
}

/* True for requests that touch no data. */
static bool is_exempt(const struct rpc_req *r)
{
	return r->desc->kind == MSG_CTRL || r->hdr.op == OP_oss_release;
}

/* Admits a repeated request if its turn has come. */
static int admit_again(const struct grace *g, const struct rpc_req *r)
{
	if ((r->hdr.flags & FRAME_SEEN) || g->s->writers.n_seen == 0 || PLANTED_BUG(OSS_UNORDERED))
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
		grace_check_end(g);
	}
	ASSERT(g->n_waiting > 0);
	g->n_waiting--;
	return g->over ? 1 : rc;
}

int grace_admit(struct grace *g, const struct chain *c, const struct rpc_req *r)
{
	grace_check_end(g);
	if (g->over || c->filled || is_exempt(r))
		return 0;
	if (r->hdr.flags & FRAME_AGAIN)
		return admit_again(g, r);
	/* A waiting request with data would occupy the buffers that repeated requests need. */
	if (writer_sessions_awaits(&g->s->writers, r->hdr.session) || r->n_bulk)
		return -LE_NOT_READY;
	/* Repeated requests arrive at the head first. */
	if (!chain_is_head(c))
		return -LE_PENDING;
	return wait_for_all(g);
}

/* True if another session has changed since the start what w writes. */
static bool is_newer(const struct grace *g, const struct chunk_write *w)
{
	const struct touched_bytes b = {&w->id, w->off, w->len};

	return touched_by_others(&g->touched, &b, TOUCHED_WRITTEN, w->session) ||
	       touched_whole_by_others(&g->touched, &w->id, TOUCHED_CUT, w->session);
}

/* True if another session has observed since the start that w's data was missing. */
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
	enum writer_late late = writer_sessions_late(&g->s->writers, r->hdr.session);
	bool seen = r->hdr.flags & FRAME_SEEN;

	if (late == NOT_LATE || !(r->hdr.flags & FRAME_AGAIN) || w->placed || PLANTED_BUG(OSS_LATE))
		return 0;
	if (chain_replicated(c))
		return seen ? -LE_LATE : 0;
	if (late == LATE && !is_newer(g, w) && !(seen && is_missed(g, tx, w)))
		return 0;
	return -LE_LATE;
}
