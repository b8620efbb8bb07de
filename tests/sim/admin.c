/* SPDX-License-Identifier: Apache-2.0 */
/* See admin.h. */
#include "tests/sim/admin.h"

#include "common/base/log.h"
#include "common/rpc/rpc.h"
#include "common/rt/loop.h"

#define CALL_MS 2000u

struct admin {
	struct cluster *c;
	struct rpc_client *client;
	uint32_t drained; /* bit i: target i was ordered to drain */
};

static uint64_t rnd(struct admin *a, uint64_t n)
{
	return sim_random_below(a->c->sim, n);
}

static int order(struct admin *a, enum target_admin what, uint32_t target)
{
	struct mds_target_admin_req req = {what, target};
	struct mds_target_admin_rep rep;
	struct rpc_call call = {.op = OP_mds_target_admin,
				.req = &req,
				.rep = &rep,
				.deadline_us = loop_deadline_ms(CALL_MS)};
	int rc = rpc_call(a->client, &call);

	rpc_call_fini(&call);
	log_debug("admin: order %d for target %u: %s", what, target, status_name(rc));
	a->c->count.orders += rc == 0;
	return rc;
}

/* An order whose reply was lost may have been executed: the bit stays set until a reply says that
 * the target is not drained. */
static void draw_order(struct admin *a)
{
	uint32_t target = 1 + (uint32_t)rnd(a, N_OSSD);

	if (rnd(a, 5) == 0) {
		(void)!order(a, TARGET_ADMIN_REBALANCE, 0);
	} else if (a->drained == 0) {
		a->drained |= 1u << target;
		(void)!order(a, TARGET_ADMIN_DRAIN, target);
	}
}

static void take_back(struct admin *a)
{
	for (uint32_t t = 1; t <= N_OSSD; t++)
		if ((a->drained & 1u << t) != 0 && order(a, TARGET_ADMIN_UNDRAIN, t) == 0)
			a->drained &= ~(1u << t);
}

static void admin_main(struct loop *loop, void *arg)
{
	struct node *n = arg;
	struct admin a = {.c = n->cluster};
	struct rpc_client_options o = {.transport = a.c->transport,
				       .addrs = a.c->mds.addr,
				       .name = "admin",
				       .role = ROLE_TOOL,
				       .key = a.c->key,
				       .backoff_max_ms = 100};

	/* Contended seeds are short. */
	uint64_t pause_us = n->cluster->plan.contended ? 800000 : 3000000;

	n->loop = loop;
	n->running = true;
	if (rpc_client_create(&o, &a.client) < 0) {
		cluster_fail(a.c, "the administrator cannot start");
		return;
	}
	while (a.c->faults_on && !a.c->failed) {
		(void)!fiber_sleep_us(1 + rnd(&a, pause_us));
		draw_order(&a);
		(void)!fiber_sleep_us(1 + rnd(&a, 2 * pause_us));
		take_back(&a);
	}
	while (a.drained != 0 && !a.c->failed) {
		take_back(&a);
		(void)!fiber_sleep_us(100000);
	}
	rpc_client_destroy(a.client);
	a.c->admin_done = true;
}

void admin_start(struct cluster *c)
{
	int status = sim_proc_start(c->admin.proc, admin_main, &c->admin);

	if (status < 0)
		cluster_fail(c, "admin: %s", status_name(status));
}
