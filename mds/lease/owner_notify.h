/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The notice that an inode has another owner or group, by which the kernels of clients check
 * permissions (cb_owner). The server sends it to the clients that have a lease on the inode or
 * have it open. A client that does not get the notice uses the previous owner until its kernel
 * requests attributes again. Owned by the loop.
 */
#ifndef LEAT_MDS_LEASE_OWNER_NOTIFY_H
#define LEAT_MDS_LEASE_OWNER_NOTIFY_H

#include "mds/op.h"

/* In a critical section, before op_changes: notes the sessions that have a lease on the inode. For
 * directories, whose opens are not counted. Returns 0 or -LE_NOMEM. Does not yield. */
int op_gives(struct op *op, struct ino ino) CHECK_RESULT;
/* After the section: notifies the sessions that op_gives has noted and those that have the file
 * open, and waits for their answers, but not for those of late clients (holder.h). Yields. */
void op_given(struct op *op, struct ino ino);
/* Drops the sessions that op_gives has noted. Called at the end of an operation. Does not yield. */
void op_gives_end(struct op *op);

#endif
