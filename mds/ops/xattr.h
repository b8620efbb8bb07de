/* Which extended attributes there are, and who may see and change them: user.*, trusted.* (root),
 * security.*, and the two access lists of system.*. */
#ifndef LEAT_MDS_OPS_XATTR_H
#define LEAT_MDS_OPS_XATTR_H

#include "mds/op.h"

/* -LE_NOTSUP: a name space that is not offered. -LE_PERM, -LE_ACCES, -LE_INVAL, -LE_RANGE (name).
 */
int xattr_check(const struct cred *c, const struct inode_rec *rec, struct bytes name,
		bool write) CHECK_RESULT;
bool xattr_visible(const struct cred *c, struct bytes name);

#endif
