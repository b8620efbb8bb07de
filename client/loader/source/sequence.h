/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The endless sequence of samples that a loader delivers: the sample at time t is a pure function
 * of t. For one data set t = epoch * n + position, in the modes of ORDER.md. A weighted mixture
 * (ORDER.md, "Mixtures") consists of blocks, in which each part has as many places as its weight.
 *
 * A sequence caches the tables of the last epochs that were used, so two threads must not use it
 * concurrently.
 */
#ifndef LEAT_CLIENT_LOADER_SOURCE_SEQUENCE_H
#define LEAT_CLIENT_LOADER_SOURCE_SEQUENCE_H

#include "client/dataset/order.h"

#define MIX_PARTS_MAX  64u
#define MIX_WEIGHT_MAX ((uint64_t)1 << 48) /* all weights together */
#define SEQUENCE_KEPT  4u                  /* epochs of each part with cached tables */
#define SEQUENCE_NEVER UINT64_MAX

/* A data set in a sequence. */
struct sequence_part {
	uint64_t word, n; /* order word, samples */
	uint64_t first;   /* number of its first sample among those of all parts */
	uint64_t weight;
	uint64_t places; /* places of the parts before it in a block */
	uint32_t n_shards;
	uint64_t *shard_first; /* n_shards + 1, owned */
};

/* The parts of a sequence; immutable. A single data set has one part and is not mixed. */
struct sequence_of {
	uint32_t n_parts;
	struct sequence_part *parts; /* owned */
	bool mixed;
	uint64_t block;   /* positions of a block: the sum of the weights */
	uint64_t word;    /* order word of the whole */
	uint64_t n;       /* positions of an epoch */
	uint64_t samples; /* of all parts */
};
/* Allocates n zeroed parts. The caller sets word, n, weight, n_shards and shard_first of each. */
int sequence_of_init(struct sequence_of *of, uint32_t n_parts) CHECK_RESULT;
void sequence_of_fini(struct sequence_of *of);
/* Completes `of` when the parts are set. epoch: positions of an epoch of a mixture, rounded down
 * to whole blocks; 0: about as many as there are samples. -LE_INVAL: a part without samples or
 * weight, or weights above MIX_WEIGHT_MAX. */
int sequence_of_finish(struct sequence_of *of, bool mixed, uint64_t epoch) CHECK_RESULT;

struct sequence {
	const struct sequence_of *of;
	enum order_mode mode;
	uint32_t window;
	uint64_t seed, mix_key;
	struct sequence_epochs *kept; /* of each part */
};
/* Borrows `of`. window must not be 0 for ORDER_WINDOW. */
int sequence_init(struct sequence *s, const struct sequence_of *of, enum order_mode mode,
		  uint32_t window, uint64_t seed) CHECK_RESULT;
void sequence_fini(struct sequence *s); /* a zeroed sequence is fine */
/* Returns the sample at a position < of->n of an epoch. -LE_NOMEM. */
int sequence_at(struct sequence *s, uint64_t epoch, uint64_t position,
		uint64_t *ret_sample) CHECK_RESULT;
/* Finds the first time at or after `from` at which the sample is delivered and for which `holds`
 * returns true. A sample has one time per epoch of its part; at most SEQUENCE_KEPT of them are
 * tried. *ret_time is SEQUENCE_NEVER if none holds. */
int sequence_next(struct sequence *s, uint64_t sample, uint64_t from,
		  bool (*holds)(void *arg, uint64_t time), void *arg,
		  uint64_t *ret_time) CHECK_RESULT;

#endif
