/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/sealed.h"

#include <string.h>

#include "common/base/assert.h"
#include "common/base/checksum.h"
#include "common/base/hmap.h"

uint32_t sealed_cut(uint32_t chunk_size, uint32_t off, const void *data, uint32_t len, bool pack,
		    uint8_t *bulk, struct bytes *pieces)
{
	uint32_t bs = chunk_block_size(chunk_size), at = 0, n = 0;
	uint8_t *out = (uint8_t *)(uintptr_t)pieces->data;

	for (uint32_t pos = 0; pos < len;) {
		uint32_t space = bs - (off + pos) % bs,
			 part = space < len - pos ? space : len - pos;
		const uint8_t *from = (const uint8_t *)data + pos;
		struct piece p = {.off = off + pos, .len = part, .sum = checksum64(from, part)};

		p.stored_len = pack && part == bs ? compress_block(from, bs, bulk + at) : 0;
		if (p.stored_len) {
			p.flags = PIECE_LZ4;
			p.stored_sum = checksum64(bulk + at, p.stored_len);
		} else {
			p.stored_len = part;
			p.flags = part < bs ? PIECE_FRAGMENT : 0;
			memcpy(bulk + at, from, part);
		}
		piece_encode(&p, out + (size_t)n++ * PIECE_WIRE_SIZE);
		at += piece_space(&p);
		pos += part;
	}
	pieces->len = n * PIECE_WIRE_SIZE;
	return at;
}

uint32_t sealed_open(const struct piece *pieces, uint32_t n, const uint8_t *bulk, uint32_t bulk_len,
		     void *out, uint32_t max)
{
	uint32_t at = 0, done = 0;
	uint8_t *to = out;

	for (uint32_t i = 0; i < n; i++) {
		const struct piece *p = &pieces[i];

		ASSERT(p->len > 0 && p->len <= max - done && piece_space(p) <= bulk_len - at);
		if (p->flags & PIECE_LZ4) {
			ASSERT(checksum64(bulk + at, p->stored_len) == p->stored_sum);
			ASSERT(decompress_block(bulk + at, p->stored_len, to, p->len) == 0);
		} else {
			memcpy(to, bulk + at, p->len);
		}
		if (!(p->flags & PIECE_HOLE))
			ASSERT(checksum64(to, p->len) == p->sum);
		for (uint32_t j = 0; (p->flags & PIECE_HOLE) && j < p->len; j++)
			ASSERT(to[j] == 0);
		at += piece_space(p);
		done += p->len;
		to += p->len;
	}
	ASSERT(at == bulk_len);
	return done;
}

void fill_words(void *to, uint32_t len, uint64_t seed)
{
	static const char *const words[] = {"parallel ", "file ", "system ", "chunk ",
					    "of ",       "the ",  "block ",  "leat "};
	uint8_t *p = to;

	for (uint32_t at = 0, i = 0; at < len; i++) {
		const char *w = words[hash_u64(seed + i) % 8];
		uint32_t n = (uint32_t)strlen(w);

		n = n < len - at ? n : len - at;
		memcpy(p + at, w, n);
		at += n;
	}
}

void fill_noise(void *to, uint32_t len, uint64_t seed)
{
	uint8_t *p = to;

	for (uint32_t i = 0; i < len; i++)
		p[i] = (uint8_t)(hash_u64(seed + i / 8) >> i % 8 * 8);
}
