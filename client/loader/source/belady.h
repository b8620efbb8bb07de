/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which pieces of files a cache holds, and which piece it drops when it needs space: the piece
 * whose next use is farthest (Belady, "A study of replacement algorithms for a virtual-storage
 * computer", 1966). A loader can do that because its order is a pure function. This file has tables
 * only; cache.c has the bytes. The owner's lock guards them; no function yields.
 */
#ifndef LEAT_CLIENT_LOADER_SOURCE_BELADY_H
#define LEAT_CLIENT_LOADER_SOURCE_BELADY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/hmap.h"
#include "common/base/list.h"
#include "common/base/status.h"

#define BELADY_UNIT        4096u /* allocation unit of a file system */
#define BELADY_ENTRIES_MAX (1u << 22)

struct belady_key {
	uint32_t file, len;
	uint64_t off;
};

struct belady_entry {
	struct hmap_node node;
	struct list link; /* in ret_gone, after it was dropped */
	struct belady_key key;
	uint64_t sample, next; /* next use; UINT64_MAX: never */
	size_t at;             /* index in the heap */
	bool ready;            /* its bytes are written, and it is in the heap */
};

struct belady {
	struct hmap map;
	struct belady_entry **heap; /* the farthest next use on top */
	size_t n, cap;
	uint64_t used, limit;
};

void belady_init(struct belady *b, uint64_t limit);
void belady_fini(struct belady *b);
/* Returns the bytes of disk that a piece of len bytes occupies. */
uint64_t belady_cost(uint32_t len);
/* Returns the entry of a piece, or NULL. */
struct belady_entry *belady_find(const struct belady *b, const struct belady_key *k);
/*
 * Makes an entry for a piece with that next use. Removes the entries that must make space for it
 * and appends them to ret_gone; the caller frees them. Returns NULL if all entries are used sooner,
 * or without memory. The entry cannot be dropped before belady_ready.
 */
struct belady_entry *belady_add(struct belady *b, const struct belady_key *k, uint64_t next,
				struct list *ret_gone);
/* Call this when the bytes of the piece are written: the entry may be dropped from now on. */
void belady_ready(struct belady *b, struct belady_entry *e);
/* Sets the next use of a ready entry. */
void belady_move(struct belady *b, struct belady_entry *e, uint64_t next);
/* Removes an entry; the caller frees it. */
void belady_remove(struct belady *b, struct belady_entry *e);

#endif
