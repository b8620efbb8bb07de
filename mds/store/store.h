/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metadata store: a bounded in-memory cache of inodes and directory entries over common/kv.
 * Each object has up to three versions: the durable one, the one in the batch that is being synced,
 * and the one in the open batch. Mutations read the newest (VIEW_NEWEST), all others the durable
 * one (VIEW_DURABLE), so no request returns state that a crash could undo.
 *
 * Functions that answer from memory do not yield. If an object is not in memory they note it and
 * return -LE_MISS. The caller then leaves its critical section, calls store_load, and runs the
 * section again.
 *
 * Owned by one loop. Returned pointers are valid until the caller yields.
 */
#ifndef LEAT_MDS_STORE_STORE_H
#define LEAT_MDS_STORE_STORE_H

#include "common/base/hmap.h"
#include "common/base/list.h"
#include "common/kv/kv.h"
#include "common/rt/fiber.h"
#include "mds/metrics.h"
#include "mds/store/keys.h"
#include "mds/store/pool.h"
#include "mds/store/quota.h"
#include "mds/store/records.h"

enum view {
	VIEW_DURABLE,
	VIEW_NEWEST
};
enum cobj_kind {
	COBJ_INODE,
	COBJ_DENTRY
};

/* Common part of cached inodes and dentries. */
struct cobj {
	struct hmap_node node;
	struct list lru;      /* while no version is pending */
	struct list absent;   /* likewise, if the cached record is absent */
	struct list dirty[2]; /* link in the batch with this parity */
	bool in[2];           /* has a version in that batch */
	bool loading;         /* its record is being read; lookups miss until then */
	bool hot;             /* used since the clock hand passed */
	uint8_t kind;
};

struct inode {
	struct cobj o;
	struct ino ino;
	char *symlink; /* immutable */
	struct inode_rec durable;
	struct inode_rec *ver[2];
	/* A directory that has been in memory since it was created, with all its entries. An entry
	 * that is not in memory does not exist. */
	bool whole;
};

enum dentry_state {
	DENTRY_ABSENT,
	DENTRY_LIVE,
	DENTRY_TOMB
};
struct dentry_val {
	struct ino ino;
	uint8_t state, type, flags;
};
/* A place for an entry: (directory, cookie). All live versions have the same name. */
struct dentry {
	struct cobj o;
	struct ino parent;
	uint64_t cookie;
	struct dentry_val durable, ver[2];
	uint8_t name_len, name_class;
	bool own_name; /* allocated, because it did not fit inline */
	char *name;
	char inline_name[];
};
#define NAME_CLASSES 3

/* The most absent names and inodes that the cache holds, which bounds the memory for removed names
 * and failed lookups. */
#define STORE_ABSENT_MAX 16384u

struct batch {
	uint64_t no;
	struct kv_batch *kv;
	struct list dirty;
	uint32_t n_ops;
	bool due;              /* a fiber waits for it */
	uint64_t commit_by_us; /* when to commit it if no fiber waits (0: it has no lazy change) */
	struct waitq done;
};

struct store_options {
	const char *path; /* of the kv store */
	bool create;
	bool sync;
	uint64_t cache_bytes, kv_cache_bytes, kv_write_buffer_bytes;
	uint32_t kv_threads;
	uint32_t batch_ops_max;
	uint64_t batch_bytes_max;
	uint32_t lazy_us; /* how long a lazy change may wait for other changes */
	struct mds_metrics *metrics;
	void (*failed)(void *arg, int status); /* called in the committer's fiber */
	void *arg;
};

struct store {
	struct env *env;
	struct kv *kv;
	struct store_options opt;
	struct hmap inodes, dentries;
	struct hmap acls; /* store/acl.h */
	struct quotas quotas;
	struct list lru, absent;
	uint32_t n_absent, absent_max; /* absent_max: STORE_ABSENT_MAX; tests lower it */
	uint64_t mem;
	struct pool inode_pool, rec_pool, name_pool[NAME_CLASSES];

	/* The disk has less free space than its reserve. Changes that need space are refused;
	 * others, and those that free space, are executed. */
	bool short_of_space;

	struct batch batch[2];
	uint64_t open_no, durable_no; /* open_no is durable_no + 1, or + 2 while a batch is being
				       * synced */
	struct waitq work, space, loaded;
	struct latch committer;
	int failed;
	bool stopping, running;

	struct { /* the object of the last -LE_MISS */
		enum cobj_kind kind;
		struct ino ino;
		uint64_t cookie;
		uint32_t name_len;
		uint64_t batch; /* not 0: wait for this batch instead */
	} miss;
	uint32_t name_len; /* length of the name last looked up, which determines the size of a new
			    * place */
	uint64_t depends;  /* newest batch with changes that the running section has read */
	bool wrote;        /* the running section has begun to write */

	struct cluster_rec cluster;
	struct counters_rec counters;
	bool counters_dirty;
	uint64_t hash_mask; /* of name hashes; tests make it small */
};

/* The batch that critical sections join now. */
static inline struct batch *open_batch(struct store *s)
{
	return &s->batch[s->open_no & 1];
}

/* Opens or (opt->create) creates the kv store, and reads the cluster and counters records (unless
 * create). Returns 0, -LE_STORE_FORMAT if the cluster record is missing or of another version,
 * -LE_CORRUPT_STORE, -LE_NOMEM or the error of the kv store. Yields. */
int store_open(struct env *env, const struct store_options *opt, struct store *ret_s) CHECK_RESULT;
/* Frees the store. Call store_stop (txn.h) first if the committer ran. Yields. */
void store_close(struct store *s);

/* Memory of cached inodes and names, including free objects of the pools. */
uint64_t store_bytes(const struct store *s);

/* Returns 0 if names, inodes and attributes may be added, -LE_NOSPC while the disk has
 * less free space than its reserve. */
int store_space(const struct store *s) CHECK_RESULT;

/* Finds the record of an inode in that view. Returns 0, -LE_NOENT or -LE_MISS. Does not yield. */
int inode_get(struct store *s, struct ino ino, enum view view, struct inode **ret_i,
	      const struct inode_rec **ret_rec) CHECK_RESULT;

/* Finds a name. Returns 0; -LE_NOENT, and with VIEW_NEWEST *ret_d is the place where the name would
 * be inserted; -LE_NOSPC if there is no free place; -LE_NOMEM or -LE_MISS. Does not yield. */
int dentry_find(struct store *s, struct ino dir, struct bytes name, enum view view,
		struct dentry **ret_d, struct dentry_val *ret_val) CHECK_RESULT;
/* The place with this cookie. Returns 0 or -LE_MISS. Does not yield. */
int dentry_at(struct store *s, struct ino dir, uint64_t cookie, enum view view,
	      struct dentry **ret_d, struct dentry_val *ret_val) CHECK_RESULT;
uint64_t dentry_cookie(const struct store *s, struct bytes name); /* with collision index 0 */

/* Sets or clears ATTR_PLAIN as the record requires. */
void inode_set_plain(struct inode_rec *rec);

/* Loads the object of the last -LE_MISS, or waits for its batch. Returns 0, -LE_NOMEM,
 * -LE_CORRUPT_STORE, -LE_IO, -LE_INTR or the error of the kv store. Yields. */
int store_load(struct store *s) CHECK_RESULT;

/* Requests an early commit of that batch, because a fiber waits for it (txn.h). Does not yield. */
void store_expedite(struct store *s, uint64_t no);

/* ---- for txn.c ---- */
/* Ends the pin when no version is pending: the object may be evicted. */
void store_unpin(struct store *s, struct cobj *o);
/* Pins an object that gets a pending version: it cannot be evicted until store_unpin. */
void store_pin(struct store *s, struct cobj *o);
/* Adds an empty object for an inode to the cache. The pool must have one (pool_reserve). */
struct inode *inode_insert(struct store *s, struct ino ino);
/* Evicts down to the bounds, but moves the clock hand at most a few steps for each of the n_new
 * objects that have just become evictable: a whole round would evict what was just loaded. */
void store_shrink(struct store *s, uint32_t n_new);
/* Encodes a record into buf; asserts that it fits. Returns its length. */
size_t inode_encode(const struct inode_rec *rec, uint8_t *buf, size_t size);

#endif
