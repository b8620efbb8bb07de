/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of leat fsck to the metadata server: pages of one snapshot, and repairs, which are
 * executed once and only if the error still exists. */
#include <fcntl.h>

#include "tests/unit/mds/fixture.h"

#define N_FILES 40u

static struct mds_fsck_page_rep rep;

static int page(struct fx *f, uint64_t snapshot, uint32_t kind, struct bytes from, uint32_t max)
{
	struct mds_fsck_page_req q = {snapshot, kind, from, max};

	rep = (struct mds_fsck_page_rep){0};
	return fx_call(f, OP_mds_fsck_page, &q, &rep);
}

/* Counts all inodes of a snapshot, max in a page. *ret_last: the newest one. */
static uint32_t count_inodes(struct fx *f, uint64_t snapshot, uint32_t max,
			     struct fsck_inode *ret_last)
{
	uint8_t from[512];
	uint32_t len = 0, n = 0, pages = 0;

	do {
		struct wire_r r;

		assert_int_equal(page(f, snapshot, FSCK_INODES, bytes_of(from, len), max), 0);
		wire_r_init(&r, rep.rows.data, rep.rows.len);
		for (; !wire_r_end(&r); n++)
			wire_get_fsck_inode(&r, ret_last);
		assert_int_equal(r.status, 0);
		len = rep.next.len;
		assert_true(len <= sizeof(from));
		if (len)
			memcpy(from, rep.next.data, len);
		pages++;
	} while (len);
	assert_true(pages >= n / max);
	return n;
}

static int repair(struct fx *f, struct mds_fsck_repair_req q, uint8_t *ret_done)
{
	struct mds_fsck_repair_rep p = {0};
	int rc = fx_call(f, OP_mds_fsck_repair, &q, &p);

	*ret_done = p.done;
	return rc;
}

static struct ino make(struct fx *f, const char *name)
{
	struct attr a;

	assert_int_equal(fx_create_file(f, LEAT_ROOT_INO, name, O_RDONLY, &a), 0);
	assert_int_equal(fx_close(f, a.ino, O_RDONLY, UINT64_MAX), 0);
	return a.ino;
}

static void make_many(struct fx *f)
{
	for (uint32_t i = 0; i < N_FILES; i++) {
		char name[16];

		snprintf(name, sizeof(name), "f%u", i);
		make(f, name);
	}
}

static void pages(struct fx *f)
{
	struct fsck_inode last = {0};
	struct ino newer;
	uint64_t first;

	make_many(f);
	assert_int_equal(page(f, 0, FSCK_INODES, bytes_of(NULL, 0), 1), 0);
	first = rep.snapshot;
	assert_int_equal(rep.n_inodes, N_FILES + 1);
	/* The snapshot does not have later files. */
	newer = make(f, "later");
	assert_true(newer.v >= rep.next_ino);
	assert_int_equal(count_inodes(f, first, 7, &last), N_FILES + 1);
	assert_int_equal(count_inodes(f, first, 1000, &last), N_FILES + 1);
	assert_true(last.ino.v < newer.v && S_ISREG(last.mode) && last.nlink == 1);
	/* A second snapshot replaces it. */
	assert_int_equal(page(f, 0, FSCK_ENTRIES, bytes_of(NULL, 0), 5), 0);
	assert_int_equal(rep.snapshot, first + 1);
	assert_int_equal(page(f, first, FSCK_INODES, bytes_of(NULL, 0), 1), -LE_STALE);
	assert_int_equal(count_inodes(f, first + 1, 9, &last), N_FILES + 2);
	/* Invalid tables and cursors. */
	assert_int_equal(page(f, first + 1, 0, bytes_of(NULL, 0), 1), -LE_INVAL);
	assert_int_equal(page(f, first + 1, FSCK_REMOVALS + 1, bytes_of(NULL, 0), 1), -LE_INVAL);
	assert_int_equal(page(f, first + 1, FSCK_INODES, bytes_str("Q"), 1), -LE_INVAL);
	/* A snapshot that is not used expires. */
	assert_int_equal(fiber_sleep_us(70000000), 0);
	assert_int_equal(page(f, first + 1, FSCK_INODES, bytes_of(NULL, 0), 1), -LE_STALE);
}

static void edit_nlink(struct fx *f, struct ino ino, uint32_t nlink)
{
	struct store *s = &f->m->store;
	struct inode *i;

	while (inode_get(s, ino, VIEW_NEWEST, &i, NULL) == -LE_MISS)
		assert_int_equal(store_load(s), 0);
	assert_int_equal(txn_begin(s), 0);
	inode_edit(s, i)->attr.nlink = nlink;
	assert_int_equal(store_wait(s, txn_end(s)), 0);
}

static void counts(struct fx *f)
{
	struct mds_fsck_repair_req q = {.what = FSCK_REPAIR_COUNTS, .nlink = 1};
	struct attr a;
	uint8_t done;

	q.ino = make(f, "file");
	edit_nlink(f, q.ino, 5);
	assert_int_equal(fx_getattr(f, q.ino, &a), 0);
	q.change = a.change;
	/* The file has got another name since: the count is stale. */
	assert_int_equal(fx_link(f, q.ino, LEAT_ROOT_INO, "other"), 0);
	assert_int_equal(repair(f, q, &done), -LE_STALE);
	assert_int_equal(fx_getattr(f, q.ino, &a), 0);
	assert_int_equal(a.nlink, 6);
	q.change = a.change;
	q.nlink = 2;
	assert_int_equal(repair(f, q, &done), 0);
	assert_int_equal(done, 1);
	assert_int_equal(repair(f, q, &done), -LE_STALE); /* its change counter differs */
	assert_int_equal(fx_getattr(f, q.ino, &a), 0);
	assert_int_equal(a.nlink, 2);
	/* A correct count stays. */
	q.change = a.change;
	assert_int_equal(repair(f, q, &done), 0);
	assert_int_equal(done, 0);
	q.what = FSCK_REPAIR_TOTAL + 1;
	assert_int_equal(repair(f, q, &done), -LE_INVAL);
}

static void others(struct fx *f)
{
	struct mds_fsck_repair_req q = {.what = FSCK_REPAIR_ENTRY, .dir = LEAT_ROOT_INO};
	uint64_t removed = f->n_removed;
	struct attr a;
	uint8_t done;

	/* An entry with an existing inode is not removed, */
	q.ino = make(f, "file");
	q.cookie = dentry_cookie(&f->m->store, bytes_str("file"));
	assert_int_equal(repair(f, q, &done), 0);
	assert_int_equal(done, 0);
	assert_int_equal(fx_lookup(f, LEAT_ROOT_INO, "file", &a), 0);
	/* nor data that a file has, or that a newer file may have. */
	q.what = FSCK_REPAIR_CHUNKS;
	q.chain = 1;
	q.gen = a.layout.gen;
	assert_int_equal(repair(f, q, &done), 0);
	q.ino.v = f->m->store.counters.next_ino;
	assert_int_equal(repair(f, q, &done), 0);
	assert_int_equal(f->n_removed, removed);
	/* Data of a removed inode is removed. */
	assert_int_equal(fx_unlink(f, LEAT_ROOT_INO, "file"), 0);
	q.ino = a.ino;
	assert_int_equal(repair(f, q, &done), 0);
	assert_int_equal(f->n_removed, removed + 1);
	/* A sound inode with a name is no orphan. */
	q = (struct mds_fsck_repair_req){.what = FSCK_REPAIR_ORPHAN, .ino = make(f, "two")};
	assert_int_equal(fx_getattr(f, q.ino, &a), 0);
	q.change = a.change;
	assert_int_equal(repair(f, q, &done), 0);
	assert_int_equal(done, 0);
	assert_int_equal(fx_getattr(f, q.ino, &a), 0);
}

static void total(struct fx *f)
{
	struct mds_fsck_repair_req q = {.what = FSCK_REPAIR_TOTAL};
	uint8_t done;

	make_many(f);
	f->m->store.counters.n_inodes += 3;
	make(f, "file");
	assert_int_equal(page(f, 0, FSCK_INODES, bytes_of(NULL, 0), 1), 0);
	q.change = rep.snapshot;
	q.entries = N_FILES + 2;
	assert_int_equal(rep.n_inodes, q.entries + 3);
	make(f, "meanwhile");
	assert_int_equal(repair(f, q, &done), 0);
	assert_int_equal(done, 1);
	assert_int_equal(repair(f, q, &done), 0);
	assert_int_equal(done, 0);
	assert_int_equal(f->m->store.counters.n_inodes, N_FILES + 3);
	q.change++;
	assert_int_equal(repair(f, q, &done), -LE_STALE);
}

TEST(test_pages, pages)
TEST(test_counts, counts)
TEST(test_others, others)
TEST(test_total, total)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pages),
		cmocka_unit_test(test_counts),
		cmocka_unit_test(test_others),
		cmocka_unit_test(test_total),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
