/* SPDX-License-Identifier: Apache-2.0 */
/* See ORDER.md, "Mixtures": no change here may change a result. */
#include "client/loader/source/sequence.h"

#include <stdlib.h>

#include "common/base/assert.h"

#define WORD_MIX   0x4d4958ULL
#define WORD_BLOCK 0x424c4f434bULL

struct sequence_epochs {
	struct order orders[SEQUENCE_KEPT];
	uint64_t epochs[SEQUENCE_KEPT];
	bool made[SEQUENCE_KEPT];
	uint32_t oldest;
};

/* ---- what is ordered ---- */

int sequence_of_init(struct sequence_of *of, uint32_t n_parts)
{
	*of = (struct sequence_of){.n_parts = n_parts};
	of->parts = calloc(n_parts, sizeof(*of->parts));
	return of->parts ? 0 : -LE_NOMEM;
}

void sequence_of_fini(struct sequence_of *of)
{
	for (uint32_t i = 0; of->parts && i < of->n_parts; i++)
		free(of->parts[i].shard_first);
	free(of->parts);
	of->parts = NULL;
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t r = a % b;
		a = b;
		b = r;
	}
	return a;
}

static int weigh(struct sequence_of *of, uint64_t epoch)
{
	uint64_t common = 0;
	for (uint32_t i = 0; i < of->n_parts; i++) {
		const struct sequence_part *p = &of->parts[i];
		if (p->n == 0 || p->weight == 0 || p->weight > MIX_WEIGHT_MAX)
			return -LE_INVAL;
		common = gcd(p->weight, common);
	}
	of->word = order_fold(WORD_MIX, of->n_parts);
	for (uint32_t i = 0; i < of->n_parts; i++) {
		struct sequence_part *p = &of->parts[i];
		p->weight /= common;
		p->places = of->block;
		of->block += p->weight;
		of->word = order_fold(order_fold(of->word, p->word), p->weight);
	}
	if (of->block > MIX_WEIGHT_MAX || epoch >= (uint64_t)1 << 62)
		return -LE_INVAL;
	uint64_t blocks = (epoch ? epoch : of->samples) / of->block;
	of->n = (blocks ? blocks : 1) * of->block;
	return 0;
}

int sequence_of_finish(struct sequence_of *of, bool mixed, uint64_t epoch)
{
	of->mixed = mixed;
	of->samples = 0;
	for (uint32_t i = 0; i < of->n_parts; i++) {
		of->parts[i].first = of->samples;
		of->samples += of->parts[i].n;
	}
	if (mixed)
		return weigh(of, epoch);
	ASSERT(of->n_parts == 1);
	of->n = of->parts[0].n;
	of->word = of->parts[0].word;
	return 0;
}

/* ---- the sequence ---- */

int sequence_init(struct sequence *s, const struct sequence_of *of, enum order_mode mode,
		  uint32_t window, uint64_t seed)
{
	*s = (struct sequence){.of = of, .mode = mode, .window = window, .seed = seed};
	uint64_t key = order_fold(order_fold(order_fold(0, ORDER_VERSION), seed), WORD_MIX);
	s->mix_key = order_fold(key, of->word);
	s->kept = calloc(of->n_parts, sizeof(*s->kept));
	return s->kept ? 0 : -LE_NOMEM;
}

void sequence_fini(struct sequence *s)
{
	for (uint32_t i = 0; s->kept && i < s->of->n_parts; i++) {
		for (uint32_t k = 0; k < SEQUENCE_KEPT; k++) {
			if (s->kept[i].made[k])
				order_fini(&s->kept[i].orders[k]);
		}
	}
	free(s->kept);
	s->kept = NULL;
}

/* Returns the order of a part in one of the part's epochs. Makes it if necessary, in place of
 * the oldest. */
static int order_of(struct sequence *s, uint32_t part, uint64_t epoch, const struct order **ret)
{
	const struct sequence_part *p = &s->of->parts[part];
	struct sequence_epochs *e = &s->kept[part];
	for (uint32_t k = 0; k < SEQUENCE_KEPT; k++) {
		if (e->made[k] && e->epochs[k] == epoch) {
			*ret = &e->orders[k];
			return 0;
		}
	}
	uint32_t k = e->oldest;
	struct order_spec spec = {.mode = s->mode,
				  .window = s->window,
				  .seed = s->of->mixed ? order_fold(s->mix_key, part) : s->seed,
				  .epoch = epoch,
				  .dataset = p->word,
				  .n = p->n,
				  .n_shards = p->n_shards,
				  .shard_first = p->shard_first};
	if (e->made[k])
		order_fini(&e->orders[k]);
	e->made[k] = false;
	TRY(order_init(&e->orders[k], &spec));
	e->made[k] = true;
	e->epochs[k] = epoch;
	e->oldest = (k + 1) % SEQUENCE_KEPT;
	*ret = &e->orders[k];
	return 0;
}

static void block_perm(const struct sequence *s, uint64_t block, struct order_perm *ret_perm)
{
	order_perm_init(ret_perm, order_fold(order_fold(s->mix_key, WORD_BLOCK), block),
			s->of->block);
}

/* Returns the part that place q of a block belongs to: the last part that begins at or before q. */
static uint32_t part_of_place(const struct sequence_of *of, uint64_t q)
{
	uint32_t d = of->n_parts - 1;
	while (of->parts[d].places > q)
		d--;
	return d;
}

int sequence_at(struct sequence *s, uint64_t epoch, uint64_t position, uint64_t *ret_sample)
{
	const struct sequence_of *of = s->of;
	const struct order *o;
	ASSERT(position < of->n);
	if (!of->mixed) {
		TRY(order_of(s, 0, epoch, &o));
		*ret_sample = order_at(o, position);
		return 0;
	}
	struct order_perm perm;
	uint64_t block = epoch * (of->n / of->block) + position / of->block;
	block_perm(s, block, &perm);
	uint64_t q = order_perm_at(&perm, position % of->block);
	uint32_t d = part_of_place(of, q);
	const struct sequence_part *p = &of->parts[d];
	uint64_t draw = block * p->weight + (q - p->places);
	TRY(order_of(s, d, draw / p->n, &o));
	*ret_sample = p->first + order_at(o, draw % p->n);
	return 0;
}

/* Returns the time of a draw of a part. */
static uint64_t time_of_draw(const struct sequence *s, uint32_t d, uint64_t draw)
{
	const struct sequence_part *p = &s->of->parts[d];
	if (!s->of->mixed)
		return draw;
	struct order_perm perm;
	uint64_t block = draw / p->weight;
	block_perm(s, block, &perm);
	return block * s->of->block + order_perm_inverse(&perm, p->places + draw % p->weight);
}

int sequence_next(struct sequence *s, uint64_t sample, uint64_t from,
		  bool (*holds)(void *arg, uint64_t time), void *arg, uint64_t *ret_time)
{
	const struct sequence_of *of = s->of;
	uint32_t d = of->n_parts - 1;
	ASSERT(sample < of->samples);
	while (of->parts[d].first > sample)
		d--;
	const struct sequence_part *p = &of->parts[d];
	/* The part's epoch at that time; draws of one block may be before or after `from`. */
	uint64_t draw = of->mixed ? from / of->block * p->weight : from;
	*ret_time = SEQUENCE_NEVER;
	for (uint64_t e = draw / p->n, end = e + SEQUENCE_KEPT; e < end; e++) {
		const struct order *o;
		TRY(order_of(s, d, e, &o));
		uint64_t t = time_of_draw(s, d, e * p->n + order_position(o, sample - p->first));
		if (t >= from && holds(arg, t)) {
			*ret_time = t;
			return 0;
		}
	}
	return 0;
}
