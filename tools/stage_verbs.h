/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leat stage: the verbs, one function each, for the table of cmd_stage.c. Each takes the options
 * that stage_args_parse has read, prints its result, and returns an exit status.
 */
#ifndef LEAT_TOOLS_STAGE_VERBS_H
#define LEAT_TOOLS_STAGE_VERBS_H

#include "tools/stage_args.h"

int stage_cmd_in(struct tool *t, struct stage_args *a);
int stage_cmd_out(struct tool *t, struct stage_args *a);
int stage_cmd_plan(struct tool *t, struct stage_args *a);
int stage_cmd_verify(struct tool *t, struct stage_args *a);
int stage_cmd_where(struct tool *t, struct stage_args *a);
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
