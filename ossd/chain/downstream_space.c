/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chain/downstream_space.h"

#include <stdlib.h>

#define RENEW_US  500000u
#define CALL_MS   1000u
#define PEERS_MAX 256u /* members queried in a round; further ones are not queried */

struct peer {
	uint32_t target;
	bool asked;     /* in this round */
	uint64_t grant; /* its last answer; UINT64_MAX: none yet */
};

/* Owned by the fiber. */
struct downstream {
	struct chains *cs;
	struct peer peers[PEERS_MAX];
	uint32_t n;
};

/* Returns the peer if it is not queried in this round yet, else NULL. */
static struct peer *next_peer(struct downstream *d, uint32_t target)
{
	for (uint32_t i = 0; i < d->n; i++)
		if (d->peers[i].target == target)
			return d->peers[i].asked ? NULL : &d->peers[i];
	if (d->n == PEERS_MAX)
		return NULL;
	d->peers[d->n] = (struct peer){.target = target, .grant = UINT64_MAX};
	return &d->peers[d->n++];
}

/* Renews the grant at one member. A member that does not answer keeps the grant of its last
 * answer. */
static void ask(struct downstream *d, struct chain *c, struct peer *p)
{
	struct chains *cs = d->cs;
	struct oss_grant_req req = {.want = cs->store->p->grant_max};
	struct oss_grant_rep rep = {0};
	struct rpc_call call = {.op = OP_oss_grant,
				.req = &req,
				.rep = &rep,
				.session = SESSION_CHAIN | cs->target,
				.deadline_us = loop_deadline_ms(CALL_MS)};

	p->asked = true;
	if (chain_call(c, p->target, &call) == 0)
		p->grant = rep.grant;
	rpc_call_fini(&call);
}

/* Ends a round: drops the peers that are not downstream any more. Returns the least grant, or
 * UINT64_MAX if there is none. */
static uint64_t end_round(struct downstream *d)
{
	uint64_t least = UINT64_MAX;
	uint32_t n = 0;

	for (uint32_t i = 0; i < d->n; i++) {
		struct peer p = d->peers[i];

		if (!p.asked)
			continue;
		if (p.grant < least)
			least = p.grant;
		p.asked = false;
		d->peers[n++] = p;
	}
	d->n = n;
	return least;
}

static void renew(struct downstream *d)
{
	struct chains *cs = d->cs;

	for (struct chain *c = chain_next(cs, NULL); c; c = chain_next(cs, c))
		for (uint32_t i = 1; chain_is_head(c) && i < c->n_sync; i++) {
			struct peer *p = c->phase == CHAIN_SERVING
						 ? next_peer(d, c->members[i].target)
						 : NULL;

			if (p)
				ask(d, c, p);
		}
	cs->store->space.promise_max = end_round(d);
}

static void downstream_space_main(void *arg)
{
	struct downstream *d = arg;
	struct chains *cs = d->cs;

	while (!cs->stopping) {
		renew(d);
		int rc = waitq_wait(&cs->stop, env_now_us(cs->env) + RENEW_US);
		(void)rc;
	}
	free(d);
	latch_done(&cs->fibers);
}

int downstream_space_start(struct chains *cs)
{
	struct downstream *d = calloc(1, sizeof(*d));
	int rc;

	if (!d)
		return -LE_NOMEM;
	d->cs = cs;
	latch_add(&cs->fibers, 1);
	rc = fiber_spawn("chain-reserve", downstream_space_main, d);
	if (rc < 0) {
		latch_done(&cs->fibers);
		free(d);
	}
	return rc;
}
