/*
 * A disk cache for a data set that does not fit on the node: pieces of files that were read are
 * kept in a folder up to a number of bytes, and the piece goes whose next use in the loader's known
 * order is farthest (belady.h).
 *
 *   DIR/CONTENT/           one folder per content: other files, or newer ones, are another content
 *     lock                 who the order belongs to; held shared by the loaders of one job
 *     slot-K.lock          held by the loader of local rank and worker process K
 *     XX/FILE-OFFSET-LEN   a piece: its bytes, then magic, length and their checksum
 *
 * A piece is believed only when its checksum is right, so nothing is synced and whatever a crash
 * leaves behind is used or read again. The loaders of one node, each with its share of the bytes,
 * use each other's pieces: who uses a piece next is computed, and takes it over when he does. A
 * second job with another order finds the folder locked and goes without.
 *
 * Errors of the cache never reach the training: it reads the source, counts, and says so once.
 * Any of the loader's loops calls get and put; `lock` guards the books and is never held across a
 * yield.
 */
#ifndef LEAT_LOADER_CACHE_H
#define LEAT_LOADER_CACHE_H

#include "client/loader/belady.h"
#include "client/loader/dataset.h"

struct cache;

struct cache_options {
	struct leat_dataset *ds; /* borrowed */
	const char *dir;
	uint64_t bytes;       /* of all loaders of the node together */
	uint32_t local_ranks; /* on this node: a block of that many, world is a multiple */
	uint32_t rank, stride, phase, depth;
	struct order_deal deal;
	enum order_mode mode;
	uint32_t window;
	uint64_t seed, epoch, step; /* where the loader begins */
};
/* In the user's thread. *ret_cache is NULL when another job has the folder, which is logged. */
int cache_open(const struct cache_options *o, struct cache **ret_cache,
	       struct detail *d) CHECK_RESULT;
void cache_close(struct cache *c); /* NULL is fine; no fiber is in it any more */

/* A piece of a file that is needed for a sample at a time (sequence.h). */
struct cache_use {
	struct belady_key key;
	uint64_t sample, time;
};
/* Is it there, and right? Then its bytes are at dst. Yields. */
bool cache_get(struct cache *c, const struct cache_use *u, void *dst);
/* What was read instead: kept if its next use is near enough. Yields. */
void cache_put(struct cache *c, const struct cache_use *u, const void *data);
/* What was read, or was in the cache, is not what its format says: read from the source next time.
 * Yields. */
void cache_drop(struct cache *c, const struct belady_key *k);

void cache_metrics(struct cache *c, struct leat_loader_metrics *m);

#endif
