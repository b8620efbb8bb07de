/* SPDX-License-Identifier: Apache-2.0 */
/* leat stage in --together: the processes of one job make copies without agents. */
#ifndef LEAT_TOOLS_CMD_STAGE_TOGETHER_H
#define LEAT_TOOLS_CMD_STAGE_TOGETHER_H

#include "tools/source.h"
#include "tools/stage_args.h"

/* Makes this node's copy of the source, together with the other processes of the job. Returns an
 * exit status after a message or a report. */
int stage_cmd_together(struct tool *t, struct stage_args *a, const struct source *source);

#endif
