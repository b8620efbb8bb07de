/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests at a server, from arrival to reply. Owned by the server's loop; inside of common/rpc
 * only.
 */
#ifndef LEAT_COMMON_RPC_RPC_REQUEST_H
#define LEAT_COMMON_RPC_RPC_REQUEST_H

#include "common/rpc/server_impl.h"

/* Handles a request frame: starts its fiber or replies with an error. An error returned must end
 * the connection. Yields. */
int request_arrived(struct server_conn *sc, const struct link_rx *rx) CHECK_RESULT;
/* Handles CANCEL: marks the request and releases the client's memory as soon as no transfer uses
 * it. Yields. */
void request_cancel(struct server_conn *sc, uint64_t id);
/* The connection has ended: marks all its running requests as cancelled. */
void request_cancel_all(struct server_conn *sc);
/* Interrupts the fibers of all running requests of the connection. */
void request_interrupt_all(struct server_conn *sc);
void request_pool_free(struct rpc_server *s);

#endif
