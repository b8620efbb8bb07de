/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of the index: the format of their keys, and those values that are a number. Numbers in
 * keys are big-endian, so that rows are sorted by chain, inode, generation, index.
 *
 *    K chain inode gen idx    chunk record (chunk_record.h)
 *    N chain inode gen idx    the chunk must have a row K (chunk_inventory.h)
 *    P chain inode gen idx    the chunk may have a version that was not committed everywhere
 *    D chain inode gen idx    the chunk has changed while a member of the chain was away
 *    R chain session slot     the last reply (replay.h)
 *    L chain                  u32: epoch in which the D rows begin
 *    E chain                  chain_info as it was adopted
 *    F chain                  u64: highest version of a removed chunk
 *    S chain                  u32: last epoch in which this target was SYNC
 *    H chain cell             how many chunks there must be, and which (chunk_inventory.h)
 *    W session                it changes chunks here, and may be late (writer_sessions.h)
 *    M name                   store, commits, scrub, ledger (inventory), ended, leased
 */
#ifndef LEAT_OSSD_CHUNK_KEYS_H
#define LEAT_OSSD_CHUNK_KEYS_H

#include "common/proto/types.h"

/* The complete keys of rows 'M'. */
#define SUPER_KEY        "Mstore"
#define SUPER_KEY_SIZE   6u
#define COMMITS_KEY      "Mcommits"
#define COMMITS_KEY_SIZE 8u
#define ENDED_KEY        "Mended"
#define ENDED_KEY_SIZE   6u
#define LEASED_KEY       "Mleased"
#define LEASED_KEY_SIZE  7u
#define SUPER_MAX        256u

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
	ROW_INVENTORY = 'H',
	ROW_WRITER = 'W',
	ROW_META = 'M',
};

/* The name of a chunk in the store: its chain, and the name that clients use. */
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
/* Returns < 0, 0 or > 0, in the order of the rows. */
int chunk_key_compare(const struct chunk_key *a, const struct chunk_key *b);

/* K, N, P and D */
#define CHUNK_KEY_SIZE 25u
void chunk_key_encode(enum row_kind kind, const struct chunk_key *k, uint8_t out[CHUNK_KEY_SIZE]);
/* Returns 0 or -LE_CORRUPT_STORE. */
int chunk_key_decode(enum row_kind kind, const void *key, size_t len,
		     struct chunk_key *ret_key) CHECK_RESULT;

/* R */
struct replay_key {
	uint32_t chain;
	uint32_t slot;
	uint64_t session;
};
#define REPLAY_KEY_SIZE 17u
/* Like chunk_key_encode and chunk_key_decode, for other keys, and below for values. */
void replay_key_encode(const struct replay_key *k, uint8_t out[REPLAY_KEY_SIZE]);
int replay_key_decode(const void *key, size_t len, struct replay_key *ret_key) CHECK_RESULT;

/* W */
#define WRITER_KEY_SIZE 9u
void writer_key_encode(uint64_t session, uint8_t out[WRITER_KEY_SIZE]);
int writer_key_decode(const void *key, size_t len, uint64_t *ret_session) CHECK_RESULT;

/* L, E, F and S */
#define CHAIN_KEY_SIZE 5u
void chain_key_encode(enum row_kind kind, uint32_t chain, uint8_t out[CHAIN_KEY_SIZE]);
int chain_key_decode(enum row_kind kind, const void *key, size_t len,
		     uint32_t *ret_chain) CHECK_RESULT;

/* H */
#define INVENTORY_KEY_SIZE 6u
void inventory_key_encode(uint32_t chain, uint8_t cell, uint8_t out[INVENTORY_KEY_SIZE]);
int inventory_key_decode(const void *key, size_t len, uint32_t *ret_chain,
		      uint8_t *ret_cell) CHECK_RESULT;

/* The values of L and S, and of F. */
#define EPOCH_VALUE_SIZE 4u
#define FLOOR_VALUE_SIZE 8u
void epoch_value_encode(uint32_t epoch, uint8_t out[EPOCH_VALUE_SIZE]);
int epoch_value_decode(const void *value, size_t len, uint32_t *ret_epoch) CHECK_RESULT;
void floor_value_encode(uint64_t version, uint8_t out[FLOOR_VALUE_SIZE]);
int floor_value_decode(const void *value, size_t len, uint64_t *ret_version) CHECK_RESULT;

#endif
