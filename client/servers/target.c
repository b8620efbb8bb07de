/* SPDX-License-Identifier: Apache-2.0 */
#include "client/servers/target.h"

#include <stddef.h>

#include "client/client.h"
#include "common/rpc/rpc.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

/* How long a connection is awaited before the map is fetched again: the member may have left the
 * chain. */
#define CONNECT_WAIT_US 20000u

static void destroy_rpc_fiber(void *arg)
{
	rpc_client_destroy(arg);
}

void target_drop_rpc(struct target *t)
{
	struct rpc_client *old = t->rpc;

	t->rpc = NULL;
	t->up = t->lost = false;
	t->incarnation = 0;
	if (fiber_spawn("target_moved", destroy_rpc_fiber, old) < 0)
		rpc_client_destroy(old);
}

static int target_connected(void *arg, struct rpc_client *rpc)
{
	struct target *t = arg;

	if (t->rpc == rpc) {
		t->up = true;
		t->lost = false;
		waitq_wake_all(&t->up_q);
		t->c->map.connected(t);
	}
	return 0;
}

static void target_disconnected(void *arg, struct rpc_client *rpc, int why)
{
	struct target *t = arg;

	(void)why;
	/* The server may have restarted without the grant. */
	t->grant = 0;
	t->grant_asked_us = 0;
	if (t->rpc == rpc) {
		t->up = false;
		t->lost = true;
	}
}

int target_connect(struct target *t)
{
	struct client *c = t->c;
	struct rpc_client_options opts = {
		.transport = c->transport,
		.addrs = t->addrs,
		.name = c->name,
		.role = ROLE_CLIENT,
		.key = c->key,
		.cluster = *rpc_client_cluster(c->mds),
		.loop = t->loop,
		.in_flight_max = CLIENT_IN_FLIGHT_MAX,
		.rails_max = c->params.rails,
		.arg = t,
		.connected = target_connected,
		.disconnected = target_disconnected,
	};

	if (t->rpc != NULL)
		return 0;
	if (t->addrs[0] == '\0')
		return -LE_NO_TARGET;
	return rpc_client_create(&opts, &t->rpc);
}

int target_await_up(struct target *t, uint64_t deadline_us)
{
	uint64_t until = loop_now_us() + CONNECT_WAIT_US;

	while (!t->up) {
		int rc = waitq_wait(&t->up_q, until < deadline_us ? until : deadline_us);

		if (rc < 0 && !t->up)
			return rc == -LE_TIMEDOUT ? -LE_DISCONNECTED : rc;
	}
	return 0;
}
