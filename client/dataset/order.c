/* SPDX-License-Identifier: Apache-2.0 */
/* Implements ORDER.md line by line: no change here may change a result. */
#include "client/dataset/order.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/hmap.h"

#define GOLDEN      0x9e3779b97f4a7c15ULL
#define WORD_SHARD  0x5348415244ULL
#define WORD_WINDOW 0x57494e444f57ULL

/* mix64 of ORDER.md is hash_u64: the finaliser of splitmix64. */
static uint64_t fold(uint64_t h, uint64_t w)
{
	return hash_u64((h ^ w) + GOLDEN);
}

static uint64_t low_bits(uint32_t n)
{
	return ((uint64_t)1 << n) - 1;
}

uint64_t order_fold(uint64_t h, uint64_t w)
{
	return fold(h, w);
}

void order_perm_init(struct order_perm *p, uint64_t key, uint64_t m)
{
	uint32_t bits = m > 1 ? 64 - (uint32_t)__builtin_clzll(m - 1) : 0;
	if (bits < 8)
		bits = 8;
	p->m = m;
	p->lo = (bits + 1) / 2;
	p->hi = bits - p->lo;
	for (uint32_t i = 0; i < ORDER_ROUNDS; i++)
		p->rk[i] = fold(key, i + 1);
}

uint64_t order_perm_at(const struct order_perm *p, uint64_t x)
{
	if (p->m <= 1)
		return x;
	uint64_t lo_mask = low_bits(p->lo), hi_mask = low_bits(p->hi);
	do {
		uint64_t left = x >> p->lo, right = x & lo_mask;
		for (uint32_t i = 0; i < ORDER_ROUNDS; i += 2) {
			left ^= hash_u64(p->rk[i] ^ right) & hi_mask;
			right ^= hash_u64(p->rk[i + 1] ^ left) & lo_mask;
		}
		x = left << p->lo | right;
	} while (x >= p->m);
	return x;
}

uint64_t order_perm_inverse(const struct order_perm *p, uint64_t y)
{
	if (p->m <= 1)
		return y;
	uint64_t lo_mask = low_bits(p->lo), hi_mask = low_bits(p->hi);
	do {
		uint64_t left = y >> p->lo, right = y & lo_mask;
		for (uint32_t i = ORDER_ROUNDS; i > 0; i -= 2) {
			right ^= hash_u64(p->rk[i - 1] ^ left) & lo_mask;
			left ^= hash_u64(p->rk[i - 2] ^ right) & hi_mask;
		}
		y = left << p->lo | right;
	} while (y >= p->m);
	return y;
}

int order_mode_parse(const char *s, enum order_mode *ret_mode, uint32_t *ret_window)
{
	*ret_window = 0;
	if (strncmp(s, "window:", 7) == 0) {
		char *end;
		errno = 0;
		unsigned long long w = strtoull(s + 7, &end, 10);
		if (errno || *end || s[7] < '1' || s[7] > '9' || w > UINT32_MAX)
			return -LE_INVAL;
		*ret_window = (uint32_t)w;
		*ret_mode = ORDER_WINDOW;
		return 0;
	}
	for (int m = ORDER_GLOBAL; m <= ORDER_FILE; m++) {
		if (strcmp(s, order_mode_name((enum order_mode)m)) == 0) {
			*ret_mode = (enum order_mode)m;
			return 0;
		}
	}
	return -LE_INVAL;
}

const char *order_mode_name(enum order_mode mode)
{
	static const char *const names[] = {"global", "window", "sequential", "file"};
	return names[mode];
}

int order_tail_parse(const char *s, enum order_tail *ret_tail)
{
	static const char *const names[] = {"drop", "pad", "shorter"};
	for (int i = 0; i < 3; i++) {
		if (strcmp(s, names[i]) == 0) {
			*ret_tail = (enum order_tail)i;
			return 0;
		}
	}
	return -LE_INVAL;
}

/* Computes the epoch's sequence of shards, with prefix sums. */
static int order_lay_shards(struct order *o, const struct order_spec *spec)
{
	uint32_t n = spec->n_shards;
	if (spec->shard_first[0] != 0 || spec->shard_first[n] != spec->n)
		return -LE_INVAL;
	for (uint32_t s = 0; s < n; s++) {
		if (spec->shard_first[s] > spec->shard_first[s + 1])
			return -LE_INVAL;
	}
	o->start = malloc(((size_t)n + 1) * sizeof(*o->start));
	o->first = malloc((size_t)n * sizeof(*o->first));
	if (!o->start || !o->first)
		return -LE_NOMEM;
	order_perm_init(&o->shards, fold(o->key, WORD_SHARD), n);
	uint64_t at = 0;
	for (uint32_t j = 0; j < n; j++) {
		uint64_t s = order_perm_at(&o->shards, j);
		o->start[j] = at;
		o->first[j] = spec->shard_first[s];
		at += spec->shard_first[s + 1] - spec->shard_first[s];
	}
	o->start[n] = at;
	return 0;
}

static uint32_t window_end(const struct order *o, uint32_t w)
{
	uint64_t end = ((uint64_t)w + 1) * o->window;
	return end < o->n_shards ? (uint32_t)end : o->n_shards;
}

static int order_lay_windows(struct order *o)
{
	o->n_windows = (o->n_shards + o->window - 1) / o->window;
	o->in_window = malloc((size_t)o->n_windows * sizeof(*o->in_window));
	if (!o->in_window)
		return -LE_NOMEM;
	uint64_t key = fold(o->key, WORD_WINDOW);
	for (uint32_t w = 0; w < o->n_windows; w++) {
		ASSERT(o->start[window_end(o, w)] >= o->start[w * o->window]);
		uint64_t m = o->start[window_end(o, w)] - o->start[w * o->window];
		order_perm_init(&o->in_window[w], fold(key, w), m);
	}
	return 0;
}

int order_init(struct order *o, const struct order_spec *spec)
{
	int rc = 0;
	memset(o, 0, sizeof(*o));
	o->mode = spec->mode;
	o->n = spec->n;
	o->key = fold(fold(fold(fold(0, ORDER_VERSION), spec->seed), spec->epoch), spec->dataset);
	order_perm_init(&o->perm, o->key, o->n);
	if (o->mode == ORDER_GLOBAL || o->mode == ORDER_SEQUENTIAL || o->n == 0)
		return 0;
	/* At most 2^31, so that sums of two fit in 32 bits. */
	if (spec->n_shards == 0 || spec->n_shards > INT32_MAX || !spec->shard_first)
		return -LE_INVAL;
	if (spec->mode == ORDER_WINDOW && spec->window == 0)
		return -LE_INVAL;
	o->n_shards = spec->n_shards;
	o->shard_first = spec->shard_first;
	o->window = spec->window < spec->n_shards ? spec->window : spec->n_shards;
	rc = order_lay_shards(o, spec);
	if (rc == 0 && o->mode == ORDER_WINDOW)
		rc = order_lay_windows(o);
	if (rc < 0)
		order_fini(o);
	return rc;
}

void order_fini(struct order *o)
{
	free(o->start);
	free(o->first);
	free(o->in_window);
	o->start = o->first = NULL;
	o->in_window = NULL;
}

/* Returns the last j with start[j] <= p, which is not empty. */
static uint32_t shard_of(const struct order *o, uint64_t p)
{
	uint32_t lo = 0, hi = o->n_shards; /* start[lo] <= p < start[hi] */
	while (hi - lo > 1) {
		uint32_t mid = lo + (hi - lo) / 2;
		if (o->start[mid] <= p)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

uint64_t order_at(const struct order *o, uint64_t p)
{
	ASSERT(p < o->n);
	switch (o->mode) {
	case ORDER_SEQUENTIAL:
		return p;
	case ORDER_GLOBAL:
		return order_perm_at(&o->perm, p);
	case ORDER_WINDOW: {
		uint32_t w = shard_of(o, p) / o->window;
		uint64_t base = o->start[w * o->window];
		p = base + order_perm_at(&o->in_window[w], p - base);
		break;
	}
	case ORDER_FILE:
		break;
	}
	uint32_t j = shard_of(o, p);
	return o->first[j] + (p - o->start[j]);
}

/* Returns the shard that holds the sample: the last one that begins at or before it. */
static uint32_t shard_holding(const struct order *o, uint64_t sample)
{
	uint32_t lo = 0, hi = o->n_shards;
	while (hi - lo > 1) {
		uint32_t mid = lo + (hi - lo) / 2;
		if (o->shard_first[mid] <= sample)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

uint64_t order_position(const struct order *o, uint64_t sample)
{
	ASSERT(sample < o->n);
	if (o->mode == ORDER_SEQUENTIAL)
		return sample;
	if (o->mode == ORDER_GLOBAL)
		return order_perm_inverse(&o->perm, sample);
	uint32_t s = shard_holding(o, sample);
	uint32_t j = (uint32_t)order_perm_inverse(&o->shards, s);
	uint64_t p = o->start[j] + (sample - o->shard_first[s]);
	if (o->mode == ORDER_FILE)
		return p;
	uint32_t w = j / o->window;
	uint64_t base = o->start[w * o->window];
	return base + order_perm_inverse(&o->in_window[w], p - base);
}

uint32_t order_default_window(uint64_t n, uint32_t n_shards, uint32_t global_batch)
{
	uint64_t w = 64;
	if (n > 0) {
		unsigned __int128 need = (unsigned __int128)8 * global_batch * n_shards;
		need = (need + n - 1) / n;
		if (need > w)
			w = need > n_shards ? n_shards : (uint64_t)need;
	}
	if (w > n_shards)
		w = n_shards;
	return w ? (uint32_t)w : 1;
}

uint64_t order_steps(const struct order_deal *d)
{
	uint64_t whole = d->n / d->batch;
	return d->tail == ORDER_TAIL_DROP || d->n % d->batch == 0 ? whole : whole + 1;
}

void order_share(const struct order_deal *d, uint64_t step, uint32_t rank, uint64_t *ret_from,
		 uint32_t *ret_count)
{
	uint64_t base = step * d->batch, m = d->batch;
	if (d->tail == ORDER_TAIL_SHORTER && d->n - base < m)
		m = d->n - base;
	uint64_t from = rank * m / d->world, to = (rank + (uint64_t)1) * m / d->world;
	*ret_from = base + from;
	*ret_count = (uint32_t)(to - from);
}
