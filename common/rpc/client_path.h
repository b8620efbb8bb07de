/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses where a client connects, and moves it to a better address. Owned by the client's loop;
 * inside of common/rpc only.
 */
#ifndef LEAT_COMMON_RPC_CLIENT_PATH_H
#define LEAT_COMMON_RPC_CLIENT_PATH_H

#include "common/rpc/client_impl.h"

/* Adds the configured addresses as candidates. Does not yield. -LE_INVAL, -LE_NOMEM */
int paths_init(struct rpc_client *c, const char *addrs) CHECK_RESULT;
/* Starts the fiber that connects the path and reconnects it. Does not yield. */
int path_start(struct path *path) CHECK_RESULT;

#endif
