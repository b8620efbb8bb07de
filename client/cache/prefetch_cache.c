/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cache/prefetch_cache.h"

#include <stdlib.h>

#include "client/cache/inode_cache.h"
#include "client/client.h"
#include "client/layout/stripe.h"
#include "common/base/assert.h"
#include "common/base/list.h"
#include "common/rt/loop.h"
#include "common/rt/slot.h"

#define FREE_UNITS_MAX  64u

void ra_init(struct readahead *ra)
{
	*ra = (struct readahead){0};
	list_init(&ra->units);
	list_init(&ra->free);
}

void ra_fini(struct readahead *ra)
{
	struct list *l;

	while ((l = list_pop(&ra->free)) != NULL)
		free(list_entry(l, struct unit, all));
}

struct unit *prefetch_find(struct inode_io *d, uint64_t idx)
{
	list_for_each (l, &d->units) {
		struct unit *u = list_entry(l, struct unit, link);
		if (u->idx == idx)
			return u;
	}
	return NULL;
}

void prefetch_release(struct client *c, struct unit *u)
{
	ASSERT(u->users > 0);
	if (--u->users > 0 || !u->dropped)
		return;
	slot_unref(u->slot);
	u->slot = NULL;
	if (c->ra.n_free < FREE_UNITS_MAX) {
		c->ra.n_free++;
		list_push_front(&c->ra.free, &u->all);
	} else {
		free(u);
	}
}

void prefetch_drop(struct unit *u)
{
	struct client *c = u->d->c;

	if (u->dropped)
		return;
	u->dropped = true;
	list_remove(&u->link);
	list_remove(&u->all);
	u->d->n_units--;
	c->ra.n_units--;
	prefetch_release(c, u); /* the use by the lists */
}

void ra_drop_all(struct inode_io *d)
{
	list_for_each_safe (l, &d->units)
		prefetch_drop(list_entry(l, struct unit, link));
}

void ra_drop_range(struct inode_io *d, uint64_t off, uint64_t len)
{
	list_for_each_safe (l, &d->units) {
		struct unit *u = list_entry(l, struct unit, link);

		if (range_overlaps(u->idx * RA_UNIT, RA_UNIT, off, len))
			prefetch_drop(u);
	}
}

void ra_expire(struct client *c)
{
	uint64_t now = loop_now_us();

	list_for_each_safe (l, &c->ra.units) {
		struct unit *u = list_entry(l, struct unit, all);

		if (u->at_us + RA_LIFE_US > now)
			break;
		/* Fetched without a use: the reader is slower than expected. */
		if (u->used == 0 && u->d->ra_window > RA_UNIT)
			u->d->ra_window /= 2;
		prefetch_drop(u);
	}
}
