/* Quotas: what is counted, over crashes too, and what is reserved for writers. */
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>

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

static struct mds_quota_get_rep get(struct fx *f, struct ino ino)
{
	struct mds_quota_get_req in = {.ino = ino};
	struct mds_quota_get_rep out;

	assert_int_equal(fx_call(f, OP_mds_quota_get, &in, &out), 0);
	return out;
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
	/* The last writer's close: what it has is counted, what was reserved is free again. */
	assert_int_equal(fx_close(f, b.ino, O_WRONLY, 1 << 20), 0);
	assert_int_equal(get(f, dir).reserved, got);
	assert_int_equal(get(f, dir).bytes, 4096 + (1 << 20));
	assert_int_equal(fx_close(f, a.ino, O_WRONLY, 6 << 20), 0);
	assert_int_equal(get(f, dir).reserved, 0);
	assert_int_equal(get(f, dir).bytes, 4096 + (7 << 20));
	assert_int_equal(get(f, dir).inodes, 3);
	assert_int_equal(space(f, a.ino, 4 << 20), -LE_DQUOT);
	/* Nobody would give that back. */
	assert_int_equal(space(f, a.ino, 1 << 20), (1 << 20) + ((2 << 20) - 4096) / 16);
	assert_int_equal(get(f, dir).reserved, 0);
	assert_int_equal(fx_truncate(f, a.ino, 0), 0);
	assert_int_equal(get(f, dir).bytes, 4096 + (1 << 20));
	assert_int_equal(fx_unlink(f, dir, "b"), 0);
	assert_int_equal(get(f, dir).bytes, 4096);
}

TEST(test_space_is_reserved_while_a_file_is_written, writers)

/* What several have written is known when the chains have said it. Until then it is reserved,
 * however many are to be asked about, and for how long they do not answer. */
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
	/* Gone is gone. */
	assert_int_equal(fx_unlink(f, dir, "f0"), 0);
	f->oss_fail = false;
	assert_int_equal(fiber_sleep_us(30000000), 0);
	assert_int_equal(get(f, dir).reserved, 0);
	assert_int_equal(get(f, dir).bytes, 4096 + (MANY_FILES - 1) * 3 * 4096);
	assert_int_equal(f->m->opens.n, 0);
}

TEST(test_what_is_not_settled_stays_reserved, unsettled)

/* With its directory a quota ends, and its row when the last that belongs to it is gone. */
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

/* Of a file with data and of one without, whatever it is asked to be there. */
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

/* A whiteout is one more. */
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

/* A sealed file is counted elsewhere, and nothing that was known of it becomes another. */
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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
