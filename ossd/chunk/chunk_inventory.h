/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inventory: which chunks the index must have. Without it a lost row would look like a hole,
 * or like a chunk that was removed.
 *
 * Per chain, INVENTORY_CELLS cells count the chunks. A chunk belongs to the cell that the hash of
 * its name selects. A cell holds the number of its chunks and the exclusive or of their names. It
 * is a row (H), updated in the batch of each chunk that is added or removed. Each chunk also has a
 * second row, its name alone (N), in the same batches but elsewhere in the index.
 *
 * A start compares the cells with the rows. Chunks that a cell counts and that have no row are
 * lost:
 *    - The N rows name the lost chunks. A chunk that is lost by name gets a row that marks it as
 *      lost.
 *    - If N rows are lost too and the cell lacks one chunk, the difference is the name of that
 *      chunk.
 *    - If the cell lacks two, a candidate name can be tested: the difference without it must be
 *      the other name.
 *    - If the cell lacks more, it only shows that chunks are lost. The cell is *uncertain*.
 *
 * An uncertain cell affects one name in INVENTORY_CELLS, and only files with an inode number not
 * above that of any chunk the cell had. Files made later are not affected. The cell stays
 * uncertain, over restarts and in members filled from this one, until the chunks restored here
 * make up the whole difference.
 *
 * Owned by the store's loop. Nothing here yields.
 */
#ifndef LEAT_OSSD_CHUNK_CHUNK_INVENTORY_H
#define LEAT_OSSD_CHUNK_CHUNK_INVENTORY_H

#include "common/base/hmap.h"
#include "common/kv/kv.h"
#include "ossd/chunk/keys.h"

#define INVENTORY_CELLS 128u
/* Key of the row that marks a store with an inventory: there, a chain without rows has no chunks.
 * A value that is not empty means that every chunk has its N row too. */
#define INVENTORY_BEGAN_KEY      "Mledger"
#define INVENTORY_BEGAN_KEY_SIZE 7u

struct inventory_sum {
	uint64_t n, hash, ino, idx;
	uint32_t gen;
};

struct inventory_cell {
	struct inventory_sum kept; /* the chunks there must be, as in its row */
	struct inventory_sum lost; /* those of them that have no row */
	uint64_t top;           /* highest inode number of a chunk counted here */
	uint64_t upto;          /* highest inode number of a chunk that can be lost */
	bool guessed;           /* chunks that may not be among the lost ones were subtracted:
	                         * lost may be wrong */
	/* At the start: the values of lost for which upto and guessed were written. */
	uint64_t noted_n, noted_hash;
};

struct inventory_chain {
	struct hmap_node node;
	uint32_t chain;
	uint32_t n_uncertain; /* cells that lack chunks */
	uint32_t n_marked;   /* rows that mark a chunk as lost; not part of `lost` */
	bool whole;          /* all members are SYNC: no other member can have what is lost */
	struct inventory_cell cells[INVENTORY_CELLS];
};

struct chunk_inventory {
	struct hmap chains;
	bool began; /* the row INVENTORY_BEGAN_KEY exists */
	bool named; /* and every chunk has a row N */
};

uint64_t inventory_bytes(const struct chunk_inventory *l); /* memory used */
void inventory_init(struct chunk_inventory *l);
void inventory_fini(struct chunk_inventory *l);

/* ---- start: all rows H, then all chunks, then inventory_loaded ---- */

/* Loads a row H. Returns 0, -LE_CORRUPT_STORE or -LE_NOMEM. */
int inventory_load(struct chunk_inventory *l, const void *key, size_t key_len, const void *value,
		size_t len) CHECK_RESULT;
/* Counts a chunk that has a row, even if its record is damaged. Returns 0 or -LE_NOMEM. */
int inventory_found(struct chunk_inventory *l, const struct chunk_key *k) CHECK_RESULT;
/* Call after all chunks were counted: determines which cells lack chunks, and returns how many
 * chunks are lost (a lower bound). In a store without an inventory the present rows make up the
 * inventory. Its rows are added to b. */
uint64_t inventory_loaded(struct chunk_inventory *l, struct kv_batch *b);
/* Of a chunk that has a row N: returns true if its cell lacks chunks, so that it may be lost. */
bool inventory_suspects(const struct chunk_inventory *l, const struct chunk_key *k);
/* Counts the chunk as lost by name and subtracts it from its cell. Call only if
 * inventory_suspects() and the chunk has no record (row K, ossd/chunk/keys.h). */
void inventory_named(struct chunk_inventory *l, const struct chunk_key *k);
/* Adds the row N of a chunk to b, where inventory_add() is not called. */
void inventory_put_name(const struct chunk_key *k, struct kv_batch *b);
/* Adds the deletion of all N rows of the chain to b. For a chain that has no chunks here. */
void inventory_forget_names(uint32_t chain, struct kv_batch *b);
/* Call after inventory_mark_lost(). Makes cells uncertain that lack chunks without names, and adds
 * their rows to b. */
void inventory_begin_uncertain(struct chunk_inventory *l, struct kv_batch *b);

/* ---- changes, each in the batch of the chunk's row ---- */

/* Call before inventory_add(): allocates the chain. Returns 0 or -LE_NOMEM. */
int inventory_need(struct chunk_inventory *l, uint32_t chain) CHECK_RESULT;
/* inventory_add(): the chunk gets its first row. inventory_remove(): its row is deleted. */
void inventory_add(struct chunk_inventory *l, const struct chunk_key *k, struct kv_batch *b);
void inventory_remove(struct chunk_inventory *l, const struct chunk_key *k, struct kv_batch *b);
/* Removes a lost chunk from the inventory, because it was removed. Does nothing if the inventory
 * does not show that it is lost. */
void inventory_forget(struct chunk_inventory *l, const struct chunk_key *k, struct kv_batch *b);
/* Makes the present rows of the chain its inventory, because it was filled or has left. */
void inventory_trust(struct chunk_inventory *l, uint32_t chain, struct kv_batch *b);
/* Like inventory_trust(), but only for cells with a lost or wrong row. Such a cell cannot show
 * whether chunks are lost, so first query all other members. Returns how many more chunks exist
 * than these cells counted (a lower bound). */
uint64_t inventory_trust_gone(struct chunk_inventory *l, uint32_t chain, struct kv_batch *b);
/* Encodes the uncertain cells, for a member that is filled from here. Returns the bytes of buf
 * used. */
#define INVENTORY_UNCERTAIN_SIZE 46u
#define INVENTORY_UNCERTAIN_MAX (INVENTORY_CELLS * INVENTORY_UNCERTAIN_SIZE)
uint32_t inventory_put_uncertain(const struct chunk_inventory *l, uint32_t chain,
			      uint8_t buf[INVENTORY_UNCERTAIN_MAX]);
/* Replaces the uncertain cells of the chain by those of the source that filled it. Returns 0,
 * -LE_BAD_MESSAGE or -LE_NOMEM. On failure nothing changes. */
int inventory_take_uncertain(struct chunk_inventory *l, uint32_t chain, struct bytes in,
		       struct kv_batch *b) CHECK_RESULT;

/* ---- queries about chunks without a row ---- */

enum inventory_answer {
	INVENTORY_NONE, /* no such chunk exists */
	INVENTORY_LOST,
	INVENTORY_UNSURE, /* it may be one of the lost ones */
};
/* Queries one chunk that has no row. */
enum inventory_answer inventory_has(const struct chunk_inventory *l, const struct chunk_key *k);
/* Queries the chunks from first to last of one file. LOST: *ret_key is the first one that is lost
 * by name. UNSURE: some of them may be lost; where a cell lacks two, each name must be tested with
 * inventory_has(). */
enum inventory_answer inventory_range(const struct chunk_inventory *l,
				      const struct chunk_key *first, const struct chunk_key *last,
				      struct chunk_key *ret_key);
/* True if any chunk of the chain is lost, even one that a row marks as lost. */
bool inventory_is_uncertain(const struct chunk_inventory *l, uint32_t chain);
/* Counts the rows that mark a chunk as lost: by is 1 for a new row, -1 for a deleted one. Ignored
 * if the chain has no memory here. */
void inventory_marked(struct chunk_inventory *l, uint32_t chain, int by);
/* Call once, after inventory_loaded(). Calls each() for every chunk that is lost by name: the
 * caller writes the row that marks it, and the cell no longer lacks it. Returns their number. */
uint32_t inventory_mark_lost(struct chunk_inventory *l,
			     void (*each)(void *arg, const struct chunk_key *k), void *arg);
/* Calls each() for every chunk that is lost by name and has no row. */
void inventory_each_lost(const struct chunk_inventory *l,
			 void (*each)(void *arg, const struct chunk_key *k), void *arg);
/* whole: all members of the chain are SYNC, so no other member can have lost chunks. */
void inventory_set_whole(struct chunk_inventory *l, uint32_t chain, bool whole);
bool inventory_whole(const struct chunk_inventory *l, uint32_t chain);
/* Calls each() for every chain with uncertain cells: how many cells, how many chunks they lack (a
 * lower bound), and the highest inode number of a file that can be affected. */
struct inventory_uncertain {
	uint32_t chain, n_cells;
	uint64_t n_lost, upto;
};
void inventory_each_uncertain(const struct chunk_inventory *l,
		       void (*each)(void *arg, const struct inventory_uncertain *d), void *arg);

#endif
