/* SPDX-License-Identifier: Apache-2.0 */
/* Which extended attributes a user may read and change: user.*, trusted.* (root), security.*, and
 * the two access lists of system.*. The part that listxattr uses. Nothing here yields. */
#ifndef LEAT_MDS_OPS_XATTR_H
#define LEAT_MDS_OPS_XATTR_H

#include "mds/op.h"

/* Checks that c may read, or write, the attribute of that name. Returns 0, -LE_NOTSUP for
 * another name space, -LE_PERM, -LE_ACCES, -LE_NODATA, -LE_INVAL, or -LE_RANGE for the length of
 * the name. */
int xattr_check(const struct cred *c, const struct inode_rec *rec, struct bytes name,
		bool write) CHECK_RESULT;
/* True if listxattr returns an attribute of that name to c. */
bool xattr_visible(const struct cred *c, struct bytes name);

#endif
