/* SPDX-License-Identifier: Apache-2.0 */
/* Capabilities and the key file. */
#include "common/rpc/auth.h"
#include "common/rpc/cap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/base/log.h"

static const struct cap good = { .ino = { 5 }, .gen = 2, .rights = CAP_READ | CAP_WRITE, .epoch = 1,
				 .session = 17, .expiry_s = 1000 };

static int check(const struct cap_key *k, const struct cap *c)
{
	return cap_check(k, c, (struct ino){ 5 }, 2, 17, CAP_READ, 900);
}

static void test_capabilities(void **state)
{
	struct rpc_key cluster = { { 1 } }, other = { { 2 } };
	struct cap_key k, k2;
	struct cap c = good;
	(void)state;

	cap_key_derive(&cluster, &k);
	cap_key_derive(&other, &k2);
	assert_memory_not_equal(&k, &cluster, sizeof(k));
	cap_sign(&k, &c);
	assert_int_equal(check(&k, &c), 0);
	/* Frozen: servers of different releases must agree. */
	assert_true(c.mac_lo == 0xa66d4ec6aa7b525f && c.mac_hi == 0x9f9fd0ba9426b005);
	assert_int_equal(check(&k2, &c), -LE_BAD_CAP);
	assert_int_equal(cap_check(&k, &c, (struct ino){ 6 }, 2, 17, CAP_READ, 900), -LE_BAD_CAP);
	assert_int_equal(cap_check(&k, &c, (struct ino){ 5 }, 3, 17, CAP_READ, 900), -LE_BAD_CAP);
	assert_int_equal(cap_check(&k, &c, (struct ino){ 5 }, 2, 18, CAP_READ, 900), -LE_BAD_CAP);
	assert_int_equal(cap_check(&k, &c, (struct ino){ 5 }, 2, 17, CAP_READ, 1000), 0);
	assert_int_equal(cap_check(&k, &c, (struct ino){ 5 }, 2, 17, CAP_READ, 1001),
			 -LE_CAP_EXPIRED);
	/* Without a valid MAC the reply does not reveal that the capability has expired. */
	assert_int_equal(cap_check(&k2, &c, (struct ino){ 5 }, 2, 17, CAP_READ, 1001), -LE_BAD_CAP);
	assert_int_equal(cap_check(&k, &c, (struct ino){ 5 }, 2, 17, CAP_WRITE, 900), 0);
	assert_int_equal(cap_check(&k, &c, (struct ino){ 5 }, 2, 17, 4, 900), -LE_BAD_CAP);

#define FORGED(member) \
	do { \
		struct cap f = c; \
		f.member ^= 1; \
		assert_int_equal(check(&k, &f), -LE_BAD_CAP); \
	} while (0)
	FORGED(rights);
	FORGED(epoch);
	FORGED(session);
	FORGED(expiry_s);
	FORGED(gen);
	FORGED(ino.v);
	FORGED(mac_lo);
	FORGED(mac_hi);
}

static int load(const char *text, mode_t mode, struct rpc_key *ret_key)
{
	char path[] = "/tmp/leat-key-XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0 && fchmod(fd, mode) == 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	int rc = rpc_key_load(path, ret_key);
	unlink(path);
	return rc;
}

static void test_key_file(void **state)
{
	static const char text[] =
		"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1eFF\n";
	struct rpc_key_problem problem;
	struct rpc_key key;
	(void)state;

	assert_int_equal(load(text, 0600, &key), 0);
	assert_int_equal(key.b[1], 1);
	assert_int_equal(key.b[31], 0xff);
	assert_int_equal(load(text, 0640, &key), -LE_ACCES);
	assert_int_equal(load(text, 0604, &key), -LE_ACCES);
	assert_int_equal(load(text + 1, 0600, &key), -LE_CONFIG);
	assert_int_equal(load("", 0600, &key), -LE_CONFIG);
	assert_int_equal(load("zz0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1eff",
			      0600, &key),
			 -LE_CONFIG);
	assert_int_equal(rpc_key_load("/nonexistent/key", &key), -LE_NOENT);
	assert_int_equal(rpc_key_check("/nonexistent/key", &key, &problem), -LE_NOENT);
	assert_string_equal(problem.text,
			    "cluster key /nonexistent/key: no such file or directory");
	assert_non_null(strstr(problem.hint, "key_file"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_capabilities),
		cmocka_unit_test(test_key_file),
	};
	log_init("test", LOG_ERROR);
	log_set_level(LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
