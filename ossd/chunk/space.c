/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chunk/space.h"

#include <stdlib.h>

#include "common/base/assert.h"
#include "common/base/planted_bug.h"

/* One session may hold at most 1/GRANT_FRACTION of the space that is not granted. */
#define GRANT_FRACTION 8u

int space_init(struct space *s, uint64_t n_units, uint64_t limit, uint64_t reserve,
	       uint64_t grant_max)
{
	*s = (struct space){.grant_max = grant_max, .promise_max = UINT64_MAX, .gen = 1};
	s->reserve = reserve < n_units * UNIT_SIZE / 8 ? reserve : n_units * UNIT_SIZE / 8;
	list_init(&s->pins);
	hmap_init(&s->sessions, 64);
	s->ring = calloc(QUARANTINE_MAX, sizeof(*s->ring));
	if (!s->ring || extent_alloc_init(&s->alloc, n_units, limit) < 0) {
		space_fini(s);
		return -LE_NOMEM;
	}
	return 0;
}

void space_fini(struct space *s)
{
	struct hmap_node *n = hmap_next(&s->sessions, NULL);

	while (n) {
		struct space_session *e = container_of(n, struct space_session, node);

		n = hmap_next(&s->sessions, n);
		free(e);
	}
	hmap_fini(&s->sessions);
	free(s->ring);
	s->ring = NULL;
	extent_alloc_fini(&s->alloc);
}

uint64_t space_total(const struct space *s)
{
	return s->alloc.n_units * UNIT_SIZE;
}

uint64_t space_used(const struct space *s)
{
	return (s->alloc.limit - s->alloc.free) * UNIT_SIZE;
}

static uint64_t above(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

uint64_t space_usable(const struct space *s)
{
	return above((extent_usable(&s->alloc) + s->quarantined) * UNIT_SIZE, s->reserve);
}

/* Space that may be granted, or used without a grant. */
static uint64_t unpromised(const struct space *s)
{
	return above(extent_usable(&s->alloc) * UNIT_SIZE, s->reserve + s->granted);
}

/* ---- freed extents and readers ---- */

static void release(struct space *s)
{
	uint64_t oldest = list_empty(&s->pins)
				  ? UINT64_MAX
				  : list_entry(s->pins.next, struct read_pin, link)->gen;

	while (s->ring_tail != s->ring_head) {
		struct freed *f = &s->ring[s->ring_tail % QUARANTINE_MAX];

		if (f->gen >= oldest)
			break;
		ASSERT(f->gen < s->gen && s->quarantined >= f->n);
		extent_put(&s->alloc, f->start, f->n);
		s->quarantined -= f->n;
		s->ring_tail++;
	}
}

void read_pin_begin(struct space *s, struct read_pin *p)
{
	p->gen = s->gen;
	list_push(&s->pins, &p->link);
}

void read_pin_end(struct space *s, struct read_pin *p)
{
	list_remove(&p->link);
	release(s);
}

void space_free(struct space *s, uint64_t start, uint32_t n)
{
	if (s->frozen)
		return;
	if (list_empty(&s->pins)) {
		release(s);
		extent_put(&s->alloc, start, n);
		return;
	}
	if (s->ring_head - s->ring_tail == QUARANTINE_MAX) {
		/* QUARANTINE_MAX extents were freed during one read. Further ones stay in use
		 * until the next start: reusing them now could change what that read returns. */
		return;
	}
	s->ring[s->ring_head++ % QUARANTINE_MAX] = (struct freed){start, s->gen, n};
	s->quarantined += n;
	s->gen++;
}

/* ---- grants ---- */

static struct space_session *session_find(const struct space *s, uint64_t session)
{
	struct hmap_node *n = hmap_find_id(&s->sessions, session);

	return n ? container_of(n, struct space_session, node) : NULL;
}

static struct space_session *session_get(struct space *s, uint64_t session, uint64_t now_us)
{
	struct space_session *e = session_find(s, session);

	if (!e && s->sessions.n < SPACE_SESSIONS_MAX) {
		e = calloc(1, sizeof(*e));
		if (e) {
			e->session = session;
			hmap_insert_id(&s->sessions, &e->node, session);
		}
	}
	if (e)
		e->last_us = now_us;
	return e;
}

static void set_grant(struct space *s, struct space_session *e, uint64_t grant)
{
	ASSERT(s->granted >= e->grant);
	s->granted = s->granted - e->grant + grant;
	if (!e->member)
		s->promised += grant - (PLANTED_BUG(OSS_GRANT_DRIFT) ? 0 : e->grant);
	ASSERT(s->promised <= s->granted);
	e->grant = grant;
}

int space_admit(struct space *s, uint64_t session, uint32_t len, uint32_t need, uint32_t growth)
{
	struct space_session *e = session_find(s, session);
	uint64_t grow = (uint64_t)growth * UNIT_SIZE, held = e ? e->grant : 0;
	uint64_t use = held < grow ? held : grow;

	if (extent_usable(&s->alloc) < need && s->alloc.free < need)
		return -LE_NOSPC;
	/* Beyond the grant, only what rounding to units adds to the granted bytes is admitted. */
	if (grow > held && held < len && grow - held > unpromised(s))
		return -LE_NOSPC;
	if (e)
		set_grant(s, e, held - use);
	return 0;
}

static uint64_t grant(struct space *s, struct space_session *e, uint64_t want)
{
	uint64_t before = e->grant, most;

	set_grant(s, e, 0);
	most = unpromised(s) / GRANT_FRACTION;
	if (!e->member && most > above(s->promise_max, s->promised))
		most = above(s->promise_max, s->promised);
	if (most < before)
		most = before; /* the session keeps the grant it has if it wants it */
	if (most > s->grant_max)
		most = s->grant_max;
	set_grant(s, e, (want < most ? want : most) / UNIT_SIZE * UNIT_SIZE);
	return e->grant;
}

uint64_t space_grant(struct space *s, uint64_t session, uint64_t want, uint64_t now_us)
{
	struct space_session *e = session_get(s, session, now_us);

	return e ? grant(s, e, want) : 0;
}

uint64_t space_grant_member(struct space *s, uint64_t session, uint64_t want, uint64_t now_us)
{
	struct space_session *e = session_get(s, session, now_us);

	if (!e)
		return 0;
	if (!e->member) {
		set_grant(s, e, 0);
		e->member = true;
	}
	return grant(s, e, want);
}

uint64_t space_grant_held(const struct space *s, uint64_t session)
{
	const struct space_session *e = session_find(s, session);

	return e ? e->grant : 0;
}

void space_peer(struct space *s, uint64_t session, int delta, uint64_t now_us)
{
	struct space_session *e =
		delta > 0 ? session_get(s, session, now_us) : session_find(s, session);

	if (!e)
		return;
	e->last_us = now_us;
	if (delta > 0)
		e->n_peers++;
	else if (e->n_peers)
		e->n_peers--;
}

void space_expire(struct space *s, uint64_t before_us)
{
	struct hmap_node *n = hmap_next(&s->sessions, NULL);

	while (n) {
		struct space_session *e = container_of(n, struct space_session, node);

		n = hmap_next(&s->sessions, n);
		if (e->n_peers || e->last_us >= before_us)
			continue;
		set_grant(s, e, 0);
		hmap_remove(&s->sessions, &e->node);
		free(e);
	}
}
