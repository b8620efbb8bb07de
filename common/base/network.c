/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/network.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAPPED      0xffff00000000ULL /* of lo, with hi 0: ::ffff:0:0/96 */
#define MAPPED_BITS 96u

static uint64_t number(const uint8_t *p)
{
	uint64_t v = 0;

	for (int i = 0; i < 8; i++)
		v = v << 8 | p[i];
	return v;
}

static int parse_address(const char *text, struct net_address *ret_a, bool *ret_v4)
{
	uint8_t b[16];

	*ret_v4 = inet_pton(AF_INET, text, b) == 1;
	if (*ret_v4) {
		uint32_t v =
			(uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
		*ret_a = (struct net_address){0, MAPPED | v};
		return 0;
	}
	if (inet_pton(AF_INET6, text, b) != 1)
		return -LE_INVAL;
	*ret_a = (struct net_address){number(b), number(b + 8)};
	return 0;
}

/* Returns a mask with the first `bits` bits set. */
static uint64_t mask64(unsigned bits)
{
	return bits == 0 ? 0 : bits >= 64 ? UINT64_MAX : ~(UINT64_MAX >> bits);
}

static struct net_address mask(unsigned bits)
{
	return (struct net_address){mask64(bits), bits > 64 ? mask64(bits - 64) : 0};
}

bool network_valid(const struct network *n)
{
	struct net_address m = mask(n->bits);

	return n->bits <= 128 && (n->addr.hi & ~m.hi) == 0 && (n->addr.lo & ~m.lo) == 0;
}

bool network_has(const struct network *n, struct net_address a)
{
	struct net_address m = mask(n->bits);

	return (a.hi & m.hi) == n->addr.hi && (a.lo & m.lo) == n->addr.lo;
}

int network_parse(const char *text, struct network *ret_net)
{
	const char *slash = strchr(text, '/');
	size_t len = slash ? (size_t)(slash - text) : strlen(text);
	char addr[INET6_ADDRSTRLEN + 1], *end;
	struct network n;
	unsigned long bits;
	bool v4;

	if (len >= sizeof(addr))
		return -LE_INVAL;
	memcpy(addr, text, len);
	addr[len] = '\0';
	TRY(parse_address(addr, &n.addr, &v4));
	bits = v4 ? 32 : 128;
	if (slash) {
		if (slash[1] < '0' || slash[1] > '9')
			return -LE_INVAL;
		unsigned long given = strtoul(slash + 1, &end, 10);
		if (*end || given > bits)
			return -LE_INVAL;
		bits = given;
	}
	n.bits = (uint8_t)(v4 ? bits + MAPPED_BITS : bits);
	if (!network_valid(&n))
		return -LE_INVAL;
	*ret_net = n;
	return 0;
}

const char *network_format(const struct network *n, char buf[NETWORK_TEXT])
{
	char text[INET6_ADDRSTRLEN];
	uint8_t b[16];
	bool v4 = n->bits >= MAPPED_BITS && n->addr.hi == 0 && n->addr.lo >> 32 == MAPPED >> 32;

	for (int i = 0; i < 8; i++) {
		b[i] = (uint8_t)(n->addr.hi >> (56 - 8 * i));
		b[8 + i] = (uint8_t)(n->addr.lo >> (56 - 8 * i));
	}
	if (!inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? b + 12 : b, text, sizeof(text)))
		text[0] = '\0';
	snprintf(buf, NETWORK_TEXT, "%s/%u", text, v4 ? n->bits - MAPPED_BITS : n->bits);
	return buf;
}

int net_address_of_peer(const char *name, struct net_address *ret_addr)
{
	const char *word = strrchr(name, ' '), *colon;
	char addr[INET6_ADDRSTRLEN + 1];
	size_t len;
	bool v4;

	word = word ? word + 1 : name;
	colon = strrchr(word, ':');
	if (!colon)
		return -LE_INVAL;
	if (*word == '[') {
		if (colon[-1] != ']')
			return -LE_INVAL;
		word++;
		/* "[fe80::1%eth0]": the interface is no part of the address. */
		len = strcspn(word, "%]");
	} else {
		len = (size_t)(colon - word);
	}
	if (len >= sizeof(addr))
		return -LE_INVAL;
	memcpy(addr, word, len);
	addr[len] = '\0';
	return parse_address(addr, ret_addr, &v4);
}
