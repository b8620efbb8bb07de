/* Taking a version from the member before: the same change on the same base, or nothing. */
#ifndef LEAT_OSSD_CHAIN_APPLY_H
#define LEAT_OSSD_CHAIN_APPLY_H

#include "ossd/chain/commit.h"

/* 0: it is durable here and at everybody behind (r was told ACCEPTED before). -LE_STALE_EPOCH,
 * -LE_TIMEDOUT (its base has not come), -LE_NOSPC, -LE_CORRUPT, … Yields. */
int chain_apply(struct chain *c, struct rpc_req *r, const struct oss_forward_req *req) CHECK_RESULT;

#endif
