/*
 * The rows of the index: what their keys look like, and the values that are a number. Numbers
 * in keys are big-endian, so that rows lie in the order of chain, inode, generation, index.
 *
 *   K chain inode gen idx    chunk record (chunk_record.h)
 *   N chain inode gen idx    there must be such a record (ledger.h)
 *   P chain inode gen idx    the chunk may have a version that was not committed everywhere
 *   D chain inode gen idx    the chunk has changed while a member of the chain was away
 *   R chain session slot     the last answer (replay.h)
 *   L chain                  u32: epoch in which the D rows begin
 *   E chain                  chain_info as it was adopted
 *   F chain                  u64: highest version of a removed chunk
 *   S chain                  u32: last epoch in which this target was SYNC
 *   H chain cell             how many chunks there must be, and which (ledger.h)
 *   W session                it changes chunks here, and may be late (writers.h)
 *   M name                   store, commits, scrub, ledger, ended, leased
 */
#ifndef LEAT_OSSD_ROWS_H
#define LEAT_OSSD_ROWS_H

#include "common/proto/types.h"

enum row_kind {
	ROW_CHUNK = 'K',
	ROW_NAME = 'N',
	ROW_PENDING = 'P',
	ROW_CHANGED = 'D',
	ROW_REPLAY = 'R',
	ROW_LOG = 'L',
	ROW_CHAIN = 'E',
	ROW_FLOOR = 'F',
	ROW_SYNCED = 'S',
	ROW_LEDGER = 'H',
	ROW_WRITER = 'W',
	ROW_META = 'M',
};

/* A chunk as the store knows it: which chain it belongs to, and what clients call it. */
struct chunk_key {
	uint32_t chain;
	struct ino ino;
	uint32_t gen;
	uint64_t idx;
};

static inline struct chunk_key chunk_key_of(uint32_t chain, const struct chunk_id *id)
{
	return (struct chunk_key){chain, id->ino, id->gen, id->idx};
}
static inline struct chunk_id chunk_key_id(const struct chunk_key *k)
{
	return (struct chunk_id){k->ino, k->gen, k->idx};
}
uint64_t chunk_key_hash(const struct chunk_key *k);
bool chunk_key_equal(const struct chunk_key *a, const struct chunk_key *b);
/* < 0, 0, > 0: the order of their rows. */
int chunk_key_compare(const struct chunk_key *a, const struct chunk_key *b);

/* K, N, P and D */
#define CHUNK_ROW_SIZE 25u
void chunk_row_encode(enum row_kind kind, const struct chunk_key *k, uint8_t out[CHUNK_ROW_SIZE]);
/* -LE_CORRUPT_STORE */
int chunk_row_decode(enum row_kind kind, const void *key, size_t len,
		     struct chunk_key *ret_key) CHECK_RESULT;

/* R */
struct replay_key {
	uint32_t chain;
	uint32_t slot;
	uint64_t session;
};
#define REPLAY_ROW_SIZE 17u
void replay_row_encode(const struct replay_key *k, uint8_t out[REPLAY_ROW_SIZE]);
int replay_row_decode(const void *key, size_t len, struct replay_key *ret_key) CHECK_RESULT;

/* W */
#define WRITER_ROW_SIZE 9u
void writer_row_encode(uint64_t session, uint8_t out[WRITER_ROW_SIZE]);
int writer_row_decode(const void *key, size_t len, uint64_t *ret_session) CHECK_RESULT;

/* L, E, F and S */
#define CHAIN_ROW_SIZE 5u
void chain_row_encode(enum row_kind kind, uint32_t chain, uint8_t out[CHAIN_ROW_SIZE]);
int chain_row_decode(enum row_kind kind, const void *key, size_t len,
		     uint32_t *ret_chain) CHECK_RESULT;

/* H */
#define LEDGER_ROW_SIZE 6u
void ledger_row_encode(uint32_t chain, uint8_t cell, uint8_t out[LEDGER_ROW_SIZE]);
int ledger_row_decode(const void *key, size_t len, uint32_t *ret_chain,
		      uint8_t *ret_cell) CHECK_RESULT;

/* The values of L and S, and of F. */
#define EPOCH_VALUE_SIZE 4u
#define FLOOR_VALUE_SIZE 8u
void epoch_value_encode(uint32_t epoch, uint8_t out[EPOCH_VALUE_SIZE]);
int epoch_value_decode(const void *value, size_t len, uint32_t *ret_epoch) CHECK_RESULT;
void floor_value_encode(uint64_t version, uint8_t out[FLOOR_VALUE_SIZE]);
int floor_value_decode(const void *value, size_t len, uint64_t *ret_version) CHECK_RESULT;

#endif
