/* SPDX-License-Identifier: Apache-2.0 */
/* Repair of READY copies after a peer has reported damage. */
#ifndef LEAT_CLIENT_STAGE_AGENT_AGENT_HEAL_H
#define LEAT_CLIENT_STAGE_AGENT_AGENT_HEAL_H

#include "client/stage/agent/agent.h"

/* Records that a peer has reported a damaged chunk of a READY copy here; a fiber checks it
 * later. -LE_NOENT: no such copy is READY here; -LE_BUSY: too many reports of this peer, or of
 * all, are unchecked. Yields. */
int agent_damaged(struct agent *a, const char *peer, const char *id, uint64_t chunk) CHECK_RESULT;

#endif
