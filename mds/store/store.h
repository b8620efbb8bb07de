/*
 * The metadata store: a bounded in-memory cache of inodes and directory entries over common/kv, in
 * which each object may have up to three versions: the durable one, the one in the batch that is
 * being synced, and the one in the open batch. Mutations see the newest (VIEW_NEWEST); everybody
 * else the durable one (VIEW_DURABLE), so nothing is ever seen that a crash could take back.
 *
 * Nothing here that answers from memory yields: what is not in memory is -LE_MISS, and is noted;
 * leave the critical section, call store_load, and run it again.
 *
 * Owned by one loop. Returned pointers are good until the caller yields.
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

/* What cached inodes and dentries share. */
struct cobj {
	struct hmap_node node;
	struct list lru;      /* while no version is pending */
	struct list dirty[2]; /* in the list of the batch with this parity */
	bool in[2];           /* has a version in it */
	bool loading;         /* its record is being read: as if it were not there */
	bool hot;             /* used since the clock hand passed */
	uint8_t kind;
};

struct inode {
	struct cobj o;
	struct ino ino;
	char *symlink; /* immutable */
	struct inode_rec durable;
	struct inode_rec *ver[2];
	/* A directory that has been in memory since it was made, and all its entries too: what is
	 * not there is absent. */
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
/* One place for an entry: (directory, cookie). The name is the same in all live versions. */
struct dentry {
	struct cobj o;
	struct ino parent;
	uint64_t cookie;
	struct dentry_val durable, ver[2];
	uint8_t name_len, name_class;
	bool own_name; /* malloc'd, because it did not fit */
	char *name;
	char inline_name[];
};
#define NAME_CLASSES 3

struct batch {
	uint64_t no;
	struct kv_batch *kv;
	struct list dirty;
	uint32_t n_ops;
	bool due;              /* somebody waits for it */
	uint64_t commit_by_us; /* if nobody does: when to commit it (0: it has no lazy change) */
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
	uint32_t lazy_us; /* how long a lazy change may wait for company */
	struct mds_metrics *metrics;
	void (*failed)(void *arg, int status); /* in the committer's fiber */
	void *arg;
};

struct store {
	struct env *env;
	struct kv *kv;
	struct store_options opt;
	struct hmap inodes, dentries;
	struct hmap acls; /* store/acl.h */
	struct quotas quotas;
	struct list lru;
	uint64_t mem;
	struct pool inode_pool, rec_pool, name_pool[NAME_CLASSES];

	struct batch batch[2];
	uint64_t open_no, durable_no; /* open_no is durable_no + 1, or + 2 while one is in sync */
	struct waitq work, room, loaded;
	struct latch committer;
	int failed;
	bool stopping, running;

	struct { /* what -LE_MISS was about */
		enum cobj_kind kind;
		struct ino ino;
		uint64_t cookie;
		uint32_t name_len;
		uint64_t batch; /* not 0: wait for this batch instead */
	} miss;
	uint32_t name_len; /* of the name that is looked for: how large a place must be */
	uint64_t depends;  /* newest batch whose changes the running section has seen */
	bool wrote;        /* the running section has begun to write */

	struct cluster_rec cluster;
	struct counters_rec counters;
	bool counters_dirty;
	uint64_t hash_mask; /* of name hashes; tests make it small */
};

/* Opens or (opt->create) makes the kv store, reads cluster and counters records (unless create).
 * -LE_STORE_FORMAT when they are missing or of another version. Yields. */
int store_open(struct env *env, const struct store_options *opt, struct store *ret_s) CHECK_RESULT;
/* After store_stop (txn.h) if the committer ran. Yields. */
void store_close(struct store *s);

/* The inode's record in that view: -LE_NOENT or -LE_MISS. */
int inode_get(struct store *s, struct ino ino, enum view view, struct inode **ret_i,
	      const struct inode_rec **ret_rec) CHECK_RESULT;

/* Looks for a name. -LE_NOENT: *ret_d (if wanted) is the place where it would be inserted.
 * -LE_NOSPC: no place. */
int dentry_find(struct store *s, struct ino dir, struct bytes name, enum view view,
		struct dentry **ret_d, struct dentry_val *ret_val) CHECK_RESULT;
/* The place with this cookie. */
int dentry_at(struct store *s, struct ino dir, uint64_t cookie, enum view view,
	      struct dentry **ret_d, struct dentry_val *ret_val) CHECK_RESULT;
uint64_t dentry_cookie(const struct store *s, struct bytes name); /* with collision index 0 */

/* ATTR_PLAIN as it is right for the record. */
void inode_set_plain(struct inode_rec *rec);

/* Reads what the last -LE_MISS was about. Yields. */
int store_load(struct store *s) CHECK_RESULT;
/* Puts a record that was read by a scan into the cache, unless it is there. */
void inode_cache_record(struct store *s, struct ino ino, const void *value, size_t len);

/* What is in that batch shall be durable soon: somebody waits for it (txn.h). */
void store_hurry(struct store *s, uint64_t no);

/* For txn.c: */
void store_unpin(struct store *s, struct cobj *o);
struct inode *inode_insert(struct store *s, struct ino ino);
void store_shrink(struct store *s);
size_t inode_encode(const struct inode_rec *rec, uint8_t *buf, size_t size);
/* All records from begin up to end (not included); returns when each() does not return 0. Yields.
 */
int store_scan(struct store *s, const struct key *begin, const struct key *end,
	       int (*each)(void *arg, const void *key, size_t key_len, const void *value,
			   size_t len),
	       void *arg) CHECK_RESULT;
/* All records whose keys begin with k. */
int store_scan_prefix(struct store *s, struct key k,
		      int (*each)(void *arg, const void *key, size_t key_len, const void *value,
				  size_t len),
		      void *arg) CHECK_RESULT;
int store_get_record(struct store *s, struct key k, struct kv_value *ret_v) CHECK_RESULT;

#endif
