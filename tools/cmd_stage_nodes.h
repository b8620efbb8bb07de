/* SPDX-License-Identifier: Apache-2.0 */
/* leat stage in --nodes, and the requests to agents of other nodes that belong to it. */
#ifndef LEAT_TOOLS_CMD_STAGE_NODES_H
#define LEAT_TOOLS_CMD_STAGE_NODES_H

#include "tools/stage_args.h"

/* Has the agents of --nodes or --agent make copies. what: the source, as the library on the agents'
 * machines names it. Returns an exit status after a message or a report. */
int stage_cmd_nodes(struct tool *t, struct stage_args *a, const char *what);
/* Has the agents of --nodes release the lease of --lease on their copies of what; "": on all of
 * them. Returns an exit status, after a message unless it is EXIT_OK. */
int stage_nodes_release(struct tool *t, struct stage_args *a, const char *what);
/* Counts the nodes that have a READY copy of what, and those that are making one. Returns an exit
 * status. */
int stage_where_count(struct tool *t, const char *what, uint32_t *ret_ready, uint32_t *ret_busy);

#endif
