/* SPDX-License-Identifier: Apache-2.0 */
/* The rights of all copies in the agent's directories, brought in line with their sources. */
#ifndef LEAT_CLIENT_STAGE_AGENT_AGENT_AGE_H
#define LEAT_CLIENT_STAGE_AGENT_AGENT_AGE_H

#include "client/stage/agent/agent.h"

/* Runs as a fiber (struct agent *): checks all copies every rights_ms until the agent stops.
 * Yields. */
void agent_age_fiber(void *agent);

#endif
