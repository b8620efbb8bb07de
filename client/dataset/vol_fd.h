/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on descriptors for local volumes. They may block: call them from a worker thread. */
#ifndef LEAT_CLIENT_DATASET_VOL_FD_H
#define LEAT_CLIENT_DATASET_VOL_FD_H

#include "client/dataset/vol.h"

/* vol_ops.data for a descriptor. */
int vol_seek_data(int fd, uint64_t off, uint64_t *ret_data, uint64_t *ret_hole) CHECK_RESULT;
/* vol_ops.acl for a descriptor (O_PATH is enough). */
int64_t vol_acl_of(int fd, const struct vol_stat *of, void *buf, size_t size) CHECK_RESULT;
/* Converts a struct stat of the local file system. */
void vol_take_stat(const struct stat *from, struct vol_stat *to);
/* Opens the regular file that a local path leads to, close-on-exec. Does not block on a pipe and
 * does not open a device: -LE_ISDIR, or -LE_STALE for other types. Omits O_DIRECT if the file
 * system does not support it. */
int vol_open_regular(const char *path, int flags, mode_t mode) CHECK_RESULT;

#endif
