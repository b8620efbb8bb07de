#include "ossd/chunk/ledger.h"

#include <stdlib.h>

#include "common/base/checksum.h"
#include "common/base/fault.h"
#include "common/proto/wire.h"

#define LEDGER_VALUE_SIZE 69u
#define FEW_CELLS         4u /* see OSS_FEW_CELLS */

/* ---- sums ---- */

static struct ledger_sum sum_of(const struct chunk_key *k)
{
	uint8_t row[CHUNK_ROW_SIZE];

	chunk_row_encode(ROW_CHUNK, k, row);
	return (struct ledger_sum){1, checksum64(row, sizeof(row)), k->ino.v, k->idx, k->gen};
}

static uint32_t cell_of(const struct ledger_sum *s)
{
	return (uint32_t)(s->hash % (FAULT(OSS_FEW_CELLS) ? FEW_CELLS : LEDGER_CELLS));
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

static void put_sum(struct wire_w *w, const struct ledger_sum *s)
{
	wire_put_u64(w, &s->n);
	wire_put_u64(w, &s->hash);
	wire_put_u64(w, &s->ino);
	wire_put_u64(w, &s->idx);
	wire_put_u32(w, &s->gen);
}

static void get_sum(struct wire_r *r, struct ledger_sum *ret)
{
	wire_get_u64(r, &ret->n);
	wire_get_u64(r, &ret->hash);
	wire_get_u64(r, &ret->ino);
	wire_get_u64(r, &ret->idx);
	wire_get_u32(r, &ret->gen);
}

static void put_cell(const struct ledger_chain *c, uint32_t cell, struct kv_batch *b)
{
	const struct ledger_cell *e = &c->cells[cell];
	uint8_t key[LEDGER_ROW_SIZE], value[LEDGER_VALUE_SIZE], guessed = e->guessed;
	struct wire_w w;

	ledger_row_encode(c->chain, (uint8_t)cell, key);
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

static int cell_decode(const void *value, size_t len, struct ledger_cell *ret)
{
	struct ledger_cell e = {0};
	struct wire_r r;
	uint8_t guessed;

	if (len != LEDGER_VALUE_SIZE)
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
	return cell_decode(value, len, &c->cells[cell]);
}

static void raise_top(struct ledger_cell *cell, const struct ledger_sum *s)
{
	if (s->ino > cell->top)
		cell->top = s->ino;
}

int ledger_found(struct ledger *l, const struct chunk_key *k)
{
	struct ledger_sum s = sum_of(k);
	struct ledger_chain *c = chain_get(l, k->chain);

	if (!c)
		return -LE_NOMEM;
	sum_take(&c->cells[cell_of(&s)].lost, &s);
	raise_top(&c->cells[cell_of(&s)], &s);
	return 0;
}

static void set_lost(struct ledger_chain *c, struct ledger_cell *cell,
		     const struct ledger_sum *lost, bool guessed)
{
	c->n_doubtful += !sum_none(lost);
	c->n_doubtful -= !sum_none(&cell->lost);
	cell->lost = *lost;
	cell->guessed = guessed;
}

/* What is there is all there must be. */
static void trust_cell(struct ledger_chain *c, uint32_t cell, struct kv_batch *b)
{
	sum_take(&c->cells[cell].kept, &c->cells[cell].lost);
	set_lost(c, &c->cells[cell], &(struct ledger_sum){0}, false);
	put_cell(c, cell, b);
}

uint64_t ledger_loaded(struct ledger *l, struct kv_batch *b)
{
	uint64_t lost = 0;

	for (struct hmap_node *n = hmap_next(&l->chains, NULL); n; n = hmap_next(&l->chains, n)) {
		struct ledger_chain *c = container_of(n, struct ledger_chain, node);

		for (uint32_t i = 0; i < LEDGER_CELLS; i++) {
			const struct ledger_sum *s = &c->cells[i].lost;

			c->n_doubtful += !sum_none(s);
			if (!sum_none(s) && !l->began)
				trust_cell(c, i, b);
			else if (!sum_none(s))
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
	struct ledger_sum s = sum_of(k);

	return c && c->n_doubtful && !sum_none(&c->cells[cell_of(&s)].lost);
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
	lost = &c->cells[cell_of(&s)].lost;
	ASSERT(c->n_doubtful && !sum_none(lost));
	sum_take(lost, &s);
	c->n_doubtful -= sum_none(lost);
	c->n_marked++;
}

/* ---- doubts ---- */

/* The row of the cell is gone, or wrong: there is more than it knows of. */
static bool row_gone(const struct ledger_cell *cell)
{
	return !cell->guessed && !sum_none(&cell->lost) && (int64_t)cell->lost.n <= 0;
}

void ledger_begin_doubts(struct ledger *l, struct kv_batch *b)
{
	for (struct hmap_node *n = hmap_next(&l->chains, NULL); n; n = hmap_next(&l->chains, n)) {
		struct ledger_chain *c = container_of(n, struct ledger_chain, node);

		for (uint32_t i = 0; i < LEDGER_CELLS; i++) {
			struct ledger_cell *cell = &c->cells[i];
			const struct ledger_sum *s = &cell->lost;

			if (!sum_none(s) && FAULT(OSS_SKIP_DOUBTS))
				trust_cell(c, i, b);
			if (s->n == cell->noted_n && s->hash == cell->noted_hash)
				continue;
			cell->upto = cell->top;
			cell->guessed &= !sum_none(s);
			put_cell(c, i, b);
		}
	}
}

void ledger_each_doubt(const struct ledger *l,
		       void (*each)(void *arg, const struct ledger_doubt *d), void *arg)
{
	for (struct hmap_node *n = hmap_next(&l->chains, NULL); n; n = hmap_next(&l->chains, n)) {
		const struct ledger_chain *c = container_of(n, struct ledger_chain, node);
		struct ledger_doubt d = {.chain = c->chain};

		for (uint32_t i = 0; c->n_doubtful && i < LEDGER_CELLS; i++) {
			const struct ledger_cell *cell = &c->cells[i];
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

uint32_t ledger_put_doubts(const struct ledger *l, uint32_t chain, uint8_t buf[LEDGER_DOUBTS_MAX])
{
	const struct ledger_chain *c = chain_find(l, chain);
	struct wire_w w;

	wire_w_init(&w, buf, LEDGER_DOUBTS_MAX);
	for (uint32_t i = 0; c && c->n_doubtful && i < LEDGER_CELLS; i++) {
		const struct ledger_cell *cell = &c->cells[i];
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

struct doubt {
	uint8_t cell, guessed;
	struct ledger_sum lost;
	uint64_t upto;
};

/* In the order of the cells, each once. */
static int get_doubt(struct wire_r *r, struct doubt *ret)
{
	wire_get_u8(r, &ret->cell);
	get_sum(r, &ret->lost);
	wire_get_u64(r, &ret->upto);
	wire_get_u8(r, &ret->guessed);
	if (r->status < 0 || ret->cell >= LEDGER_CELLS || ret->guessed > 1 || sum_none(&ret->lost))
		return -LE_BAD_MESSAGE;
	return 0;
}

int ledger_take_doubts(struct ledger *l, uint32_t chain, struct bytes in, struct kv_batch *b)
{
	struct ledger_chain *c = chain_get(l, chain);
	struct doubt d;
	struct wire_r r;
	int last = -1;

	if (!c)
		return -LE_NOMEM;
	if (in.len % LEDGER_DOUBT_SIZE)
		return -LE_BAD_MESSAGE;
	for (wire_r_init(&r, in.data, in.len); !wire_r_end(&r); last = d.cell) {
		TRY(get_doubt(&r, &d));
		if (d.cell <= last)
			return -LE_BAD_MESSAGE;
	}
	ledger_trust(l, chain, b);
	for (wire_r_init(&r, in.data, in.len); !wire_r_end(&r);) {
		struct ledger_cell *cell;

		TRY(get_doubt(&r, &d));
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

int ledger_need(struct ledger *l, uint32_t chain)
{
	return chain_get(l, chain) ? 0 : -LE_NOMEM;
}

/* What the cell says of a chunk that has no row. */
static enum ledger_answer cell_answer(const struct ledger_chain *c, const struct ledger_cell *cell,
				      const struct ledger_sum *s)
{
	struct ledger_sum left = cell->lost;
	struct chunk_key k;

	if (sum_none(&left))
		return LEDGER_NONE;
	/* It cannot tell, but who is away may know. */
	if (row_gone(cell))
		return c->whole ? LEDGER_NONE : LEDGER_UNSURE;
	sum_take(&left, s);
	if (sum_none(&left) || sum_name(&left, c->chain, &k))
		return LEDGER_LOST;
	if (!cell->guessed && (cell->lost.n == 2 || sum_name(&cell->lost, c->chain, &k)))
		return LEDGER_NONE;
	return s->ino <= cell->upto ? LEDGER_UNSURE : LEDGER_NONE;
}

/* It is one of those that the cell has lost, and is none any more. */
static void found_again(struct ledger_chain *c, struct ledger_cell *cell,
			const struct ledger_sum *s)
{
	struct ledger_sum left = cell->lost;
	struct chunk_key k;

	sum_take(&left, s);
	set_lost(c, cell, &left, !sum_none(&left) && !sum_name(&left, c->chain, &k));
}

void ledger_add(struct ledger *l, const struct chunk_key *k, struct kv_batch *b)
{
	struct ledger_chain *c = chain_find(l, k->chain);
	struct ledger_sum s = sum_of(k);
	uint32_t i = cell_of(&s);

	ASSERT(c);
	ledger_put_name(k, b);
	raise_top(&c->cells[i], &s);
	/* What is in doubt nobody makes anew: it has come back. */
	if (!row_gone(&c->cells[i]) && cell_answer(c, &c->cells[i], &s) != LEDGER_NONE)
		found_again(c, &c->cells[i], &s); /* it is counted */
	else
		sum_add(&c->cells[i].kept, &s);
	put_cell(c, i, b);
}

void ledger_remove(struct ledger *l, const struct chunk_key *k, struct kv_batch *b)
{
	struct ledger_chain *c = chain_find(l, k->chain);
	struct ledger_sum s = sum_of(k);
	uint32_t i = cell_of(&s);

	ASSERT(c);
	delete_name(k, b);
	sum_take(&c->cells[i].kept, &s);
	put_cell(c, i, b);
}

void ledger_forget(struct ledger *l, const struct chunk_key *k, struct kv_batch *b)
{
	struct ledger_chain *c = chain_find(l, k->chain);
	struct ledger_sum s = sum_of(k);
	struct ledger_cell *cell = c ? &c->cells[cell_of(&s)] : NULL;

	if (!c || cell_answer(c, cell, &s) != LEDGER_LOST)
		return;
	found_again(c, cell, &s);
	ledger_remove(l, k, b);
}

void ledger_trust(struct ledger *l, uint32_t chain, struct kv_batch *b)
{
	struct ledger_chain *c = chain_find(l, chain);

	for (uint32_t i = 0; c && c->n_doubtful && i < LEDGER_CELLS; i++)
		if (!sum_none(&c->cells[i].lost))
			trust_cell(c, i, b);
}

uint64_t ledger_trust_gone(struct ledger *l, uint32_t chain, struct kv_batch *b)
{
	struct ledger_chain *c = chain_find(l, chain);
	uint64_t more = 0;

	for (uint32_t i = 0; c && c->n_doubtful && i < LEDGER_CELLS; i++) {
		if (!row_gone(&c->cells[i]))
			continue;
		more += c->cells[i].lost.n ? -c->cells[i].lost.n : 1;
		trust_cell(c, i, b);
	}
	return more;
}

/* ---- questions ---- */

enum ledger_answer ledger_has(const struct ledger *l, const struct chunk_key *k)
{
	const struct ledger_chain *c = chain_find(l, k->chain);
	struct ledger_sum s;

	if (!c || !c->n_doubtful)
		return LEDGER_NONE;
	s = sum_of(k);
	return cell_answer(c, &c->cells[cell_of(&s)], &s);
}

enum ledger_answer ledger_range(const struct ledger *l, const struct chunk_key *first,
				const struct chunk_key *last, struct chunk_key *ret_key)
{
	const struct ledger_chain *c = chain_find(l, first->chain);
	enum ledger_answer answer = LEDGER_NONE;
	bool unsure = false;

	for (uint32_t i = 0; c && c->n_doubtful && i < LEDGER_CELLS; i++) {
		const struct ledger_cell *cell = &c->cells[i];
		struct chunk_key k;

		if (sum_none(&cell->lost))
			continue;
		if (row_gone(cell)) {
			unsure |= !c->whole;
		} else if (!sum_name(&cell->lost, first->chain, &k)) {
			unsure |= first->ino.v <= cell->upto;
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
			set_lost(c, &c->cells[i], &(struct ledger_sum){0}, false);
			c->n_marked++;
			n++;
		}
	}
	return n;
}

void ledger_set_whole(struct ledger *l, uint32_t chain, bool whole)
{
	struct ledger_chain *c = chain_find(l, chain);

	if (c)
		c->whole = whole;
}

bool ledger_whole(const struct ledger *l, uint32_t chain)
{
	const struct ledger_chain *c = chain_find(l, chain);

	return c && c->whole;
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
