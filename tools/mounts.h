/* SPDX-License-Identifier: Apache-2.0 */
/* The Leat mounts of this machine, from /proc/self/mountinfo, and their virtual attributes. */
#ifndef LEAT_TOOLS_MOUNTS_H
#define LEAT_TOOLS_MOUNTS_H

#include "tools/tool.h"

struct leat_mount {
	char source[1024];
	char mountpoint[4096];
};
/* Finds the mount that path is on. Returns false if that is no Leat mount; ret_mount is untouched
 * then. */
bool mount_of_path(const char *path, struct leat_mount *ret_mount);
/* Finds the Leat mount at mountpoint, a canonical path. Works when its daemon is dead. Returns
 * false if there is none. */
bool mount_find(const char *mountpoint, struct leat_mount *ret_mount);
/* Where a canonical path is within the namespace that is mounted there. */
struct leat_inside {
	struct leat_mount mount;
	char path[4096];
	bool others_below; /* other file systems are mounted below it */
};
/* Returns false if the path is on no Leat mount. */
bool mount_inside(const char *path, struct leat_inside *ret_in);
/* Gets the servers' addresses of a mount that was made by address, as in leat.conf; else "". */
void mount_addresses(const struct leat_mount *m, char *buf, size_t size);
/* Replaces the servers of leat.conf in t->cluster by those of the mount. Call it after
 * tool_load_conf. */
void mount_take_cluster(const struct leat_mount *m, struct tool *t);
/* Returns the value of a leat.* attribute, which the caller frees; or NULL, and sets errno. */
char *virtual_attribute(const char *path, const char *name);
/* Returns the JSON text of attribute leat.status of the mount at path, which the caller frees; at
 * the root of the mount it needs no metadata server. Returns NULL and sets errno on failure. */
char *mount_status(const char *path);

#endif
