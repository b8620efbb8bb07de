/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counted memory regions of devices, and rate limits of log messages. Inside of common/rpc/verbs
 * only.
 */
#ifndef LEAT_COMMON_RPC_VERBS_VERBS_REGION_H
#define LEAT_COMMON_RPC_VERBS_VERBS_REGION_H

#include "common/rpc/verbs/verbs_impl.h"

/* Registers memory and counts it; under the lock. NULL: failed, logged, and *ret_status is set. */
struct ibv_mr *verbs_register(struct verbs_device *dev, void *base, uint64_t len, int access,
			      int *ret_status);
/* Like verbs_register. Called under the lock, and releases it during the registration. */
struct ibv_mr *verbs_register_apart(struct verbs_device *dev, void *base, uint64_t len, int access,
				    int *ret_status);
/* Under the lock. */
void verbs_deregister(struct verbs_device *dev, struct ibv_mr *mr);

/* True if this kind may be logged now: once a minute each. Any loop, with or without the lock. */
enum verbs_trouble { TROUBLE_MEMORY, TROUBLE_REGIONS, TROUBLE_QPS, TROUBLE_ADDR, TROUBLE_ROUTE,
		     TROUBLE_QUEUES, TROUBLE_PEER, TROUBLE_WAY };

bool verbs_may_log(struct verbs *v, enum verbs_trouble what);

#endif
