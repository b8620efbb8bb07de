/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits until writes of a file are visible to other clients, or durable. Owned by the client's
 * loop.
 */
#ifndef LEAT_CLIENT_DATA_FLUSH_H
#define LEAT_CLIENT_DATA_FLUSH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

struct inode_io;
struct slot_pool;

/* Sends coalesced data and waits until all data written so far is durable or has failed. Errors
 * stay with the inode (write_error.h). Returns 0 or -LE_INTR. Yields. */
int wb_flush(struct inode_io *d) CHECK_RESULT;
/* Like wb_flush, but without expediting the writes: they may wait for the servers' next group
 * commit. */
int wb_drain(struct inode_io *d) CHECK_RESULT;

/* Like wb_flush, but waits only until the data is accepted, and so visible to every client. */
int wb_flush_visible(struct inode_io *d) CHECK_RESULT;

/* Like wb_flush_visible, for the writes that overlap [off, off + len) of the file. */
int wb_flush_visible_range(struct inode_io *d, uint64_t off, uint64_t len) CHECK_RESULT;
/* Returns true if a write that overlaps [off, off + len) is coalesced or in flight. Does not
 * yield. */
bool wb_pending(const struct inode_io *d, uint64_t off, uint64_t len);
/* Blocks a writer while too many bytes are dirty, or while the file's writes in flight hold too
 * much of the slot pool that has the new bytes. Returns 0 or -LE_INTR. Yields. */
int wb_throttle(struct inode_io *d, const struct slot_pool *pool) CHECK_RESULT;
/* Called when the session is lost. Drops coalesced data with an error, and forgets which size and
 * which end are confirmed. Does not yield. */
void wb_session_gone(struct inode_io *d);

#endif
