/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `leat quota ls`: all quotas of the file system, from its metadata server. No mount is needed.
 */
#ifndef LEAT_TOOLS_QUOTA_LIST_H
#define LEAT_TOOLS_QUOTA_LIST_H

#include "tools/tool.h"

/* Prints the quotas that the user of this process may see. Returns an exit status, after a message
 * unless it is EXIT_OK. */
int quota_list(struct tool *t);

#endif
