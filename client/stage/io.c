#include "client/stage/io.h"

#include <string.h>

#include "client/leat_impl.h"

int io_init(struct stage_io *io, struct leat_fs *fs, const char *name)
{
	memset(io, 0, sizeof(*io));
	io->fs = fs;
	if (fs) {
		io->env = fs->env;
		io->loop = fs->loop;
	} else {
		struct env_real_options eo = {.n_workers = 2};
		struct loop_options lo = {.name = name};
		io->own = true;
		int rc = env_real_create(&eo, &io->env);
		if (rc == 0)
			rc = loop_create(io->env, &lo, &io->loop);
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
	int rc = vol_local_create(io->env, &io->local);
	if (rc == 0)
		rc = vol_local_create_soft(io->env, &io->soft);
	if (rc == 0 && fs)
		rc = vol_leat_create(fs, &io->remote);
	if (rc < 0)
		io_fini(io);
	return rc;
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
	if (io->own && io->env)
		env_real_destroy(io->env);
	memset(io, 0, sizeof(*io));
}

int io_run(struct stage_io *io, void (*fn)(void *arg), void *arg)
{
	return loop_call(io->loop, "stage", fn, arg);
}
