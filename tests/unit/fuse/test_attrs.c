/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes, extended attributes, flags, statfs; and the callers of requests. */
#include "tests/unit/fuse/rig.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/fs.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/proto/mds_proto.h"

static struct kernel_reply r;

static void getattr(void)
{
	struct fake_node *n = fake_file("a", 'a', 5000);
	uint64_t node = n->attr.ino.v;

	n->attr.mtime_ns = 1500000001;
	n->attr.atime_ns = -1; /* before 1970 */
	n->attr.nlink = 3;
	assert_int_equal(kernel_getattr(&rig.k, node, &r), 0);
	assert_int_equal(r.attr.attr.size, 5000);
	assert_int_equal(r.attr.attr.blocks, 10);
	assert_int_equal(r.attr.attr.blksize, 1 << 20);
	assert_int_equal(r.attr.attr.nlink, 3);
	assert_int_equal(r.attr.attr.mtime, 1);
	assert_int_equal(r.attr.attr.mtimensec, 500000001);
	assert_int_equal((int64_t)r.attr.attr.atime, -1);
	assert_int_equal(r.attr.attr.atimensec, 999999999);
	assert_int_equal(r.attr.attr_valid, 2);
	assert_int_equal(kernel_getattr(&rig.k, 9999, &r), ESTALE);
}
RIG_TEST(getattr)

static int setattr(uint64_t node, struct fuse_setattr_in in)
{
	return kernel_call(&rig.k, FUSE_SETATTR, node, &r, ARG(in));
}

static void setattr_masks(void)
{
	uint64_t node = fake_file("a", 'a', 100)->attr.ino.v;

	assert_int_equal(setattr(node, (struct fuse_setattr_in){.valid = FATTR_MODE | FATTR_GID,
								.mode = 0600,
								.gid = 9}),
			 0);
	assert_int_equal(fake.mask, SET_MODE | SET_GID);
	assert_int_equal(r.attr.attr.mode, S_IFREG | 0600);
	assert_int_equal(r.attr.attr.gid, 9);
	assert_int_equal(setattr(node, (struct fuse_setattr_in){.valid = FATTR_SIZE, .size = 10}),
			 0);
	assert_int_equal(fake.mask, SET_SIZE);
	assert_int_equal(r.attr.attr.size, 10);
	/* "Now" comes with a time of the kernel's, which is ignored. */
	assert_int_equal(
		setattr(node, (struct fuse_setattr_in){.valid = FATTR_ATIME | FATTR_ATIME_NOW |
								FATTR_MTIME,
						       .mtime = 7,
						       .mtimensec = 5}),
		0);
	assert_int_equal(fake.mask, SET_ATIME_NOW | SET_MTIME);
	assert_int_equal(fake.set.mtime_ns, 7000000005);
	/* Times that 64 bits of nanoseconds cannot hold. */
	assert_int_equal(
		setattr(node, (struct fuse_setattr_in){.valid = FATTR_MTIME, .mtime = 1ull << 60}),
		0);
	assert_true(fake.set.mtime_ns == INT64_MAX);
	assert_int_equal(setattr(node, (struct fuse_setattr_in){.valid = FATTR_MTIME,
								.mtime = (uint64_t) - (1ll << 60)}),
			 0);
	assert_true(fake.set.mtime_ns == INT64_MIN);
	/* Nothing to change: the attributes are only read. */
	assert_int_equal(fake_count("ll_setattr"), 5);
	assert_int_equal(setattr(node, (struct fuse_setattr_in){.valid = 0}), 0);
	assert_int_equal(fake_count("ll_setattr"), 5);
	fake_fail("ll_setattr", -LE_PERM);
	assert_int_equal(setattr(node, (struct fuse_setattr_in){.valid = FATTR_MODE}), EPERM);
}
RIG_TEST(setattr_masks)

static void truncation_drops_set_ids(void)
{
	struct fake_node *n = fake_file("a", 'a', 100);
	uint64_t node = n->attr.ino.v;

	n->attr.mode = S_IFREG | S_ISUID | 0755;
	rig.k.uid = 5;
	assert_int_equal(setattr(node, (struct fuse_setattr_in){.valid = FATTR_SIZE, .size = 1}),
			 0);
	assert_int_equal(n->attr.mode & S_ISUID, S_ISUID); /* the kernel did not request it */
	assert_int_equal(
		setattr(node, (struct fuse_setattr_in){.valid = FATTR_SIZE | FATTR_KILL_SUIDGID,
						       .size = 1}),
		0);
	assert_int_equal(n->attr.mode, S_IFREG | 0755);
}
RIG_TEST_OF_NEW_LIBFUSE(truncation_drops_set_ids)

static void statfs(void)
{
	assert_int_equal(kernel_call(&rig.k, FUSE_STATFS, 1, &r, {NULL, 0}), 0);
	assert_int_equal(r.statfs.st.bsize, 4096);
	assert_int_equal(r.statfs.st.frsize, 4096);
	assert_int_equal(r.statfs.st.blocks, (1 << 30) / 4096);
	assert_int_equal(r.statfs.st.bfree, (1 << 29) / 4096);
	assert_int_equal(r.statfs.st.bavail, (1 << 28) / 4096);
	assert_int_equal(r.statfs.st.files, 6000);
	assert_int_equal(r.statfs.st.ffree, 5000);
	assert_int_equal(r.statfs.st.namelen, 255);
	fake_fail("ll_statfs", -LE_TIMEDOUT);
	assert_int_equal(kernel_call(&rig.k, FUSE_STATFS, 1, &r, {NULL, 0}), ETIMEDOUT);
}
RIG_TEST(statfs)

static void access_is_asked(void)
{
	struct fuse_access_in in = {.mask = R_OK | X_OK};

	assert_int_equal(kernel_call(&rig.k, FUSE_ACCESS, 1, &r, ARG(in)), 0);
	assert_int_equal(fake.mask, R_OK | X_OK);
	fake_fail("ll_access", -LE_ACCES);
	assert_int_equal(kernel_call(&rig.k, FUSE_ACCESS, 1, &r, ARG(in)), EACCES);
}
RIG_TEST(access_is_asked)

/* ---- extended attributes ---- */

static int setxattr(const char *name, const char *value, uint32_t acl_flags)
{
	struct fuse_setxattr_in in = {.size = (uint32_t)strlen(value), .setxattr_flags = acl_flags};
	struct kernel_part parts[] = {ARG(in), NAME(name), {value, strlen(value)}};

	return kernel_wait(&rig.k, kernel_send(&rig.k, FUSE_SETXATTR, 1, parts, 3), &r);
}

static int getxattr(const char *name, uint32_t size)
{
	struct fuse_getxattr_in in = {.size = size};

	return kernel_call(&rig.k, FUSE_GETXATTR, 1, &r, ARG(in), NAME(name));
}

static int listxattr(uint32_t size)
{
	struct fuse_getxattr_in in = {.size = size};

	return kernel_call(&rig.k, FUSE_LISTXATTR, 1, &r, ARG(in));
}

static void xattrs(void)
{
	assert_int_equal(setxattr("user.a", "hello", 0), 0);
	assert_int_equal(fake.flags, 0);
	assert_int_equal(getxattr("user.a", 0), 0); /* a query of the length */
	assert_int_equal(r.xattr.size, 5);
	assert_int_equal(getxattr("user.a", 5), 0);
	assert_int_equal(r.len, 5);
	assert_memory_equal(r.data, "hello", 5);
	assert_int_equal(getxattr("user.a", 4), ERANGE);
	assert_int_equal(getxattr("user.b", 100), ENODATA);
	assert_int_equal(setxattr("user.bc", "x", 0), 0);
	assert_int_equal(listxattr(0), 0);
	assert_int_equal(r.xattr.size, 15);
	assert_int_equal(listxattr(15), 0);
	assert_memory_equal(r.data, "user.a\0user.bc\0", 15);
	assert_int_equal(listxattr(14), ERANGE);
	assert_int_equal(kernel_call(&rig.k, FUSE_REMOVEXATTR, 1, &r, NAME("user.a")), 0);
	assert_int_equal(getxattr("user.a", 5), ENODATA);
	assert_int_equal(kernel_call(&rig.k, FUSE_REMOVEXATTR, 1, &r, NAME("user.a")), ENODATA);
}
RIG_TEST(xattrs)

/* Whether an access list takes the set-group-id bit away is in a field that libfuse drops. */
static void access_list_kills_set_group_id(void)
{
	rig.k.uid = 5;
	assert_int_equal(setxattr("system.posix_acl_access", "x", FUSE_SETXATTR_ACL_KILL_SGID), 0);
	assert_int_equal(fake.flags, XATTR_KILL_SGID);
	assert_int_equal(setxattr("system.posix_acl_access", "x", 0), 0);
	assert_int_equal(fake.flags, 0);
}
RIG_TEST_OF_NEW_LIBFUSE(access_list_kills_set_group_id)

/* A kernel without that field: only root keeps the bit. */
static void access_list_of_an_old_kernel(void)
{
	struct {
		uint32_t size, flags;
	} in = {1, 0};
	struct kernel_part parts[] = {ARG(in), NAME("system.posix_acl_access"), {"x", 1}};

	assert_false(rig.fs->setxattr_ext);
	assert_int_equal(kernel_wait(&rig.k, kernel_send(&rig.k, FUSE_SETXATTR, 1, parts, 3), &r),
			 0);
	assert_int_equal(fake.flags, 0);
	rig.k.uid = 5;
	assert_int_equal(kernel_wait(&rig.k, kernel_send(&rig.k, FUSE_SETXATTR, 1, parts, 3), &r),
			 0);
	assert_int_equal(fake.flags, XATTR_KILL_SGID);
}

static void run_access_list_of_an_old_kernel(void **state)
{
	(void)state;
	rig.o = (struct rig_options){.kernel_flags = FUSE_ASYNC_READ | FUSE_ATOMIC_O_TRUNC};
	rig_run(access_list_of_an_old_kernel);
}

/* ---- callers ---- */

/* Starts a process that fn prepares, and that lives until it is reaped. */
static pid_t process(void (*fn)(void))
{
	int p[2];
	char c;
	pid_t pid;

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		fn();
		_exit(write(p[1], "", 1) != 1 || pause());
	}
	close(p[1]);
	assert_int_equal(read(p[0], &c, 1), 1);
	close(p[0]);
	return pid;
}

static void reap(pid_t pid)
{
	kill(pid, SIGKILL);
	(void)!waitpid(pid, NULL, 0); /* SIGCHLD is ignored: -1 when the process has ended */
}

static void in_groups(void)
{
	const gid_t groups[] = {11, 70000, 12};

	if (setgroups(3, groups) < 0)
		_exit(1);
}

/* Where the metadata server checks access, it gets the groups, from /proc, and no CRED_CHECKED. */
static void groups_of_the_caller(void)
{
	if (geteuid() != 0)
		return;
	rig.k.pid = process(in_groups);
	rig.k.uid = 5;
	fake.judged = true;
	assert_int_equal(kernel_lookup(&rig.k, 1, "x", &r), 0);
	assert_int_equal(fake.cred.flags, 0);
	assert_int_equal(fake.cred.uid, 5);
	assert_int_equal(fake.n_groups, 3);
	assert_int_equal(fake.groups[0], 11);
	assert_int_equal(fake.groups[1] + fake.groups[2], 70012);
	fake.judged = false;
	assert_int_equal(kernel_lookup(&rig.k, 1, "x", &r), 0);
	assert_int_equal(fake.cred.flags, CRED_CHECKED);
	assert_int_equal(fake.n_groups, 0);
	reap(rig.k.pid);
	/* Nothing can be read of a process that has ended. */
	fake.judged = true;
	assert_int_equal(kernel_lookup(&rig.k, 1, "x", &r), 0);
	assert_int_equal(fake.n_groups, 0);
}
RIG_TEST(groups_of_the_caller)

static void without_capabilities(void)
{
	if (setresuid(6001, 6001, 6001) < 0)
		_exit(1);
}

/* For callers without the capability, the metadata server checks what only the owner may do. */
static void owner_is_judged_by_the_server(void)
{
	uint64_t node = fake_file("a", 'a', 1)->attr.ino.v;

	if (geteuid() != 0)
		return;
	rig.k.pid = process(without_capabilities);
	rig.k.uid = 6001;
	assert_int_equal(setattr(node, (struct fuse_setattr_in){.valid = FATTR_MODE}), 0);
	assert_int_equal(fake.cred.flags, 0);
	/* The size, which a writer may set, too, was checked by the kernel. */
	assert_int_equal(setattr(node, (struct fuse_setattr_in){.valid = FATTR_SIZE}), 0);
	assert_int_equal(fake.cred.flags, CRED_CHECKED);
	reap(rig.k.pid);
	rig.k.pid = getpid(); /* has CAP_FOWNER */
	assert_int_equal(setattr(node, (struct fuse_setattr_in){.valid = FATTR_MODE}), 0);
	assert_int_equal(fake.cred.flags, CRED_CHECKED);
}
RIG_TEST(owner_is_judged_by_the_server)

/* trusted.* is listed for CAP_SYS_ADMIN only. */
static void trusted_names_are_hidden(void)
{
	if (geteuid() != 0)
		return;
	assert_int_equal(setxattr("trusted.a", "x", 0), 0);
	assert_int_equal(setxattr("user.b", "x", 0), 0);
	assert_int_equal(listxattr(100), 0);
	assert_int_equal(r.len, 17);
	rig.k.pid = process(without_capabilities);
	assert_int_equal(listxattr(100), 0);
	assert_int_equal(r.len, 7);
	assert_memory_equal(r.data, "user.b", 7);
	reap(rig.k.pid);
	assert_int_equal(listxattr(100), 0); /* nor for a process that has ended */
	assert_int_equal(r.len, 7);
}
RIG_TEST(trusted_names_are_hidden)

/* ---- chattr ---- */

static int flags_call(uint32_t cmd, const void *in, uint32_t in_size, uint32_t out_size)
{
	uint64_t node = fake_find(1, "a")->attr.ino.v;
	struct fuse_ioctl_in i = {.cmd = cmd, .in_size = in_size, .out_size = out_size};

	return kernel_call(&rig.k, FUSE_IOCTL, node, &r, ARG(i), {in, in_size});
}

static void flags(void)
{
	struct fake_node *n = fake_file("a", 'a', 1);
	uint32_t set = FS_APPEND_FL | FS_NODUMP_FL, unknown = FS_COMPR_FL, got;
	struct fsxattr x = {.fsx_xflags = FS_XFLAG_IMMUTABLE}, seen;

	assert_int_equal(flags_call(FS_IOC_SETFLAGS, &set, 4, 0), 0);
	assert_int_equal(n->attr.flags, ATTR_APPEND | ATTR_NODUMP);
	assert_int_equal(fake.mask, SET_FLAGS);
	kernel_take(&rig.k, 1, 1000); /* the change time has changed */
	assert_true(kernel_was_notified(&rig.k, n->attr.ino.v, true));
	assert_int_equal(flags_call(FS_IOC_GETFLAGS, NULL, 0, 4), 0);
	memcpy(&got, r.ioctl_data, 4);
	assert_int_equal(got, set);
	assert_int_equal(flags_call(FS_IOC_SETFLAGS, &unknown, 4, 0), EOPNOTSUPP);
	assert_int_equal(flags_call(FS_IOC_FSSETXATTR, &x, sizeof(x), 0), 0);
	assert_int_equal(n->attr.flags, ATTR_IMMUTABLE);
	assert_int_equal(flags_call(FS_IOC_FSGETXATTR, NULL, 0, sizeof(seen)), 0);
	memcpy(&seen, r.ioctl_data, sizeof(seen));
	assert_int_equal(seen.fsx_xflags, FS_XFLAG_IMMUTABLE);
	x.fsx_projid = 5;
	assert_int_equal(flags_call(FS_IOC_FSSETXATTR, &x, sizeof(x), 0), EOPNOTSUPP);
	assert_int_equal(flags_call(0x1234, &set, 4, 4), ENOTTY);
}
RIG_TEST(flags)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(run_getattr),
		cmocka_unit_test(run_setattr_masks),
		cmocka_unit_test(run_truncation_drops_set_ids),
		cmocka_unit_test(run_statfs),
		cmocka_unit_test(run_access_is_asked),
		cmocka_unit_test(run_xattrs),
		cmocka_unit_test(run_access_list_kills_set_group_id),
		cmocka_unit_test(run_access_list_of_an_old_kernel),
		cmocka_unit_test(run_groups_of_the_caller),
		cmocka_unit_test(run_owner_is_judged_by_the_server),
		cmocka_unit_test(run_trusted_names_are_hidden),
		cmocka_unit_test(run_flags),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
