/*
 * Hedged reads: when the member that was asked lets one wait, another one is asked as well, into a
 * slot of its own, and the first good answer wins. Whoever lost is cancelled; a slot goes back only
 * when its rpc_call has returned.
 *
 * The wait is three times what all but one in a hundred reads took lately, between HEDGE_MIN_US and
 * params.hedge_ms. Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_HEDGE_H
#define LEAT_CLIENT_HEDGE_H

#include "common/rt/fiber.h"
#include "common/rt/loop.h"

struct client;
struct hedge_run;
struct oss_read_req;
struct route;
struct rpc_call;

#define HEDGE_MIN_US     10000u
#define LATENCY_STEP_US  500u
#define LATENCY_BUCKETS  128u
#define LATENCIES_HALVED 4096u /* at so many the old ones count half */

/* How long reads took: a histogram that forgets. */
struct latencies {
	uint32_t bucket[LATENCY_BUCKETS]; /* of LATENCY_STEP_US; the last one: longer */
	uint32_t n;
};
void latencies_add(struct latencies *l, uint64_t us);
/* All but one in a hundred took at most so long; 0: none yet. */
uint64_t latencies_p99_us(const struct latencies *l);
/* When to ask a second member, after the first one. */
uint64_t hedge_after_us(const struct latencies *l, uint32_t hedge_ms);

/* One read that may be hedged: on the stack of its fiber, between begin and end. */
struct hedge {
	struct timer timer;
	struct client *c;
	struct fiber *fiber;
	const struct oss_read_req *req; /* as the first member is asked */
	const struct rpc_call *call;    /* the same */
	const struct route *route;      /* who that is */
	uint32_t block_size;
	uint64_t chunk_at;       /* where in the file the chunk begins */
	struct block_sums *sums; /* noted of what hedge_end brings; NULL: not wanted */
	uint64_t start_us;
	uint32_t hole;         /* of the bytes that hedge_end brings: pieces_hole */
	struct hedge_run *run; /* the second request, NULL: none yet or without success */
	bool kicked;           /* the second has won, and so the first one's wait was interrupted */
};

/* req, call, route, c and what says how the file is cut are set. */
void hedge_begin(struct hedge *h);
/*
 * The first request has ended with *status. True: the second one was better; its bytes, verified,
 * are at data, *ret_len of them, and *status is 0. Else *status says what it said.
 */
bool hedge_end(struct hedge *h, int *status, uint8_t *data, uint32_t *ret_len);

#endif
