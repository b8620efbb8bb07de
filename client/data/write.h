/* SPDX-License-Identifier: Apache-2.0 */
/* The write calls of ll.h. Owned by the client's loop. */
#ifndef LEAT_CLIENT_DATA_WRITE_H
#define LEAT_CLIENT_DATA_WRITE_H

#include <stdbool.h>

#include "common/base/status.h"

struct inode_io;

/* Returns true if the client has, under a write lease, data that no server has accepted, or an
 * append in progress at an end that was found without the MDS (append_find_end). Does not yield. */
bool has_unflushed(const struct inode_io *d);
/* Waits until all data written so far is accepted. Returns 0 or -LE_INTR. Yields. */
int flush_visible(struct inode_io *d) CHECK_RESULT;

#endif
