/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settling: the inode record of a file without writers gets the size that its chains store, in
 * the background. Until then it is unsettled (ATTR_UNSETTLED). Owned by the loop.
 */
#ifndef LEAT_MDS_FILE_SETTLE_H
#define LEAT_MDS_FILE_SETTLE_H

#include "common/proto/types.h"

struct mds;

/* Starts a fiber that settles the inode, unless one does so already, the file has writers, sessions
 * are missing after a restart, or too many fibers settle. The file stays unsettled then, and the
 * next getattr starts it again. Does not yield. */
void data_settle_start(struct mds *m, struct ino ino);
/* Starts to settle the files with reserved bytes of a quota (open_files.owed). Called each
 * second. Leaves half of the fibers for other files. Does not yield. */
void data_settle_owed(struct mds *m);

#endif
