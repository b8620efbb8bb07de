/* Connections as `leat status` shows them; common/rpc/net_report.h makes what is shown. */
#ifndef LEAT_TOOLS_NET_VIEW_H
#define LEAT_TOOLS_NET_VIEW_H

#include <jansson.h>

/* All connections of the mount at path, in one report; NULL: the mount is older than this program,
 * or does not answer (errno). */
json_t *net_of_mount(const char *path);
/* One line: which transports, and why not verbs. transport: the member of a report. */
void net_print_transport(const json_t *transport);
/* A table; whose: "mount /mnt/leat". net may be NULL. */
void net_print(const char *whose, const json_t *net);

#endif
