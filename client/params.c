/* SPDX-License-Identifier: Apache-2.0 */
#include "client/params.h"

#include "common/base/assert.h"

#define ROW(...) CONFIG_ROW(struct client_params, __VA_ARGS__)
const struct config_param client_param_table[] = {CLIENT_PARAMS(ROW)};
const int n_client_params = ARRAY_SIZE(client_param_table);
