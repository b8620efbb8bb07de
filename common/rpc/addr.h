/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses of servers, as in configuration files and in the handshake: "host:port",
 * "tcp:host:port" or "verbs:host:port". Without a scheme the transport chooses (transport_mux.c).
 * Plain functions on text, without name lookup.
 */
#ifndef LEAT_COMMON_RPC_ADDR_H
#define LEAT_COMMON_RPC_ADDR_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"

enum addr_scheme { ADDR_ANY, ADDR_TCP, ADDR_VERBS };

/* Scheme, host and port of one address. */
#define ADDR_TEXT_SIZE 80
/* A list of addresses, as a server sends it in the handshake. */
#define ADDR_LIST_SIZE 512
/* Distance of the verbs listener from the server's TCP port. iWARP shares the port space of TCP, so
 * the two ports must differ. */
#define ADDR_VERBS_PORT 100u

/* Returns the scheme; *ret_rest points to the rest of addr after it. "tcp:7440" is port 7440 of a
 * host named tcp. */
enum addr_scheme addr_split(const char *addr, const char **ret_rest);
static inline bool addr_is_verbs(const char *addr)
{
	const char *rest;

	return addr_split(addr, &rest) == ADDR_VERBS;
}
const char *addr_scheme_name(enum addr_scheme scheme);
/* True if the host (of "host:port", without scheme) is "0.0.0.0", "[::]" or "*". */
bool addr_is_wildcard(const char *rest);
/* Writes "scheme:host:port" with the port raised by add; port 0 (any port) stays 0. -LE_CONFIG:
 * rest has no port, the port exceeds 65535, or the text is too long. */
int addr_make(enum addr_scheme scheme, const char *rest, unsigned add,
	      char ret_addr[ADDR_TEXT_SIZE]) CHECK_RESULT;
/* Replaces the star of "scheme:*:port" by the host of `of` (any scheme); copies other addresses
 * unchanged. -LE_CONFIG: too long. */
int addr_fill_host(const char *addr, const char *of, char ret_addr[ADDR_TEXT_SIZE]) CHECK_RESULT;
/* Returns true if the blank-separated list has the whole address. */
bool addr_list_has(const char *list, const char *addr);
/* Adds an address to a blank-separated list, unless the list has it. False if it does not fit. */
bool addr_list_add(char *list, size_t size, const char *addr);

#endif
