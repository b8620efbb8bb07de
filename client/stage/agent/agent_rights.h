/* SPDX-License-Identifier: Apache-2.0 */
/* Which peers an agent serves: none from a network with fewer rights than that of this node. */
#ifndef LEAT_CLIENT_STAGE_AGENT_AGENT_RIGHTS_H
#define LEAT_CLIENT_STAGE_AGENT_AGENT_RIGHTS_H

#include "client/stage/agent/agent.h"
#include "common/rpc/rpc.h"

/* Checks that the peer has the rights `need` (enum peer_less). -LE_PERM: its network lacks one
 * that this node has; -LE_AGAIN: the metadata server does not answer which it has. Yields. */
int agent_admit(struct agent *a, const struct rpc_peer *p, uint32_t need) CHECK_RESULT;

#endif
