/* SPDX-License-Identifier: Apache-2.0 */
/* What extended attributes and access lists count towards quotas: setting them is limited, and
 * removing them releases the bytes. */
#include <fcntl.h>
#include <sys/xattr.h>

#include "mds/access/acl.h"
#include "tests/unit/mds/fixture.h"

#define LIMIT   (1u << 20)
#define LIST    "system.posix_acl_access"
#define DEFAULT "system.posix_acl_default"

static struct ino dir, file;
static uint8_t value[LEAT_XATTR_VALUE_MAX];

static int set(struct fx *f, struct ino ino, const char *name, uint32_t len)
{
	struct mds_setxattr_req q = {
		.cred = f->cred, .ino = ino, .name = bytes_str(name), .value = {value, len}};

	return fx_call(f, OP_mds_setxattr, &q, NULL);
}

static int take(struct fx *f, struct ino ino, const char *name)
{
	struct mds_removexattr_req q = {.cred = f->cred, .ino = ino, .name = bytes_str(name)};

	return fx_call(f, OP_mds_removexattr, &q, NULL);
}

/* Returns the xattr value of a list that names n users. */
static struct bytes list_of(uint8_t xattr[ACL_XATTR_MAX], uint32_t n)
{
	struct acl_base base = {.has_mask = true, .user = 7, .mask = 5};
	uint8_t buf[ACL_LEN_MAX];
	uint32_t len;

	acl_begin(buf, &base, &len);
	for (uint32_t i = 0; i < n; i++)
		acl_add(buf, &(struct acl_entry){ACL_USER, 5, 1000 + i}, &len);
	return bytes_of(xattr, acl_to_xattr(bytes_of(buf, len), ACL_DEFAULT, 0, xattr));
}

static int set_list(struct fx *f, struct ino ino, const char *name, uint32_t n)
{
	uint8_t xattr[ACL_XATTR_MAX];
	struct mds_setxattr_req q = {
		.cred = f->cred, .ino = ino, .name = bytes_str(name), .value = list_of(xattr, n)};

	return fx_call(f, OP_mds_setxattr, &q, NULL);
}

static int limit(struct fx *f, struct ino ino, uint64_t bytes)
{
	struct mds_quota_set_req q = {
		.cred = f->cred, .ino = ino, .mask = QUOTA_BYTES_HARD, .bytes_hard = bytes};
	struct mds_quota_set_rep p;

	return fx_call(f, OP_mds_quota_set, &q, &p);
}

static uint64_t used(struct fx *f, struct ino ino)
{
	struct mds_quota_get_req q = {.ino = ino};
	struct mds_quota_get_rep p;

	assert_int_equal(fx_call(f, OP_mds_quota_get, &q, &p), 0);
	return p.quota.bytes;
}

static struct ino make(struct fx *f, const char *name)
{
	struct attr a;

	assert_int_equal(fx_create_file(f, dir, name, O_RDONLY, &a), 0);
	assert_int_equal(fx_close(f, a.ino, O_RDONLY, 0), 0);
	return a.ino;
}

static void begin(struct fx *f)
{
	fx_session(f, 1);
	assert_int_equal(fx_mkdir(f, LEAT_ROOT_INO, "d", &dir), 0);
	assert_int_equal(limit(f, dir, LIMIT), 0);
	file = make(f, "a");
	assert_int_equal(used(f, dir), 4096);
}

static const char *name_of(char *buf, uint32_t i)
{
	snprintf(buf, 32, "user.%010u", i);
	return buf;
}

/* Fifteen values of 64 KiB and the directory: one more of that size does not fit. */
static void fill(struct fx *f)
{
	char name[32];

	begin(f);
	for (uint32_t i = 0; i < 15; i++)
		assert_int_equal(set(f, file, name_of(name, i), sizeof(value)), 0);
	assert_int_equal(set(f, file, name_of(name, 15), sizeof(value)), -LE_DQUOT);
	assert_int_equal(used(f, dir), 4096 + 15 * 65536 + 512); /* 15 names of 16 bytes */
	assert_int_equal(set(f, file, name_of(name, 15), 65536 - 4096 - 512 + 256 - 16), 0);
	assert_int_equal(used(f, dir), LIMIT);
}

static int make_link(struct fx *f, const char *name, uint32_t len)
{
	char text[LEAT_SYMLINK_MAX];
	struct mds_symlink_req q = {f->cred, dir, bytes_str(name), bytes_of(text, len)};
	struct mds_symlink_rep p;

	memset(text, 'x', len);
	return fx_call(f, OP_mds_symlink, &q, &p);
}

static void targets_of_links(struct fx *f)
{
	char name[32];
	uint32_t n = 0;
	int rc;

	begin(f);
	assert_int_equal(make_link(f, "short", 1), 0);
	assert_int_equal(used(f, dir), 4096 + 512);
	assert_int_equal(make_link(f, "long", 4000), 0);
	assert_int_equal(used(f, dir), 4096 + 512 + 4096);
	assert_int_equal(fx_unlink(f, dir, "short"), 0);
	assert_int_equal(fx_unlink(f, dir, "long"), 0);
	assert_int_equal(used(f, dir), 4096);
	do {
		snprintf(name, sizeof(name), "%u", n);
		rc = make_link(f, name, 4000);
	} while (rc == 0 && ++n < 1000);
	assert_int_equal(rc, -LE_DQUOT);
	assert_int_equal(n, LIMIT / 4096 - 1);
	assert_int_equal(used(f, dir), LIMIT);
}

static void limited(struct fx *f)
{
	char name[32];

	fill(f);
	assert_int_equal(set(f, dir, "user.x", 1), -LE_DQUOT);
	assert_int_equal(fx_mkdir(f, dir, "sub", NULL), -LE_DQUOT);
	/* A new value of equal length, a shorter one, and its removal. */
	assert_int_equal(set(f, file, name_of(name, 0), sizeof(value)), 0);
	assert_int_equal(used(f, dir), LIMIT);
	assert_int_equal(set(f, file, name_of(name, 0), 10000), 0);
	assert_int_equal(used(f, dir), LIMIT - 55296); /* 65,536 - 10,000, in sectors */
	assert_int_equal(set(f, file, "user.more", 55552 - 9), -LE_DQUOT);
	assert_int_equal(set(f, file, "user.more", 55552 - 10), 0);
	assert_int_equal(used(f, dir), LIMIT);
}

static void returned(struct fx *f)
{
	char name[32];

	fill(f);
	assert_int_equal(take(f, file, name_of(name, 1)), 0);
	assert_int_equal(used(f, dir), LIMIT - 65536);
	assert_int_equal(set(f, dir, "user.x", 65536 - 7 - 512), 0);
	assert_int_equal(used(f, dir), LIMIT - 512);
	assert_int_equal(fx_unlink(f, dir, "a"), 0);
	assert_int_equal(used(f, dir), 4096 + 65536 - 512);
	assert_int_equal(take(f, dir, "user.x"), 0);
	assert_int_equal(used(f, dir), 4096);
}

/* Attributes move with the file to another project. */
static void moved(struct fx *f)
{
	struct mds_setattr_req q = {.cred = f->cred, .mask = SET_PROJECT};
	struct mds_setattr_rep p;
	struct ino other;

	begin(f);
	assert_int_equal(set(f, file, "user.x", 65536 - 7), 0);
	assert_int_equal(fx_mkdir(f, LEAT_ROOT_INO, "e", &other), 0);
	assert_int_equal(limit(f, other, LIMIT), 0);
	q.ino = file;
	q.attr.project = fx_attr(f, other).project;
	assert_int_equal(fx_call(f, OP_mds_setattr, &q, &p), 0);
	assert_int_equal(used(f, dir), 4096);
	assert_int_equal(used(f, other), 4096 + 65536);
}

/* Access lists count like attributes, also inherited ones. */
static void lists(struct fx *f)
{
	struct ino b, sub;

	begin(f);
	assert_int_equal(set_list(f, file, LIST, 500), 0); /* 2,503 bytes */
	assert_int_equal(used(f, dir), 4096 + 2560);
	assert_int_equal(set_list(f, file, LIST, 1), 0);
	assert_int_equal(used(f, dir), 4096 + 512);
	assert_int_equal(take(f, file, LIST), 0);
	assert_int_equal(set_list(f, dir, DEFAULT, 500), 0);
	assert_int_equal(used(f, dir), 4096 + 2560);
	b = make(f, "b");
	assert_int_equal(used(f, dir), 4096 + 2 * 2560);
	assert_int_equal(fx_mkdir(f, dir, "sub", &sub), 0); /* two, of 5,006 bytes */
	assert_int_equal(used(f, dir), 2 * 4096 + 2 * 2560 + 5120);

	assert_int_equal(limit(f, dir, used(f, dir) + 2559), 0);
	assert_int_equal(fx_create_file(f, dir, "c", O_RDONLY, &(struct attr){0}), -LE_DQUOT);
	assert_int_equal(fx_mkdir(f, dir, "c", NULL), -LE_DQUOT);
	assert_int_equal(set_list(f, file, LIST, 500), -LE_DQUOT);
	assert_int_equal(set_list(f, b, LIST, 499), 0);
	assert_int_equal(fx_rmdir(f, dir, "sub"), 0);
	assert_int_equal(fx_unlink(f, dir, "b"), 0);
	assert_int_equal(used(f, dir), 4096 + 2560);
}

/* Requests in one batch, none of which is counted yet. */
#define AT_ONCE 7

struct request {
	struct fx *f;
	struct ino ino;
	uint32_t slot;
	bool answered;
	int rc;
};

static void request(void *arg)
{
	struct request *r = arg;
	uint8_t xattr[ACL_XATTR_MAX];
	struct mds_setxattr_req q = {.cred = r->f->cred,
				     .ino = r->ino,
				     .name = bytes_str(LIST),
				     .value = list_of(xattr, 500)};

	r->rc = fx_call_as(r->f, r->f->session, r->slot, 1, OP_mds_setxattr, &q, NULL);
	r->answered = true;
}

static void at_once(struct fx *f)
{
	struct request r[AT_ONCE];
	uint32_t n = 0;
	char name[32];

	begin(f);
	for (uint32_t i = 0; i < AT_ONCE; i++)
		r[i] = (struct request){.f = f, .ino = make(f, name_of(name, i)), .slot = 1 + i};
	assert_int_equal(limit(f, dir, 4096 + 3 * 2560), 0);
	for (uint32_t i = 0; i < AT_ONCE; i++)
		assert_int_equal(fiber_spawn("set", request, &r[i]), 0);
	fx_sleep_ms(1000);
	for (uint32_t i = 0; i < AT_ONCE; i++) {
		assert_true(r[i].answered);
		assert_true(r[i].rc == 0 || r[i].rc == -LE_DQUOT);
		n += r[i].rc == 0;
	}
	assert_int_equal(n, 3);
	assert_int_equal(used(f, dir), 4096 + 3 * 2560);
}

/* A write removes file capabilities without reading their length: their length is limited. */
static void capabilities(struct fx *f)
{
	begin(f);
	assert_int_equal(set(f, file, "security.capability", 25), -LE_INVAL);
	assert_int_equal(set(f, file, "security.capability", 24), 0);
	assert_int_equal(used(f, dir), 4096 + 512);
	assert_int_equal(take(f, file, "security.capability"), 0);
	assert_int_equal(used(f, dir), 4096);
}

static void see(struct fx *f)
{
	char name[32];

	fx_session(f, 1);
	assert_int_equal(used(f, dir), LIMIT);
	assert_int_equal(set(f, dir, "user.x", 1), -LE_DQUOT);
	assert_int_equal(take(f, file, name_of(name, 3)), 0);
	assert_int_equal(set(f, dir, "user.x", 1), 0);
}

static void test_counts_stay_over_a_crash(void **state)
{
	struct fx *f = fx_create_to_crash(1);

	(void)state;
	fx_run(f, fill);
	fx_crash(f);
	fx_run(f, see);
	assert_int_equal(fx_check(f, false), 0);
	fx_destroy(f);
}

#define CHECKED(name, body)                                                                        \
	static void name(void **state)                                                             \
	{                                                                                          \
		struct fx *f = fx_create(1);                                                       \
		(void)state;                                                                       \
		fx_run(f, body);                                                                   \
		assert_int_equal(fx_check(f, false), 0);                                           \
		fx_destroy(f);                                                                     \
	}
CHECKED(test_attributes_are_limited, limited)
CHECKED(test_what_goes_is_given_back, returned)
CHECKED(test_they_go_with_their_file, moved)
CHECKED(test_access_lists_count, lists)
CHECKED(test_those_of_one_batch_count, at_once)
CHECKED(test_capabilities_are_short, capabilities)
CHECKED(test_targets_of_links_count, targets_of_links)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_attributes_are_limited),
		cmocka_unit_test(test_what_goes_is_given_back),
		cmocka_unit_test(test_they_go_with_their_file),
		cmocka_unit_test(test_access_lists_count),
		cmocka_unit_test(test_those_of_one_batch_count),
		cmocka_unit_test(test_capabilities_are_short),
		cmocka_unit_test(test_targets_of_links_count),
		cmocka_unit_test(test_counts_stay_over_a_crash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
