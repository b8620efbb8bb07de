/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on file locks: fcntl(2) and flock(2). Handlers of ops/table.c: libfuse calls them in
 * request fibers, each answers its request exactly once. All but forget and fsyncdir may yield.
 */
#ifndef LEAT_FUSE_OPS_LOCK_H
#define LEAT_FUSE_OPS_LOCK_H

#include "fuse/mount.h"

#define OP(name, ...) void op_##name(fuse_req_t req, __VA_ARGS__)
OP(getlk, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock);
OP(setlk, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock, int sleep);
OP(flock, fuse_ino_t ino, struct fuse_file_info *fi, int what);
#undef OP

/* Releases the locks that `owner` took by fcntl(2) on this file, at a close; or by flock(2), at the
 * last close of the open file. A lock that cannot be released is logged. Yield. */
void unlock_at_flush(struct ll_file *file, uint64_t owner);
void unlock_at_release(struct ll_file *file, uint64_t owner);

#endif
