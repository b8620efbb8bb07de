/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices, their limits and events, and the pools registered with them. Inside of
 * common/rpc/verbs only.
 */
#ifndef LEAT_COMMON_RPC_VERBS_VERBS_DEVICE_H
#define LEAT_COMMON_RPC_VERBS_VERBS_DEVICE_H

#include "common/rpc/verbs/verbs_impl.h"

/* Returns the device of a context; at the first use opens it and registers all pools. */
int verbs_device_get(struct verbs *v, struct ibv_context *ctx,
		     struct verbs_device **ret_dev) CHECK_RESULT;
/* Opens all devices: for a server that listens on every address. */
int verbs_device_all(struct verbs *v) CHECK_RESULT;
void verbs_device_close(struct verbs_device *dev);
/* Makes the verbs loop's loop read the asynchronous events of the device, if no loop does yet. */
int verbs_device_watch(struct verbs_device *dev, struct verbs_loop *vl) CHECK_RESULT;
/* True if the port is down; for a new connection. Queries the device each time, because no loop
 * reads its events while the process has no connection. */
bool verbs_device_port_down(struct verbs_device *dev, int port);
/* Registers a pool with all devices in use, and with later ones; see add_pool in transport.h. */
int verbs_pool_add(struct verbs *v, struct slot_pool *pool, enum pool_use use) CHECK_RESULT;
void verbs_pools_free(struct verbs *v);

#endif
