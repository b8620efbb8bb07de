/*
 * Mutations. A fiber runs a critical section: it reads by inode_get and dentry_find with
 * VIEW_NEWEST, makes all its checks, and then writes by the calls below. It does not yield and it
 * does not fail once it has begun to write. What it wrote joins the open batch; store_wait waits
 * until that batch is durable.
 *
 *     txn_begin(s)            may yield: waits while the open batch is full
 *     … -LE_MISS: store_load, and from the start …
 *     no = txn_end(s)         the batch that has it
 *     store_wait(s, no)       yields
 *
 * A lazy section (txn_end_lazy, store_wait_lazy) is for changes whose end nobody waits for: its
 * batch is committed when somebody else waits for it, or after opt.lazy_us.
 *
 * One batch is in sync at a time; what comes meanwhile makes the next. A failed commit is final:
 * every later txn_begin and store_wait gives -LE_IO.
 */
#ifndef LEAT_MDS_STORE_TXN_H
#define LEAT_MDS_STORE_TXN_H

#include "mds/store/store.h"

/* Starts the committer's fiber. */
int store_run(struct store *s) CHECK_RESULT;
/* Commits what is open and ends the committer. Yields. */
void store_stop(struct store *s);

int txn_begin(struct store *s) CHECK_RESULT;
/* 0 when nothing was written: then *depends tells the newest batch that was read. */
uint64_t txn_end(struct store *s);
uint64_t txn_end_lazy(struct store *s);
/* Waits until the batch (0: none) is durable. Yields. */
int store_wait(struct store *s, uint64_t no) CHECK_RESULT;
int store_wait_lazy(struct store *s, uint64_t no) CHECK_RESULT;
/* What is being changed in this inode shall be durable soon: somebody looks at it. */
void inode_hurry(struct store *s, const struct inode *i);
/* Waits until the batch that is being synced just now is published, so that what a scan of the
 * kv store may have seen of it is seen by all. Yields. */
int store_settle(struct store *s) CHECK_RESULT;

/* The record of the open batch, to be changed in place. */
struct inode_rec *inode_edit(struct store *s, struct inode *i);
/* A new inode with the next number; ret_rec has only attr.ino set. symlink: copied (malloc'd
 * before), taken over. */
struct inode *inode_create(struct store *s, struct inode_rec **ret_rec);
/* Its record, its attributes in key space X; not its data. */
void inode_delete(struct store *s, struct inode *i);

/* d as dentry_find gave it with -LE_NOENT. */
void dentry_put(struct store *s, struct dentry *d, struct ino ino, uint32_t mode);
/* Another inode under the same name. */
void dentry_replace(struct store *s, struct dentry *d, struct ino ino, uint32_t mode);
/* True: left a tombstone. */
bool dentry_remove(struct store *s, struct dentry *d);
/* Everything that is left of a directory's entries (tombstones). */
void dentry_remove_range(struct store *s, struct ino dir);

void txn_put(struct store *s, struct key k, const void *value, size_t len);
void txn_delete(struct store *s, struct key k);
void txn_delete_prefix(struct store *s, struct key k);
/* Encodes a record of records.h: TXN_PUT(s, key, session_rec, &rec) */
#define TXN_PUT(s, k, name, rec)                                                                   \
	do {                                                                                       \
		uint8_t txn_buf_[RECORD_MAX];                                                      \
		struct wire_w txn_w_;                                                              \
		wire_w_init(&txn_w_, txn_buf_, sizeof(txn_buf_));                                  \
		wire_put_##name(&txn_w_, rec);                                                     \
		ASSERT(txn_w_.status == 0);                                                        \
		txn_put(s, k, txn_buf_, txn_w_.len);                                               \
	} while (0)
/* s->counters was changed. */
void txn_counters(struct store *s);
void txn_cluster(struct store *s); /* s->cluster was changed */

#endif
