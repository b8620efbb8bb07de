/* SPDX-License-Identifier: Apache-2.0 */
/* Dispatch of requests from rpc to their operations. */
#ifndef LEAT_MDS_DISPATCH_H
#define LEAT_MDS_DISPATCH_H

#include "common/rpc/rpc.h"

struct op;

/* The handlers that rpc serves. *ret_n: how many. */
const struct rpc_handler *dispatch_handlers(uint32_t *ret_n);
/* Finds operation and session of a request, checks exports and replay rows, executes it, and gives
 * leases. op: as op_init has made it, op->r set if there is an rpc request. in, out: as rpc has
 * decoded them. Returns the status of the reply. Yields. */
int op_run(struct op *op, const struct frame_hdr *hdr, const void *in, void *out) CHECK_RESULT;

#endif
