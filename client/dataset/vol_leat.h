/* SPDX-License-Identifier: Apache-2.0 */
/* A volume that is a Leat namespace. */
#ifndef LEAT_CLIENT_DATASET_VOL_LEAT_H
#define LEAT_CLIENT_DATASET_VOL_LEAT_H

#include "client/dataset/vol.h"

struct leat_fs;

/* Makes a volume of the namespace, with the rights of the instance, which is borrowed. -LE_NOMEM */
int vol_leat_create(struct leat_fs *fs, struct vol **ret_vol) CHECK_RESULT;

#endif
