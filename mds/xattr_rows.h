/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of extended attributes in the store, and what an inode's record counts of them.
 * Access lists have no rows: they are part of the record (store/acl.h). Owned by the loop.
 * Nothing here yields.
 */
#ifndef LEAT_MDS_XATTR_ROWS_H
#define LEAT_MDS_XATTR_ROWS_H

#include "mds/op.h"

/* One attribute that is set or removed. */
struct xattr_change {
	const struct cred *cred;
	struct ino ino;
	struct bytes name, value;
	uint32_t flags; /* XATTR_CREATE, XATTR_REPLACE */
	bool remove;
	bool exists; /* the store has a row of that name, */
	uint32_t old_len; /* and its value is that long */
};

/* True for security.capability, which has a separate flag (ATTR_FILE_CAPS) and whose value is
 * not counted. */
bool xattr_is_caps(struct bytes name);
/* Updates the counts of the record for the change. The counts of a damaged record do not fall
 * below 0. Writes no row. */
void xattr_count(struct inode_rec *rec, const struct xattr_change *ch);
/* In a critical section: writes the row of the attribute and counts it. */
void xattr_put(struct op *op, struct inode_rec *rec, const struct xattr_change *ch);
/* In a critical section: deletes the row of the attribute and counts it. */
void xattr_drop(struct op *op, struct inode_rec *rec, const struct xattr_change *ch);
/* In a critical section: removes security.capability, as a write or a change of owner does.
 * Writes nothing if the inode does not have it. */
void inode_drop_caps(struct op *op, struct inode_rec *rec);

#endif
