/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of chunks in the data file: write, read, verify, unpack.
 *
 * Owned by the store's loop.
 */
#ifndef LEAT_OSSD_CHUNK_STORE_BLOCK_H
#define LEAT_OSSD_CHUNK_STORE_BLOCK_H

#include <sys/uio.h>

#include "ossd/chunk/chunk_store.h"

static inline uint64_t block_file_off(const struct chunk_block *b)
{
	return (uint64_t)b->unit * UNIT_SIZE;
}

static inline uint32_t round_units(uint32_t bytes)
{
	return (bytes + UNIT_SIZE - 1) / UNIT_SIZE;
}

/* Writes to the data file. Any error makes the store fail, except that a full disk or a quota
 * returns -LE_NOSPC. */
int store_data_write(struct chunk_store *s, const struct iovec *iov, int n_iov,
		     uint64_t off) CHECK_RESULT;
/* Logs and counts a damaged block. Returns -LE_CORRUPT. */
int store_corrupt(struct chunk_store *s, const struct chunk_key *id, uint32_t index,
		  const struct chunk_block *b);
/* Reads block index of rec into buf (whole units), as it is stored, and verifies it. */
int store_stored_read(struct chunk_store *s, const struct chunk_key *id,
		      const struct chunk_record *rec, uint32_t index, uint8_t *buf) CHECK_RESULT;
/* Unpacks the stored bytes of block b in buf in place, and verifies them. buf must have space for
 * a whole block. Does not yield. */
int store_block_unpack(struct chunk_store *s, const struct chunk_key *id, uint32_t index,
		       const struct chunk_block *b, uint8_t *buf) CHECK_RESULT;
/* Reads and unpacks: the plain bytes of block index. */
int store_block_read(struct chunk_store *s, const struct chunk_key *id,
		     const struct chunk_record *rec, uint32_t index, uint8_t *buf) CHECK_RESULT;

#endif
