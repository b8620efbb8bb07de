/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A read-only volume of the tree below one local directory. Every name is opened from that
 * directory's descriptor, by openat2 with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS, so a user that
 * replaces a directory by a link cannot lead a reader elsewhere. Each call is one job of a worker
 * thread.
 */
#ifndef LEAT_CLIENT_DATASET_VOL_BENEATH_H
#define LEAT_CLIENT_DATASET_VOL_BENEATH_H

#include "client/dataset/vol.h"

struct env;

/* Makes the volume of a local directory: see vol_beneath. dir: a path without links. env is
 * borrowed. Blocks for one open. */
int vol_local_beneath(struct env *env, const char *dir, struct vol **ret_vol) CHECK_RESULT;
/* Opens a local directory (O_PATH), which is made, with its parents, if necessary. Returns the
 * descriptor. Follows only links of root and of `uid`: -LE_PERM for another user's link, because
 * that user could change it. v: a local volume. Yields. */
int vol_open_made(struct vol *v, const char *dir, uint32_t uid) CHECK_RESULT;

#endif
