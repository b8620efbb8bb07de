/* SPDX-License-Identifier: Apache-2.0 */
/* Files with locks, and the waits for locks; see locks.h. */
#include "mds/lease/locks.h"

#include <stdlib.h>

#define OWNERS_MAX 256u /* visited by one search for a deadlock */
/* Per file: each change walks over all of them, on the loop that serves all clients. */
#define FILE_LOCKS_MAX 8192u
#define FILE_WAITS_MAX 1024u

struct locked_file {
	struct hmap_node node;
	struct ino ino;
	struct file_locks locks;
	struct list waits; /* struct lock_wait */
	uint32_t n_waits;
};

struct lock_wait {
	struct hmap_node node; /* of locks.waiters */
	struct list by_file;
	struct list news; /* in locks.news while its session is to be notified */
	struct locked_file *file;
	uint64_t session;
	struct file_lock want;
};

void locks_init(struct locks *ls, uint32_t n_max)
{
	*ls = (struct locks){.n_max = n_max};
	hmap_init(&ls->files, 64);
	hmap_init(&ls->waiters, 64);
	list_init(&ls->news);
	waitq_init(&ls->work);
}

static struct locked_file *find_file(const struct locks *ls, struct ino ino)
{
	struct hmap_node *n = hmap_find_id(&ls->files, ino.v);

	return n != NULL ? container_of(n, struct locked_file, node) : NULL;
}

static struct locked_file *get_file(struct locks *ls, struct ino ino)
{
	struct locked_file *f = find_file(ls, ino);

	if (f != NULL)
		return f;
	f = calloc(1, sizeof(*f));
	if (f == NULL)
		return NULL;
	f->ino = ino;
	file_locks_init(&f->locks);
	list_init(&f->waits);
	hmap_insert_id(&ls->files, &f->node, ino.v);
	return f;
}

static void trim_file(struct locks *ls, struct locked_file *f)
{
	if (f->locks.n > 0 || !list_empty(&f->waits))
		return;
	hmap_remove(&ls->files, &f->node);
	free(f);
}

static uint64_t owner_hash(uint64_t session, const struct file_lock *l)
{
	return hash_u64_2(session, l->owner);
}

static void wait_drop(struct locks *ls, struct lock_wait *w)
{
	hmap_remove(&ls->waiters, &w->node);
	list_remove(&w->by_file);
	list_remove(&w->news);
	w->file->n_waits--;
	ls->n_waits--;
	free(w);
}

void locks_fini(struct locks *ls)
{
	struct hmap_node *n = hmap_next(&ls->files, NULL);

	while (n != NULL) {
		struct hmap_node *next = hmap_next(&ls->files, n);
		struct locked_file *f = container_of(n, struct locked_file, node);

		while (!list_empty(&f->waits))
			wait_drop(ls, list_entry(f->waits.next, struct lock_wait, by_file));
		file_locks_fini(&f->locks);
		free(f);
		n = next;
	}
	hmap_fini(&ls->files);
	hmap_fini(&ls->waiters);
}

/* Called after locks were removed: queues a notice for each wait that no lock excludes now. */
static void look_for_news(struct locks *ls, struct locked_file *f)
{
	list_for_each (n, &f->waits) {
		struct lock_wait *w = list_entry(n, struct lock_wait, by_file);

		if (list_empty(&w->news) &&
		    file_locks_find(&f->locks, w->session, &w->want) == NULL)
			list_push(&ls->news, &w->news);
	}
	if (!list_empty(&ls->news))
		waitq_wake_all(&ls->work);
}

bool locks_next(struct locks *ls, uint64_t *ret_session, struct ino *ret_ino)
{
	struct list *n = list_pop(&ls->news);
	struct lock_wait *w;

	if (n == NULL)
		return false;
	w = list_entry(n, struct lock_wait, news);
	list_init(&w->news);
	*ret_session = w->session;
	*ret_ino = w->file->ino;
	return true;
}

/* ---- deadlocks ---- */

struct owner {
	uint64_t session, owner;
};

struct search {
	const struct locks *ls;
	struct owner seen[OWNERS_MAX];
	uint32_t n;
};

static void see(struct search *s, uint64_t session, const struct file_lock *l)
{
	for (uint32_t i = 0; i < s->n; i++)
		if (s->seen[i].session == session && s->seen[i].owner == l->owner)
			return;
	if (s->n < OWNERS_MAX)
		s->seen[s->n++] = (struct owner){session, l->owner};
}

/* Adds the owners of the locks that exclude the wanted one. */
static void see_holders(struct search *s, const struct locked_file *f, uint64_t session,
			const struct file_lock *want)
{
	list_for_each (n, &f->locks.held) {
		const struct held_lock *h = list_entry(n, struct held_lock, link);

		if (file_lock_forbids(h->session, &h->lock, session, want))
			see(s, h->session, &h->lock);
	}
}

/* True if waiting would close a circle: an owner of an excluding lock waits, directly or through
 * other owners, for this owner. Only for POSIX locks: a process that waits for one does nothing
 * else, while other owners may still unlock. Circles of more than OWNERS_MAX owners are not
 * found. */
static bool is_circle(const struct locks *ls, const struct locked_file *f, uint64_t session,
		      const struct file_lock *want)
{
	struct search s = {.ls = ls};

	if (want->kind != FILE_LOCK_POSIX)
		return false;
	see_holders(&s, f, session, want);
	for (uint32_t i = 0; i < s.n; i++) {
		struct owner o = s.seen[i];
		struct hmap_node *n = hmap_find(&ls->waiters, hash_u64_2(o.session, o.owner));

		if (o.session == session && o.owner == want->owner)
			return true;
		for (; n != NULL; n = hmap_find_next(n)) {
			const struct lock_wait *w = container_of(n, struct lock_wait, node);

			if (w->session == o.session && w->want.owner == o.owner &&
			    w->want.kind == FILE_LOCK_POSIX)
				see_holders(&s, w->file, w->session, &w->want);
		}
	}
	return false;
}

/* ---- waiting ---- */

static struct lock_wait *find_wait(const struct locked_file *f, uint64_t session,
				   const struct file_lock *want)
{
	list_for_each (n, &f->waits) {
		struct lock_wait *w = list_entry(n, struct lock_wait, by_file);

		if (w->session == session && file_lock_same_owner(&w->want, want) &&
		    w->want.first == want->first && w->want.last == want->last &&
		    w->want.type == want->type)
			return w;
	}
	return NULL;
}

static int wait_add(struct locks *ls, struct locked_file *f, uint64_t session,
		    const struct file_lock *want)
{
	struct lock_wait *w;

	if (is_circle(ls, f, session, want))
		return -LE_DEADLK;
	if (ls->n + ls->n_waits >= ls->n_max || f->n_waits >= FILE_WAITS_MAX)
		return -LE_NOLCK;
	w = malloc(sizeof(*w));
	if (w == NULL)
		return -LE_NOMEM;
	w->file = f;
	w->session = session;
	w->want = *want;
	list_init(&w->news);
	list_push(&f->waits, &w->by_file);
	hmap_insert(&ls->waiters, &w->node, owner_hash(session, want));
	f->n_waits++;
	ls->n_waits++;
	return -LE_LOCKED;
}

static void cancel(struct locks *ls, struct locked_file *f, uint64_t session,
		   const struct file_lock *want)
{
	struct lock_wait *w = find_wait(f, session, want);

	if (w != NULL)
		wait_drop(ls, w);
}

void locks_cancel(struct locks *ls, struct ino ino, uint64_t session, const struct file_lock *want)
{
	struct locked_file *f = find_file(ls, ino);

	if (f == NULL)
		return;
	cancel(ls, f, session, want);
	trim_file(ls, f);
}

/* ---- setting ---- */

static int grant(struct locks *ls, struct locked_file *f, uint64_t session,
		 const struct file_lock *want)
{
	uint32_t before = f->locks.n;
	/* Splitting a lock in two adds one, even when a range is unlocked. The count must not be
	 * too high, or clients could not set the same locks again, one by one, after a restart. */
	uint32_t more = (want->type != FILE_LOCK_NONE) +
			(uint32_t)file_locks_splits(&f->locks, session, want);

	if (more > 0 && (ls->n + ls->n_waits + more > ls->n_max || before + more > FILE_LOCKS_MAX))
		return -LE_NOLCK;
	TRY(file_locks_set(&f->locks, session, 0, want));
	ls->n += f->locks.n - before;
	look_for_news(ls, f);
	return 0;
}

int locks_set(struct locks *ls, struct ino ino, uint64_t session, const struct file_lock *want,
	      bool wait)
{
	struct locked_file *f =
		want->type == FILE_LOCK_NONE ? find_file(ls, ino) : get_file(ls, ino);
	int rc;

	if (f == NULL)
		return want->type == FILE_LOCK_NONE ? 0 : -LE_NOMEM;
	cancel(ls, f, session, want);
	if (file_locks_find(&f->locks, session, want) == NULL)
		rc = grant(ls, f, session, want);
	else
		rc = wait ? wait_add(ls, f, session, want) : -LE_LOCKED;
	trim_file(ls, f);
	return rc;
}

const struct file_lock *locks_find(const struct locks *ls, struct ino ino, uint64_t session,
				   const struct file_lock *want)
{
	const struct locked_file *f = find_file(ls, ino);
	const struct held_lock *h;

	if (f == NULL)
		return NULL;
	/* F_OFD_GETLK with F_UNLCK returns a lock of the caller (Linux 6.6). */
	h = want->type == FILE_LOCK_NONE ? file_locks_own(&f->locks, session, want)
					 : file_locks_find(&f->locks, session, want);
	return h != NULL ? &h->lock : NULL;
}

void locks_holders(const struct locks *ls, struct ino ino, uint64_t session,
		   const struct file_lock *want, void (*holder)(void *arg, uint64_t session),
		   void *arg)
{
	const struct locked_file *f = find_file(ls, ino);

	if (f == NULL)
		return;
	list_for_each (n, &f->locks.held) {
		const struct held_lock *h = list_entry(n, struct held_lock, link);

		if (file_lock_forbids(h->session, &h->lock, session, want))
			holder(arg, h->session);
	}
}

static void drop_waits_in_file(struct locks *ls, struct locked_file *f, uint64_t session)
{
	list_for_each_safe (n, &f->waits) {
		struct lock_wait *w = list_entry(n, struct lock_wait, by_file);

		if (w->session == session)
			wait_drop(ls, w);
	}
}

static void drop_in_file(struct locks *ls, struct locked_file *f, uint64_t session)
{
	drop_waits_in_file(ls, f, session);
	list_for_each_safe (n, &f->locks.held) {
		struct held_lock *h = list_entry(n, struct held_lock, link);

		if (h->session != session)
			continue;
		file_locks_drop(&f->locks, h);
		ls->n--;
	}
	look_for_news(ls, f);
}

uint32_t locks_each(const struct locks *ls, uint64_t session, uint32_t from,
		    bool (*each)(void *arg, struct ino ino, const struct file_lock *l), void *arg)
{
	uint32_t at = 0, n = 0;

	for (struct hmap_node *h = hmap_next(&ls->files, NULL); h != NULL;
	     h = hmap_next(&ls->files, h)) {
		const struct locked_file *f = container_of(h, struct locked_file, node);

		list_for_each (k, &f->locks.held) {
			const struct held_lock *l = list_entry(k, struct held_lock, link);

			if (l->session != session || at++ < from)
				continue;
			n++;
			if (each(arg, f->ino, &l->lock))
				return n;
		}
	}
	return n;
}

static void each_file(struct locks *ls, uint64_t session,
		      void (*fn)(struct locks *ls, struct locked_file *f, uint64_t session))
{
	struct hmap_node *n = hmap_next(&ls->files, NULL);

	while (n != NULL) {
		struct hmap_node *next = hmap_next(&ls->files, n);
		struct locked_file *f = container_of(n, struct locked_file, node);

		fn(ls, f, session);
		trim_file(ls, f);
		n = next;
	}
}

void locks_drop_waits(struct locks *ls, uint64_t session)
{
	each_file(ls, session, drop_waits_in_file);
}

void locks_drop_session(struct locks *ls, uint64_t session)
{
	each_file(ls, session, drop_in_file);
}
