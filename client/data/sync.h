/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes accepted data durable at the object servers, and waits for closes in flight. Owned by the
 * client's loop.
 */
#ifndef LEAT_CLIENT_DATA_SYNC_H
#define LEAT_CLIENT_DATA_SYNC_H

#include <stdbool.h>

#include "common/base/status.h"

struct inode_io;
struct inode;

/* Makes all data of the inode durable that object servers have accepted. readers: also waits until
 * no chunk lease of another client covers older data. *ret_lost (may be NULL): a server that had
 * accepted data of this session has crashed, and the data may not have been repeated. Returns 0 or
 * the first error. Yields. */
int sync_accepted(struct inode_io *d, bool readers, bool *ret_lost) CHECK_RESULT;

/* Waits until no close of the inode is in flight, and expedites them. Returns 0, -LE_IO if a server
 * is unreachable, or -LE_INTR. Yields. */
int sync_wait_closing(struct inode *i) CHECK_RESULT;

#endif
