/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses with and without a scheme: parsing, ports, wildcards, lists. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/config.h"
#include "common/base/config_check.h"
#include "common/rpc/addr.h"
#include "common/rt/net.h"

static void splits(const char *addr, enum addr_scheme scheme, const char *rest)
{
	const char *got;

	assert_int_equal(addr_split(addr, &got), scheme);
	assert_string_equal(got, rest);
}

static void test_schemes(void **state)
{
	(void)state;
	splits("mds1:7440", ADDR_ANY, "mds1:7440");
	splits("tcp:mds1:7440", ADDR_TCP, "mds1:7440");
	splits("verbs:[fe80::1]:7540", ADDR_VERBS, "[fe80::1]:7540");
	splits("[::1]:7440", ADDR_ANY, "[::1]:7440");
	/* Valid names of hosts. */
	splits("tcp:7440", ADDR_ANY, "tcp:7440");
	splits("verbs:7440", ADDR_ANY, "verbs:7440");
	splits("verbs:verbs:7540", ADDR_VERBS, "verbs:7540");
	splits("tcpx:a:1", ADDR_ANY, "tcpx:a:1");
}

static void test_ports(void **state)
{
	char out[ADDR_TEXT_SIZE] = "untouched", name[200];

	(void)state;
	assert_int_equal(addr_make(ADDR_VERBS, "a:7440", 100, out), 0);
	assert_string_equal(out, "verbs:a:7540");
	assert_int_equal(addr_make(ADDR_TCP, "[::1]:0", 100, out), 0);
	assert_string_equal(out, "tcp:[::1]:0");
	memcpy(out, "untouched", 10);
	assert_int_equal(addr_make(ADDR_VERBS, "a:65500", 100, out), -LE_CONFIG);
	assert_int_equal(addr_make(ADDR_VERBS, "a", 100, out), -LE_CONFIG);
	assert_int_equal(addr_make(ADDR_VERBS, "a:", 100, out), -LE_CONFIG);
	assert_int_equal(addr_make(ADDR_VERBS, "a:-5", 100, out), -LE_CONFIG);
	assert_int_equal(addr_make(ADDR_VERBS, "a:7440x", 100, out), -LE_CONFIG);
	memset(name, 'n', sizeof(name));
	memcpy(name + 90, ":7440", 6);
	assert_int_equal(addr_make(ADDR_TCP, name, 0, out), -LE_CONFIG);
	assert_string_equal(out, "untouched");
}

static void test_wildcards(void **state)
{
	char out[ADDR_TEXT_SIZE];

	(void)state;
	assert_true(addr_is_wildcard("0.0.0.0:7440"));
	assert_true(addr_is_wildcard("[::]:7440"));
	assert_true(addr_is_wildcard("*:1"));
	assert_false(addr_is_wildcard("10.0.0.0:7440"));
	assert_false(addr_is_wildcard("[::1]:7440"));
	assert_int_equal(addr_fill_host("verbs:*:7540", "tcp:mds1:7440", out), 0);
	assert_string_equal(out, "verbs:mds1:7540");
	assert_int_equal(addr_fill_host("tcp:*:7440", "verbs:[fd00::1]:7540", out), 0);
	assert_string_equal(out, "tcp:[fd00::1]:7440");
	assert_int_equal(addr_fill_host("tcp:b:7440", "verbs:a:7540", out), 0);
	assert_string_equal(out, "tcp:b:7440");
}

static void test_lists(void **state)
{
	char list[24] = "";

	(void)state;
	assert_true(addr_list_add(list, sizeof(list), "tcp:a:1"));
	assert_true(addr_list_add(list, sizeof(list), "tcp:a:12"));
	assert_true(addr_list_add(list, sizeof(list), "tcp:a:1"));
	assert_string_equal(list, "tcp:a:1 tcp:a:12");
	assert_true(addr_list_has(list, "tcp:a:1"));
	assert_true(addr_list_has(list, "tcp:a:12"));
	assert_false(addr_list_has(list, "tcp:a:"));
	assert_false(addr_list_has(list, "tcp:a:123"));
	assert_false(addr_list_add(list, sizeof(list), "tcp:a:12345"));
	assert_string_equal(list, "tcp:a:1 tcp:a:12");
}

/* An address is valid here exactly if it is valid in leat.conf. */
static void test_same_as_in_the_configuration(void **state)
{
	static const char *const parts[] = {
		"tcp:",  "verbs:", "a",      "mds1.b-c", "127.0.0.1", "[::1]", "::1", "[",
		"]",     ":",      ":7440",  ":0",       ":65435",    ":65536", "*",  "-",
		":99999", ".",     "%lo",    "\"",       "0x7f.1",    "/",      ":7x",
	};
	const struct config_param p = {.name = "mds", .type = CONFIG_addrs, .min = 1};
	char err[256];
	int n_good = 0;

	(void)state;
	srand(7);
	for (int i = 0; i < 20000; i++) {
		char text[CONFIG_STR_MAX], value[CONFIG_STR_MAX], made[ADDR_TEXT_SIZE];
		int len = 0;
		const char *rest;
		struct net_addr a;

		for (int k = rand() % 4; k >= 0; k--)
			len += snprintf(text + len, sizeof(text) - (size_t)len, "%s",
					parts[(size_t)rand() % (sizeof(parts) / sizeof(parts[0]))]);
		if (i % 2 == 0)
			snprintf(text + len, sizeof(text) - (size_t)len, ":7440");
		memcpy(value, text, sizeof(value));
		bool good = config_check_text(&p, value, err, sizeof(err)) == 0;
		enum addr_scheme scheme = addr_split(text, &rest);
		bool usable = addr_make(scheme, rest, 0, made) == 0;

		n_good += good;
		if (good && !usable)
			fail_msg("'%s' is taken and cannot be used", text);
		if (!good && usable && net_addr_numeric(rest, &a) == 0)
			fail_msg("'%s' could be used: %s", text, err);
	}
	assert_true(n_good > 500);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_schemes),
		cmocka_unit_test(test_ports),
		cmocka_unit_test(test_wildcards),
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_same_as_in_the_configuration),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
