/* SPDX-License-Identifier: Apache-2.0 */
#include "client/dataset/io_context.h"

#include <stdlib.h>
#include <string.h>

#include "client/dataset/beneath.h"
#include "client/dataset/vol_leat.h"
#include "client/dataset/vol_local.h"
#include "client/leat_impl.h"
#include "common/base/log.h"
#include "common/rt/env_real.h"

int io_init(struct stage_io *io, struct leat_fs *fs, const char *name)
{
	memset(io, 0, sizeof(*io));
	io->fs = fs;
	if (fs) {
		io->below = fs->env;
		io->loop = fs->loop;
	} else {
		struct env_real_options eo = {.n_workers = 2};
		struct loop_options lo = {.name = name};
		io->own = true;
		int rc = env_real_create(&eo, &io->below);
		if (rc == 0)
			rc = loop_create(io->below, &lo, &io->loop);
		if (rc == 0 && loop_start_thread(io->loop) < 0) {
			loop_destroy(io->loop);
			io->loop = NULL;
			rc = -LE_NOMEM;
		}
		if (rc < 0) {
			io_fini(io);
			return rc;
		}
	}
	int rc = beneath_create(io->below, &io->env);
	if (rc == 0)
		rc = vol_local_create(io->env, &io->local);
	if (rc == 0)
		rc = vol_local_create_soft(io->env, &io->soft);
	if (rc == 0 && fs)
		rc = vol_leat_create(fs, &io->remote);
	if (rc < 0)
		io_fini(io);
	return rc;
}

/* Logs a refusal that no result has reported. */
static void tell(struct stage_io *io)
{
	struct beneath_why *why = malloc(sizeof(*why));
	if (why && beneath_why(io->env, why))
		log_warn("%s: %s", why->path, why->what);
	free(why);
}

void io_fini(struct stage_io *io)
{
	vol_destroy(io->local);
	vol_destroy(io->soft);
	vol_destroy(io->remote);
	if (io->own && io->loop) {
		loop_stop(io->loop);
		loop_join(io->loop);
		loop_destroy(io->loop);
	}
	if (io->env)
		tell(io);
	beneath_destroy(io->env);
	if (io->own && io->below)
		env_real_destroy(io->below);
	memset(io, 0, sizeof(*io));
}

int io_run(struct stage_io *io, void (*fn)(void *arg), void *arg)
{
	return loop_call(io->loop, "stage", fn, arg);
}

struct uuid io_cluster(const struct stage_io *io)
{
	return io->fs ? ll_cluster(io->fs->client) : (struct uuid){{0}};
}
