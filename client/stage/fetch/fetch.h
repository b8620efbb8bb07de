/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Brings one copy to READY: verifies existing data, fetches missing chunks in the order of a plan,
 * and makes all durable. Runs as fibers of one loop. The caller holds the lock of the store.
 *
 *   fetch_create → fetch_run → fetch_destroy; meanwhile fetch_give hands chunks to other nodes.
 */
#ifndef LEAT_CLIENT_STAGE_FETCH_FETCH_H
#define LEAT_CLIENT_STAGE_FETCH_FETCH_H

#include "client/dataset/manifest.h"
#include "client/dataset/vol.h"
#include "client/include/leat/leat_stage.h"
#include "client/stage/store/local_store.h"
#include "common/base/rate_limit.h"
#include "common/rt/slot.h"

struct fetch;
struct rows;
struct transport;

struct fetch_report {
	uint64_t bytes_verified, files;
	uint64_t bytes_source, bytes_peers; /* transferred, by origin */
	uint64_t narrowed;                  /* files with fewer readers than at the source */
	uint64_t source_us;                 /* average time that the source takes for a chunk */
};

/* Which nodes to request a chunk from. */
enum fetch_ask {
	ASK_OWNER, /* its owner, or a node that has the whole copy */
	ASK_READY, /* only nodes that have the whole copy: other nodes wait here for the chunk */
	ASK_ALL    /* any node that has it: the source has failed */
};

struct fetch_options {
	struct local_store *store;
	const struct manifest *manifest;
	/* The rights of the manifest's rows that the copy granted last; NULL: none. */
	const struct rows *had;
	struct vol *source; /* NULL: only verify existing data */
	const char *source_dir;
	void (*report)(void *arg, const struct fetch_report *r);
	void *arg;
	const volatile int *cancel;
	/* Chunk numbers in the order of the plan, each once; NULL: in ascending order. The first
	 * n_window of them are the first window: `window` is called when they are durable. */
	const uint64_t *plan;
	uint64_t n_plan, n_window;
	void (*window)(void *arg);
	struct rate_limit *throttle; /* of reads from the source; NULL: none */
	struct slot_pool *pool;    /* slots of MANIFEST_CHUNK bytes; NULL: fetch_create makes a
				    * pool, ... */
	struct transport *transport; /* ... and registers it with this transport; NULL: it does
				      * not */
	/* Where in the order this node begins, as a part of 2^32, so that nodes fetch different
	 * chunks at any time. Ignored with a plan. */
	uint32_t turn;
	/* Gets the verified bytes of a chunk from another node into the slot. If it fails, the
	 * source is read. NULL: there are no other nodes. Yields. */
	int (*from_peer)(void *arg, uint64_t chunk, struct slot *s, enum fetch_ask ask);
};

/* opts' pointers are borrowed until fetch_destroy. -LE_NOMEM. Does not yield. */
int fetch_create(const struct fetch_options *opts, struct detail *d,
		 struct fetch **ret_fetch) CHECK_RESULT;
/* Verifies and fetches the whole copy. On success all data is durable under its name and the
 * bitmap is complete; the caller sets READY. On failure *ret_code (enum leat_stage_code) is the
 * kind, and d has path, offset and reason; what was verified is durable all the same. Yields. */
int fetch_run(struct fetch *ft, struct fetch_report *ret_report, int *ret_code) CHECK_RESULT;
/* Waits until no fetch_give runs, and frees it. NULL is fine. Yields. */
void fetch_destroy(struct fetch *ft);

enum fetch_give_how {
	GIVE_PRESENT, /* only if the chunk is here */
	GIVE_COMING,  /* also if it is being fetched now */
	GIVE_DEMAND   /* it is fetched from the source now, unless that is in progress */
};
/* Gets a verified chunk for another node, in a slot of the pool; waits for it until the
 * deadline. No slot is held while waiting, so that nodes that wait for each other cannot run out
 * of slots. -LE_AGAIN: it is not here; -LE_NOT_READY: the run has not begun. Yields. */
int fetch_give(struct fetch *ft, uint64_t chunk, enum fetch_give_how how, uint64_t deadline_us,
	       struct slot_pool *pool, struct slot **ret_slot) CHECK_RESULT;

#endif
