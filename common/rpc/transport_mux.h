/*
 * Tcp and, where it is built in and there is a device, verbs behind one transport: what programs
 * use. Addresses say by their scheme which one carries them; those without a scheme stand for
 *
 *   transport   listening at host:port            connecting to host:port
 *   auto        tcp there, verbs at port + 100     tcp; the handshake tells the verbs addresses
 *   verbs       verbs at port + 100                verbs at port + 100
 *   tcp         tcp there                          tcp
 *
 * A link belongs to the transport that made it, so nothing is added to the data path.
 */
#ifndef LEAT_RPC_TRANSPORT_MUX_H
#define LEAT_RPC_TRANSPORT_MUX_H

#include "common/rpc/transport.h"

enum transport_mode { TRANSPORT_AUTO, TRANSPORT_VERBS, TRANSPORT_TCP };

/* mode: "auto", "verbs" or "tcp" (the parameter of [cluster]). -LE_CONFIG with a log line: none of
 * them, or verbs where there is none. Blocking: at start. */
int transport_mux_create(const char *mode, struct transport **ret_transport) CHECK_RESULT;
/* The same, from parts that are made (tests); taken over also on failure, verbs may be NULL: then
 * why says why. */
int transport_mux_of(enum transport_mode mode, struct transport *tcp, struct transport *verbs,
		     const char *why, struct transport **ret_transport) CHECK_RESULT;

#endif
