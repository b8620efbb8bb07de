/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that an open with O_TRUNC shares with setting a size. Owned by the client's loop. */
#ifndef LEAT_CLIENT_OPS_TRUNCATION_H
#define LEAT_CLIENT_OPS_TRUNCATION_H

#include <stdbool.h>

struct attr;
struct inode;

/* Called after a truncation by this client, with the attributes of its reply, which the caller has
 * merged unless the cache had newer ones. Discards this client's record of the file's end. Does not
 * yield. */
void inode_truncated(struct inode *i, const struct attr *attr);

/* Returns true if a truncation or hole may have taken effect, wholly or in part, although it
 * failed. A truncation that was refused has not, so that a user without the right to write cannot
 * make other clients drop cached data. */
bool change_outcome_unknown(int rc);

/* Called after pending_change_begin, before a truncation. Waits for appends at an end that was
 * found without the MDS (append_find_end), and until the data written is durable. Returns 0 or
 * -LE_INTR. Yields. */
int truncate_flush(struct inode *i);

#endif
