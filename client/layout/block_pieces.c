/* SPDX-License-Identifier: Apache-2.0 */
#include "client/layout/block_pieces.h"

#include <string.h>
#include <sys/uio.h>

#include "client/layout/block_sums.h"
#include "common/base/assert.h"
#include "common/base/checksum.h"
#include "common/base/compress.h"
#include "common/base/copy_counter.h"
#include "common/base/status.h"
#include "common/proto/types.h"
#include "common/rt/slot.h"

#define PIECE_IOV_MAX 64

/* Returns the checksum of the next len bytes of vec from *pos on, and moves both past them. */
static uint64_t sum_next(const struct slot_vec **vec, uint32_t *pos, uint32_t len)
{
	struct iovec iov[PIECE_IOV_MAX];
	int n = 0;

	while (len > 0) {
		uint32_t left = (*vec)->len - *pos;
		uint32_t take = left < len ? left : len;

		if (take > 0) {
			ASSERT(n < PIECE_IOV_MAX);
			iov[n++] = (struct iovec){(*vec)->slot->data + (*vec)->off + *pos, take};
			*pos += take;
			len -= take;
		}
		if (*pos == (*vec)->len) {
			(*vec)++;
			*pos = 0;
		}
	}
	if (n == 1)
		return checksum64(iov[0].iov_base, iov[0].iov_len);
	return checksum64_iov(iov, n);
}

uint32_t pieces_cut(uint32_t block_size, uint32_t off, uint32_t len, const struct slot_vec *vec,
		    uint8_t *out)
{
	uint32_t pos = 0, n = 0;

	while (len > 0) {
		uint32_t space = block_size - off % block_size;
		uint32_t take = len < space ? len : space;
		struct piece p = {
			.off = off,
			.len = take,
			.stored_len = take,
			.flags = take == block_size ? 0 : PIECE_FRAGMENT,
			.sum = sum_next(&vec, &pos, take),
		};

		piece_encode(&p, out + (size_t)n * PIECE_WIRE_SIZE);
		n++;
		off += take;
		len -= take;
	}
	return n;
}

/* Checks that the pieces cover one range without gaps, and that their stored sizes add up to
 * bulk_len. Returns 0 with the plain length, or -LE_BAD_MESSAGE. */
static int pieces_check(const struct pieces_in *in, uint32_t *ret_len)
{
	const uint8_t *p = in->pieces.data;
	uint32_t len = 0, bulk = 0;

	if (in->pieces.len % PIECE_WIRE_SIZE != 0)
		return -LE_BAD_MESSAGE;
	for (uint32_t i = 0; i < in->pieces.len / PIECE_WIRE_SIZE; i++) {
		struct piece pc;

		piece_decode(p + (size_t)i * PIECE_WIRE_SIZE, &pc);
		if (pc.off != in->off + len || pc.len == 0 || pc.len > in->space - len)
			return -LE_BAD_MESSAGE;
		if ((pc.flags & PIECE_LZ4) && !piece_packed_check(&pc, in->block_size))
			return -LE_BAD_MESSAGE;
		len += pc.len;
		bulk += piece_space(&pc); /* at most len */
	}
	if (bulk != in->bulk_len)
		return -LE_BAD_MESSAGE;
	*ret_len = len;
	return 0;
}

/* Verifies one piece and writes its plain bytes to `to`. Returns 0 or -LE_CORRUPT_WIRE. */
static int piece_open(const struct pieces_in *in, const struct piece *p, const uint8_t *from,
		      uint8_t *to)
{
	if (p->flags & PIECE_HOLE) {
		memset(to, 0, p->len);
		return 0;
	}
	if (p->flags & PIECE_LZ4) {
		if (checksum64(from, p->stored_len) != p->stored_sum)
			return -LE_CORRUPT_WIRE;
		/* from and to may overlap. */
		copy_counted(in->scratch, from, p->stored_len);
		if (decompress_block(in->scratch, p->stored_len, to, p->len) < 0)
			return -LE_CORRUPT_WIRE;
	} else if (from != to) {
		move_counted(to, from, p->len);
	}
	return checksum64(to, p->len) == p->sum ? 0 : -LE_CORRUPT_WIRE;
}

/* Returns the checksum of the whole block that a piece belongs to, or 0 for a hole or an unknown
 * block. */
static uint64_t block_sum(const struct pieces_in *in, const struct piece *p)
{
	if (p->flags & PIECE_FRAGMENT)
		return p->stored_sum;
	return p->flags & PIECE_HOLE || p->off % in->block_size != 0 ? 0 : p->sum;
}

static void note_sums(const struct pieces_in *in, uint32_t len)
{
	uint64_t end = in->chunk_at + in->off + len;

	for (uint32_t i = 0; i < in->pieces.len / PIECE_WIRE_SIZE; i++) {
		struct piece p;

		piece_decode((const uint8_t *)in->pieces.data + (size_t)i * PIECE_WIRE_SIZE, &p);
		block_sums_note(in->sums, in->block_size, in->chunk_at + p.off, p.len,
				block_sum(in, &p));
	}
	block_sums_note(in->sums, in->block_size, end, in->space - len, 0);
}

int pieces_open(const struct pieces_in *in, uint32_t *ret_len)
{
	uint32_t pos = in->bulk_len, len = 0, at;

	TRY(pieces_check(in, &len));
	at = len;
	for (uint32_t i = in->pieces.len / PIECE_WIRE_SIZE; i-- > 0;) {
		struct piece p;

		piece_decode((const uint8_t *)in->pieces.data + (size_t)i * PIECE_WIRE_SIZE, &p);
		pos -= piece_space(&p);
		at -= p.len;
		TRY(piece_open(in, &p, in->data + pos, in->data + at));
	}
	if (in->sums != NULL)
		note_sums(in, len);
	*ret_len = len;
	return 0;
}

uint32_t pieces_hole(const struct pieces_in *in, uint32_t len)
{
	for (uint32_t i = 0; i < in->pieces.len / PIECE_WIRE_SIZE; i++) {
		struct piece p;

		piece_decode((const uint8_t *)in->pieces.data + (size_t)i * PIECE_WIRE_SIZE, &p);
		if ((p.flags & PIECE_HOLE) != 0)
			return p.off - in->off;
	}
	return len;
}

/* Returns len contiguous bytes of vec from *pos on, and moves both past them. Bytes of several
 * slots are copied to scratch. */
static const uint8_t *take_next(const struct slot_vec **vec, uint32_t *pos, uint32_t len,
				uint8_t *scratch)
{
	uint32_t done = 0;

	while (*pos == (*vec)->len) {
		(*vec)++;
		*pos = 0;
	}
	if ((*vec)->len - *pos >= len) {
		const uint8_t *data = (*vec)->slot->data + (*vec)->off + *pos;

		*pos += len;
		return data;
	}
	while (done < len) {
		uint32_t left = (*vec)->len - *pos, take = left < len - done ? left : len - done;

		copy_counted(scratch + done, (*vec)->slot->data + (*vec)->off + *pos, take);
		done += take;
		*pos += take;
		if (*pos == (*vec)->len && done < len) {
			(*vec)++;
			*pos = 0;
		}
	}
	return scratch;
}

uint32_t pieces_seal(const struct pieces_out *o, const struct slot_vec *vec, uint32_t *ret_n_packed)
{
	uint32_t off = o->off, end = o->off + o->len, at = 0, pos = 0;

	*ret_n_packed = 0;
	for (uint32_t n = 0; off < end; n++) {
		uint32_t space = o->block_size - off % o->block_size;
		uint32_t take = end - off < space ? end - off : space;
		const uint8_t *data = take_next(&vec, &pos, take, o->scratch);
		struct piece p = {.off = off, .len = take, .sum = checksum64(data, take)};

		if (take == o->block_size)
			p.stored_len = compress_block(data, take, o->to + at);
		if (p.stored_len > 0) {
			p.flags = PIECE_LZ4;
			p.stored_sum = checksum64(o->to + at, p.stored_len);
			++*ret_n_packed;
		} else {
			copy_counted(o->to + at, data, take);
			p.stored_len = take;
			p.flags = take == o->block_size ? 0 : PIECE_FRAGMENT;
		}
		piece_encode(&p, o->pieces + (size_t)n * PIECE_WIRE_SIZE);
		at += piece_space(&p);
		off += take;
	}
	return at;
}
