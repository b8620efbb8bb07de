/*
 * Requests that only the end of their program may cut short. The kernel tells of any signal; but
 * local files are not interrupted by those that a program handles (a data base that gets EINTR from
 * fsync believes its disk broken), so such a request goes on until its thread has been killed.
 * What reads or syncs an open file is interrupted then, since nobody closes it before. Others are
 * withdrawn: when the program is gone nothing shall be made or removed in its name any more. Where
 * that takes longer than a moment (no server answers) they are answered, so that the program can
 * go, and go on by themselves, until it is known what has become of them.
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
	struct list link; /* linked once it was signalled, or answered */
	struct fiber *fiber;
	pid_t thread;
	const struct killed_ops *ops; /* NULL: it is interrupted */
	uint64_t answer_at_us;        /* it has been withdrawn; 0: not yet */
};

struct killed_ops {
	void (*withdraw)(struct killable *r);
	void (*answer)(struct killable *r);
};

struct killed {
	struct list signalled, answered;
	bool watching;
};

void killed_init(struct killed *k);
/* The running fiber serves a request of that thread (0: one that we cannot see, which any signal
 * ends). */
void killable_init(struct killable *r, pid_t thread, const struct killed_ops *ops);
/* The kernel has sent word of a signal. */
void killed_signal(struct killed *k, struct killable *r);
/* It has been served. */
void killable_fini(struct killable *r);
/* What the running fiber answers the kernel has been answered. */
bool killed_is_answered(const struct killed *k);

/* Has the kernel a SIGKILL for that thread, or is it gone? text: of /proc/THREAD/status. */
bool killed_by_status(const char *text);

#endif
