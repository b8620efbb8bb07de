/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walking a tree with many fibers concurrently.
 *
 * Work items are on a stack: directories to be listed, and small bunches of entries that are no
 * directories. Each fiber pops the top item. A listing first pushes the rest of its directory, then
 * the entries that it has found. So the stack holds about one batch of entries for each level at
 * which fibers work, however large the tree is.
 *
 *   enter(dir) → entry() for each name → file() for entries that entry() selects → leave(dir) when
 *   all of them are done, children before their parents
 *
 * A failure is reported (walk_failed) and marks the directories above it; the walk continues. When
 * the caller cancels, the items on the stack are dropped. Owned by one loop.
 */
#ifndef LEAT_CLIENT_TREE_WALK_H
#define LEAT_CLIENT_TREE_WALK_H

#include "client/include/leat/leat_tree.h"
#include "client/tree/side.h"
#include "common/base/list.h"
#include "common/rt/fiber.h"

#define WALK_BUNCH 16u
/* Size of a fiber's buffer, and the most bytes that one call copies. */
#define WALK_BUF (1u << 20)

struct walk;

struct wnode {
	struct wnode *parent; /* NULL: the directory that contains the root */
	struct tdir src, dst;
	struct tattr a;
	uint32_t pending; /* its listing, bunches and directories that are not done */
	uint32_t depth;
	uint32_t again; /* how often it was listed again */
	bool entered, failed;
	bool made; /* the copy did not exist before */
	uint64_t disk, apparent, inodes;
	char name[];
};

/* A fiber of the walk, with its buffers. */
struct wfiber {
	struct walk *w;
	struct tent *batch;
	uint8_t *buf; /* WALK_BUF bytes, allocated by wfiber_buf() */
	struct tmeta m;
};

struct walk_ops {
	bool attrs; /* entries need all attributes */
	/* Opens n->src. 1: the directory no longer exists, or is to be skipped. */
	int (*enter)(struct wfiber *f, struct wnode *n);
	/* True: the walk descends into the entry or calls file() for it. Does not yield. */
	bool (*entry)(struct wfiber *f, struct wnode *dir, const struct tent *e);
	void (*file)(struct wfiber *f, struct wnode *dir, const struct tent *e);
	/* Called when all entries are done. True: list the directory once more. May be NULL. */
	bool (*leave)(struct wfiber *f, struct wnode *n);
};

struct walk {
	const struct walk_ops *ops;
	void *arg;
	struct leat_tree_options o;
	struct leat_tree_result r;
	const char *path; /* of the root, as the caller passed it */
	const char *what; /* phrase for failures: "cannot remove" */
	uint64_t shown_us;
	/* the stack */
	struct list items;
	uint32_t n_active;
	struct waitq q;
	bool enomem;
};

/* Walks the tree with the root `name` in the open directory top->src, with attributes a. Returns
 * when all is done, and closes top->src and top->dst. */
void walk_run(struct walk *w, struct wnode *top, const char *name, const struct tattr *a);
bool walk_cancelled(const struct walk *w);
/* Reports the failure of `name` in dir; NULL: of dir itself. Does not yield. */
void walk_failed(struct walk *w, struct wnode *dir, const char *name, int rc);
/* Returns the path of `name` in dir, which the caller frees: below the root, or with the path of
 * the root. NULL: no memory. */
char *walk_path(const struct walk *w, const struct wnode *dir, const char *name, bool below);
/* Adds to the result and calls the caller's progress function. */
void walk_did(struct walk *w, uint64_t files, uint64_t dirs, uint64_t bytes);
uint8_t *wfiber_buf(struct wfiber *f);

#endif
