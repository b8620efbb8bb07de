/* Addresses with and without a scheme: parsing, ports, wildcards, lists. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/rpc/addr.h"

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
	/* Hosts may have these names. */
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
	assert_false(addr_list_add(list, sizeof(list), "tcp:a:12345"));
	assert_string_equal(list, "tcp:a:1 tcp:a:12");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_schemes),
		cmocka_unit_test(test_ports),
		cmocka_unit_test(test_wildcards),
		cmocka_unit_test(test_lists),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
