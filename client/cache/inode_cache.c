/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cache/inode_cache.h"

#include <stdlib.h>

#include "client/cache/prefetch_cache.h"
#include "client/client.h"
#include "client/servers/restart_log.h"
#include "common/base/assert.h"
#include "common/base/hmap.h"
#include "common/base/list.h"
#include "common/proto/file_locks.h"
#include "common/proto/types.h"
#include "common/rt/fiber.h"

#define FREE_INODES_MAX 1024u
#define FREE_DATA_MAX   256u
#define EVICT_AT_ONCE   4

void inode_table_init(struct client *c, void (*on_evict)(struct client *c, struct inode *i))
{
	struct inode_table *t = &c->inodes;

	hmap_init(&t->map, 1024);
	t->on_evict = on_evict;
	list_init(&t->lru[0]);
	list_init(&t->lru[1]);
	list_init(&t->open);
	list_init(&t->free);
	list_init(&t->free_data);
	list_init(&t->deferred);
}

static void inode_destroy(struct client *c, struct inode *i)
{
	struct inode_table *t = &c->inodes;

	t->on_evict(c, i);
	hmap_remove(&t->map, &i->node);
	if (t->n_free < FREE_INODES_MAX) {
		t->n_free++;
		list_push_front(&t->free, &i->lru);
	} else {
		free(i);
	}
}

static void free_list(struct list *l, size_t offset)
{
	struct list *n;

	while ((n = list_pop(l)) != NULL)
		free((char *)n - offset);
}

void inode_table_fini(struct client *c)
{
	struct inode_table *t = &c->inodes;
	struct hmap_node *n = hmap_next(&t->map, NULL);

	while (n != NULL) {
		struct inode *i = container_of(n, struct inode, node);

		n = hmap_next(&t->map, n);
		t->on_evict(c, i);
		free(i->data);
		free(i);
	}
	hmap_fini(&t->map);
	free_list(&t->free, offsetof(struct inode, lru));
	free_list(&t->free_data, offsetof(struct inode_io, open_link));
}

static void unused_remove(struct inode_table *t, struct inode *i)
{
	list_remove(&i->lru);
	t->n_unused[i->opened]--;
}

struct inode *inode_peek(struct client *c, struct ino ino)
{
	struct hmap_node *n = hmap_find(&c->inodes.map, hash_u64(ino.v));

	for (; n != NULL; n = hmap_find_next(n)) {
		struct inode *i = container_of(n, struct inode, node);

		if (!ino_equal(i->ino, ino))
			continue;
		if (i->refs++ == 0)
			unused_remove(&c->inodes, i);
		return i;
	}
	return NULL;
}

/* Evicts unused inodes above the limit, a few in each call, so that no call pays for all. */
static void evict(struct client *c)
{
	struct inode_table *t = &c->inodes;
	uint32_t max = c->params.inodes_max;

	for (int n = 0; n < EVICT_AT_ONCE && t->n_unused[0] + t->n_unused[1] > max; n++) {
		struct list *lru = &t->lru[t->n_unused[0] > max / 2 ? 0 : 1];
		struct inode *i = list_entry(lru->next, struct inode, lru);

		unused_remove(t, i);
		inode_destroy(c, i);
	}
}

struct inode *inode_get(struct client *c, struct ino ino)
{
	struct inode *i = inode_peek(c, ino);
	struct list *l;

	if (i != NULL)
		return i;
	evict(c);
	l = list_pop(&c->inodes.free);
	if (l != NULL) {
		c->inodes.n_free--;
		i = list_entry(l, struct inode, lru);
	} else {
		i = malloc(sizeof(*i));
		if (i == NULL)
			return NULL;
	}
	*i = (struct inode){.ino = ino, .refs = 1, .kernel_until_us = c->kernel_lost_us};
	list_init(&i->lru);
	hmap_insert(&c->inodes.map, &i->node, hash_u64(ino.v));
	return i;
}

void inode_put(struct client *c, struct inode *i)
{
	ASSERT(i->refs > 0);
	if (i->refs == 1)
		inode_data_trim(c, i);
	if (--i->refs > 0)
		return;
	list_push(&c->inodes.lru[i->opened], &i->lru);
	c->inodes.n_unused[i->opened]++;
}

void inode_put_later(struct client *c, struct inode *i)
{
	/* The caller's walk is at this inode's entry in the list, which therefore must stay. */
	if (i->refs > 1)
		i->refs--;
	else
		list_push(&c->inodes.deferred, &i->lru);
}

void inode_put_deferred(struct client *c)
{
	struct list *l;

	while ((l = list_pop(&c->inodes.deferred)) != NULL)
		inode_put(c, list_entry(l, struct inode, lru));
}

int inode_data(struct client *c, struct inode *i, struct inode_io **ret_data)
{
	struct inode_io *d = i->data;
	struct list *l;

	if (d != NULL) {
		*ret_data = d;
		return 0;
	}
	l = list_pop(&c->inodes.free_data);
	if (l != NULL) {
		c->inodes.n_free_data--;
		d = list_entry(l, struct inode_io, open_link);
	} else {
		d = malloc(sizeof(*d));
		if (d == NULL)
			return -LE_NOMEM;
	}
	*d = (struct inode_io){.inode = i, .c = c, .size = i->attr.size, .durable_end = 0};
	waitq_init(&d->closing_q);
	waitq_init(&d->write_q);
	fmutex_init(&d->append_lock);
	waitq_init(&d->append_q);
	waitq_init(&d->lock_q);
	waitq_init(&d->lock_turn);
	file_locks_init(&d->locks);
	fmutex_init(&d->cap_lock);
	list_init(&d->writes);
	list_init(&d->closes);
	list_init(&d->units);
	list_init(&d->coalesce.link);
	list_push(&c->inodes.open, &d->open_link);
	i->data = d;
	*ret_data = d;
	return 0;
}

void inode_data_trim(struct client *c, struct inode *i)
{
	struct inode_io *d = i->data;

	if (d == NULL || d->n_read + d->n_write + d->n_closing + d->n_delegated > 0 ||
	    d->coalesce.slot != NULL || !list_empty(&d->writes) || i->refs > 1)
		return;
	ra_drop_all(d);
	if (d->n_units > 0)
		return; /* fetches in flight refer to it; they trim it when they end */
	file_locks_fini(&d->locks);
	restart_mark_clear(d);
	list_remove(&d->open_link);
	i->data = NULL;
	if (c->inodes.n_free_data < FREE_DATA_MAX) {
		c->inodes.n_free_data++;
		list_push_front(&c->inodes.free_data, &d->open_link);
	} else {
		free(d);
	}
}
