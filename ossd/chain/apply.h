/* SPDX-License-Identifier: Apache-2.0 */
/* Applies a version that the previous member has forwarded: the same change on the same base. */
#ifndef LEAT_OSSD_CHAIN_APPLY_H
#define LEAT_OSSD_CHAIN_APPLY_H

#include "ossd/chain/commit.h"

/* Returns 0 when the version is durable here and at all members downstream (ACCEPTED was sent for
 * r before). Else -LE_STALE_EPOCH, -LE_TIMEDOUT (its base has not arrived), -LE_NOSPC,
 * -LE_CORRUPT, … Yields. */
int chain_apply(struct chain *c, struct rpc_req *r, const struct oss_forward_req *req) CHECK_RESULT;

#endif
