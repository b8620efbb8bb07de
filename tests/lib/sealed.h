/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data of a chunk as it is sent: cut at blocks, with checksums, compressed or not; and the inverse.
 * Independent of the client's code: for tests of lower layers.
 */
#ifndef LEAT_TESTS_LIB_SEALED_H
#define LEAT_TESTS_LIB_SEALED_H

#include "common/proto/types.h"

/* Cuts a write of data to [off, off + len) of a chunk into pieces, and puts the bytes to send into
 * bulk (space for len). Returns the number of these bytes. pack: compresses whole blocks where it
 * saves space. */
uint32_t sealed_cut(uint32_t chunk_size, uint32_t off, const void *data, uint32_t len, bool pack,
		    uint8_t *bulk, struct bytes *pieces);
/* Decodes a reply of n pieces and their bulk into plain bytes in out (space for max). Returns their
 * number. Aborts on any error. */
uint32_t sealed_open(const struct piece *pieces, uint32_t n, const uint8_t *bulk, uint32_t bulk_len,
		     void *out, uint32_t max);

/* Fills with words in a random order: compresses well. */
void fill_words(void *to, uint32_t len, uint64_t seed);
/* Fills with bytes that do not compress. */
void fill_noise(void *to, uint32_t len, uint64_t seed);

#endif
