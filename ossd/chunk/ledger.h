/*
 * What must be in the index. A row that has vanished leaves nothing behind that tells so: it would
 * be taken for a hole, or for a chunk that was removed. So the chunks of each chain are counted in
 * cells: each cell has the number of its chunks and the exclusive or of their names, and is a row
 * (H) that is put in the batch of every chunk that comes or goes. At the start the cells are
 * compared with the rows that are there. What a cell has too much is lost. Which chunks these are
 * tells the second row of each chunk, its name alone (N), that comes and goes in the same batches
 * and lies elsewhere in the index. If the names have vanished as well, the difference of a cell
 * that has lost a single chunk is its very name, and of two each chunk that is asked for can be
 * told: without it the name of the other is left. Of more it is only known that there are some: the
 * cell is in doubt. What is lost by name gets a row that says so.
 *
 * Owned by the store's loop; nothing yields. Cells are a hash of the name, so a cell in doubt makes
 * doubtful one name in LEDGER_CELLS, and only of files with inode numbers that chunks of the cell
 * had: files that are made later are not in doubt. A doubt lasts, over starts and in whoever is
 * filled from here, until what has come back makes up the whole difference.
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
	uint64_t top;           /* no chunk that was counted here had a higher inode number */
	uint64_t upto;          /* nor had any that is lost */
	bool guessed;           /* chunks came that were taken for lost ones: lost may be wrong */
	/* At the start: what was lost when upto and guessed were written. */
	uint64_t noted_n, noted_hash;
};

struct ledger_chain {
	struct hmap_node node;
	uint32_t chain;
	uint32_t n_doubtful; /* cells that have lost something */
	uint32_t n_marked;   /* rows that say that their chunk is lost: nothing is missing there */
	bool whole;          /* no member is away that could have what is lost */
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
/* After ledger_mark_lost: what is lost and has no name puts its cells in doubt, which goes into b.
 */
void ledger_begin_doubts(struct ledger *l, struct kv_batch *b);

/* ---- changes, each in the batch of the chunk's row ---- */

/* Before ledger_add: memory for the chain. */
int ledger_need(struct ledger *l, uint32_t chain) CHECK_RESULT;
/* There was no row of the chunk, now there is; the other way round. */
void ledger_add(struct ledger *l, const struct chunk_key *k, struct kv_batch *b);
void ledger_remove(struct ledger *l, const struct chunk_key *k, struct kv_batch *b);
/* A lost one is not to be there any more. */
void ledger_forget(struct ledger *l, const struct chunk_key *k, struct kv_batch *b);
/* What is there of the chain is all that there must be: it was filled, or has left. */
void ledger_trust(struct ledger *l, uint32_t chain, struct kv_batch *b);
/* The same of cells whose own row is gone, or wrong: they cannot tell whether anything is lost, and
 * others have been asked. How many chunks more were there than they knew of, at least. */
uint64_t ledger_trust_gone(struct ledger *l, uint32_t chain, struct kv_batch *b);
/* The cells in doubt, for who is filled from here. How many bytes of buf. */
#define LEDGER_DOUBT_SIZE 46u
#define LEDGER_DOUBTS_MAX (LEDGER_CELLS * LEDGER_DOUBT_SIZE)
uint32_t ledger_put_doubts(const struct ledger *l, uint32_t chain, uint8_t buf[LEDGER_DOUBTS_MAX]);
/* Who has been filled doubts what its source doubts, and nothing else. -LE_BAD_MESSAGE, -LE_NOMEM:
 * then nothing has changed. */
int ledger_take_doubts(struct ledger *l, uint32_t chain, struct bytes in,
		       struct kv_batch *b) CHECK_RESULT;

/* ---- questions about chunks that have no row ---- */

enum ledger_answer {
	LEDGER_NONE, /* there is no such chunk */
	LEDGER_LOST,
	LEDGER_UNSURE, /* it may be one of those that are lost */
};
enum ledger_answer ledger_has(const struct ledger *l, const struct chunk_key *k);
/* Of the chunks from first to last of one file. LOST: the first that is known by name. UNSURE: any
 * of them may be lost, as two of a cell need to be asked for one by one. */
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
/* Are all members of the chain in sync, so that nobody else could have what is in doubt? */
void ledger_set_whole(struct ledger *l, uint32_t chain, bool whole);
bool ledger_whole(const struct ledger *l, uint32_t chain);
/* Of each chain with cells in doubt: how many, how many chunks they have lost (as many at least),
 * and the highest inode number of a file that these may be of. */
struct ledger_doubt {
	uint32_t chain, n_cells;
	uint64_t n_lost, upto;
};
void ledger_each_doubt(const struct ledger *l,
		       void (*each)(void *arg, const struct ledger_doubt *d), void *arg);

#endif
