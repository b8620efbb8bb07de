/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport over TCP.
 */
#ifndef LEAT_COMMON_RPC_TRANSPORT_TRANSPORT_TCP_H
#define LEAT_COMMON_RPC_TRANSPORT_TRANSPORT_TCP_H

#include "common/rpc/transport/transport.h"

int transport_tcp_create(struct transport **ret_transport) CHECK_RESULT;

#endif
