/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mutations. A fiber runs a critical section: it reads by inode_get and dentry_find with
 * VIEW_NEWEST, makes all its checks, and then writes by the calls below. It does not yield, and it
 * does not fail once it has begun to write. What it wrote joins the open batch; store_wait waits
 * until that batch is durable.
 *
 *     txn_begin(s)            may yield: waits while the open batch is full
 *     … -LE_MISS: store_load, and from the start …
 *     no = txn_end(s)         the batch that has the changes
 *     store_wait(s, no)       yields
 *
 * A lazy section (txn_end_lazy, store_wait_lazy) is for changes that no program waits for: its
 * batch is committed when another section waits for it, or after opt.lazy_us.
 *
 * One batch is synced at a time; sections that end meanwhile make the next. A failed commit is
 * final: each later txn_begin and store_wait returns -LE_IO.
 */
#ifndef LEAT_MDS_STORE_TXN_H
#define LEAT_MDS_STORE_TXN_H

#include "mds/store/store.h"

/* Starts the committer's fiber. Returns 0 or the error of fiber_spawn. Does not yield. */
int store_run(struct store *s) CHECK_RESULT;
/* Commits the open batch and ends the committer. Yields. */
void store_stop(struct store *s);

/* Starts a critical section. Returns 0, -LE_IO (the store has failed), -LE_SHUTDOWN, -LE_INTR or
 * -LE_NOMEM. Yields while the open batch is full. */
int txn_begin(struct store *s) CHECK_RESULT;
/* End the critical section. Return the batch with its changes, 0 if it wrote nothing; s->depends is
 * the newest batch that it read. txn_end requests the commit. Do not yield. */
uint64_t txn_end(struct store *s);
uint64_t txn_end_lazy(struct store *s);
/* Wait until the batch (0: none) is durable. store_wait also requests the commit. Return 0 or
 * -LE_IO. Yield. */
int store_wait(struct store *s, uint64_t no) CHECK_RESULT;
int store_wait_lazy(struct store *s, uint64_t no) CHECK_RESULT;
/* Requests an early commit of the pending change of this inode, because a request needs it. Does
 * not yield. */
void inode_expedite(struct store *s, const struct inode *i);
/* Waits until the batch that is being synced now is published. A scan of the kv store may have read
 * changes of it, which then become visible to all. Returns 0 or -LE_IO. Yields. */
int store_settle(struct store *s) CHECK_RESULT;

/* The record of the inode in the open batch, for the caller to change in place. */
struct inode_rec *inode_edit(struct store *s, struct inode *i);
/* Creates an inode with the next number. Of *ret_rec only attr.ino is set. For a symbolic link the
 * caller then sets i->symlink, which the inode owns. */
struct inode *inode_create(struct store *s, struct inode_rec **ret_rec);
/* Deletes the record and the extended attributes (keys X), not the data. */
void inode_delete(struct store *s, struct inode *i);

/* Inserts an entry. d: the place that dentry_find returned with -LE_NOENT. The inode must be in
 * memory. */
void dentry_put(struct store *s, struct dentry *d, struct ino ino, uint32_t mode);
/* Gives the name to another inode, which must be in memory. */
void dentry_replace(struct store *s, struct dentry *d, struct ino ino, uint32_t mode);
/* Returns true if it left a tombstone. */
bool dentry_remove(struct store *s, struct dentry *d);
/* Deletes the remaining rows (tombstones) of a removed directory. */
void dentry_remove_range(struct store *s, struct ino dir);

/* Write or delete rows in the open batch. txn_delete_prefix deletes all rows with keys that begin
 * with k. */
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
/* To be called after a change of s->counters. */
static inline void txn_counters(struct store *s)
{
	s->wrote = true;
	s->counters_dirty = true;
}
void txn_cluster(struct store *s); /* to be called after a change of s->cluster */

#endif
