/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cache and loading. A cached object without pending versions is in the clock list `lru` and may be
 * evicted. If the object caches the absence of a record it is also in `absent`, and is evicted when
 * that list becomes too long. An object that has pending versions or is being loaded is in neither
 * list. An object that is not cached has no pending versions, so its record in the kv store is the
 * newest. While a record is read a placeholder is in the cache, so that no other fiber reads or
 * changes it meanwhile.
 */
#include "mds/store/store.h"

#include <stdlib.h>

#include "common/base/checksum.h"
#include "common/base/log.h"
#include "mds/store/acl.h"

static const uint32_t name_class_size[NAME_CLASSES] = {32, 96, 256};
#define COLLISION_BITS 4u
#define COLLISIONS     (1u << COLLISION_BITS)

static uint64_t inode_hash(struct ino ino)
{
	return hash_u64(ino.v);
}

static uint64_t dentry_hash(struct ino dir, uint64_t cookie)
{
	return hash_u64_2(dir.v, cookie);
}

uint64_t dentry_cookie(const struct store *s, struct bytes name)
{
	uint64_t h = checksum64_seed(name.data, name.len, s->cluster.dentry_seed) & s->hash_mask;

	h >>= COLLISION_BITS + 1;

	/* Positive as an off_t, and above the cookies of `.` and `..`. */
	return (h == 0 ? 1 : h) << COLLISION_BITS;
}

/* ---- memory ---- */

static struct inode *inode_cached(struct store *s, struct ino ino)
{
	struct hmap_node *n = hmap_find(&s->inodes, inode_hash(ino));

	for (; n != NULL; n = hmap_find_next(n)) {
		struct inode *i = container_of(n, struct inode, o.node);

		if (i->ino.v == ino.v)
			return i;
	}
	return NULL;
}

/* Called when an entry leaves memory: its directory is then no longer complete in memory. */
static void no_more_whole(struct store *s, const struct dentry *d)
{
	struct inode *dir = d->durable.state != DENTRY_ABSENT ? inode_cached(s, d->parent) : NULL;

	if (dir != NULL)
		dir->whole = false;
}

static size_t cobj_size(const struct cobj *o)
{
	const struct dentry *d = container_of(o, struct dentry, o);

	if (o->kind == COBJ_INODE)
		return sizeof(struct inode);
	return sizeof(struct dentry) + name_class_size[d->name_class] +
	       (d->own_name ? LEAT_NAME_MAX : 0);
}

static void cobj_free(struct store *s, struct cobj *o)
{
	s->mem -= cobj_size(o);
	if (o->kind == COBJ_INODE) {
		struct inode *i = container_of(o, struct inode, o);

		hmap_remove(&s->inodes, &o->node);
		free(i->symlink);
		acl_unref(s, i->durable.acl);
		acl_unref(s, i->durable.acl_default);
		acl_unref(s, i->durable.preallocated);
		pool_put(&s->inode_pool, i);
	} else {
		struct dentry *d = container_of(o, struct dentry, o);

		no_more_whole(s, d);
		hmap_remove(&s->dentries, &o->node);
		if (d->own_name)
			free(d->name);
		pool_put(&s->name_pool[d->name_class], d);
	}
}

static bool cobj_absent(const struct cobj *o)
{
	if (o->kind == COBJ_INODE)
		return container_of(o, struct inode, o)->durable.attr.mode == 0;
	return container_of(o, struct dentry, o)->durable.state == DENTRY_ABSENT;
}

uint64_t store_bytes(const struct store *s)
{
	uint64_t sum = s->inode_pool.bytes + s->rec_pool.bytes;

	for (int c = 0; c < NAME_CLASSES; c++)
		sum += s->name_pool[c].bytes;
	return sum + (s->inodes.mask + s->dentries.mask + 2) * sizeof(void *);
}

int store_space(const struct store *s)
{
	return s->short_of_space ? -LE_NOSPC : 0;
}

static void evictable(struct store *s, struct cobj *o)
{
	list_push(&s->lru, &o->lru);
	if (cobj_absent(o)) {
		list_push(&s->absent, &o->absent);
		s->n_absent++;
	}
}

void store_pin(struct store *s, struct cobj *o)
{
	list_remove(&o->lru);
	if (!list_empty(&o->absent)) {
		list_remove(&o->absent);
		s->n_absent--;
	}
}

static void evict(struct store *s, struct cobj *o)
{
	store_pin(s, o);
	cobj_free(s, o);
	metric_add(&s->opt.metrics->evictions, 1);
}

void store_shrink(struct store *s, uint32_t n_new)
{
	uint64_t turns = 64 + 2 * (uint64_t)n_new;

	while (s->n_absent > s->absent_max)
		evict(s, list_entry(s->absent.next, struct cobj, absent));
	while (s->mem > s->opt.cache_bytes && !list_empty(&s->lru) && turns-- > 0) {
		struct cobj *o = list_entry(s->lru.next, struct cobj, lru);

		if (o->hot) {
			o->hot = false;
			list_remove(&o->lru);
			list_push(&s->lru, &o->lru);
			continue;
		}
		evict(s, o);
	}
	metric_set(&s->opt.metrics->cache_bytes, s->mem);
}

void store_unpin(struct store *s, struct cobj *o)
{
	if (o->in[0] || o->in[1] || o->loading)
		return;
	if (o->kind == COBJ_INODE && cobj_absent(o))
		cobj_free(s, o); /* inode numbers are never used again */
	else
		evictable(s, o);
}

static void cobj_init(struct store *s, struct cobj *o, enum cobj_kind kind)
{
	o->kind = (uint8_t)kind;
	list_init(&o->lru);
	list_init(&o->absent);
	list_init(&o->dirty[0]);
	list_init(&o->dirty[1]);
	s->mem += cobj_size(o);
}

struct inode *inode_insert(struct store *s, struct ino ino)
{
	struct inode *i = pool_get(&s->inode_pool);

	i->ino = ino;
	cobj_init(s, &i->o, COBJ_INODE);
	hmap_insert(&s->inodes, &i->o.node, inode_hash(ino));
	return i;
}

static struct dentry *dentry_insert_place(struct store *s, struct ino dir, uint64_t cookie,
					  uint32_t name_len)
{
	uint8_t class = 0;
	struct dentry *d;

	while (name_class_size[class] < name_len)
		class ++;
	d = pool_get(&s->name_pool[class]);
	d->name_class = class;
	d->name = d->inline_name;
	d->parent = dir;
	d->cookie = cookie;
	cobj_init(s, &d->o, COBJ_DENTRY);
	hmap_insert(&s->dentries, &d->o.node, dentry_hash(dir, cookie));
	return d;
}

static struct dentry *dentry_cached(struct store *s, struct ino dir, uint64_t cookie)
{
	struct hmap_node *n = hmap_find(&s->dentries, dentry_hash(dir, cookie));

	for (; n != NULL; n = hmap_find_next(n)) {
		struct dentry *d = container_of(n, struct dentry, o.node);

		if (d->cookie == cookie && d->parent.v == dir.v)
			return d;
	}
	return NULL;
}

/* ---- views ---- */

/* The batch with the newest version of this object; 0: the durable version is the newest. */
static uint64_t cobj_newest(struct store *s, const struct cobj *o)
{
	if (o->in[s->open_no & 1])
		return s->open_no;
	if (o->in[(s->open_no - 1) & 1])
		return s->open_no - 1;
	return 0;
}

static uint64_t cobj_view(struct store *s, const struct cobj *o, enum view view)
{
	uint64_t no = view == VIEW_NEWEST ? cobj_newest(s, o) : 0;

	if (no > s->depends)
		s->depends = no;
	return no;
}

int inode_get(struct store *s, struct ino ino, enum view view, struct inode **ret_i,
	      const struct inode_rec **ret_rec)
{
	struct inode *i = inode_cached(s, ino);
	const struct inode_rec *rec;
	uint64_t no;

	/* The absence of a number not yet in use must not be cached: inode_create inserts an object
	 * of its own. */
	if (ino.v >= s->counters.next_ino)
		return -LE_NOENT;
	if (i == NULL || i->o.loading) {
		s->miss.kind = COBJ_INODE;
		s->miss.ino = ino;
		s->miss.batch = 0;
		return -LE_MISS;
	}
	i->o.hot = true;
	no = cobj_view(s, &i->o, view);
	rec = no != 0 ? i->ver[no & 1] : &i->durable;
	if (rec->attr.mode == 0)
		return -LE_NOENT;
	if (ret_i != NULL)
		*ret_i = i;
	if (ret_rec != NULL)
		*ret_rec = rec;
	return 0;
}

int dentry_at(struct store *s, struct ino dir, uint64_t cookie, enum view view,
	      struct dentry **ret_d, struct dentry_val *ret_val)
{
	struct dentry *d = dentry_cached(s, dir, cookie);
	uint64_t no;

	if (d == NULL || d->o.loading) {
		s->miss.kind = COBJ_DENTRY;
		s->miss.ino = dir;
		s->miss.cookie = cookie;
		s->miss.name_len = s->name_len;
		s->miss.batch = 0;
		return -LE_MISS;
	}
	d->o.hot = true;
	no = cobj_view(s, &d->o, view);
	*ret_val = no != 0 ? d->ver[no & 1] : d->durable;
	*ret_d = d;
	return 0;
}

static bool dentry_is(const struct dentry *d, struct bytes name)
{
	return d->name_len == name.len && memcmp(d->name, name.data, name.len) == 0;
}

/* Makes space for a name of that length in the place. */
static int dentry_fit_name(struct store *s, struct dentry *d, uint32_t len)
{
	char *own;

	if (len <= name_class_size[d->name_class] || d->own_name)
		return 0;
	own = malloc(LEAT_NAME_MAX);
	if (own == NULL)
		return -LE_NOMEM;
	s->mem += LEAT_NAME_MAX;
	d->name = own;
	d->own_name = true;
	return 0;
}

/* Gives a place its name. The name may change only while no version of the place is live. */
static int dentry_take_name(struct store *s, struct dentry *d, struct bytes name)
{
	if (dentry_is(d, name))
		return 0;
	if (d->durable.state == DENTRY_LIVE || (d->o.in[0] && d->ver[0].state == DENTRY_LIVE) ||
	    (d->o.in[1] && d->ver[1].state == DENTRY_LIVE)) {
		s->miss.batch = cobj_newest(s, &d->o);
		return -LE_MISS;
	}
	TRY(dentry_fit_name(s, d, name.len));
	memcpy(d->name, name.data, name.len);
	d->name_len = (uint8_t)name.len;
	return 0;
}

int dentry_find(struct store *s, struct ino dir, struct bytes name, enum view view,
		struct dentry **ret_d, struct dentry_val *ret_val)
{
	uint64_t cookie = dentry_cookie(s, name);
	struct dentry *free_place = NULL, *d;
	struct dentry_val val, free_val = {0};
	bool more = true;

	s->name_len = name.len;

	for (uint32_t idx = 0; idx < COLLISIONS && more; idx++) {
		TRY(dentry_at(s, dir, cookie | idx, view, &d, &val));
		if (val.state == DENTRY_LIVE && dentry_is(d, name)) {
			*ret_d = d;
			*ret_val = val;
			return 0;
		}
		if (val.state != DENTRY_LIVE && free_place == NULL) {
			free_place = d;
			free_val = val;
		}
		more = val.state != DENTRY_ABSENT && (val.flags & DENTRY_MORE) != 0;
		if (!more && free_place == NULL && idx + 1 < COLLISIONS && view == VIEW_NEWEST) {
			TRY(dentry_at(s, dir, cookie | (idx + 1), view, &free_place, &free_val));
		}
	}
	if (view == VIEW_DURABLE)
		return -LE_NOENT;
	if (free_place == NULL)
		return -LE_NOSPC;
	TRY(dentry_take_name(s, free_place, name));
	*ret_d = free_place;
	*ret_val = free_val;
	return -LE_NOENT;
}

/* ---- loading ---- */

/* Interns the byte members of a decoded record. Each one is empty until it is interned, so that a
 * failure releases only references that were taken. */
static int acls_decode(struct store *s, struct inode_rec *rec)
{
	struct bytes access = rec->acl, dflt = rec->acl_default, preallocated = rec->preallocated;

	rec->acl = rec->acl_default = rec->preallocated = bytes_of(NULL, 0);
	TRY(acl_check(access));
	TRY(acl_check(dflt));
	access = acl_intern(s, access);
	if (access.len > 0 && access.data == NULL)
		return -LE_NOMEM;
	rec->acl = access;
	dflt = acl_intern(s, dflt);
	if (dflt.len > 0 && dflt.data == NULL)
		return -LE_NOMEM;
	rec->acl_default = dflt;
	preallocated = acl_intern(s, preallocated);
	if (preallocated.len > 0 && preallocated.data == NULL)
		return -LE_NOMEM;
	rec->preallocated = preallocated;
	return 0;
}

static int inode_decode(struct store *s, struct inode *i, const void *value, size_t len)
{
	struct wire_r r;
	int rc;

	wire_r_init(&r, value, len);
	wire_get_inode_rec(&r, &i->durable);
	rc = acls_decode(s, &i->durable);
	if (r.status < 0 || i->durable.attr.mode == 0 || i->durable.symlink.len > LEAT_SYMLINK_MAX)
		return -LE_CORRUPT_STORE;
	TRY(rc);
	if (i->durable.symlink.len > 0) {
		i->symlink = malloc(i->durable.symlink.len);
		if (i->symlink == NULL)
			return -LE_NOMEM;
		memcpy(i->symlink, i->durable.symlink.data, i->durable.symlink.len);
		i->durable.symlink.data = i->symlink;
	}
	i->durable.attr.ino = i->ino;
	inode_set_plain(&i->durable);
	return 0;
}

void inode_set_plain(struct inode_rec *rec)
{
	if (rec->n_xattrs == 0 && rec->acl.len == 0 && rec->acl_default.len == 0)
		rec->attr.flags |= ATTR_PLAIN;
	else
		rec->attr.flags &= ~(uint32_t)ATTR_PLAIN;
}

size_t inode_encode(const struct inode_rec *rec, uint8_t *buf, size_t size)
{
	struct wire_w w;

	wire_w_init(&w, buf, size);
	wire_put_inode_rec(&w, rec);
	ASSERT(w.status == 0);
	return w.len;
}

static int dentry_decode(struct store *s, struct dentry *d, const void *value, size_t len)
{
	struct dentry_rec rec;
	struct wire_r r;

	wire_r_init(&r, value, len);
	wire_get_dentry_rec(&r, &rec);
	if (r.status < 0 || len == 0 || rec.name.len > LEAT_NAME_MAX)
		return -LE_CORRUPT_STORE;
	d->durable = (struct dentry_val){rec.ino, rec.ino.v == 0 ? DENTRY_TOMB : DENTRY_LIVE,
					 rec.type, rec.flags};
	TRY(dentry_fit_name(s, d, rec.name.len));
	memcpy(d->name, rec.name.data, rec.name.len);
	d->name_len = (uint8_t)rec.name.len;
	return 0;
}

static int load_wait(struct store *s, struct cobj *o)
{
	if (!o->loading)
		return 0;
	return waitq_wait(&s->loaded, NO_DEADLINE);
}

static int loaded(struct store *s, struct cobj *o)
{
	o->hot = true;
	evictable(s, o);
	store_shrink(s, 1);
	return 0;
}

static int load_record(struct store *s, struct cobj *o, struct key k)
{
	struct kv_value v;
	int rc;

	o->loading = true;
	metric_add(&s->opt.metrics->cache_misses, 1);
	rc = kv_get(s->kv, k.b, k.len, &v);
	o->loading = false;
	if (rc == 0) {
		rc = o->kind == COBJ_INODE
			     ? inode_decode(s, container_of(o, struct inode, o), v.data, v.len)
			     : dentry_decode(s, container_of(o, struct dentry, o), v.data, v.len);
		if (rc == -LE_CORRUPT_STORE)
			log_error("record of %s %llu is damaged",
				  o->kind == COBJ_INODE ? "inode" : "directory",
				  (unsigned long long)get_be(k.b + 1, 8));
		kv_value_fini(&v);
	} else if (rc == -LE_NOENT) {
		rc = 0; /* cache that the record is absent */
	}
	waitq_wake_all(&s->loaded);
	if (rc < 0) {
		cobj_free(s, o);
		return rc;
	}
	return loaded(s, o);
}

static int reserve(struct store *s)
{
	TRY(pool_reserve(&s->inode_pool, 4));
	for (int c = 0; c < NAME_CLASSES; c++)
		TRY(pool_reserve(&s->name_pool[c], 4));
	return 0;
}

static int load_inode(struct store *s, struct ino ino)
{
	struct inode *i = inode_cached(s, ino);

	if (i != NULL)
		return load_wait(s, &i->o);
	i = inode_insert(s, ino);
	return load_record(s, &i->o, key_inode(ino));
}

static int load_dentry(struct store *s, struct ino dir, uint64_t cookie, uint32_t name_len)
{
	struct dentry *d = dentry_cached(s, dir, cookie);
	const struct inode *i = inode_cached(s, dir);

	if (d != NULL)
		return load_wait(s, &d->o);
	d = dentry_insert_place(s, dir, cookie, name_len);
	if (i != NULL && i->whole)
		return loaded(s, &d->o);
	return load_record(s, &d->o, key_dentry(dir, cookie));
}

void store_expedite(struct store *s, uint64_t no)
{
	struct batch *b = open_batch(s);

	if (no != s->open_no || b->n_ops == 0 || b->due)
		return;
	b->due = true;
	waitq_wake_one(&s->work);
}

int store_load(struct store *s)
{
	if (s->failed < 0)
		return -LE_IO;
	if (s->miss.batch != 0) {
		uint64_t no = s->miss.batch;

		store_expedite(s, no);
		while (s->durable_no < no && s->failed == 0)
			TRY(waitq_wait(&s->batch[no & 1].done, NO_DEADLINE));
		return 0;
	}
	TRY(reserve(s));
	if (s->miss.kind == COBJ_INODE)
		return load_inode(s, s->miss.ino);
	return load_dentry(s, s->miss.ino, s->miss.cookie, s->miss.name_len);
}

/* ---- opening and closing ---- */

static int read_state(struct store *s)
{
	struct key mk = key_cluster('m', 0), nk = key_cluster('n', 0);
	struct kv_value v;
	struct wire_r r;
	int rc = kv_get(s->kv, mk.b, mk.len, &v);

	if (rc < 0)
		return rc == -LE_NOENT ? -LE_STORE_FORMAT : rc;
	wire_r_init(&r, v.data, v.len);
	wire_get_cluster_rec(&r, &s->cluster);
	kv_value_fini(&v);
	if (r.status < 0 || s->cluster.format != STORE_FORMAT) {
		log_error("%s: another release of Leat has made this store (format %u, this one "
			  "knows %u). It is left as it is: go on with that release; or copy the "
			  "files out with it, make new stores (leat-mds format, leat-ossd format) "
			  "and copy them back",
			  s->opt.path, s->cluster.format, STORE_FORMAT);
		return -LE_STORE_FORMAT;
	}
	rc = kv_get(s->kv, nk.b, nk.len, &v);
	if (rc < 0)
		return rc == -LE_NOENT ? -LE_CORRUPT_STORE : rc;
	wire_r_init(&r, v.data, v.len);
	wire_get_counters_rec(&r, &s->counters);
	kv_value_fini(&v);
	return r.status < 0 ? -LE_CORRUPT_STORE : 0;
}

static void store_init(struct store *s)
{
	hmap_init(&s->inodes, 1024);
	hmap_init(&s->dentries, 1024);
	hmap_init(&s->acls, 64);
	quotas_init(&s->quotas);
	list_init(&s->lru);
	list_init(&s->absent);
	pool_init(&s->inode_pool, sizeof(struct inode));
	pool_init(&s->rec_pool, sizeof(struct inode_rec));
	for (int c = 0; c < NAME_CLASSES; c++)
		pool_init(&s->name_pool[c], sizeof(struct dentry) + name_class_size[c]);
	waitq_init(&s->work);
	waitq_init(&s->space);
	waitq_init(&s->loaded);
	latch_init(&s->committer, 0);
	s->open_no = 1;
	for (int b = 0; b < 2; b++) {
		list_init(&s->batch[b].dirty);
		waitq_init(&s->batch[b].done);
	}
	s->batch[1].no = 1;
}

int store_open(struct env *env, const struct store_options *opt, struct store *s)
{
	struct kv_options ko = {
		.create = opt->create,
		.cache_size = opt->kv_cache_bytes,
		.no_sync = !opt->sync,
		.write_buffer_size = opt->kv_write_buffer_bytes,
		.background_threads = opt->kv_threads,
	};
	int rc;

	*s = (struct store){.env = env,
			    .opt = *opt,
			    .hash_mask = UINT64_MAX,
			    .absent_max = STORE_ABSENT_MAX};
	TRY(kv_open(env, opt->path, &ko, &s->kv));
	store_init(s);
	rc = opt->create ? 0 : read_state(s);
	if (rc == 0 && !opt->create)
		rc = quotas_load(s);
	for (int b = 0; rc == 0 && b < 2; b++) {
		s->batch[b].kv = kv_batch_create();
		if (s->batch[b].kv == NULL)
			rc = -LE_NOMEM;
	}
	if (rc < 0)
		store_close(s);
	return rc;
}

static void map_free(struct store *s, struct hmap *m)
{
	struct hmap_node *n = hmap_next(m, NULL);

	while (n != NULL) {
		struct hmap_node *next = hmap_next(m, n);
		struct cobj *o = container_of(n, struct cobj, node);

		cobj_free(s, o);
		n = next;
	}
	hmap_fini(m);
}

/* Batches that were never committed may still hold references. */
static void acls_free(struct store *s)
{
	struct hmap_node *n;

	while ((n = hmap_next(&s->acls, NULL)) != NULL)
		acl_forget(s, n);
	hmap_fini(&s->acls);
}

void store_close(struct store *s)
{
	ASSERT(!s->running);
	map_free(s, &s->dentries); /* first, because freeing them looks up their directories */
	map_free(s, &s->inodes);
	acls_free(s);
	quotas_fini(&s->quotas);
	pool_fini(&s->inode_pool);
	pool_fini(&s->rec_pool);
	for (int c = 0; c < NAME_CLASSES; c++)
		pool_fini(&s->name_pool[c]);
	for (int b = 0; b < 2; b++)
		if (s->batch[b].kv != NULL)
			kv_batch_destroy(s->batch[b].kv);
	kv_close(s->kv);
}
