/* SPDX-License-Identifier: Apache-2.0 */
#include "client/data/hedged_read.h"

#include <stdlib.h>

#include "client/base/background.h"
#include "client/client.h"
#include "client/layout/block_pieces.h"
#include "client/layout/block_sums.h"
#include "client/ll.h"
#include "client/servers/cluster_map.h"
#include "client/servers/hedge.h"
#include "client/servers/replica_select.h"
#include "client/servers/target.h"
#include "common/base/assert.h"
#include "common/base/copy_counter.h"
#include "common/base/status.h"
#include "common/proto/oss_proto.h"
#include "common/proto/types.h"
#include "common/rpc/rpc.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"
#include "common/rt/slot.h"

/* The second request. */
struct hedge_run {
	struct client *c;
	struct hedge *of; /* NULL: the first request has ended */
	struct fiber *fiber;
	struct slot *slot;
	struct replica_route replica_route;
	struct chain *chain;
	struct target *first;
	uint64_t session, deadline_us;
	struct oss_read_req req;
	bool won;
	uint32_t block_size, len, hole;
	uint64_t chunk_at;
	struct block_sums sums;
	uint64_t sum[LL_IO_MAX / LEAT_BLOCK_SIZE_MIN + 1]; /* storage of sums */
};

static void run_free(struct hedge_run *r)
{
	slot_unref(r->slot);
	free(r);
}

static int ask(struct hedge_run *r, struct target *t)
{
	struct slot_vec to = {r->slot, 0, r->req.len};
	struct oss_read_rep rep = {0};
	struct rpc_call call = {
		.op = OP_oss_read,
		.req = &r->req,
		.rep = &rep,
		.session = r->session,
		.target = t->id,
		.chain = r->chain->id,
		.epoch = r->chain->epoch,
		.deadline_us = r->deadline_us,
		.bulk_in = &to,
		.n_bulk_in = 1,
	};
	struct flight f;
	int rc;

	TRY(target_connect(t));
	TRY(target_await_up(t, r->deadline_us));
	TRY(target_connect(t));
	block_sums_clear(&r->sums, r->chunk_at + r->req.off, r->req.len);
	flight_begin(r->chain, &f, t, false);
	rc = flight_end(&f, rpc_call(t->rpc, &call));
	if (rc >= 0) {
		struct pieces_in in = {
			.pieces = rep.pieces,
			.block_size = r->block_size,
			.off = r->req.off,
			.space = r->req.len,
			.bulk_len = call.ret_bulk_len,
			.data = r->slot->data,
			.scratch = r->c->block,
			.sums = &r->sums,
			.chunk_at = r->chunk_at,
		};

		rc = pieces_open(&in, &r->len);
		r->hole = rc >= 0 ? pieces_hole(&in, r->len) : 0;
	}
	rpc_call_fini(&call);
	return rc;
}

static void run_fiber(void *arg)
{
	struct hedge_run *r = arg;
	struct client *c = r->c;
	int rc = -LE_DISCONNECTED;

	r->fiber = fiber_self();
	while (r->of != NULL && rc < 0) {
		r->replica_route.target = replica_pick(&r->replica_route, r->chain, loop_now_us());
		if (r->replica_route.target == NULL)
			break;
		rc = ask(r, r->replica_route.target);
		replica_failed(&r->replica_route, false);
	}
	if (r->of == NULL) {
		run_free(r);
	} else if (rc < 0) {
		r->of->run = NULL;
		run_free(r);
	} else {
		r->won = true;
		r->of->kicked = true;
		fiber_interrupt(r->of->fiber);
	}
	client_bg_end(c);
}

/* The timer: sends the second request. Outside of fibers. */
static void fired(struct timer *timer)
{
	struct hedge *h = container_of(timer, struct hedge, timer);
	struct client *c = h->c;
	const struct replica_route *replica_route = h->replica_route;
	struct hedge_run *r;

	if (replica_route->head || c->stopping)
		return;
	if (replica_route->target == NULL || h->call->chain == 0) {
		/* The first request waits for something else: a capability, or the map. */
		timer_set(timer, loop_now_us() + HEDGE_MIN_US);
		return;
	}
	if (!hedge_possible(replica_route->chain))
		return;
	r = malloc(sizeof(*r));
	if (r == NULL)
		return;
	*r = (struct hedge_run){
		.c = c,
		.of = h,
		.slot = slot_try_get(h->req->len <= SMALL_SLOT_SIZE ? c->small : c->slots),
		.replica_route = *replica_route,
		.chain = replica_route->chain,
		.first = replica_route->target,
		.session = h->call->session,
		.deadline_us = client_deadline(c),
		.req = *h->req,
		.block_size = h->block_size,
		.chunk_at = h->chunk_at,
		.sums = {.block = h->block_size,
			 .n = ARRAY_SIZE(r->sum),
			 .first = (h->chunk_at + h->req->off) / h->block_size,
			 .sum = r->sum},
	};
	replica_failed(&r->replica_route, false);
	if (r->slot == NULL || client_bg_spawn(c, "hedge", run_fiber, r) < 0) {
		run_free(r);
		return;
	}
	h->run = r;
	c->stats.hedges++;
}

void hedge_begin(struct hedge *h)
{
	uint64_t after_us = hedge_after_us(&h->c->latencies, h->c->params.hedge_ms);

	timer_init(&h->timer, fired);
	h->fiber = fiber_self();
	h->run = NULL;
	h->kicked = false;
	h->start_us = loop_now_us();
	if (after_us > 0)
		timer_set(&h->timer, h->start_us + after_us);
}

static void take(struct hedge *h, uint8_t *data, uint32_t *ret_len)
{
	struct hedge_run *r = h->run;

	copy_counted(data, r->slot->data, r->len);
	*ret_len = r->len;
	h->hole = r->hole;
	block_sums_copy(h->sums, &r->sums, r->chunk_at + r->req.off, r->req.len);
	hedge_lost(r->first, loop_now_us() - h->start_us);
	h->c->stats.hedges_won++;
}

bool hedge_end(struct hedge *h, int *status, uint8_t *data, uint32_t *ret_len)
{
	struct hedge_run *r = h->run;
	bool won = r != NULL && r->won && *status < 0;

	timer_cancel(&h->timer);
	if (!h->replica_route->head)
		latencies_add(&h->c->latencies, loop_now_us() - h->start_us);
	/* The first answer may have arrived together with the interrupt. */
	if (h->kicked && *status != -LE_INTR)
		(void)fiber_interrupt_clear();
	if (won) {
		take(h, data, ret_len);
		*status = 0;
	}
	if (r != NULL && r->won) {
		run_free(r);
	} else if (r != NULL) {
		r->of = NULL;
		if (r->fiber != NULL)
			fiber_interrupt(r->fiber);
	}
	return won;
}
