#include "client/reclaim.h"

#include "client/client.h"

#define CALL_MS 2000u
#define LOOK_MS 100u /* the members of a chain may change meanwhile */

/* ---- promises ---- */

static void accepted(void *arg)
{
	struct promise *p = arg;

	p->life = p->c->lives;
	waitq_wake_all(&p->c->promise_q);
	if (p->accepted != NULL)
		p->accepted(p->accepted_arg);
}

void promise_begin(struct promise *p, struct client *c, struct rpc_call *call)
{
	*p = (struct promise){
		.c = c, .accepted = call->accepted, .accepted_arg = call->accepted_arg};
	call->accepted = accepted;
	call->accepted_arg = p;
	list_push(&c->promises, &p->link);
}

void promise_sent(struct promise *p, const struct chain *ch, struct rpc_call *call)
{
	p->chain = ch;
	p->out = true;
	if (!p->unknown)
		p->life = p->c->lives;
	call->again = p->unknown;
}

void promise_heard(struct promise *p, const struct rpc_call *call, int status)
{
	bool silent = status == -LE_DISCONNECTED || status == -LE_TIMEDOUT || status == -LE_INTR ||
		      status == -LE_SHUTDOWN;

	p->out = false;
	p->unknown |= silent && call->ret_sent;
	waitq_wake_all(&p->c->promise_q);
}

void promise_end(struct promise *p, struct rpc_call *call)
{
	call->accepted = p->accepted;
	call->accepted_arg = p->accepted_arg;
	list_remove(&p->link);
	waitq_wake_all(&p->c->promise_q);
}

/* ---- telling the target ---- */

static bool is_member(const struct chain *ch, const struct target *t)
{
	for (uint32_t i = 0; i < ch->n_members; i++)
		if (ch->members[i].target == t)
			return true;
	return false;
}

/* Is there a change that a process of the target before this one, or of another member, may have
 * carried out? any: whatever has been heard since. */
static bool has_to_repeat(const struct target *t, bool any)
{
	list_for_each (l, &t->c->promises) {
		const struct promise *p = list_entry(l, struct promise, link);

		if ((p->out || p->unknown) && (any || p->life < t->life) && is_member(p->chain, t))
			return true;
	}
	return false;
}

static int tell(struct target *t, bool done, uint64_t *ret_incarnation)
{
	struct client *c = t->c;
	struct oss_reclaim_req req = {.done = done, .leases = c->leases_gone};
	struct oss_reclaim_rep rep = {0};
	struct rpc_call call = {
		.op = OP_oss_reclaim,
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

/* 0: told, or somebody has to begin anew. */
static int reclaim(struct target *t)
{
	struct client *c = t->c;
	bool done = !has_to_repeat(t, true);
	uint64_t incarnation;

	TRY(tell(t, done, &incarnation));
	if (incarnation != t->incarnation) {
		t->life = ++c->lives;
		t->incarnation = incarnation;
		t->reclaimed = false;
	}
	t->reclaimed |= done;
	while (!t->reclaimed && !t->reclaim_again && !c->stopping) {
		if (has_to_repeat(t, false)) {
			(void)!waitq_wait(&c->promise_q, loop_deadline_ms(LOOK_MS));
			continue;
		}
		TRY(tell(t, true, &incarnation));
		t->reclaimed = incarnation == t->incarnation;
	}
	return 0;
}

static void reclaim_fiber(void *arg)
{
	struct target *t = arg;
	struct client *c = t->c;

	do {
		int rc;

		t->reclaim_again = false;
		rc = reclaim(t);
		/* What could not be told for want of a connection is told over the next one. */
		if (rc < 0 && status_retry(rc) != RETRY_NEVER && t->up) {
			(void)!fiber_sleep_us(LOOK_MS * 1000);
			t->reclaim_again = true;
		}
	} while (t->reclaim_again && !c->stopping);
	t->reclaiming = false;
	client_bg_end(c);
}

void reclaim_start(struct target *t)
{
	t->reclaim_again = true;
	/* When the client ends nobody waits any more for what begins now. */
	if (t->reclaiming || t->c->session == 0 || t->c->stopping)
		return;
	t->reclaiming = true;
	if (client_bg_spawn(t->c, "oss_reclaim", reclaim_fiber, t) < 0)
		t->reclaiming = false;
}

void ll_former_pages_gone(struct client *c)
{
	c->leases_gone = c->seq_base;
	for (struct hmap_node *n = hmap_next(&c->map.targets, NULL); n != NULL;
	     n = hmap_next(&c->map.targets, n)) {
		struct target *t = container_of(n, struct target, node);

		/* Who is down has forgotten them, and is told when it is back. */
		if (t->state != TARGET_UP || target_connect(t) < 0)
			continue;
		if (t->up)
			reclaim_start(t);
	}
}
