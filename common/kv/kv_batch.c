/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kv/kv_batch.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"

#define BATCH_SIZE_MIN 512
#define BATCH_KEEP_MAX (256 << 10) /* kv_batch_clear frees memory above this */

struct kv_batch *kv_batch_create(void)
{
	struct kv_batch *b = calloc(1, sizeof(*b));
	if (b == NULL)
		return NULL;
	b->magic = KV_BATCH_MAGIC;
	b->rep = malloc(BATCH_SIZE_MIN);
	if (b->rep == NULL) {
		free(b);
		return NULL;
	}
	b->size = BATCH_SIZE_MIN;
	kv_batch_clear(b);
	return b;
}

void kv_batch_destroy(struct kv_batch *b)
{
	if (b == NULL)
		return;
	ASSERT(b->magic == KV_BATCH_MAGIC);
	b->magic = 0;
	free(b->rep);
	free(b);
}

void kv_batch_clear(struct kv_batch *b)
{
	if (b->size > BATCH_KEEP_MAX) {
		uint8_t *small = realloc(b->rep, BATCH_SIZE_MIN);
		if (small != NULL) {
			b->rep = small;
			b->size = BATCH_SIZE_MIN;
		}
	}
	memset(b->rep, 0, KV_BATCH_HEAD);
	b->len = KV_BATCH_HEAD;
	b->n = 0;
	b->failed = 0;
}

/* Returns the place for `need` more bytes, or NULL and a sticky error. */
static uint8_t *reserve(struct kv_batch *b, size_t need)
{
	if (b->failed < 0)
		return NULL;
	if (b->len + need > b->size) {
		size_t size = b->size * 2 > b->len + need ? b->size * 2 : b->len + need;
		uint8_t *rep = realloc(b->rep, size);
		if (rep == NULL) {
			b->failed = -LE_NOMEM;
			return NULL;
		}
		b->rep = rep;
		b->size = size;
	}
	return b->rep + b->len;
}

static uint8_t *put_string(uint8_t *p, const void *data, size_t len)
{
	size_t v = len;
	while (v >= 0x80) {
		*p++ = (uint8_t)(v | 0x80);
		v >>= 7;
	}
	*p++ = (uint8_t)v;
	if (len > 0)
		memcpy(p, data, len);
	return p + len;
}

static void add(struct kv_batch *b, enum kv_op op, const void *key, size_t key_len,
		const void *value, size_t value_len)
{
	size_t value_max = op == KV_OP_DELETE_RANGE ? KV_KEY_MAX : KV_VALUE_MAX;
	if (key_len > KV_KEY_MAX || value_len > value_max) {
		if (b->failed == 0)
			b->failed = -LE_INVAL;
		return;
	}
	uint8_t *start = reserve(b, 1 + 5 + key_len + 5 + value_len);
	if (start == NULL)
		return;
	uint8_t *p = start;
	*p++ = (uint8_t)op;
	p = put_string(p, key, key_len);
	if (op != KV_OP_DELETE)
		p = put_string(p, value, value_len);
	b->len += (size_t)(p - start);
	ASSERT(b->len <= b->size);
	b->n++;
}

void kv_batch_put(struct kv_batch *b, const void *key, size_t key_len, const void *value,
		  size_t len)
{
	add(b, KV_OP_PUT, key, key_len, value, len);
}

void kv_batch_delete(struct kv_batch *b, const void *key, size_t key_len)
{
	add(b, KV_OP_DELETE, key, key_len, NULL, 0);
}

void kv_batch_delete_range(struct kv_batch *b, const void *begin, size_t begin_len, const void *end,
			   size_t end_len)
{
	size_t min = begin_len < end_len ? begin_len : end_len;
	int c = min > 0 ? memcmp(begin, end, min) : 0;
	/* An empty range. RocksDB would fail the whole write for a reversed one. */
	if (c > 0 || (c == 0 && begin_len >= end_len))
		return;
	add(b, KV_OP_DELETE_RANGE, begin, begin_len, end, end_len);
}

uint32_t kv_batch_count(const struct kv_batch *b)
{
	return b->n;
}

size_t kv_batch_bytes(const struct kv_batch *b)
{
	return b->len;
}

int kv_batch_append(struct kv_batch *dst, const struct kv_batch *src)
{
	size_t len = src->len - KV_BATCH_HEAD;
	uint8_t *p = reserve(dst, len);
	if (p == NULL)
		return dst->failed;
	memcpy(p, src->rep + KV_BATCH_HEAD, len);
	dst->len += len;
	dst->n += src->n;
	return 0;
}

const uint8_t *kv_batch_rep(struct kv_batch *b, size_t *ret_len)
{
	for (int i = 0; i < 4; i++)
		b->rep[8 + i] = (uint8_t)(b->n >> (8 * i));
	*ret_len = b->len;
	return b->rep;
}

static const uint8_t *get_string(const uint8_t *p, const uint8_t **ret_data, size_t *ret_len)
{
	size_t len = 0;
	int shift = 0;
	do {
		len |= (size_t)(*p & 0x7f) << shift;
		shift += 7;
	} while ((*p++ & 0x80) != 0);
	*ret_data = p;
	*ret_len = len;
	return p + len;
}

bool kv_batch_next(const uint8_t *rep, size_t len, size_t *at, struct kv_record *ret_record)
{
	if (*at >= len)
		return false;
	const uint8_t *p = rep + *at;
	struct kv_record r = {.op = (enum kv_op) * p++};
	p = get_string(p, &r.key, &r.key_len);
	if (r.op != KV_OP_DELETE)
		p = get_string(p, &r.value, &r.value_len);
	*at = (size_t)(p - rep);
	*ret_record = r;
	return true;
}
