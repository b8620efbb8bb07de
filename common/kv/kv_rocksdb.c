/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The RocksDB engine, over its C API. Owned by the loop that opened it.
 *
 * Get: inline with the block-cache read tier (memtables, cached blocks, no I/O); a miss is read
 * again on a worker. Scan: likewise for short ranges; longer ones in chunks on a worker. Commit:
 * see kv_committer.c. Open, close, checkpoint: on a worker.
 *
 * Recovery: the log is opened in the mode that accepts a log that ends within a record but refuses
 * damaged records. A power cut can also leave the unsynced tail at full length but with holes,
 * which looks like damage: then kv_wal.c checks whether any whole write comes after it. If not,
 * only unsynced bytes are broken, and point-in-time recovery drops them. If so, acknowledged data
 * is broken and the store is not opened: -LE_CORRUPT_STORE.
 */
#include "common/kv/kv_rocksdb.h"

#include <errno.h>
#include <malloc.h>
#include <rocksdb/c.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/kv/kv_ballast.h"
#include "common/kv/kv_committer.h"
#include "common/kv/kv_wal.h"
#include "common/kv/kv_wal_ahead.h"

#define KV_ROCKSDB_MAGIC     0x4b565244u
#define CACHE_SIZE_DEFAULT   (64ULL << 20)
#define WRITE_BUFFER_DEFAULT (32ULL << 20)
/* The number of pieces of a write buffer, which are flushed together. An insertion walks a list of
 * one piece, which stays in the processor's cache (create of the MDS, 64 MiB: 35 us of the
 * committer in one piece, 29 in eight). */
#define WRITE_PIECES    8
#define OPEN_FILES_MAX  512
#define CHUNK_ITEMS     256
#define CHUNK_BYTES     (128u << 10)
#define CHUNK_BYTES_MIN (4u << 10)
/* Limits of rest(). REST_BYTES: fewer bytes written since the last call are little. REST_TABLES:
 * write buffers that hold less are not flushed. A flush needs free space of REST_DISK and REST_ROOM
 * times what the buffers hold. */
#define REST_US_DEFAULT 30000000ULL
#define REST_BYTES      (256u << 10)
#define REST_TABLES     (2u << 20)
#define REST_ROOM       4u
#define REST_DISK       (256ULL << 20)
#define BALLAST_MORE    (16ULL << 20)
/* An inline scan gives up after that many tombstones: a worker skips them. */
#define INLINE_SKIP_MAX 512

enum {
	READ_ALL_TIERS = 0,
	READ_CACHE_TIER = 1
};

struct kv_rocksdb {
	struct kv kv;
	uint32_t magic;
	struct loop *loop;
	char *path;
	struct kv_options opts;
	rocksdb_t *db;
	rocksdb_options_t *options;
	rocksdb_cache_t *cache;
	rocksdb_readoptions_t *read_inline, *read_worker;
	rocksdb_writeoptions_t *write_sync, *write_nosync;
	struct kv_committer *committer;
	struct kv_wal_ahead ahead; /* this and the next three: the committer's */
	uint64_t written_since_rest;
	uint64_t written_since_trim;
	bool flushed_at_rest;
	struct kv_stats stats;  /* the loop's */
	_Atomic uint64_t syncs; /* the committer's */
};

struct kv_snapshot {
	const rocksdb_snapshot_t *snap;
};

static struct kv_rocksdb *self(struct kv *kv)
{
	return CAST_OBJ(container_of(kv, struct kv_rocksdb, kv), struct kv_rocksdb,
			KV_ROCKSDB_MAGIC);
}

/* RocksDB reports the kind of an error only in its text. */
static bool says_full(const char *err)
{
	return err != NULL && strstr(err, "No space left") != NULL;
}

/* Frees err. */
static int status_of(char *err)
{
	int status = -LE_IO;
	if (err == NULL)
		return 0;
	if (strncmp(err, "Corruption", 10) == 0)
		status = -LE_CORRUPT_STORE;
	else if (says_full(err))
		status = -LE_NOSPC;
	else if (strstr(err, "lock hold by") != NULL || strstr(err, "While lock file") != NULL)
		status = -LE_STORE_IN_USE;
	else if (strstr(err, "does not exist (create_if_missing") != NULL)
		status = -LE_NOENT;
	else if (strncmp(err, "Result incomplete", 17) == 0)
		status = -LE_MISS;
	else if (strncmp(err, "Invalid argument", 16) == 0)
		status = strstr(err, "exists") != NULL ? -LE_EXIST : -LE_STORE_FORMAT;
	rocksdb_free(err);
	return status;
}

/* By default RocksDB counts each comparison of two keys in thread-local memory. Disables that for
 * this thread, because Leat does not read the counts. */
static void count_nothing(void)
{
	rocksdb_set_perf_level(rocksdb_disable);
}

/* ---- open and close ---- */

/* Stores are usually larger than memory: index and filters are in the cache too, in partitions, so
 * a lookup reads 4 KiB of them and not a megabyte. */
static void set_table_options(struct kv_rocksdb *k)
{
	rocksdb_block_based_table_options_t *t = rocksdb_block_based_options_create();
	rocksdb_block_based_options_set_block_cache(t, k->cache);
	rocksdb_block_based_options_set_block_size(t, 4096);
	rocksdb_block_based_options_set_format_version(t, 5);
	rocksdb_block_based_options_set_filter_policy(t,
						      rocksdb_filterpolicy_create_bloom_full(10));
	rocksdb_block_based_options_set_whole_key_filtering(t, 1);
	rocksdb_block_based_options_set_index_type(
		t, rocksdb_block_based_table_index_type_two_level_index_search);
	rocksdb_block_based_options_set_partition_filters(t, 1);
	rocksdb_block_based_options_set_metadata_block_size(t, 4096);
	rocksdb_block_based_options_set_cache_index_and_filter_blocks(t, 1);
	rocksdb_block_based_options_set_cache_index_and_filter_blocks_with_high_priority(t, 1);
	rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(t, 1);
	rocksdb_block_based_options_set_pin_top_level_index_and_filter(t, 1);
	rocksdb_block_based_options_set_data_block_index_type(
		t, rocksdb_block_based_table_data_block_index_type_binary_search_and_hash);
	rocksdb_block_based_options_set_data_block_hash_ratio(t, 0.75);
	rocksdb_options_set_block_based_table_factory(k->options, t);
	rocksdb_block_based_options_destroy(t);
}

static void set_options(struct kv_rocksdb *k)
{
	static const int compression[] = {
		rocksdb_no_compression,  rocksdb_no_compression,  rocksdb_lz4_compression,
		rocksdb_lz4_compression, rocksdb_lz4_compression, rocksdb_lz4_compression,
		rocksdb_lz4_compression,
	};
	rocksdb_options_t *o = k->options;
	uint32_t background = k->opts.background_threads != 0 ? k->opts.background_threads : 1;
	uint64_t buffer = k->opts.write_buffer_size;
	rocksdb_options_increase_parallelism(o, (int)background + 1);
	rocksdb_options_set_create_if_missing(o, k->opts.create);
	rocksdb_options_set_paranoid_checks(o, 1);
	rocksdb_options_set_max_open_files(o, OPEN_FILES_MAX);
	rocksdb_options_set_write_buffer_size(o, buffer / WRITE_PIECES);
	rocksdb_options_set_min_write_buffer_number_to_merge(o, WRITE_PIECES);
	rocksdb_options_set_max_write_buffer_number(o, KV_WRITE_BUFFERS * WRITE_PIECES);
	rocksdb_options_set_max_total_wal_size(o, KV_WRITE_BUFFERS * buffer);
	rocksdb_options_set_memtable_prefix_bloom_size_ratio(o, 0.02);
	rocksdb_options_set_memtable_whole_key_filtering(o, 1);
	/* Only one thread writes: support for parallel writers would make it slower. */
	rocksdb_options_set_allow_concurrent_memtable_write(o, 0);
	rocksdb_options_set_level_compaction_dynamic_level_bytes(o, 1);
	rocksdb_options_set_target_file_size_base(o, 32ULL << 20);
	rocksdb_options_set_compression_per_level(o, compression, ARRAY_SIZE(compression));
	rocksdb_options_set_bytes_per_sync(o, 1 << 20);
	rocksdb_options_set_wal_recovery_mode(o, rocksdb_tolerate_corrupted_tail_records_recovery);
	/* Level 4, fatal: a line for its log that does not fit on the disk ends the process
	 * (7.8). */
	rocksdb_options_set_info_log_level(o, 4);
	rocksdb_options_set_max_log_file_size(o, 1 << 20);
	rocksdb_options_set_keep_log_file_num(o, 2);
	rocksdb_options_set_stats_dump_period_sec(o, 0);
	rocksdb_options_set_stats_persist_period_sec(o, 0);
	set_table_options(k);
}

static int write_rocksdb(void *arg, struct kv_batch *group, bool sync)
{
	struct kv_rocksdb *k = CAST_OBJ(arg, struct kv_rocksdb, KV_ROCKSDB_MAGIC);
	size_t len;
	const uint8_t *rep = kv_batch_rep(group, &len);
	rocksdb_writebatch_t *wb = rocksdb_writebatch_create_from((const char *)rep, len);
	char *err = NULL;
	count_nothing();
	k->written_since_rest += len;
	k->written_since_trim += len;
	sync = sync && !k->opts.no_sync;
	if (sync)
		kv_wal_ahead_write(&k->ahead, len);
	rocksdb_write(k->db, sync ? k->write_sync : k->write_nosync, wb, &err);
	rocksdb_writebatch_destroy(wb);
	if (err != NULL) {
		log_error("kv %s: commit: %s", k->path, err);
		return status_of(err);
	}
	if (sync)
		atomic_fetch_add_explicit(&k->syncs, 1, memory_order_relaxed);
	return 0;
}

/* An open may flush what the log has of one write buffer. */
static uint64_t ballast_bytes(const struct kv_rocksdb *k)
{
	return k->opts.write_buffer_size + BALLAST_MORE;
}

/* Not on a disk that is almost full: a failed flush there stops the store. */
static bool flush_is_due(const struct kv_rocksdb *k)
{
	uint64_t tables = 0;
	struct statvfs disk;

	return rocksdb_property_int(k->db, "rocksdb.cur-size-all-mem-tables", &tables) == 0 &&
	       tables >= REST_TABLES && statvfs(k->path, &disk) == 0 &&
	       disk.f_bavail * disk.f_frsize >= REST_DISK + REST_ROOM * tables;
}

static void flush(struct kv_rocksdb *k)
{
	rocksdb_flushoptions_t *o = rocksdb_flushoptions_create();
	char *err = NULL;

	rocksdb_flushoptions_set_wait(o, 0);
	rocksdb_flush(k->db, o, &err);
	rocksdb_flushoptions_destroy(o);
	if (err != NULL)
		log_warn("kv %s: flush at rest: %s", k->path, err);
	rocksdb_free(err);
}

/* Called by the committer when few writes come. RocksDB flushes write buffers when they are full,
 * so data removed long ago would stay in memory. Flushes them; when nothing is left to flush,
 * returns the memory that flushes and compactions have freed to the system. */
static bool rest(void *arg)
{
	struct kv_rocksdb *k = CAST_OBJ(arg, struct kv_rocksdb, KV_ROCKSDB_MAGIC);
	uint64_t written = k->written_since_rest;

	k->written_since_rest = 0;
	kv_ballast_keep(k->path, ballast_bytes(k));
	if (written > REST_BYTES) {
		k->flushed_at_rest = false;
		return true;
	}
	if (!k->flushed_at_rest && flush_is_due(k)) {
		flush(k);
		k->flushed_at_rest = true;
		return true;
	}
	/* A search for free memory takes long in a large heap: only where some is likely. */
	if (k->flushed_at_rest || k->written_since_trim >= REST_TABLES) {
		k->written_since_trim = 0;
		malloc_trim(0);
	}
	k->flushed_at_rest = false;
	return false;
}

static void free_all(struct kv_rocksdb *k)
{
	kv_committer_stop(k->committer);
	kv_wal_ahead_fini(&k->ahead);
	if (k->db != NULL)
		rocksdb_close(k->db);
	if (k->options != NULL)
		rocksdb_options_destroy(k->options);
	if (k->cache != NULL)
		rocksdb_cache_destroy(k->cache);
	if (k->read_inline != NULL)
		rocksdb_readoptions_destroy(k->read_inline);
	if (k->read_worker != NULL)
		rocksdb_readoptions_destroy(k->read_worker);
	if (k->write_sync != NULL)
		rocksdb_writeoptions_destroy(k->write_sync);
	if (k->write_nosync != NULL)
		rocksdb_writeoptions_destroy(k->write_nosync);
	free(k->path);
	k->magic = 0;
	free(k);
}

struct open_job {
	struct kv_rocksdb *k;
	int status;
};

static int open_db(struct kv_rocksdb *k)
{
	char *err = NULL;
	struct stat st;
	/* RocksDB would leave an empty folder behind when it fails. */
	if (!k->opts.create && stat(k->path, &st) < 0)
		return status_from_errno(errno);
	kv_ballast_drop_if_full(k->path);
	k->db = rocksdb_open(k->options, k->path, &err);
	/* RocksDB writes out the log's data before it removes anything. */
	if (says_full(err) && kv_ballast_drop(k->path)) {
		rocksdb_free(err);
		err = NULL;
		k->db = rocksdb_open(k->options, k->path, &err);
	}
	if (err == NULL)
		return 0;
	/* Without syncs the unsynced tail may extend over several logs. */
	if (strncmp(err, "Corruption", 10) == 0 &&
	    (k->opts.no_sync || kv_wal_damage_is_tail(k->path))) {
		log_warn("kv %s: dropping the log's unsynced tail: %s", k->path, err);
		rocksdb_free(err);
		err = NULL;
		rocksdb_options_set_wal_recovery_mode(k->options, rocksdb_point_in_time_recovery);
		k->db = rocksdb_open(k->options, k->path, &err);
	}
	if (err != NULL && strstr(err, "create_if_missing") == NULL &&
	    strstr(err, "lock hold by") == NULL)
		log_error("kv %s: open: %s", k->path, err);
	return status_of(err);
}

static void open_on_worker(void *arg)
{
	struct open_job *job = arg;
	struct kv_rocksdb *k = job->k;
	k->cache = rocksdb_cache_create_lru(k->opts.cache_size);
	k->options = rocksdb_options_create();
	set_options(k);
	k->read_inline = rocksdb_readoptions_create();
	rocksdb_readoptions_set_read_tier(k->read_inline, READ_CACHE_TIER);
	k->read_worker = rocksdb_readoptions_create();
	rocksdb_readoptions_set_read_tier(k->read_worker, READ_ALL_TIERS);
	k->write_sync = rocksdb_writeoptions_create();
	rocksdb_writeoptions_set_sync(k->write_sync, 1);
	k->write_nosync = rocksdb_writeoptions_create();
	job->status = open_db(k);
	if (job->status == 0)
		kv_ballast_keep(k->path, ballast_bytes(k));
}

static void close_on_worker(void *arg)
{
	free_all(arg);
}

static void rocks_close(struct kv *kv)
{
	struct kv_rocksdb *k = self(kv);
	/* If no worker is available, close here: it blocks the loop once, at the end of the
	 * program. */
	if (env_offload(kv->env, close_on_worker, k) < 0)
		free_all(k);
}

/* RocksDB syncs the content of its folder, but not the folder's name. */
static int sync_name(struct env *env, const char *path)
{
	char *parent = strdup(path);
	if (parent == NULL)
		return -LE_NOMEM;
	char *slash = strrchr(parent, '/');
	if (slash != NULL)
		slash[slash == parent ? 1 : 0] = '\0';
	int rc = env_syncdir(env, slash != NULL ? parent : ".");
	free(parent);
	return rc;
}

/* ---- get ---- */

struct get_job {
	struct kv_rocksdb *k;
	const void *key;
	size_t key_len;
	const rocksdb_readoptions_t *opts;
	rocksdb_pinnableslice_t *slice;
	int status;
};

static void get_run(void *arg)
{
	struct get_job *job = arg;
	char *err = NULL;
	count_nothing();
	job->slice = rocksdb_get_pinned(job->k->db, job->opts, job->key, job->key_len, &err);
	job->status = err != NULL ? status_of(err) : job->slice == NULL ? -LE_NOENT : 0;
}

/* Reads from memory only. Until RocksDB 9.1 a key of a table that is not open is reported as
 * present with an empty value (its pull request 12443): an empty value is a miss. */
static void get_inline(struct get_job *job)
{
	size_t len;

	get_run(job);
	if (job->status < 0)
		return;
	rocksdb_pinnableslice_value(job->slice, &len);
	if (len > 0)
		return;
	rocksdb_pinnableslice_destroy(job->slice);
	job->slice = NULL;
	job->status = -LE_MISS;
}

static int rocks_get(struct kv *kv, const void *key, size_t key_len, bool may_wait,
		     struct kv_value *ret_value)
{
	struct kv_rocksdb *k = self(kv);
	struct get_job job = {.k = k, .key = key, .key_len = key_len, .opts = k->read_inline};
	k->stats.gets++;
	get_inline(&job);
	if (job.status == -LE_MISS && may_wait) {
		k->stats.get_misses++;
		job.opts = k->read_worker;
		TRY(env_offload(kv->env, get_run, &job));
	}
	if (job.status < 0) {
		if (job.status == -LE_CORRUPT_STORE)
			log_error("kv %s: damaged block met by a get", k->path);
		return job.status;
	}
	ret_value->data = rocksdb_pinnableslice_value(job.slice, &ret_value->len);
	ret_value->own = job.slice;
	return 0;
}

void kv_rocksdb_value_fini(struct kv_value *v)
{
	rocksdb_pinnableslice_destroy(v->own);
}

/* ---- commit ---- */

static int rocks_commit(struct kv *kv, struct kv_batch *b, bool sync)
{
	struct kv_rocksdb *k = self(kv);
	k->stats.commits++;
	return kv_committer_commit(k->committer, b, sync);
}

/* ---- snapshots and scans ---- */

static int rocks_snapshot_take(struct kv *kv, struct kv_snapshot **ret_snap)
{
	struct kv_snapshot *s = malloc(sizeof(*s));
	if (s == NULL)
		return -LE_NOMEM;
	s->snap = rocksdb_create_snapshot(self(kv)->db);
	*ret_snap = s;
	return 0;
}

static void rocks_snapshot_drop(struct kv *kv, struct kv_snapshot *snap)
{
	rocksdb_release_snapshot(self(kv)->db, snap->snap);
	free(snap);
}

struct item {
	uint32_t off, key_len, len;
};

/* A scan in progress, on the heap of its fiber. It runs on the loop or on a worker, never on
 * both. */
struct scan {
	struct kv_rocksdb *k;
	rocksdb_readoptions_t *opts;
	rocksdb_iterator_t *it;
	const struct kv_range *range;
	uint32_t left; /* items that may still be delivered */
	bool more;     /* the iterator is on an item after the chunk */
	int status;
	uint32_t n;
	size_t used, size;
	uint8_t *buf;
	struct item items[CHUNK_ITEMS];
};

static int add_item(struct scan *s)
{
	size_t key_len, len;
	const char *key = rocksdb_iter_key(s->it, &key_len);
	const char *value = rocksdb_iter_value(s->it, &len);
	if (s->used + key_len + len > s->size) {
		/* Most scans are short: a directory of a few names, the attributes of a file. */
		size_t size = s->size * 2 > CHUNK_BYTES_MIN ? s->size * 2 : CHUNK_BYTES_MIN;
		size_t need = s->used + key_len + len;
		size = size > need ? size : need;
		uint8_t *buf = realloc(s->buf, size);
		if (buf == NULL)
			return -LE_NOMEM;
		s->buf = buf;
		s->size = size;
	}
	s->items[s->n++] = (struct item){(uint32_t)s->used, (uint32_t)key_len, (uint32_t)len};
	memcpy(s->buf + s->used, key, key_len);
	memcpy(s->buf + s->used + key_len, value, len);
	s->used += key_len + len;
	return 0;
}

/* Fills the chunk. */
static void scan_run(void *arg)
{
	struct scan *s = arg;
	char *err = NULL;
	count_nothing();
	if (s->it == NULL) {
		s->it = rocksdb_create_iterator(s->k->db, s->opts);
		rocksdb_iter_seek(s->it, s->range->begin, s->range->begin_len);
	}
	s->n = 0;
	s->used = 0;
	s->status = 0;
	while (rocksdb_iter_valid(s->it) && s->n < CHUNK_ITEMS && s->n < s->left &&
	       s->used < CHUNK_BYTES && s->status == 0) {
		s->status = add_item(s);
		rocksdb_iter_next(s->it);
	}
	s->more = rocksdb_iter_valid(s->it);
	rocksdb_iter_get_error(s->it, &err);
	if (err != NULL)
		s->status = status_of(err);
}

static void scan_end(struct scan *s)
{
	if (s->it != NULL)
		rocksdb_iter_destroy(s->it);
	if (s->opts != NULL)
		rocksdb_readoptions_destroy(s->opts);
	s->it = NULL;
	s->opts = NULL;
}

static void scan_begin(struct scan *s, struct kv_snapshot *snap, bool from_memory)
{
	s->opts = rocksdb_readoptions_create();
	if (from_memory) {
		rocksdb_readoptions_set_read_tier(s->opts, READ_CACHE_TIER);
		rocksdb_readoptions_set_max_skippable_internal_keys(s->opts, INLINE_SKIP_MAX);
	}
	if (snap != NULL)
		rocksdb_readoptions_set_snapshot(s->opts, snap->snap);
	if (s->range->end != NULL)
		rocksdb_readoptions_set_iterate_upper_bound(s->opts, s->range->end,
							    s->range->end_len);
	rocksdb_readoptions_set_background_purge_on_iterator_cleanup(s->opts, 1);
}

/* Delivers the chunk. Returns 1 if each() has ended the scan. */
static int scan_deliver(struct scan *s,
			int (*each)(void *arg, const void *key, size_t key_len, const void *value,
				    size_t len),
			void *arg)
{
	for (uint32_t i = 0; i < s->n; i++) {
		const struct item *it = &s->items[i];
		const uint8_t *key = s->buf + it->off;
		s->left--;
		if (each(arg, key, it->key_len, key + it->key_len, it->len) != 0) {
			s->more = s->more || i + 1 < s->n;
			return 1;
		}
	}
	return 0;
}

static int rocks_scan(struct kv *kv, struct kv_snapshot *snap, const struct kv_range *range,
		      int (*each)(void *arg, const void *key, size_t key_len, const void *value,
				  size_t len),
		      void *arg, bool *ret_more)
{
	struct kv_rocksdb *k = self(kv);
	struct scan *s = malloc(sizeof(*s));
	if (s == NULL)
		return -LE_NOMEM;
	*s = (struct scan){.k = k, .range = range, .left = range->max_items};
	k->stats.scans++;
	/* In memory a short scan costs less than the transfer to a worker. */
	scan_begin(s, snap, true);
	scan_run(s);
	if (s->status < 0 || (s->more && s->n < s->left)) {
		scan_end(s);
		scan_begin(s, snap, false);
		int rc = env_offload(kv->env, scan_run, s);
		s->status = rc < 0 ? rc : s->status;
	}
	while (s->status == 0) {
		if (scan_deliver(s, each, arg) != 0 || !s->more || s->left == 0)
			break;
		int rc = env_offload(kv->env, scan_run, s);
		s->status = rc < 0 ? rc : s->status;
	}
	int status = s->status;
	if (status == 0)
		*ret_more = s->more;
	else
		log_debug("kv %s: scan: %s", k->path, status_name(status));
	scan_end(s);
	free(s->buf);
	free(s);
	return status;
}

/* ---- checkpoint and statistics ---- */

struct checkpoint_job {
	struct kv_rocksdb *k;
	const char *path;
	int status;
};

static void checkpoint_run(void *arg)
{
	struct checkpoint_job *job = arg;
	char *err = NULL;
	rocksdb_checkpoint_t *cp = rocksdb_checkpoint_object_create(job->k->db, &err);
	if (err == NULL) {
		/* 0: flush first, so that the copy needs no log. */
		rocksdb_checkpoint_create(cp, job->path, 0, &err);
		rocksdb_checkpoint_object_destroy(cp);
	}
	if (err != NULL && strstr(err, "exists") == NULL)
		log_error("kv %s: checkpoint %s: %s", job->k->path, job->path, err);
	job->status = status_of(err);
}

static int rocks_checkpoint(struct kv *kv, const char *path)
{
	struct checkpoint_job job = {.k = self(kv), .path = path};
	TRY(env_offload(kv->env, checkpoint_run, &job));
	TRY(job.status);
	return sync_name(kv->env, path);
}

static void rocks_stats(struct kv *kv, struct kv_stats *ret_stats)
{
	struct kv_rocksdb *k = self(kv);
	uint64_t tables = 0;
	struct statvfs disk;
	*ret_stats = k->stats;
	ret_stats->syncs = atomic_load_explicit(&k->syncs, memory_order_relaxed);
	if (rocksdb_property_int(k->db, "rocksdb.cur-size-all-mem-tables", &tables) != 0)
		tables = 0;
	ret_stats->cache_bytes = rocksdb_cache_get_usage(k->cache);
	ret_stats->buffer_bytes = tables;
	ret_stats->disk_free = ret_stats->disk_size = UINT64_MAX;
	if (statvfs(k->path, &disk) == 0) {
		ret_stats->disk_free = (uint64_t)disk.f_bavail * disk.f_frsize;
		ret_stats->disk_size = (uint64_t)disk.f_blocks * disk.f_frsize;
	}
	ret_stats->mem_bytes = ret_stats->cache_bytes + tables;
}

static const struct kv_ops rocks_ops = {
	.close = rocks_close,
	.get = rocks_get,
	.commit = rocks_commit,
	.snapshot_take = rocks_snapshot_take,
	.snapshot_drop = rocks_snapshot_drop,
	.scan = rocks_scan,
	.checkpoint = rocks_checkpoint,
	.stats = rocks_stats,
};

int kv_rocksdb_open(struct env *env, const char *path, const struct kv_options *opts,
		    struct kv **ret_kv)
{
	struct kv_rocksdb *k = calloc(1, sizeof(*k));
	if (k == NULL)
		return -LE_NOMEM;
	k->kv = (struct kv){.ops = &rocks_ops, .env = env};
	k->magic = KV_ROCKSDB_MAGIC;
	k->loop = loop_self();
	k->opts = *opts;
	if (k->opts.cache_size == 0)
		k->opts.cache_size = CACHE_SIZE_DEFAULT;
	if (k->opts.write_buffer_size == 0)
		k->opts.write_buffer_size = WRITE_BUFFER_DEFAULT;
	if (k->opts.rest_us == 0)
		k->opts.rest_us = REST_US_DEFAULT;
	k->path = strdup(path);
	kv_wal_ahead_init(&k->ahead, k->path);
	struct open_job job = {.k = k, .status = -LE_NOMEM};
	int rc = k->path != NULL ? env_offload(env, open_on_worker, &job) : -LE_NOMEM;
	rc = rc < 0 ? rc : job.status;
	if (rc == 0 && opts->create)
		rc = sync_name(env, k->path);
	if (rc == 0) {
		struct kv_committer_options copts = {
			.loop = k->loop, .write = write_rocksdb, .rest = rest,
			.rest_us = k->opts.rest_us, .arg = k};
		rc = kv_committer_start(&copts, &k->committer);
	}
	if (rc < 0) {
		rocks_close(&k->kv);
		return rc;
	}
	*ret_kv = &k->kv;
	return 0;
}
