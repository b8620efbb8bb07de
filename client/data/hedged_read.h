/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hedged reads: if the first member does not answer in time, the same read is sent to a second one,
 * into a separate slot. The first good answer wins, and the other request is cancelled. A slot is
 * released only after its rpc_call has returned. servers/hedge.h is the policy. Owned by the
 * client's loop.
 */
#ifndef LEAT_CLIENT_DATA_HEDGED_READ_H
#define LEAT_CLIENT_DATA_HEDGED_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "common/rt/loop.h"

struct block_sums;
struct client;
struct fiber;
struct hedge_run;
struct oss_read_req;
struct replica_route;
struct rpc_call;

/* One read that may be hedged. On the stack of its fiber, between hedge_begin and hedge_end. */
struct hedge {
	struct timer timer;
	struct client *c;
	struct fiber *fiber;
	const struct oss_read_req *req; /* request to the first member */
	const struct rpc_call *call;    /* call to the first member */
	const struct replica_route *replica_route;      /* the first member */
	uint32_t block_size;
	uint64_t chunk_at;       /* file offset of the chunk's first byte */
	struct block_sums *sums; /* records checksums of a second answer; NULL: not wanted */
	uint64_t start_us;
	uint32_t hole;         /* pieces_hole of a second answer */
	struct hedge_run *run; /* the second request; NULL: none yet, or failed */
	/* The second request has won, so the wait for the first was interrupted. */
	bool kicked;
};

/* Starts the timer. The caller has set c, req, call, replica_route, block_size, chunk_at and sums.
 * Does not yield. */
void hedge_begin(struct hedge *h);
/*
 * Called when the first request has ended with *status. Returns true if the second answer is used:
 * its verified bytes are copied to data, *ret_len of them, and *status becomes 0. Otherwise returns
 * false and leaves *status. Does not yield.
 */
bool hedge_end(struct hedge *h, int *status, uint8_t *data, uint32_t *ret_len);

#endif
