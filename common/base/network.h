/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Networks and addresses as text, and which network contains an address. IPv4 addresses are stored
 * as IPv6 (::ffff:a.b.c.d), so the kind of socket over which a peer connects makes no difference.
 * Plain functions; they resolve no names.
 */
#ifndef LEAT_COMMON_BASE_NETWORK_H
#define LEAT_COMMON_BASE_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

struct net_address {
	uint64_t hi, lo; /* the first and the last 8 bytes, as numbers */
};

struct network {
	struct net_address addr; /* 0 after the prefix */
	uint8_t bits;            /* of 128; IPv4: 96 more than in the text */
};

/* Parses "10.1.0.0/16", "10.1.2.3", "fd00:1::/32", "::1". Returns 0, or -LE_INVAL: it is none of
 * these, or bits after the prefix are set. */
int network_parse(const char *text, struct network *ret_net) CHECK_RESULT;
#define NETWORK_TEXT 56
const char *network_format(const struct network *n, char buf[NETWORK_TEXT]);
/* Returns whether n is a network that network_parse could have returned. */
bool network_valid(const struct network *n);
bool network_has(const struct network *n, struct net_address a);
/* Returns the address in a peer's name, "tcp 10.1.2.3:7440", "verbs mlx5_0 [fd00::1]:80": its last
 * word without the port. -LE_INVAL: there is no address. */
int net_address_of_peer(const char *name, struct net_address *ret_addr) CHECK_RESULT;

#endif
