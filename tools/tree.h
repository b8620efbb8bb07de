/*
 * What `leat cp`, `rm` and `du` share: which file system a path lies in, and reporting.
 *
 * A path on a Leat mount is worked on at the servers, by the library, if that is certain to be the
 * same: the cluster's key can be read, the servers have the very inode that the mount shows, and
 * nothing else is mounted below. Otherwise the work is done through the mount, as by any program,
 * with as many operations at once.
 */
#ifndef LEAT_TOOLS_TREE_H
#define LEAT_TOOLS_TREE_H

#include <leat/leat.h>
#include <leat/leat_tree.h>
#include <limits.h>

#include "tools/tool.h"

struct tree_path {
	const char *text;    /* as it was given */
	char full[PATH_MAX]; /* absolute; its directory is canonical, the last component as it is */
	char name[PATH_MAX]; /* in the namespace; "": in none */
	char mds[1024];
	bool servers; /* worked on at the servers */
	bool forced;  /* leat:/PATH: nowhere else */
	bool exists;  /* of those that are not forced: something is there */
	bool top;     /* the root of a file system */
};

struct tree_tool {
	struct tool *t;
	struct leat_fs *fs; /* NULL: nothing is at the servers */
	struct progress progress;
	const struct tree_path *at; /* for messages: the path that is worked on */
	bool ignore_missing;
	bool by_servers; /* some of it */
	json_t *failed;
	uint64_t n_failed;
	struct leat_tree_options o;
	struct leat_tree_result sum; /* of all paths */
};

/* Whether the path's last component, slashes behind it aside, is that. */
bool tree_ends_in(const char *text, const char *name);
/* 0 or an exit status after a message; may_miss: without one for EXIT_MISSING. */
int tree_parse(const struct tool *t, const char *text, bool may_miss, struct tree_path *ret_path);
/* Connects if any of the paths is in a namespace, and decides for each where it is worked on. Those
 * from number `changed` on will be changed. */
int tree_connect(struct tree_tool *tt, struct tree_path *paths, int n, int changed);
/* Do the servers that it is connected to have it under its name, wherever it is worked on? Only of
 * a path in a namespace. */
bool tree_servers_have(const struct tree_tool *tt, const struct tree_path *p);
void tree_begin(struct tree_tool *tt, struct tool *t, const char *what);
/* For the next call of the library: where it works, and which path messages name. */
struct leat_fs *tree_at(struct tree_tool *tt, const struct tree_path *p);
const char *tree_name(const struct tree_path *p);
/* Tells a failure and counts it. */
void tree_fail(struct tree_tool *tt, const char *what, const char *path, const char *why);
/* path, as the library calls it, in the words that the user gave; malloc'd, may be NULL. */
char *tree_user_path(const struct tree_path *p, const char *path);
/* Adds a call's result up. False: it ended as a whole, no further one shall be made. */
bool tree_took(struct tree_tool *tt, int rc, const struct leat_tree_result *r);
/* Ends the connection; the exit status. code: of a failure that has been told already. Else, with
 * --json, prints what was done; more (taken over) is added. */
int tree_end(struct tree_tool *tt, int code, json_t *more);

#endif
