/* What was left out of a tree, by `leat stage in` here and by agents, `stage out` and `dataset
 * create`: told, and in the exit status. */
#ifndef LEAT_TOOLS_LEFT_H
#define LEAT_TOOLS_LEFT_H

#include <leat/leat_stage.h>

#include "tools/tool.h"

/* "links", "special" or both with a comma: into bits of enum leat_stage_skip. 0, or an exit status
 * after a message. */
int left_parse_skip(const struct tool *t, const char *text, unsigned *ret_skip);
/* EXIT_PARTIAL if anything was left out that was not to be, else EXIT_OK. */
int left_status(const struct leat_stage_result *r, unsigned skip);
/* For people, lines on stdout, with what to do about it; nothing where nothing was left out. */
void left_print(const struct leat_stage_result *r, unsigned skip);
/* For programs: o["not_copied"] = [{"why":..,"count":N,"names":[{"name":..}]}], o["skipped"]
 * and o["hard_links"]. */
void left_to_json(json_t *o, const struct leat_stage_result *r);

/* What another machine's agent has told of its copy, which is not believed to be well formed, if it
 * is more than *r has already: all agents of a job walk the same tree. */
void left_from_json(const json_t *o, struct leat_stage_result *r);

#endif
