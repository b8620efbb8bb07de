#include "client/reclaim.h"

#include "client/client.h"

#define CALL_MS 2000u
#define LOOK_MS 100u /* the members of a chain may change meanwhile */

/* ---- promises ---- */

static void accepted(void *arg)
{
	struct promise *p = arg;

	p->life = p->c->lives;
	p->seen = true;
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
	call->seen = p->unknown && p->seen;
}

void promise_heard(struct promise *p, const struct rpc_call *call, int status)
{
	bool silent = status == -LE_DISCONNECTED || status == -LE_TIMEDOUT || status == -LE_INTR ||
		      status == -LE_SHUTDOWN;

	p->out = false;
	p->unknown |= silent && call->ret_sent;
	/* It was taken back. */
	p->seen = p->seen && status != -LE_ABORTED;
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

/* What need not be repeated any more, of all changes that a process of the target before this one,
 * or of another member, may have carried out. any: whatever has been heard since. */
static enum reclaim_done what_is_done(const struct target *t, bool any)
{
	enum reclaim_done done = t->c->resuming ? DONE_NOTHING : DONE_ALL;

	list_for_each (l, &t->c->promises) {
		const struct promise *p = list_entry(l, struct promise, link);
		bool open = p->out || p->unknown;

		if (!open || (!any && p->life >= t->life) || !is_member(p->chain, t))
			continue;
		if (p->seen)
			return DONE_NOTHING;
		done = done == DONE_ALL ? DONE_SEEN : done;
	}
	return done;
}

static int tell(struct target *t, enum reclaim_done done, uint64_t *ret_incarnation)
{
	struct client *c = t->c;
	struct oss_reclaim_req req = {.done = (uint8_t)done, .leases = c->leases_gone};
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
	enum reclaim_done done = what_is_done(t, true);
	uint64_t incarnation;

	TRY(tell(t, done, &incarnation));
	if (incarnation != t->incarnation) {
		t->life = ++c->lives;
		t->incarnation = incarnation;
		t->told = DONE_NOTHING;
	}
	t->told = done > t->told ? done : t->told;
	while (t->told != DONE_ALL && !t->reclaim_again && !c->stopping) {
		done = what_is_done(t, false);
		if (done <= t->told) {
			(void)!waitq_wait(&c->promise_q, loop_deadline_ms(LOOK_MS));
			continue;
		}
		TRY(tell(t, done, &incarnation));
		if (incarnation == t->incarnation)
			t->told = done;
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

void reclaim_resumed(struct client *c)
{
	c->resuming = false;
	waitq_wake_all(&c->promise_q);
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
