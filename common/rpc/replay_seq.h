/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides for a server whether a request is executed. A client numbers the requests of each slot of
 * its session in ascending order, and repeats a request under its number. Each server has one
 * struct replay_seq for each slot, beside the last reply of the slot (mds/session/replay.h,
 * ossd/chunk/replay.h). Owned by the server's loop.
 */
#ifndef LEAT_COMMON_RPC_REPLAY_SEQ_H
#define LEAT_COMMON_RPC_REPLAY_SEQ_H

#include "common/rt/fiber.h"

struct replay_seq {
	uint64_t last;    /* the last request with a reply; 0: none */
	uint64_t running; /* the request that executes; 0: none */
	struct waitq done;
};

enum replay_verdict {
	REPLAY_EXECUTE, /* call replay_seq_begin before the next yield */
	REPLAY_ANSWER,  /* it was executed: send its reply again */
	REPLAY_WAIT     /* it or an earlier request executes: call replay_seq_wait, decide again */
};

void replay_seq_init(struct replay_seq *q);
/* Returns an enum replay_verdict, or -LE_STALE_SEQ if a later request of the slot was executed or
 * executes. Does not yield. */
int replay_seq_check(const struct replay_seq *q, uint64_t seq) CHECK_RESULT;
/* Waits until an execution ends, at most until the deadline of the fiber: a request that its client
 * has given up must not execute later. Returns 0, -LE_TIMEDOUT or -LE_INTR. Yields. */
int replay_seq_wait(struct replay_seq *q) CHECK_RESULT;
/* Marks the request as executing. Does not yield. */
void replay_seq_begin(struct replay_seq *q, uint64_t seq);
/* Ends the execution, and wakes the requests that wait. replied: the request has a reply, and is
 * not executed again. Does not yield. */
void replay_seq_end(struct replay_seq *q, bool replied);

#endif
