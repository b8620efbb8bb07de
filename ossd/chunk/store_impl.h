/* What the files of this folder know of each other. Nobody else includes this. */
#ifndef LEAT_OSSD_STORE_IMPL_H
#define LEAT_OSSD_STORE_IMPL_H

#include "ossd/chunk/chunk_store.h"

/* Row 'M' "store"; 'M' "commits". */
#define SUPER_KEY        "Mstore"
#define SUPER_KEY_SIZE   6u
#define COMMITS_KEY      "Mcommits"
#define COMMITS_KEY_SIZE 8u
#define ENDED_KEY        "Mended"
#define ENDED_KEY_SIZE   6u
#define LEASED_KEY       "Mleased"
#define LEASED_KEY_SIZE  7u
#define SUPER_MAX        256u
#define STORE_PATH_MAX   (CONFIG_STR_MAX + 32)

static inline uint64_t block_file_off(const struct chunk_block *b)
{
	return (uint64_t)b->unit * UNIT_SIZE;
}
static inline uint32_t round_units(uint32_t bytes)
{
	return (bytes + UNIT_SIZE - 1) / UNIT_SIZE;
}

/* At the start: replay rows, ledger, free map. */
int store_load_index(struct chunk_store *s) CHECK_RESULT;

/* Changes of the chunk have joined a group and are seen. A store that has failed shows what it had
 * committed: what came later may not have reached the disk. */
static inline bool store_ent_pending(const struct chunk_store *s, const struct chunk_ent *e)
{
	return e->n_pend && s->gc.status == 0;
}
/* The record that readers see; NULL: there is no chunk. Only after store_ent_load. */
static inline struct chunk_record *store_ent_seen(const struct chunk_store *s,
						  const struct chunk_ent *e)
{
	return store_ent_pending(s, e) ? e->pend : e->rec;
}
/* ent->rec is what is committed; else that cannot be read, though something later may be. Only
 * after store_ent_load. */
static inline bool store_ent_readable(const struct chunk_ent *e)
{
	return e->known && !e->lost;
}
/* Makes ent->rec known, unless a later one is seen. -LE_CORRUPT: there is a row that cannot be read
 * (ret_row), or there should be one. */
int store_ent_load_row(struct chunk_store *s, struct chunk_ent *e, bool *ret_row) CHECK_RESULT;
static inline CHECK_RESULT int store_ent_load(struct chunk_store *s, struct chunk_ent *e)
{
	bool row;

	return store_ent_load_row(s, e, &row);
}
/* The index has no row of the chunk, but may have its name: the row has vanished since the start.
 * Then e is lost, and a row that says so joins the open group. Nothing of e may be known or pending
 * before; a change that comes meanwhile counts. Yields. */
int store_ent_vanished(struct chunk_store *s, struct chunk_ent *e) CHECK_RESULT;
/* One record from its row. -LE_CORRUPT with a log line. */
int store_record_decode(struct chunk_store *s, const struct chunk_key *id, const void *data,
			size_t len, struct chunk_record **ret_rec) CHECK_RESULT;

/* To the data file. A disk that refuses it, unless it is full or a quota ends there (-LE_NOSPC),
 * takes nothing more: the store has failed. */
int store_data_write(struct chunk_store *s, const struct iovec *iov, int n_iov,
		     uint64_t off) CHECK_RESULT;
/* Logs and counts a damaged block: -LE_CORRUPT. */
int store_corrupt(struct chunk_store *s, const struct chunk_key *id, uint32_t index,
		  const struct chunk_block *b);
/* Block index of rec into buf (whole units) as it is stored, verified. */
int store_stored_read(struct chunk_store *s, const struct chunk_key *id,
		      const struct chunk_record *rec, uint32_t index, uint8_t *buf) CHECK_RESULT;
/* The stored bytes of block b in buf become its plain ones, verified. buf has room for a whole
 * block. Does not yield. */
int store_block_unpack(struct chunk_store *s, const struct chunk_key *id, uint32_t index,
		       const struct chunk_block *b, uint8_t *buf) CHECK_RESULT;
/* Both: the plain bytes. */
int store_block_read(struct chunk_store *s, const struct chunk_key *id,
		     const struct chunk_record *rec, uint32_t index, uint8_t *buf) CHECK_RESULT;

/* A copy of tx->old (or an empty record) with room for n_blocks, version and mtime set. */
int tx_new_record(struct chunk_tx *tx, uint32_t chunk_size, uint32_t n_blocks,
		  const struct chunk_gaps *gaps) CHECK_RESULT;

/* Which blocks get new extents: all of [first, last] with len > 0 and `fresh` set. */
struct alloc_request {
	uint64_t session;
	uint32_t first, last;
	uint32_t len;    /* bytes that the client writes (of its grant) */
	uint32_t growth; /* units in addition to what will be freed */
	bool privileged; /* punch: may use the reserve */
};
/* Extents for blocks first..last of tx->rec whose flags have BLOCK_FRESH; all or none. */
#define BLOCK_FRESH 0x80000000u
int tx_allocate(struct chunk_tx *tx, const struct alloc_request *a) CHECK_RESULT;

#endif
