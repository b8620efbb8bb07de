/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which writes of a file no object server has accepted yet. Owned by the client's loop. No
 * function yields.
 */
#ifndef LEAT_CLIENT_DATA_WRITE_STATE_H
#define LEAT_CLIENT_DATA_WRITE_STATE_H

#include <stdbool.h>
#include <stdint.h>

struct inode_io;
struct wreq;

/* Returns true if any write, coalesced or in flight, has not been accepted by a server. */
bool wb_has_unflushed(const struct inode_io *d);

/* Returns true if a server has accepted the write: it is visible to readers. */
bool wreq_is_visible(const struct wreq *w);

/* Returns true if a write up to sequence seq has not been accepted. */
bool wb_range_is_unflushed(const struct inode_io *d, uint64_t seq);

#endif
