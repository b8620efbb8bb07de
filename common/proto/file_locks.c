/* SPDX-License-Identifier: Apache-2.0 */
/* A list of ranges; see file_locks.h. */
#include "common/proto/file_locks.h"

#include <stdlib.h>

void file_locks_init(struct file_locks *fl)
{
	list_init(&fl->held);
	fl->n = 0;
}

void file_locks_drop(struct file_locks *fl, struct held_lock *h)
{
	list_remove(&h->link);
	fl->n--;
	free(h);
}

void file_locks_fini(struct file_locks *fl)
{
	while (!list_empty(&fl->held))
		file_locks_drop(fl, list_entry(fl->held.next, struct held_lock, link));
}

bool file_lock_valid(const struct file_lock *l)
{
	return l->kind <= FILE_LOCK_FLOCK && l->type <= FILE_LOCK_NONE && l->first <= l->last;
}

bool file_lock_same_owner(const struct file_lock *a, const struct file_lock *b)
{
	return a->owner == b->owner && a->kind == b->kind;
}

bool file_lock_forbids(uint64_t h_session, const struct file_lock *held, uint64_t session,
		       const struct file_lock *want)
{
	if (h_session == session && file_lock_same_owner(held, want))
		return false;
	return want->type != FILE_LOCK_NONE && file_lock_overlap(held, want) &&
	       (held->type == FILE_LOCK_WRITE || want->type == FILE_LOCK_WRITE);
}

const struct held_lock *file_locks_find(const struct file_locks *fl, uint64_t session,
					const struct file_lock *want)
{
	const struct held_lock *first = NULL;

	list_for_each (n, &fl->held) {
		const struct held_lock *h = list_entry(n, struct held_lock, link);

		if (file_lock_forbids(h->session, &h->lock, session, want) &&
		    (first == NULL || h->lock.first < first->lock.first))
			first = h;
	}
	return first;
}

const struct held_lock *file_locks_own(const struct file_locks *fl, uint64_t session,
				       const struct file_lock *range)
{
	list_for_each (n, &fl->held) {
		const struct held_lock *h = list_entry(n, struct held_lock, link);

		if (h->session == session && file_lock_same_owner(&h->lock, range) &&
		    file_lock_overlap(&h->lock, range))
			return h;
	}
	return NULL;
}

bool file_locks_splits(const struct file_locks *fl, uint64_t session, const struct file_lock *range)
{
	const struct held_lock *h = file_locks_own(fl, session, range);

	return h != NULL && h->lock.first < range->first && h->lock.last > range->last;
}

static struct held_lock *add(struct file_locks *fl, struct held_lock *h)
{
	list_push(&fl->held, &h->link);
	fl->n++;
	return h;
}

/* Removes the range from h. A part of h after the range is stored in *rest, which is then used
 * up. */
static void cut(struct file_locks *fl, struct held_lock *h, const struct file_lock *range,
		struct held_lock **rest)
{
	bool before = h->lock.first<range->first, behind = h->lock.last> range->last;

	if (before && behind) {
		(*rest)->session = h->session;
		(*rest)->via = h->via;
		(*rest)->lock = h->lock;
		(*rest)->lock.first = range->last + 1;
		(void)add(fl, *rest);
		*rest = NULL;
	}
	if (before)
		h->lock.last = range->first - 1;
	else if (behind)
		h->lock.first = range->last + 1;
	else
		file_locks_drop(fl, h);
}

/* Returns whether the locks have one type and no byte lies between them. */
static bool is_neighbour(const struct file_lock *a, const struct file_lock *b)
{
	return a->type == b->type && (a->last == UINT64_MAX || a->last + 1 >= b->first) &&
	       (b->last == UINT64_MAX || b->last + 1 >= a->first);
}

int file_locks_set(struct file_locks *fl, uint64_t session, uint64_t via,
		   const struct file_lock *want)
{
	struct held_lock *new = malloc(sizeof(*new)), *rest = malloc(sizeof(*rest));

	if (new == NULL || rest == NULL) {
		free(new);
		free(rest);
		return -LE_NOMEM;
	}
	new->session = session;
	new->via = via;
	new->lock = *want;
	list_for_each_safe (n, &fl->held) {
		struct held_lock *h = list_entry(n, struct held_lock, link);

		if (h->session != session || !file_lock_same_owner(&h->lock, want))
			continue;
		if (is_neighbour(&h->lock, want)) {
			if (h->lock.first < new->lock.first)
				new->lock.first = h->lock.first;
			if (h->lock.last > new->lock.last)
				new->lock.last = h->lock.last;
			file_locks_drop(fl, h);
		} else if (file_lock_overlap(&h->lock, want)) {
			cut(fl, h, want, &rest);
		}
	}
	free(rest);
	if (want->type == FILE_LOCK_NONE)
		free(new);
	else
		(void)add(fl, new);
	return 0;
}
