/*
 * What is done with whole trees, behind leat_tree.h. Each runs as a fiber of the loop that its
 * sides belong to, tells single failures by the walk, and returns only what ends it as a whole.
 */
#ifndef LEAT_TREE_TREE_H
#define LEAT_TREE_TREE_H

#include "client/tree/walk.h"

/* What stays where it is: asked with paths below the one to be removed ("" for that itself) and the
 * type in mode. A directory that stays is looked into as well. */
struct tree_keep {
	bool (*stays)(void *arg, const char *path, uint32_t mode);
	void *arg;
	bool open_up; /* directories whose mode lets their owner remove nothing in them */
};
/* keep NULL: nothing stays. */
int tree_remove(struct walk *w, struct side *s, const char *path,
		const struct tree_keep *keep) CHECK_RESULT;

struct tree_usage {
	uint32_t max_depth;
	leat_tree_each *each;
	void *arg;
};
int tree_usage(struct walk *w, struct side *s, const char *path,
	       const struct tree_usage *u) CHECK_RESULT;

struct tree_copy {
	struct side *from, *to;
	const char *path, *to_path;
	unsigned keep;
};
int tree_copy(struct walk *w, const struct tree_copy *c) CHECK_RESULT;

/* The directory of the path into top->src, the name and attributes of what is there. A failure has
 * been told. */
int tree_find_root(struct walk *w, struct side *s, const char *path, struct wnode *top,
		   char *ret_name, struct tattr *ret_attr) CHECK_RESULT;

#endif
