/* SPDX-License-Identifier: Apache-2.0 */
/* leat fsck: inodes against directory entries. */
#ifndef LEAT_TOOLS_FSCK_NAMES_H
#define LEAT_TOOLS_FSCK_NAMES_H

#include "tools/fsck.h"

/* Compares all inodes and directory entries of the snapshot. Returns 0 or a negative status.
 * Yields. */
int fsck_names(struct fsck *f) CHECK_RESULT;

#endif
