/* SPDX-License-Identifier: Apache-2.0 */
/* Network statistics of a client's connections, for ll.h. */

#include <stdio.h>

#include "client/client.h"
#include "client/ll.h"
#include "client/servers/target.h"
#include "common/base/assert.h"
#include "common/base/hmap.h"
#include "common/rpc/net_report.h"
#include "common/rpc/rpc.h"

struct adding {
	struct net_report *r;
	char to[32];
};

static void add(void *arg, const struct rpc_net *n)
{
	struct adding *a = arg;

	net_report_add(a->r, a->to, n);
}

static struct target *next_target(struct client *c, struct target *t)
{
	struct hmap_node *n = hmap_next(&c->map.targets, t != NULL ? &t->node : NULL);

	return n != NULL ? container_of(n, struct target, node) : NULL;
}

void ll_net_add(struct client *c, struct net_report *r)
{
	struct adding a = {.r = r, .to = "mds"};

	if (c->mds != NULL)
		rpc_client_net(c->mds, add, &a);
	for (struct target *t = next_target(c, NULL); t != NULL; t = next_target(c, t)) {
		if (t->rpc == NULL)
			continue;
		snprintf(a.to, sizeof(a.to), "target %u", t->id);
		rpc_client_net(t->rpc, add, &a);
	}
}

size_t ll_net(struct client *c, uint32_t from, char *buf, size_t size)
{
	struct net_report r;

	net_report_begin(&r, buf, size, c->transport, from);
	ll_net_add(c, &r);
	return net_report_end(&r);
}

void ll_net_totals(struct client *c, struct rpc_net_totals *totals)
{
	if (c->mds != NULL)
		rpc_client_totals(c->mds, totals);
	for (struct target *t = next_target(c, NULL); t != NULL; t = next_target(c, t))
		if (t->rpc != NULL)
			rpc_client_totals(t->rpc, totals);
}
