/* SPDX-License-Identifier: Apache-2.0 */
#include "client/data/write_coalesce.h"

#include <stddef.h>

#include "client/base/background.h"
#include "client/cache/inode_cache.h"
#include "client/client.h"
#include "client/data/restart_marks.h"
#include "client/data/space_grant.h"
#include "client/data/write_request.h"
#include "client/data/write_state.h"
#include "client/layout/slot_vec.h"
#include "client/layout/stripe.h"
#include "client/ll.h"
#include "client/servers/cluster_map.h"
#include "client/servers/target.h"
#include "common/base/assert.h"
#include "common/base/list.h"
#include "common/base/status.h"
#include "common/proto/types.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"
#include "common/rt/slot.h"

static uint32_t unit_size(const struct inode_io *d)
{
	uint32_t chunk_size = d->inode->attr.layout.chunk_size;

	return chunk_size < LL_IO_MAX ? chunk_size : LL_IO_MAX;
}

static void forget(struct inode_io *d)
{
	d->coalesce.slot = NULL;
	d->coalesce.reserved = 0;
	list_remove(&d->coalesce.link);
	d->c->wb.n_coalescing--;
}

void coalesce_submit(struct inode_io *d)
{
	struct coalesce *g = &d->coalesce;
	struct slot_vec vec = {g->slot, g->lo, g->hi - g->lo};
	uint64_t reserved = g->reserved;

	if (g->slot == NULL)
		return;
	forget(d);
	wb_submit_coalesced(d, g->idx, g->base + g->lo, vec, g->target, reserved);
}

void coalesce_submit_all(struct client *c, uint64_t since_before_us)
{
	list_for_each_safe (l, &c->wb.coalescing) {
		struct coalesce *g = list_entry(l, struct coalesce, link);

		if (g->since_us >= since_before_us)
			break;
		coalesce_submit(container_of(g, struct inode_io, coalesce));
	}
}

bool coalesce_drop(struct inode_io *d)
{
	struct coalesce *g = &d->coalesce;

	if (g->slot == NULL)
		return false;
	d->c->wb.dirty -= g->hi - g->lo;
	grant_release(g->target, g->reserved);
	slot_unref(g->slot);
	forget(d);
	waitq_wake_all(&d->c->wb.q);
	return true;
}

bool coalesce_overlaps(const struct inode_io *d, uint64_t off, uint64_t len)
{
	const struct coalesce *g = &d->coalesce;
	uint64_t at = g->idx * d->inode->attr.layout.chunk_size + g->base + g->lo;

	return g->slot != NULL && range_overlaps(at, g->hi - g->lo, off, len);
}

/* Returns true if [lo, hi) of the unit adjoins or overlaps the collected bytes. */
static bool continues(const struct coalesce *g, uint64_t idx, uint32_t base, uint32_t lo,
		      uint32_t hi)
{
	return g->slot != NULL && g->idx == idx && g->base == base && lo <= g->hi && hi >= g->lo;
}

/* Starts a collection: takes a slot; if there is none, sends other collections and waits.
 * *ret_started is false if another writer has started one, or the session has ended. Yields. */
static int start(struct inode_io *d, uint64_t idx, uint32_t base, struct target *t,
		 bool *ret_started)
{
	struct client *c = d->c;
	struct slot *s = slot_try_get(c->slots);
	uint32_t gen = c->session_gen;

	*ret_started = false;
	if (s == NULL || c->wb.n_coalescing >= slot_pool_total(c->slots) / 4)
		coalesce_submit_all(c, UINT64_MAX);
	if (s == NULL) {
		int rc = slot_get(c->slots, client_deadline(c), &s);
		if (rc < 0)
			return rc == -LE_TIMEDOUT ? -LE_IO : rc;
	}
	/* Another writer may have started one during the wait. Or the session has ended: bytes
	 * collected now would belong to the new one, in which other clients may have written
	 * before. */
	if (d->coalesce.slot != NULL || c->session_gen != gen) {
		slot_unref(s);
		return 0;
	}
	d->coalesce.slot = s;
	d->coalesce.idx = idx;
	d->coalesce.base = base;
	d->coalesce.lo = d->coalesce.hi = 0;
	d->coalesce.reserved = 0;
	d->coalesce.target = t;
	d->coalesce.since_us = loop_now_us();
	list_push(&c->wb.coalescing, &d->coalesce.link);
	c->wb.n_coalescing++;
	*ret_started = true;
	return 0;
}

/* Reserves grant space for the bytes with the new ones. Returns false if it does not suffice. */
static bool reserve(struct inode_io *d, uint32_t lo, uint32_t hi)
{
	struct coalesce *g = &d->coalesce;
	uint32_t bs = chunk_block_size(d->inode->attr.layout.chunk_size);
	uint64_t need = grant_need(bs, g->base + lo, hi - lo);

	if (need > g->reserved) {
		if (!grant_reserve(g->target, need - g->reserved))
			return false;
		g->reserved = need;
	}
	return true;
}

int coalesce_write(struct inode_io *d, const struct stripe_part *part, const struct slot_vec *vec,
		 uint32_t n, bool *ret_taken)
{
	struct coalesce *g = &d->coalesce;
	uint32_t unit = unit_size(d), base = part->off / unit * unit;
	uint32_t lo = part->off - base, hi = lo + part->len, old;
	struct slot_vec truncated[LL_VECS_MAX];
	struct target *t;
	bool started = false;

	*ret_taken = false;
	ASSERT(hi <= unit);
	if (!continues(g, part->idx, base, lo, hi))
		coalesce_submit(d);
	if (g->slot == NULL) {
		t = map_head(d->c, &d->inode->attr.layout, part->idx);
		if (t == NULL)
			return 0;
		if (t->reserved + part->len > t->grant)
			return 0;
		TRY(start(d, part->idx, base, t, &started));
		if (!started)
			return 0;
	}
	/* The mark is set after the wait above, because the end of another write clears it. */
	if (!restart_mark_begin(d) ||
	    !reserve(d, started || lo < g->lo ? lo : g->lo, started || hi > g->hi ? hi : g->hi)) {
		if (started) {
			slot_unref(g->slot);
			forget(d);
		}
		restart_mark_update(d, wb_has_unflushed(d));
		return 0;
	}
	old = g->hi - g->lo;
	vec_copy_out(truncated, vec_slice(vec, n, part->at, part->len, truncated, LL_VECS_MAX),
		     g->slot->data + lo);
	if (started) {
		g->lo = lo;
		g->hi = hi;
	} else {
		g->lo = lo < g->lo ? lo : g->lo;
		g->hi = hi > g->hi ? hi : g->hi;
	}
	d->c->wb.dirty += g->hi - g->lo - old;
	*ret_taken = true;
	if (g->hi - g->lo == unit)
		coalesce_submit(d);
	return 0;
}
