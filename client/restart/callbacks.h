/* SPDX-License-Identifier: Apache-2.0 */
/* Dispatches callbacks of the metadata server. Owned by the client's loop. */
#ifndef LEAT_CLIENT_RESTART_CALLBACKS_H
#define LEAT_CLIENT_RESTART_CALLBACKS_H

#include <stdint.h>

struct rpc_client;

/* Handles one callback of the MDS (arg: the client). Returns the status of the reply; -LE_NOT_READY
 * until this client has reported its open files. Yields. */
int session_callback(void *arg, struct rpc_client *rpc, uint16_t op, const void *req, void *rep);

#endif
