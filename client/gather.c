/*
 * Small writes, gathered into one slot per inode: a contiguous run of bytes within 1 MiB of one
 * chunk. It is sent when it is full, when a write does not continue it, at a flush, when it is
 * dirty_ms old, and when slots or dirty bytes run short.
 */
#include "client/io.h"
#include "client/kept.h"
#include "client/writeback.h"

static uint32_t unit_size(const struct idata *d)
{
	uint32_t chunk_size = d->inode->attr.layout.chunk_size;

	return chunk_size < LL_IO_MAX ? chunk_size : LL_IO_MAX;
}

static void forget(struct idata *d)
{
	d->gather.slot = NULL;
	d->gather.reserved = 0;
	list_remove(&d->gather.link);
	d->c->wb.n_gathers--;
}

void gather_submit(struct idata *d)
{
	struct gather *g = &d->gather;
	struct slot_vec vec = {g->slot, g->lo, g->hi - g->lo};
	uint64_t reserved = g->reserved;

	if (g->slot == NULL)
		return;
	forget(d);
	wb_submit_gathered(d, g->idx, g->base + g->lo, vec, g->target, reserved);
}

void gather_submit_all(struct client *c, uint64_t since_before_us)
{
	list_for_each_safe (l, &c->wb.gathers) {
		struct gather *g = list_entry(l, struct gather, link);

		if (g->since_us >= since_before_us)
			break;
		gather_submit(container_of(g, struct idata, gather));
	}
}

bool gather_drop(struct idata *d)
{
	struct gather *g = &d->gather;

	if (g->slot == NULL)
		return false;
	d->c->wb.dirty -= g->hi - g->lo;
	grant_release(g->target, g->reserved);
	slot_unref(g->slot);
	forget(d);
	waitq_wake_all(&d->c->wb.q);
	return true;
}

bool gather_overlaps(const struct idata *d, uint64_t off, uint64_t len)
{
	const struct gather *g = &d->gather;
	uint64_t at = g->idx * d->inode->attr.layout.chunk_size + g->base + g->lo;

	return g->slot != NULL && range_overlaps(at, g->hi - g->lo, off, len);
}

/* Does [lo, hi) of the unit continue or overlap what is there? */
static bool continues(const struct gather *g, uint64_t idx, uint32_t base, uint32_t lo, uint32_t hi)
{
	return g->slot != NULL && g->idx == idx && g->base == base && lo <= g->hi && hi >= g->lo;
}

/* A slot for a new run; waits for one where others go away by themselves. */
static int start(struct idata *d, uint64_t idx, uint32_t base, struct target *t, bool *ret_started)
{
	struct client *c = d->c;
	struct slot *s = slot_try_get(c->slots);
	uint32_t gen = c->session_gen;

	*ret_started = false;
	if (s == NULL || c->wb.n_gathers >= slot_pool_total(c->slots) / 4)
		gather_submit_all(c, UINT64_MAX);
	if (s == NULL) {
		int rc = slot_get(c->slots, client_deadline(c), &s);
		if (rc < 0)
			return rc == -LE_TIMEDOUT ? -LE_IO : rc;
	}
	/* While we waited another writer may have started one; or the session has ended, and what
	 * is gathered now would belong to the new one, which others may have written before. */
	if (d->gather.slot != NULL || c->session_gen != gen) {
		slot_unref(s);
		return 0;
	}
	d->gather.slot = s;
	d->gather.idx = idx;
	d->gather.base = base;
	d->gather.lo = d->gather.hi = 0;
	d->gather.reserved = 0;
	d->gather.target = t;
	d->gather.since_us = loop_now_us();
	list_push(&c->wb.gathers, &d->gather.link);
	c->wb.n_gathers++;
	*ret_started = true;
	return 0;
}

/* Space for the run as it will be. */
static bool reserve(struct idata *d, uint32_t lo, uint32_t hi)
{
	struct gather *g = &d->gather;
	uint32_t bs = chunk_block_size(d->inode->attr.layout.chunk_size);
	uint64_t need = grant_need(bs, g->base + lo, hi - lo);

	if (need > g->reserved) {
		if (!grant_reserve(g->target, need - g->reserved))
			return false;
		g->reserved = need;
	}
	return true;
}

int gather_write(struct idata *d, const struct stripe_part *part, const struct slot_vec *vec,
		 uint32_t n, bool *ret_taken)
{
	struct gather *g = &d->gather;
	uint32_t unit = unit_size(d), base = part->off / unit * unit;
	uint32_t lo = part->off - base, hi = lo + part->len, old;
	struct slot_vec cut[LL_VECS_MAX];
	struct target *t;
	bool started = false;

	*ret_taken = false;
	ASSERT(hi <= unit);
	if (!continues(g, part->idx, base, lo, hi))
		gather_submit(d);
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
	/* Not before: while we wait, other writes may end, and the mark with them. */
	if (!kept_write_begin(d) ||
	    !reserve(d, started || lo < g->lo ? lo : g->lo, started || hi > g->hi ? hi : g->hi)) {
		if (started) {
			slot_unref(g->slot);
			forget(d);
		}
		kept_write_moved(d);
		return 0;
	}
	old = g->hi - g->lo;
	vec_copy_out(cut, vec_slice(vec, n, part->at, part->len, cut, LL_VECS_MAX),
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
		gather_submit(d);
	return 0;
}
