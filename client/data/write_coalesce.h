/* SPDX-License-Identifier: Apache-2.0 */
/* Collects small writes of one inode into one large write. Owned by the client's loop. */
#ifndef LEAT_CLIENT_DATA_WRITE_COALESCE_H
#define LEAT_CLIENT_DATA_WRITE_COALESCE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

struct client;
struct inode_io;
struct slot_vec;
struct stripe_part;

/* A write of at least this many bytes is sent immediately. */
#define COALESCE_BELOW (128u << 10)

/* Copies len bytes for a part of a chunk into the inode's slot, and may send the bytes collected
 * before. *ret_taken is false if there is no grant or memory, or the session has ended meanwhile:
 * the bytes must then be written through. Returns 0 or an error. Yields. */
int coalesce_write(struct inode_io *d, const struct stripe_part *part, const struct slot_vec *vec,
		 uint32_t n, bool *ret_taken) CHECK_RESULT;
/* Sends the collected bytes, if there are any. Does not yield. */
void coalesce_submit(struct inode_io *d);
/* Sends the collected bytes of all inodes that began to collect before that time. Does not
 * yield. */
void coalesce_submit_all(struct client *c, uint64_t since_before_us);
/* Drops the collected bytes when the session is lost. Returns true if there were any. Does not
 * yield. */
bool coalesce_drop(struct inode_io *d);
/* Returns true if collected bytes overlap [off, off + len) of the file. Does not yield. */
bool coalesce_overlaps(const struct inode_io *d, uint64_t off, uint64_t len);

#endif
