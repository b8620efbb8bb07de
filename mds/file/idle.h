/* SPDX-License-Identifier: Apache-2.0 */
/* Cleaning up after an open of an inode has ended. */
#ifndef LEAT_MDS_FILE_IDLE_H
#define LEAT_MDS_FILE_IDLE_H

#include "common/base/status.h"
#include "common/proto/types.h"

struct mds;

/* Removes the inode if it is an orphan that no session has open. Starts to settle it if it is
 * unsettled and has no writers. Returns 0, also if the inode does not exist, -LE_SHUTDOWN, or
 * the error of the store. Yields. */
int data_idle(struct mds *m, struct ino ino) CHECK_RESULT;

#endif
