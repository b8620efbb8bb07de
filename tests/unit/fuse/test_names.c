/* SPDX-License-Identifier: Apache-2.0 */
/* Names: lookup, creation, removal, rename; how long the kernel may cache them. */
#include "tests/unit/fuse/rig.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "common/proto/mds_proto.h"
#include "common/proto/types.h"

static struct kernel_reply r;

static void lookup(void)
{
	struct fake_node *n = fake_file("a", 'a', 5000);

	n->attr.uid = 7;
	assert_int_equal(kernel_lookup(&rig.k, 1, "a", &r), 0);
	assert_int_equal(r.entry.nodeid, n->attr.ino.v);
	assert_int_equal(r.entry.attr.ino, n->attr.ino.v);
	assert_int_equal(r.entry.attr.size, 5000);
	assert_int_equal(r.entry.attr.mode, S_IFREG | 0644);
	assert_int_equal(r.entry.attr.uid, 7);
	/* As long as leases last: 2.5 s. */
	assert_int_equal(r.entry.entry_valid, 2);
	assert_int_equal(r.entry.entry_valid_nsec, 500000000);
	assert_int_equal(r.entry.attr_valid, 2);
	fake.name_us = fake.attr_us = 0;
	assert_int_equal(kernel_lookup(&rig.k, 1, "a", &r), 0);
	assert_int_equal(r.entry.entry_valid + r.entry.entry_valid_nsec, 0);
	assert_int_equal(r.entry.attr_valid + r.entry.attr_valid_nsec, 0);
}
RIG_TEST(lookup)

/* Node 0 with a time: the kernel may cache that the name does not exist. */
static void no_such_name(void)
{
	assert_int_equal(kernel_lookup(&rig.k, 1, "none", &r), 0);
	assert_int_equal(r.entry.nodeid, 0);
	assert_int_equal(r.entry.entry_valid, 2);
	fake.name_us = 0;
	assert_int_equal(kernel_lookup(&rig.k, 1, "none", &r), ENOENT);
	assert_int_equal(metric_get(&rig.fs->metrics.errors), 0); /* that is no failure */
}
RIG_TEST(no_such_name)

static void lookup_fails(void)
{
	fake_fail("ll_lookup", -LE_ACCES);
	assert_int_equal(kernel_lookup(&rig.k, 1, "x", &r), EACCES);
	fake_fail("ll_lookup", -LE_TARGET_DOWN);
	assert_int_equal(kernel_lookup(&rig.k, 1, "x", &r), EIO);
	assert_int_equal(metric_get(&rig.fs->metrics.errors), 2);
	assert_int_equal(metric_get(&rig.fs->metrics.requests), 3); /* with INIT */
}
RIG_TEST(lookup_fails)

/* File handles (NFS): "." is the inode itself, even of a file; ".." of the root fails. */
static void dots(void)
{
	struct fake_node *n = fake_file("a", 'a', 1);

	assert_int_equal(kernel_lookup(&rig.k, n->attr.ino.v, ".", &r), 0);
	assert_int_equal(r.entry.nodeid, n->attr.ino.v);
	assert_int_equal(r.entry.entry_valid + r.entry.entry_valid_nsec, 0);
	assert_int_equal(kernel_lookup(&rig.k, 1, "..", &r), 0);
	assert_int_equal(r.entry.nodeid, 1);
	assert_int_equal(fake_count("ll_lookup"), 0);
	assert_int_equal(kernel_lookup(&rig.k, 9999, ".", &r), ESTALE);
}
RIG_TEST(dots)

/* The kernel's number of the mounted directory is 1, whatever its number in the namespace. */
static void subtree(void)
{
	struct fake_node *n;

	assert_int_equal(kernel_lookup(&rig.k, 1, "a", &r), 0);
	assert_int_equal(r.entry.nodeid, 0); /* it is not in directory 100 */
	n = fake_make(100, "a", S_IFREG | 0600);
	n->attr.ino.v = 1000;
	fake.names[fake.n_names - 1].ino = 1000;
	assert_int_equal(kernel_lookup(&rig.k, 1, "a", &r), 0);
	assert_int_equal(r.entry.nodeid, 1000);
	/* The root's attributes have its own number. */
	fake_make(1000, "up", S_IFDIR | 0700)->attr.ino.v = 100;
	fake.names[fake.n_names - 1].ino = 100;
	assert_int_equal(kernel_lookup(&rig.k, 1000, "up", &r), 0);
	assert_int_equal(r.entry.nodeid, 1);
	assert_int_equal(r.entry.attr.ino, 100);
}

static void run_subtree(void **state)
{
	(void)state;
	rig.o = (struct rig_options){.root = 100};
	rig_run(subtree);
}

static void making(void)
{
	struct fuse_mkdir_in mkdir_in = {.mode = 0777, .umask = 022};
	struct fuse_mknod_in mknod_in = {.mode = S_IFCHR | 0600, .rdev = 0x103};
	struct fuse_link_in link_in;
	uint64_t node;

	rig.k.uid = 5;
	rig.k.gid = 6;
	assert_int_equal(kernel_call(&rig.k, FUSE_MKDIR, 1, &r, ARG(mkdir_in), NAME("d")), 0);
	assert_int_equal(r.entry.attr.mode, S_IFDIR | 0755);
	assert_int_equal(r.entry.attr.uid, 5);
	assert_int_equal(r.entry.attr.gid, 6);
	assert_int_equal(fake.cred.flags, CRED_CHECKED);
	assert_int_equal(fake.cred.umask, 022);
	assert_int_equal(kernel_call(&rig.k, FUSE_MKDIR, 1, &r, ARG(mkdir_in), NAME("d")), EEXIST);
	assert_int_equal(kernel_call(&rig.k, FUSE_MKNOD, 1, &r, ARG(mknod_in), NAME("c")), 0);
	assert_int_equal(r.entry.attr.rdev, 0x103);
	assert_int_equal(kernel_call(&rig.k, FUSE_SYMLINK, 1, &r, NAME("s"), NAME("a/b")), 0);
	assert_int_equal(r.entry.attr.mode, S_IFLNK | 0777);
	node = r.entry.nodeid;
	assert_int_equal(kernel_call(&rig.k, FUSE_READLINK, node, &r, {NULL, 0}), 0);
	assert_int_equal(r.len, 3);
	assert_memory_equal(r.data, "a/b", 3);
	link_in.oldnodeid = fake_find(1, "c")->attr.ino.v;
	assert_int_equal(kernel_call(&rig.k, FUSE_LINK, 1, &r, ARG(link_in), NAME("c2")), 0);
	assert_int_equal(r.entry.nodeid, link_in.oldnodeid);
	assert_int_equal(r.entry.attr.nlink, 2);
}
RIG_TEST(making)

static void removing(void)
{
	uint64_t d = fake_make(1, "d", S_IFDIR | 0755)->attr.ino.v;

	fake_make(d, "f", S_IFREG | 0644);
	assert_int_equal(kernel_call(&rig.k, FUSE_RMDIR, 1, &r, NAME("d")), ENOTEMPTY);
	assert_int_equal(kernel_call(&rig.k, FUSE_UNLINK, d, &r, NAME("f")), 0);
	assert_null(fake_find(d, "f"));
	assert_int_equal(kernel_call(&rig.k, FUSE_UNLINK, d, &r, NAME("f")), ENOENT);
	assert_int_equal(kernel_call(&rig.k, FUSE_RMDIR, 1, &r, NAME("d")), 0);
	assert_null(fake_find(1, "d"));
}
RIG_TEST(removing)

static void renaming(void)
{
	uint64_t d = fake_make(1, "d", S_IFDIR | 0755)->attr.ino.v;
	struct fuse_rename_in to_d = {.newdir = d};
	struct fuse_rename2_in no_replace = {.newdir = d, .flags = RENAME_NOREPLACE};
	struct kernel_part parts[3] = {ARG(to_d), NAME("a"), NAME("b")};
	struct fake_node *a = fake_file("a", 'a', 1);

	assert_int_equal(kernel_wait(&rig.k, kernel_send(&rig.k, FUSE_RENAME, 1, parts, 3), &r), 0);
	assert_ptr_equal(fake_find(d, "b"), a);
	assert_int_equal(fake.flags, 0);
	fake_file("a", 'b', 1);
	parts[0] = ARG(no_replace);
	assert_int_equal(kernel_wait(&rig.k, kernel_send(&rig.k, FUSE_RENAME2, 1, parts, 3), &r),
			 EEXIST);
	assert_int_equal(fake.flags, RENAME_NOREPLACE);
	assert_ptr_equal(fake_find(d, "b"), a);
}
RIG_TEST(renaming)

/* Forget has no reply; the request after it has one. */
static void forgetting(void)
{
	struct fuse_forget_in one = {.nlookup = 3};
	struct {
		struct fuse_batch_forget_in h;
		struct fuse_forget_one of[2];
	} many = {.h = {.count = 2}, .of = {{100, 1}, {101, 2}}};
	struct kernel_part part = ARG(one);
	uint64_t first = kernel_send(&rig.k, FUSE_FORGET, 100, &part, 1), second;

	part = ARG(many);
	second = kernel_send(&rig.k, FUSE_BATCH_FORGET, 0, &part, 1);
	assert_int_equal(kernel_getattr(&rig.k, 1, &r), 0);
	assert_false(kernel_has_reply(&rig.k, first));
	assert_false(kernel_has_reply(&rig.k, second));
}
RIG_TEST(forgetting)

/* A thread whose open lost against a rename looks up again, and the file found is opened, even if
 * that has been replaced since (fuse/ops/estale_retry.h). */
static void stale_opens(void)
{
	struct fuse_open_in in = {.flags = O_RDONLY | 0100000};
	struct fake_node *n = fake_file("a", 'a', 1);
	uint64_t node = n->attr.ino.v;

	fake_fail("ll_open", -LE_STALE);
	assert_int_equal(kernel_call(&rig.k, FUSE_OPEN, node, &r, ARG(in)), ESTALE);
	assert_int_equal(fake.flags & OPEN_ORPHAN, 0);
	assert_int_equal(kernel_lookup(&rig.k, 1, "a", &r), 0);
	rig.k.pid++; /* another thread has found nothing */
	kernel_open_file(&rig.k, node, O_RDONLY);
	assert_int_equal(fake.flags & OPEN_ORPHAN, 0);
	rig.k.pid--;
	kernel_open_file(&rig.k, node, O_RDONLY);
	assert_int_equal(fake.flags & OPEN_ORPHAN, OPEN_ORPHAN);
	kernel_open_file(&rig.k, node, O_RDONLY);
	assert_int_equal(fake.flags & OPEN_ORPHAN, 0);
}
RIG_TEST(stale_opens)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(run_lookup),       cmocka_unit_test(run_no_such_name),
		cmocka_unit_test(run_lookup_fails), cmocka_unit_test(run_dots),
		cmocka_unit_test(run_subtree),      cmocka_unit_test(run_making),
		cmocka_unit_test(run_removing),     cmocka_unit_test(run_renaming),
		cmocka_unit_test(run_forgetting),   cmocka_unit_test(run_stale_opens),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
