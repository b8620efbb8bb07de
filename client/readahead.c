#include "client/readahead.h"

#include <stdlib.h>

#include "client/io.h"

#define FREE_UNITS_MAX  64u
#define UNITS_TAKEN_MAX 8
/* A mount's reader sends several requests at once, which may overtake each other by this much. */
#define RA_SLACK (2u * RA_UNIT)

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

static struct unit *unit_find(struct idata *d, uint64_t idx)
{
	list_for_each (l, &d->units) {
		struct unit *u = list_entry(l, struct unit, link);
		if (u->idx == idx)
			return u;
	}
	return NULL;
}

static void unit_release(struct client *c, struct unit *u)
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

/* Takes it out of sight; those who use it still may. */
static void unit_drop(struct unit *u)
{
	struct client *c = u->d->c;

	if (u->dropped)
		return;
	u->dropped = true;
	list_remove(&u->link);
	list_remove(&u->all);
	u->d->n_units--;
	c->ra.n_units--;
	unit_release(c, u); /* the lists' own use */
}

void ra_drop_all(struct idata *d)
{
	list_for_each_safe (l, &d->units)
		unit_drop(list_entry(l, struct unit, link));
}

void ra_drop_range(struct idata *d, uint64_t off, uint64_t len)
{
	list_for_each_safe (l, &d->units) {
		struct unit *u = list_entry(l, struct unit, link);

		if (range_overlaps(u->idx * RA_UNIT, RA_UNIT, off, len))
			unit_drop(u);
	}
}

void ra_expire(struct client *c)
{
	uint64_t now = loop_now_us();

	list_for_each_safe (l, &c->ra.units) {
		struct unit *u = list_entry(l, struct unit, all);

		if (u->at_us + RA_LIFE_US > now)
			break;
		/* Fetched for nothing: the reader is slower than we thought. */
		if (u->used == 0 && u->d->ra_window > RA_UNIT)
			u->d->ra_window /= 2;
		unit_drop(u);
	}
}

static void unit_fetch(void *arg)
{
	struct unit *u = arg;
	struct idata *d = u->d;
	struct client *c = d->c;
	const struct slot_vec to = {u->slot, 0, u->len};
	int rc;

	u->sums = (struct block_sums){.block = chunk_block_size(d->inode->attr.layout.chunk_size),
				      .n = ARRAY_SIZE(u->sum),
				      .sum = u->sum};
	u->sums.first = u->idx * RA_UNIT / u->sums.block;
	block_sums_clear(&u->sums, u->idx * RA_UNIT, u->len);
	rc = io_fetch(d, u->idx * RA_UNIT, &to, NULL, &u->sums);
	u->state = rc < 0 ? UNIT_FAILED : UNIT_READY;
	waitq_wake_all(&u->q);
	if (rc < 0)
		unit_drop(u);
	unit_release(c, u);
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

static bool unit_start(struct idata *d, uint64_t idx, uint64_t size)
{
	struct client *c = d->c;
	uint64_t left = size - idx * RA_UNIT;
	struct slot *s;
	struct unit *u;

	/* What the servers have there is not what this client has written. */
	if (wb_pending(d, idx * RA_UNIT, RA_UNIT))
		return false;
	/* Prefetching never takes the last slots: they are for those who wait. */
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
		unit_drop(u);
		unit_release(c, u);
		return false;
	}
	return true;
}

/* Keeps the history of reads: true when this one goes on where the last ones were. */
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
	/* One small read at the start of a file says nothing yet. */
	return s->n_in_seq > 1 || len >= RA_UNIT / 2;
}

void ra_note(struct idata *d, struct ra_state *s, uint64_t off, uint32_t len, uint64_t size)
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
	/* Units that start behind this read; what it reads itself it fetches itself. */
	from = (off + len + RA_UNIT - 1) / RA_UNIT * RA_UNIT;
	if (from < s->ahead)
		from = s->ahead;
	for (uint64_t at = from; at < end; at += RA_UNIT) {
		if (unit_find(d, at / RA_UNIT) == NULL && !unit_start(d, at / RA_UNIT, size))
			break;
		s->ahead = at + RA_UNIT;
		/* Each unit that was needed makes the window larger. */
		d->ra_window = d->ra_window + RA_UNIT < max ? d->ra_window + RA_UNIT : max;
	}
}

bool ra_opened(struct idata *d, uint64_t size)
{
	struct client *c = d->c;

	if (size == 0 || size > RA_SMALL || c->params.readahead < RA_UNIT || c->stopping)
		return false;
	if (c->ra.trust >= RA_TRUST_MAX / 2 && unit_find(d, 0) == NULL)
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

int ra_take(struct idata *d, uint64_t off, uint32_t len, struct ll_data *data,
	    struct block_sums *sums)
{
	struct client *c = d->c;
	struct unit *u = list_empty(&d->units) ? NULL : unit_find(d, off / RA_UNIT);
	uint32_t at = (uint32_t)(off % RA_UNIT), take;

	if (u == NULL || at >= u->len || data->n == LL_VECS_MAX)
		return 0;
	if (u->at_us + RA_LIFE_US < loop_now_us() && u->state == UNIT_READY) {
		unit_drop(u);
		return 0;
	}
	u->users++;
	while (u->state == UNIT_FETCHING) {
		int rc = waitq_wait(&u->q, NO_DEADLINE);
		if (rc < 0) {
			unit_release(c, u);
			return rc;
		}
	}
	/* Dropped while we waited: a write came between. */
	if (u->state != UNIT_READY || u->dropped) {
		unit_release(c, u);
		return 0;
	}
	take = u->len - at < len ? u->len - at : len;
	data->vec[data->n++] = (struct slot_vec){slot_ref(u->slot), at, take};
	data->len += take;
	block_sums_copy(sums, &u->sums, off, take);
	u->used += take;
	if (u->used >= u->len)
		unit_drop(u);
	unit_release(c, u);
	return (int)take;
}

uint32_t ra_gap(struct idata *d, uint64_t off, uint32_t len)
{
	uint64_t next = (off / RA_UNIT + 1) * RA_UNIT;

	if (list_empty(&d->units) || next >= off + len || unit_find(d, next / RA_UNIT) == NULL)
		return len;
	return (uint32_t)(next - off);
}
