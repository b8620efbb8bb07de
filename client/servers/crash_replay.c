/* SPDX-License-Identifier: Apache-2.0 */
#include "client/servers/crash_replay.h"

#include <stddef.h>

#include "client/base/background.h"
#include "client/client.h"
#include "client/ll.h"
#include "client/servers/cluster_map.h"
#include "client/servers/target.h"
#include "common/base/assert.h"
#include "common/base/hmap.h"
#include "common/base/list.h"
#include "common/base/status.h"
#include "common/proto/oss_proto.h"
#include "common/proto/types.h"
#include "common/rpc/rpc.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

#define CALL_MS 2000u
#define POLL_MS 100u /* poll interval: a chain's members may change during the wait */

static void accepted(void *arg)
{
	struct unstable_write *p = arg;

	p->generation = p->c->server_generations;
	p->seen = true;
	waitq_wake_all(&p->c->unstable_q);
	if (p->accepted != NULL)
		p->accepted(p->accepted_arg);
}

void unstable_begin(struct unstable_write *p, struct client *c, struct rpc_call *call)
{
	*p = (struct unstable_write){
		.c = c, .accepted = call->accepted, .accepted_arg = call->accepted_arg};
	call->accepted = accepted;
	call->accepted_arg = p;
	list_push(&c->unstable_writes, &p->link);
}

void unstable_sent(struct unstable_write *p, const struct chain *ch, struct rpc_call *call)
{
	p->chain = ch;
	p->out = true;
	if (!p->unknown)
		p->generation = p->c->server_generations;
	call->again = p->unknown;
	call->seen = p->unknown && p->seen;
}

void unstable_answered(struct unstable_write *p, const struct rpc_call *call, int status)
{
	bool silent = status == -LE_DISCONNECTED || status == -LE_TIMEDOUT || status == -LE_INTR ||
		      status == -LE_SHUTDOWN;

	p->out = false;
	p->unknown |= silent && call->ret_sent;
	/* -LE_ABORTED: the server has undone it. */
	p->seen = p->seen && status != -LE_ABORTED;
	waitq_wake_all(&p->c->unstable_q);
}

void unstable_end(struct unstable_write *p, struct rpc_call *call)
{
	call->accepted = p->accepted;
	call->accepted_arg = p->accepted_arg;
	list_remove(&p->link);
	waitq_wake_all(&p->c->unstable_q);
}

static bool is_member(const struct chain *ch, const struct target *t)
{
	for (uint32_t i = 0; i < ch->n_members; i++)
		if (ch->members[i].target == t)
			return true;
	return false;
}

/* Returns which repetitions a restarted server no longer has to wait for: all, those of accepted
 * writes, or none. Counts only writes that a previous process of the target, or another member of
 * the chain, may have executed. any: also counts writes that were sent or accepted since the
 * present process was first observed. */
static enum replay_stage what_is_done(const struct target *t, bool any)
{
	enum replay_stage done = t->c->resuming ? DONE_NOTHING : DONE_ALL;

	list_for_each (l, &t->c->unstable_writes) {
		const struct unstable_write *p = list_entry(l, struct unstable_write, link);
		bool open = p->out || p->unknown;

		if (!open || (!any && p->generation >= t->generation) || !is_member(p->chain, t))
			continue;
		if (p->seen)
			return DONE_NOTHING;
		done = done == DONE_ALL ? DONE_SEEN : done;
	}
	return done;
}

/* Sends one oss_replay_done. Returns its status and the server process's incarnation. Yields. */
static int tell(struct target *t, enum replay_stage done, uint64_t *ret_incarnation)
{
	struct client *c = t->c;
	struct oss_replay_done_req req = {.done = (uint8_t)done, .leases = c->leases_gone};
	struct oss_replay_done_rep rep = {0};
	struct rpc_call call = {
		.op = OP_oss_replay_done,
		.flags = RPC_CALL_NO_WAIT,
		.req = &req,
		.rep = &rep,
		.session = c->session,
		.target = t->id,
		.deadline_us = loop_deadline_ms(CALL_MS),
	};
	int rc = t->rpc != NULL ? rpc_call(t->rpc, &call) : -LE_DISCONNECTED;

	rpc_call_fini(&call);
	*ret_incarnation = rep.incarnation;
	return rc;
}

/* Reports progress to the target until everything is repeated. Returns 0 when done, or when a new
 * connection requires a new start; else the error of the request. Yields. */
static int reclaim(struct target *t)
{
	struct client *c = t->c;
	enum replay_stage done = what_is_done(t, true);
	uint64_t incarnation;

	TRY(tell(t, done, &incarnation));
	if (incarnation != t->incarnation) {
		t->generation = ++c->server_generations;
		t->incarnation = incarnation;
		t->told = DONE_NOTHING;
	}
	t->told = done > t->told ? done : t->told;
	while (t->told != DONE_ALL && !t->crash_replay_again && !c->stopping) {
		done = what_is_done(t, false);
		if (done <= t->told) {
			(void)!waitq_wait(&c->unstable_q, loop_deadline_ms(POLL_MS));
			continue;
		}
		TRY(tell(t, done, &incarnation));
		if (incarnation == t->incarnation)
			t->told = done;
	}
	return 0;
}

static void crash_replay_fiber(void *arg)
{
	struct target *t = arg;
	struct client *c = t->c;

	do {
		int rc;

		t->crash_replay_again = false;
		rc = reclaim(t);
		/* Without a connection the report is sent again over the next one. */
		if (rc < 0 && status_retry(rc) != RETRY_NEVER && t->up) {
			(void)!fiber_sleep_us(POLL_MS * 1000);
			t->crash_replay_again = true;
		}
	} while (t->crash_replay_again && !c->stopping);
	t->crash_replaying = false;
	client_bg_end(c);
}

void crash_replay_start(struct target *t)
{
	t->crash_replay_again = true;
	/* A client that is being destroyed starts no new report. */
	if (t->crash_replaying || t->c->session == 0 || t->c->stopping)
		return;
	t->crash_replaying = true;
	if (client_bg_spawn(t->c, "oss_reclaim", crash_replay_fiber, t) < 0)
		t->crash_replaying = false;
}

void crash_replay_resumed(struct client *c)
{
	c->resuming = false;
	waitq_wake_all(&c->unstable_q);
}

void ll_previous_pages_gone(struct client *c)
{
	c->leases_gone = c->seq_base;
	for (struct hmap_node *n = hmap_next(&c->map.targets, NULL); n != NULL;
	     n = hmap_next(&c->map.targets, n)) {
		struct target *t = container_of(n, struct target, node);

		/* A target that is down has no leases left, and gets the report when it is back. */
		if (t->state != TARGET_UP || target_connect(t) < 0)
			continue;
		if (t->up)
			crash_replay_start(t);
	}
}
