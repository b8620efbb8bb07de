/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `leat cp`, `rm` and `du` share: which file system a path is in, and reports.
 *
 * The library works on a path of a Leat mount at the servers, if that is certain to be equivalent:
 * this process can read the key of the cluster, the servers have the inode that the mount shows,
 * and no other file system is mounted below. Otherwise it works through the mount, with the same
 * number of operations in flight.
 */
#ifndef LEAT_TOOLS_TREE_H
#define LEAT_TOOLS_TREE_H

#include <leat/leat.h>
#include <leat/leat_tree.h>
#include <limits.h>

#include "tools/progress.h"
#include "tools/tool.h"

struct tree_path {
	const char *text;    /* as it was given */
	/* absolute; its directory is canonical, the last component unchanged */
	char full[PATH_MAX];
	char name[PATH_MAX]; /* in the namespace; "": in none */
	char mds[1024];
	bool servers; /* worked on at the servers */
	bool forced;  /* leat:/PATH: only at the servers */
	bool exists;  /* unless forced: the path exists */
	bool top;     /* the root of a file system */
};

struct tree_tool {
	struct tool *t;
	struct leat_fs *fs; /* NULL: no path is worked on at the servers */
	struct progress progress;
	const struct tree_path *at; /* for messages: the path that is worked on */
	bool ignore_missing;
	bool by_servers; /* some path is worked on at the servers */
	json_t *failed;
	uint64_t n_failed;
	struct leat_tree_options o;
	struct leat_tree_result sum; /* of all paths */
};

/* True if the last component of the path, without trailing slashes, is name. */
bool tree_ends_in(const char *text, const char *name);
/* Parses a path of the command line. Returns EXIT_OK, or an exit status after a message;
 * may_miss: no message for EXIT_MISSING. */
int tree_parse(const struct tool *t, const char *text, bool may_miss, struct tree_path *ret_path);
/* Connects if any of the n paths is in a namespace, and decides for each path whether it is
 * worked on at the servers. The command will change the paths from number `changed` on. Returns
 * EXIT_OK, or an exit status after a message. */
int tree_connect(struct tree_tool *tt, struct tree_path *paths, int n, int changed);
/* True if the connected servers have the path's inode under its name. For a path in a namespace. */
bool tree_servers_have(const struct tree_tool *tt, const struct tree_path *p);
/* Starts the work: options, progress line, signals. what: a word before the progress. */
void tree_begin(struct tree_tool *tt, struct tool *t, const char *what);
/* Sets the path that messages of the next call of the library name, and returns the file system to
 * call it with; NULL: the local one. */
struct leat_fs *tree_at(struct tree_tool *tt, const struct tree_path *p);
/* Returns the path for the library, in the file system that tree_at returns. */
const char *tree_name(const struct tree_path *p);
/* Prints a failure and counts it. */
void tree_fail(struct tree_tool *tt, const char *what, const char *path, const char *why);
/* Returns a path of the library as the user would write it. The caller frees it; NULL: no
 * memory. */
char *tree_user_path(const struct tree_path *p, const char *path);
/* Adds the result of a call to the sum, and prints rc if the whole call failed. Returns false after
 * a signal: the caller then makes no further call. */
bool tree_took(struct tree_tool *tt, int rc, const struct leat_tree_result *r);
/* Ends the work and the connection, and returns the exit status. code: EXIT_OK, or that of an error
 * that was printed already. Without one, prints the result with --json; more (taken over, may be
 * NULL) is added to it. */
int tree_end(struct tree_tool *tt, int code, json_t *more);

#endif
