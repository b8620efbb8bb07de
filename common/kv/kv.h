/*
 * An ordered key-value store with atomic durable batches: the seam where RocksDB stands now
 * and a replicated engine will stand later. Opened through the env (env->ops->kv_open), so the
 * simulator has its own.
 *
 * Keys are compared bytewise. All calls come from fibers of one loop; what may wait yields.
 * Reads see committed batches only.
 */
#ifndef LEAT_KV_KV_H
#define LEAT_KV_KV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/rt/env.h"

#define KV_KEY_MAX   1024
#define KV_VALUE_MAX (1u << 20)

struct kv;
struct kv_batch;
struct kv_iter;
struct kv_snapshot;

struct kv_options {
	bool create;                 /* make it if it is not there; else -LE_NOENT */
	uint64_t cache_size;         /* bytes of block cache, 0: 64 MiB */
	uint64_t write_buffer_size;  /* 0: 32 MiB */
	uint32_t background_threads; /* compactions and flushes, 0: 1 */
	bool no_sync;                /* durability = none, and proof that the tests notice */
};

struct kv_value {
	const void *data;
	size_t len;
	void *own; /* internal */
};

/* -LE_STORE_IN_USE, -LE_CORRUPT_STORE (with a log line), -LE_NOENT, -LE_IO. Yields. */
int kv_open(struct env *env, const char *path, const struct kv_options *opts,
	    struct kv **ret_kv) CHECK_RESULT;
/* No call may be pending. Yields. */
void kv_close(struct kv *kv);

/* -LE_NOENT when absent. Answered inline from memory where possible; otherwise yields (worker).
 * ret_value is valid until kv_value_fini. */
int kv_get(struct kv *kv, const void *key, size_t key_len, struct kv_value *ret_value) CHECK_RESULT;
/* Like kv_get but never yields: -LE_MISS when it would have to. */
int kv_try_get(struct kv *kv, const void *key, size_t key_len,
	       struct kv_value *ret_value) CHECK_RESULT;
void kv_value_fini(struct kv_value *v);

struct kv_batch *kv_batch_create(void); /* NULL without memory */
void kv_batch_destroy(struct kv_batch *b);
void kv_batch_clear(struct kv_batch *b);
void kv_batch_put(struct kv_batch *b, const void *key, size_t key_len, const void *value,
		  size_t len);
void kv_batch_delete(struct kv_batch *b, const void *key, size_t key_len);
/* [begin, end) */
void kv_batch_delete_range(struct kv_batch *b, const void *begin, size_t begin_len, const void *end,
			   size_t end_len);
uint32_t kv_batch_count(const struct kv_batch *b);
size_t kv_batch_bytes(const struct kv_batch *b);

/* All or nothing, durable when it returns if sync. Yields; the store's own committer thread
 * writes, in call order. A failure is final: the store refuses all later commits with the same
 * status (its state on disk is unknown until it is opened again). */
int kv_commit(struct kv *kv, struct kv_batch *b, bool sync) CHECK_RESULT;

/* A consistent view; NULL snapshot elsewhere means the present. */
int kv_snapshot_take(struct kv *kv, struct kv_snapshot **ret_snap) CHECK_RESULT;
void kv_snapshot_drop(struct kv *kv, struct kv_snapshot *snap);

/* [begin, end); end NULL: to the end of the store. */
struct kv_range {
	const void *begin;
	size_t begin_len;
	const void *end;
	size_t end_len;
	uint32_t max_items; /* a scan delivers no more than that */
};

/*
 * Reads a range in order; each() non-zero ends it, and a negative one is what the scan returns.
 * Yields; each() runs on the loop after a chunk has been read, so it may call what it likes except
 * yield. `begin` may be overwritten from the first each() on, `end` must stay as it is until the
 * scan returns.
 * ret_more: whether the range goes on behind the last item.
 */
int kv_scan(struct kv *kv, struct kv_snapshot *snap, const struct kv_range *range,
	    int (*each)(void *arg, const void *key, size_t key_len, const void *value, size_t len),
	    void *arg, bool *ret_more) CHECK_RESULT;

/* A complete, openable copy at path (must not exist), consistent and durable. Yields. */
int kv_checkpoint(struct kv *kv, const char *path) CHECK_RESULT;

struct kv_stats {
	uint64_t commits, syncs, batch_ops, batch_bytes, gets, get_misses, scans;
	uint64_t mem_bytes; /* block cache and write buffers in use */
};
void kv_stats(struct kv *kv, struct kv_stats *ret_stats);

/* The engines, for struct env_real_options and struct sim_options. */
int kv_rocksdb_open(struct env *env, const char *path, const struct kv_options *opts,
		    struct kv **ret_kv) CHECK_RESULT;
int kv_sim_open(struct env *env, const char *path, const struct kv_options *opts,
		struct kv **ret_kv) CHECK_RESULT;

/* Engines embed this. */
struct kv_ops {
	void (*close)(struct kv *kv);
	int (*get)(struct kv *kv, const void *key, size_t key_len, bool may_wait,
		   struct kv_value *ret_value);
	void (*value_fini)(struct kv_value *v);
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

#endif
