/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The supervisor of a mount: a process of one thread that holds /dev/fuse and the mount's restart
 * state (restart_state.h). It starts the daemon, and starts the next one when the daemon is killed
 * or replaced. It serves no requests itself. SIGHUP replaces the daemon by the program that is
 * installed now; the supervisor passes SIGTERM and SIGINT on to the daemon, which unmounts.
 */
#ifndef LEAT_FUSE_RESTART_SUPERVISOR_H
#define LEAT_FUSE_RESTART_SUPERVISOR_H

#include "fuse/options.h"

struct restart;

#define DAEMON_REFUSED          74 /* exit status: the daemon cannot take over */
#define DAEMON_SIGNAL_HAND_OVER SIGUSR1

/* Runs until the mount has ended, and returns an exit status. argv: the command line, with a NULL
 * at the end. ready_fd: a pipe on which the first daemon reports that it is ready; -1: none. */
int supervise(const struct mount_options *o, char **argv, int ready_fd);

/* What a daemon inherits from its supervisor. */
struct supervised {
	int device_fd, ready_fd; /* ready_fd -1: no process waits */
	struct restart *restart;       /* NULL: the state is of another version */
	char mountpoint[4096];
};
/* Returns true if this process is the daemon of a supervisor, and fills in *ret_s. */
bool supervised_daemon(struct supervised *ret_s);

/* Sends the log to the system log, unless a log file was named. */
void mount_log_alone(const struct mount_options *o);
/* Replaces standard input and output by /dev/null, and standard error unless it is the log file;
 * then redirects the log like mount_log_alone. */
void mount_leave_terminal(const struct mount_options *o);

#endif
