/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of mds_proto.h: one file of ops/ for each, or for a few related ones. Only
 * dispatch.c calls them. in and out: request and reply, as rpc has decoded them. */
#ifndef LEAT_MDS_OPS_OPS_H
#define LEAT_MDS_OPS_OPS_H

#include "mds/op.h"

#define OP_DECLARE(num, name, kind) int name(struct op *op, const void *in, void *out) CHECK_RESULT;
MDS_OPS(OP_DECLARE)

#endif
