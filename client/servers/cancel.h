/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cancels the MDS request of a caller that was killed, if no server has started it. Owned by the
 * client's loop. No function yields.
 */
#ifndef LEAT_CLIENT_SERVERS_CANCEL_H
#define LEAT_CLIENT_SERVERS_CANCEL_H

#include <stdbool.h>
#include <stdint.h>

struct ll_request;
struct retry;
struct rpc_call;

/* Call it before a request is made. If `op` can be cancelled, and the running fiber serves a kernel
 * request that has changed nothing yet, registers the fiber for ll_request_cancel and returns
 * that kernel request. Otherwise returns NULL; a request that follows a completed change must run
 * to its end. The other functions take the result as `asker`. */
struct ll_request *cancel_begin(uint16_t op, const void *req);

/* Call it after the last attempt, with its result. Ends the registration, records whether something
 * was changed, and clears an interrupt that belongs to the cancellation. asker may be NULL. */
void cancel_end(struct ll_request *asker, int rc);

/* Call it before each attempt. If the caller was killed, turns the attempt into one that cancels
 * the change (call->cancelled) and clears the interrupt. asker may be NULL. */
void cancel_check(const struct ll_request *asker, struct rpc_call *call);

/* Returns true if `rc`, the result of an attempt or of a wait, is an interrupt by a cancellation
 * that was not sent yet. The caller then makes one more attempt, which carries the cancellation.
 * Sets r->unknown: the previous attempt may have been executed. */
bool cancel_just_requested(const struct ll_request *asker, struct retry *r,
			   const struct rpc_call *call, int rc);

#endif
