/*
 * A directory that was removed while somebody has it open. The metadata server does not count opens
 * of directories, and so knows nothing of it any more; what was known of it here stays true, since
 * nobody else can change it and its number is never used again. Attributes that are set are set
 * there, and seen by who has it open at this client. Its extended attributes are not known: it has
 * none. Owned by the client's loop; nothing yields.
 */
#ifndef LEAT_CLIENT_REMOVED_DIR_H
#define LEAT_CLIENT_REMOVED_DIR_H

#include "client/client.h"

/* For when the server knows no such inode (-LE_STALE): whether it was a directory, and what is
 * known of it. */
bool removed_dir(const struct inode *i, struct attr *ret_attr);
/* Sets what req says as the server would have. ret_attr may be NULL. -LE_STALE: it was no
 * directory, or that is not set of one that is gone; -LE_PERM, -LE_ACCES. */
int removed_dir_set(struct client *c, const struct mds_setattr_req *req, struct inode *i,
		    struct attr *ret_attr) CHECK_RESULT;

#endif
