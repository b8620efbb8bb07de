/* SPDX-License-Identifier: Apache-2.0 */
/* What is negotiated with the kernel at INIT, and the table of operations. */
#include "fuse/kernel/kernel_pages.h"
#include "fuse/ops/handlers.h"

static const uint64_t wanted[] = {
	FUSE_CAP_PARALLEL_DIROPS, FUSE_CAP_ASYNC_READ, FUSE_CAP_ASYNC_DIO,
	FUSE_CAP_EXPLICIT_INVAL_DATA, FUSE_CAP_READDIRPLUS, FUSE_CAP_DONT_MASK,
	FUSE_CAP_ATOMIC_O_TRUNC, FUSE_CAP_POSIX_ACL, FUSE_CAP_EXPORT_SUPPORT,
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
	FUSE_CAP_DIRECT_IO_ALLOW_MMAP, FUSE_CAP_HANDLE_KILLPRIV_V2, FUSE_CAP_SETXATTR_EXT,
#endif
};
static const uint64_t unwanted[] = {
	FUSE_CAP_SPLICE_READ, FUSE_CAP_SPLICE_WRITE, FUSE_CAP_SPLICE_MOVE,
	FUSE_CAP_WRITEBACK_CACHE, FUSE_CAP_AUTO_INVAL_DATA, FUSE_CAP_HANDLE_KILLPRIV,
	FUSE_CAP_READDIRPLUS_AUTO,
};

static void want(struct fuse_conn_info *conn, uint64_t flag, bool on)
{
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
	if (on)
		fuse_set_feature_flag(conn, flag);
	else
		fuse_unset_feature_flag(conn, flag);
#else
	conn->want &= ~(unsigned)flag;
	if (on)
		conn->want |= conn->capable & (unsigned)flag;
#endif
}

static void fs_init(void *userdata, struct fuse_conn_info *conn)
{
	struct leatfs *fs = CAST_OBJ(userdata, struct leatfs, LEATFS_MAGIC);

	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		want(conn, wanted[i], true);
	for (size_t i = 0; i < ARRAY_SIZE(unwanted); i++)
		want(conn, unwanted[i], false);
	want(conn, FUSE_CAP_FLOCK_LOCKS, !fs->local_locks);
	want(conn, FUSE_CAP_POSIX_LOCKS, !fs->local_locks);
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
	fs->setxattr_ext = fuse_get_feature_flag(conn, FUSE_CAP_SETXATTR_EXT);
#endif
	passthrough_negotiate(fs, conn);
	conn->max_write = fs->max_write;
	conn->max_readahead = fs->max_write;
	conn->max_background = fs->max_background;
	conn->congestion_threshold = fs->max_background * 3 / 4;
	conn->time_gran = 1;
}

#define MEMBER(name) .name = op_##name,
const struct fuse_lowlevel_ops mount_ops = {.init = fs_init, MOUNT_OPS(MEMBER)};
