/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chunk/chunk_inventory.h"

#include <stdlib.h>

#include "common/base/checksum.h"
#include "common/base/planted_bug.h"
#include "common/proto/wire.h"

#define INVENTORY_VALUE_SIZE 69u
#define FEW_CELLS         4u /* see OSS_FEW_CELLS */

/* ---- sums ---- */

static struct inventory_sum sum_of(const struct chunk_key *k)
{
	uint8_t row[CHUNK_KEY_SIZE];

	chunk_key_encode(ROW_CHUNK, k, row);
	return (struct inventory_sum){1, checksum64(row, sizeof(row)), k->ino.v, k->idx, k->gen};
}

static uint32_t cell_of(const struct inventory_sum *s)
{
	return (uint32_t)(s->hash % (PLANTED_BUG(OSS_FEW_CELLS) ? FEW_CELLS : INVENTORY_CELLS));
}

static void sum_xor(struct inventory_sum *a, const struct inventory_sum *b)
{
	a->hash ^= b->hash;
	a->ino ^= b->ino;
	a->idx ^= b->idx;
	a->gen ^= b->gen;
}

static void sum_add(struct inventory_sum *a, const struct inventory_sum *b)
{
	a->n += b->n;
	sum_xor(a, b);
}

/* Subtracts a chunk. Exclusive or removes its name again. */
static void sum_take(struct inventory_sum *a, const struct inventory_sum *b)
{
	a->n -= b->n;
	sum_xor(a, b);
}

static bool sum_none(const struct inventory_sum *a)
{
	return !a->n && !a->hash && !a->ino && !a->idx && !a->gen;
}

/* Number of lost chunks, a lower bound. */
static uint64_t sum_number(const struct inventory_sum *a)
{
	return (int64_t)a->n > 0 ? a->n : 1;
}

/* If the sum is that of one chunk, returns true and the chunk. */
static bool sum_name(const struct inventory_sum *a, uint32_t chain, struct chunk_key *ret_key)
{
	struct chunk_key k = {chain, {a->ino}, a->gen, a->idx};

	if (a->n != 1 || sum_of(&k).hash != a->hash)
		return false;
	*ret_key = k;
	return true;
}

/* ---- rows ---- */

static void put_sum(struct wire_w *w, const struct inventory_sum *s)
{
	wire_put_u64(w, &s->n);
	wire_put_u64(w, &s->hash);
	wire_put_u64(w, &s->ino);
	wire_put_u64(w, &s->idx);
	wire_put_u32(w, &s->gen);
}

static void get_sum(struct wire_r *r, struct inventory_sum *ret)
{
	wire_get_u64(r, &ret->n);
	wire_get_u64(r, &ret->hash);
	wire_get_u64(r, &ret->ino);
	wire_get_u64(r, &ret->idx);
	wire_get_u32(r, &ret->gen);
}

static void put_cell(const struct inventory_chain *c, uint32_t cell, struct kv_batch *b)
{
	const struct inventory_cell *e = &c->cells[cell];
	uint8_t key[INVENTORY_KEY_SIZE], value[INVENTORY_VALUE_SIZE], guessed = e->guessed;
	struct wire_w w;

	inventory_key_encode(c->chain, (uint8_t)cell, key);
	if (sum_none(&e->kept)) {
		kv_batch_delete(b, key, sizeof(key));
		return;
	}
	wire_w_init(&w, value, sizeof(value));
	put_sum(&w, &e->kept);
	wire_put_u64(&w, &e->top);
	wire_put_u64(&w, &e->lost.n);
	wire_put_u64(&w, &e->lost.hash);
	wire_put_u64(&w, &e->upto);
	wire_put_u8(&w, &guessed);
	ASSERT(w.status == 0 && w.len == sizeof(value));
	kv_batch_put(b, key, sizeof(key), value, sizeof(value));
}

static int cell_decode(const void *value, size_t len, struct inventory_cell *ret)
{
	struct inventory_cell e = {0};
	struct wire_r r;
	uint8_t guessed;

	if (len != INVENTORY_VALUE_SIZE)
		return -LE_CORRUPT_STORE;
	wire_r_init(&r, value, len);
	get_sum(&r, &e.kept);
	wire_get_u64(&r, &e.top);
	wire_get_u64(&r, &e.noted_n);
	wire_get_u64(&r, &e.noted_hash);
	wire_get_u64(&r, &e.upto);
	wire_get_u8(&r, &guessed);
	if (r.status < 0 || guessed > 1)
		return -LE_CORRUPT_STORE;
	e.guessed = guessed;
	e.lost = e.kept;
	*ret = e;
	return 0;
}

/* ---- chains ---- */

uint64_t inventory_bytes(const struct chunk_inventory *l)
{
	return l->chains.n * sizeof(struct inventory_chain);
}

static struct inventory_chain *chain_find(const struct chunk_inventory *l, uint32_t chain)
{
	struct hmap_node *n = hmap_find_id(&l->chains, chain);

	return n ? container_of(n, struct inventory_chain, node) : NULL;
}

static struct inventory_chain *chain_get(struct chunk_inventory *l, uint32_t chain)
{
	struct inventory_chain *c = chain_find(l, chain);

	if (c)
		return c;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->chain = chain;
	hmap_insert_id(&l->chains, &c->node, chain);
	return c;
}

void inventory_init(struct chunk_inventory *l)
{
	*l = (struct chunk_inventory){0};
	hmap_init(&l->chains, 16);
}

void inventory_fini(struct chunk_inventory *l)
{
	struct hmap_node *n = hmap_next(&l->chains, NULL);

	while (n) {
		struct inventory_chain *c = container_of(n, struct inventory_chain, node);

		n = hmap_next(&l->chains, n);
		free(c);
	}
	hmap_fini(&l->chains);
}

/* ---- start ---- */

int inventory_load(struct chunk_inventory *l, const void *key, size_t key_len, const void *value,
		   size_t len)
{
	struct inventory_chain *c;
	uint32_t chain;
	uint8_t cell;

	TRY(inventory_key_decode(key, key_len, &chain, &cell));
	if (cell >= INVENTORY_CELLS)
		return -LE_CORRUPT_STORE;
	c = chain_get(l, chain);
	if (!c)
		return -LE_NOMEM;
	return cell_decode(value, len, &c->cells[cell]);
}

static void raise_top(struct inventory_cell *cell, const struct inventory_sum *s)
{
	if (s->ino > cell->top)
		cell->top = s->ino;
}

int inventory_found(struct chunk_inventory *l, const struct chunk_key *k)
{
	struct inventory_sum s = sum_of(k);
	struct inventory_chain *c = chain_get(l, k->chain);

	if (!c)
		return -LE_NOMEM;
	sum_take(&c->cells[cell_of(&s)].lost, &s);
	raise_top(&c->cells[cell_of(&s)], &s);
	return 0;
}

static void set_lost(struct inventory_chain *c, struct inventory_cell *cell,
		     const struct inventory_sum *lost, bool guessed)
{
	c->n_uncertain += !sum_none(lost);
	c->n_uncertain -= !sum_none(&cell->lost);
	cell->lost = *lost;
	cell->guessed = guessed;
}

/* Makes the present rows of the cell its inventory. */
static void trust_cell(struct inventory_chain *c, uint32_t cell, struct kv_batch *b)
{
	sum_take(&c->cells[cell].kept, &c->cells[cell].lost);
	set_lost(c, &c->cells[cell], &(struct inventory_sum){0}, false);
	put_cell(c, cell, b);
}

uint64_t inventory_loaded(struct chunk_inventory *l, struct kv_batch *b)
{
	uint64_t lost = 0;

	for (struct hmap_node *n = hmap_next(&l->chains, NULL); n; n = hmap_next(&l->chains, n)) {
		struct inventory_chain *c = container_of(n, struct inventory_chain, node);

		for (uint32_t i = 0; i < INVENTORY_CELLS; i++) {
			const struct inventory_sum *s = &c->cells[i].lost;

			c->n_uncertain += !sum_none(s);
			if (!sum_none(s) && !l->began)
				trust_cell(c, i, b);
			else if (!sum_none(s))
				lost += sum_number(s);
		}
	}
	if (!l->began || !l->named)
		kv_batch_put(b, INVENTORY_BEGAN_KEY, INVENTORY_BEGAN_KEY_SIZE, "N", 1);
	l->began = l->named = true;
	return lost;
}

bool inventory_suspects(const struct chunk_inventory *l, const struct chunk_key *k)
{
	const struct inventory_chain *c = chain_find(l, k->chain);
	struct inventory_sum s = sum_of(k);

	return c && c->n_uncertain && !sum_none(&c->cells[cell_of(&s)].lost);
}

/* ---- names ---- */

void inventory_put_name(const struct chunk_key *k, struct kv_batch *b)
{
	uint8_t key[CHUNK_KEY_SIZE];

	chunk_key_encode(ROW_NAME, k, key);
	kv_batch_put(b, key, sizeof(key), "", 0);
}

static void delete_name(const struct chunk_key *k, struct kv_batch *b)
{
	uint8_t key[CHUNK_KEY_SIZE];

	chunk_key_encode(ROW_NAME, k, key);
	kv_batch_delete(b, key, sizeof(key));
}

void inventory_forget_names(uint32_t chain, struct kv_batch *b)
{
	uint8_t begin[CHAIN_KEY_SIZE], end[CHAIN_KEY_SIZE] = {ROW_NAME + 1};

	chain_key_encode(ROW_NAME, chain, begin);
	if (chain < UINT32_MAX)
		chain_key_encode(ROW_NAME, chain + 1, end);
	kv_batch_delete_range(b, begin, sizeof(begin), end, sizeof(end));
}

/* The chunk is subtracted from the lost ones of its cell, because it gets a row that marks it. */
void inventory_named(struct chunk_inventory *l, const struct chunk_key *k)
{
	struct inventory_chain *c = chain_find(l, k->chain);
	struct inventory_sum s = sum_of(k), *lost;

	ASSERT(c);
	lost = &c->cells[cell_of(&s)].lost;
	ASSERT(c->n_uncertain && !sum_none(lost));
	sum_take(lost, &s);
	c->n_uncertain -= sum_none(lost);
	c->n_marked++;
}

/* ---- uncertain cells ---- */

/* True if the row of the cell is lost or wrong: more chunks exist than it counts. */
static bool row_gone(const struct inventory_cell *cell)
{
	return !cell->guessed && !sum_none(&cell->lost) && (int64_t)cell->lost.n <= 0;
}

void inventory_begin_uncertain(struct chunk_inventory *l, struct kv_batch *b)
{
	for (struct hmap_node *n = hmap_next(&l->chains, NULL); n; n = hmap_next(&l->chains, n)) {
		struct inventory_chain *c = container_of(n, struct inventory_chain, node);

		for (uint32_t i = 0; i < INVENTORY_CELLS; i++) {
			struct inventory_cell *cell = &c->cells[i];
			const struct inventory_sum *s = &cell->lost;

			if (!sum_none(s) && PLANTED_BUG(OSS_SKIP_DOUBTS))
				trust_cell(c, i, b);
			if (s->n == cell->noted_n && s->hash == cell->noted_hash)
				continue;
			cell->upto = cell->top;
			cell->guessed &= !sum_none(s);
			put_cell(c, i, b);
		}
	}
}

void inventory_each_uncertain(const struct chunk_inventory *l,
		       void (*each)(void *arg, const struct inventory_uncertain *d), void *arg)
{
	for (struct hmap_node *n = hmap_next(&l->chains, NULL); n; n = hmap_next(&l->chains, n)) {
		const struct inventory_chain *c = container_of(n, struct inventory_chain, node);
		struct inventory_uncertain d = {.chain = c->chain};

		for (uint32_t i = 0; c->n_uncertain && i < INVENTORY_CELLS; i++) {
			const struct inventory_cell *cell = &c->cells[i];
			struct chunk_key k;

			if (sum_none(&cell->lost) || row_gone(cell) ||
			    sum_name(&cell->lost, c->chain, &k))
				continue;
			d.n_cells++;
			d.n_lost += sum_number(&cell->lost);
			d.upto = cell->upto > d.upto ? cell->upto : d.upto;
		}
		if (d.n_cells)
			each(arg, &d);
	}
}

uint32_t inventory_put_uncertain(const struct chunk_inventory *l, uint32_t chain,
			      uint8_t buf[INVENTORY_UNCERTAIN_MAX])
{
	const struct inventory_chain *c = chain_find(l, chain);
	struct wire_w w;

	wire_w_init(&w, buf, INVENTORY_UNCERTAIN_MAX);
	for (uint32_t i = 0; c && c->n_uncertain && i < INVENTORY_CELLS; i++) {
		const struct inventory_cell *cell = &c->cells[i];
		uint8_t number = (uint8_t)i, guessed = cell->guessed;

		if (sum_none(&cell->lost) || row_gone(cell))
			continue;
		wire_put_u8(&w, &number);
		put_sum(&w, &cell->lost);
		wire_put_u64(&w, &cell->upto);
		wire_put_u8(&w, &guessed);
	}
	ASSERT(w.status == 0);
	return (uint32_t)w.len;
}

struct uncertain {
	uint8_t cell, guessed;
	struct inventory_sum lost;
	uint64_t upto;
};

/* Decodes one uncertain cell. The caller checks that cells are in ascending order. */
static int get_uncertain(struct wire_r *r, struct uncertain *ret)
{
	wire_get_u8(r, &ret->cell);
	get_sum(r, &ret->lost);
	wire_get_u64(r, &ret->upto);
	wire_get_u8(r, &ret->guessed);
	if (r->status < 0 || ret->cell >= INVENTORY_CELLS || ret->guessed > 1 ||
	    sum_none(&ret->lost))
		return -LE_BAD_MESSAGE;
	return 0;
}

int inventory_take_uncertain(struct chunk_inventory *l, uint32_t chain, struct bytes in,
			  struct kv_batch *b)
{
	struct inventory_chain *c = chain_get(l, chain);
	struct uncertain d;
	struct wire_r r;
	int last = -1;

	if (!c)
		return -LE_NOMEM;
	if (in.len % INVENTORY_UNCERTAIN_SIZE)
		return -LE_BAD_MESSAGE;
	for (wire_r_init(&r, in.data, in.len); !wire_r_end(&r); last = d.cell) {
		TRY(get_uncertain(&r, &d));
		if (d.cell <= last)
			return -LE_BAD_MESSAGE;
	}
	inventory_trust(l, chain, b);
	for (wire_r_init(&r, in.data, in.len); !wire_r_end(&r);) {
		struct inventory_cell *cell;

		TRY(get_uncertain(&r, &d));
		cell = &c->cells[d.cell];
		sum_add(&cell->kept, &d.lost);
		set_lost(c, cell, &d.lost, d.guessed);
		cell->upto = d.upto;
		if (cell->top < d.upto)
			cell->top = d.upto;
		put_cell(c, d.cell, b);
	}
	return 0;
}

/* ---- changes ---- */

int inventory_need(struct chunk_inventory *l, uint32_t chain)
{
	return chain_get(l, chain) ? 0 : -LE_NOMEM;
}

/* The answer of a cell for a chunk that has no row. */
static enum inventory_answer cell_answer(const struct inventory_chain *c,
					 const struct inventory_cell *cell,
					 const struct inventory_sum *s)
{
	struct inventory_sum left = cell->lost;
	struct chunk_key k;

	if (sum_none(&left))
		return INVENTORY_NONE;
	/* The cell cannot answer, but another member may have the chunk. */
	if (row_gone(cell))
		return c->whole ? INVENTORY_NONE : INVENTORY_UNSURE;
	sum_take(&left, s);
	if (sum_none(&left) || sum_name(&left, c->chain, &k))
		return INVENTORY_LOST;
	if (!cell->guessed && (cell->lost.n == 2 || sum_name(&cell->lost, c->chain, &k)))
		return INVENTORY_NONE;
	return s->ino <= cell->upto ? INVENTORY_UNSURE : INVENTORY_NONE;
}

/* Subtracts a chunk from the lost ones of its cell. */
static void found_again(struct inventory_chain *c, struct inventory_cell *cell,
			const struct inventory_sum *s)
{
	struct inventory_sum left = cell->lost;
	struct chunk_key k;

	sum_take(&left, s);
	set_lost(c, cell, &left, !sum_none(&left) && !sum_name(&left, c->chain, &k));
}

void inventory_add(struct chunk_inventory *l, const struct chunk_key *k, struct kv_batch *b)
{
	struct inventory_chain *c = chain_find(l, k->chain);
	struct inventory_sum s = sum_of(k);
	uint32_t i = cell_of(&s);

	ASSERT(c);
	inventory_put_name(k, b);
	raise_top(&c->cells[i], &s);
	/* Writes to an uncertain chunk fail, so a new row means that the chunk was restored. */
	if (!row_gone(&c->cells[i]) && cell_answer(c, &c->cells[i], &s) != INVENTORY_NONE)
		found_again(c, &c->cells[i], &s); /* kept counts it already */
	else
		sum_add(&c->cells[i].kept, &s);
	put_cell(c, i, b);
}

void inventory_remove(struct chunk_inventory *l, const struct chunk_key *k, struct kv_batch *b)
{
	struct inventory_chain *c = chain_find(l, k->chain);
	struct inventory_sum s = sum_of(k);
	uint32_t i = cell_of(&s);

	ASSERT(c);
	delete_name(k, b);
	sum_take(&c->cells[i].kept, &s);
	put_cell(c, i, b);
}

void inventory_forget(struct chunk_inventory *l, const struct chunk_key *k, struct kv_batch *b)
{
	struct inventory_chain *c = chain_find(l, k->chain);
	struct inventory_sum s = sum_of(k);
	struct inventory_cell *cell = c ? &c->cells[cell_of(&s)] : NULL;

	if (!c || cell_answer(c, cell, &s) != INVENTORY_LOST)
		return;
	found_again(c, cell, &s);
	inventory_remove(l, k, b);
}

void inventory_trust(struct chunk_inventory *l, uint32_t chain, struct kv_batch *b)
{
	struct inventory_chain *c = chain_find(l, chain);

	for (uint32_t i = 0; c && c->n_uncertain && i < INVENTORY_CELLS; i++)
		if (!sum_none(&c->cells[i].lost))
			trust_cell(c, i, b);
}

uint64_t inventory_trust_gone(struct chunk_inventory *l, uint32_t chain, struct kv_batch *b)
{
	struct inventory_chain *c = chain_find(l, chain);
	uint64_t more = 0;

	for (uint32_t i = 0; c && c->n_uncertain && i < INVENTORY_CELLS; i++) {
		if (!row_gone(&c->cells[i]))
			continue;
		more += c->cells[i].lost.n ? -c->cells[i].lost.n : 1;
		trust_cell(c, i, b);
	}
	return more;
}

/* ---- queries ---- */

enum inventory_answer inventory_has(const struct chunk_inventory *l, const struct chunk_key *k)
{
	const struct inventory_chain *c = chain_find(l, k->chain);
	struct inventory_sum s;

	if (!c || !c->n_uncertain)
		return INVENTORY_NONE;
	s = sum_of(k);
	return cell_answer(c, &c->cells[cell_of(&s)], &s);
}

enum inventory_answer inventory_range(const struct chunk_inventory *l,
				      const struct chunk_key *first, const struct chunk_key *last,
				      struct chunk_key *ret_key)
{
	const struct inventory_chain *c = chain_find(l, first->chain);
	enum inventory_answer answer = INVENTORY_NONE;
	bool is_uncertain = false;

	for (uint32_t i = 0; c && c->n_uncertain && i < INVENTORY_CELLS; i++) {
		const struct inventory_cell *cell = &c->cells[i];
		struct chunk_key k;

		if (sum_none(&cell->lost))
			continue;
		if (row_gone(cell)) {
			is_uncertain |= !c->whole;
		} else if (!sum_name(&cell->lost, first->chain, &k)) {
			is_uncertain |= first->ino.v <= cell->upto;
		} else if (chunk_key_compare(first, &k) <= 0 && chunk_key_compare(&k, last) <= 0 &&
			   (answer == INVENTORY_NONE || chunk_key_compare(&k, ret_key) < 0)) {
			*ret_key = k;
			answer = INVENTORY_LOST;
		}
	}
	return answer == INVENTORY_NONE && is_uncertain ? INVENTORY_UNSURE : answer;
}

bool inventory_is_uncertain(const struct chunk_inventory *l, uint32_t chain)
{
	const struct inventory_chain *c = chain_find(l, chain);

	return c && (c->n_uncertain || c->n_marked);
}

void inventory_marked(struct chunk_inventory *l, uint32_t chain, int by)
{
	struct inventory_chain *c = chain_find(l, chain);

	if (c)
		c->n_marked += (uint32_t)by;
}

uint32_t inventory_mark_lost(struct chunk_inventory *l,
			     void (*each)(void *arg, const struct chunk_key *k), void *arg)
{
	uint32_t n = 0;

	for (struct hmap_node *node = hmap_next(&l->chains, NULL); node;
	     node = hmap_next(&l->chains, node)) {
		struct inventory_chain *c = container_of(node, struct inventory_chain, node);

		for (uint32_t i = 0; c->n_uncertain && i < INVENTORY_CELLS; i++) {
			struct chunk_key k;

			if (!sum_name(&c->cells[i].lost, c->chain, &k))
				continue;
			each(arg, &k);
			set_lost(c, &c->cells[i], &(struct inventory_sum){0}, false);
			c->n_marked++;
			n++;
		}
	}
	return n;
}

void inventory_set_whole(struct chunk_inventory *l, uint32_t chain, bool whole)
{
	struct inventory_chain *c = chain_find(l, chain);

	if (c)
		c->whole = whole;
}

bool inventory_whole(const struct chunk_inventory *l, uint32_t chain)
{
	const struct inventory_chain *c = chain_find(l, chain);

	return c && c->whole;
}

void inventory_each_lost(const struct chunk_inventory *l,
			 void (*each)(void *arg, const struct chunk_key *k), void *arg)
{
	for (struct hmap_node *n = hmap_next(&l->chains, NULL); n; n = hmap_next(&l->chains, n)) {
		const struct inventory_chain *c = container_of(n, struct inventory_chain, node);

		for (uint32_t i = 0; c->n_uncertain && i < INVENTORY_CELLS; i++) {
			struct chunk_key k;

			if (sum_name(&c->cells[i].lost, c->chain, &k))
				each(arg, &k);
		}
	}
}
