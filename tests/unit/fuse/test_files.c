/* SPDX-License-Identifier: Apache-2.0 */
/* Open files: data in and out, notifications about the kernel's cache, errors. */
#include "tests/unit/fuse/rig.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/proto/types.h"
#include "common/proto/mds_proto.h"

#define BIG (100u << 10) /* keeps the slot that it was read into */

static struct kernel_reply r;
static uint8_t big[BIG];

static void create_write_read(void)
{
	uint64_t node, fh = kernel_create(&rig.k, "a", 0640, &node);

	assert_int_equal(fake_find(1, "a")->attr.ino.v, node);
	assert_int_equal(fake_find(1, "a")->attr.mode, S_IFREG | 0640);
	assert_int_equal(kernel_write(&rig.k, node, fh, 0, "hello", 5), 0);
	assert_int_equal(fake_count("ll_pwrite"), 1); /* small ones are copied */
	memset(big, 'b', BIG);
	assert_int_equal(kernel_write(&rig.k, node, fh, 5, big, BIG), 0);
	assert_int_equal(fake_count("ll_write"), 1); /* large ones are not */
	assert_int_equal(kernel_read(&rig.k, node, fh, 3, 4, &r), 0);
	assert_int_equal(r.len, 4);
	assert_memory_equal(r.data, "lobb", 4);
	assert_int_equal(kernel_read(&rig.k, node, fh, 5, BIG, &r), 0);
	assert_int_equal(r.len, BIG);
	assert_memory_equal(r.data, big, BIG);
	assert_int_equal(kernel_read(&rig.k, node, fh, BIG, 100, &r), 0); /* beyond the end */
	assert_int_equal(r.len, 5);
	assert_int_equal(kernel_read(&rig.k, node, fh, 1 << 20, 100, &r), 0);
	assert_int_equal(r.len, 0);
	assert_int_equal(metric_get(&rig.fs->metrics.written_bytes), 5 + BIG);
	assert_int_equal(metric_get(&rig.fs->metrics.read_bytes), 4 + BIG + 5);
	assert_int_equal(slot_pool_free(fake.slots), slot_pool_total(fake.slots));
	kernel_release(&rig.k, node, fh);
	assert_int_equal(fake.n_open, 0);
	/* The slot of the large write has been released. (The reader holds one.) */
	assert_true(slot_pool_free(rig.fs->requests) >= RIG_REQUESTS - 1);
}
RIG_TEST(create_write_read)

/* Pages only under a lease. */
static void caching(void)
{
	uint64_t node = fake_file("a", 'a', 10)->attr.ino.v;
	struct fuse_open_in in = {.flags = O_RDONLY};

	assert_int_equal(kernel_call(&rig.k, FUSE_OPEN, node, &r, ARG(in)), 0);
	assert_int_equal(r.open.open_flags & (FOPEN_KEEP_CACHE | FOPEN_DIRECT_IO),
			 FOPEN_KEEP_CACHE);
	assert_int_equal(fake.n_prefetches, 0); /* the kernel has cached it */
	fake.changed = true;
	assert_int_equal(kernel_call(&rig.k, FUSE_OPEN, node, &r, ARG(in)), 0);
	assert_int_equal(r.open.open_flags & (FOPEN_KEEP_CACHE | FOPEN_DIRECT_IO), 0);
	assert_int_equal(fake.n_prefetches, 1);
	assert_int_equal(rig.k.n_invals, 0); /* a lease guarantees its attributes */
	fake.leased = false;
	assert_int_equal(kernel_call(&rig.k, FUSE_OPEN, node, &r, ARG(in)), 0);
	assert_int_equal(r.open.open_flags & (FOPEN_KEEP_CACHE | FOPEN_DIRECT_IO), FOPEN_DIRECT_IO);
	assert_true(kernel_was_notified(&rig.k, node, true)); /* before the reply */
	fake.leased = true;
	in.flags = O_WRONLY | O_APPEND;
	assert_int_equal(kernel_call(&rig.k, FUSE_OPEN, node, &r, ARG(in)), 0);
	assert_int_equal(r.open.open_flags & FOPEN_DIRECT_IO, FOPEN_DIRECT_IO);
}
RIG_TEST(caching)

static void strict_access_times(void)
{
	uint64_t node = fake_file("a", 'a', 10)->attr.ino.v;
	struct fuse_open_in in = {.flags = O_RDONLY};

	assert_int_equal(kernel_call(&rig.k, FUSE_OPEN, node, &r, ARG(in)), 0);
	assert_int_equal(r.open.open_flags & FOPEN_KEEP_CACHE, 0);
	assert_int_equal(r.open.open_flags & FOPEN_NOFLUSH, FOPEN_NOFLUSH);
}

/* With local locks the kernel need not report that a reader closes. */
static void run_strict_access_times(void **state)
{
	(void)state;
	rig.o = (struct rig_options){.strict_atime = true, .local_locks = true};
	rig_run(strict_access_times);
}

static void open_fails(void)
{
	struct fuse_open_in in = {.flags = O_RDONLY};
	uint64_t node = fake_file("a", 'a', 10)->attr.ino.v;

	fake_fail("ll_open", -LE_ACCES);
	assert_int_equal(kernel_call(&rig.k, FUSE_OPEN, node, &r, ARG(in)), EACCES);
	assert_int_equal(kernel_call(&rig.k, FUSE_OPEN, 9999, &r, ARG(in)), ESTALE);
	assert_int_equal(fake.n_open, 0);
	assert_int_equal(rig.fs->restart->files_top, 0);
}
RIG_TEST(open_fails)

/* For an ioctl the kernel opens once more a file that may have lost its name. */
static void open_by_the_kernel(void)
{
	uint64_t node = fake_file("a", 'a', 10)->attr.ino.v;
	struct fuse_open_in in = {.flags = O_RDONLY};

	assert_int_equal(kernel_call(&rig.k, FUSE_OPEN, node, &r, ARG(in)), 0);
	assert_int_equal(fake.flags & OPEN_ORPHAN, OPEN_ORPHAN);
	kernel_open_file(&rig.k, node, O_RDONLY);
	assert_int_equal(fake.flags & OPEN_ORPHAN, 0);
}
RIG_TEST(open_by_the_kernel)

/* fcntl(F_SETFL) changes it while the file is open. */
static void append_flag(void)
{
	uint64_t node = fake_file("a", 'a', 10)->attr.ino.v;
	struct fuse_write_in in = {.fh = kernel_open_file(&rig.k, node, O_WRONLY | O_APPEND),
				   .size = 1,
				   .write_flags = FUSE_WRITE_LOCKOWNER,
				   .lock_owner = 1,
				   .flags = O_WRONLY | O_APPEND};
	struct fake_node *n = fake_find(1, "a");

	assert_int_equal(kernel_call(&rig.k, FUSE_WRITE, node, &r, ARG(in), {"x", 1}), 0);
	assert_int_equal(n->attr.size, 11);
	in.flags = O_WRONLY;
	assert_int_equal(kernel_call(&rig.k, FUSE_WRITE, node, &r, ARG(in), {"y", 1}), 0);
	assert_int_equal(n->attr.size, 11);
	assert_int_equal(n->data[0], 'y');
	in.flags = O_WRONLY | O_APPEND;
	in.write_flags = FUSE_WRITE_CACHE; /* a page is written at its offset */
	in.lock_owner = 0;
	in.offset = 3;
	assert_int_equal(kernel_call(&rig.k, FUSE_WRITE, node, &r, ARG(in), {"z", 1}), 0);
	assert_int_equal(n->attr.size, 11);
	assert_int_equal(n->data[3], 'z');
	assert_int_equal(fake_count("ll_pwrite_pages"), 1);
}
RIG_TEST(append_flag)

static void write_fails(void)
{
	uint64_t node, fh = kernel_create(&rig.k, "a", 0644, &node);

	fake_fail("ll_pwrite", -LE_NOSPC);
	assert_int_equal(kernel_write(&rig.k, node, fh, 0, "x", 1), ENOSPC);
	fake_fail("ll_write", -LE_DQUOT);
	assert_int_equal(kernel_write(&rig.k, node, fh, 0, big, BIG), EDQUOT);
	assert_int_equal(metric_get(&rig.fs->metrics.written_bytes), 0);
	fake_fail("ll_read", -LE_CORRUPT);
	assert_int_equal(kernel_read(&rig.k, node, fh, 0, 10, &r), EIO);
}
RIG_TEST(write_fails)

/* A write-back fails later, and each close and fsync returns the error. */
static void errors_of_late_writes(void)
{
	uint64_t node, fh = kernel_create(&rig.k, "a", 0644, &node);
	struct fuse_flush_in flush = {.fh = fh, .lock_owner = 5};
	struct fuse_fsync_in data = {.fh = fh, .fsync_flags = FUSE_FSYNC_FDATASYNC};
	struct fuse_fsync_in all = {.fh = fh};

	assert_int_equal(kernel_call(&rig.k, FUSE_FLUSH, node, &r, ARG(flush)), 0);
	assert_int_equal(fake_count("ll_lock"), 1); /* the caller's fcntl locks are released */
	fake_fail("ll_flush", -LE_NOSPC);
	assert_int_equal(kernel_call(&rig.k, FUSE_FLUSH, node, &r, ARG(flush)), ENOSPC);
	assert_int_equal(kernel_call(&rig.k, FUSE_FSYNC, node, &r, ARG(data)), 0);
	assert_true(fake.data_only);
	assert_int_equal(kernel_call(&rig.k, FUSE_FSYNC, node, &r, ARG(all)), 0);
	assert_false(fake.data_only);
	fake_fail("ll_fsync", -LE_TARGET_DOWN);
	assert_int_equal(kernel_call(&rig.k, FUSE_FSYNC, node, &r, ARG(all)), EIO);
}
RIG_TEST(errors_of_late_writes)

/* Without a lease pages of a mapping are dropped as soon as the kernel has filled them: another
 * mount may change the file unnoticed. */
static void pages_without_a_lease(void)
{
	uint64_t node = fake_file("a", 'a', 8192)->attr.ino.v;
	uint64_t fh = kernel_open_file(&rig.k, node, O_RDWR);
	struct fuse_read_in in = {.fh = fh, .offset = 4096, .size = 4096};

	assert_int_equal(kernel_call(&rig.k, FUSE_READ, node, &r, ARG(in)), 0);
	kernel_take(&rig.k, 1, 20);
	assert_int_equal(rig.k.n_invals, 0);
	fake.leased = false;
	assert_int_equal(kernel_call(&rig.k, FUSE_READ, node, &r, ARG(in)), 0);
	assert_int_equal(r.len, 4096);
	kernel_take(&rig.k, 1, 1000);
	assert_int_equal(rig.k.n_invals, 1);
	assert_int_equal(rig.k.invals[0].node, node);
	assert_int_equal(rig.k.invals[0].off, 4096);
	assert_int_equal(rig.k.invals[0].len, 4096);
	for (int i = 0; fake.n_leases > 0 && i < 1000; i++)
		assert_int_equal(fiber_sleep_us(1000), 0);
	assert_int_equal(fake_count("ll_read_leased"), 1);
	assert_int_equal(fake.n_leases, 0); /* released when the page has been dropped */
}
RIG_TEST(pages_without_a_lease)

/* A write without the page cache, of a file that has cached pages: they are dropped before the
 * reply. */
static void writes_past_pages(void)
{
	uint64_t node, fh = kernel_create(&rig.k, "a", 0644, &node);

	assert_int_equal(kernel_write(&rig.k, node, fh, 0, "x", 1), 0);
	assert_int_equal(rig.k.n_invals, 0);
	fake.past_pages = true;
	assert_int_equal(kernel_write(&rig.k, node, fh, 10, "xyz", 3), 0);
	assert_int_equal(rig.k.n_invals, 1);
	assert_int_equal(rig.k.invals[0].off, 10);
	assert_int_equal(rig.k.invals[0].len, 3);
	assert_int_equal(metric_get(&rig.fs->metrics.invalidations), 1);
}
RIG_TEST(writes_past_pages)

static void seeking(void)
{
	struct fake_node *n = fake_file("a", 'a', 8192);
	uint64_t node = n->attr.ino.v;
	struct fuse_lseek_in in = {
		.fh = kernel_open_file(&rig.k, node, O_RDWR), .offset = 100, .whence = SEEK_HOLE};

	assert_int_equal(kernel_call(&rig.k, FUSE_LSEEK, node, &r, ARG(in)), 0);
	assert_int_equal(r.lseek.offset, 8192);
	assert_int_equal(rig.k.n_invals, 0);
	in.whence = SEEK_DATA;
	assert_int_equal(kernel_call(&rig.k, FUSE_LSEEK, node, &r, ARG(in)), 0);
	assert_int_equal(r.lseek.offset, 100);
	in.offset = 8192;
	assert_int_equal(kernel_call(&rig.k, FUSE_LSEEK, node, &r, ARG(in)), ENXIO);
	/* A mapping may have changed some pages: the kernel writes them back first. */
	rig.fs->handles.files[0]->file->mapped = true;
	assert_int_equal(kernel_call(&rig.k, FUSE_LSEEK, node, &r, ARG(in)), ENXIO);
	assert_true(kernel_was_notified(&rig.k, node, false));
}
RIG_TEST(seeking)

static void preallocating(void)
{
	struct fake_node *n = fake_file("a", 'a', 10);
	uint64_t node = n->attr.ino.v;
	struct fuse_fallocate_in in = {.fh = kernel_open_file(&rig.k, node, O_RDWR),
				       .offset = 5,
				       .length = 100,
				       .mode = FALLOC_FL_KEEP_SIZE};

	n->attr.mode |= S_ISUID;
	assert_int_equal(kernel_call(&rig.k, FUSE_FALLOCATE, node, &r, ARG(in)), 0);
	assert_int_equal(fake.mask, FALLOC_FL_KEEP_SIZE);
	assert_int_equal(n->attr.mode & S_ISUID, S_ISUID); /* of root */
	rig.k.uid = 5;
	assert_int_equal(kernel_call(&rig.k, FUSE_FALLOCATE, node, &r, ARG(in)), 0);
	assert_int_equal(n->attr.mode & S_ISUID, 0);
	fake_fail("ll_fallocate", -LE_NOTSUP);
	assert_int_equal(kernel_call(&rig.k, FUSE_FALLOCATE, node, &r, ARG(in)), EOPNOTSUPP);
}
RIG_TEST(preallocating)

static void copying(void)
{
	struct fake_node *a = fake_file("a", 'a', 100), *b = fake_file("b", 'b', 10);
	struct fuse_copy_file_range_in in = {
		.fh_in = kernel_open_file(&rig.k, a->attr.ino.v, O_RDONLY),
		.fh_out = kernel_open_file(&rig.k, b->attr.ino.v, O_WRONLY),
		.nodeid_out = b->attr.ino.v,
		.off_out = 10,
		.len = 50};

	/* Then the kernel copies itself. */
	assert_int_equal(kernel_call(&rig.k, FUSE_COPY_FILE_RANGE, a->attr.ino.v, &r, ARG(in)),
			 EOPNOTSUPP);
	assert_int_equal(metric_get(&rig.fs->metrics.errors), 0);
	fake.copies = true;
	assert_int_equal(kernel_call(&rig.k, FUSE_COPY_FILE_RANGE, a->attr.ino.v, &r, ARG(in)), 0);
	assert_int_equal(r.write.size, 50);
	assert_int_equal(b->attr.size, 60);
	assert_int_equal(b->data[59], 'a');
	fake_fail("ll_copy", -LE_NOSPC);
	assert_int_equal(kernel_call(&rig.k, FUSE_COPY_FILE_RANGE, a->attr.ino.v, &r, ARG(in)),
			 ENOSPC);
}
RIG_TEST(copying)

/* The group may not execute it: set-group-id means locking then, and is cleared only for callers
 * outside the group. */
static void set_group_id(void)
{
	struct fake_node *n = fake_file("a", 'a', 10);
	struct fuse_write_in in = {.fh = kernel_open_file(&rig.k, n->attr.ino.v, O_RDWR),
				   .size = 1,
				   .write_flags = FUSE_WRITE_LOCKOWNER | FUSE_WRITE_KILL_SUIDGID,
				   .lock_owner = 1};

	n->attr.mode = S_IFREG | S_ISGID | 0644;
	n->attr.gid = 4000001;
	rig.k.uid = 5;
	rig.k.gid = 4000001;
	assert_int_equal(kernel_call(&rig.k, FUSE_WRITE, n->attr.ino.v, &r, ARG(in), {"x", 1}), 0);
	assert_int_equal(n->attr.mode, S_IFREG | S_ISGID | 0644);
	rig.k.gid = 4000002;
	assert_int_equal(kernel_call(&rig.k, FUSE_WRITE, n->attr.ino.v, &r, ARG(in), {"x", 1}), 0);
	assert_int_equal(n->attr.mode, S_IFREG | 0644);
	assert_true(kernel_was_notified(&rig.k, n->attr.ino.v, true));
}
RIG_TEST_OF_NEW_LIBFUSE(set_group_id)

static void truncating_open(void)
{
	struct fake_node *n = fake_file("a", 'a', 10);

	n->attr.mode = S_IFREG | S_ISUID | 0755;
	rig.k.uid = 5;
	kernel_open_file(&rig.k, n->attr.ino.v, O_RDWR | O_TRUNC);
	assert_int_equal(n->attr.size, 0);
	assert_int_equal(n->attr.mode, S_IFREG | 0755);
}
RIG_TEST(truncating_open)

static void temporary_files(void)
{
	struct fuse_create_in in = {.flags = O_RDWR, .mode = S_IFREG | 0600};
	uint64_t node;

	assert_int_equal(kernel_call(&rig.k, FUSE_TMPFILE, 1, &r, ARG(in), NAME("#1")), 0);
	node = r.create.entry.nodeid;
	assert_int_equal(r.create.entry.attr.nlink, 0);
	assert_int_equal(r.create.entry.entry_valid + r.create.entry.entry_valid_nsec, 0);
	assert_int_equal(kernel_write(&rig.k, node, r.create.open.fh, 0, "x", 1), 0);
	assert_int_equal(fake.n_names, 0);
}
RIG_TEST_OF_NEW_LIBFUSE(temporary_files)

/* Numbers of open files: none is used twice, and entries of the table are used again. */
static void numbers(void)
{
	uint64_t node = fake_file("a", 'a', 10)->attr.ino.v;
	uint64_t a = kernel_open_file(&rig.k, node, O_RDONLY);
	uint64_t b = kernel_open_file(&rig.k, node, O_RDWR), c;
	struct restart *k = rig.fs->restart;

	assert_true(a != b);
	assert_int_equal(k->files_top, 2);
	assert_int_equal(k->files[0].ino, node);
	assert_true(k->files[0].used && k->files[1].used);
	assert_int_equal(k->files[1].flags & O_ACCMODE, O_RDWR);
	assert_int_equal(k->files[0].unique, 0); /* the kernel has the reply */
	kernel_release(&rig.k, node, a);
	assert_false(k->files[0].used);
	c = kernel_open_file(&rig.k, node, O_RDONLY);
	assert_true(c != a && c != b);
	assert_int_equal(k->files_top, 2);
	assert_int_equal(fake.n_open, 2);
	kernel_release(&rig.k, node, a); /* a second release: nothing is closed */
	assert_int_equal(fake.n_open, 2);
}
RIG_TEST(numbers)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(run_create_write_read),
		cmocka_unit_test(run_caching),
		cmocka_unit_test(run_strict_access_times),
		cmocka_unit_test(run_open_fails),
		cmocka_unit_test(run_open_by_the_kernel),
		cmocka_unit_test(run_append_flag),
		cmocka_unit_test(run_write_fails),
		cmocka_unit_test(run_errors_of_late_writes),
		cmocka_unit_test(run_pages_without_a_lease),
		cmocka_unit_test(run_writes_past_pages),
		cmocka_unit_test(run_seeking),
		cmocka_unit_test(run_preallocating),
		cmocka_unit_test(run_copying),
		cmocka_unit_test(run_set_group_id),
		cmocka_unit_test(run_truncating_open),
		cmocka_unit_test(run_temporary_files),
		cmocka_unit_test(run_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
