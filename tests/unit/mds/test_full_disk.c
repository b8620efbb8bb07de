/* SPDX-License-Identifier: Apache-2.0 */
/* A metadata server with a nearly full disk: requests that need space are refused, others are
 * executed. */
#include "tests/unit/mds/fixture.h"

#include <fcntl.h>

#define X50        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define X250       X50 X50 X50 X50 X50
#define LONG_VALUE X250 X250 X250 /* longer than the sector that a short value counts as */

static int set_xattr(struct fx *f, struct ino ino, const char *value)
{
	struct mds_setxattr_req q = {f->cred, ino, bytes_str("user.x"), bytes_str(value), 0};

	return fx_call(f, OP_mds_setxattr, &q, NULL);
}

static int symlink_to(struct fx *f, const char *name)
{
	struct mds_symlink_req q = {f->cred, LEAT_ROOT_INO, bytes_str(name), bytes_str("target")};
	struct mds_symlink_rep p;

	return fx_call(f, OP_mds_symlink, &q, &p);
}

/* Sets the flag until the server polls its disk again, within a second. */
static struct fx *full(struct fx *f)
{
	f->m->store.short_of_space = true;
	return f;
}

static void full_body(struct fx *f)
{
	struct attr a, b;
	struct ino dir;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "a", O_RDWR, &a), 0);
	assert_int_equal(fx_close(f, a.ino, O_RDWR, 0), 0);
	assert_int_equal(fx_mkdir(f, LEAT_ROOT_INO, "dir", &dir), 0);
	assert_int_equal(set_xattr(f, a.ino, "some"), 0);

	assert_int_equal(fx_create_file(full(f), LEAT_ROOT_INO, "b", O_RDWR, &b), -LE_NOSPC);
	assert_int_equal(fx_mkdir(full(f), LEAT_ROOT_INO, "dir2", &(struct ino){0}), -LE_NOSPC);
	assert_int_equal(fx_link(full(f), a.ino, LEAT_ROOT_INO, "b"), -LE_NOSPC);
	assert_int_equal(symlink_to(full(f), "b"), -LE_NOSPC);
	assert_int_equal(set_xattr(full(f), a.ino, LONG_VALUE), -LE_NOSPC);
	assert_int_equal(set_xattr(full(f), a.ino, "less"), 0);
	/* Opens the existing file. */
	assert_int_equal(fx_create_file(full(f), LEAT_ROOT_INO, "a", O_RDWR, &b), 0);
	assert_int_equal(fx_close(full(f), b.ino, O_RDWR, 0), 0);
	assert_int_equal(fx_lookup(full(f), LEAT_ROOT_INO, "a", &b), 0);
	assert_int_equal(fx_rename(full(f), LEAT_ROOT_INO, "a", dir, "c", 0), 0);
	assert_int_equal(fx_unlink(full(f), dir, "c"), 0);
	assert_int_equal(fx_rmdir(full(f), LEAT_ROOT_INO, "dir"), 0);

	fx_sleep_ms(1500);
	assert_false(f->m->store.short_of_space);
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "b", O_RDWR, &b), 0);
	assert_int_equal(fx_close(f, b.ino, O_RDWR, 0), 0);
}
TEST(test_full, full_body)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_full),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
