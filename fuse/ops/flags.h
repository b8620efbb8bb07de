/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flags of chattr(1) and lsattr(1): FS_IOC_GETFLAGS and its kin. Handlers of ops/table.c:
 * libfuse calls them in request fibers, each answers its request exactly once. All but forget and
 * fsyncdir may yield.
 */
#ifndef LEAT_FUSE_OPS_FLAGS_H
#define LEAT_FUSE_OPS_FLAGS_H

#include "fuse/mount.h"

#define OP(name, ...) void op_##name(fuse_req_t req, __VA_ARGS__)
OP(ioctl, fuse_ino_t ino, unsigned int cmd, void *arg, struct fuse_file_info *fi,
   unsigned int flags, const void *in, size_t in_size, size_t out_size);
#undef OP

#endif
