/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the operations on file locks that mds_reclaim uses. */
#ifndef LEAT_MDS_OPS_LOCK_H
#define LEAT_MDS_OPS_LOCK_H

#include "mds/op.h"

/* Sets a lock again that op->session held before the restart, as its client reports. Returns 0,
 * -LE_BAD_MESSAGE, -LE_STALE if the session does not have the file open, -LE_LOCKED if another
 * session holds a conflicting lock, -LE_NOLCK. Does not yield. */
int lock_reclaim(struct op *op, struct ino ino, const struct file_lock *l) CHECK_RESULT;

#endif
