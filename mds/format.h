/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of leat-mds that make a store or copy one. No server may run on the store. */
#ifndef LEAT_MDS_FORMAT_H
#define LEAT_MDS_FORMAT_H

#include "common/base/status.h"
#include "mds/params.h"

struct env;
struct uuid;

/* Makes an empty file system in params.data_dir. cluster: its uuid; zero: a random one. Returns 0,
 * -LE_EXIST if there is a store, or the error of the kv store. Yields. */
int mds_format(struct env *env, const struct mds_params *p,
	       const struct uuid *cluster) CHECK_RESULT;
/* Writes a consistent copy of the store to path, which must not exist. Yields. */
int mds_backup(struct env *env, const struct mds_params *p, const char *path) CHECK_RESULT;
/* Makes the store, which must not exist, from a copy that mds_backup has made. Skips the inode
 * and request numbers that may have been given since the backup, so that none is used twice.
 * Yields. */
int mds_restore(struct env *env, const struct mds_params *p, const char *path) CHECK_RESULT;

#endif
