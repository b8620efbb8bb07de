/* SPDX-License-Identifier: Apache-2.0 */
/* leat stage: the options of all its verbs. One struct is filled in for a command and lives as
 * long as the process. */
#ifndef LEAT_TOOLS_STAGE_ARGS_H
#define LEAT_TOOLS_STAGE_ARGS_H

#include <leat/leat_stage.h>

#include "tools/tool.h"

#define STAGE_DIRS_MAX 8

enum stage_progress {
	PROGRESS_AUTO,
	PROGRESS_PLAIN,
	PROGRESS_JSON,
	PROGRESS_NONE
};
enum stage_wait {
	WAIT_READY,
	WAIT_WINDOW,
	WAIT_NONE
};

/* Each bool is one option, independent of the others. */
struct stage_args {
	const char *to;                   /* the first directory */
	const char *more[STAGE_DIRS_MAX]; /* the others, NULL after the last */
	char dirs[4096];                  /* of $LEAT_STAGE_DIR */
	uint32_t n_more;
	const char *what, *dest;
	const char *catalog, *order, *lease;
	const char *nodes, *agent, *together, *listen;
	uint32_t placement, copies; /* numbers of the protocol */
	bool share;
	uint32_t expect;       /* so many unnamed nodes take part */
	char id[LEAT_ID_SIZE]; /* of the data set that the nodes have copied */
	uint64_t capacity, timeout_s, max_rate, window, ttl_s, free;
	unsigned skip; /* enum leat_stage_skip */
	bool readback, evict, unpack, replace, dry_run, follow, all, detach, scheduler;
	enum stage_wait wait;
	enum stage_progress progress;
};

struct stage_verb {
	const char *name;
	int (*run)(struct tool *t, struct stage_args *a); /* returns an exit status */
	const char *options; /* its options: " to catalog " */
	int n_min, n_max;    /* arguments */
	bool need_to;        /* --to or --nodes must be given */
};
/* True if the verb has this option (without --). */
bool stage_verb_knows(const struct stage_verb *v, const char *option);
/* Reads the command line of a verb (argv[0]: its name) into *a; its texts then point into argv.
 * Returns EXIT_OK, or an exit status after a message. */
int stage_args_parse(struct tool *t, const struct stage_verb *v, int argc, char **argv,
		     struct stage_args *a);
/* Returns the exit status of the command for that of its work: with --scheduler always EXIT_OK. */
int stage_exit(const struct stage_args *a, int code);

#endif
