#include "client/names.h"

#include <stdlib.h>

#include "client/client.h"
#include "client/name_filter.h"
#include "common/base/checksum.h"

#define FILTER_ROOM_MIN 4096u

struct name_entry {
	struct hmap_node node;
	struct list lru;
	struct ino dir, ino;
	uint64_t told_us; /* when that was asked for */
	uint64_t change;  /* of the directory, as it was then */
	uint32_t len;
	char name[];
};

void names_init(struct names *ns, uint32_t names_max)
{
	ns->filter_room = (size_t)names_max * NAME_FILTER_BYTES;
	if (ns->filter_room < FILTER_ROOM_MIN)
		ns->filter_room = FILTER_ROOM_MIN;
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

void names_fini(struct names *ns)
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

void names_incomplete(struct client *c, struct inode *dir)
{
	dir->complete_us = 0;
	name_filter_free(&dir->names_gone, &c->names.filter_room);
}

static bool is_complete(const struct client *c, const struct inode *dir)
{
	return dir->complete_us != 0 && lease_held_since(c, dir, dir->complete_us);
}

/* There may be such a name, which is not in memory. */
static void may_be_there(struct client *c, struct inode *dir, uint64_t hash)
{
	if (is_complete(c, dir) &&
	    name_filter_add(&dir->names_gone, hash, &c->names.filter_room) == 0)
		return;
	names_incomplete(c, dir);
}

/* This client has changed a name of it, or heard of one, which is not in memory. */
static void lost(struct inode *dir, uint64_t change)
{
	if (change > dir->names_lost)
		dir->names_lost = change;
}

void names_unsure(struct inode *dir)
{
	lost(dir, dir->attr.change + 1);
}

void names_change_begin(struct client *c, struct name_change *nc, struct ino dir, struct bytes name)
{
	nc->hash = hash(dir, name);
	list_push(&c->names.changing, &nc->link);
}

void names_change_end(struct name_change *nc)
{
	list_remove(&nc->link);
}

/* Or something of it as a whole is. */
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

bool names_find(struct client *c, const struct inode *dir, struct bytes name, struct ino *ret_ino)
{
	struct names *ns = &c->names;
	struct name_entry *e;

	if (!lease_held(c, dir) || is_changing(c, dir, name))
		return false;
	e = find(ns, dir->ino, name);
	if (e == NULL) {
		*ret_ino = (struct ino){0};
		return is_complete(c, dir) &&
		       !name_filter_may_have(dir->names_gone, hash(dir->ino, name));
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

bool names_peek(const struct client *c, struct ino dir, struct bytes name, struct ino *ret_ino)
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

void names_forget(struct client *c, struct ino dir, struct bytes name)
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

void names_told(struct client *c, const struct attr *dir, struct bytes name, struct ino ino,
		bool own, uint64_t sent_us)
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

void names_listed(struct client *c, const struct inode *dir, uint64_t change, struct bytes name,
		  struct ino ino, uint64_t sent_us)
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
