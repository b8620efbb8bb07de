/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real environment: clock, files and threads of this machine.
 */
#ifndef LEAT_COMMON_RT_ENV_REAL_H
#define LEAT_COMMON_RT_ENV_REAL_H

#include "common/rt/env.h"

/* ---- the real one ---- */
struct env_real_options {
	uint32_t n_workers; /* threads for blocking libraries, 0: 4 */
	/* Opens the key-value engine (kv_rocksdb_open); passed in, as rt must not depend on it. May
	 * be NULL. */
	int (*kv_open)(struct env *env, const char *path, const struct kv_options *opts,
		       struct kv **ret_kv);
};

/* Creates the env and its worker threads. opts may be NULL. Destroy all its loops before it. */
int env_real_create(const struct env_real_options *opts, struct env **ret_env) CHECK_RESULT;
void env_real_destroy(struct env *env);

#endif
