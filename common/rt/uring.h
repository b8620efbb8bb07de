/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The io_uring of a real loop, for the files of this folder that make fibers wait for the kernel
 * (env_real.c, net.c), which alone include this. Called on the loop's own thread, in a fiber.
 *
 * 	struct uring_op op;
 * 	struct io_uring_sqe *sqe = uring_begin(&op);
 * 	io_uring_prep_read(sqe, ...);
 * 	res = uring_end(&op, sqe);
 */
#ifndef LEAT_COMMON_RT_URING_H
#define LEAT_COMMON_RT_URING_H

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/rt/loop.h"

struct uring_op {
	struct fiber *fiber;
	int res;
	bool done;
};

struct loop_options;

/* Creates a loop over an io_uring. */
int uring_loop_create(struct env *env, const struct loop_options *opts, struct loop **ret_loop)
	CHECK_RESULT;

/* Returns a submission queue entry, to be prepared (io_uring_prep_*) before the fiber yields. */
struct io_uring_sqe *uring_begin(struct uring_op *op);
/* Waits until the operation has ended, without deadline or interrupt. Returns a count or a negative
 * status. Yields. */
int uring_end(struct uring_op *op, struct io_uring_sqe *sqe) CHECK_RESULT;
/* Like uring_end, but cancels the operation at the deadline or an interrupt: -LE_TIMEDOUT or
 * -LE_INTR, or its result if it ended first (an interrupt stays pending then). In each case the
 * kernel no longer uses the operation and its buffers on return. */
int uring_end_until(struct uring_op *op, struct io_uring_sqe *sqe, uint64_t deadline_us)
	CHECK_RESULT;

#endif
