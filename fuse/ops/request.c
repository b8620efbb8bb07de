/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/ops/request.h"

static void interrupted(fuse_req_t req, void *arg)
{
	(void)req;
	fiber_interrupt(arg);
}

void req_interruptible(fuse_req_t req, bool may)
{
	fuse_req_interrupt_func(req, may ? interrupted : NULL, may ? fiber_self() : NULL);
	if (!may)
		(void)fiber_interrupt_clear();
}

static void signalled(fuse_req_t req, void *arg)
{
	interrupt_signal(&req_fs(req)->interrupts, arg);
}

void req_interruptible_begin(fuse_req_t req, struct interruptible *r)
{
	interruptible_init(r, fuse_req_ctx(req)->pid, NULL);
	fuse_req_interrupt_func(req, signalled, r);
}

void req_interruptible_end(fuse_req_t req, struct interruptible *r)
{
	fuse_req_interrupt_func(req, NULL, NULL);
	interruptible_fini(r);
}
