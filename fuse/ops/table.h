/* SPDX-License-Identifier: Apache-2.0 */
/* The table of operations that libfuse calls, and what is negotiated with the kernel at INIT. */
#ifndef LEAT_FUSE_OPS_TABLE_H
#define LEAT_FUSE_OPS_TABLE_H

#include "fuse/mount.h"

extern const struct fuse_lowlevel_ops mount_ops;

#endif
