/*
 * What env.c and the two kinds of env (env_real.c, sim.c) know of each other. Nobody else
 * includes this.
 */
#ifndef LEAT_RT_ENV_BACKEND_H
#define LEAT_RT_ENV_BACKEND_H

#include "common/rt/env.h"

/* First member of each env's own file struct. */
struct env_file {
	struct env *env;
	bool direct; /* O_DIRECT is in force */
};

#endif
