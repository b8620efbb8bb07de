/*
 * Addresses of servers as people write them and as servers tell them: "host:port",
 * "tcp:host:port" or "verbs:host:port". Without a scheme the transport decides (transport_mux.c).
 * Plain functions on text; nothing is looked up.
 */
#ifndef LEAT_RPC_ADDR_H
#define LEAT_RPC_ADDR_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"

enum addr_scheme { ADDR_ANY, ADDR_TCP, ADDR_VERBS };

/* Scheme, host and port of one address. */
#define ADDR_TEXT_SIZE 80
/* A list of them, as a server tells it. */
#define ADDR_LIST_SIZE 512
/* Where the verbs listener of a server is, seen from its TCP port: iWARP shares the port space of
 * TCP, so it cannot be the same one. */
#define ADDR_VERBS_PORT 100u

/* ret_rest: behind the scheme. "tcp:7440" is port 7440 of a host named tcp. */
enum addr_scheme addr_split(const char *addr, const char **ret_rest);
static inline bool addr_is_verbs(const char *addr)
{
	const char *rest;

	return addr_split(addr, &rest) == ADDR_VERBS;
}
const char *addr_scheme_name(enum addr_scheme scheme);
/* Is the host (of "host:port", without scheme) "0.0.0.0", "[::]" or "*"? */
bool addr_is_wildcard(const char *rest);
/* "scheme:host:port" with the port raised by add (port 0 stays: any). -LE_CONFIG: no port there, or
 * too long, or beyond 65535. */
int addr_make(enum addr_scheme scheme, const char *rest, unsigned add,
	      char ret_addr[ADDR_TEXT_SIZE]) CHECK_RESULT;
/* "scheme:*:port" with the host of `of` (any scheme) in the place of the star; others as they are.
 * -LE_CONFIG: too long. */
int addr_fill_host(const char *addr, const char *of, char ret_addr[ADDR_TEXT_SIZE]) CHECK_RESULT;
/* Adds an address to a blank-separated list, unless it is there; false when it has no room. */
bool addr_list_add(char *list, size_t size, const char *addr);

#endif
