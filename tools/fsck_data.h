/* SPDX-License-Identifier: Apache-2.0 */
/* leat fsck: inodes against chunks. */
#ifndef LEAT_TOOLS_FSCK_DATA_H
#define LEAT_TOOLS_FSCK_DATA_H

#include "tools/fsck.h"

/* Compares all inodes of the snapshot with the chunks of all chains. Returns 0 or a negative
 * status. Yields. */
int fsck_data(struct fsck *f) CHECK_RESULT;

#endif
