/*
 * The grace time of a server that was not ended in order. It has lost what it had shown and
 * accepted, but not made durable; its clients repeat that (FRAME_AGAIN). Until all sessions that
 * change chunks here have said that they have (oss_reclaim), have ended, or grace_ms is over,
 * nothing else is carried out: who reads would see what was before, who writes would be written
 * over. What a session that is still awaited asks for beside its repetitions is sent back, so that
 * it has room for these, and so is data; what else others ask for waits.
 *
 * First comes what was accepted (FRAME_SEEN). What was not may be another session's later write of
 * the same bytes, which waited for the first one to be durable (chunk_tx_begin_write): so it is
 * sent back until nobody has anything more of the first kind.
 *
 * Who is awaited still when grace_ms is over is late, which is durable before anybody is served.
 * What a late session repeats is older than what others have been told since the start (touched.h).
 * So it is refused (-LE_LATE: the writer is told that it is lost) where others have written since;
 * and, if it had been accepted, where they have read, for they have seen that it is not there. All
 * is refused where that is not known: who was late under an earlier process. In a replicated chain
 * others see nothing before every member has it, so that only what had been accepted is refused,
 * but wherever it is: others may have read at any member. An append looks itself whether others
 * have written there (WRITE_PLACED).
 *
 * Chains that have been filled by others since the start have nothing to wait for.
 *
 * Owned by the target's loop.
 */
#ifndef LEAT_OSSD_GRACE_H
#define LEAT_OSSD_GRACE_H

#include "common/rt/fiber.h"
#include "ossd/chunk/chunk_store.h"
#include "ossd/ops/touched.h"

struct chain;
struct rpc_req;

struct grace {
	struct chunk_store *s;
	bool over, ending;
	uint64_t began_us, until_us; /* 0: nobody could come yet */
	uint64_t late_group;         /* ending: when that is durable it is over */
	struct touched touched;      /* as long as somebody is awaited or late */
	uint32_t n_waiting, waiting_max;
	struct waitq ended;
};

void grace_init(struct grace *g, struct chunk_store *s, uint32_t waiting_max);
void grace_fini(struct grace *g);
/* Clients are let in from now on. */
void grace_begin(struct grace *g, uint32_t grace_ms);
/* Somebody awaited has returned or ended: is it over? */
void grace_look(struct grace *g);
/* 0: the request may be carried out; 1: so it may, but has waited. -LE_NOT_READY, -LE_PENDING (ask
 * the head), -LE_INTR. Yields, but not once it has returned 0 for this request. */
int grace_admit(struct grace *g, const struct chain *c, const struct rpc_req *r) CHECK_RESULT;
/* May this write be made now, right before it joins? -LE_LATE. Does not yield. */
int grace_may_write(const struct grace *g, const struct chain *c, const struct rpc_req *r,
		    const struct chunk_tx *tx, const struct chunk_write *w) CHECK_RESULT;

#endif
