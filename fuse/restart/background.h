/* SPDX-License-Identifier: Apache-2.0 */
/* Leaves the terminal after the mount is ready. */
#ifndef LEAT_FUSE_RESTART_BACKGROUND_H
#define LEAT_FUSE_RESTART_BACKGROUND_H

#include "fuse/options.h"

/* Sends the log to the system log, unless a log file was named. */
void mount_log_alone(const struct mount_options *o);
/* Replaces standard input and output by /dev/null, and standard error unless it is the log file;
 * then redirects the log like mount_log_alone. */
void mount_leave_terminal(const struct mount_options *o);

#endif
