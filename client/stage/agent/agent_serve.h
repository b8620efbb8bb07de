/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of other nodes and of the command line to an agent: chunks, jobs, their state. */
#ifndef LEAT_CLIENT_STAGE_AGENT_AGENT_SERVE_H
#define LEAT_CLIENT_STAGE_AGENT_AGENT_SERVE_H

#include "client/stage/agent/agent.h"

/* Handlers of the rpc server; their argument is the agent. */
extern const struct rpc_handler agent_handlers[];
extern const uint32_t n_agent_handlers;
/* Closes the copy `id` that is open for serving, or with NULL all copies, unless a request uses
 * it. Yields. */
void agent_served_drop(struct agent *a, const char *id);

#endif
