/* SPDX-License-Identifier: Apache-2.0 */
/* Rights against a model: users in groups, checked one by one. */
#include <endian.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/dataset/rights.h"
#include "common/base/assert.h"

#define USERS  5u /* 1 to 4, and 0 is root */
#define GROUPS 4u /* 0 to 3: the bits of a user's number in `member` are the user's groups */

static unsigned seed = 20261127;

static uint32_t pick(uint32_t n)
{
	return (uint32_t)rand_r(&seed) % n;
}

struct row {
	uint16_t tag, perm;
	uint32_t id;
};

static size_t build(uint8_t *acl, const struct row *rows, size_t n)
{
	struct posix_acl_xattr_header h = {htole32(POSIX_ACL_XATTR_VERSION)};

	memcpy(acl, &h, sizeof(h));
	for (size_t i = 0; i < n; i++) {
		struct posix_acl_xattr_entry e = {htole16(rows[i].tag), htole16(rows[i].perm),
						  htole32(rows[i].id)};
		memcpy(acl + sizeof(h) + i * sizeof(e), &e, sizeof(e));
	}
	return sizeof(h) + n * sizeof(struct posix_acl_xattr_entry);
}

static struct rights some_rights(struct acl_pool *p)
{
	static const uint32_t modes[] = {0755, 0644, 0700, 0750, 0640, 0711, 0070, 0007, 0444};
	struct rights r = {.mode = pick(3) ? modes[pick(9)] : pick(01000),
			   .uid = pick(USERS),
			   .gid = pick(GROUPS)};
	struct row rows[12];
	size_t n = 0;

	if (pick(2))
		return r;
	rows[n++] = (struct row){ACL_USER_OBJ, (uint16_t)(r.mode >> 6), UINT32_MAX};
	for (uint32_t u = 1; u < USERS; u++)
		if (!pick(3))
			rows[n++] = (struct row){ACL_USER, (uint16_t)pick(8), u};
	rows[n++] = (struct row){ACL_GROUP_OBJ, (uint16_t)pick(8), UINT32_MAX};
	for (uint32_t g = 0; g < GROUPS; g++)
		if (!pick(3))
			rows[n++] = (struct row){ACL_GROUP, (uint16_t)pick(8), g};
	rows[n++] = (struct row){ACL_MASK, (uint16_t)(r.mode >> 3 & 7), UINT32_MAX};
	rows[n++] = (struct row){ACL_OTHER, (uint16_t)(r.mode & 7), UINT32_MAX};
	uint8_t acl[256];
	assert_int_equal(acl_pool_set(p, &r, acl, build(acl, rows, n)), 0);
	return r;
}

/* acl(5); kernel: like Linux, which reads a list only where the group's bits are not 0. */
static bool allowed(const struct rights *r, uint32_t user, uint32_t groups, uint32_t bit,
		    bool kernel)
{
	bool found = false, given = false;

	if (user == 0)
		return true;
	if (user == r->uid && (!r->acl_len || kernel))
		return r->mode >> 6 & bit;
	if (!r->acl_len || (kernel && !(r->mode & 070)))
		return (groups >> r->gid & 1 ? r->mode >> 3 : r->mode) & bit;
	uint32_t n = (r->acl_len - 4) / 8, mask = 7;
	struct row rows[64];
	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *e = r->acl + 4 + 8 * (size_t)i;
		rows[i] = (struct row){e[0], e[2], e[4] | (uint32_t)e[5] << 8};
		if (rows[i].tag == ACL_MASK)
			mask = rows[i].perm;
	}
	if (user == r->uid)
		return rows[0].perm & bit;
	for (uint32_t i = 0; i < n; i++)
		if (rows[i].tag == ACL_USER && rows[i].id == user)
			return rows[i].perm & mask & bit;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t g = rows[i].tag == ACL_GROUP_OBJ ? r->gid : rows[i].id;
		if (!(rows[i].tag & (ACL_GROUP_OBJ | ACL_GROUP)) || !(groups >> g & 1))
			continue;
		found = true;
		given = given || (rows[i].perm & mask & bit);
	}
	return found ? given : (rows[n - 1].perm & bit) != 0;
}

static void never_more_may_than_could(void **state)
{
	uint32_t n_reserved = 0, n_could = 0;

	(void)state;
	printf("seed %u\n", seed);
	for (int round = 0; round < 20000; round++) {
		struct acl_pool p = {0};
		struct rights r = some_rights(&p), gates[3], got;
		uint32_t n = pick(4);
		for (uint32_t i = 0; i < n; i++)
			gates[i] = some_rights(&p);
		assert_int_equal(rights_conjunction(&r, gates, n, &p, &got), 0);
		bool same = rights_equal(&r, &got);
		struct rights bare = rights_without_acl(&r);
		assert_int_equal(bare.acl_len, 0);
		for (uint32_t user = 0; user < USERS; user++) {
			for (uint32_t groups = 0; groups < 1u << GROUPS; groups++) {
				bool could = allowed(&r, user, groups, 4, false), may, pass = true;
				for (uint32_t i = 0; i < n; i++)
					pass = pass && allowed(&gates[i], user, groups, 1, false);
				may = allowed(&got, user, groups, 4, false);
				if (may)
					assert_true(could && pass);
				if (!same && allowed(&got, user, groups, 4, true))
					assert_true(could && pass);
				if (allowed(&bare, user, groups, 4, true))
					assert_true(could);
				n_reserved += may;
				n_could += could && pass;
			}
		}
		acl_pool_fini(&p);
	}
	/* Most users who had access still have it. */
	printf("%u of %u kept\n", n_reserved, n_could);
	assert_true(n_reserved * 10 > n_could * 8);
}

static void who_surely_may_may(void **state)
{
	(void)state;
	for (int round = 0; round < 20000; round++) {
		struct acl_pool p = {0};
		struct rights r = some_rights(&p);
		bool sure = rights_surely(&r, RIGHTS_ALL, 0, 4);
		for (uint32_t user = 0; user < USERS; user++) {
			for (uint32_t groups = 0; groups < 1u << GROUPS; groups++) {
				bool may = allowed(&r, user, groups, 4, false);
				if (sure || rights_surely(&r, RIGHTS_USER, user, 4))
					assert_true(may);
				for (uint32_t g = 0; g < GROUPS; g++)
					if (groups >> g & 1 &&
					    rights_surely(&r, RIGHTS_GROUP, g, 4))
						assert_true(may);
			}
		}
		acl_pool_fini(&p);
	}
}

/* Usual rights are kept exactly. */
static void usual_trees(void **state)
{
	static const struct {
		struct rights r, gate, want;
	} cases[] = {
		/* alice's files in her home, which no other user may enter */
		{{.mode = 0644, .uid = 1, .gid = 1},
		 {.mode = 0700, .uid = 1, .gid = 1},
		 {.mode = 0400, .uid = 1, .gid = 1}},
		/* ... in a project's folder, for all of its group */
		{{.mode = 0644, .uid = 1, .gid = 1},
		 {.mode = 0750, .uid = 0, .gid = 2},
		 {.mode = 0440, .uid = 0, .gid = 2}},
		{{.mode = 0755, .uid = 1, .gid = 2},
		 {.mode = 02770, .uid = 0, .gid = 2},
		 {.mode = 0550, .uid = 0, .gid = 2}},
		{{.mode = 0640, .uid = 1, .gid = 2},
		 {.mode = 0750, .uid = 1, .gid = 2},
		 {.mode = 0440, .uid = 1, .gid = 2}},
		/* hers and her group's: she also reads as a member of the group */
		{{.mode = 0640, .uid = 1, .gid = 2},
		 {.mode = 0750, .uid = 0, .gid = 2},
		 {.mode = 0440, .uid = 0, .gid = 2}},
		/* of a group that may not enter the folder */
		{{.mode = 0640, .uid = 1, .gid = 3},
		 {.mode = 0750, .uid = 1, .gid = 2},
		 {.mode = 0400, .uid = 1, .gid = 3}},
		{{.mode = 04755, .uid = 1, .gid = 3},
		 {.mode = 0711, .uid = 4, .gid = 2},
		 {.mode = 04755, .uid = 1, .gid = 3}},
	};
	struct acl_pool p = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct rights got;
		assert_int_equal(rights_conjunction(&cases[i].r, &cases[i].gate, 1, &p, &got), 0);
		assert_true(rights_equal(&got, &cases[i].want));
	}
	acl_pool_fini(&p);
}

static void an_audience_reads_every_file(void **state)
{
	const struct rights file = {.mode = 0640, .uid = 1, .gid = 2};
	const struct rights open = {.mode = 0755, .uid = 0, .gid = 0};
	const struct rights other = {.mode = 0644, .uid = 3, .gid = 2};
	const struct rights mine = {.mode = 0600, .uid = 1, .gid = 2};
	struct audience a = audience_of(1, 2);
	struct acl_pool p = {0};
	struct rights r;

	(void)state;
	audience_add(&a, &open, 5);
	assert_int_equal(audience_rights(&a, 0, 4, &p, &r), 0);
	assert_true(r.mode == 0644 && r.uid == 0 && r.acl_len == 0);
	audience_add(&a, &file, 4);
	assert_int_equal(audience_rights(&a, 0, 4, &p, &r), 0);
	assert_true(r.mode == 0640 && r.uid == 0 && r.gid == 2);
	assert_true(allowed(&r, 1, 0, 4, true) && allowed(&r, 3, 1 << 2, 4, true));
	assert_false(allowed(&r, 3, 1 << 1, 4, true) || allowed(&r, 1, 0, 2, true));
	audience_add(&a, &other, 4);
	assert_int_equal(audience_rights(&a, 0, 5, &p, &r), 0);
	assert_true(allowed(&r, 1, 0, 4, true) && allowed(&r, 3, 1 << 2, 1, true));
	audience_add(&a, &mine, 4);
	assert_int_equal(audience_rights(&a, 0, 4, &p, &r), 0);
	assert_true(allowed(&r, 1, 0, 4, true));
	assert_false(allowed(&r, 3, 1 << 2, 4, true));
	/* Only the owner is left. */
	a.uid = 4;
	audience_add(&a, &mine, 4);
	assert_int_equal(audience_rights(&a, 3, 5, &p, &r), 0);
	assert_true(r.mode == 0700 && r.uid == 3 && r.acl_len == 0);
	acl_pool_fini(&p);
}

static void lists_from_outside(void **state)
{
	const struct row good[] = {{ACL_USER_OBJ, 6, UINT32_MAX},
				   {ACL_USER, 4, 7},
				   {ACL_GROUP_OBJ, 4, UINT32_MAX},
				   {ACL_MASK, 4, UINT32_MAX},
				   {ACL_OTHER, 0, UINT32_MAX}};
	struct acl_pool p = {0};
	struct rights r = {0}, folder;
	struct row rows[5];
	uint8_t acl[64];
	size_t len = build(acl, good, 5);

	(void)state;
	assert_true(rights_acl_is_valid(acl, len));
	for (size_t i = 0; i < len; i++)
		assert_false(rights_acl_is_valid(acl, i));
	for (int i = 0; i < 5; i++) {
		memcpy(rows, good, sizeof(rows));
		rows[i].perm = 8;
		assert_false(rights_acl_is_valid(acl, build(acl, rows, 5)));
		rows[i] = good[(i + 1) % 5];
		assert_false(rights_acl_is_valid(acl, build(acl, rows, 5)));
		rows[i] = (struct row){3, 4, 1};
		assert_false(rights_acl_is_valid(acl, build(acl, rows, 5)));
	}
	len = build(acl, good, 5);
	assert_int_equal(acl_pool_set(&p, &r, acl, len - 1), -LE_CORRUPT);
	assert_int_equal(acl_pool_set(&p, &r, acl, len), 0);
	const uint8_t *first = r.acl;
	assert_int_equal(acl_pool_set(&p, &r, acl, len), 0);
	assert_ptr_equal(r.acl, first);
	/* A user who may read an archive may read its folder. */
	r.mode = 0640;
	assert_int_equal(rights_of_folder(&r, &p, &folder), 0);
	assert_int_equal(folder.mode, 0550);
	assert_true(rights_surely(&folder, RIGHTS_USER, 7, 5));
	assert_false(rights_surely(&folder, RIGHTS_USER, 8, 1));
	acl_pool_fini(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(never_more_may_than_could),
		cmocka_unit_test(who_surely_may_may),
		cmocka_unit_test(usual_trees),
		cmocka_unit_test(an_audience_reads_every_file),
		cmocka_unit_test(lists_from_outside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
