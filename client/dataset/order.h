/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of samples as ORDER.md defines it: the sample at position p of an epoch is a pure
 * function of (seed, epoch, data set, p). Immutable after order_init; any thread may call.
 */
#ifndef LEAT_CLIENT_DATASET_ORDER_H
#define LEAT_CLIENT_DATASET_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define ORDER_VERSION   1
#define ORDER_ROUNDS    8
#define ORDER_BATCH_MAX (1u << 24) /* samples in a global batch */

enum order_mode {
	ORDER_GLOBAL,
	ORDER_WINDOW,
	ORDER_SEQUENTIAL,
	ORDER_FILE
};
enum order_tail {
	ORDER_TAIL_DROP,
	ORDER_TAIL_PAD,
	ORDER_TAIL_SHORTER
};

/* Parses "global", "window", "window:64", "sequential" or "file"; *ret_window is 0 without a
 * number. */
int order_mode_parse(const char *s, enum order_mode *ret_mode, uint32_t *ret_window) CHECK_RESULT;
const char *order_mode_name(enum order_mode mode);
/* Parses "drop", "pad" or "shorter". */
int order_tail_parse(const char *s, enum order_tail *ret_tail) CHECK_RESULT;

struct order_spec {
	enum order_mode mode;
	uint32_t window; /* shards, for ORDER_WINDOW; not 0 (order_default_window) */
	uint64_t seed, epoch, dataset;
	uint64_t n; /* samples */
	/* For ORDER_WINDOW and ORDER_FILE: shard s holds the samples from shard_first[s] to
	 * shard_first[s + 1] - 1; n_shards + 1 entries, borrowed as long as the order. */
	uint32_t n_shards;
	const uint64_t *shard_first;
};

/* A keyed permutation of [0, m). */
struct order_perm {
	uint64_t m;
	uint32_t lo, hi; /* bits of the two halves */
	uint64_t rk[ORDER_ROUNDS];
};
void order_perm_init(struct order_perm *p, uint64_t key, uint64_t m);
uint64_t order_perm_at(const struct order_perm *p, uint64_t x); /* x < m */
/* order_perm_at(p, order_perm_inverse(p, y)) == y */
uint64_t order_perm_inverse(const struct order_perm *p, uint64_t y);

struct order {
	enum order_mode mode;
	uint64_t key, n;
	struct order_perm perm, shards;
	const uint64_t *shard_first;
	uint32_t window, n_shards, n_windows;
	uint64_t *start;              /* position of the j-th shard of the epoch; n_shards + 1 */
	uint64_t *first;              /* first sample of the j-th shard of the epoch */
	struct order_perm *in_window; /* n_windows, for ORDER_WINDOW */
};

/* -LE_INVAL: the spec contradicts itself. -LE_NOMEM. */
int order_init(struct order *o, const struct order_spec *spec) CHECK_RESULT;
void order_fini(struct order *o);
/* Returns the sample at position p < n. O(1); two binary searches over the shards in window and
 * file mode. */
uint64_t order_at(const struct order *o, uint64_t p);
/* Returns the position of a sample < n: order_at(o, order_position(o, s)) == s. As fast as
 * order_at. */
uint64_t order_position(const struct order *o, uint64_t sample);

/* fold() of ORDER.md, for other parts that derive words from it. */
uint64_t order_fold(uint64_t h, uint64_t w);

uint32_t order_default_window(uint64_t n, uint32_t n_shards, uint32_t global_batch);

/* How the positions of an epoch are divided. world divides batch. */
struct order_deal {
	uint64_t n;
	uint32_t batch, world;
	enum order_tail tail;
};
uint64_t order_steps(const struct order_deal *d);
/* Computes the positions [*ret_from, *ret_from + *ret_count) of a rank in a step. With
 * ORDER_TAIL_PAD they may be >= n and stand for p mod n. */
void order_share(const struct order_deal *d, uint64_t step, uint32_t rank, uint64_t *ret_from,
		 uint32_t *ret_count);

#endif
