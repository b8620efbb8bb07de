/* SPDX-License-Identifier: Apache-2.0 */
#include "client/data/readahead.h"

#include <stdlib.h>

#include "client/base/background.h"
#include "client/cache/inode_cache.h"
#include "client/cache/prefetch_cache.h"
#include "client/client.h"
#include "client/data/fetch.h"
#include "client/data/flush.h"
#include "client/layout/block_sums.h"
#include "client/ll.h"
#include "common/base/assert.h"
#include "common/base/list.h"
#include "common/proto/types.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"
#include "common/rt/slot.h"

/* A mount's reader sends several requests concurrently, which may overtake each other by this
 * much. */
#define RA_SLACK (2u * RA_UNIT)

static void unit_fetch(void *arg)
{
	struct unit *u = arg;
	struct inode_io *d = u->d;
	struct client *c = d->c;
	const struct slot_vec to = {u->slot, 0, u->len};
	int rc;

	u->sums = (struct block_sums){.block = chunk_block_size(d->inode->attr.layout.chunk_size),
				      .n = ARRAY_SIZE(u->sum),
				      .sum = u->sum};
	u->sums.first = u->idx * RA_UNIT / u->sums.block;
	block_sums_clear(&u->sums, u->idx * RA_UNIT, u->len);
	rc = fetch_range(d, u->idx * RA_UNIT, &to, NULL, &u->sums);
	u->state = rc < 0 ? UNIT_FAILED : UNIT_READY;
	waitq_wake_all(&u->q);
	if (rc < 0)
		prefetch_drop(u);
	prefetch_release(c, u);
	inode_put(c, d->inode);
	client_bg_end(c);
}

static struct unit *unit_alloc(struct client *c)
{
	struct list *l = list_pop(&c->ra.free);

	if (l == NULL)
		return malloc(sizeof(struct unit));
	c->ra.n_free--;
	return list_entry(l, struct unit, all);
}

static bool unit_start(struct inode_io *d, uint64_t idx, uint64_t size)
{
	struct client *c = d->c;
	uint64_t left = size - idx * RA_UNIT;
	struct slot *s;
	struct unit *u;

	/* The servers' data lacks this client's unflushed writes. */
	if (wb_pending(d, idx * RA_UNIT, RA_UNIT))
		return false;
	/* Prefetching leaves a third of the slots to requests with waiters. */
	if (slot_pool_free(c->slots) <= slot_pool_total(c->slots) / 3)
		return false;
	s = slot_try_get(c->slots);
	if (s == NULL)
		return false;
	u = unit_alloc(c);
	if (u == NULL) {
		slot_unref(s);
		return false;
	}
	*u = (struct unit){
		.d = d,
		.idx = idx,
		.slot = s,
		.len = left < RA_UNIT ? (uint32_t)left : RA_UNIT,
		.users = 2,
		.at_us = loop_now_us(),
	};
	waitq_init(&u->q);
	list_push(&d->units, &u->link);
	list_push(&c->ra.units, &u->all);
	d->n_units++;
	c->ra.n_units++;
	inode_ref(d->inode);
	if (client_bg_spawn(c, "readahead", unit_fetch, u) < 0) {
		d->inode->refs--; /* the caller has one */
		u->state = UNIT_FAILED;
		prefetch_drop(u);
		prefetch_release(c, u);
		return false;
	}
	return true;
}

/* Updates the history of reads. Returns true if this read continues the sequence. */
static bool in_sequence(struct ra_state *s, uint64_t off, uint32_t len)
{
	uint64_t low = s->next > RA_SLACK ? s->next - RA_SLACK : 0;
	bool first = s->n_in_seq == 0 && off == 0;
	bool seq = s->n_in_seq > 1 ? off >= low && off <= s->next + RA_SLACK : off == s->next;

	if (!seq && !first) {
		*s = (struct ra_state){.next = off + len};
		return false;
	}
	if (off + len > s->next)
		s->next = off + len;
	s->n_in_seq++;
	/* One small read at the start of a file proves no sequence. */
	return s->n_in_seq > 1 || len >= RA_UNIT / 2;
}

void ra_note(struct inode_io *d, struct ra_state *s, uint64_t off, uint32_t len, uint64_t size)
{
	uint64_t max = d->c->params.readahead, end, from;

	if (max < RA_UNIT || d->c->stopping || !in_sequence(s, off, len))
		return;
	if (d->ra_window < 2 * (uint64_t)RA_UNIT)
		d->ra_window = 2 * (uint64_t)RA_UNIT;
	if (d->ra_window > max)
		d->ra_window = max;
	end = s->next + d->ra_window;
	if (end > size)
		end = size;
	/* Only units that start after this read: the read itself fetches its bytes. */
	from = (off + len + RA_UNIT - 1) / RA_UNIT * RA_UNIT;
	if (from < s->ahead)
		from = s->ahead;
	for (uint64_t at = from; at < end; at += RA_UNIT) {
		if (prefetch_find(d, at / RA_UNIT) == NULL && !unit_start(d, at / RA_UNIT, size))
			break;
		s->ahead = at + RA_UNIT;
		/* Each needed unit grows the window. */
		d->ra_window = d->ra_window + RA_UNIT < max ? d->ra_window + RA_UNIT : max;
	}
}

bool ra_opened(struct inode_io *d, uint64_t size)
{
	struct client *c = d->c;

	if (size == 0 || size > RA_SMALL || c->params.readahead < RA_UNIT || c->stopping)
		return false;
	if (c->ra.trust >= RA_TRUST_MAX / 2 && prefetch_find(d, 0) == NULL)
		(void)unit_start(d, 0, size);
	return true;
}

void ra_closed(struct client *c, bool was_read)
{
	struct readahead *ra = &c->ra;

	if (was_read)
		ra->trust += ra->trust < RA_TRUST_MAX;
	else
		ra->trust -= ra->trust < RA_TRUST_LOSS ? ra->trust : RA_TRUST_LOSS;
}

int ra_take(struct inode_io *d, uint64_t off, uint32_t len, struct ll_data *data,
	    struct block_sums *sums)
{
	struct client *c = d->c;
	struct unit *u = list_empty(&d->units) ? NULL : prefetch_find(d, off / RA_UNIT);
	uint32_t at = (uint32_t)(off % RA_UNIT), take;

	if (u == NULL || at >= u->len || data->n == LL_VECS_MAX)
		return 0;
	if (u->at_us + RA_LIFE_US < loop_now_us() && u->state == UNIT_READY) {
		prefetch_drop(u);
		return 0;
	}
	u->users++;
	while (u->state == UNIT_FETCHING) {
		int rc = waitq_wait(&u->q, NO_DEADLINE);
		if (rc < 0) {
			prefetch_release(c, u);
			return rc;
		}
	}
	/* Dropped during the wait: a write came in between. */
	if (u->state != UNIT_READY || u->dropped) {
		prefetch_release(c, u);
		return 0;
	}
	take = u->len - at < len ? u->len - at : len;
	data->vec[data->n++] = (struct slot_vec){slot_ref(u->slot), at, take};
	data->len += take;
	block_sums_copy(sums, &u->sums, off, take);
	u->used += take;
	if (u->used >= u->len)
		prefetch_drop(u);
	prefetch_release(c, u);
	return (int)take;
}

uint32_t ra_gap(struct inode_io *d, uint64_t off, uint32_t len)
{
	uint64_t next = (off / RA_UNIT + 1) * RA_UNIT;

	if (list_empty(&d->units) || next >= off + len || prefetch_find(d, next / RA_UNIT) == NULL)
		return len;
	return (uint32_t)(next - off);
}
