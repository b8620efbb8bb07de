/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of `leat status --memory`. */
#ifndef LEAT_TOOLS_MEMORY_VIEW_H
#define LEAT_TOOLS_MEMORY_VIEW_H

#include "tools/cluster.h"

/* Prints a table of the memory of each process: the servers in c, after a fetch of their status
 * with STATUS_MEMORY, and the mount with this status; NULL: none. */
void memory_print(const struct cluster *c, const json_t *mount);

#endif
