/*
 * Where the library's own fibers run: on the loop of a Leat instance, if there is one, so that its
 * data needs no second thread; else on a loop of their own. Both volumes can be used from there.
 */
#ifndef LEAT_STAGE_IO_H
#define LEAT_STAGE_IO_H

#include <stdbool.h>

#include "client/stage/vol.h"
#include "common/rt/env.h"
#include "common/rt/loop.h"

struct leat_fs;

struct stage_io {
	struct leat_fs *fs; /* borrowed; NULL: local only */
	struct env *env;   /* which believes nothing below a stage directory: beneath.h */
	struct env *below; /* what that is made of */
	struct loop *loop;
	struct vol *local, *soft; /* soft: writes that are synced later, by others, or never */
	struct vol *remote;       /* NULL without fs */
	bool own;                 /* below and loop are ours */
};

/* name: of the thread, if one is made. Not from a loop's thread. */
int io_init(struct stage_io *io, struct leat_fs *fs, const char *name) CHECK_RESULT;
void io_fini(struct stage_io *io); /* fine after a failed io_init of a zeroed struct */
/* Runs fn(arg) as a fiber and waits. */
int io_run(struct stage_io *io, void (*fn)(void *arg), void *arg) CHECK_RESULT;
/* The volume that a source lies in: remote if there is one. */
static inline struct vol *io_source(const struct stage_io *io)
{
	return io->remote ? io->remote : io->local;
}

#endif
