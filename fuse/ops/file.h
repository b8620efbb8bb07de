/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on open files: create, open, read, write, flush, fsync, fallocate, seek, copy,
 * release. Handlers of ops/table.c: libfuse calls them in request fibers, each answers its request
 * exactly once. All but forget and fsyncdir may yield.
 */
#ifndef LEAT_FUSE_OPS_FILE_H
#define LEAT_FUSE_OPS_FILE_H

#include "fuse/mount.h"

#define OP(name, ...) void op_##name(fuse_req_t req, __VA_ARGS__)
OP(create, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi);
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
OP(tmpfile, fuse_ino_t parent, mode_t mode, struct fuse_file_info *fi);
#endif
OP(open, fuse_ino_t ino, struct fuse_file_info *fi);
OP(read, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
OP(write, fuse_ino_t ino, const char *buf, size_t size, off_t off, struct fuse_file_info *fi);
OP(flush, fuse_ino_t ino, struct fuse_file_info *fi);
OP(release, fuse_ino_t ino, struct fuse_file_info *fi);
OP(fsync, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
OP(fallocate, fuse_ino_t ino, int mode, off_t off, off_t len, struct fuse_file_info *fi);
OP(copy_file_range, fuse_ino_t ino, off_t off, struct fuse_file_info *fi, fuse_ino_t to,
   off_t to_off, struct fuse_file_info *to_fi, size_t len, int flags);
OP(lseek, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi);
#undef OP

#endif
