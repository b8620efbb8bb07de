#include "client/name_filter.h"

#include <stdlib.h>

#define BLOCK      64u /* bytes */
#define FIRST      1024u
#define LARGEST    (1u << 20)
#define NAME_BITS  16u /* of a part, for each name */
#define PROBES     5u
#define PROBE_BITS 9u /* 512 bits of a block */

/* The newest part, into which names go, is the first. */
struct name_filter {
	struct name_filter *next;
	size_t size;
	uint32_t n, n_max;
	uint64_t mask; /* blocks - 1 */
	uint8_t blocks[];
};

/* Nine bits of the hash for each bit of a block, the rest chooses the block. */
static size_t block_of(const struct name_filter *f, uint64_t hash)
{
	return (size_t)(hash >> (PROBES * PROBE_BITS) & f->mask) * BLOCK;
}

static bool part_has(const struct name_filter *f, uint64_t hash)
{
	const uint8_t *b = f->blocks + block_of(f, hash);

	for (uint32_t p = 0; p < PROBES; p++, hash >>= PROBE_BITS)
		if ((b[hash % 512 / 8] & 1u << hash % 8) == 0)
			return false;
	return true;
}

static struct name_filter *part_make(struct name_filter *before, size_t *room)
{
	size_t bytes = before == NULL ? FIRST : (before->mask + 1) * BLOCK * 4;
	struct name_filter *f;

	bytes = bytes > LARGEST ? LARGEST : bytes;
	while (bytes >= FIRST && *room < sizeof(*f) + bytes)
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
	*room -= f->size;
	return f;
}

bool name_filter_may_have(const struct name_filter *f, uint64_t hash)
{
	for (; f != NULL; f = f->next)
		if (part_has(f, hash))
			return true;
	return false;
}

int name_filter_add(struct name_filter **ret_f, uint64_t hash, size_t *room)
{
	struct name_filter *f = *ret_f;
	uint8_t *b;

	if (name_filter_may_have(f, hash))
		return 0;
	if (f == NULL || f->n == f->n_max) {
		f = part_make(f, room);
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

void name_filter_free(struct name_filter **f, size_t *room)
{
	while (*f != NULL) {
		struct name_filter *part = *f;

		*f = part->next;
		*room += part->size;
		free(part);
	}
}
