/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logs when a client's server cannot be reached. Inside of common/rpc only; owned by the client's
 * loop.
 */
#ifndef LEAT_COMMON_RPC_CLIENT_UNREACHABLE_H
#define LEAT_COMMON_RPC_CLIENT_UNREACHABLE_H

#include "common/rpc/client_impl.h"

/* Stops the reports. Does not yield. */
void client_away_end(struct rpc_client *c);

#endif
