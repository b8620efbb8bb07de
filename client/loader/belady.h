/*
 * Which pieces of files a cache holds and which one goes when there is no room: the one whose next
 * use is farthest (Belady, "A study of replacement algorithms for a virtual-storage computer",
 * 1966), which a loader can do because its order is known. Only the books; the bytes are the affair
 * of cache.c. Guarded by its owner's lock.
 */
#ifndef LEAT_LOADER_BELADY_H
#define LEAT_LOADER_BELADY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/hmap.h"
#include "common/base/list.h"
#include "common/base/status.h"

#define BELADY_UNIT        4096u /* what a file system gives out at least */
#define BELADY_ENTRIES_MAX (1u << 22)

struct belady_key {
	uint32_t file, len;
	uint64_t off;
};

struct belady_entry {
	struct hmap_node node;
	struct list link; /* among those that go */
	struct belady_key key;
	uint64_t sample, next; /* next use; UINT64_MAX: never */
	size_t at;             /* in the heap */
	bool ready;            /* in the heap: its bytes are there */
};

struct belady {
	struct hmap map;
	struct belady_entry **heap; /* the farthest next use on top */
	size_t n, cap;
	uint64_t used, limit;
};

void belady_init(struct belady *b, uint64_t limit);
void belady_fini(struct belady *b);
/* Bytes of disk that len bytes take. */
uint64_t belady_cost(uint32_t len);
struct belady_entry *belady_find(const struct belady *b, const struct belady_key *k);
/*
 * Room for a piece with that next use: what has to go for it is appended to ret_gone, out of the
 * books already and the caller's to free. NULL when what is there is used sooner, or memory is
 * short. Not ready before belady_ready.
 */
struct belady_entry *belady_add(struct belady *b, const struct belady_key *k, uint64_t next,
				struct list *ret_gone);
void belady_ready(struct belady *b, struct belady_entry *e);
void belady_move(struct belady *b, struct belady_entry *e, uint64_t next); /* of a ready one */
/* Out of the books: the caller's to free. */
void belady_remove(struct belady *b, struct belady_entry *e);
/* Makes used fit limit. */
void belady_shrink(struct belady *b, uint64_t limit, struct list *ret_gone);

#endif
