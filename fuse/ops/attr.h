/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on attributes, extended attributes, symbolic links and statfs. Handlers of
 * ops/table.c: libfuse calls them in request fibers, each answers its request exactly once. All but
 * forget and fsyncdir may yield.
 */
#ifndef LEAT_FUSE_OPS_ATTR_H
#define LEAT_FUSE_OPS_ATTR_H

#include "fuse/mount.h"

#define OP(name, ...) void op_##name(fuse_req_t req, __VA_ARGS__)
OP(getattr, fuse_ino_t ino, struct fuse_file_info *fi);
OP(setattr, fuse_ino_t ino, struct stat *st, int to_set, struct fuse_file_info *fi);
OP(readlink, fuse_ino_t ino);
OP(statfs, fuse_ino_t ino);
OP(access, fuse_ino_t ino, int mask);
OP(setxattr, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags);
OP(getxattr, fuse_ino_t ino, const char *name, size_t size);
OP(listxattr, fuse_ino_t ino, size_t size);
OP(removexattr, fuse_ino_t ino, const char *name);
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 18)
OP(statx, fuse_ino_t ino, int flags, int mask, struct fuse_file_info *fi);
#endif
#undef OP

#endif
