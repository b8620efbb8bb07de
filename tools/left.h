/* SPDX-License-Identifier: Apache-2.0 */
/* The files that `leat stage in` (here and by agents), `stage out` and `dataset create` do not
 * copy: this module prints them, and derives the exit status. */
#ifndef LEAT_TOOLS_LEFT_H
#define LEAT_TOOLS_LEFT_H

#include <leat/leat_stage.h>

#include "tools/tool.h"

/* Parses --skip, "links", "special" or both with a comma, and adds bits of enum leat_stage_skip to
 * *ret_skip. Returns EXIT_OK, or EXIT_USAGE after a message. */
int left_parse_skip(const struct tool *t, const char *text, unsigned *ret_skip);
/* Returns EXIT_PARTIAL if files were left out that `skip` does not name, else EXIT_OK. */
int left_status(const struct leat_stage_result *r, unsigned skip);
/* Prints a line for each kind of files that were left out, and the next step. */
void left_print(const struct leat_stage_result *r, unsigned skip);
/* Sets o["not_copied"] = [{"why":..,"count":N,"names":[{"name":..}]}], o["skipped"]
 * and o["hard_links"]. */
void left_to_json(json_t *o, const struct leat_stage_result *r);

/* Takes the report of an agent into *r if it lists more than *r: all agents of a job walk the same
 * tree. The report may be malformed; wrong entries are ignored. */
void left_from_json(const json_t *o, struct leat_stage_result *r);

#endif
