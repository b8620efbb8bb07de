/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public calls of leat_tree.h. Each runs as a fiber, on the instance's loop or, without an
 * instance, on a loop made for the call. The local side has N_WORKERS threads, enough to keep a
 * mount busy.
 */
#include <string.h>

#include "client/leat_impl.h"
#include "client/tree/copy.h"
#include "client/tree/remove.h"
#include "client/tree/side_leat.h"
#include "client/tree/side_local.h"
#include "client/tree/usage.h"
#include "common/rt/env_real.h"
#include "common/rt/loop.h"

#define N_WORKERS 16u

struct call {
	struct leat_fs *fs;
	struct env *env; /* of the local side */
	struct loop *own;
	struct side *leat, *local;
	struct walk w;
	/* what is to be done */
	enum {
		REMOVE,
		USAGE,
		COPY
	} what;
	const char *path;
	struct tree_usage usage;
	struct tree_copy copy;
	int rc;
};

static int prepare(struct call *c, bool local)
{
	struct env_real_options eo = {.n_workers = N_WORKERS};
	struct loop_options lo = {.name = "leat-tree"};

	if (c->fs)
		TRY(side_leat_create(c->fs, &c->leat));
	if (!local && c->fs)
		return 0;
	TRY(env_real_create(&eo, &c->env));
	TRY(side_local_create(c->env, c->fs ? c->fs->umask : process_umask(), &c->local));
	if (c->fs)
		return 0;
	TRY(loop_create(c->env, &lo, &c->own));
	if (loop_start_thread(c->own) < 0) {
		loop_destroy(c->own);
		c->own = NULL;
		return -LE_NOMEM;
	}
	return 0;
}

static void finish(struct call *c)
{
	side_destroy(c->leat);
	side_destroy(c->local);
	if (c->own) {
		loop_stop(c->own);
		loop_join(c->own);
		loop_destroy(c->own);
	}
	if (c->env)
		env_real_destroy(c->env);
}

static void call_fiber(void *arg)
{
	struct call *c = arg;
	struct side *s = c->fs ? c->leat : c->local;
	uint64_t start = env_now_us(loop_env(loop_self()));

	switch (c->what) {
	case REMOVE:
		c->rc = tree_remove(&c->w, s, c->path, NULL);
		break;
	case USAGE:
		c->rc = tree_usage(&c->w, s, c->path, &c->usage);
		break;
	case COPY:
		c->rc = tree_copy(&c->w, &c->copy);
		break;
	}
	if (c->rc == 0 && c->w.enomem)
		c->rc = -LE_NOMEM;
	else if (c->rc == 0 && walk_cancelled(&c->w))
		c->rc = -LE_INTR;
	c->w.r.elapsed_us = env_now_us(loop_env(loop_self())) - start;
}

static void take_options(struct walk *w, const struct leat_tree_options *opts)
{
	if (opts)
		memcpy(&w->o, opts, opts->size < sizeof(w->o) ? opts->size : sizeof(w->o));
}

static int run(struct call *c, struct leat_tree_result *ret_result)
{
	int rc = loop_call(c->fs ? c->fs->loop : c->own, "tree", call_fiber, c);

	if (ret_result) {
		size_t size = ret_result->size;

		memcpy(ret_result, &c->w.r, size < sizeof(c->w.r) ? size : sizeof(c->w.r));
		ret_result->size = size;
	}
	return rc < 0 ? rc : c->rc;
}

static int one_side(struct call *c, const struct leat_tree_options *opts,
		    struct leat_tree_result *ret_result)
{
	int rc = c->path && c->path[0] == '/' ? prepare(c, false) : -LE_INVAL;

	take_options(&c->w, opts);
	c->w.path = c->path;
	if (rc == 0)
		rc = run(c, ret_result);
	finish(c);
	return rc;
}

int leat_tree_remove(struct leat_fs *fs, const char *path, const struct leat_tree_options *opts,
		     struct leat_tree_result *ret_result)
{
	struct call c = {.fs = fs, .what = REMOVE, .path = path};

	return one_side(&c, opts, ret_result);
}

int leat_tree_usage(struct leat_fs *fs, const char *path, uint32_t max_depth, leat_tree_each *each,
		    const struct leat_tree_options *opts, struct leat_tree_result *ret_result)
{
	struct call c = {.fs = fs, .what = USAGE, .path = path};

	c.usage = (struct tree_usage){max_depth, each, opts ? opts->arg : NULL};
	return one_side(&c, opts, ret_result);
}

int leat_tree_copy(const struct leat_tree_place *from, const struct leat_tree_place *to,
		   unsigned keep, const struct leat_tree_options *opts,
		   struct leat_tree_result *ret_result)
{
	struct call c = {.fs = from->fs ? from->fs : to->fs, .what = COPY, .path = from->path};
	int rc;

	if ((from->fs && to->fs && from->fs != to->fs) || from->path[0] != '/' ||
	    to->path[0] != '/')
		return -LE_INVAL;
	rc = prepare(&c, !from->fs || !to->fs);
	c.copy = (struct tree_copy){
		.from = from->fs ? c.leat : c.local,
		.to = to->fs ? c.leat : c.local,
		.path = from->path,
		.to_path = to->path,
		.keep = keep,
	};
	take_options(&c.w, opts);
	c.w.path = from->path;
	if (rc == 0)
		rc = run(&c, ret_result);
	finish(&c);
	return rc;
}
