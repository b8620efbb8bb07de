/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tcp and, where it is built in and a device exists, verbs as one transport: the one that programs
 * use. The scheme of an address selects the transport. An address without a scheme stands for
 *
 *    transport   listening at host:port             connecting to host:port
 *    auto        tcp there, verbs at port + 100     tcp; the handshake sends the verbs addresses
 *    verbs       verbs at port + 100                verbs at port + 100
 *    tcp         tcp there                          tcp
 *
 * A link belongs to the transport that made it, so the data path has no overhead.
 */
#ifndef LEAT_COMMON_RPC_TRANSPORT_TRANSPORT_MUX_H
#define LEAT_COMMON_RPC_TRANSPORT_TRANSPORT_MUX_H

#include "common/rpc/transport/transport.h"

enum transport_mode { TRANSPORT_AUTO, TRANSPORT_VERBS, TRANSPORT_TCP };

/* mode: "auto", "verbs" or "tcp" (the parameter of [cluster]). -LE_CONFIG with a log line: another
 * word, or verbs on a machine without it. Blocking: at start. */
int transport_mux_create(const char *mode, struct transport **ret_transport) CHECK_RESULT;
/* Like transport_mux_create, from existing transports (tests). Takes them over, also on failure.
 * verbs may be NULL: then `why` is the reason. */
int transport_mux_of(enum transport_mode mode, struct transport *tcp, struct transport *verbs,
		     const char *why, struct transport **ret_transport) CHECK_RESULT;

#endif
