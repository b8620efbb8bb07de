/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The grace period of a server that was not closed in order. The server has lost changes that it
 * had accepted and not made durable; its clients send them again (FRAME_AGAIN). Until all sessions
 * that change chunks here have reported that they have repeated (oss_replay_done) or have ended,
 * or until grace_ms has passed, the server executes nothing else: a read would return the state
 * before those changes, and a write would be overwritten by them. During the period other requests
 * of an awaited session are refused, so that it has slots for its repetitions. Requests with data
 * are refused too. Other requests of other sessions wait.
 *
 * Accepted changes (FRAME_SEEN) come first. A change that was not accepted may be a later write of
 * the same bytes by another session, which waited for the first one to be durable
 * (chunk_tx_begin_write): it is refused until no session has accepted changes left to repeat.
 *
 * A session that is still awaited after grace_ms is late. That is durable before the first other
 * request is served. Changes that a late session repeats are older than replies that other clients
 * have received since the start (touched.h). So they are refused (-LE_LATE: the writer gets an
 * error) where another session has written since; and, if they had been accepted, where another
 * session has read, because that reader has observed that they are missing. All are refused if
 * this information is missing because the session was late under an earlier process. In a
 * replicated chain other sessions read a change only when every member has it, so only accepted
 * changes are refused there, but in any chunk: another session may have read at any member. An
 * append checks by itself whether another session has written there (WRITE_RESERVED).
 *
 * A chain that was filled by other members since the start has no changes to wait for.
 *
 * Owned by the target's loop.
 */
#ifndef LEAT_OSSD_OPS_GRACE_H
#define LEAT_OSSD_OPS_GRACE_H

#include "common/rt/fiber.h"
#include "ossd/chunk/chunk_store.h"
#include "ossd/ops/touched.h"

struct chain;
struct chunk_tx;
struct chunk_write;
struct rpc_req;

struct grace {
	struct chunk_store *s;
	bool over, ending;
	uint64_t began_us, until_us; /* 0: no client was admitted yet */
	uint64_t late_group;         /* if ending: when this group is durable, the period ends */
	struct touched touched;      /* used while a session is awaited or late */
	uint32_t n_waiting, waiting_max;
	struct waitq ended;
};

/* The period begins unless no session is awaited. waiting_max: requests that may wait for its
 * end. */
void grace_init(struct grace *g, struct chunk_store *s, uint32_t waiting_max);
void grace_fini(struct grace *g);
/* Begins the grace period. Call when clients are admitted. */
void grace_begin(struct grace *g, uint32_t grace_ms);
/* Ends the period if no session is awaited, or grace_ms has passed. Call when an awaited session
 * has returned or ended. */
void grace_check_end(struct grace *g);
/* Returns 0: execute the request; 1: execute it, it has waited. Else -LE_NOT_READY, -LE_PENDING
 * (the client must send it to the head) or -LE_INTR. Yields, but not after it has returned 0 for
 * this request. */
int grace_admit(struct grace *g, const struct chain *c, const struct rpc_req *r) CHECK_RESULT;
/* Call right before a write joins. Returns 0 or -LE_LATE. Does not yield. */
int grace_may_write(const struct grace *g, const struct chain *c, const struct rpc_req *r,
		    const struct chunk_tx *tx, const struct chunk_write *w) CHECK_RESULT;

#endif
