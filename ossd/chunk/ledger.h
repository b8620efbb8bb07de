/*
 * What must be in the index. A row that has vanished leaves nothing behind that tells so: it would
 * be taken for a hole, or for a chunk that was removed. So the chunks of each chain are counted in
 * cells: each cell has the number of its chunks and the exclusive or of their names, and is a row
 * (H) that is put in the batch of every chunk that comes or goes. At the start the cells are
 * compared with the rows that are there. What a cell has too much is lost. Which chunks these are
 * tells the second row of each chunk, its name alone (N), that comes and goes in the same batches
 * and lies elsewhere in the index. If the names have vanished as well, the difference of a cell
 * that has lost a single chunk is its very name; of several it is only known that there are some.
 * What is lost by name gets a row that says so.
 *
 * Owned by the store's loop; nothing yields. Cells are a hash of the name, so a cell that does not
 * tell which it has lost makes doubtful one name in LEDGER_CELLS.
 */
#ifndef LEAT_OSSD_LEDGER_H
#define LEAT_OSSD_LEDGER_H

#include "common/base/hmap.h"
#include "common/kv/kv.h"
#include "ossd/chunk/rows.h"

#define LEDGER_CELLS 128u
/* The row that says that there is a ledger: that a chain without rows has no chunks. Its value is
 * not empty when every chunk has its name as well. */
#define LEDGER_BEGAN_KEY      "Mledger"
#define LEDGER_BEGAN_KEY_SIZE 7u

struct ledger_sum {
	uint64_t n, hash, ino, idx;
	uint32_t gen;
};

struct ledger_cell {
	struct ledger_sum kept; /* what must be there, as in its row */
	struct ledger_sum lost; /* what of it was not there at the start */
};

struct ledger_chain {
	struct hmap_node node;
	uint32_t chain;
	uint32_t n_doubtful; /* cells that have lost something */
	uint32_t n_marked;   /* rows that say that their chunk is lost: nothing is missing there */
	bool alone;          /* nobody else has these chunks: see ledger_has */
	struct ledger_cell cells[LEDGER_CELLS];
};

struct ledger {
	struct hmap chains;
	bool began; /* that row is there */
	bool named; /* and every chunk has a row N */
};

void ledger_init(struct ledger *l);
void ledger_fini(struct ledger *l);

/* ---- start: all rows H, then all chunks, then end ---- */

/* -LE_CORRUPT_STORE, -LE_NOMEM. */
int ledger_load(struct ledger *l, const void *key, size_t key_len, const void *value,
		size_t len) CHECK_RESULT;
/* There is a row of this chunk, though its record may be damaged. -LE_NOMEM. */
int ledger_found(struct ledger *l, const struct chunk_key *k) CHECK_RESULT;
/* Which cells have lost something. Of a store without a ledger, what is there is all: the rows for
 * that go into b. How many chunks are lost (as many at least). */
uint64_t ledger_loaded(struct ledger *l, struct kv_batch *b);
/* May the chunk be one of those that are lost? Its name then tells, if there is no row of it: */
bool ledger_suspects(const struct ledger *l, const struct chunk_key *k);
void ledger_named(struct ledger *l, const struct chunk_key *k);
/* The row N of a chunk, where there is no ledger_add. */
void ledger_put_name(const struct chunk_key *k, struct kv_batch *b);
/* No chunk of the chain is here. */
void ledger_forget_names(uint32_t chain, struct kv_batch *b);

/* ---- changes, each in the batch of the chunk's row ---- */

/* Before ledger_add: memory for the chain. */
int ledger_need(struct ledger *l, uint32_t chain) CHECK_RESULT;
/* There was no row of the chunk, now there is; the other way round. */
void ledger_add(struct ledger *l, const struct chunk_key *k, struct kv_batch *b);
void ledger_remove(struct ledger *l, const struct chunk_key *k, struct kv_batch *b);
/* A lost one is not to be there any more. */
void ledger_forget(struct ledger *l, const struct chunk_key *k, struct kv_batch *b);
/* What is there of the chain is all that there must be: others have been asked. named: chunks that
 * are known to be lost are so no more either. How many there were. */
uint64_t ledger_trust(struct ledger *l, uint32_t chain, bool named, struct kv_batch *b);

/* ---- questions about chunks that have no row ---- */

enum ledger_answer {
	LEDGER_NONE, /* there is no such chunk */
	LEDGER_LOST,
	LEDGER_UNSURE, /* it may be one of those that are lost; never where the chain is alone:
			  nobody could be asked, and new chunks must be possible */
};
enum ledger_answer ledger_has(const struct ledger *l, const struct chunk_key *k);
/* Of the chunks from first to last of one file. LOST: the first that is known by name. */
enum ledger_answer ledger_range(const struct ledger *l, const struct chunk_key *first,
				const struct chunk_key *last, struct chunk_key *ret_key);
/* Is anything of the chain lost, be it known by a row? */
bool ledger_doubts(const struct ledger *l, uint32_t chain);
/* A row that says that its chunk is lost has come (1) or gone (-1). Without memory for the chain
 * nothing happens. */
void ledger_marked(struct ledger *l, uint32_t chain, int by);
/* Every lost chunk that is known by name gets such a row now, so it is not missed any more: once,
 * after ledger_loaded. How many they are. */
uint32_t ledger_mark_lost(struct ledger *l, void (*each)(void *arg, const struct chunk_key *k),
			  void *arg);
/* Every lost chunk that is known by name and has no row. */
void ledger_each_lost(const struct ledger *l, void (*each)(void *arg, const struct chunk_key *k),
		      void *arg);
/* The chain has no other members. */
void ledger_alone(struct ledger *l, uint32_t chain, bool alone);

#endif
