/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chunk/extent_alloc.h"

#include <stdlib.h>

#include "common/base/assert.h"

#define QUAD_LOW         0x1111111111111111ULL
#define SMALL_SCAN_WORDS 1024u /* how far a small extent searches for a broken group */
#define RUNS_SCAN        4096u /* number of runs after which the longest so far is accepted */

/* Returns the lowest bit of each group of four that is wholly free. */
static uint64_t whole_quads(uint64_t x)
{
	return x & (x >> 1) & (x >> 2) & (x >> 3) & QUAD_LOW;
}

static void word_change(struct extent_alloc *a, uint64_t w, uint64_t value)
{
	uint64_t was = a->map[w];

	a->free += (uint64_t)__builtin_popcountll(value) - (uint64_t)__builtin_popcountll(was);
	a->free_quads += (uint64_t)__builtin_popcountll(whole_quads(value)) -
			 (uint64_t)__builtin_popcountll(whole_quads(was));
	a->map[w] = value;
	if (value)
		a->summary[w / 64] |= 1ULL << (w % 64);
	else
		a->summary[w / 64] &= ~(1ULL << (w % 64));
}

static uint64_t range_mask(uint64_t start, uint64_t end, uint64_t w)
{
	uint64_t from = start > w * 64 ? start - w * 64 : 0;
	uint64_t to = end < (w + 1) * 64 ? end - w * 64 : 64;
	uint64_t mask = to == 64 ? ~0ULL : (1ULL << to) - 1;

	return mask & ~((1ULL << from) - 1);
}

static void set_free(struct extent_alloc *a, uint64_t start, uint64_t end)
{
	for (uint64_t w = start / 64; start < end && w <= (end - 1) / 64; w++)
		word_change(a, w, a->map[w] | range_mask(start, end, w));
}

static void set_used(struct extent_alloc *a, uint64_t start, uint64_t end)
{
	for (uint64_t w = start / 64; start < end && w <= (end - 1) / 64; w++)
		word_change(a, w, a->map[w] & ~range_mask(start, end, w));
	if (end > a->high)
		a->high = end;
}

int extent_alloc_init(struct extent_alloc *a, uint64_t n_units, uint64_t limit)
{
	*a = (struct extent_alloc){.n_units = n_units, .n_words = (n_units + 63) / 64};
	a->map = calloc(a->n_words + 1, sizeof(*a->map));
	a->summary = calloc(a->n_words / 64 + 2, sizeof(*a->summary));
	if (!a->map || !a->summary) {
		extent_alloc_fini(a);
		return -LE_NOMEM;
	}
	extent_alloc_grow(a, limit);
	return 0;
}

void extent_alloc_fini(struct extent_alloc *a)
{
	free(a->map);
	free(a->summary);
	a->map = a->summary = NULL;
}

void extent_alloc_grow(struct extent_alloc *a, uint64_t limit)
{
	if (limit > a->n_units)
		limit = a->n_units;
	if (limit <= a->limit)
		return;
	set_free(a, a->limit, limit);
	a->limit = limit;
}

/* Returns the first free unit in [pos, end), or end. */
static uint64_t next_free(const struct extent_alloc *a, uint64_t pos, uint64_t end)
{
	while (pos < end) {
		uint64_t w = pos / 64, x = a->map[w] >> (pos % 64);

		if (x) {
			pos += (uint64_t)__builtin_ctzll(x);
			return pos < end ? pos : end;
		}
		w++;
		uint64_t s = a->summary[w / 64] >> (w % 64);
		while (!s && w < a->n_words) {
			w = (w / 64 + 1) * 64;
			s = w < a->n_words ? a->summary[w / 64] : 1;
		}
		if (w >= a->n_words)
			return end;
		pos = (w + (uint64_t)__builtin_ctzll(s)) * 64;
	}
	return end;
}

/* Returns the first used unit in [pos, end), or end. */
static uint64_t next_used(const struct extent_alloc *a, uint64_t pos, uint64_t end)
{
	while (pos < end) {
		uint64_t x = ~a->map[pos / 64] >> (pos % 64);

		if (x) {
			pos += (uint64_t)__builtin_ctzll(x);
			return pos < end ? pos : end;
		}
		pos = (pos / 64 + 1) * 64;
	}
	return end;
}

/* Finds the first run of want units in [from, to), else the longest of at least min units. */
static uint32_t find_run(const struct extent_alloc *a, uint64_t from, uint64_t to, uint32_t want,
			 uint32_t min, uint64_t *ret_start)
{
	uint32_t best = 0, n_runs = 0;

	for (uint64_t pos = from; pos < to;) {
		uint64_t start = (next_free(a, pos, to) + 3) & ~3ULL;
		uint64_t limit = start + want < a->limit ? start + want : a->limit;

		if (start >= to)
			break;
		uint64_t end = next_used(a, start, limit);
		if (end - start > best && end - start >= min) {
			best = (uint32_t)(end - start);
			*ret_start = start;
		}
		if (best >= want || (best && ++n_runs > RUNS_SCAN))
			break;
		pos = end > start ? end : start + 1;
	}
	return best;
}

/* Finds one to three units in a group that is already broken. */
static uint32_t find_small(struct extent_alloc *a, uint32_t want, uint64_t *ret_start)
{
	for (uint32_t i = 0; i < SMALL_SCAN_WORDS && i < a->n_words; i++) {
		uint64_t w = (a->small_cursor + i) % a->n_words;
		uint64_t x = a->map[w] & ~(whole_quads(a->map[w]) * 15);

		for (uint32_t k = 1; k < want; k++)
			x &= x >> 1;
		if (!x)
			continue;
		a->small_cursor = w;
		*ret_start = w * 64 + (uint64_t)__builtin_ctzll(x);
		return want;
	}
	a->small_cursor = a->n_words ? (a->small_cursor + SMALL_SCAN_WORDS) % a->n_words : 0;
	return 0;
}

/* Finds any run, even one that does not start at a group: the last resort in a full area. */
static uint32_t find_any(const struct extent_alloc *a, uint32_t want, uint32_t min,
			 uint64_t *ret_start)
{
	for (uint64_t pos = 0; pos < a->limit;) {
		uint64_t start = next_free(a, pos, a->limit);
		uint64_t to = start + want < a->limit ? start + want : a->limit;
		uint64_t end = next_used(a, start, to);

		if (start < a->limit && end - start >= min) {
			*ret_start = start;
			return (uint32_t)(end - start);
		}
		pos = end + 1;
	}
	return 0;
}

uint32_t extent_get(struct extent_alloc *a, uint32_t want, uint32_t min, uint64_t *ret_start)
{
	uint32_t n = 0;
	uint64_t start = 0;

	ASSERT(min > 0 && min <= want);
	if (a->free < min)
		return 0;
	if (want < 4)
		n = find_small(a, want, &start);
	if (!n) {
		n = find_run(a, a->cursor, a->limit, want, min, &start);
		uint64_t again = a->cursor + want < a->limit ? a->cursor + want : a->limit;
		uint64_t other = 0;
		uint32_t m = n < want ? find_run(a, 0, again, want, min, &other) : 0;
		if (m > n) {
			n = m;
			start = other;
		}
		if (n)
			a->cursor = start + n < a->limit ? start + n : 0;
	}
	if (!n)
		n = find_any(a, want, min, &start);
	if (!n)
		return 0;
	set_used(a, start, start + n);
	*ret_start = start;
	return n;
}

void extent_put(struct extent_alloc *a, uint64_t start, uint64_t n)
{
	ASSERT(n > 0 && start + n <= a->limit);
	ASSERT(next_free(a, start, start + n) == start + n);
	set_free(a, start, start + n);
}

int extent_take(struct extent_alloc *a, uint64_t start, uint64_t n)
{
	uint64_t end = start + n;
	int rc = 0;

	if (end > a->limit || end < start) {
		rc = -LE_CORRUPT_STORE;
		start = start < a->limit ? start : a->limit;
		end = a->limit;
	}
	if (next_used(a, start, end) != end)
		rc = -LE_CORRUPT_STORE;
	set_used(a, start, end);
	return rc;
}

uint64_t extent_usable(const struct extent_alloc *a)
{
	uint64_t from = a->limit & ~3ULL;

	/* After a crash the file may end within a group. The group is whole once the file grows,
	 * if its present units are free. */
	if (a->limit == a->n_units || next_used(a, from, a->limit) != a->limit)
		from = a->limit;
	return a->free_quads * 4 + (a->n_units - from);
}
