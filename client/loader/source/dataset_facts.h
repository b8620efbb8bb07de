/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of an open data set. Nothing here yields. */
#ifndef LEAT_CLIENT_LOADER_SOURCE_DATASET_FACTS_H
#define LEAT_CLIENT_LOADER_SOURCE_DATASET_FACTS_H

#include "client/loader/source/dataset.h"

/* True if some of the data comes from servers. */
bool dataset_is_remote(const struct leat_dataset *ds);
/* True if every byte that is delivered is compared with the checksum from when it was written. */
bool dataset_is_verified(const struct leat_dataset *ds);
/* Returns 0; in a forked child -LE_NOTSUP, with the reason in leat_last_error. */
int dataset_check_pid(const struct leat_dataset *ds) CHECK_RESULT;

#endif
