/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/params.h"

#include "common/base/assert.h"

#define ROW(...) CONFIG_ROW(struct ossd_params, __VA_ARGS__)

const struct config_param ossd_param_table[] = { OSSD_PARAMS(ROW) };
const int n_ossd_params = ARRAY_SIZE(ossd_param_table);
