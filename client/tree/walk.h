/*
 * Walking a tree with many fibers at once.
 *
 * Work lies on a stack: directories to be listed, and small bunches of entries that are no
 * directories. Each fiber takes what is on top; a listing puts the rest of its directory back
 * first, and what it has found on top of it, so the stack holds about one batch of entries for
 * each level that fibers are at, however large the tree is.
 *
 *   enter(dir) → entry() for each name → file() for what entry() wants → leave(dir) when all of
 *   it is done, children before their parents
 *
 * What fails is told (walk_failed), marks the directories above it, and the rest goes on. When the
 * caller cancels, what is on the stack is dropped. Owned by one loop.
 */
#ifndef LEAT_TREE_WALK_H
#define LEAT_TREE_WALK_H

#include "client/include/leat/leat_tree.h"
#include "client/tree/side.h"
#include "common/base/list.h"
#include "common/rt/fiber.h"

#define WALK_BUNCH 16u
/* Of a fiber's buffer, and the most that is moved at once. */
#define WALK_BUF (1u << 20)

struct walk;

struct wnode {
	struct wnode *parent; /* NULL: the directory in which the tree lies */
	struct tdir src, dst;
	struct tattr a;
	uint32_t pending; /* its listing, bunches and directories that are not done */
	uint32_t depth;
	uint32_t again; /* how often it was listed anew */
	bool entered, failed;
	bool made; /* a copy's target was not there before */
	uint64_t disk, apparent, inodes;
	char name[];
};

/* What one fiber has. */
struct wfiber {
	struct walk *w;
	struct tent *batch;
	uint8_t *buf; /* WALK_BUF bytes, made when first needed: wfiber_buf() */
	struct tmeta m;
};

struct walk_ops {
	bool attrs; /* entries need all attributes */
	/* 1: it is not there any more, there is nothing to be done. */
	int (*enter)(struct wfiber *f, struct wnode *n);
	/* Does not yield. True: to be descended into or given to file(). */
	bool (*entry)(struct wfiber *f, struct wnode *dir, const struct tent *e);
	void (*file)(struct wfiber *f, struct wnode *dir, const struct tent *e);
	/* True: list it once more. May be NULL. */
	bool (*leave)(struct wfiber *f, struct wnode *n);
};

struct walk {
	const struct walk_ops *ops;
	void *arg;
	struct leat_tree_options o;
	struct leat_tree_result r;
	const char *path; /* of the root, as the caller calls it */
	const char *what; /* of failures: "cannot remove" */
	uint64_t shown_us;
	/* the stack */
	struct list items;
	uint32_t n_active;
	struct waitq q;
	bool enomem;
};

/* top: opened, its src holds the root, whose attributes and name are given. Takes what is in
 * top->src and top->dst, and closes it. Returns when all is done. */
void walk_run(struct walk *w, struct wnode *top, const char *name, const struct tattr *a);
bool walk_cancelled(const struct walk *w);
/* name: in dir; NULL: dir itself. Does not yield. */
void walk_failed(struct walk *w, struct wnode *dir, const char *name, int rc);
/* The path of name in dir below the root, or with the root's; NULL: no memory. */
char *walk_path(const struct walk *w, const struct wnode *dir, const char *name, bool below);
/* Counts, and tells the caller how far it is. */
void walk_did(struct walk *w, uint64_t files, uint64_t dirs, uint64_t bytes);
uint8_t *wfiber_buf(struct wfiber *f);

#endif
