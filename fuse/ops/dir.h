/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on names: lookup, creation, removal, rename, links, directory listing. Handlers of
 * ops/table.c: libfuse calls them in request fibers, each answers its request exactly once. All but
 * forget and fsyncdir may yield.
 */
#ifndef LEAT_FUSE_OPS_DIR_H
#define LEAT_FUSE_OPS_DIR_H

#include "fuse/mount.h"

#define OP(name, ...) void op_##name(fuse_req_t req, __VA_ARGS__)
OP(lookup, fuse_ino_t parent, const char *name);
OP(forget, fuse_ino_t ino, uint64_t nlookup);
OP(forget_multi, size_t count, struct fuse_forget_data *forgets);
OP(mknod, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
OP(mkdir, fuse_ino_t parent, const char *name, mode_t mode);
OP(unlink, fuse_ino_t parent, const char *name);
OP(rmdir, fuse_ino_t parent, const char *name);
OP(symlink, const char *link, fuse_ino_t parent, const char *name);
OP(rename, fuse_ino_t parent, const char *name, fuse_ino_t new_parent, const char *new_name,
   unsigned int flags);
OP(link, fuse_ino_t ino, fuse_ino_t new_parent, const char *new_name);
OP(opendir, fuse_ino_t ino, struct fuse_file_info *fi);
OP(readdir, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
OP(readdirplus, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
OP(releasedir, fuse_ino_t ino, struct fuse_file_info *fi);
OP(fsyncdir, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
#undef OP

#endif
