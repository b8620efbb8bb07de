/* SPDX-License-Identifier: Apache-2.0 */

#include "client/stage/agent/agent_net.h"

#include <stdlib.h>

#include "client/leat_impl.h"
#include "common/rpc/net_report.h"
#include "common/rpc/rpc.h"

#define NET_BYTES (100u << 10)

static void add_conn(void *arg, void *conn)
{
	rpc_client_totals(conn, arg);
}

/* Includes connections to servers, to other nodes, and from other nodes. */
void agent_net_sample(struct agent *a)
{
	struct rpc_net_totals net = a->swarm_net.ended;
	ll_net_totals(a->fs->client, &net);
	rpc_server_totals(a->server, &net);
	list_for_each (pos, &a->jobs) {
		const struct agent_job *j = list_entry(pos, struct agent_job, link);
		if (j->swarm)
			swarm_conns(j->swarm, add_conn, &net);
	}
	NET_METRICS_SET(&a->metrics, &net);
}

static void add_asker(void *arg, const struct rpc_net *n)
{
	net_report_add(arg, NULL, n);
}

static void add_asked(void *arg, const struct rpc_net *n)
{
	net_report_add(arg, "node", n);
}

static void add_node(void *arg, void *conn)
{
	rpc_client_net(conn, add_asked, arg);
}

char *agent_net(struct agent *a)
{
	char *text = malloc(NET_BYTES);
	struct net_report r;
	if (!text)
		return NULL;
	net_report_begin(&r, text, NET_BYTES, a->fs->transport, 0);
	rpc_server_net(a->server, add_asker, &r);
	list_for_each (pos, &a->jobs) {
		const struct agent_job *j = list_entry(pos, struct agent_job, link);
		if (j->swarm)
			swarm_conns(j->swarm, add_node, &r);
	}
	ll_net_add(a->fs->client, &r);
	net_report_end(&r);
	return text;
}
