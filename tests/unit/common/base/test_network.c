/* SPDX-License-Identifier: Apache-2.0 */
/* Networks and addresses: which text is valid, and which address is in which network. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/network.h"

static bool lies(const char *net, const char *peer)
{
	struct net_address a;
	struct network n;

	assert_int_equal(network_parse(net, &n), 0);
	assert_int_equal(net_address_of_peer(peer, &a), 0);
	return network_has(&n, a);
}

static void test_what_lies_where(void **state)
{
	(void)state;
	assert_true(lies("10.1.0.0/16", "tcp 10.1.2.3:7440"));
	assert_true(lies("10.1.0.0/16", "tcp 10.1.255.255:1"));
	assert_false(lies("10.1.0.0/16", "tcp 10.2.0.0:1"));
	assert_false(lies("10.1.0.0/16", "tcp 10.0.255.255:1"));
	assert_true(lies("10.1.2.3", "10.1.2.3:1"));
	assert_false(lies("10.1.2.3", "10.1.2.2:1"));
	assert_true(lies("10.1.2.2/31", "10.1.2.3:1"));
	assert_true(lies("0.0.0.0/0", "tcp 255.255.255.255:1"));
	assert_true(lies("fd00:1::/32", "verbs mlx5_0 [fd00:1:ffff::9]:80"));
	assert_false(lies("fd00:1::/32", "tcp [fd00:2::1]:80"));
	assert_true(lies("fd00::/65", "tcp [fd00::7fff:ffff:ffff:ffff]:80"));
	assert_false(lies("fd00::/65", "tcp [fd00::8000:0:0:0]:80"));
	assert_true(lies("fe80::1", "tcp [fe80::1%eth0]:80"));
	assert_true(lies("::/0", "tcp [ffff::]:80"));
}

/* An IPv4 client over an IPv6 socket, and a row in that notation. */
static void test_mapped_addresses_are_the_same(void **state)
{
	(void)state;
	assert_true(lies("10.1.0.0/16", "tcp [::ffff:10.1.2.3]:7440"));
	assert_false(lies("10.1.0.0/16", "tcp [::ffff:10.2.2.3]:7440"));
	assert_true(lies("::ffff:10.1.0.0/112", "tcp 10.1.2.3:7440"));
	assert_true(lies("::/0", "tcp 10.1.2.3:7440"));
	assert_false(lies("0.0.0.0/0", "tcp [fd00::1]:7440"));
	assert_false(lies("0.0.0.0/0", "tcp [::10.1.2.3]:7440"));
}

static void test_what_is_no_network(void **state)
{
	static const char *const wrong[] = {
		"",
		"10.1.0.0/33",
		"10.1.0.0/-1",
		"10.1.0.0/",
		"10.1.0.1/16",
		"10.1/16",
		"::1/129",
		"::1/64",
		"x",
		"10.1.0.0/16 ",
		"10.1.0.0/ 16",
		"[::1]",
		"10.1.2.3:80",
		"1.2.3.4/+1",
		"0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000/1",
	};
	struct network n;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(network_parse(wrong[i], &n), -LE_INVAL);
}

static void test_what_is_no_peer(void **state)
{
	static const char *const wrong[] = {"",         "tcp",      "tcp host:80", "sim oss1",
					    "10.1.2.3", "tcp [::1", "tcp []:80",   "a:b"};
	struct net_address a;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(net_address_of_peer(wrong[i], &a), -LE_INVAL);
}

static void test_text_comes_back(void **state)
{
	static const char *const texts[] = {"10.1.0.0/16", "10.1.2.3/32", "0.0.0.0/0",
					    "fd00:1::/32", "::1/128",     "::/0",
					    "::/96"};
	char buf[NETWORK_TEXT];
	struct network n;

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		assert_int_equal(network_parse(texts[i], &n), 0);
		assert_true(network_valid(&n));
		assert_string_equal(network_format(&n, buf), texts[i]);
	}
	n = (struct network){{0, 1}, 127};
	assert_false(network_valid(&n));
	n = (struct network){{0, 0}, 129};
	assert_false(network_valid(&n));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_lies_where),
		cmocka_unit_test(test_mapped_addresses_are_the_same),
		cmocka_unit_test(test_what_is_no_network),
		cmocka_unit_test(test_what_is_no_peer),
		cmocka_unit_test(test_text_comes_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
