/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory that was removed while it is open here. The metadata server does not count opens of
 * directories, so it no longer has the inode. The attributes that this client received last stay
 * valid, because no other client can change them and the inode number is never used again. Changes
 * of attributes apply to the cache, and are visible on this client only. The directory has no
 * extended attributes. Owned by the client's loop. No function yields.
 */
#ifndef LEAT_CLIENT_OPS_REMOVED_DIR_H
#define LEAT_CLIENT_OPS_REMOVED_DIR_H

#include <stdbool.h>

#include "common/base/status.h"

struct attr;
struct client;
struct inode;
struct mds_setattr_req;

/* Called when the server no longer has the inode (-LE_STALE). Returns true if it was a directory,
 * with the attributes received last and nlink 0 in *ret_attr. */
bool removed_dir(const struct inode *i, struct attr *ret_attr);
/* Sets attributes as the server would have. ret_attr may be NULL. Returns 0; -LE_STALE if it was no
 * directory, or the attribute cannot be set without the server; -LE_PERM, -LE_ACCES. */
int removed_dir_set(struct client *c, const struct mds_setattr_req *req, struct inode *i,
		    struct attr *ret_attr) CHECK_RESULT;

#endif
