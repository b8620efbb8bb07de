/*
 * The supervisor of a mount: a process of one thread that holds /dev/fuse and the mount's memory
 * (kept.h), and starts the daemon; when that is killed or replaced, the next one. It
 * reads and writes nothing of either. SIGHUP replaces the daemon by what is installed now; SIGTERM
 * and SIGINT go to the daemon, which unmounts.
 */
#ifndef LEAT_FUSE_SUPERVISOR_H
#define LEAT_FUSE_SUPERVISOR_H

#include "fuse/options.h"

struct kept;

#define DAEMON_REFUSED          74 /* exit status: it cannot go on where another one was */
#define DAEMON_SIGNAL_HAND_OVER SIGUSR1

/* Until the mount has ended: an exit status. argv: the command line, NULL at the end. ready_fd goes
 * to the first daemon, -1: none. */
int supervise(const struct mount_options *o, char **argv, int ready_fd);

/* What a daemon gets from its supervisor. */
struct supervised {
	int device_fd, ready_fd; /* ready_fd -1: nobody waits */
	struct kept *kept;       /* NULL: it is of another version */
	char mountpoint[4096];
};
/* True: this process is a daemon of a supervisor. */
bool supervised_daemon(struct supervised *ret_s);

#endif
