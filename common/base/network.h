/*
 * Networks and addresses as text, and which network an address lies in. IPv4 is kept as the IPv6
 * addresses that stand for it (::ffff:a.b.c.d), so that it makes no difference over which kind of
 * socket somebody came. Plain functions; nothing is looked up.
 */
#ifndef LEAT_BASE_NETWORK_H
#define LEAT_BASE_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

struct net_address {
	uint64_t hi, lo; /* the first and the last 8 bytes, as numbers */
};

struct network {
	struct net_address addr; /* 0 behind the prefix */
	uint8_t bits;            /* of 128; IPv4: 96 more than it is written with */
};

/* "10.1.0.0/16", "10.1.2.3", "fd00:1::/32", "::1". -LE_INVAL: not one of these, or bits behind the
 * prefix are set. */
int network_parse(const char *text, struct network *ret_net) CHECK_RESULT;
#define NETWORK_TEXT 56
const char *network_format(const struct network *n, char buf[NETWORK_TEXT]);
/* Is it one that network_parse could have made? */
bool network_valid(const struct network *n);
bool network_has(const struct network *n, struct net_address a);
/* Of a peer's name, "tcp 10.1.2.3:7440", "verbs mlx5_0 [fd00::1]:80": its last word without the
 * port. -LE_INVAL: there is no address. */
int net_address_of_peer(const char *name, struct net_address *ret_addr) CHECK_RESULT;

#endif
