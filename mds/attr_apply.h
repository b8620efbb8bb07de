/* SPDX-License-Identifier: Apache-2.0 */
/* Setting the attributes of an inode, except its size. */
#ifndef LEAT_MDS_ATTR_APPLY_H
#define LEAT_MDS_ATTR_APPLY_H

#include "mds/op.h"

/* In a critical section: sets the attributes in mask (enum attr_mask, not SET_SIZE) of the
 * record to the values in `new`. Checks no permission. Leaves ctime and the change counter as
 * they are. Does not yield. */
void attr_apply(struct op *op, struct inode_rec *rec, uint32_t mask, const struct attr *new);

#endif
