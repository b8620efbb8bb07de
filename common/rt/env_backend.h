/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by env.c and the env implementations (env_real.c, sim/), which alone include this.
 */
#ifndef LEAT_COMMON_RT_ENV_BACKEND_H
#define LEAT_COMMON_RT_ENV_BACKEND_H

#include "common/rt/env.h"

/* First member of each env's own file struct. */
struct env_file {
	struct env *env;
	bool direct; /* O_DIRECT is set */
};

#endif
