/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/addr.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	enum addr_scheme scheme;
} schemes[] = {{"tcp", ADDR_TCP}, {"verbs", ADDR_VERBS}};

enum addr_scheme addr_split(const char *addr, const char **ret_rest)
{
	*ret_rest = addr;
	for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
		size_t n = strlen(schemes[i].name);

		if (strncmp(addr, schemes[i].name, n) == 0 && addr[n] == ':' &&
		    strchr(addr + n + 1, ':') != NULL) {
			*ret_rest = addr + n + 1;
			return schemes[i].scheme;
		}
	}
	return ADDR_ANY;
}

const char *addr_scheme_name(enum addr_scheme scheme)
{
	for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
		if (schemes[i].scheme == scheme)
			return schemes[i].name;
	return "any";
}

/* Length of the host in "host:port"; 0: there is no port. */
static size_t host_len(const char *rest)
{
	const char *colon = strrchr(rest, ':');

	return colon != NULL && colon[1] != '\0' ? (size_t)(colon - rest) : 0;
}

bool addr_is_wildcard(const char *rest)
{
	static const char *const any[] = {"0.0.0.0", "[::]", "*"};
	size_t n = host_len(rest);

	for (size_t i = 0; i < sizeof(any) / sizeof(any[0]); i++)
		if (n == strlen(any[i]) && strncmp(rest, any[i], n) == 0)
			return true;
	return false;
}

int addr_make(enum addr_scheme scheme, const char *rest, unsigned add,
	      char ret_addr[ADDR_TEXT_SIZE])
{
	size_t n = host_len(rest);
	char out[ADDR_TEXT_SIZE], *end;
	unsigned long port;
	int len;

	if (n == 0 || rest[n + 1] < '0' || rest[n + 1] > '9')
		return -LE_CONFIG;
	port = strtoul(rest + n + 1, &end, 10);
	if (*end != '\0')
		return -LE_CONFIG;
	if (port != 0)
		port += add;
	len = snprintf(out, sizeof(out), "%s:%.*s:%lu", addr_scheme_name(scheme), (int)n, rest,
		       port);
	if (port > 65535 || len < 0 || (size_t)len >= sizeof(out))
		return -LE_CONFIG;
	memcpy(ret_addr, out, (size_t)len + 1);
	return 0;
}

int addr_fill_host(const char *addr, const char *of, char ret_addr[ADDR_TEXT_SIZE])
{
	const char *rest, *host;
	enum addr_scheme scheme = addr_split(addr, &rest);
	size_t n;
	int len;

	(void)addr_split(of, &host);
	n = host_len(host);
	if (rest[0] == '*' && rest[1] == ':' && n > 0)
		len = snprintf(ret_addr, ADDR_TEXT_SIZE, "%s:%.*s%s", addr_scheme_name(scheme),
			       (int)n, host, rest + 1);
	else
		len = snprintf(ret_addr, ADDR_TEXT_SIZE, "%s", addr);
	return len < 0 || len >= ADDR_TEXT_SIZE ? -LE_CONFIG : 0;
}

bool addr_list_has(const char *list, const char *addr)
{
	size_t n = strlen(addr);

	for (const char *p = list; *p != '\0'; p += strspn(p, " ")) {
		size_t len = strcspn(p, " ");

		if (len == n && strncmp(p, addr, n) == 0)
			return true;
		p += len;
	}
	return false;
}

bool addr_list_add(char *list, size_t size, const char *addr)
{
	size_t used = strlen(list), n = strlen(addr);

	if (addr_list_has(list, addr))
		return true;
	if (used + n + 2 > size)
		return false;
	snprintf(list + used, size - used, "%s%s", used > 0 ? " " : "", addr);
	return true;
}
