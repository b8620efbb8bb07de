/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cache of prefetched file data, in units of 1 MiB in slots. A unit is fetched ahead of the reader.
 * It is dropped when it has been read, on writes and truncations, when the change counter moves,
 * and RA_LIFE_US after its start. Owned by the client's loop. No function yields.
 */
#ifndef LEAT_CLIENT_CACHE_PREFETCH_CACHE_H
#define LEAT_CLIENT_CACHE_PREFETCH_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/layout/block_sums.h"
#include "client/ll.h"
#include "common/base/list.h"
#include "common/proto/types.h"
#include "common/rt/fiber.h"

struct client;
struct inode_io;
struct slot;

#define RA_UNIT    LL_IO_MAX
#define RA_LIFE_US 1000000u

enum unit_state {
	UNIT_FETCHING,
	UNIT_READY,
	UNIT_FAILED
};

/* One unit of prefetched data. */
struct unit {
	struct list link; /* in inode_io.units */
	struct list all;  /* in readahead.units, oldest first; or in readahead.free */
	struct inode_io *d;
	uint64_t idx; /* file offset / RA_UNIT */
	struct slot *slot;
	uint32_t len;
	uint32_t used; /* bytes read by callers */
	struct block_sums sums;
	uint64_t sum[RA_UNIT / LEAT_BLOCK_SIZE_MIN]; /* storage of sums */
	enum unit_state state;
	bool dropped; /* in no list; the last user frees it */
	/* users: fetch, readers and the lists. at_us: when the fetch began. q: waiters for the
	 * fetch. */
	uint32_t users;
	uint64_t at_us;
	struct waitq q;
};

/* The prefetch cache of a client. */
struct readahead {
	struct list units, free;
	uint32_t n_units, n_free;
	uint32_t trust; /* Confidence, 0 to RA_TRUST_MAX, that small files are read after an open.
			 * They are prefetched from half of it on. */
};

/* Initialises the cache. */
void ra_init(struct readahead *ra);
/* Frees unused units. No unit may be in use. */
void ra_fini(struct readahead *ra);

/* Drops all units of the file. */
void ra_drop_all(struct inode_io *d);
/* Drops the units that overlap [off, off + len). */
void ra_drop_range(struct inode_io *d, uint64_t off, uint64_t len);
/* Drops units older than RA_LIFE_US, and shrinks the window of files that did not use them. */
void ra_expire(struct client *c);

/* Returns the file's unit idx, without a reference, or NULL. */
struct unit *prefetch_find(struct inode_io *d, uint64_t idx);

/* Ends one use of a unit. The last use of a dropped unit frees it. */
void prefetch_release(struct client *c, struct unit *u);

/* Removes a unit from the lists. Its present users may continue. */
void prefetch_drop(struct unit *u);

#endif
