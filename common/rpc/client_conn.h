/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection of a client, from the handshake to its end. Owned by the client's loop; inside of
 * common/rpc only.
 */
#ifndef LEAT_COMMON_RPC_CLIENT_CONN_H
#define LEAT_COMMON_RPC_CLIENT_CONN_H

#include "common/rpc/client_impl.h"

/* Connects and performs the handshake. The caller gets the only reference. Yields. */
int client_conn_open(struct path *path, const struct candidate *at, uint64_t timeout_ms,
		     struct client_conn **ret_cc) CHECK_RESULT;
/* Starts the connection's reader, which holds a reference, and the connected hook. */
int client_conn_start(struct client_conn *cc) CHECK_RESULT;
/* Sends GOODBYE and ends the connection; no call may be in flight on it. Yields. */
void client_conn_retire(struct client_conn *cc);

#endif
