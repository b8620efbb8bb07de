/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of the simulator: an ordered store in memory that survives simulated crashes. For
 * sim_options.kv_open.
 */
#ifndef LEAT_COMMON_KV_KV_SIM_H
#define LEAT_COMMON_KV_KV_SIM_H

#include "common/kv/kv.h"

int kv_sim_open(struct env *env, const char *path, const struct kv_options *opts,
		struct kv **ret_kv) CHECK_RESULT;

#endif
