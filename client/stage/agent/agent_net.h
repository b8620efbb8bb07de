/* SPDX-License-Identifier: Apache-2.0 */
/* The connections of an agent: to servers, to other nodes, and from other nodes. */
#ifndef LEAT_CLIENT_STAGE_AGENT_AGENT_NET_H
#define LEAT_CLIENT_STAGE_AGENT_AGENT_NET_H

#include "client/stage/agent/agent.h"

/* Describes the traffic of each connection, in the format of common/rpc/net_report.h: malloc'd,
 * NULL without memory. Does not yield. */
char *agent_net(struct agent *a);
/* Sets the metrics of the connections. Does not yield. */
void agent_net_sample(struct agent *a);

#endif
