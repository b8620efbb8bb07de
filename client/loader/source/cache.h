/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk cache for a data set that does not fit on the node: a folder holds pieces of files that
 * were read, up to a number of bytes. The cache drops the piece whose next use in the loader's
 * order is farthest (belady.h).
 *
 *   DIR/CONTENT/           one folder per content: other files, or newer ones, are another content
 *     lock                 names the job and its order; held shared by the job's loaders
 *     slot-K.lock          held by the loader of local rank and worker process K
 *     XX/FILE-OFFSET-LEN   a piece: its bytes, then magic, length and their checksum
 *
 * A piece is used only if its checksum is right, so nothing is synced, and pieces that a crash
 * leaves are used or read again. The loaders of one node, each with its share of the bytes, use
 * each other's pieces: each computes which loader uses a piece next, and that loader takes the
 * piece over when it uses it. A second job with another order finds the folder locked and runs
 * without a cache.
 *
 * Errors of the cache never reach the training: the loader reads the source, counts the error, and
 * logs the first. Any of the loader's loops may call cache_get and cache_put; `lock` guards the
 * tables and is never held across a yield.
 */
#ifndef LEAT_CLIENT_LOADER_SOURCE_CACHE_H
#define LEAT_CLIENT_LOADER_SOURCE_CACHE_H

#include "client/loader/source/belady.h"
#include "client/loader/source/dataset.h"

struct cache;

struct cache_options {
	struct leat_dataset *ds; /* borrowed */
	const char *dir;
	uint64_t bytes;       /* for all loaders of the node together */
	uint32_t local_ranks; /* ranks of this node, with consecutive numbers; world is a
			       * multiple of it */
	uint32_t rank, stride, phase, depth;
	struct order_deal deal;
	enum order_mode mode;
	uint32_t window;
	uint64_t seed, epoch, step; /* where the loader begins */
};
/* Opens the cache, in the user's thread. *ret_cache is NULL if another job holds the folder;
 * that is logged. Errors are in d too. */
int cache_open(const struct cache_options *o, struct cache **ret_cache,
	       struct detail *d) CHECK_RESULT;
void cache_close(struct cache *c); /* no call is in progress; c may be NULL */

/* A piece of a file, and the sample and time (sequence.h) that need it. */
struct cache_use {
	struct belady_key key;
	uint64_t sample, time;
};
/* Reads a piece into dst. False: the cache does not have it, or its checksum is wrong. Yields. */
bool cache_get(struct cache *c, const struct cache_use *u, void *dst);
/* Offers a piece that was read elsewhere. The cache stores it if its next use is nearer than
 * that of the pieces which it would replace. Yields. */
void cache_put(struct cache *c, const struct cache_use *u, const void *data);
/* Removes a piece that does not match its format's checksum; the next read is from the source.
 * Yields. */
void cache_drop(struct cache *c, const struct belady_key *k);

/* Fills in the metrics of the cache. Any thread. */
void cache_metrics(struct cache *c, struct leat_loader_metrics *m);

#endif
