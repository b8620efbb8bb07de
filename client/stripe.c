#include "client/stripe.h"

#include "common/base/checksum.h"
#include "common/base/payload.h"

#define PIECE_IOV_MAX 64

uint32_t stripe_cut(uint32_t chunk_size, uint64_t off, uint64_t len, struct stripe_part *ret_parts,
		    uint32_t max, uint64_t *ret_len)
{
	uint64_t at = 0;
	uint32_t n = 0;

	while (at < len && n < max) {
		ret_parts[n] = stripe_first(chunk_size, off + at, len - at);
		ret_parts[n].at = at;
		at += ret_parts[n++].len;
	}
	*ret_len = at;
	return n;
}

/* The sum of the next len bytes behind *pos of *vec, both of which move on. */
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
		uint32_t room = block_size - off % block_size;
		uint32_t take = len < room ? len : room;
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

/* Do the pieces cover one range without gaps, and their room exactly what came? */
static int pieces_check(const struct pieces_in *in, uint32_t *ret_len)
{
	const uint8_t *p = in->pieces.data;
	uint32_t len = 0, bulk = 0;

	if (in->pieces.len % PIECE_WIRE_SIZE != 0)
		return -LE_BAD_MESSAGE;
	for (uint32_t i = 0; i < in->pieces.len / PIECE_WIRE_SIZE; i++) {
		struct piece pc;

		piece_decode(p + (size_t)i * PIECE_WIRE_SIZE, &pc);
		if (pc.off != in->off + len || pc.len == 0 || pc.len > in->room - len)
			return -LE_BAD_MESSAGE;
		if ((pc.flags & PIECE_LZ4) && !piece_packed_check(&pc, in->block_size))
			return -LE_BAD_MESSAGE;
		len += pc.len;
		bulk += piece_room(&pc); /* never more than len */
	}
	if (bulk != in->bulk_len)
		return -LE_BAD_MESSAGE;
	*ret_len = len;
	return 0;
}

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
		/* The two may overlap. */
		payload_copy(in->scratch, from, p->stored_len);
		if (decompress_block(in->scratch, p->stored_len, to, p->len) < 0)
			return -LE_CORRUPT_WIRE;
	} else if (from != to) {
		payload_move(to, from, p->len);
	}
	return checksum64(to, p->len) == p->sum ? 0 : -LE_CORRUPT_WIRE;
}

/* The checksum of the block that a piece is of; 0: of holes, and what nobody told. */
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
	block_sums_note(in->sums, in->block_size, end, in->room - len, 0);
}

int pieces_open(const struct pieces_in *in, uint32_t *ret_len)
{
	uint32_t pos = in->bulk_len, len = 0, at;

	TRY(pieces_check(in, &len));
	at = len;
	for (uint32_t i = in->pieces.len / PIECE_WIRE_SIZE; i-- > 0;) {
		struct piece p;

		piece_decode((const uint8_t *)in->pieces.data + (size_t)i * PIECE_WIRE_SIZE, &p);
		pos -= piece_room(&p);
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

/* Bytes of vec behind *pos, in a row: where they lie, or copied to scratch when they lie apart. */
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

		payload_copy(scratch + done, (*vec)->slot->data + (*vec)->off + *pos, take);
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
		uint32_t room = o->block_size - off % o->block_size;
		uint32_t take = end - off < room ? end - off : room;
		const uint8_t *data = take_next(&vec, &pos, take, o->scratch);
		struct piece p = {.off = off, .len = take, .sum = checksum64(data, take)};

		if (take == o->block_size)
			p.stored_len = compress_block(data, take, o->to + at);
		if (p.stored_len > 0) {
			p.flags = PIECE_LZ4;
			p.stored_sum = checksum64(o->to + at, p.stored_len);
			++*ret_n_packed;
		} else {
			payload_copy(o->to + at, data, take);
			p.stored_len = take;
			p.flags = take == o->block_size ? 0 : PIECE_FRAGMENT;
		}
		piece_encode(&p, o->pieces + (size_t)n * PIECE_WIRE_SIZE);
		at += piece_room(&p);
		off += take;
	}
	return at;
}

uint32_t vec_slice(const struct slot_vec *vec, uint32_t n, uint64_t at, uint64_t len,
		   struct slot_vec *ret_vec, uint32_t max)
{
	uint32_t n_ret = 0;

	for (uint32_t i = 0; i < n && len > 0; i++) {
		uint32_t take;

		if (at >= vec[i].len) {
			at -= vec[i].len;
			continue;
		}
		ASSERT(n_ret < max);
		take = vec[i].len - (uint32_t)at;
		if (take > len)
			take = (uint32_t)len;
		ret_vec[n_ret++] = (struct slot_vec){vec[i].slot, vec[i].off + (uint32_t)at, take};
		len -= take;
		at = 0;
	}
	return n_ret;
}

uint64_t vec_len(const struct slot_vec *vec, uint32_t n)
{
	uint64_t len = 0;

	for (uint32_t i = 0; i < n; i++)
		len += vec[i].len;
	return len;
}

void vec_copy_out(const struct slot_vec *vec, uint32_t n, uint8_t *to)
{
	for (uint32_t i = 0; i < n; i++) {
		payload_copy(to, vec[i].slot->data + vec[i].off, vec[i].len);
		to += vec[i].len;
	}
}
