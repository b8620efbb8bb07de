/* SPDX-License-Identifier: Apache-2.0 */
/* A volume that is the local file system, through the env. */
#ifndef LEAT_CLIENT_DATASET_VOL_LOCAL_H
#define LEAT_CLIENT_DATASET_VOL_LOCAL_H

#include "client/dataset/vol.h"

struct env;
struct env_file;

/* Makes a volume of the local file system. env is borrowed; a file belongs to the loop that
 * opened it. -LE_NOMEM */
int vol_local_create(struct env *env, struct vol **ret_vol) CHECK_RESULT;
/* Like vol_local_create, but sync and syncdir do nothing: data is durable only after another
 * sync. */
int vol_local_create_soft(struct env *env, struct vol **ret_vol) CHECK_RESULT;
/* vol_ops.data for a file of env. -LE_NOTSUP: it has no descriptor. Yields. */
int vol_env_data(struct env *env, const struct env_file *f, uint64_t off, uint64_t *ret_data,
		 uint64_t *ret_hole) CHECK_RESULT;

#endif
