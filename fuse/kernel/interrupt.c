/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/kernel/interrupt.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/rt/loop.h"

#define POLL_US 100000u
/* How long a killed program waits for its cancelled request before the kernel gets EINTR. */
#define WAIT_US 500000u

void interrupt_init(struct interrupts *k)
{
	list_init(&k->signalled);
	list_init(&k->answered);
	k->watching = false;
}

void interruptible_init(struct interruptible *r, pid_t thread, const struct interrupt_ops *ops)
{
	r->magic = INTERRUPTIBLE_MAGIC;
	list_init(&r->link);
	r->fiber = fiber_self();
	r->thread = thread;
	r->ops = ops;
	r->answer_at_us = 0;
}

void interruptible_fini(struct interruptible *r)
{
	ASSERT(r->magic == INTERRUPTIBLE_MAGIC && r->fiber == fiber_self());
	list_remove(&r->link);
	r->magic = 0;
	(void)fiber_interrupt_clear();
}

bool interrupt_already_replied(const struct interrupts *k)
{
	list_for_each (n, &k->answered)
		if (list_entry(n, struct interruptible, link)->fiber == fiber_self())
			return true;
	return false;
}

bool interrupt_by_status(const char *text)
{
	const char *at = strstr(text, "\nSigPnd:");

	/* A fatal signal that the program does not handle reaches each thread as SIGKILL. */
	return at == NULL || (strtoull(at + 8, NULL, 16) >> (SIGKILL - 1) & 1) != 0;
}

static bool is_killed(pid_t thread)
{
	char path[32], text[4096];
	ssize_t n;
	int fd;

	if (thread <= 0)
		return true;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)thread);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return true;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	return interrupt_by_status(text);
}

/* Checks a request that was interrupted, and ends it if the caller was killed. */
static void look_at(struct interruptible *r)
{
	if (!is_killed(r->thread))
		return;
	if (r->ops == NULL) {
		list_remove(&r->link);
		fiber_interrupt_all(r->fiber);
		return;
	}
	r->answer_at_us = loop_now_us() + WAIT_US;
	r->ops->cancel(r);
}

static void look(struct interrupts *k)
{
	list_for_each_safe (n, &k->signalled) {
		struct interruptible *r = list_entry(n, struct interruptible, link);

		if (r->answer_at_us == 0)
			look_at(r);
		else if (loop_now_us() >= r->answer_at_us) {
			list_remove(&r->link);
			r->ops->reply(r);
			list_push(&k->answered, &r->link);
		}
	}
}

static void watch(void *arg)
{
	struct interrupts *k = arg;

	while (!list_empty(&k->signalled)) {
		look(k);
		if (fiber_sleep_us(POLL_US) < 0)
			break;
	}
	k->watching = false;
}

void interrupt_signal(struct interrupts *k, struct interruptible *r)
{
	list_remove(&r->link);
	list_push(&k->signalled, &r->link);
	look(k);
	if (list_empty(&k->signalled) || k->watching)
		return;
	/* Without the fiber, the next signal of any request checks this one again. */
	k->watching = fiber_spawn("killed", watch, k) == 0;
}
