/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Validation of texts of leat.conf: words, addresses, processors. Plain functions on text; they
 * resolve no name, and do not examine the machine.
 */
#include "common/base/config_check.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/cpu_list.h"

#define ADDR_LEN_MAX 71 /* with "verbs:" and NUL within ADDR_TEXT_SIZE of rpc, whatever the port */
#define BETWEEN      " ,\t"

const char *config_shorten(const char *value, char buf[64])
{
	if (strlen(value) < 64)
		snprintf(buf, 64, "%s", value);
	else
		snprintf(buf, 64, "%.60s...", value);
	return buf;
}

/* ---- words ---- */

static bool is_word_of(const char *value, const char *words)
{
	size_t n = strlen(value);

	for (const char *w = words; *w != '\0' && n > 0;) {
		size_t len = strcspn(w, " |");

		if (len == n && strncmp(w, value, n) == 0)
			return true;
		w += len;
		w += strspn(w, " |");
	}
	return false;
}

/* Formats "a | b | c" as "a, b or c". */
static void write_words(const char *words, char *buf, size_t size)
{
	size_t used = 0;

	while (*words != '\0' && used < size) {
		size_t len = strcspn(words, " |");
		const char *next = words + len + strspn(words + len, " |");
		bool last = *next != '\0' && strchr(next, '|') == NULL;

		used += (size_t)snprintf(buf + used, size - used, "%.*s%s", (int)len, words,
					 *next == '\0' ? "" : last ? " or " : ", ");
		words = next;
	}
}

static int check_word(const struct config_param *p, const char *value, char *ret_err,
		      size_t err_size)
{
	char words[128] = "", buf[64];

	if (is_word_of(value, p->unit))
		return 0;
	write_words(p->unit, words, sizeof(words));
	snprintf(ret_err, err_size, "%s: '%s' is not %s", p->name, config_shorten(value, buf),
		 words);
	return -LE_CONFIG;
}

/* ---- addresses ---- */

/* Returns whether host is "[v6]", a plain v6 address, or a possible name or v4 address. */
static bool is_host(char *host)
{
	struct in6_addr v6;
	size_t n = strlen(host);

	if (strcmp(host, "*") == 0)
		return true;
	bool brackets = n >= 2 && host[0] == '[' && host[n - 1] == ']';
	if (brackets) {
		host[n - 1] = '\0';
		host++;
	}
	if (brackets || strchr(host, ':') != NULL) {
		/* After a % is the name of an interface. */
		host[strcspn(host, "%")] = '\0';
		return inet_pton(AF_INET6, host, &v6) == 1;
	}
	for (const char *c = host; *c != '\0'; c++)
		if (!isalnum((unsigned char)*c) && strchr("-._", *c) == NULL)
			return false;
	return n > 0 && host[0] != '-' && host[0] != '.';
}

/* Returns NULL if addr, without a scheme, is valid, else what is wrong. */
static const char *wrong_with(const char *addr)
{
	static const char form[] = "is not host:port";
	const char *colon = strrchr(addr, ':'), *port = colon != NULL ? colon + 1 : "";
	char host[ADDR_LEN_MAX + 1];

	if (strlen(addr) > ADDR_LEN_MAX)
		return "is longer than an address may be";
	if (colon == NULL || *port == '\0' || strspn(port, "0123456789") != strlen(port))
		return form;
	if (strlen(port) > 5 || atoi(port) > 65535)
		return "has a port that is not within 0..65535";
	snprintf(host, sizeof(host), "%.*s", (int)(colon - addr), addr);
	return is_host(host) ? NULL : form;
}

/* Returns the part after "tcp:" or "verbs:" if that part has a host and a port, else addr. */
static const char *behind_scheme(const char *addr, const char *scheme)
{
	size_t n = strlen(scheme);

	return strncmp(addr, scheme, n) == 0 && strchr(addr + n, ':') != NULL ? addr + n : addr;
}

static int refuse_addr(const struct config_param *p, const char *addr, const char *why,
		       char *ret_err, size_t err_size)
{
	char buf[64];

	snprintf(ret_err, err_size, "%s: '%s' %s", p->name, config_shorten(addr, buf), why);
	return -LE_CONFIG;
}

static int check_addrs(const struct config_param *p, char *value, char *ret_err, size_t err_size)
{
	char list[CONFIG_STR_MAX] = "", *save = NULL;
	size_t used = 0;
	uint64_t n = 0;

	for (char *a = strtok_r(value, BETWEEN, &save); a != NULL;
	     a = strtok_r(NULL, BETWEEN, &save)) {
		const char *rest = behind_scheme(a, "tcp:");

		if (rest == a)
			rest = behind_scheme(a, "verbs:");
		const char *why = wrong_with(rest);
		if (why != NULL)
			return refuse_addr(p, a, why, ret_err, err_size);
		/* The list is no longer than the value that it is made from. */
		used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
					 n > 0 ? " " : "", a);
		n++;
	}
	if (n < p->min) {
		snprintf(ret_err, err_size, "%s: an address is wanted, host:port", p->name);
		return -LE_CONFIG;
	}
	memcpy(value, list, sizeof(list));
	return 0;
}

static int check_addr(const struct config_param *p, const char *value, char *ret_err,
		      size_t err_size)
{
	char any[CONFIG_STR_MAX + 1];
	const char *why;

	if (*value == '\0')
		return 0;
	/* ":9450" is any address of this machine. */
	snprintf(any, sizeof(any), "%s%s", *value == ':' ? "*" : "", value);
	why = wrong_with(any);
	return why == NULL ? 0 : refuse_addr(p, value, why, ret_err, err_size);
}

int config_check_cluster(const struct cluster_params *c, char *ret_err, size_t err_size)
{
	const char *other = strcmp(c->transport, "tcp") == 0     ? "verbs:"
			    : strcmp(c->transport, "verbs") == 0 ? "tcp:"
								 : NULL;
	char list[CONFIG_STR_MAX], *save = NULL;

	if (other == NULL)
		return 0;
	memcpy(list, c->mds, sizeof(list));
	for (char *a = strtok_r(list, BETWEEN, &save); a != NULL;
	     a = strtok_r(NULL, BETWEEN, &save))
		if (behind_scheme(a, other) == a)
			return 0;
	snprintf(ret_err, err_size, "transport = %s: it can use none of the addresses of mds",
		 c->transport);
	return -LE_CONFIG;
}

/* ---- all of them ---- */

int config_check_text(const struct config_param *p, char value[CONFIG_STR_MAX], char *ret_err,
		      size_t err_size)
{
	char buf[64];
	cpu_set_t set;

	switch (p->type) {
	case CONFIG_word:
		return check_word(p, value, ret_err, err_size);
	case CONFIG_addr:
		return check_addr(p, value, ret_err, err_size);
	case CONFIG_addrs:
		return check_addrs(p, value, ret_err, err_size);
	case CONFIG_cores:
		if (strcmp(value, "auto") == 0 || strcmp(value, "all") == 0 ||
		    cpu_list_parse(value, &set))
			return 0;
		snprintf(ret_err, err_size,
			 "%s: '%s' is not auto, all, or a list of processors (0-3,8)", p->name,
			 config_shorten(value, buf));
		return -LE_CONFIG;
	default:
		if (p->max != 0 && strlen(value) > p->max)
			snprintf(ret_err, err_size, "%s: longer than %llu bytes", p->name,
				 (unsigned long long)p->max);
		else if (strlen(value) < p->min)
			snprintf(ret_err, err_size, "%s: a value is wanted", p->name);
		else
			return 0;
		return -LE_CONFIG;
	}
}
