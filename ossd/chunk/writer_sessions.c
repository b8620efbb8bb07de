/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chunk/writer_sessions.h"

#include <stdlib.h>

#include "common/base/planted_bug.h"
#include "common/rt/loop.h"
#include "ossd/chunk/keys.h"

void writer_sessions_init(struct writer_sessions *w)
{
	*w = (struct writer_sessions){0};
	hmap_init(&w->map, 64);
}

void writer_sessions_fini(struct writer_sessions *w)
{
	struct hmap_node *n = hmap_next(&w->map, NULL);

	while (n) {
		struct writing_session *e = container_of(n, struct writing_session, node);

		n = hmap_next(&w->map, n);
		free(e);
	}
	hmap_fini(&w->map);
}

static struct writing_session *find(const struct writer_sessions *w, uint64_t session)
{
	struct hmap_node *n = hmap_find_id(&w->map, session);

	return n ? container_of(n, struct writing_session, node) : NULL;
}

static struct writing_session *add(struct writer_sessions *w, uint64_t session)
{
	struct writing_session *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->session = session;
	hmap_insert_id(&w->map, &e->node, session);
	return e;
}

static void owe(struct writer_sessions *w, struct writing_session *e, enum writer_owes owes)
{
	w->n_awaited += (owes != OWES_NOTHING) - (e->owes != OWES_NOTHING);
	if (PLANTED_BUG(OSS_COUNT_OFF) && owes == OWES_NOTHING && e->owes != OWES_NOTHING)
		w->n_awaited--;
	w->n_seen += (owes == OWES_SEEN) - (e->owes == OWES_SEEN);
	ASSERT(w->n_seen <= w->n_awaited && w->n_awaited <= w->map.n);
	e->owes = owes;
}

static void set_late(struct writer_sessions *w, struct writing_session *e, enum writer_late late)
{
	w->n_late += (late != NOT_LATE) - (e->late != NOT_LATE);
	ASSERT(w->n_late <= w->map.n);
	e->late = late;
}

int writer_sessions_load(struct writer_sessions *w, const void *key, size_t key_len,
			 size_t value_len)
{
	struct writing_session *e;
	uint64_t session;

	TRY(writer_key_decode(key, key_len, &session));
	e = add(w, session);
	if (!e)
		return -LE_NOMEM;
	if (value_len > 0)
		set_late(w, e, LATE_BEFORE);
	else
		owe(w, e, OWES_SEEN);
	return 0;
}

/* The value is empty, or one byte if the session is late. */
static void put_row(const struct writing_session *e, struct kv_batch *b)
{
	uint8_t key[WRITER_KEY_SIZE];

	writer_key_encode(e->session, key);
	kv_batch_put(b, key, sizeof(key), "L", e->late != NOT_LATE);
}

static int get(struct writer_sessions *w, struct group_commit *g, uint64_t session,
	       struct writing_session **ret_session)
{
	struct writing_session *e = find(w, session);

	if (!e) {
		TRY(g->status);
		e = add(w, session);
		if (!e)
			return -LE_NOMEM;
		put_row(e, group_commit_batch(g));
		e->group = group_commit_join(g, NULL, false);
	}
	e->last_us = loop_now_us();
	*ret_session = e;
	return 0;
}

static int wait_known(const struct writing_session *e, struct group_commit *g)
{
	return e->group <= g->durable ? 0 : group_commit_wait(g, e->group);
}

int writer_sessions_know(struct writer_sessions *w, struct group_commit *g, uint64_t session)
{
	struct writing_session *e;

	TRY(get(w, g, session, &e));
	return wait_known(e, g);
}

int writer_sessions_begin(struct writer_sessions *w, struct group_commit *g, uint64_t session,
		  struct writing_session **ret_session)
{
	struct writing_session *e;
	int rc;

	*ret_session = NULL;
	TRY(get(w, g, session, &e));
	e->n_busy++;
	rc = wait_known(e, g);
	if (rc < 0)
		writer_sessions_end(e);
	else
		*ret_session = e;
	return rc;
}

void writer_sessions_end(struct writing_session *s)
{
	if (!s)
		return;
	ASSERT(s->n_busy > 0);
	s->n_busy--;
}

bool writer_sessions_any_busy(const struct writer_sessions *w,
			      bool (*which)(void *arg, uint64_t session), void *arg)
{
	for (struct hmap_node *n = hmap_next(&w->map, NULL); n; n = hmap_next(&w->map, n)) {
		const struct writing_session *e = container_of(n, struct writing_session, node);

		if (e->n_busy && which(arg, e->session))
			return true;
	}
	return false;
}

bool writer_sessions_awaits(const struct writer_sessions *w, uint64_t session)
{
	const struct writing_session *e = find(w, session);

	return e && e->owes != OWES_NOTHING;
}

enum writer_late writer_sessions_late(const struct writer_sessions *w, uint64_t session)
{
	const struct writing_session *e = find(w, session);

	return e ? e->late : NOT_LATE;
}

bool writer_sessions_lost(const struct writer_sessions *w, uint64_t session)
{
	const struct writing_session *e = find(w, session);

	return e && (e->owes == OWES_SEEN || e->late != NOT_LATE);
}

uint64_t writer_sessions_returned(struct writer_sessions *w, struct group_commit *g,
				  uint64_t session, enum writer_owes owes)
{
	struct writing_session *e = find(w, session);

	if (e && owes < e->owes)
		owe(w, e, owes);
	if (!e || owes != OWES_NOTHING || e->late == NOT_LATE)
		return 0;
	set_late(w, e, NOT_LATE);
	if (g->status < 0)
		return 0;
	put_row(e, group_commit_batch(g));
	return group_commit_join(g, NULL, false);
}

void writer_sessions_all_returned(struct writer_sessions *w)
{
	for (struct hmap_node *n = hmap_next(&w->map, NULL); n; n = hmap_next(&w->map, n))
		owe(w, container_of(n, struct writing_session, node), OWES_NOTHING);
}

uint64_t writer_sessions_all_late(struct writer_sessions *w, struct group_commit *g)
{
	NO_YIELD();

	for (struct hmap_node *n = hmap_next(&w->map, NULL); n; n = hmap_next(&w->map, n)) {
		struct writing_session *e = container_of(n, struct writing_session, node);

		if (e->owes == OWES_NOTHING)
			continue;
		owe(w, e, OWES_NOTHING);
		set_late(w, e, LATE);
		if (g->status == 0)
			put_row(e, group_commit_batch(g));
	}
	return g->status == 0 ? group_commit_join(g, NULL, false) : 0;
}

uint32_t writer_sessions_expire(struct writer_sessions *w, struct kv_batch *b, uint64_t before_us,
				uint32_t max, bool (*alive)(void *arg, uint64_t session), void *arg)
{
	struct hmap_node *n = hmap_next(&w->map, NULL);
	uint8_t key[WRITER_KEY_SIZE];
	uint32_t n_dropped = 0;

	while (n && n_dropped < max) {
		struct writing_session *e = container_of(n, struct writing_session, node);

		n = hmap_next(&w->map, n);
		if (e->n_busy || e->last_us >= before_us || alive(arg, e->session))
			continue;
		writer_key_encode(e->session, key);
		kv_batch_delete(b, key, sizeof(key));
		owe(w, e, OWES_NOTHING);
		set_late(w, e, NOT_LATE);
		hmap_remove(&w->map, &e->node);
		free(e);
		n_dropped++;
	}
	return n_dropped;
}
