#include "ossd/chunk/ledger.h"

#include <stdlib.h>

#include "common/base/checksum.h"
#include "common/proto/wire.h"

#define LEDGER_VALUE_SIZE 36u

/* ---- sums ---- */

static struct ledger_sum sum_of(const struct chunk_key *k)
{
	uint8_t row[CHUNK_ROW_SIZE];

	chunk_row_encode(ROW_CHUNK, k, row);
	return (struct ledger_sum){1, checksum64(row, sizeof(row)), k->ino.v, k->idx, k->gen};
}

static void sum_xor(struct ledger_sum *a, const struct ledger_sum *b)
{
	a->hash ^= b->hash;
	a->ino ^= b->ino;
	a->idx ^= b->idx;
	a->gen ^= b->gen;
}

static void sum_add(struct ledger_sum *a, const struct ledger_sum *b)
{
	a->n += b->n;
	sum_xor(a, b);
}

/* The names fall out again. */
static void sum_take(struct ledger_sum *a, const struct ledger_sum *b)
{
	a->n -= b->n;
	sum_xor(a, b);
}

static bool sum_none(const struct ledger_sum *a)
{
	return !a->n && !a->hash && !a->ino && !a->idx && !a->gen;
}

/* Of chunks that are lost: as many at least. */
static uint64_t sum_number(const struct ledger_sum *a)
{
	return (int64_t)a->n > 0 ? a->n : 1;
}

/* The one chunk of which it is the sum; false: it is of several. */
static bool sum_name(const struct ledger_sum *a, uint32_t chain, struct chunk_key *ret_key)
{
	struct chunk_key k = {chain, {a->ino}, a->gen, a->idx};

	if (a->n != 1 || sum_of(&k).hash != a->hash)
		return false;
	*ret_key = k;
	return true;
}

/* ---- rows ---- */

static void put_cell(const struct ledger_chain *c, uint32_t cell, struct kv_batch *b)
{
	const struct ledger_sum *s = &c->cells[cell].kept;
	uint8_t key[LEDGER_ROW_SIZE], value[LEDGER_VALUE_SIZE];
	struct wire_w w;

	ledger_row_encode(c->chain, (uint8_t)cell, key);
	if (sum_none(s)) {
		kv_batch_delete(b, key, sizeof(key));
		return;
	}
	wire_w_init(&w, value, sizeof(value));
	wire_put_u64(&w, &s->n);
	wire_put_u64(&w, &s->hash);
	wire_put_u64(&w, &s->ino);
	wire_put_u64(&w, &s->idx);
	wire_put_u32(&w, &s->gen);
	ASSERT(w.status == 0);
	kv_batch_put(b, key, sizeof(key), value, sizeof(value));
}

static int cell_decode(const void *value, size_t len, struct ledger_sum *ret)
{
	struct wire_r r;

	if (len != LEDGER_VALUE_SIZE)
		return -LE_CORRUPT_STORE;
	wire_r_init(&r, value, len);
	wire_get_u64(&r, &ret->n);
	wire_get_u64(&r, &ret->hash);
	wire_get_u64(&r, &ret->ino);
	wire_get_u64(&r, &ret->idx);
	wire_get_u32(&r, &ret->gen);
	return r.status < 0 ? -LE_CORRUPT_STORE : 0;
}

/* ---- chains ---- */

static struct ledger_chain *chain_find(const struct ledger *l, uint32_t chain)
{
	struct hmap_node *n = hmap_find(&l->chains, hash_u64(chain));

	for (; n; n = hmap_find_next(n)) {
		struct ledger_chain *c = container_of(n, struct ledger_chain, node);

		if (c->chain == chain)
			return c;
	}
	return NULL;
}

static struct ledger_chain *chain_get(struct ledger *l, uint32_t chain)
{
	struct ledger_chain *c = chain_find(l, chain);

	if (c)
		return c;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->chain = chain;
	hmap_insert(&l->chains, &c->node, hash_u64(chain));
	return c;
}

void ledger_init(struct ledger *l)
{
	*l = (struct ledger){0};
	hmap_init(&l->chains, 16);
}

void ledger_fini(struct ledger *l)
{
	struct hmap_node *n = hmap_next(&l->chains, NULL);

	while (n) {
		struct ledger_chain *c = container_of(n, struct ledger_chain, node);

		n = hmap_next(&l->chains, n);
		free(c);
	}
	hmap_fini(&l->chains);
}

/* ---- start ---- */

int ledger_load(struct ledger *l, const void *key, size_t key_len, const void *value, size_t len)
{
	struct ledger_chain *c;
	uint32_t chain;
	uint8_t cell;

	TRY(ledger_row_decode(key, key_len, &chain, &cell));
	if (cell >= LEDGER_CELLS)
		return -LE_CORRUPT_STORE;
	c = chain_get(l, chain);
	if (!c)
		return -LE_NOMEM;
	TRY(cell_decode(value, len, &c->cells[cell].kept));
	c->cells[cell].lost = c->cells[cell].kept;
	return 0;
}

int ledger_found(struct ledger *l, const struct chunk_key *k)
{
	struct ledger_sum s = sum_of(k);
	struct ledger_chain *c = chain_get(l, k->chain);

	if (!c)
		return -LE_NOMEM;
	sum_take(&c->cells[s.hash % LEDGER_CELLS].lost, &s);
	return 0;
}

/* What is there is all there must be. */
static void trust_cell(struct ledger_chain *c, uint32_t cell, struct kv_batch *b)
{
	sum_take(&c->cells[cell].kept, &c->cells[cell].lost);
	c->cells[cell].lost = (struct ledger_sum){0};
	put_cell(c, cell, b);
}

uint64_t ledger_loaded(struct ledger *l, struct kv_batch *b)
{
	uint64_t lost = 0;

	for (struct hmap_node *n = hmap_next(&l->chains, NULL); n; n = hmap_next(&l->chains, n)) {
		struct ledger_chain *c = container_of(n, struct ledger_chain, node);

		for (uint32_t i = 0; i < LEDGER_CELLS; i++) {
			const struct ledger_sum *s = &c->cells[i].lost;

			if (sum_none(s))
				continue;
			if (!l->began) {
				trust_cell(c, i, b);
				continue;
			}
			c->n_doubtful++;
			lost += sum_number(s);
		}
	}
	if (!l->began || !l->named)
		kv_batch_put(b, LEDGER_BEGAN_KEY, LEDGER_BEGAN_KEY_SIZE, "N", 1);
	l->began = l->named = true;
	return lost;
}

bool ledger_suspects(const struct ledger *l, const struct chunk_key *k)
{
	const struct ledger_chain *c = chain_find(l, k->chain);

	return c && c->n_doubtful && !sum_none(&c->cells[sum_of(k).hash % LEDGER_CELLS].lost);
}

/* ---- names ---- */

void ledger_put_name(const struct chunk_key *k, struct kv_batch *b)
{
	uint8_t key[CHUNK_ROW_SIZE];

	chunk_row_encode(ROW_NAME, k, key);
	kv_batch_put(b, key, sizeof(key), "", 0);
}

static void delete_name(const struct chunk_key *k, struct kv_batch *b)
{
	uint8_t key[CHUNK_ROW_SIZE];

	chunk_row_encode(ROW_NAME, k, key);
	kv_batch_delete(b, key, sizeof(key));
}

void ledger_forget_names(uint32_t chain, struct kv_batch *b)
{
	uint8_t begin[CHAIN_ROW_SIZE], end[CHAIN_ROW_SIZE] = {ROW_NAME + 1};

	chain_row_encode(ROW_NAME, chain, begin);
	if (chain < UINT32_MAX)
		chain_row_encode(ROW_NAME, chain + 1, end);
	kv_batch_delete_range(b, begin, sizeof(begin), end, sizeof(end));
}

/* What is lost of its cell is one less, and has a row that says so. */
void ledger_named(struct ledger *l, const struct chunk_key *k)
{
	struct ledger_chain *c = chain_find(l, k->chain);
	struct ledger_sum s = sum_of(k), *lost;

	ASSERT(c);
	lost = &c->cells[s.hash % LEDGER_CELLS].lost;
	ASSERT(c->n_doubtful && !sum_none(lost));
	sum_take(lost, &s);
	c->n_doubtful -= sum_none(lost);
	c->n_marked++;
}

/* ---- changes ---- */

int ledger_need(struct ledger *l, uint32_t chain)
{
	return chain_get(l, chain) ? 0 : -LE_NOMEM;
}

/* Is it one of those that the cell has lost? Told only where what is left then makes sense. */
static bool was_lost(struct ledger_chain *c, struct ledger_cell *cell, const struct ledger_sum *s)
{
	struct ledger_sum left = cell->lost;
	struct chunk_key other;

	if (sum_none(&left))
		return false;
	sum_take(&left, s);
	if (!sum_none(&left) && !sum_name(&left, c->chain, &other))
		return false;
	cell->lost = left;
	c->n_doubtful -= sum_none(&left);
	return true;
}

void ledger_add(struct ledger *l, const struct chunk_key *k, struct kv_batch *b)
{
	struct ledger_chain *c = chain_find(l, k->chain);
	struct ledger_sum s = sum_of(k);
	uint32_t i = s.hash % LEDGER_CELLS;

	ASSERT(c);
	ledger_put_name(k, b);
	if (was_lost(c, &c->cells[i], &s))
		return; /* it is counted */
	sum_add(&c->cells[i].kept, &s);
	put_cell(c, i, b);
}

void ledger_remove(struct ledger *l, const struct chunk_key *k, struct kv_batch *b)
{
	struct ledger_chain *c = chain_find(l, k->chain);
	struct ledger_sum s = sum_of(k);
	uint32_t i = s.hash % LEDGER_CELLS;

	ASSERT(c);
	delete_name(k, b);
	sum_take(&c->cells[i].kept, &s);
	put_cell(c, i, b);
}

void ledger_forget(struct ledger *l, const struct chunk_key *k, struct kv_batch *b)
{
	struct ledger_chain *c = chain_find(l, k->chain);
	struct ledger_sum s = sum_of(k);

	if (c && was_lost(c, &c->cells[s.hash % LEDGER_CELLS], &s))
		ledger_remove(l, k, b);
}

uint64_t ledger_trust(struct ledger *l, uint32_t chain, bool named, struct kv_batch *b)
{
	struct ledger_chain *c = chain_find(l, chain);
	uint64_t lost = 0;

	for (uint32_t i = 0; c && c->n_doubtful && i < LEDGER_CELLS; i++) {
		const struct ledger_sum *s = &c->cells[i].lost;
		struct chunk_key k;

		if (sum_none(s) || (!named && sum_name(s, chain, &k)))
			continue;
		lost += sum_number(s);
		trust_cell(c, i, b);
		c->n_doubtful--;
	}
	return lost;
}

/* ---- questions ---- */

enum ledger_answer ledger_has(const struct ledger *l, const struct chunk_key *k)
{
	const struct ledger_chain *c = chain_find(l, k->chain);
	const struct ledger_sum *lost;
	struct chunk_key name;

	if (!c || !c->n_doubtful)
		return LEDGER_NONE;
	lost = &c->cells[sum_of(k).hash % LEDGER_CELLS].lost;
	if (sum_none(lost))
		return LEDGER_NONE;
	if (sum_name(lost, k->chain, &name))
		return chunk_key_equal(&name, k) ? LEDGER_LOST : LEDGER_NONE;
	return c->alone ? LEDGER_NONE : LEDGER_UNSURE;
}

enum ledger_answer ledger_range(const struct ledger *l, const struct chunk_key *first,
				const struct chunk_key *last, struct chunk_key *ret_key)
{
	const struct ledger_chain *c = chain_find(l, first->chain);
	enum ledger_answer answer = LEDGER_NONE;
	bool unsure = false;

	for (uint32_t i = 0; c && c->n_doubtful && i < LEDGER_CELLS; i++) {
		struct chunk_key k;

		if (sum_none(&c->cells[i].lost))
			continue;
		if (!sum_name(&c->cells[i].lost, first->chain, &k)) {
			unsure |= !c->alone;
		} else if (chunk_key_compare(first, &k) <= 0 && chunk_key_compare(&k, last) <= 0 &&
			   (answer == LEDGER_NONE || chunk_key_compare(&k, ret_key) < 0)) {
			*ret_key = k;
			answer = LEDGER_LOST;
		}
	}
	return answer == LEDGER_NONE && unsure ? LEDGER_UNSURE : answer;
}

bool ledger_doubts(const struct ledger *l, uint32_t chain)
{
	const struct ledger_chain *c = chain_find(l, chain);

	return c && (c->n_doubtful || c->n_marked);
}

void ledger_marked(struct ledger *l, uint32_t chain, int by)
{
	struct ledger_chain *c = chain_find(l, chain);

	if (c)
		c->n_marked += (uint32_t)by;
}

uint32_t ledger_mark_lost(struct ledger *l, void (*each)(void *arg, const struct chunk_key *k),
			  void *arg)
{
	uint32_t n = 0;

	for (struct hmap_node *node = hmap_next(&l->chains, NULL); node;
	     node = hmap_next(&l->chains, node)) {
		struct ledger_chain *c = container_of(node, struct ledger_chain, node);

		for (uint32_t i = 0; c->n_doubtful && i < LEDGER_CELLS; i++) {
			struct chunk_key k;

			if (!sum_name(&c->cells[i].lost, c->chain, &k))
				continue;
			each(arg, &k);
			c->cells[i].lost = (struct ledger_sum){0};
			c->n_doubtful--;
			c->n_marked++;
			n++;
		}
	}
	return n;
}

void ledger_alone(struct ledger *l, uint32_t chain, bool alone)
{
	struct ledger_chain *c = chain_find(l, chain);

	if (c)
		c->alone = alone;
}

void ledger_each_lost(const struct ledger *l, void (*each)(void *arg, const struct chunk_key *k),
		      void *arg)
{
	for (struct hmap_node *n = hmap_next(&l->chains, NULL); n; n = hmap_next(&l->chains, n)) {
		const struct ledger_chain *c = container_of(n, struct ledger_chain, node);

		for (uint32_t i = 0; c->n_doubtful && i < LEDGER_CELLS; i++) {
			struct chunk_key k;

			if (sum_name(&c->cells[i].lost, c->chain, &k))
				each(arg, &k);
		}
	}
}
