/* SPDX-License-Identifier: Apache-2.0 */
/* The connections in `leat status`. common/rpc/net_report.h makes the report. */
#ifndef LEAT_TOOLS_NET_VIEW_H
#define LEAT_TOOLS_NET_VIEW_H

#include <jansson.h>

/* Returns a report with all connections of the mount at path, which the caller releases; NULL: the
 * mount is older than this program, or does not answer (errno). */
json_t *net_of_mount(const char *path);
/* Prints a line with the transports in use, or the reason why verbs is not used. transport: member
 * of a report. */
void net_print_transport(const json_t *transport);
/* Prints a table of the connections. The first argument is its title, "mount /mnt/leat". net may be
 * NULL. */
void net_print(const char *whose, const json_t *net);

#endif
