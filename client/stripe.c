#include "client/stripe.h"

#include "common/base/checksum.h"

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

int pieces_verify(struct bytes pieces, uint32_t off, uint32_t len, uint8_t *data)
{
	const uint8_t *p = pieces.data;
	uint32_t done = 0;

	if (pieces.len % PIECE_WIRE_SIZE != 0)
		return -LE_BAD_MESSAGE;
	for (uint32_t i = 0; i < pieces.len / PIECE_WIRE_SIZE; i++) {
		struct piece pc;

		piece_decode(p + (size_t)i * PIECE_WIRE_SIZE, &pc);
		if (pc.off != off + done || pc.len == 0 || pc.len > len - done ||
		    (pc.flags & PIECE_LZ4))
			return -LE_BAD_MESSAGE;
		if (pc.flags & PIECE_HOLE)
			memset(data + done, 0, pc.len);
		else if (checksum64(data + done, pc.len) != pc.sum)
			return -LE_CORRUPT_WIRE;
		done += pc.len;
	}
	return done == len ? 0 : -LE_BAD_MESSAGE;
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
		memcpy(to, vec[i].slot->data + vec[i].off, vec[i].len);
		to += vec[i].len;
	}
}
