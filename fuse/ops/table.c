/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/ops/table.h"

#include "fuse/kernel/kernel_pages.h"
#include "fuse/ops/attr.h"
#include "fuse/ops/dir.h"
#include "fuse/ops/file.h"
#include "fuse/ops/flags.h"
#include "fuse/ops/lock.h"

static void fs_init(void *userdata, struct fuse_conn_info *conn)
{
	struct leatfs *fs = CAST_OBJ(userdata, struct leatfs, LEATFS_MAGIC);

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
	static const uint64_t want[] = {
		FUSE_CAP_PARALLEL_DIROPS,    FUSE_CAP_ASYNC_READ,
		FUSE_CAP_ASYNC_DIO,          FUSE_CAP_EXPLICIT_INVAL_DATA,
		FUSE_CAP_READDIRPLUS,        FUSE_CAP_DONT_MASK,
		FUSE_CAP_ATOMIC_O_TRUNC,     FUSE_CAP_DIRECT_IO_ALLOW_MMAP,
		FUSE_CAP_HANDLE_KILLPRIV_V2, FUSE_CAP_POSIX_ACL,
		FUSE_CAP_SETXATTR_EXT,       FUSE_CAP_EXPORT_SUPPORT,
	};
	static const uint64_t locks[] = {FUSE_CAP_FLOCK_LOCKS, FUSE_CAP_POSIX_LOCKS};
	static const uint64_t do_not_want[] = {
		FUSE_CAP_SPLICE_READ,      FUSE_CAP_SPLICE_WRITE,    FUSE_CAP_SPLICE_MOVE,
		FUSE_CAP_WRITEBACK_CACHE,  FUSE_CAP_AUTO_INVAL_DATA, FUSE_CAP_HANDLE_KILLPRIV,
		FUSE_CAP_READDIRPLUS_AUTO,
	};
	for (size_t i = 0; i < ARRAY_SIZE(want); i++)
		fuse_set_feature_flag(conn, want[i]);
	fs->setxattr_ext = fuse_get_feature_flag(conn, FUSE_CAP_SETXATTR_EXT);
	for (size_t i = 0; i < ARRAY_SIZE(do_not_want); i++)
		fuse_unset_feature_flag(conn, do_not_want[i]);
	for (size_t i = 0; i < ARRAY_SIZE(locks); i++) {
		if (fs->local_locks)
			fuse_unset_feature_flag(conn, locks[i]);
		else
			fuse_set_feature_flag(conn, locks[i]);
	}
#else
	conn->want |= conn->capable &
		      (FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO |
		       FUSE_CAP_EXPLICIT_INVAL_DATA | FUSE_CAP_READDIRPLUS | FUSE_CAP_DONT_MASK |
		       FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_POSIX_ACL | FUSE_CAP_EXPORT_SUPPORT);
	conn->want &=
		~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE |
			    FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_AUTO_INVAL_DATA |
			    FUSE_CAP_HANDLE_KILLPRIV | FUSE_CAP_READDIRPLUS_AUTO);
	if (fs->local_locks)
		conn->want &= ~(unsigned)(FUSE_CAP_FLOCK_LOCKS | FUSE_CAP_POSIX_LOCKS);
	else
		conn->want |= conn->capable & (FUSE_CAP_FLOCK_LOCKS | FUSE_CAP_POSIX_LOCKS);
#endif
	passthrough_negotiate(fs, conn);
	conn->max_write = fs->max_write;
	conn->max_readahead = fs->max_write;
	conn->max_background = fs->max_background;
	conn->congestion_threshold = fs->max_background * 3 / 4;
	conn->time_gran = 1;
}

const struct fuse_lowlevel_ops mount_ops = {
	.init = fs_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.readlink = op_readlink,
	.mknod = op_mknod,
	.mkdir = op_mkdir,
	.unlink = op_unlink,
	.rmdir = op_rmdir,
	.symlink = op_symlink,
	.rename = op_rename,
	.link = op_link,
	.open = op_open,
	.read = op_read,
	.write = op_write,
	.flush = op_flush,
	.release = op_release,
	.fsync = op_fsync,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.releasedir = op_releasedir,
	.fsyncdir = op_fsyncdir,
	.statfs = op_statfs,
	.setxattr = op_setxattr,
	.getxattr = op_getxattr,
	.listxattr = op_listxattr,
	.removexattr = op_removexattr,
	.access = op_access,
	.create = op_create,
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
	.tmpfile = op_tmpfile,
#endif
	.fallocate = op_fallocate,
	.lseek = op_lseek,
	.copy_file_range = op_copy_file_range,
	.getlk = op_getlk,
	.setlk = op_setlk,
	.flock = op_flock,
	.ioctl = op_ioctl,
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)
	.statx = op_statx,
#endif
};
