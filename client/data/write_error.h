/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors that no call is waiting for: of background writes, and losses of locks or acknowledged
 * data. The inode keeps one, and each open file reports it once. Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_DATA_WRITE_ERROR_H
#define LEAT_CLIENT_DATA_WRITE_ERROR_H

#include <stdbool.h>

#include "common/base/status.h"

struct inode_io;
struct ll_file;

/* Returns the inode's error if this file has not reported it yet, and marks it reported. 0:
 * none. Does not yield. */
int write_error_take(struct ll_file *f) CHECK_RESULT;
/* Like write_error_take, but returns only whether there was one. Does not yield. */
bool write_error_reported(struct ll_file *f);

/* Records an error of the inode, which each open file then reports once. Logs it as a failed
 * background write. Does not yield. */
void wb_set_error(struct inode_io *d, int status);

#endif
