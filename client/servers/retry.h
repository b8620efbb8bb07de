/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When and how a request is repeated. The class of the status decides (common/base/status.h):
 * never; at the same server after a back-off; after a reconnect, which rpc does; for chains after a
 * refresh of the cluster map (chain_call.h), for the MDS after the back-off. All attempts end by
 * the deadline: params.request_timeout_ms from the start, or the fiber's deadline if that is
 * earlier. Transport errors that remain then become -LE_IO.
 *
 * Owned by the client's loop. Only retry_next yields.
 */
#ifndef LEAT_CLIENT_SERVERS_RETRY_H
#define LEAT_CLIENT_SERVERS_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

struct client;

/* The state of one operation's attempts. */
struct retry {
	struct client *c;
	uint64_t deadline_us;
	uint64_t backoff_us, attempt_us;
	bool unknown; /* a previous attempt may have been executed */
};

/* Starts an operation: its deadline and the first back-off. */
void retry_begin(struct retry *r, struct client *c);
/* Returns the deadline of the next attempt, and doubles the time limit of the attempt after it. One
 * attempt gets only a part of the operation's time, so that a lost frame does not use up all of
 * it. */
uint64_t retry_attempt_deadline(struct retry *r);
/* Called after a failed attempt. Returns 0 if another attempt may be made at retry_wait_us; else
 * the status to return to the caller. Does not yield. */
int retry_allowed(struct retry *r, int status) CHECK_RESULT;
/* Returns when the next attempt starts (back-off with jitter), and doubles the back-off. */
uint64_t retry_wait_us(struct retry *r);
/* Returns true if a request with this status may be repeated; other statuses are final. */
bool retry_is_worth(const struct retry *r, int status);
/* Like retry_allowed, and waits until the next attempt is due. Yields. */
int retry_next(struct retry *r, int status) CHECK_RESULT;

#endif
