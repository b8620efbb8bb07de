/*
 * What a loader delivers, without end: at time t stands a sample, a pure function of t. Of one data
 * set, t = epoch * n + position of ORDER.md's modes; of a weighted mixture (ORDER.md, "Mixtures"),
 * the blocks in which each part has as many places as its weight says.
 *
 * It keeps the tables of the epochs asked for last, so it is not for two threads at once.
 */
#ifndef LEAT_LOADER_SEQUENCE_H
#define LEAT_LOADER_SEQUENCE_H

#include "client/loader/order.h"

#define MIX_PARTS_MAX  64u
#define MIX_WEIGHT_MAX ((uint64_t)1 << 48) /* all weights together */
#define SEQUENCE_KEPT  4u                  /* epochs whose tables are kept, of each part */
#define SEQUENCE_NEVER UINT64_MAX

/* A data set in a sequence. */
struct sequence_part {
	uint64_t word, n; /* order word, samples */
	uint64_t first;   /* number of its first sample among those of all parts */
	uint64_t weight;
	uint64_t places; /* of the parts before it, in a block */
	uint32_t n_shards;
	uint64_t *shard_first; /* n_shards + 1, owned */
};

/* What is ordered; immutable. One part and no blocks: a data set by itself. */
struct sequence_of {
	uint32_t n_parts;
	struct sequence_part *parts; /* owned */
	bool mixed;
	uint64_t block;   /* positions of a block: the sum of the weights */
	uint64_t word;    /* of the whole */
	uint64_t n;       /* positions of an epoch */
	uint64_t samples; /* of all parts */
};
/* Room for n parts, zeroed: word, n, weight, n_shards and shard_first are for the caller to set. */
int sequence_of_init(struct sequence_of *of, uint32_t n_parts) CHECK_RESULT;
void sequence_of_fini(struct sequence_of *of);
/* Once the parts are set. epoch: positions of an epoch of a mixture, cut to whole blocks; 0: about
 * as many as there are samples. -LE_INVAL for parts without samples or weight, or too much of it.
 */
int sequence_of_finish(struct sequence_of *of, bool mixed, uint64_t epoch) CHECK_RESULT;

struct sequence {
	const struct sequence_of *of;
	enum order_mode mode;
	uint32_t window;
	uint64_t seed, mix_key;
	struct sequence_epochs *kept; /* of each part */
};
/* of is borrowed. window is not 0 for ORDER_WINDOW. */
int sequence_init(struct sequence *s, const struct sequence_of *of, enum order_mode mode,
		  uint32_t window, uint64_t seed) CHECK_RESULT;
void sequence_fini(struct sequence *s); /* fine for one that is zeroed */
/* The sample at a position < of->n of an epoch. -LE_NOMEM. */
int sequence_at(struct sequence *s, uint64_t epoch, uint64_t position,
		uint64_t *ret_sample) CHECK_RESULT;
/* The times at which a sample stands, one per epoch (of its part): the first for which the caller's
 * test holds, of those from `from` on, looking at no more than SEQUENCE_KEPT of them.
 * SEQUENCE_NEVER: none. */
int sequence_next(struct sequence *s, uint64_t sample, uint64_t from,
		  bool (*holds)(void *arg, uint64_t time), void *arg,
		  uint64_t *ret_time) CHECK_RESULT;

#endif
