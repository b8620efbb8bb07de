/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations. libfuse calls the handlers in request fibers; each answers its request exactly
 * once. All but forget, forget_multi and fsyncdir may yield.
 */
#ifndef LEAT_FUSE_OPS_HANDLERS_H
#define LEAT_FUSE_OPS_HANDLERS_H

#include "fuse/mount.h"

/* Of dir.c, attr.c, file.c, lock.c and flags.c. op_NAME is the member NAME of the table. */
#define MOUNT_OPS(OP)                                                                              \
	OP(lookup) OP(forget) OP(forget_multi) OP(mknod) OP(mkdir) OP(unlink) OP(rmdir)            \
	OP(symlink) OP(rename) OP(link) OP(opendir) OP(readdir) OP(readdirplus) OP(releasedir)     \
	OP(fsyncdir)                                                                               \
	OP(getattr) OP(setattr) OP(readlink) OP(statfs) OP(access) OP(setxattr) OP(getxattr)       \
	OP(listxattr) OP(removexattr) MOUNT_OP_STATX(OP)                                           \
	OP(create) MOUNT_OP_TMPFILE(OP) OP(open) OP(read) OP(write) OP(flush) OP(release)          \
	OP(fsync) OP(fallocate) OP(copy_file_range) OP(lseek)                                      \
	OP(getlk) OP(setlk) OP(flock)                                                              \
	OP(ioctl)

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)
#define MOUNT_OP_STATX(OP) OP(statx)
#else
#define MOUNT_OP_STATX(OP)
#endif
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
#define MOUNT_OP_TMPFILE(OP) OP(tmpfile)
#else
#define MOUNT_OP_TMPFILE(OP)
#endif

#define DECLARE(name) __typeof__(*((struct fuse_lowlevel_ops *)NULL)->name) op_##name;
MOUNT_OPS(DECLARE)
#undef DECLARE
extern const struct fuse_lowlevel_ops mount_ops;

/* Of lock.c. Releases the locks that `owner` took by fcntl(2) on this file, at a close; or by
 * flock(2), at the last close of the open file. A lock that cannot be released is logged. Yield. */
void unlock_at_flush(struct ll_file *file, uint64_t owner);
void unlock_at_release(struct ll_file *file, uint64_t owner);

#endif
