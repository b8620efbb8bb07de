/*
 * Where a data set lies, as people write it:
 *   NAME or NAME@VERSION   an alias, looked up in the catalogue
 *   leat:/PATH             a directory of the namespace, mounted here or not; leat:NAME@VERSION
 *                          is an alias, whatever lies here under that name
 *   PATH                   on a Leat mount: the same directory of the namespace; else a local one
 */
#ifndef LEAT_TOOLS_SOURCE_H
#define LEAT_TOOLS_SOURCE_H

#include <limits.h>

#include <leat/leat.h>
#include <leat/leat_stage.h>

#include "tools/tool.h"

struct source {
	char name[PATH_MAX]; /* as the library wants it */
	bool local;          /* on this machine's own file systems */
	char mds[1024]; /* of the mount it lies on, where that was mounted by address; else "" */
};

/* 0, or an exit status after a message. */
int source_parse(const struct tool *t, const char *text, struct source *ret_source);
/* The connection that it needs; *ret_fs stays NULL for a local one. 0, or an exit status after a
 * message. source NULL: as the configuration says. */
int source_connect(const struct tool *t, const struct source *source, struct leat_fs **ret_fs);

/* Progress of the library's operations: a progress line, and cancelling by Ctrl-C. what is a
 * literal. progress_finish at the end. */
void stage_options_init(struct leat_stage_options *o, struct progress *p, const char *what);
/* What a failed operation has to say. Returns its exit status. */
int stage_failed(const struct tool *t, int rc, const struct leat_stage_result *r);
/* The exit status for a plain negative errno of the library, after a message about what. */
int stage_error(const struct tool *t, int rc, const char *what);

#endif
