/* What the files of `leat stage` share: the options of all verbs, and how copies are shown. */
#ifndef LEAT_TOOLS_STAGE_ARGS_H
#define LEAT_TOOLS_STAGE_ARGS_H

#include "tools/source.h"

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

struct stage_args {
	const char *to;                   /* the first directory */
	const char *more[STAGE_DIRS_MAX]; /* the others, NULL behind the last */
	char dirs[4096];                  /* of $LEAT_STAGE_DIR */
	uint32_t n_more;
	const char *what, *dest;
	const char *catalog, *order, *lease;
	const char *nodes, *agent, *together, *listen;
	uint32_t placement, copies; /* as on the wire */
	bool share;
	uint32_t expect;       /* so many nodes take part, whose names are not known */
	char id[LEAT_ID_SIZE]; /* what the nodes have made */
	uint64_t capacity, timeout_s, max_rate, window, ttl_s, free;
	unsigned skip; /* enum leat_stage_skip */
	bool readback, evict, unpack, replace, dry_run, follow, all, detach, scheduler;
	enum stage_wait wait;
	enum stage_progress progress;
};

/* The options of a verb. n_min..n_max arguments; need_to: a directory is needed, or nodes. 0,
 * or an exit status after a message. */
struct stage_verb {
	const char *name;
	int (*run)(struct tool *t, struct stage_args *a);
	const char *options; /* " to catalog ", those it knows */
	int n_min, n_max;
	bool need_to;
};
int stage_args_parse(struct tool *t, const struct stage_verb *v, int argc, char **argv,
		     struct stage_args *a);
int stage_exit(const struct stage_args *a, int code);

/* ---- cmd_stage_in.c ---- */
int stage_cmd_in(struct tool *t, struct stage_args *a);
int stage_cmd_out(struct tool *t, struct stage_args *a);
int stage_cmd_plan(struct tool *t, struct stage_args *a);
int stage_cmd_verify(struct tool *t, struct stage_args *a);
/* ---- cmd_stage_nodes.c ---- */
/* what: as the library of the agents' machines calls it. */
int stage_cmd_nodes(struct tool *t, struct stage_args *a, const char *what);
/* what: "": anything. An exit status, not 0 after a message. */
int stage_nodes_release(struct tool *t, struct stage_args *a, const char *what);
int stage_cmd_where(struct tool *t, struct stage_args *a);
/* How many nodes have it READY, and how many are making it. An exit status. */
int stage_where_count(struct tool *t, const char *what, uint32_t *ret_ready, uint32_t *ret_busy);
/* ---- cmd_stage_together.c ---- */
int stage_cmd_together(struct tool *t, struct stage_args *a, const struct source *source);
/* ---- cmd_stage_copies.c ---- */
int stage_cmd_wait(struct tool *t, struct stage_args *a);
int stage_cmd_status(struct tool *t, struct stage_args *a);
int stage_cmd_ls(struct tool *t, struct stage_args *a);
int stage_cmd_path(struct tool *t, struct stage_args *a);
int stage_cmd_evict(struct tool *t, struct stage_args *a);
int stage_cmd_cancel(struct tool *t, struct stage_args *a);
int stage_cmd_pin(struct tool *t, struct stage_args *a);
int stage_cmd_unpin(struct tool *t, struct stage_args *a);
int stage_cmd_lease(struct tool *t, struct stage_args *a);
int stage_cmd_release(struct tool *t, struct stage_args *a);
int stage_cmd_gc(struct tool *t, struct stage_args *a);
int stage_cmd_events(struct tool *t, struct stage_args *a);

#endif
