/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chunks of one target: an index (common/kv) and a data file. Blocks are copied on write, and
 * each has a checksum of its plain bytes. Readers see a change when it joins a group commit; it is
 * durable when its wait returns. README.md describes the order of steps.
 *
 * Owned by the loop that opened it. Calls come from its fibers and yield unless noted. Reads of a
 * chunk take no lock and return changes that have joined. Operations on all chunks of a file first
 * wait until these are durable.
 */
#ifndef LEAT_OSSD_CHUNK_CHUNK_STORE_H
#define LEAT_OSSD_CHUNK_CHUNK_STORE_H

#include "common/proto/oss_proto.h"
#include "common/proto/ranges.h"
#include "common/rpc/mds_clock.h"
#include "common/rt/slot.h"
#include "ossd/chunk/chunk_cache.h"
#include "ossd/chunk/chunk_inventory.h"
#include "ossd/chunk/data_file.h"
#include "ossd/chunk/group_commit.h"
#include "ossd/chunk/replay.h"
#include "ossd/chunk/space.h"
#include "ossd/chunk/writer_sessions.h"
#include "ossd/metrics.h"
#include "ossd/params.h"

#define STORE_FORMAT 4u
#define STORE_PATH_MAX (CONFIG_STR_MAX + 32)
/* Identity of the store: row 'M' "store" of the index. */
#define store_super_FIELDS(F)                                                                      \
	F(u32, format) F(uuid, uuid) F(uuid, cluster) F(u32, target) F(u64, capacity)
WIRE_STRUCT(store_super)
/* Checks that r has decoded the row, and that its format is STORE_FORMAT. Else logs what to do.
 * Returns 0 or -LE_STORE_FORMAT. */
int store_super_check(const struct wire_r *r, const struct store_super *super,
		      const char *dir) CHECK_RESULT;

#define CHUNK_STORE_MAGIC 0x4348534bu
struct chunk_store {
	uint32_t magic;
	struct env *env;
	const struct ossd_params *p;
	struct ossd_metrics *metrics;
	struct kv *kv;
	struct store_super super;
	uint64_t commits, commits_next; /* durable counter; counter in the group that is being
	                                 * committed */
	struct data_file data;
	struct space space;
	struct chunk_cache cache;
	struct group_commit gc;
	struct replay replay;
	struct writer_sessions writers;
	struct chunk_inventory inventory;
	struct mds_clock clock;
	/* Leases of chunks: the session that has some, as on disk, and as at the start
	 * (LEASED_MANY: several; 0: none); and when the last lease expires. */
	uint64_t leased, leased_before;
	uint64_t leased_until_us;
	struct fmutex leasing;
	struct slot_pool *read_pool, *small_pool, *merge_pool;
	struct fmutex many_slots; /* held while a reader takes more than one slot, so that two
	                           * readers do not wait for each other's slots */
	struct slot *zero;
	uint32_t n_writing;
	uint64_t n_lost_rows; /* lost rows detected since the start */
	uint64_t last_write_us;
	bool stopping, zeroing;
	struct latch fibers;
	/* Used only without a yield. */
	uint8_t scratch[CHUNK_RECORD_MAX];  /* an encoded record */
	uint8_t block[LEAT_BLOCK_SIZE_MAX]; /* a block to be packed or unpacked */
};

/* Opens the store. p and m must live as long as the store. */
int chunk_store_open(struct env *env, const struct ossd_params *p, struct ossd_metrics *m,
		     struct chunk_store **ret_store) CHECK_RESULT;
/* Commits what has joined, records that the store was closed in order, and frees it. Yields. */
void chunk_store_close(struct chunk_store *s);
/* Stores durably the cluster and the target that this store belongs to. Yields. */
int chunk_store_set_owner(struct chunk_store *s, const struct uuid *cluster,
			  uint32_t target) CHECK_RESULT;
/* Returns 0, or -LE_IO if the store has failed and refuses writes. Does not yield. */
static inline int chunk_store_status(const struct chunk_store *s)
{
	return s->gc.status < 0 ? -LE_IO : 0;
}
/* Updates the gauges of the metrics. Does not yield. */
void chunk_store_gauges(struct chunk_store *s);
/* Stores durably, for the process that opens the store next, that the session may hold leases of
 * chunks (ops/lease.h) until until_us. Yields for the first session and for the second. Returns 0
 * or -LE_IO. */
#define LEASED_MANY UINT64_MAX
int chunk_store_leased(struct chunk_store *s, uint64_t session, uint64_t until_us) CHECK_RESULT;

#endif
