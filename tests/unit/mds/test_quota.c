/* SPDX-License-Identifier: Apache-2.0 */
/* Quotas: what is counted, over crashes too, and what is reserved for writers. */
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>

#include "mds/store/scan.h"
#include "tests/unit/mds/fixture.h"

static struct ino dir;

static int set(struct fx *f, struct ino ino, uint32_t mask, uint64_t bytes, uint64_t inodes)
{
	struct mds_quota_set_req in = {.cred = f->cred,
				       .ino = ino,
				       .mask = mask,
				       .bytes_hard = bytes,
				       .inodes_hard = inodes};
	struct mds_quota_set_rep out;

	return fx_call(f, OP_mds_quota_set, &in, &out);
}

static struct quota_state get(struct fx *f, struct ino ino)
{
	struct mds_quota_get_req in = {.ino = ino};
	struct mds_quota_get_rep out;

	assert_int_equal(fx_call(f, OP_mds_quota_get, &in, &out), 0);
	return out.quota;
}

static int64_t space(struct fx *f, struct ino ino, uint64_t bytes)
{
	struct mds_space_req in = {.ino = ino, .bytes = bytes};
	struct mds_space_rep out;

	TRY(fx_call(f, OP_mds_space, &in, &out));
	return (int64_t)out.bytes;
}

static void begin(struct fx *f)
{
	fx_session(f, 1);
	assert_int_equal(fx_mkdir(f, LEAT_ROOT_INO, "d", &dir), 0);
	assert_int_equal(set(f, dir, QUOTA_BYTES_HARD | QUOTA_INODES_HARD, 10 << 20, 4), 0);
	assert_int_equal(get(f, dir).inodes, 1);
	assert_int_equal(get(f, dir).bytes, 4096);
}

static void writers(struct fx *f)
{
	struct attr a, b;
	int64_t got;

	begin(f);
	assert_int_equal(fx_create_file(f, dir, "a", O_WRONLY, &a), 0);
	assert_int_equal(fx_create_file(f, dir, "b", O_WRONLY, &b), 0);
	assert_int_equal(a.project, get(f, dir).project);
	got = space(f, a.ino, 6 << 20);
	assert_in_range(got, 6 << 20, 7 << 20);
	assert_int_equal(get(f, dir).reserved, got);
	assert_int_equal(space(f, b.ino, 5 << 20), -LE_DQUOT);
	assert_true(space(f, b.ino, 3 << 20) > 0);
	/* The last writer closes: its bytes are counted, and its reservation is released. */
	assert_int_equal(fx_close(f, b.ino, O_WRONLY, 1 << 20), 0);
	assert_int_equal(get(f, dir).reserved, got);
	assert_int_equal(get(f, dir).bytes, 4096 + (1 << 20));
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, 6 << 20), 0);
	assert_int_equal(get(f, dir).reserved, 0);
	assert_int_equal(get(f, dir).bytes, 4096 + (7 << 20));
	assert_int_equal(get(f, dir).inodes, 3);
	assert_int_equal(space(f, a.ino, 4 << 20), -LE_DQUOT);
	/* The file is not open: nothing would release the reservation. */
	assert_int_equal(space(f, a.ino, 1 << 20), (1 << 20) + ((2 << 20) - 4096) / 16);
	assert_int_equal(get(f, dir).reserved, 0);
	assert_int_equal(fx_truncate(f, a.ino, 0), 0);
	assert_int_equal(get(f, dir).bytes, 4096 + (1 << 20));
	assert_int_equal(fx_unlink(f, dir, "b"), 0);
	assert_int_equal(get(f, dir).bytes, 4096);
}

TEST(test_space_is_reserved_while_a_file_is_written, writers)

/* Only the chains have the size of a file that several sessions wrote. Until they have answered its
 * bytes stay reserved, however many files are to be queried, and however long the chains do not
 * answer. */
#define MANY_FILES 70

static void unsettled(struct fx *f)
{
	const uint64_t first = f->session;
	struct attr a[MANY_FILES];
	uint64_t got = 0;
	char name[8];

	assert_int_equal(fx_mkdir(f, LEAT_ROOT_INO, "d", &dir), 0);
	assert_int_equal(set(f, dir, QUOTA_BYTES_HARD, 100 << 20, 0), 0);
	for (uint32_t i = 0; i < MANY_FILES; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		assert_int_equal(fx_create_file(f, dir, name, O_WRONLY, &a[i]), 0);
		got += (uint64_t)space(f, a[i].ino, 4096);
	}
	f->session = fx_session(f, 2);
	f->slot = 1;
	for (uint32_t i = 0; i < MANY_FILES; i++) {
		assert_int_equal(fx_open(f, a[i].ino, O_WRONLY), 0);
		assert_int_equal(fx_close(f, a[i].ino, O_WRONLY, 4096), 0);
	}
	f->session = first;
	f->slot = 0;
	f->stat = (struct oss_stat_rep){.size = 4096, .used = 4096, .n_chunks = 1};
	f->oss_fail = true;
	for (uint32_t i = 0; i < MANY_FILES; i++)
		assert_int_equal(fx_close(f, a[i].ino, O_WRONLY, 4096), 0);
	assert_int_equal(get(f, dir).reserved, got);
	assert_int_equal(fiber_sleep_us(50000000), 0);
	assert_int_equal(get(f, dir).reserved, got);
	assert_int_equal(get(f, dir).bytes, 4096);
	/* A removed file counts nothing. */
	assert_int_equal(fx_unlink(f, dir, "f0"), 0);
	f->oss_fail = false;
	assert_int_equal(fiber_sleep_us(30000000), 0);
	assert_int_equal(get(f, dir).reserved, 0);
	assert_int_equal(get(f, dir).bytes, 4096 + (MANY_FILES - 1) * 3 * 4096);
	assert_int_equal(f->m->opens.n, 0);
}

TEST(test_what_is_not_settled_stays_reserved, unsettled)

/* A quota ends with its directory; its row is deleted with the last inode that belongs to it. */
static bool has_row(struct fx *f, uint32_t project)
{
	struct kv_value v;

	if (store_get_record(&f->m->store, key_of('U', project), &v) != 0)
		return false;
	kv_value_fini(&v);
	return true;
}

static void removed(struct fx *f)
{
	uint32_t project;
	struct attr a;

	begin(f);
	project = get(f, dir).project;
	assert_int_equal(fx_create_file(f, dir, "a", O_WRONLY, &a), 0);
	assert_int_equal(fx_unlink(f, dir, "a"), 0);
	assert_true(has_row(f, project));
	assert_int_equal(fx_rmdir(f, LEAT_ROOT_INO, "d"), 0);
	assert_true(has_row(f, project));
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, 0), 0);
	assert_false(has_row(f, project));
}

static void test_it_ends_with_its_directory(void **state)
{
	struct fx *f = fx_create(1);

	(void)state;
	fx_run(f, removed);
	assert_int_equal(fx_check(f, false), 0);
	fx_destroy(f);
}

/* Allocation is limited, in a file with data and in one without. */
static void promises(struct fx *f)
{
	struct mds_fallocate_req q = {.len = 11 << 20};
	struct attr a;

	begin(f);
	assert_int_equal(fx_create_file(f, dir, "a", O_WRONLY, &a), 0);
	q.ino = a.ino;
	q.mode = FALLOC_FL_ZERO_RANGE;
	assert_int_equal(fx_call(f, OP_mds_fallocate, &q, NULL), -LE_DQUOT);
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, 4096), 0);
	assert_int_equal(fx_call(f, OP_mds_fallocate, &q, NULL), -LE_DQUOT);
	q.mode = 0;
	assert_int_equal(fx_call(f, OP_mds_fallocate, &q, NULL), -LE_DQUOT);
	assert_int_equal(get(f, dir).bytes, 2 * 4096);
	q.mode = FALLOC_FL_ZERO_RANGE;
	q.len = 8 << 20;
	assert_int_equal(fx_call(f, OP_mds_fallocate, &q, NULL), 0);
	assert_int_equal(get(f, dir).bytes, 4096 + (8 << 20));
}

TEST(test_what_is_allocated_counts, promises)

/* A whiteout counts as an inode. */
static void whiteouts(struct fx *f)
{
	struct attr a;

	begin(f);
	for (int i = 0; i < 3; i++) {
		char name[2] = {(char)('a' + i), 0};

		assert_int_equal(fx_create_file(f, dir, name, O_RDONLY, &a), 0);
		assert_int_equal(fx_close(f, a.ino, O_RDONLY, 0), 0);
	}
	assert_int_equal(fx_rename(f, dir, "a", dir, "x", RENAME_WHITEOUT), -LE_DQUOT);
	assert_int_equal(fx_lookup(f, dir, "x", NULL), -LE_NOENT);
	assert_int_equal(fx_rename(f, dir, "a", dir, "x", 0), 0);
	assert_int_equal(fx_unlink(f, dir, "b"), 0);
	assert_int_equal(fx_rename(f, dir, "x", dir, "a", RENAME_WHITEOUT), 0);
	assert_int_equal(get(f, dir).inodes, 4);
}

TEST(test_whiteouts_count, whiteouts)

/* A sealed file moves to another project, and no other attribute of it changes. */
static void sealed(struct fx *f)
{
	struct mds_setattr_req q = {.cred = f->cred, .mask = SET_SEALED};
	struct mds_setattr_rep p;
	struct attr a, b;

	begin(f);
	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, "a", O_WRONLY, &a), 0);
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, 4096), 0);
	q.ino = a.ino;
	q.attr.flags = ATTR_SEALED;
	assert_int_equal(fx_call(f, OP_mds_setattr, &q, &p), 0);
	a = fx_attr(f, a.ino);
	fx_sleep_ms(2);
	q.mask = SET_PROJECT;
	q.attr = (struct attr){.project = get(f, dir).project};
	assert_int_equal(fx_call(f, OP_mds_setattr, &q, &p), 0);
	b = fx_attr(f, a.ino);
	assert_int_equal(b.project, q.attr.project);
	assert_int_equal(b.change, a.change);
	assert_int_equal(b.ctime_ns, a.ctime_ns);
	assert_int_equal(get(f, dir).inodes, 2);
	assert_int_equal(get(f, dir).bytes, 2 * 4096);
	q.mask = SET_PROJECT | SET_MODE;
	assert_int_equal(fx_call(f, OP_mds_setattr, &q, &p), -LE_PERM);
	q.mask = SET_PROJECT;
	q.cred.uid = 5;
	assert_int_equal(fx_call(f, OP_mds_setattr, &q, &p), -LE_PERM);
	q.mask = 0;
	q.cred.uid = 0;
	assert_int_equal(fx_call(f, OP_mds_setattr, &q, &p), -LE_PERM);
}

TEST(test_sealed_files_count, sealed)

static void fill(struct fx *f)
{
	struct attr a;

	begin(f);
	for (int i = 0; i < 3; i++) {
		char name[2] = {(char)('a' + i), 0};

		assert_int_equal(fx_create_file(f, dir, name, O_WRONLY, &a), 0);
		assert_int_equal(fx_close(f, a.ino, O_WRONLY, 4096), 0);
	}
	assert_int_equal(fx_create_file(f, dir, "d", O_WRONLY, &a), -LE_DQUOT);
	assert_int_equal(fx_rename(f, dir, "a", LEAT_ROOT_INO, "a", 0), -LE_XDEV);
}

static void see(struct fx *f)
{
	struct attr a;

	fx_session(f, 1);
	assert_int_equal(get(f, dir).inodes, 4);
	assert_int_equal(get(f, dir).bytes, 4 * 4096);
	assert_int_equal(fx_create_file(f, dir, "d", O_WRONLY, &a), -LE_DQUOT);
	f->cred.uid = 5;
	assert_int_equal(set(f, dir, QUOTA_INODES_HARD, 0, 100), -LE_PERM);
	f->cred.uid = 0;
	assert_int_equal(set(f, dir, QUOTA_INODES_HARD, 0, 5), 0);
	assert_int_equal(fx_create_file(f, dir, "d", O_WRONLY, &a), 0);
	assert_int_equal(get(f, dir).bytes_hard, 10 << 20);
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

static void spoil(struct fx *f)
{
	struct store *s = &f->m->store;
	struct quota *q;

	fill(f);
	q = quota_find(s, get(f, dir).project);
	assert_non_null(q);
	assert_int_equal(txn_begin(s), 0);
	q->rec.inodes = 77;
	q->rec.bytes = 1;
	quota_changed(s, q);
	assert_int_equal(store_wait(s, txn_end(s)), 0);
}

static void test_check_repairs_counts(void **state)
{
	struct fx *f = fx_create(1);

	(void)state;
	fx_run(f, spoil);
	assert_int_equal(fx_check(f, false), 1);
	assert_int_equal(fx_check(f, true), 1);
	assert_int_equal(fx_check(f, false), 0);
	fx_run(f, see);
	fx_destroy(f);
}

/* ---- listing all quotas ---- */

#define MANY 300u

static struct ino many[MANY];

/* Reads one page and adds its rows to *ret_n. *ret_project: the project of path, if the page has
 * it. Returns where the next page begins. */
static uint32_t page(struct fx *f, uint32_t after, const char *path, uint32_t *ret_n,
		     uint32_t *ret_project)
{
	struct mds_quota_list_req in = {.cred = f->cred, .after = after};
	struct mds_quota_list_rep out = {0};
	struct wire_r r;
	uint32_t last = after;

	assert_int_equal(fx_call(f, OP_mds_quota_list, &in, &out), 0);
	assert_true(out.rows.len <= 192u << 10);
	wire_r_init(&r, out.rows.data, out.rows.len);
	while (!wire_r_end(&r)) {
		struct quota_row q = {0};

		wire_get_quota_row(&r, &q);
		assert_int_equal(r.status, 0);
		assert_true(q.quota.project > last);
		last = q.quota.project;
		++*ret_n;
		if (path != NULL && q.path.len == strlen(path) &&
		    memcmp(q.path.data, path, q.path.len) == 0)
			*ret_project = q.quota.project;
	}
	assert_true(out.next == 0 || out.next >= last);
	return out.next;
}

static uint32_t list(struct fx *f, const char *path, uint32_t *ret_project)
{
	uint32_t next = 0, n = 0, project = 0;

	do {
		next = page(f, next, path, &n, &project);
	} while (next != 0);
	if (ret_project != NULL)
		*ret_project = project;
	return n;
}

static void make_many(struct fx *f)
{
	char name[16];

	fx_session(f, 1);
	assert_int_equal(fx_mkdir(f, LEAT_ROOT_INO, "d", &dir), 0);
	for (uint32_t i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "%u", i);
		assert_int_equal(fx_mkdir(f, dir, name, &many[i]), 0);
		assert_int_equal(set(f, many[i], QUOTA_INODES_HARD, 0, 4), 0);
	}
}

static void listed(struct fx *f)
{
	uint32_t project, n = 0, next;

	make_many(f);
	assert_int_equal(list(f, "/d/299", &project), MANY);
	assert_int_equal(project, get(f, many[299]).project);
	next = page(f, 0, NULL, &n, &project);
	assert_in_range(n, 1, MANY / 2);
	/* Removed between two pages: the last two that were listed, and the next one. */
	assert_int_equal(next, get(f, many[n - 1]).project);
	for (uint32_t i = n - 2; i <= n; i++) {
		char name[16];

		snprintf(name, sizeof(name), "%u", i);
		assert_int_equal(fx_rmdir(f, dir, name), 0);
	}
	while (next != 0)
		next = page(f, next, NULL, &n, &project);
	assert_int_equal(n, MANY - 1);
	assert_int_equal(list(f, "/d/299", &project), MANY - 3);
	/* After the last project there are no rows, whatever number is requested. */
	n = 0;
	assert_int_equal(page(f, UINT32_MAX, NULL, &n, &project), 0);
	assert_int_equal(n, 0);
}

TEST(test_all_are_listed_in_pages, listed)

static void long_paths(struct fx *f)
{
	struct ino at = LEAT_ROOT_INO;
	char name[256], path[4097] = "";
	uint32_t project;

	fx_session(f, 1);
	memset(name, 'n', 255);
	name[255] = '\0';
	for (int i = 0; i < 15; i++) {
		assert_int_equal(fx_mkdir(f, at, name, &at), 0);
		snprintf(path + strlen(path), sizeof(path) - strlen(path), "/%s", name);
	}
	for (uint32_t i = 0; i < 100; i++) { /* 100 of 4 KB do not fit into a page */
		snprintf(name, sizeof(name), "%u", i);
		assert_int_equal(fx_mkdir(f, at, name, &many[i]), 0);
		assert_int_equal(set(f, many[i], QUOTA_INODES_HARD, 0, 4), 0);
	}
	snprintf(path + strlen(path), sizeof(path) - strlen(path), "/99");
	assert_int_equal(list(f, path, &project), 100);
	assert_int_equal(project, get(f, many[99]).project);
	/* A quota with a too long path is listed without a path; that of / has its path. */
	memset(name, 'n', 255);
	assert_int_equal(fx_mkdir(f, at, name, &at), 0);
	assert_int_equal(fx_mkdir(f, at, name, &at), 0);
	assert_int_equal(set(f, at, QUOTA_INODES_HARD, 0, 4), 0);
	assert_int_equal(list(f, "", &project), 101);
	assert_int_equal(project, get(f, at).project);
	assert_int_equal(set(f, LEAT_ROOT_INO, QUOTA_INODES_HARD, 0, 4000), 0);
	assert_int_equal(list(f, "/", &project), 102);
	assert_int_equal(project, get(f, LEAT_ROOT_INO).project);
	f->cred.uid = 5;
	assert_int_equal(list(f, "", &project), 101);
	assert_int_equal(project, 0);
}

TEST(test_long_paths_are_listed, long_paths)

static void chmod_dir(struct fx *f, struct ino ino, uint32_t mode)
{
	struct mds_setattr_req q = {.cred = f->cred, .ino = ino, .mask = SET_MODE};
	struct mds_setattr_rep p;

	q.attr.mode = mode;
	assert_int_equal(fx_call(f, OP_mds_setattr, &q, &p), 0);
}

/* A check by the client's kernel does not count: there was none. */
static void of_users(struct fx *f)
{
	static const struct {
		uint32_t mode, n;
	} cases[] = {{0755, 1}, {0700, 0}, {0711, 0}, {0744, 0}, {0705, 1}};
	struct cred root = f->cred;
	struct ino above;

	fx_session(f, 1);
	assert_int_equal(fx_mkdir(f, LEAT_ROOT_INO, "above", &above), 0);
	assert_int_equal(fx_mkdir(f, above, "d", &dir), 0);
	assert_int_equal(set(f, dir, QUOTA_INODES_HARD, 0, 4), 0);
	chmod_dir(f, dir, 0); /* the tree itself needs no permissions */
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		f->cred = root;
		chmod_dir(f, above, cases[i].mode);
		assert_int_equal(list(f, NULL, NULL), 1);
		f->cred = (struct cred){.uid = 5, .gid = 5, .flags = CRED_CHECKED};
		assert_int_equal(list(f, NULL, NULL), cases[i].n);
	}
	f->cred = root;
	chmod_dir(f, LEAT_ROOT_INO, 0700);
	assert_int_equal(list(f, NULL, NULL), 1);
	f->cred = (struct cred){.uid = 5, .gid = 5};
	assert_int_equal(list(f, NULL, NULL), 0);
}

TEST(test_users_are_told_of_what_they_could_find, of_users)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_space_is_reserved_while_a_file_is_written),
		cmocka_unit_test(test_what_is_not_settled_stays_reserved),
		cmocka_unit_test(test_it_ends_with_its_directory),
		cmocka_unit_test(test_what_is_allocated_counts),
		cmocka_unit_test(test_whiteouts_count),
		cmocka_unit_test(test_sealed_files_count),
		cmocka_unit_test(test_counts_stay_over_a_crash),
		cmocka_unit_test(test_check_repairs_counts),
		cmocka_unit_test(test_all_are_listed_in_pages),
		cmocka_unit_test(test_long_paths_are_listed),
		cmocka_unit_test(test_users_are_told_of_what_they_could_find),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
