/* SPDX-License-Identifier: Apache-2.0 */
/* Access lists: their forms, what they permit, and what the store keeps of them. */
#include <fcntl.h>
#include <sys/xattr.h>

#include "mds/access/acl.h"
#include "mds/access/perm.h"
#include "tests/unit/mds/fixture.h"

#define NO_ID UINT32_MAX

struct value {
	uint8_t b[ACL_XATTR_MAX + 16];
	uint32_t len;
};

static void add(struct value *l, uint32_t tag, uint32_t perm, uint32_t id)
{
	const uint32_t v[] = {tag | perm << 16, id};

	if (l->len == 0) {
		memcpy(l->b, "\2\0\0", 4);
		l->len = 4;
	}
	for (int i = 0; i < 8; i++)
		l->b[l->len++] = (uint8_t)(v[i / 4] >> (i % 4 * 8));
}

/* u::rw- u:10:rwx g::r-- g:20:r-x g:21:-w- m::rwx o::--- */
static struct value example(void)
{
	struct value l = {.len = 0};

	add(&l, 0x01, 6, NO_ID);
	add(&l, 0x02, 7, 10);
	add(&l, 0x04, 4, NO_ID);
	add(&l, 0x08, 5, 20);
	add(&l, 0x08, 2, 21);
	add(&l, 0x10, 7, NO_ID);
	add(&l, 0x20, 0, NO_ID);
	return l;
}

static int parse(const struct value *l, uint8_t *buf, uint32_t *ret_len)
{
	struct acl_base base;

	return acl_from_xattr(bytes_of(l->b, l->len), buf, ret_len, &base);
}

static void test_forms(void **state)
{
	struct value l = example();
	uint8_t buf[ACL_LEN_MAX], out[ACL_XATTR_MAX];
	uint32_t len;

	(void)state;
	assert_int_equal(parse(&l, buf, &len), 0);
	assert_int_equal(len, ACL_HEAD_LEN + 3 * ACL_ENTRY_LEN);
	assert_int_equal(acl_check(bytes_of(buf, len)), 0);
	assert_int_equal(acl_to_xattr(bytes_of(buf, len), ACL_DEFAULT, 0, out), l.len);
	assert_memory_equal(out, l.b, l.len);
	/* The mode overrides the entries that it has. */
	assert_int_equal(acl_to_xattr(bytes_of(buf, len), ACL_ACCESS, 0754, out), l.len);
	assert_int_equal(out[4 + 2], 7);
	assert_int_equal(out[4 + 5 * 8 + 2], 5);
	assert_int_equal(out[4 + 6 * 8 + 2], 4);
}

/* Any bytes are refused, or make a list that the store accepts. */
static void test_any_bytes(void **state)
{
	const struct value good = example();
	uint8_t buf[ACL_LEN_MAX];
	uint32_t len;

	(void)state;
	for (uint32_t at = 0; at < good.len; at++)
		for (uint32_t bit = 0; bit < 8; bit++) {
			struct value l = good;

			l.b[at] ^= (uint8_t)(1u << bit);
			if (parse(&l, buf, &len) == 0)
				assert_int_equal(acl_check(bytes_of(buf, len)), 0);
		}
	for (uint32_t cut = 1; cut < good.len; cut++) {
		struct value l = good;

		l.len = cut;
		if (parse(&l, buf, &len) == 0)
			assert_int_equal(cut, 4); /* a head alone: an empty list */
	}
	for (uint32_t cut = 1; cut < len; cut++)
		if (cut < ACL_HEAD_LEN || (cut - ACL_HEAD_LEN) % ACL_ENTRY_LEN != 0)
			assert_int_equal(acl_check(bytes_of(buf, cut)), -LE_CORRUPT_STORE);
	assert_int_equal(acl_check(bytes_of("\0\0\0\10\0\0\0\0", 8)), -LE_CORRUPT_STORE);
	assert_int_equal(acl_check(bytes_of("\1\0\0\30\0\0\0\0", 8)), -LE_CORRUPT_STORE);
}

/* With the example list, on a file of 1:2 with mode 0670 or another mask. */
static const struct {
	uint32_t uid, gid, group, mode, mask;
	int want;
} accesses[] = {
	{1, 20, 20, 0670, PERM_W, 0}, /* the owner's own entry */
	{1, 20, 20, 0670, PERM_X, -LE_ACCES},
	{10, 9, 9, 0670, 7, 0},
	{10, 9, 9, 0640, PERM_R, 0}, /* the mask */
	{10, 9, 9, 0640, PERM_W, -LE_ACCES},
	{10, 20, 21, 0614, PERM_R, -LE_ACCES}, /* own entry: not the others' */
	{11, 2, 9, 0670, PERM_R, 0},           /* the owning group */
	{11, 2, 9, 0670, PERM_W, -LE_ACCES},
	{11, 2, 21, 0670, PERM_W, 0},                   /* by another of the user's groups */
	{11, 20, 21, 0670, PERM_R | PERM_W, -LE_ACCES}, /* no entry has both */
	{11, 20, 9, 0670, PERM_R | PERM_X, 0},
	{11, 20, 9, 0627, PERM_R, -LE_ACCES}, /* a group's entry: not the others' */
	{11, 9, 9, 0674, PERM_R, 0},          /* others */
	{11, 9, 9, 0670, PERM_R, -LE_ACCES},
	{0, 9, 9, 0600, PERM_R | PERM_W, 0},
};

static void test_access(void **state)
{
	struct value l = example();
	uint8_t buf[ACL_LEN_MAX];
	uint32_t len;

	(void)state;
	assert_int_equal(parse(&l, buf, &len), 0);
	for (size_t i = 0; i < ARRAY_SIZE(accesses); i++) {
		struct inode_rec rec = {
			.attr = {.mode = S_IFREG | accesses[i].mode, .uid = 1, .gid = 2},
			.acl = bytes_of(buf, len)};
		struct cred c = {.uid = accesses[i].uid,
				 .gid = accesses[i].gid,
				 .groups = bytes_of(&accesses[i].group, 4)};

		if (perm_access(&c, &rec, accesses[i].mask) != accesses[i].want)
			fail_msg("row %zu", i);
	}
}

/* ---- in the store ---- */

static int set(struct fx *f, struct ino ino, const char *name, const void *value, uint32_t len)
{
	struct mds_setxattr_req in = {.cred = f->cred,
				      .ino = ino,
				      .name = bytes_str(name),
				      .value = bytes_of(value, len)};
	struct mds_setxattr_rep out;

	return fx_call(f, OP_mds_setxattr, &in, &out);
}

static int get(struct fx *f, struct ino ino, const char *name, struct bytes *ret)
{
	struct mds_getxattr_req in = {.cred = f->cred, .ino = ino, .name = bytes_str(name)};
	struct mds_getxattr_rep out;

	TRY(fx_call(f, OP_mds_getxattr, &in, &out));
	*ret = out.value;
	return 0;
}

static struct ino dir;

static void make_tree(struct fx *f)
{
	struct value l = example();
	struct attr a;

	fx_session(f, 1);
	assert_int_equal(fx_mkdir(f, LEAT_ROOT_INO, "d", &dir), 0);
	assert_int_equal(set(f, dir, "system.posix_acl_default", l.b, l.len), 0);
	assert_int_equal(fx_create_file(f, dir, "a", O_WRONLY, &a), 0);
	assert_int_equal(fx_create_file(f, dir, "b", O_WRONLY, &a), 0);
	/* One list in memory for all of them. */
	assert_int_equal(f->m->store.acls.n, 1);
}

static void see_tree(struct fx *f)
{
	struct value l = example();
	struct bytes v;
	struct attr a;

	fx_session(f, 1);
	assert_int_equal(fx_lookup(f, dir, "a", &a), 0);
	assert_int_equal(a.flags & ATTR_PLAIN, 0);
	assert_int_equal(get(f, a.ino, "system.posix_acl_access", &v), 0);
	assert_int_equal(v.len, l.len);
	assert_int_equal(get(f, dir, "system.posix_acl_default", &v), 0);
	assert_memory_equal(v.data, l.b, l.len);
	assert_int_equal(f->m->store.acls.n, 1);
	assert_int_equal(set(f, a.ino, "system.posix_acl_access", NULL, 0), 0);
	assert_int_equal(get(f, a.ino, "system.posix_acl_access", &v), -LE_NODATA);
	assert_int_equal(fx_getattr(f, a.ino, &a), 0);
	assert_true(a.flags & ATTR_PLAIN);
}

static void forget(struct fx *f)
{
	struct attr a;

	make_tree(f);
	for (int i = 0; i < 2; i++) {
		const char *name = i == 0 ? "a" : "b";

		assert_int_equal(fx_lookup(f, dir, name, &a), 0);
		assert_int_equal(fx_close(f, a.ino, O_WRONLY, 0), 0);
		assert_int_equal(fx_unlink(f, dir, name), 0);
	}
	assert_int_equal(f->m->store.acls.n, 1);
	assert_int_equal(fx_rmdir(f, LEAT_ROOT_INO, "d"), 0);
	assert_int_equal(f->m->store.acls.n, 0);
}

TEST(test_forgotten_with_the_last_user, forget)

static void test_kept_over_a_crash(void **state)
{
	struct fx *f = fx_create_to_crash(1);

	(void)state;
	fx_run(f, make_tree);
	fx_crash(f);
	fx_run(f, see_tree);
	assert_int_equal(fx_check(f, false), 0);
	fx_destroy(f);
}

/* A sealed file keeps its list, its mode and its layout. */
static void sealed(struct fx *f)
{
	struct mds_setattr_req seal = {.mask = SET_SEALED, .attr = {.flags = ATTR_SEALED}};
	struct mds_layout_set_req layout = {.layout = {.width = 1}};
	struct mds_removexattr_req none = {.name = bytes_str("system.posix_acl_access")};
	struct value l = example();
	struct attr a, after;

	fx_session(f, 1);
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "s", O_WRONLY, &a), 0);
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, 0), 0);
	seal.ino = layout.ino = none.ino = a.ino;
	assert_int_equal(fx_call(f, OP_mds_setattr, &seal, NULL), 0);
	assert_int_equal(fx_getattr(f, a.ino, &a), 0);
	assert_int_equal(set(f, a.ino, "system.posix_acl_access", l.b, l.len), -LE_PERM);
	assert_int_equal(fx_call(f, OP_mds_removexattr, &none, NULL), -LE_PERM);
	assert_int_equal(fx_call(f, OP_mds_layout_set, &layout, NULL), -LE_PERM);
	assert_int_equal(fx_getattr(f, a.ino, &after), 0);
	assert_int_equal(after.mode, a.mode);
	assert_int_equal(after.change, a.change);
	assert_int_equal(after.layout.gen, a.layout.gen);
}

TEST(test_sealed_files_keep_their_lists, sealed)

/* ---- limits of other extended attributes ---- */

static void limits(struct fx *f)
{
	static uint8_t big[LEAT_XATTR_VALUE_MAX + 1];
	char name[LEAT_XATTR_NAME_MAX + 1];
	struct bytes v;
	struct attr a;
	uint32_t n = 0;
	int rc = 0;

	fx_session(f, 1);
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "x", O_WRONLY, &a), 0);
	assert_int_equal(set(f, a.ino, "user.big", big, sizeof(big)), -LE_2BIG);
	assert_int_equal(set(f, a.ino, "user.big", big, sizeof(big) - 1), 0);
	assert_int_equal(set(f, a.ino, "user.", big, 1), -LE_INVAL);
	assert_int_equal(set(f, a.ino, "system.other", big, 1), -LE_NOTSUP);
	assert_int_equal(set(f, a.ino, "other.x", big, 1), -LE_NOTSUP);
	while (rc == 0) {
		snprintf(name, sizeof(name), "user.%0250u", n);
		rc = set(f, a.ino, name, big, 1);
		n += rc == 0;
	}
	assert_int_equal(rc, -LE_NOSPC);
	assert_in_range(n, 200, 256);
	struct mds_listxattr_req in = {.cred = f->cred, .ino = a.ino};
	struct mds_listxattr_rep out;
	assert_int_equal(fx_call(f, OP_mds_listxattr, &in, &out), 0);
	assert_in_range(out.names.len, 60000, 65536);
	f->cred = (struct cred){.uid = 7, .gid = 7};
	assert_int_equal(set(f, a.ino, "trusted.x", big, 1), -LE_PERM);
	assert_int_equal(set(f, a.ino, "security.x", big, 1), -LE_PERM);
	assert_int_equal(get(f, a.ino, "trusted.x", &v), -LE_NODATA);
}

TEST(test_attributes_have_limits, limits)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forms),
		cmocka_unit_test(test_any_bytes),
		cmocka_unit_test(test_access),
		cmocka_unit_test(test_kept_over_a_crash),
		cmocka_unit_test(test_forgotten_with_the_last_user),
		cmocka_unit_test(test_sealed_files_keep_their_lists),
		cmocka_unit_test(test_attributes_have_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
