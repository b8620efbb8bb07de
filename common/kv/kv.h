/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ordered key-value store with atomic durable batches: the interface behind which RocksDB stands
 * now and a replicated engine will stand later. Opened through the env (env->ops->kv_open), so the
 * simulator has a separate engine.
 *
 * Keys are compared bytewise. All calls come from fibers of one loop; a call that may wait yields.
 * Reads return committed batches only.
 */
#ifndef LEAT_COMMON_KV_KV_H
#define LEAT_COMMON_KV_KV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/kv/kv_batch.h"
#include "common/rt/env.h"

#define KV_WRITE_BUFFERS 3 /* of a store: one is filled while others are flushed */

struct kv;
struct kv_iter;
struct kv_snapshot;

struct kv_options {
	bool create;                 /* create the store if it does not exist; else -LE_NOENT */
	uint64_t cache_size;         /* bytes of block cache, 0: 64 MiB */
	uint64_t write_buffer_size;  /* 0: 32 MiB */
	uint32_t background_threads; /* compactions and flushes, 0: 1 */
	bool no_sync;                /* durability = none, and proof that the tests notice */
	uint64_t rest_us; /* flush write buffers after so long with few writes; 0: 30 s */
};

struct kv_value {
	const void *data;
	size_t len;
	void *own; /* internal */
};

/* Opens the store at path. Returns 0, -LE_STORE_IN_USE, -LE_CORRUPT_STORE (with a log line),
 * -LE_NOENT or -LE_IO. Yields. */
int kv_open(struct env *env, const char *path, const struct kv_options *opts,
	    struct kv **ret_kv) CHECK_RESULT;
/* Closes the store. No call may be pending. Yields. */
void kv_close(struct kv *kv);

/* Reads the value of a key. Returns 0, -LE_NOENT if the key does not exist, or an error. Reads
 * inline if the value is in memory, else yields (worker). ret_value is valid until
 * kv_value_fini. */
int kv_get(struct kv *kv, const void *key, size_t key_len, struct kv_value *ret_value) CHECK_RESULT;
/* Like kv_get(), but never yields: returns -LE_MISS where kv_get() would. */
int kv_try_get(struct kv *kv, const void *key, size_t key_len,
	       struct kv_value *ret_value) CHECK_RESULT;
void kv_value_fini(struct kv_value *v);

/* Writes the batch as a whole or not at all, durably if sync. Returns when it is written. Yields;
 * the committer thread of the store writes, in call order. A failure is final: the store refuses
 * all later commits with the same status, because its state on disk is unknown until it is opened
 * again. */
int kv_commit(struct kv *kv, struct kv_batch *b, bool sync) CHECK_RESULT;

/* Takes a consistent view. Where other calls take a snapshot, NULL means the present state. */
int kv_snapshot_take(struct kv *kv, struct kv_snapshot **ret_snap) CHECK_RESULT;
void kv_snapshot_drop(struct kv *kv, struct kv_snapshot *snap);

/* The keys [begin, end); end NULL: to the end of the store. */
struct kv_range {
	const void *begin;
	size_t begin_len;
	const void *end;
	size_t end_len;
	uint32_t max_items; /* the scan delivers at most so many */
};

/*
 * Reads a range in order and calls each() for each item. A non-zero result of each() ends the scan,
 * and a negative one is returned by the scan. Yields. each() runs on the loop after a chunk has
 * been read, so it may call any function that does not yield. The caller may overwrite `begin` from
 * the first each() on, and must leave `end` unchanged until the scan returns. ret_more: whether the
 * range has items after the last one delivered.
 */
int kv_scan(struct kv *kv, struct kv_snapshot *snap, const struct kv_range *range,
	    int (*each)(void *arg, const void *key, size_t key_len, const void *value, size_t len),
	    void *arg, bool *ret_more) CHECK_RESULT;

/* Makes a complete, openable copy at path, which must not exist. The copy is consistent and
 * durable. Yields. */
int kv_checkpoint(struct kv *kv, const char *path) CHECK_RESULT;

struct kv_stats {
	uint64_t commits, syncs, gets, get_misses, scans;
	uint64_t mem_bytes; /* block cache and write buffers in use */
	uint64_t cache_bytes, buffer_bytes; /* parts of mem_bytes */
	uint64_t disk_free, disk_size; /* of the file system; UINT64_MAX: unknown */
};
void kv_stats(struct kv *kv, struct kv_stats *ret_stats);

/* Engines embed this. */
struct kv_ops {
	void (*close)(struct kv *kv);
	int (*get)(struct kv *kv, const void *key, size_t key_len, bool may_wait,
		   struct kv_value *ret_value);
	int (*commit)(struct kv *kv, struct kv_batch *b, bool sync);
	int (*snapshot_take)(struct kv *kv, struct kv_snapshot **ret_snap);
	void (*snapshot_drop)(struct kv *kv, struct kv_snapshot *snap);
	int (*scan)(struct kv *kv, struct kv_snapshot *snap, const struct kv_range *range,
		    int (*each)(void *arg, const void *key, size_t key_len, const void *value,
				size_t len),
		    void *arg, bool *ret_more);
	int (*checkpoint)(struct kv *kv, const char *path);
	void (*stats)(struct kv *kv, struct kv_stats *ret_stats);
};
struct kv {
	const struct kv_ops *ops;
	struct env *env;
};

/*
 * kv_value_fini has no store to dispatch on, so the lowest bit of `own` marks the kind of memory:
 * set, it is plain memory; clear, it is RocksDB's. (This avoids an allocation for each get.)
 */
static inline void *kv_value_tag_malloc(void *p)
{
	return (char *)p + 1;
}

#endif
