/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data of a chunk as it travels: cut at blocks, sums, compressed or not; and back. Not the client's
 * code: for tests of what lies below it.
 */
#ifndef LEAT_TESTS_LIB_SEALED_H
#define LEAT_TESTS_LIB_SEALED_H

#include "common/proto/types.h"

/* The pieces of a write of data to [off, off + len) of a chunk into pieces, what is to be sent into
 * bulk (room for len): how many bytes that are. pack: whole blocks are compressed where it pays. */
uint32_t sealed_cut(uint32_t chunk_size, uint32_t off, const void *data, uint32_t len, bool pack,
		    uint8_t *bulk, struct bytes *pieces);
/* A reply of n pieces and their bulk becomes plain bytes in out (room for max): how many. Dies of
 * whatever is not as it has to be. */
uint32_t sealed_open(const struct piece *pieces, uint32_t n, const uint8_t *bulk, uint32_t bulk_len,
		     void *out, uint32_t max);

/* Words in a random order: compresses well. */
void fill_words(void *to, uint32_t len, uint64_t seed);
/* Does not compress. */
void fill_noise(void *to, uint32_t len, uint64_t seed);

#endif
