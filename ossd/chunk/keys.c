/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chunk/keys.h"

#include "common/base/hmap.h"

uint64_t chunk_key_hash(const struct chunk_key *k)
{
	return hash_u64_2(hash_u64_2(hash_u64_2(k->ino.v, k->gen), k->idx), k->chain);
}

bool chunk_key_equal(const struct chunk_key *a, const struct chunk_key *b)
{
	return a->chain == b->chain && a->ino.v == b->ino.v && a->gen == b->gen && a->idx == b->idx;
}

static int compare(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

int chunk_key_compare(const struct chunk_key *a, const struct chunk_key *b)
{
	int rc = compare(a->chain, b->chain);

	rc = rc ? rc : compare(a->ino.v, b->ino.v);
	rc = rc ? rc : compare(a->gen, b->gen);
	return rc ? rc : compare(a->idx, b->idx);
}

/* ---- keys ---- */

static uint8_t *put_be(uint8_t *p, uint64_t v, int n)
{
	for (int i = 0; i < n; i++)
		p[i] = (uint8_t)(v >> (8 * (n - 1 - i)));
	return p + n;
}

static uint64_t get_be(const uint8_t **p, int n)
{
	uint64_t v = 0;

	for (int i = 0; i < n; i++)
		v = v << 8 | (*p)[i];
	*p += n;
	return v;
}

static int begin_decode(enum row_kind kind, const void *key, size_t len, size_t expected)
{
	return len == expected && *(const uint8_t *)key == kind ? 0 : -LE_CORRUPT_STORE;
}

void chunk_key_encode(enum row_kind kind, const struct chunk_key *k, uint8_t out[CHUNK_KEY_SIZE])
{
	out[0] = (uint8_t)kind;
	out = put_be(out + 1, k->chain, 4);
	out = put_be(out, k->ino.v, 8);
	out = put_be(out, k->gen, 4);
	(void)put_be(out, k->idx, 8);
}

int chunk_key_decode(enum row_kind kind, const void *key, size_t len, struct chunk_key *ret_key)
{
	const uint8_t *p = (const uint8_t *)key + 1;

	TRY(begin_decode(kind, key, len, CHUNK_KEY_SIZE));
	ret_key->chain = (uint32_t)get_be(&p, 4);
	ret_key->ino.v = get_be(&p, 8);
	ret_key->gen = (uint32_t)get_be(&p, 4);
	ret_key->idx = get_be(&p, 8);
	return 0;
}

void replay_key_encode(const struct replay_key *k, uint8_t out[REPLAY_KEY_SIZE])
{
	out[0] = ROW_REPLAY;
	out = put_be(out + 1, k->chain, 4);
	out = put_be(out, k->session, 8);
	(void)put_be(out, k->slot, 4);
}

int replay_key_decode(const void *key, size_t len, struct replay_key *ret_key)
{
	const uint8_t *p = (const uint8_t *)key + 1;

	TRY(begin_decode(ROW_REPLAY, key, len, REPLAY_KEY_SIZE));
	ret_key->chain = (uint32_t)get_be(&p, 4);
	ret_key->session = get_be(&p, 8);
	ret_key->slot = (uint32_t)get_be(&p, 4);
	return 0;
}

void writer_key_encode(uint64_t session, uint8_t out[WRITER_KEY_SIZE])
{
	out[0] = ROW_WRITER;
	(void)put_be(out + 1, session, 8);
}

int writer_key_decode(const void *key, size_t len, uint64_t *ret_session)
{
	const uint8_t *p = (const uint8_t *)key + 1;

	TRY(begin_decode(ROW_WRITER, key, len, WRITER_KEY_SIZE));
	*ret_session = get_be(&p, 8);
	return 0;
}

void chain_key_encode(enum row_kind kind, uint32_t chain, uint8_t out[CHAIN_KEY_SIZE])
{
	out[0] = (uint8_t)kind;
	(void)put_be(out + 1, chain, 4);
}

int chain_key_decode(enum row_kind kind, const void *key, size_t len, uint32_t *ret_chain)
{
	const uint8_t *p = (const uint8_t *)key + 1;

	TRY(begin_decode(kind, key, len, CHAIN_KEY_SIZE));
	*ret_chain = (uint32_t)get_be(&p, 4);
	return 0;
}

void inventory_key_encode(uint32_t chain, uint8_t cell, uint8_t out[INVENTORY_KEY_SIZE])
{
	out[0] = ROW_INVENTORY;
	*put_be(out + 1, chain, 4) = cell;
}

int inventory_key_decode(const void *key, size_t len, uint32_t *ret_chain, uint8_t *ret_cell)
{
	const uint8_t *p = (const uint8_t *)key + 1;

	TRY(begin_decode(ROW_INVENTORY, key, len, INVENTORY_KEY_SIZE));
	*ret_chain = (uint32_t)get_be(&p, 4);
	*ret_cell = *p;
	return 0;
}

/* ---- values ---- */

void epoch_value_encode(uint32_t epoch, uint8_t out[EPOCH_VALUE_SIZE])
{
	struct wire_w w;

	wire_w_init(&w, out, EPOCH_VALUE_SIZE);
	wire_put_u32(&w, &epoch);
}

int epoch_value_decode(const void *value, size_t len, uint32_t *ret_epoch)
{
	struct wire_r r;

	if (len != EPOCH_VALUE_SIZE)
		return -LE_CORRUPT_STORE;
	wire_r_init(&r, value, len);
	wire_get_u32(&r, ret_epoch);
	return 0;
}

void floor_value_encode(uint64_t version, uint8_t out[FLOOR_VALUE_SIZE])
{
	struct wire_w w;

	wire_w_init(&w, out, FLOOR_VALUE_SIZE);
	wire_put_u64(&w, &version);
}

int floor_value_decode(const void *value, size_t len, uint64_t *ret_version)
{
	struct wire_r r;

	if (len != FLOOR_VALUE_SIZE)
		return -LE_CORRUPT_STORE;
	wire_r_init(&r, value, len);
	wire_get_u64(&r, ret_version);
	return 0;
}
