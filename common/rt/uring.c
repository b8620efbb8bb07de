/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real backend of a loop: one io_uring.
 *
 * Submissions collect in the queue while fibers run. wait submits them and reaps completions in one
 * io_uring_enter, or in none when there is nothing to submit and the kernel has flagged no work.
 * Completions unblock fibers and call watches.
 *
 * Where the kernel supports it, the ring belongs to one thread (SINGLE_ISSUER, DEFER_TASKRUN): it
 * is made disabled and enabled by the first wait, because loops are often made on one thread and
 * run on another. A kick from another thread writes to an eventfd, on which a read is always in
 * flight.
 */
#include "common/rt/uring.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/rt/env.h"
#include "common/rt/fiber_impl.h"
#include "common/rt/loop_impl.h"

#define NOBODY 0u /* user_data of completions without a waiter */
#define KICK 1u   /* user_data of the eventfd's read; other values are struct uring_op pointers */

/* The ring's side of a watch. It outlives its owner until the kernel no longer uses it. */
struct watch {
	struct loop_watch *owner; /* NULL: stopped */
	struct list link;         /* of uring->watches */
	int fd;
	bool armed, firing, drains;
};
#define WATCH 2u /* tags the user_data of a watch's poll, which is a struct watch pointer */

struct uring {
	struct list watches;
	struct io_uring ring;
	int kick_fd;
	uint64_t kick_count; /* buffer of the eventfd's read */
	bool kick_armed;
	bool enabled;
	bool on_valgrind;
	bool taskrun_flag; /* the kernel flags when it has work for this thread */
	bool polls_once;   /* Linux before 5.13: each poll ends with its first event */
};

static void uring_wait(struct loop *l, uint64_t until_us);
static void uring_kick(struct loop *l);
static void uring_destroy(struct loop *l, bool keep);
static int uring_watch(struct loop *l, struct loop_watch *w, int fd);
static void uring_unwatch(struct loop *l, struct loop_watch *w);

static const struct loop_backend uring_backend = {
	.wait = uring_wait,
	.kick = uring_kick,
	.destroy = uring_destroy,
	.watch = uring_watch,
	.unwatch = uring_unwatch,
};

/* ---- construction ---- */

/* A remedy for the user: the error alone would suggest a problem of file permissions. */
static const char *setup_hint(int err)
{
	switch (err) {
	case EPERM:
		return " (forbidden by sysctl kernel.io_uring_disabled or the container's seccomp"
		       " profile)";
	case ENOSYS:
		return " (needs Linux 5.11 or later, and a seccomp profile that allows it)";
	case ENOMEM:
		return " (raise the limit of locked memory: ulimit -l, LimitMEMLOCK=)";
	case EMFILE:
		return " (raise the limit of open files: ulimit -n, LimitNOFILE=)";
	default:
		return "";
	}
}

static int ring_init(struct uring *u, uint32_t entries)
{
	/* Best first; older kernels refuse unknown flags. */
	static const unsigned flags[] = {
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
		IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
		0,
	};
	size_t first = u->on_valgrind ? ARRAY_SIZE(flags) - 1 : 0; /* see sleep_in_poll */
	int rc = -EINVAL;

	for (size_t i = first; i < ARRAY_SIZE(flags) && rc == -EINVAL; i++) {
		struct io_uring_params p = {
			.flags = flags[i] | IORING_SETUP_R_DISABLED | IORING_SETUP_CQSIZE |
				 IORING_SETUP_CLAMP,
			.cq_entries = entries * 4,
		};

		rc = io_uring_queue_init_params(entries, &u->ring, &p);
		u->taskrun_flag = flags[i] & IORING_SETUP_TASKRUN_FLAG;
		if (rc == 0 && (!(p.features & IORING_FEAT_NODROP) ||
				!(p.features & IORING_FEAT_EXT_ARG))) {
			io_uring_queue_exit(&u->ring);
			rc = -ENOSYS; /* older than Linux 5.11 */
		}
	}
	if (rc < 0)
		log_error("io_uring cannot be set up: %s%s", strerror(-rc), setup_hint(-rc));
	return rc < 0 ? status_from_errno(-rc) : 0;
}

int uring_loop_create(struct env *env, const struct loop_options *opts, struct loop **ret_loop)
{
	struct uring *u = calloc(1, sizeof(*u));
	int rc = -LE_NOMEM;

	if (u == NULL)
		return -LE_NOMEM;
	list_init(&u->watches);
	u->kick_fd = eventfd(0, EFD_CLOEXEC);
	if (u->kick_fd < 0) {
		rc = status_from_errno(errno);
		goto out_free;
	}
#ifdef RT_VALGRIND
	u->on_valgrind = RUNNING_ON_VALGRIND;
#endif
	rc = ring_init(u, opts->ring_entries ? opts->ring_entries : 1024);
	if (rc < 0)
		goto out_close;
	rc = loop_create_with(env, opts, &uring_backend, u, ret_loop);
	if (rc == 0)
		return 0;
	io_uring_queue_exit(&u->ring);
out_close:
	close(u->kick_fd);
out_free:
	free(u);
	return rc;
}

static void uring_destroy(struct loop *l, bool keep)
{
	struct uring *u = l->backend_data;
	struct list *n;

	io_uring_queue_exit(&u->ring);
	while ((n = list_pop(&u->watches)) != NULL) {
		struct watch *wa = container_of(n, struct watch, link);

		if (wa->owner != NULL)
			wa->owner->internal = NULL;
		free(wa);
	}
	if (keep)
		return;
	close(u->kick_fd);
	free(u);
}

static void uring_kick(struct loop *l)
{
	struct uring *u = l->backend_data;
	uint64_t one = 1;
	int saved = errno; /* may be in a signal handler */
	ssize_t n = write(u->kick_fd, &one, sizeof(one));

	(void)n; /* fails only with the counter at its limit, which is a kick as well */
	errno = saved;
}

/* ---- submitting and reaping ---- */

static void ring_failed(const char *what, int rc)
{
	/* Interrupted, or the completion queue is full: reaping and retrying resolve it. */
	if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY && rc != -ETIME)
		PANIC("io_uring: %s: error %d", what, -rc);
}

/* Binds the ring to the calling thread. */
static void enable(struct uring *u)
{
	if (u->enabled)
		return;
	/* Not io_uring_enable_rings: some builds of liburing 2.3 declare it only. */
	ring_failed("enable", io_uring_register((unsigned)u->ring.ring_fd,
						IORING_REGISTER_ENABLE_RINGS, NULL, 0));
	u->enabled = true;
}

static struct io_uring_sqe *get_sqe(struct uring *u)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

	for (int i = 0; sqe == NULL; i++) {
		enable(u);
		/* The loop reaps later: the kernel keeps completions that do not fit into the
		 * queue. */
		ring_failed("submit", io_uring_submit(&u->ring));
		sqe = io_uring_get_sqe(&u->ring);
		if (sqe == NULL && i > 1000)
			PANIC("io_uring: the kernel takes no submissions");
	}
	return sqe;
}

static void arm_kick(struct uring *u)
{
	struct io_uring_sqe *sqe = get_sqe(u);

	io_uring_prep_read(sqe, u->kick_fd, &u->kick_count, sizeof(u->kick_count), 0);
	io_uring_sqe_set_data64(sqe, KICK);
	u->kick_armed = true;
}

/* ---- watches ---- */

static void watch_arm(struct uring *u, struct watch *wa)
{
	struct io_uring_sqe *sqe = get_sqe(u);

	if (wa->drains && !u->polls_once)
		io_uring_prep_poll_multishot(sqe, wa->fd, POLLIN);
	else /* Single-shot, so that unread data fires it again. */
		io_uring_prep_poll_add(sqe, wa->fd, POLLIN);
	io_uring_sqe_set_data64(sqe, (uint64_t)(uintptr_t)wa | WATCH);
	wa->armed = true;
}

static void watch_free(struct watch *wa)
{
	list_remove(&wa->link);
	free(wa);
}

static void watch_fired(struct uring *u, struct watch *wa, const struct io_uring_cqe *cqe)
{
	wa->armed = cqe->flags & IORING_CQE_F_MORE;
	u->polls_once |= wa->drains && cqe->res == -EINVAL;
	if (wa->owner != NULL && cqe->res >= 0) {
		wa->firing = true;
		wa->owner->fn(wa->owner);
		wa->firing = false;
	}
	if (wa->armed)
		return;
	if (wa->owner != NULL)
		watch_arm(u, wa);
	else
		watch_free(wa);
}

static int uring_watch(struct loop *l, struct loop_watch *w, int fd)
{
	struct uring *u = l->backend_data;
	struct watch *wa = calloc(1, sizeof(*wa));

	if (wa == NULL)
		return -LE_NOMEM;
	*wa = (struct watch){ .owner = w, .fd = fd, .drains = w->drains };
	list_push(&u->watches, &wa->link);
	w->internal = wa;
	watch_arm(u, wa);
	return 0;
}

static void uring_unwatch(struct loop *l, struct loop_watch *w)
{
	struct uring *u = l->backend_data;
	struct watch *wa = w->internal;

	w->internal = NULL;
	wa->owner = NULL;
	if (wa->armed) {
		struct io_uring_sqe *sqe = get_sqe(u);

		io_uring_prep_cancel64(sqe, (uint64_t)(uintptr_t)wa | WATCH, 0);
		io_uring_sqe_set_data64(sqe, NOBODY);
	} else if (!wa->firing) {
		watch_free(wa);
	}
}

static void complete(struct uring *u, const struct io_uring_cqe *cqe)
{
	uint64_t data = io_uring_cqe_get_data64(cqe);

	if (data == KICK) {
		u->kick_armed = false;
	} else if (data & WATCH) {
		watch_fired(u, (struct watch *)(uintptr_t)(data & ~(uint64_t)WATCH), cqe);
	} else if (data != NOBODY) {
		struct uring_op *op = (struct uring_op *)(uintptr_t)data;

		op->res = cqe->res;
		op->done = true;
		fiber_unblock(op->fiber);
	}
}

static unsigned reap(struct uring *u)
{
	struct io_uring_cqe *cqe;
	unsigned head, n = 0;

	io_uring_for_each_cqe(&u->ring, head, cqe) {
		complete(u, cqe);
		n++;
	}
	io_uring_cq_advance(&u->ring, n);
	return n;
}

/* True if completions wait in the kernel until the thread enters it. */
static bool kernel_has_work(const struct uring *u)
{
	unsigned flags = __atomic_load_n(u->ring.sq.kflags, __ATOMIC_RELAXED);

	if (!u->taskrun_flag)
		return flags & IORING_SQ_CQ_OVERFLOW;
	return flags & (IORING_SQ_CQ_OVERFLOW | IORING_SQ_TASKRUN);
}

#ifdef RT_VALGRIND
/* Valgrind runs one thread at a time; it expects poll to sleep, but not io_uring_enter. poll does
 * not always report a ring with deferred work, so the ring is a plain one on valgrind. */
static void sleep_in_poll(struct uring *u, uint64_t now, uint64_t until_us)
{
	struct pollfd pfd = { .fd = u->ring.ring_fd, .events = POLLIN };
	uint64_t ms = (until_us - now + 999) / 1000;

	ring_failed("submit", io_uring_submit_and_get_events(&u->ring));
	if (io_uring_cq_ready(&u->ring) == 0)
		poll(&pfd, 1, until_us == NO_DEADLINE || ms > INT_MAX ? -1 : (int)ms);
	ring_failed("wait", io_uring_get_events(&u->ring));
}
#endif

static void enter_and_sleep(struct loop *l, struct uring *u, uint64_t until_us)
{
	struct io_uring_cqe *cqe;
	struct __kernel_timespec ts;
	/* Time of the turn that has just ended, not the present: a turn reads the clock once. */
	uint64_t now = l->now_us;

#ifdef RT_VALGRIND
	if (u->on_valgrind && until_us > now) {
		sleep_in_poll(u, now, until_us);
		return;
	}
#endif
	if (until_us == NO_DEADLINE) {
		ring_failed("wait", io_uring_submit_and_wait(&u->ring, 1));
		return;
	}
	if (until_us <= now) {
		ring_failed("submit", io_uring_submit_and_get_events(&u->ring));
		return;
	}
	ts.tv_sec = (long long)((until_us - now) / 1000000);
	ts.tv_nsec = (long long)((until_us - now) % 1000000) * 1000;
	ring_failed("wait", io_uring_submit_and_wait_timeout(&u->ring, &cqe, 1, &ts, NULL));
}

static void uring_wait(struct loop *l, uint64_t until_us)
{
	struct uring *u = l->backend_data;

	enable(u);
	/* Only a sleeping loop is kicked. */
	if (until_us != 0 && !u->kick_armed)
		arm_kick(u);
	if (reap(u) > 0)
		until_us = 0;
	if (until_us != 0)
		enter_and_sleep(l, u, until_us);
	else if (io_uring_sq_ready(&u->ring) > 0 || kernel_has_work(u))
		ring_failed("submit", io_uring_submit_and_get_events(&u->ring));
	reap(u);
}

/* ---- operations ---- */

static struct uring *current_uring(void)
{
	ASSERT(loop_current != NULL && loop_current->backend == &uring_backend);
	return loop_current->backend_data;
}

struct io_uring_sqe *uring_begin(struct uring_op *op)
{
	*op = (struct uring_op){ .fiber = fiber_self() };
	ASSERT(op->fiber != NULL);
	return get_sqe(current_uring());
}

static int op_result(const struct uring_op *op)
{
	return op->res < 0 ? status_from_errno(-op->res) : op->res;
}

int uring_end(struct uring_op *op, struct io_uring_sqe *sqe)
{
	io_uring_sqe_set_data(sqe, op);
	while (!op->done)
		fiber_block_forever();
	return op_result(op);
}

static void cancel(struct uring_op *op)
{
	struct io_uring_sqe *sqe = get_sqe(current_uring());

	io_uring_prep_cancel64(sqe, (uint64_t)(uintptr_t)op, 0);
	io_uring_sqe_set_data64(sqe, NOBODY);
	while (!op->done)
		fiber_block_forever();
}

int uring_end_until(struct uring_op *op, struct io_uring_sqe *sqe, uint64_t deadline_us)
{
	int rc = 0;

	io_uring_sqe_set_data(sqe, op);
	while (rc == 0 && !op->done)
		rc = fiber_block(deadline_us, true);
	if (rc == 0)
		return op_result(op);
	if (!op->done)
		cancel(op);
	if (op->res == -ECANCELED || op->res == -EINTR)
		return rc;
	if (rc == -LE_INTR)
		fiber_interrupt(op->fiber);
	return op_result(op);
}
