#include "ossd/chunk/writers.h"

#include <stdlib.h>

#include "common/rt/loop.h"
#include "ossd/chunk/rows.h"

void writers_init(struct writers *w)
{
	*w = (struct writers){0};
	hmap_init(&w->map, 64);
}

void writers_fini(struct writers *w)
{
	struct hmap_node *n = hmap_next(&w->map, NULL);

	while (n) {
		struct writing_session *e = container_of(n, struct writing_session, node);

		n = hmap_next(&w->map, n);
		free(e);
	}
	hmap_fini(&w->map);
}

static struct writing_session *find(const struct writers *w, uint64_t session)
{
	struct hmap_node *n = hmap_find(&w->map, hash_u64(session));

	for (; n; n = hmap_find_next(n)) {
		struct writing_session *e = container_of(n, struct writing_session, node);

		if (e->session == session)
			return e;
	}
	return NULL;
}

static struct writing_session *add(struct writers *w, uint64_t session)
{
	struct writing_session *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->session = session;
	hmap_insert(&w->map, &e->node, hash_u64(session));
	return e;
}

static void owe(struct writers *w, struct writing_session *e, enum writer_owes owes)
{
	w->n_awaited += (owes != OWES_NOTHING) - (e->owes != OWES_NOTHING);
	w->n_seen += (owes == OWES_SEEN) - (e->owes == OWES_SEEN);
	e->owes = owes;
}

static void set_late(struct writers *w, struct writing_session *e, enum writer_late late)
{
	w->n_late += (late != NOT_LATE) - (e->late != NOT_LATE);
	e->late = late;
}

int writers_load(struct writers *w, const void *key, size_t key_len, size_t value_len)
{
	struct writing_session *e;
	uint64_t session;

	TRY(writer_row_decode(key, key_len, &session));
	e = add(w, session);
	if (!e)
		return -LE_NOMEM;
	if (value_len > 0)
		set_late(w, e, LATE_BEFORE);
	else
		owe(w, e, OWES_SEEN);
	return 0;
}

/* Its value is empty, or one byte: it is late. */
static void put_row(const struct writing_session *e, struct kv_batch *b)
{
	uint8_t key[WRITER_ROW_SIZE];

	writer_row_encode(e->session, key);
	kv_batch_put(b, key, sizeof(key), "L", e->late != NOT_LATE);
}

static int get(struct writers *w, struct group_commit *g, uint64_t session,
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

int writers_know(struct writers *w, struct group_commit *g, uint64_t session)
{
	struct writing_session *e;

	TRY(get(w, g, session, &e));
	return wait_known(e, g);
}

int writers_begin(struct writers *w, struct group_commit *g, uint64_t session,
		  struct writing_session **ret_session)
{
	struct writing_session *e;
	int rc;

	*ret_session = NULL;
	TRY(get(w, g, session, &e));
	e->n_busy++;
	rc = wait_known(e, g);
	if (rc < 0)
		writers_end(e);
	else
		*ret_session = e;
	return rc;
}

void writers_end(struct writing_session *s)
{
	if (s)
		s->n_busy--;
}

bool writers_any_busy(const struct writers *w, bool (*which)(void *arg, uint64_t session),
		      void *arg)
{
	for (struct hmap_node *n = hmap_next(&w->map, NULL); n; n = hmap_next(&w->map, n)) {
		const struct writing_session *e = container_of(n, struct writing_session, node);

		if (e->n_busy && which(arg, e->session))
			return true;
	}
	return false;
}

bool writers_awaits(const struct writers *w, uint64_t session)
{
	const struct writing_session *e = find(w, session);

	return e && e->owes != OWES_NOTHING;
}

enum writer_late writers_late(const struct writers *w, uint64_t session)
{
	const struct writing_session *e = find(w, session);

	return e ? e->late : NOT_LATE;
}

bool writers_lost(const struct writers *w, uint64_t session)
{
	const struct writing_session *e = find(w, session);

	return e && (e->owes == OWES_SEEN || e->late != NOT_LATE);
}

uint64_t writers_returned(struct writers *w, struct group_commit *g, uint64_t session,
			  enum writer_owes owes)
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

void writers_all_returned(struct writers *w)
{
	for (struct hmap_node *n = hmap_next(&w->map, NULL); n; n = hmap_next(&w->map, n))
		owe(w, container_of(n, struct writing_session, node), OWES_NOTHING);
}

uint64_t writers_all_late(struct writers *w, struct group_commit *g)
{
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

uint32_t writers_expire(struct writers *w, struct kv_batch *b, uint64_t before_us, uint32_t max,
			bool (*alive)(void *arg, uint64_t session), void *arg)
{
	struct hmap_node *n = hmap_next(&w->map, NULL);
	uint8_t key[WRITER_ROW_SIZE];
	uint32_t n_dropped = 0;

	while (n && n_dropped < max) {
		struct writing_session *e = container_of(n, struct writing_session, node);

		n = hmap_next(&w->map, n);
		if (e->n_busy || e->last_us >= before_us || alive(arg, e->session))
			continue;
		writer_row_encode(e->session, key);
		kv_batch_delete(b, key, sizeof(key));
		owe(w, e, OWES_NOTHING);
		set_late(w, e, NOT_LATE);
		hmap_remove(&w->map, &e->node);
		free(e);
		n_dropped++;
	}
	return n_dropped;
}
