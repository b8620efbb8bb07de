/* SPDX-License-Identifier: Apache-2.0 */
/* leat mount --upgrade: replaces the daemon of a mount by the installed program. */
#ifndef LEAT_TOOLS_MOUNT_UPGRADE_H
#define LEAT_TOOLS_MOUNT_UPGRADE_H

#include "tools/tool.h"

/* Signals the supervisor of the mount at path and waits up to 60 s for the new daemon. Returns an
 * exit status, after a message unless it is EXIT_OK. */
int mount_upgrade(struct tool *t, const char *path);

#endif
