/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cache/dentry_cache.h"

#include <stdlib.h>
#include <string.h>

#include "client/cache/bloom_filter.h"
#include "client/cache/inode_cache.h"
#include "client/cache/lease.h"
#include "client/client.h"
#include "common/base/assert.h"
#include "common/base/checksum.h"
#include "common/base/hmap.h"
#include "common/base/list.h"
#include "common/proto/types.h"
#include "common/proto/wire.h"

#define FILTER_SPACE_MIN 4096u

struct name_entry {
	struct hmap_node node;
	struct list lru;
	struct ino dir, ino;
	uint64_t told_us; /* when the request was sent */
	uint64_t change;  /* the directory's change counter in the reply */
	uint32_t len;
	char name[];
};

uint64_t dentry_cache_bytes(const struct names *ns)
{
	return ns->n * sizeof(struct name_entry) + (ns->map.mask + 1) * sizeof(void *);
}

void dentry_cache_init(struct names *ns, uint32_t names_max)
{
	ns->filter_space = (size_t)names_max * BLOOM_FILTER_BYTES;
	if (ns->filter_space < FILTER_SPACE_MIN)
		ns->filter_space = FILTER_SPACE_MIN;
	hmap_init(&ns->map, 1024);
	list_init(&ns->lru);
	list_init(&ns->changing);
}

static void drop(struct names *ns, struct name_entry *e)
{
	hmap_remove(&ns->map, &e->node);
	list_remove(&e->lru);
	ns->n--;
	free(e);
}

void dentry_cache_fini(struct names *ns)
{
	if (ns->lru.next == NULL)
		return;
	while (!list_empty(&ns->lru))
		drop(ns, list_entry(ns->lru.next, struct name_entry, lru));
	hmap_fini(&ns->map);
}

static uint64_t hash(struct ino dir, struct bytes name)
{
	return hash_u64_2(dir.v, checksum64(name.data, name.len));
}

static struct name_entry *find(const struct names *ns, struct ino dir, struct bytes name)
{
	struct hmap_node *n = hmap_find(&ns->map, hash(dir, name));

	for (; n != NULL; n = hmap_find_next(n)) {
		struct name_entry *e = container_of(n, struct name_entry, node);

		if (ino_equal(e->dir, dir) && e->len == name.len &&
		    memcmp(e->name, name.data, name.len) == 0)
			return e;
	}
	return NULL;
}

void dentry_cache_set_incomplete(struct client *c, struct inode *dir)
{
	dir->complete_us = 0;
	bloom_filter_free(&dir->names_gone, &c->names.filter_space);
}

static bool is_complete(const struct client *c, const struct inode *dir)
{
	return dir->complete_us != 0 && lease_held_since(c, dir, dir->complete_us);
}

/* Records that the name may exist although it is not cached. */
static void may_be_there(struct client *c, struct inode *dir, uint64_t hash)
{
	if (is_complete(c, dir) &&
	    bloom_filter_add(&dir->names_gone, hash, &c->names.filter_space) == 0)
		return;
	dentry_cache_set_incomplete(c, dir);
}

/* Notes that a name changed by this client, or named in a reply, is not in the cache: older
 * listings are not recorded. */
static void lost(struct inode *dir, uint64_t change)
{
	if (change > dir->names_lost)
		dir->names_lost = change;
}

void dentry_cache_mark_unknown(struct inode *dir)
{
	lost(dir, dir->attr.change + 1);
}

void dentry_cache_change_begin(struct client *c, struct name_change *nc, struct ino dir,
			       struct bytes name)
{
	nc->hash = hash(dir, name);
	list_push(&c->names.changing, &nc->link);
}

void dentry_cache_change_end(struct name_change *nc)
{
	list_remove(&nc->link);
}

/* Returns true if the name, or the directory as a whole, is being changed by this client. */
static bool is_changing(const struct client *c, const struct inode *dir, struct bytes name)
{
	uint64_t h;

	if (dir->n_changing == 0)
		return false;
	if (dir->n_changing > dir->n_names_changing)
		return true;
	h = hash(dir->ino, name);
	list_for_each (l, &c->names.changing)
		if (list_entry(l, struct name_change, link)->hash == h)
			return true;
	return false;
}

bool dentry_cache_find(struct client *c, const struct inode *dir, struct bytes name,
		       struct ino *ret_ino)
{
	struct names *ns = &c->names;
	struct name_entry *e;

	if (!lease_held(c, dir) || is_changing(c, dir, name))
		return false;
	e = find(ns, dir->ino, name);
	if (e == NULL) {
		*ret_ino = (struct ino){0};
		return is_complete(c, dir) &&
		       !bloom_filter_may_have(dir->names_gone, hash(dir->ino, name));
	}
	if (!lease_held_since(c, dir, e->told_us)) {
		drop(ns, e);
		return false;
	}
	list_remove(&e->lru);
	list_push(&ns->lru, &e->lru);
	*ret_ino = e->ino;
	return true;
}

bool dentry_cache_peek(const struct client *c, struct ino dir, struct bytes name,
		       struct ino *ret_ino)
{
	const struct name_entry *e = find(&c->names, dir, name);

	if (e != NULL)
		*ret_ino = e->ino;
	return e != NULL;
}

static void evict(struct client *c)
{
	struct name_entry *e = list_entry(c->names.lru.next, struct name_entry, lru);
	struct inode *dir = inode_peek(c, e->dir);

	if (dir != NULL) {
		if (e->ino.v != 0)
			may_be_there(c, dir, e->node.hash);
		lost(dir, e->change);
		inode_put(c, dir);
	}
	drop(&c->names, e);
}

static struct name_entry *make(struct client *c, struct ino dir, struct bytes name)
{
	struct names *ns = &c->names;
	struct name_entry *e;

	if (ns->n >= c->params.names_max)
		evict(c);
	e = malloc(sizeof(*e) + name.len);
	if (e == NULL)
		return NULL;
	*e = (struct name_entry){.dir = dir, .len = name.len};
	memcpy(e->name, name.data, name.len);
	hmap_insert(&ns->map, &e->node, hash(dir, name));
	list_push(&ns->lru, &e->lru);
	ns->n++;
	return e;
}

void dentry_cache_forget(struct client *c, struct ino dir, struct bytes name)
{
	struct name_entry *e = find(&c->names, dir, name);
	struct inode *i = e != NULL ? inode_peek(c, dir) : NULL;

	if (i != NULL) {
		lost(i, e->change);
		inode_put(c, i);
	}
	if (e != NULL)
		drop(&c->names, e);
}

static void set(struct name_entry *e, struct ino ino, uint64_t change, uint64_t sent_us)
{
	e->ino = ino;
	e->told_us = sent_us;
	e->change = change;
}

void dentry_cache_update(struct client *c, const struct attr *dir, struct bytes name,
			 struct ino ino, bool own, uint64_t sent_us)
{
	struct inode *i = inode_peek(c, dir->ino);
	struct name_entry *e;

	if (i == NULL)
		return;
	e = find(&c->names, dir->ino, name);
	if (!lease_held_since(c, i, sent_us) || (!own && i->n_changing > 0)) {
		may_be_there(c, i, hash(dir->ino, name));
		lost(i, own ? dir->change : 0);
		if (e != NULL) {
			lost(i, e->change);
			drop(&c->names, e);
		}
	} else if (dir->change >= (e != NULL ? e->change : i->attr.change)) {
		if (e == NULL)
			e = make(c, dir->ino, name);
		if (e != NULL) {
			set(e, ino, dir->change, sent_us);
		} else {
			may_be_there(c, i, hash(dir->ino, name));
			lost(i, dir->change);
		}
	} else if (e == NULL) {
		may_be_there(c, i, hash(dir->ino, name));
		lost(i, dir->change);
	}
	inode_put(c, i);
}

void dentry_cache_update_listed(struct client *c, const struct inode *dir, uint64_t change,
				struct bytes name, struct ino ino, uint64_t sent_us)
{
	struct name_entry *e;

	if (!lease_held_since(c, dir, sent_us) || is_changing(c, dir, name))
		return;
	e = find(&c->names, dir->ino, name);
	if (change < (e != NULL ? e->change : dir->names_lost))
		return;
	if (e == NULL)
		e = make(c, dir->ino, name);
	if (e != NULL)
		set(e, ino, change, sent_us);
}
