/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that end early only when their program is killed.
 *
 * The kernel reports any signal of the caller. Local file systems do not interrupt a request for a
 * signal that the program handles (a database that gets EINTR from fsync assumes that its disk is
 * broken), so a request continues until its thread has a SIGKILL pending or has ended. Then there
 * are two kinds:
 *
 *   ops NULL   The fiber is interrupted. For requests that use an open file (read, fsync): they
 *              must end before the file is closed.
 *   ops given  The request is cancelled at the servers: what has not been changed yet is not
 *              changed. If it has not ended after WAIT_US (no server answers), the kernel gets its
 *              reply, so that the program can exit, and the fiber continues until it has the
 *              outcome.
 *
 * Owned by the mount's loop: a list of requests that were interrupted, and one fiber that polls the
 * callers' threads while there are any.
 */
#ifndef LEAT_FUSE_KERNEL_INTERRUPT_H
#define LEAT_FUSE_KERNEL_INTERRUPT_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/base/list.h"
#include "common/rt/fiber.h"

#define INTERRUPTIBLE_MAGIC 0x4c494e54u
struct interruptible {
	uint32_t magic;
	struct list link; /* of signalled or answered, after the caller got a signal */
	struct fiber *fiber;
	pid_t thread;
	const struct interrupt_ops *ops; /* NULL: the fiber is interrupted */
	uint64_t answer_at_us;        /* when to reply, once cancelled; 0: not cancelled */
};

struct interrupt_ops {
	/* Cancels the request at the servers. Must not yield. */
	void (*cancel)(struct interruptible *r);
	/* Sends the kernel its reply (EINTR), while the fiber continues. Must not yield. */
	void (*reply)(struct interruptible *r);
};

struct interrupts {
	struct list signalled, answered;
	bool watching;
};

void interrupt_init(struct interrupts *k);
/* Registers the request that the running fiber serves. thread: the caller; 0: one of another pid
 * namespace; the daemon cannot read its state, so any signal counts as SIGKILL. Does not yield. */
void interruptible_init(struct interruptible *r, pid_t thread, const struct interrupt_ops *ops);
/* Call when the kernel has reported a signal of the request's caller. Does not yield. */
void interrupt_signal(struct interrupts *k, struct interruptible *r);
/* Call when the request has been served: unregisters it, and discards a late interrupt. Does not
 * yield. */
void interruptible_fini(struct interruptible *r);
/* True if the kernel has its reply already (the caller was killed) and the running fiber only
 * finishes the operation. */
bool interrupt_already_replied(const struct interrupts *k);

/* True if the thread has a SIGKILL pending. text: /proc/THREAD/status; "" for a thread that has
 * ended, which counts as killed. */
bool interrupt_by_status(const char *text);

#endif
