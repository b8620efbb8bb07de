/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop on which fibers of staging and the loader run, and the volumes that they use there. If
 * there is a Leat instance, its loop is used, so that its data needs no second thread; else a loop
 * is made.
 */
#ifndef LEAT_CLIENT_DATASET_IO_CONTEXT_H
#define LEAT_CLIENT_DATASET_IO_CONTEXT_H

#include <stdbool.h>

#include "client/dataset/vol.h"
#include "common/rt/env.h"
#include "common/rt/loop.h"

struct leat_fs;

struct stage_io {
	struct leat_fs *fs; /* borrowed; NULL: local only */
	struct env *env;    /* does not trust stage directories: beneath.h */
	struct env *below;  /* the inner env of that */
	struct loop *loop;
	struct vol *local, *soft; /* soft: its writes are not synced */
	struct vol *remote;       /* NULL without fs */
	bool own;                 /* this struct owns below and loop */
};

/* Makes loop and volumes. name: of the thread, if one is made. fs may be NULL. A loop's thread
 * must not call it. */
int io_init(struct stage_io *io, struct leat_fs *fs, const char *name) CHECK_RESULT;
void io_fini(struct stage_io *io); /* fine after a failed io_init of a zeroed struct */
/* Runs fn(arg) as a fiber of the loop and waits for it. A loop's thread must not call it. */
int io_run(struct stage_io *io, void (*fn)(void *arg), void *arg) CHECK_RESULT;
/* Returns the cluster of fs; zero without one. */
struct uuid io_cluster(const struct stage_io *io);
/* Returns the volume of sources: remote if there is one, else local. */
static inline struct vol *io_source(const struct stage_io *io)
{
	return io->remote ? io->remote : io->local;
}

#endif
