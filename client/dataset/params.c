/* SPDX-License-Identifier: Apache-2.0 */
#include "client/dataset/params.h"

#include "common/base/assert.h"

#define ROW(...) CONFIG_ROW(struct agent_params, __VA_ARGS__)

const struct config_param agent_param_table[] = {AGENT_PARAMS(ROW)};
const int n_agent_params = ARRAY_SIZE(agent_param_table);
