/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chunk/chunk_record.h"

#include "common/base/assert.h"
#include "common/base/checksum.h"

enum {
	KIND_HOLE,
	KIND_NEXT,
	KIND_WHOLE,
	KIND_SHORT,
	KIND_SEALED
};

#define HEADER_SIZE 48u
#define SUM_SIZE    8u
#define FLAG_LOST   1u

_Static_assert(CHUNK_LOST_SIZE == HEADER_SIZE + SUM_SIZE, "a header and its checksum");

static uint64_t record_seed(const struct chunk_key *id)
{
	return chunk_key_hash(id);
}

bool chunk_block_good(const struct chunk_block *b, const void *buf)
{
	return checksum64(buf, b->stored_len) == b->stored_sum;
}

uint64_t chunk_record_used(const struct chunk_record *r)
{
	uint64_t units = 0;

	for (uint32_t i = 0; i < r->n_blocks; i++)
		units += block_units(&r->blocks[i]);
	return units * UNIT_SIZE;
}

bool chunk_size_valid(uint32_t chunk_size)
{
	return chunk_size >= LEAT_CHUNK_SIZE_MIN && chunk_size <= LEAT_CHUNK_SIZE_MAX &&
	       chunk_size % LEAT_CHUNK_SIZE_MIN == 0 &&
	       chunk_block_size(chunk_size) % UNIT_SIZE == 0;
}

/* ---- encode ---- */

static void put_u8(struct wire_w *w, uint8_t v)
{
	wire_put_u8(w, &v);
}

static void put_u16(struct wire_w *w, uint16_t v)
{
	wire_put_u16(w, &v);
}

static void put_u32(struct wire_w *w, uint32_t v)
{
	wire_put_u32(w, &v);
}

static void put_u64(struct wire_w *w, uint64_t v)
{
	wire_put_u64(w, &v);
}

uint64_t chunk_record_sum(const struct chunk_record *r)
{
	uint8_t buf[12 + LEAT_BLOCKS_PER_CHUNK_MAX * 12u];
	uint32_t n = r->n_blocks;
	struct wire_w w;

	while (n && r->blocks[n - 1].len == 0)
		n--;
	wire_w_init(&w, buf, sizeof(buf));
	put_u32(&w, r->end);
	put_u64(&w, (uint64_t)r->mtime_ns);
	for (uint32_t i = 0; i < n; i++) {
		put_u32(&w, r->blocks[i].len);
		put_u64(&w, r->blocks[i].len ? r->blocks[i].sum : 0);
	}
	ASSERT(w.status == 0);
	return checksum64(buf, w.len);
}

static void put_block(struct wire_w *w, const struct chunk_record *r, uint32_t i)
{
	const struct chunk_block *b = &r->blocks[i];
	const struct chunk_block *prev = i ? b - 1 : NULL;

	if (b->flags) {
		put_u8(w, KIND_SEALED);
		put_u32(w, b->unit);
		put_u32(w, b->len);
		put_u32(w, b->stored_len);
		put_u8(w, (uint8_t)b->flags);
		put_u64(w, b->sum);
		put_u64(w, b->stored_sum);
		return;
	}
	if (b->len < r->block_size) {
		put_u8(w, KIND_SHORT);
		put_u32(w, b->unit);
		put_u32(w, b->len);
	} else if (prev && prev->len && b->unit == prev->unit + block_units(prev)) {
		put_u8(w, KIND_NEXT);
	} else {
		put_u8(w, KIND_WHOLE);
		put_u32(w, b->unit);
	}
	put_u64(w, b->sum);
}

size_t chunk_record_encode(const struct chunk_key *id, const struct chunk_record *r, uint8_t *out)
{
	struct wire_w w;

	wire_w_init(&w, out, CHUNK_RECORD_MAX);
	put_u8(&w, CHUNK_RECORD_FORMAT);
	put_u8(&w, 0);
	put_u16(&w, (uint16_t)r->n_blocks);
	put_u32(&w, r->end);
	put_u32(&w, r->chunk_size);
	put_u32(&w, r->block_size);
	put_u32(&w, (uint32_t)(chunk_record_used(r) / UNIT_SIZE));
	put_u64(&w, r->version);
	wire_put_i64(&w, &r->mtime_ns);
	put_u64(&w, chunk_record_sum(r));
	put_u32(&w, r->n_gaps);
	w.len += gaps_encode(chunk_record_gaps(r), r->n_gaps, out + w.len);
	for (uint32_t i = 0; i < r->n_blocks; i++) {
		uint32_t n = 0;

		while (i + n < r->n_blocks && r->blocks[i + n].len == 0)
			n++;
		if (n) {
			put_u8(&w, KIND_HOLE);
			put_u8(&w, (uint8_t)(n - 1));
			i += n - 1;
		} else {
			put_block(&w, r, i);
		}
	}
	put_u64(&w, checksum64_seed(out, w.len, record_seed(id)));
	ASSERT(w.status == 0);
	return w.len;
}

void chunk_record_encode_lost(const struct chunk_key *id, uint8_t out[CHUNK_LOST_SIZE])
{
	struct wire_w w;

	memset(out, 0, HEADER_SIZE);
	out[0] = CHUNK_RECORD_FORMAT;
	out[1] = FLAG_LOST;
	wire_w_init(&w, out + HEADER_SIZE, SUM_SIZE);
	put_u64(&w, checksum64_seed(out, HEADER_SIZE, record_seed(id)));
}

bool chunk_record_is_lost(const struct chunk_key *id, const void *data, size_t len)
{
	uint8_t lost[CHUNK_LOST_SIZE];

	if (len != sizeof(lost))
		return false;
	chunk_record_encode_lost(id, lost);
	return memcmp(data, lost, sizeof(lost)) == 0;
}

/* ---- decode ---- */

static uint8_t get_u8(struct wire_r *r)
{
	uint8_t v = 0;

	wire_get_u8(r, &v);
	return v;
}

static uint16_t get_u16(struct wire_r *r)
{
	uint16_t v = 0;

	wire_get_u16(r, &v);
	return v;
}

static uint32_t get_u32(struct wire_r *r)
{
	uint32_t v = 0;

	wire_get_u32(r, &v);
	return v;
}

static uint64_t get_u64(struct wire_r *r)
{
	uint64_t v = 0;

	wire_get_u64(r, &v);
	return v;
}

void chunk_record_info(const struct chunk_record *r, struct chunk_summary_info *ret_info)
{
	*ret_info = (struct chunk_summary_info){
		.version = r->version,
		.used = chunk_record_used(r),
		.sum = chunk_record_sum(r),
		.mtime_ns = r->mtime_ns,
		.end = r->end,
		.chunk_size = r->chunk_size,
		.block_size = r->block_size,
		.n_blocks = r->n_blocks,
		.n_gaps = r->n_gaps,
	};
}

int chunk_record_summary(const struct chunk_key *id, const void *data, size_t len,
			 struct chunk_summary_info *ret_info)
{
	struct chunk_summary_info s = {0};
	struct wire_r r, tail;

	if (len < HEADER_SIZE + SUM_SIZE || len > CHUNK_RECORD_MAX)
		return -LE_CORRUPT_STORE;
	wire_r_init(&tail, (const uint8_t *)data + len - SUM_SIZE, SUM_SIZE);
	if (checksum64_seed(data, len - SUM_SIZE, record_seed(id)) != get_u64(&tail))
		return -LE_CORRUPT_STORE;
	wire_r_init(&r, data, HEADER_SIZE);
	if (get_u8(&r) != CHUNK_RECORD_FORMAT || get_u8(&r) != 0)
		return -LE_CORRUPT_STORE;
	s.n_blocks = get_u16(&r);
	s.end = get_u32(&r);
	s.chunk_size = get_u32(&r);
	s.block_size = get_u32(&r);
	s.used = (uint64_t)get_u32(&r) * UNIT_SIZE;
	s.version = get_u64(&r);
	wire_get_i64(&r, &s.mtime_ns);
	s.sum = get_u64(&r);
	s.n_gaps = get_u32(&r);
	if (r.status < 0 || !chunk_size_valid(s.chunk_size) || s.end > s.chunk_size ||
	    s.block_size != chunk_block_size(s.chunk_size) ||
	    s.n_blocks > LEAT_BLOCKS_PER_CHUNK_MAX || s.n_gaps > CHUNK_GAPS_MAX ||
	    (uint64_t)s.n_blocks * s.block_size >= (uint64_t)s.end + s.block_size)
		return -LE_CORRUPT_STORE;
	*ret_info = s;
	return 0;
}

static int get_block(struct wire_r *r, const struct chunk_summary_info *s, uint8_t kind,
		     const struct chunk_block *prev, struct chunk_block *b)
{
	*b = (struct chunk_block){.len = s->block_size};
	if (kind == KIND_NEXT) {
		uint64_t unit = prev ? (uint64_t)prev->unit + block_units(prev) : 0;

		if (!prev || !prev->len || unit > UINT32_MAX)
			return -LE_CORRUPT_STORE;
		b->unit = (uint32_t)unit;
	} else {
		b->unit = get_u32(r);
	}
	if (kind == KIND_SHORT || kind == KIND_SEALED)
		b->len = get_u32(r);
	b->stored_len = b->len;
	if (kind == KIND_SEALED) {
		b->stored_len = get_u32(r);
		b->flags = get_u8(r);
	}
	b->sum = get_u64(r);
	b->stored_sum = kind == KIND_SEALED ? get_u64(r) : b->sum;
	if (kind > KIND_SEALED || b->len == 0 || b->len > s->block_size || b->stored_len == 0 ||
	    b->stored_len > s->block_size || (kind == KIND_SHORT && b->len == s->block_size))
		return -LE_CORRUPT_STORE;
	if (kind == KIND_SEALED &&
	    (b->flags != BLOCK_LZ4 || b->stored_len > s->block_size - COMPRESS_UNIT))
		return -LE_CORRUPT_STORE;
	return 0;
}

static int get_blocks(struct wire_r *r, const struct chunk_summary_info *s,
		      struct chunk_record *rec)
{
	uint32_t i = 0;

	while (i < s->n_blocks) {
		uint8_t kind = get_u8(r);

		if (r->status < 0)
			return -LE_CORRUPT_STORE;
		if (kind == KIND_HOLE) {
			uint32_t n = get_u8(r) + 1u;

			if (n > s->n_blocks - i)
				return -LE_CORRUPT_STORE;
			memset(&rec->blocks[i], 0, n * sizeof(rec->blocks[0]));
			i += n;
			continue;
		}
		TRY(get_block(r, s, kind, i ? &rec->blocks[i - 1] : NULL, &rec->blocks[i]));
		if ((uint64_t)i * s->block_size + rec->blocks[i].len > s->end)
			return -LE_CORRUPT_STORE;
		i++;
	}
	return 0;
}

static int get_gaps(struct wire_r *r, const struct chunk_summary_info *s, struct chunk_record *rec)
{
	uint32_t len = s->n_gaps * CHUNK_GAP_SIZE;
	struct chunk_gaps g;
	const uint8_t *p = wire_take(r, len);

	rec->n_gaps = s->n_gaps;
	if (len == 0)
		return 0;
	if (p == NULL || gaps_decode(p, len, s->end, &g) < 0)
		return -LE_CORRUPT_STORE;
	memcpy(chunk_record_gaps(rec), g.at, g.n * sizeof(g.at[0]));
	return 0;
}

int chunk_record_decode(const struct chunk_key *id, const void *data, size_t len,
			struct chunk_record *rec, uint32_t n_blocks_max)
{
	struct chunk_summary_info s;
	struct wire_r r;

	TRY(chunk_record_summary(id, data, len, &s));
	if (s.n_blocks > n_blocks_max)
		return -LE_CORRUPT_STORE;
	wire_r_init(&r, (const uint8_t *)data + HEADER_SIZE, len - HEADER_SIZE - SUM_SIZE);
	rec->n_blocks = s.n_blocks;
	TRY(get_gaps(&r, &s, rec));
	TRY(get_blocks(&r, &s, rec));
	if (r.status < 0 || !wire_r_end(&r))
		return -LE_CORRUPT_STORE;
	rec->version = s.version;
	rec->mtime_ns = s.mtime_ns;
	rec->end = s.end;
	rec->chunk_size = s.chunk_size;
	rec->block_size = s.block_size;
	return chunk_record_used(rec) == s.used ? 0 : -LE_CORRUPT_STORE;
}
