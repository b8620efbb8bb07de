/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The source of a data set, as users write it:
 *   NAME or NAME@VERSION   an alias, looked up in the catalogue
 *   leat:/PATH             a directory of the namespace, mounted here or not; leat:NAME@VERSION
 *                          is an alias, even if a local file has that name
 *   PATH                   on a Leat mount: the same directory of the namespace; else a local one
 */
#ifndef LEAT_TOOLS_SOURCE_H
#define LEAT_TOOLS_SOURCE_H

#include <limits.h>

#include <leat/leat.h>
#include <leat/leat_stage.h>

#include "tools/progress.h"
#include "tools/tool.h"

struct source {
	char name[PATH_MAX]; /* in the form of the library */
	bool local;          /* on a local file system */
	char mds[1024]; /* of the mount it is on, if that was mounted by address; else "" */
};

/* Parses a source. Returns EXIT_OK, or an exit status after a message. */
int source_parse(const struct tool *t, const char *text, struct source *ret_source);
/* Connects to the cluster of the source; NULL: to that of the configuration. *ret_fs is
 * untouched for a local source. Returns EXIT_OK, or an exit status after a message. */
int source_connect(const struct tool *t, const struct source *source, struct leat_fs **ret_fs);

/* Initializes the options of a staging operation: a progress line that begins with `what` (a
 * literal), and cancelling by Ctrl-C. The caller ends the line with progress_finish. */
void stage_options_init(struct leat_stage_options *o, struct progress *p, const char *what);
/* Prints the failure of a staging operation, by rc or its result, with the next step. Returns
 * the exit status. */
int stage_failed(const struct tool *t, int rc, const struct leat_stage_result *r);
/* Prints the failure of a call of leat_stage.h about the copy or data set `what`. Returns the exit
 * status. */
int stage_error(const struct tool *t, int rc, const char *what);

#endif
