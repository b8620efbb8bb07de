/* SPDX-License-Identifier: Apache-2.0 */
#include "client/servers/cancel.h"

#include <stddef.h>

#include "client/ll.h"
#include "client/servers/restart_log.h"
#include "client/servers/retry.h"
#include "common/base/planted_bug.h"
#include "common/proto/mds_proto.h"
#include "common/rpc/rpc.h"
#include "common/rt/fiber.h"

void ll_request_cancel(struct ll_request *r)
{
	r->cancelled = true;
	if (r->waiting != NULL)
		fiber_interrupt(r->waiting);
}

/* Returns true for requests that a killed caller may cancel: restart-safe ones and setattr. Other
 * requests complete a change that has begun, or report opens and renew capabilities for it. */
static bool may_be_cancelled(uint16_t op, const void *req)
{
	return op == OP_mds_setattr || op_must_run_once(op, req);
}

struct ll_request *cancel_begin(uint16_t op, const void *req)
{
	struct ll_request *asker = may_be_cancelled(op, req) ? fiber_local() : NULL;

	if (asker == NULL || asker->changed)
		return NULL;
	asker->waiting = fiber_self();
	return asker;
}

void cancel_end(struct ll_request *asker, int rc)
{
	if (asker == NULL)
		return;
	asker->waiting = NULL;
	asker->changed = rc >= 0;
	if (asker->cancelled)
		(void)fiber_interrupt_clear();
}

void cancel_check(const struct ll_request *asker, struct rpc_call *call)
{
	if (asker == NULL || !asker->cancelled || call->cancelled)
		return;
	call->cancelled = true;
	(void)fiber_interrupt_clear();
}

bool cancel_just_requested(const struct ll_request *asker, struct retry *r,
			   const struct rpc_call *call, int rc)
{
	if (rc != -LE_INTR || asker == NULL || !asker->cancelled || call->cancelled ||
	    PLANTED_BUG(CLIENT_GIVE_UP))
		return false;
	r->unknown = true;
	return true;
}
