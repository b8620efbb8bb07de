/* SPDX-License-Identifier: Apache-2.0 */
/* The parameter table of [mds]. */
#include "mds/params.h"

#include "common/base/assert.h"

#define ROW(...) CONFIG_ROW(struct mds_params, __VA_ARGS__)
const struct config_param mds_param_table[] = {MDS_PARAMS(ROW)};
#undef ROW
const int n_mds_params = ARRAY_SIZE(mds_param_table);
