/* SPDX-License-Identifier: Apache-2.0 */
/* The table of leases; see leases.h. */
#include "mds/lease/leases.h"

#include <stdlib.h>

#include "common/rt/loop.h"

#define CONTENDED_FIRST_MS 50u
#define CONTENDED_MAX_MS   3200u

void leases_init(struct leases *ls, uint32_t n_max)
{
	memset(ls, 0, sizeof(*ls));
	ls->n_max = n_max;
	hmap_init(&ls->map, 1024);
}

struct lease_file *lease_file_find(const struct leases *ls, struct ino ino)
{
	struct hmap_node *n = hmap_find_id(&ls->map, ino.v);

	return n != NULL ? container_of(n, struct lease_file, node) : NULL;
}

static struct lease_file *get_file(struct leases *ls, struct ino ino)
{
	struct lease_file *f = lease_file_find(ls, ino);

	if (f != NULL)
		return f;
	f = calloc(1, sizeof(*f));
	if (f == NULL)
		return NULL;
	f->ino = ino;
	list_init(&f->leases);
	waitq_init(&f->q);
	hmap_insert_id(&ls->map, &f->node, ino.v);
	return f;
}

static void trim_file(struct leases *ls, struct lease_file *f)
{
	if (f->n_blocked > 0 || !list_empty(&f->leases))
		return;
	ASSERT(waitq_empty(&f->q));
	hmap_remove(&ls->map, &f->node);
	free(f);
}

static struct lease *find_in(const struct lease_file *f, const struct session *se)
{
	list_for_each (n, &f->leases) {
		struct lease *l = list_entry(n, struct lease, by_file);

		if (l->session == se)
			return l;
	}
	return NULL;
}

struct lease *lease_find(const struct leases *ls, struct ino ino, const struct session *se)
{
	const struct lease_file *f = lease_file_find(ls, ino);

	return f != NULL ? find_in(f, se) : NULL;
}

unsigned lease_modes(const struct leases *ls, struct ino ino, const struct session *se)
{
	const struct lease *l = lease_find(ls, ino, se);

	return l != NULL ? l->modes : 0;
}

bool lease_foreign(const struct leases *ls, struct ino ino, const struct session *se,
		   unsigned modes)
{
	const struct lease_file *f = lease_file_find(ls, ino);

	if (f == NULL)
		return false;
	list_for_each (n, &f->leases) {
		const struct lease *l = list_entry(n, struct lease, by_file);

		if (l->session != se && (l->modes & modes) != 0)
			return true;
	}
	return false;
}

static struct lease_contention *contention_of(struct leases *ls, struct ino ino)
{
	return &ls->contentions[hash_u64(ino.v) % LEASE_CONTENDED_MAX];
}

void lease_mark_contended(struct leases *ls, struct ino ino)
{
	struct lease_contention *q = contention_of(ls, ino);
	uint64_t now = loop_now_us();

	/* Without a recall for four times the last refusal, start again with the shortest one. */
	if (!ino_equal(q->ino, ino) || now > q->until_us + 4000ull * q->ms)
		*q = (struct lease_contention){.ino = ino, .ms = CONTENDED_FIRST_MS};
	else if (q->ms < CONTENDED_MAX_MS)
		q->ms *= 2;
	q->until_us = now + 1000ull * q->ms;
}

static bool is_contended(struct leases *ls, struct ino ino)
{
	const struct lease_contention *q = contention_of(ls, ino);

	return ino_equal(q->ino, ino) && loop_now_us() < q->until_us;
}

/* The lease of the session, a new one without modes if it has none. NULL: no memory. */
static struct lease *get_lease(struct leases *ls, struct session *se, struct ino ino)
{
	struct lease_file *f = get_file(ls, ino);
	struct lease *l = f != NULL ? find_in(f, se) : NULL;

	if (f == NULL || l != NULL)
		return l;
	l = calloc(1, sizeof(*l));
	if (l == NULL) {
		trim_file(ls, f);
		return NULL;
	}
	l->file = f;
	l->session = se;
	list_push(&f->leases, &l->by_file);
	list_push(&se->leases, &l->by_session);
	ls->n++;
	return l;
}

static bool is_one_mode(unsigned modes)
{
	return modes != 0 && (modes & (modes - 1)) == 0;
}

/* One caching mode, LEASE_APPEND, or both. */
static void check_lease(const struct lease *l)
{
	unsigned caching = l->modes & LEASE_CACHING;

	ASSERT(l->modes != 0 && (l->modes & ~(unsigned)(LEASE_CACHING | LEASE_APPEND)) == 0);
	ASSERT(caching == 0 || is_one_mode(caching));
}

bool lease_give(struct leases *ls, struct session *se, struct ino ino, enum lease_mode caching)
{
	struct lease_file *f = lease_file_find(ls, ino);
	struct lease *l = f != NULL ? find_in(f, se) : NULL;
	bool has = l != NULL && (l->modes & LEASE_CACHING) != 0;

	ASSERT(is_one_mode(caching) && (caching & LEASE_CACHING) != 0);
	if (se->ended || (f != NULL && f->n_blocked > 0) ||
	    (!has && is_contended(ls, ino)) || (l == NULL && ls->n >= ls->n_max))
		return false;
	l = get_lease(ls, se, ino);
	if (l == NULL)
		return false;
	l->modes = (uint8_t)((l->modes & LEASE_APPEND) | caching);
	check_lease(l);
	return !l->recalling;
}

int lease_give_append(struct leases *ls, struct session *se, struct ino ino)
{
	struct lease *l;

	if (se->ended)
		return -LE_SESSION_GONE;
	l = get_lease(ls, se, ino);
	if (l == NULL)
		return -LE_NOMEM;
	l->modes |= LEASE_APPEND;
	check_lease(l);
	return 0;
}

void lease_end(struct leases *ls, struct lease *l, unsigned modes)
{
	struct lease_file *f = l->file;

	check_lease(l);
	l->modes &= (uint8_t)~modes;
	if (l->modes != 0) {
		waitq_wake_all(&f->q);
		return;
	}
	ASSERT(ls->n > 0);
	list_remove(&l->by_file);
	list_remove(&l->by_session);
	free(l);
	ls->n--;
	waitq_wake_all(&f->q);
	trim_file(ls, f);
}

bool leases_drop_some(struct leases *ls, struct session *se, uint32_t n_max)
{
	while (n_max-- > 0 && !list_empty(&se->leases))
		lease_end(ls, list_entry(se->leases.next, struct lease, by_session), ~0u);
	return !list_empty(&se->leases);
}

void leases_drop_inode(struct leases *ls, struct ino ino)
{
	struct lease_file *f;

	while ((f = lease_file_find(ls, ino)) != NULL && !list_empty(&f->leases))
		lease_end(ls, list_entry(f->leases.next, struct lease, by_file), ~0u);
}

struct lease_file *leases_block(struct leases *ls, struct ino ino)
{
	struct lease_file *f = get_file(ls, ino);

	if (f != NULL)
		f->n_blocked++;
	return f;
}

void leases_unblock(struct leases *ls, struct lease_file *f)
{
	ASSERT(f->n_blocked > 0);
	f->n_blocked--;
	trim_file(ls, f);
}

void leases_fini(struct leases *ls)
{
	struct hmap_node *n = hmap_next(&ls->map, NULL);

	while (n != NULL) {
		struct lease_file *f = container_of(n, struct lease_file, node);

		n = hmap_next(&ls->map, n);
		list_for_each_safe (k, &f->leases) {
			struct lease *l = list_entry(k, struct lease, by_file);

			check_lease(l);
			list_remove(&l->by_session);
			free(l);
			ls->n--;
		}
		free(f);
	}
	ASSERT(ls->n == 0);
	hmap_fini(&ls->map);
}
