#include "client/inode.h"

#include <stdlib.h>

#include "client/client.h"
#include "client/kept.h"
#include "client/session.h"

#define FREE_INODES_MAX 1024u
#define FREE_DATA_MAX   256u
#define SECTOR          512u
#define EVICT_AT_ONCE   4

void inode_table_init(struct client *c)
{
	struct inode_table *t = &c->inodes;

	hmap_init(&t->map, 1024);
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

	lease_forgotten(c, i);
	if (i->kernel_until_us > c->kernel_lost_us)
		c->kernel_lost_us = i->kernel_until_us;
	names_incomplete(c, i);
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
		names_incomplete(c, i);
		free(i->data);
		free(i);
	}
	hmap_fini(&t->map);
	free_list(&t->free, offsetof(struct inode, lru));
	free_list(&t->free_data, offsetof(struct idata, open_link));
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

/* Keeps the unused ones within their bound; a few at a time, so that no call pays for all. */
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
	/* The caller stands on the inode's place in the list of open ones, which therefore must
	 * stay. */
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

int inode_data(struct client *c, struct inode *i, struct idata **ret_data)
{
	struct idata *d = i->data;
	struct list *l;

	if (d != NULL) {
		*ret_data = d;
		return 0;
	}
	l = list_pop(&c->inodes.free_data);
	if (l != NULL) {
		c->inodes.n_free_data--;
		d = list_entry(l, struct idata, open_link);
	} else {
		d = malloc(sizeof(*d));
		if (d == NULL)
			return -LE_NOMEM;
	}
	*d = (struct idata){.inode = i, .c = c, .size = i->attr.size, .durable_end = 0};
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
	list_init(&d->gather.link);
	list_push(&c->inodes.open, &d->open_link);
	i->data = d;
	*ret_data = d;
	return 0;
}

void inode_data_trim(struct client *c, struct inode *i)
{
	struct idata *d = i->data;

	if (d == NULL || d->n_read + d->n_write + d->n_closing + d->n_delegated > 0 ||
	    d->gather.slot != NULL || !list_empty(&d->writes) || i->refs > 1)
		return;
	ra_drop_all(d);
	if (d->n_units > 0)
		return; /* fetches under way still know it: they trim when they end */
	file_locks_fini(&d->locks);
	kept_write_end(d);
	list_remove(&d->open_link);
	i->data = NULL;
	if (c->inodes.n_free_data < FREE_DATA_MAX) {
		c->inodes.n_free_data++;
		list_push_front(&c->inodes.free_data, &d->open_link);
	} else {
		free(d);
	}
}

static bool has_own_writes(const struct idata *d)
{
	return d != NULL && (d->gather.slot != NULL || !list_empty(&d->writes));
}

/* It is written here, which the MDS does not know yet in a session that is new: others are told,
 * and cut it, without asking this client. attr: what it says of it. */
static bool writes_untold(const struct inode *i, const struct attr *attr)
{
	const struct idata *d = i->data;

	return d != NULL && d->n_write > 0 && (attr->flags & ATTR_UNSETTLED) == 0 &&
	       session_misses(d);
}

/* What this client has written itself is known to it as well. */
static void update_own_size(struct inode *i)
{
	struct idata *d = i->data;

	if (d == NULL)
		return;
	if (!has_own_writes(d) && (d->n_write == 0 || writes_untold(i, &i->attr)))
		d->size = i->attr.size;
	else if (d->size < i->attr.size)
		d->size = i->attr.size;
}

static void take_attr(struct inode *i, const struct attr *attr, bool own)
{
	bool unsettled = (attr->flags & ATTR_UNSETTLED) != 0;

	if (unsettled && i->settled_us != 0 && !own && attr->layout.gen == i->attr.layout.gen &&
	    attr->cuts == i->attr.cuts) {
		/* What the chains said last stays until they are asked again, or somebody has cut
		 * off some of it. */
		uint64_t size = i->attr.size, blocks = i->attr.blocks;
		int64_t written_ns = i->attr.chains_ns;

		i->attr = *attr;
		i->attr.size = size > attr->size ? size : attr->size;
		i->attr.blocks = blocks > attr->blocks ? blocks : attr->blocks;
		if (attr_chains_time(attr, written_ns))
			attr_take_written(&i->attr, written_ns);
	} else {
		i->attr = *attr;
		i->settled_us = 0;
	}
	i->attr.flags &= ~(uint32_t)(ATTR_LEASED | ATTR_SHARED | ATTR_CUTTING);
}

void inode_update(struct client *c, struct inode *i, const struct attr *attr, bool own,
		  uint64_t sent_us)
{
	uint64_t step = attr->change - i->attr.change;
	bool known = i->attr.ino.v != 0;
	/* A read lease: nobody would ask for what is written behind it. */
	bool leased = (attr->flags & ATTR_LEASED) != 0 && !writes_untold(i, attr);
	/* An answer of before it was opened here for writing says nothing of that. */
	bool unsettled = i->data != NULL && i->data->n_write > 0 && sent_us < i->recalled_us &&
			 (i->attr.flags & ATTR_UNSETTLED) != 0;

	/* Answers may overtake each other. */
	if (known && (attr->change < i->attr.change ||
		      (attr->change == i->attr.change && attr->layout.gen < i->attr.layout.gen)))
		return;
	if (known && attr->change == i->attr.change && sent_us <= i->outdated_us)
		return;
	if (own && known && step <= 1 && i->open_change == i->attr.change)
		i->open_change = attr->change;
	if (i->data != NULL && known && !own &&
	    (attr->change != i->attr.change || attr->cuts != i->attr.cuts)) {
		ra_drop_all(i->data);
		/* Perhaps by a truncation of ours that was given up. */
		i->data->unsure |= i->data->n_write > 0;
	}
	/* The record's size is the one to begin with then. */
	if (leased && inode_is_unsure(i))
		i->settled_us = 0;
	i->attr_us = loop_now_us();
	if (!S_ISDIR(attr->mode))
		i->kernel_until_us = 0; /* it has no names */
	/* A read lease does not hold for a file that gets a writer, whoever it is. */
	if ((attr->flags & ATTR_UNSETTLED) && !leased)
		i->lease_us = 0;
	take_attr(i, attr, own);
	i->attr.flags |= unsettled ? (uint32_t)ATTR_UNSETTLED : 0;
	lease_shared_update(c, i, attr, sent_us);
	if (leased)
		lease_given(c, i, sent_us);
	/* The only one who writes it: the record and our own writes tell all. */
	if (leased && (attr->flags & ATTR_UNSETTLED) && lease_held(c, i) &&
	    !inode_is_unsure(i))
		i->settled_us = i->attr_us;
	update_own_size(i);
}

void inode_opened(struct inode *i, uint32_t flags)
{
	if ((flags & O_ACCMODE) != O_RDONLY)
		i->recalled_us = loop_now_us();
}

void inode_saw(struct client *c, const struct attr *attr, bool own, uint64_t sent_us)
{
	struct inode *i;

	if (attr->ino.v == 0)
		return;
	i = inode_get(c, attr->ino);
	if (i == NULL)
		return;
	inode_update(c, i, attr, own, sent_us);
	inode_put(c, i);
}

void inode_outdated(struct client *c, struct ino ino)
{
	struct inode *i = inode_peek(c, ino);

	if (i == NULL)
		return;
	inode_changed_here(i);
	inode_put(c, i);
}

void inode_changed_here(struct inode *i)
{
	i->attr_us = 0;
	i->outdated_us = loop_now_us();
}

void inode_dir_changed(struct client *c, struct ino ino, const struct attr *attr, uint64_t sent_us)
{
	if (attr->ino.v == ino.v)
		inode_saw(c, attr, true, sent_us);
	else
		inode_outdated(c, ino);
}

bool inode_attr_fresh(const struct client *c, const struct inode *i)
{
	return i->attr_us != 0 && i->n_changing == 0 && lease_held(c, i);
}

bool inode_size_fresh(const struct client *c, const struct inode *i)
{
	return inode_attr_fresh(c, i) && !inode_is_unsure(i);
}

void inode_attr(const struct client *c, const struct inode *i, struct attr *ret_attr)
{
	const struct idata *d = i->data;
	int64_t own_ns;

	*ret_attr = i->attr;
	if (inode_size_fresh(c, i))
		ret_attr->flags |= ATTR_LEASED;
	if (d == NULL || !S_ISREG(i->attr.mode))
		return;
	if (d->size > ret_attr->size)
		ret_attr->size = d->size;
	own_ns = d->mtime_guess_ns > d->mtime_ns ? d->mtime_guess_ns : d->mtime_ns;
	if (attr_chains_time(ret_attr, own_ns))
		attr_take_written(ret_attr, own_ns);
	if (d->n_write > 0 || has_own_writes(d)) {
		uint64_t blocks = (ret_attr->size + SECTOR - 1) / SECTOR;

		/* Not how much it is, but that it is no hole: programs that copy look at that. */
		if (d->sparse && blocks > 1)
			blocks = d->write_seq > 0 || has_own_writes(d);
		if (blocks > ret_attr->blocks)
			ret_attr->blocks = blocks;
	}
}
