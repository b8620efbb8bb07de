/*
 * Requests that only the end of their program may cut short. The kernel tells of any signal; but
 * reading, writing and syncing files are not interrupted by those that a program handles (a data
 * base that gets EINTR from fsync believes its disk broken), so such a request goes on, and is
 * interrupted when its thread has been killed.
 *
 * Owned by the mount's loop: a list of requests that were signalled, and one fiber that looks at
 * their threads while there are any.
 */
#ifndef LEAT_FUSE_KILLED_H
#define LEAT_FUSE_KILLED_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/base/list.h"
#include "common/rt/fiber.h"

struct killable {
	struct list link; /* linked once it was signalled */
	struct fiber *fiber;
	pid_t thread;
};

struct killed {
	struct list signalled;
	bool watching;
};

void killed_init(struct killed *k);
/* r serves a request of that thread (0: one that we cannot see, which any signal ends). */
void killable_init(struct killable *r, pid_t thread);
/* The kernel has sent word of a signal. */
void killed_signal(struct killed *k, struct killable *r);
/* It has been served. */
void killable_fini(struct killable *r);

/* Has the kernel a SIGKILL for that thread, or is it gone? text: of /proc/THREAD/status. */
bool killed_by_status(const char *text);

#endif
