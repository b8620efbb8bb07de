/* SPDX-License-Identifier: Apache-2.0 */
/* Removing a link of an inode. */
#ifndef LEAT_MDS_INODE_UNLINK_H
#define LEAT_MDS_INODE_UNLINK_H

#include "mds/op.h"

/* In a critical section: removes one link; a directory has only one. An inode without links is
 * removed; while it is open, or an open may still be reclaimed, it becomes an orphan. A file
 * that was replaced by a rename is removed a little later (file/orphan_delay.h). *ret_attr: the
 * attributes that the inode has, or had last. */
void inode_unlink(struct op *op, struct inode *i, bool replaced, struct attr *ret_attr);

#endif
