/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chain/downstream_space.h"

#define RENEW_US  500000u
#define CALL_MS   1000u
#define PEERS_MAX 64u /* members queried in a round; further ones are not queried */

struct round {
	struct chains *cs;
	uint32_t asked[PEERS_MAX];
	uint32_t n;
	uint64_t least; /* UINT64_MAX: no members downstream */
};

static bool is_new(struct round *r, uint32_t target)
{
	for (uint32_t i = 0; i < r->n; i++)
		if (r->asked[i] == target)
			return false;
	if (r->n == PEERS_MAX)
		return false;
	r->asked[r->n++] = target;
	return true;
}

/* Renews the grant at one member. A member that does not answer is not counted: writes wait for it
 * anyway. */
static void ask(struct round *r, struct chain *c, uint32_t target)
{
	struct chains *cs = r->cs;
	struct oss_grant_req req = {.want = cs->store->p->grant_max};
	struct oss_grant_rep rep = {0};
	struct rpc_call call = {.op = OP_oss_grant,
				.req = &req,
				.rep = &rep,
				.session = SESSION_CHAIN | cs->target,
				.deadline_us = loop_deadline_ms(CALL_MS)};
	int rc = chain_call(c, target, &call);

	if (rc == 0 && rep.grant < r->least)
		r->least = rep.grant;
	rpc_call_fini(&call);
}

static void renew(struct chains *cs)
{
	struct round r = {.cs = cs, .least = UINT64_MAX};

	for (struct chain *c = chain_next(cs, NULL); c; c = chain_next(cs, c))
		for (uint32_t i = 1; chain_is_head(c) && i < c->n_sync; i++)
			if (c->phase == CHAIN_SERVING && is_new(&r, c->members[i].target))
				ask(&r, c, c->members[i].target);
	cs->store->space.promise_max = r.least;
}

static void downstream_space_main(void *arg)
{
	struct chains *cs = arg;

	while (!cs->stopping) {
		renew(cs);
		int rc = waitq_wait(&cs->stop, env_now_us(cs->env) + RENEW_US);
		(void)rc;
	}
	latch_done(&cs->fibers);
}

int downstream_space_start(struct chains *cs)
{
	int rc;

	latch_add(&cs->fibers, 1);
	rc = fiber_spawn("chain-reserve", downstream_space_main, cs);
	if (rc < 0)
		latch_done(&cs->fibers);
	return rc;
}
