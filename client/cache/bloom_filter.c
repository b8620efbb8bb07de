/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cache/bloom_filter.h"

#include <stdlib.h>


#define BLOCK      64u /* bytes */
#define FIRST      1024u
#define LARGEST    (1u << 20)
#define NAME_BITS  16u /* bits per name in a part */
#define PROBES     5u
#define PROBE_BITS 9u /* 512 bits of a block */

/* One part of a filter. New names are added to the first part of the list. */
struct bloom_filter {
	struct bloom_filter *next;
	size_t size;
	uint32_t n, n_max;
	uint64_t mask; /* blocks - 1 */
	uint8_t blocks[];
};

/* Returns the block of a hash. The hash has nine bits for each probe; the bits above select the
 * block. */
static size_t block_of(const struct bloom_filter *f, uint64_t hash)
{
	return (size_t)(hash >> (PROBES * PROBE_BITS) & f->mask) * BLOCK;
}

static bool part_has(const struct bloom_filter *f, uint64_t hash)
{
	const uint8_t *b = f->blocks + block_of(f, hash);

	for (uint32_t p = 0; p < PROBES; p++, hash >>= PROBE_BITS)
		if ((b[hash % 512 / 8] & 1u << hash % 8) == 0)
			return false;
	return true;
}

static struct bloom_filter *part_make(struct bloom_filter *before, size_t *space)
{
	size_t bytes = before == NULL ? FIRST : (before->mask + 1) * BLOCK * 4;
	struct bloom_filter *f;

	bytes = bytes > LARGEST ? LARGEST : bytes;
	while (bytes >= FIRST && *space < sizeof(*f) + bytes)
		bytes /= 2;
	if (bytes < FIRST)
		return NULL;
	f = calloc(1, sizeof(*f) + bytes);
	if (f == NULL)
		return NULL;
	f->next = before;
	f->size = sizeof(*f) + bytes;
	f->n_max = (uint32_t)(bytes * 8 / NAME_BITS);
	f->mask = bytes / BLOCK - 1;
	*space -= f->size;
	return f;
}

bool bloom_filter_may_have(const struct bloom_filter *f, uint64_t hash)
{
	for (; f != NULL; f = f->next)
		if (part_has(f, hash))
			return true;
	return false;
}

int bloom_filter_add(struct bloom_filter **ret_f, uint64_t hash, size_t *space)
{
	struct bloom_filter *f = *ret_f;
	uint8_t *b;

	if (bloom_filter_may_have(f, hash))
		return 0;
	if (f == NULL || f->n == f->n_max) {
		f = part_make(f, space);
		if (f == NULL)
			return -LE_NOMEM;
		*ret_f = f;
	}
	b = f->blocks + block_of(f, hash);
	for (uint32_t p = 0; p < PROBES; p++, hash >>= PROBE_BITS)
		b[hash % 512 / 8] |= (uint8_t)(1u << hash % 8);
	f->n++;
	return 0;
}

void bloom_filter_free(struct bloom_filter **f, size_t *space)
{
	while (*f != NULL) {
		struct bloom_filter *part = *f;

		*f = part->next;
		*space += part->size;
		free(part);
	}
}
