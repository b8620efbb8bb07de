/*
 * The grace time of a server that was not ended in order. It has lost what it had shown and
 * accepted, but not made durable; its clients repeat that (FRAME_AGAIN). Until all sessions that
 * change chunks here have said that they have (oss_reclaim), have ended, or grace_ms is over,
 * nothing else is carried out: who reads would see what was before, who writes would be written
 * over. What a session that is still awaited asks for beside its repetitions is sent back, so that
 * it has room for these, and so is data; what else others ask for waits.
 *
 * Chains that have been filled by others since the start have nothing to wait for.
 *
 * Owned by the target's loop.
 */
#ifndef LEAT_OSSD_GRACE_H
#define LEAT_OSSD_GRACE_H

#include "common/rt/fiber.h"
#include "ossd/chunk/chunk_store.h"

struct chain;
struct rpc_req;

struct grace {
	struct chunk_store *s;
	bool over;
	uint64_t began_us, until_us; /* 0: nobody could come yet */
	uint32_t n_waiting, waiting_max;
	struct waitq ended;
};

void grace_init(struct grace *g, struct chunk_store *s, uint32_t waiting_max);
/* Clients are let in from now on. */
void grace_begin(struct grace *g, uint32_t grace_ms);
/* Somebody awaited has returned or ended: is it over? */
void grace_look(struct grace *g);
/* 0: the request may be carried out; 1: so it may, but has waited. -LE_NOT_READY, -LE_PENDING (ask
 * the head), -LE_INTR. Yields, but not once it has returned 0 for this request. */
int grace_admit(struct grace *g, const struct chain *c, const struct rpc_req *r) CHECK_RESULT;

#endif
