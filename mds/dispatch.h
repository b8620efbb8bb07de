/* The table of handlers that rpc serves: one function, which finds the operation (op.h). */
#ifndef LEAT_MDS_DISPATCH_H
#define LEAT_MDS_DISPATCH_H

#include "common/rpc/rpc.h"

const struct rpc_handler *dispatch_handlers(uint32_t *ret_n);

#endif
