/* SPDX-License-Identifier: Apache-2.0 */
/* The table from operations to handlers. */
#ifndef LEAT_OSSD_DISPATCH_H
#define LEAT_OSSD_DISPATCH_H

#include "common/rpc/rpc.h"

extern const struct rpc_handler ossd_handlers[];
extern const uint32_t n_ossd_handlers;

#endif
