/* SPDX-License-Identifier: Apache-2.0 */
/* See linear.h. */
#include "tests/sim/linear.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/hmap.h"

#define STEPS_MAX 20000000u

static void *grow(void *list, size_t n, size_t *space, size_t size)
{
	if (n < *space)
		return list;
	*space = *space != 0 ? *space * 2 : 256;
	list = realloc(list, *space * size);
	ASSERT(list != NULL);
	return list;
}

/* ---- registers ---- */

size_t reg_begin(struct reg_history *h, uint32_t reg, uint32_t client, uint64_t write_value,
		 uint64_t at)
{
	h->ops = grow(h->ops, h->n, &h->space, sizeof(*h->ops));
	h->ops[h->n] = (struct reg_op){
		.reg = reg,
		.client = client,
		.write = write_value != 0,
		.value = write_value,
		.begin = at,
		.end = LINEAR_NEVER,
	};
	return h->n++;
}

void reg_end(struct reg_history *h, size_t op, uint64_t value, uint64_t at)
{
	ASSERT(op < h->n && at > h->ops[op].begin);
	h->ops[op].end = at;
	if (!h->ops[op].write)
		h->ops[op].value = value;
}

void reg_lose(struct reg_history *h, uint32_t client, uint32_t first, uint32_t n, uint64_t since)
{
	for (size_t i = 0; i < h->n; i++) {
		struct reg_op *o = &h->ops[i];

		if (o->write && o->client == client && o->reg >= first && o->reg < first + n &&
		    o->end > since)
			o->lost = true;
	}
}

void reg_free(struct reg_history *h)
{
	free(h->ops);
	*h = (struct reg_history){0};
}

/* By register, value, and the write before the reads. */
static int compare_ops(const void *a, const void *b)
{
	const struct reg_op *x = a, *y = b;

	if (x->reg != y->reg)
		return x->reg < y->reg ? -1 : 1;
	if (x->value != y->value)
		return x->value < y->value ? -1 : 1;
	if (x->write != y->write)
		return x->write ? -1 : 1;
	return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* A value was there at least from the first end of one of its operations to the last begin of one;
 * if that end is later than that begin, at some moment in between. */
struct zone {
	const struct reg_op *first, *last; /* operations with this end and this begin; NULL: the
					    * initial value */
	uint64_t value, lo, hi;
	bool forward;
};

static int compare_zones(const void *a, const void *b)
{
	const struct zone *x = a, *y = b;

	return x->lo < y->lo ? -1 : x->lo > y->lo;
}

static void tell(char why[LINEAR_WHY_SIZE], const char *what, const struct reg_op *a,
		 const struct reg_op *b)
{
	static const struct reg_op start = {.write = true};

	a = a != NULL ? a : &start;
	b = b != NULL ? b : &start;
	snprintf(why, LINEAR_WHY_SIZE,
		 "register %u: %s: %s %llu by client %u at %lld..%lld; %s %llu by client %u at "
		 "%lld..%lld",
		 b->reg, what, a->write ? "write" : "read", (unsigned long long)a->value, a->client,
		 (long long)a->begin, (long long)a->end, b->write ? "write" : "read",
		 (unsigned long long)b->value, b->client, (long long)b->begin, (long long)b->end);
}

/* Computes the zone of the n operations on one value, the write first. Returns false if they
 * contradict each other. */
static bool zone_of(const struct reg_op *ops, size_t n, struct zone *z, char why[LINEAR_WHY_SIZE])
{
	uint64_t end = 0, begin = 0;

	*z = (struct zone){.value = ops->value};
	if (ops->value != 0) {
		if (!ops->write) {
			tell(why, "nobody has written that", ops, ops);
			return false;
		}
		end = ops->end;
		begin = ops->begin;
		z->first = z->last = ops;
	}
	for (size_t i = 0; i < n; i++) {
		if (ops[i].write && i > 0) {
			tell(why, "one value written twice", &ops[0], &ops[i]);
			return false;
		}
		if (ops->value != 0 && ops[i].end < ops->begin) {
			tell(why, "read before it was written", &ops[i], ops);
			return false;
		}
		if (ops[i].end < end) {
			end = ops[i].end;
			z->first = &ops[i];
		}
		if (ops[i].begin > begin) {
			begin = ops[i].begin;
			z->last = &ops[i];
		}
	}
	z->forward = end < begin;
	z->lo = z->forward ? end : begin;
	z->hi = z->forward ? begin : end;
	return true;
}

/* Sorted by their lower ends: no forward zone may touch another one, nor hold a backward one. */
static bool zones_fit(const struct zone *z, size_t n, char why[LINEAR_WHY_SIZE])
{
	const struct zone *open = NULL; /* the forward zone that reaches furthest */

	for (size_t i = 0; i < n; i++) {
		if (open != NULL && z[i].lo < open->hi && (z[i].forward || z[i].hi < open->hi)) {
			tell(why,
			     z[i].forward ? "both were there before the other was gone"
					  : "came and went while another one stayed",
			     z[i].first, open->last);
			return false;
		}
		if (z[i].forward && (open == NULL || z[i].hi > open->hi))
			open = &z[i];
	}
	return true;
}

static bool check_register(const struct reg_op *ops, size_t n, char why[LINEAR_WHY_SIZE])
{
	struct zone *z = calloc(n + 1, sizeof(*z));
	size_t n_zones = 0;
	bool ok = true;

	ASSERT(z != NULL);
	for (size_t i = 0, k; i < n && ok; i = k) {
		for (k = i + 1; k < n && ops[k].value == ops[i].value; k++)
			continue;
		/* No reader has read the value, and the write has no reply. */
		if (k == i + 1 && ops[i].write && ops[i].end == LINEAR_NEVER)
			continue;
		/* A reader that has read it has read a value that was lost later. */
		if (ops[i].write && ops[i].lost)
			continue;
		ok = zone_of(ops + i, k - i, &z[n_zones], why);
		n_zones += ok;
	}
	qsort(z, n_zones, sizeof(*z), compare_zones);
	ok = ok && zones_fit(z, n_zones, why);
	free(z);
	return ok;
}

bool reg_check(struct reg_history *h, char why[LINEAR_WHY_SIZE])
{
	size_t n = 0;

	for (size_t i = 0; i < h->n; i++)
		if (h->ops[i].write || h->ops[i].end != LINEAR_NEVER)
			h->ops[n++] = h->ops[i];
	h->n = n;
	if (n > 0)
		qsort(h->ops, n, sizeof(*h->ops), compare_ops);
	for (size_t i = 0, k; i < n; i = k) {
		for (k = i + 1; k < n && h->ops[k].reg == h->ops[i].reg; k++)
			continue;
		if (!check_register(h->ops + i, k - i, why))
			return false;
	}
	return true;
}

/* ---- names ---- */

size_t name_begin(struct name_history *h, const struct name_op *op, uint64_t at)
{
	h->ops = grow(h->ops, h->n, &h->space, sizeof(*h->ops));
	h->ops[h->n] = *op;
	h->ops[h->n].begin = at;
	h->ops[h->n].end = LINEAR_NEVER;
	return h->n++;
}

void name_end(struct name_history *h, size_t op, bool ok, uint32_t tag, uint64_t at)
{
	ASSERT(op < h->n && at > h->ops[op].begin);
	h->ops[op].ok = ok;
	h->ops[op].end = at;
	if (h->ops[op].kind == NAME_LOOKUP)
		h->ops[op].tag = tag;
	if (h->ops[op].kind == NAME_LINK)
		h->ops[op].exists = tag != 0;
}

void name_void(struct name_history *h, size_t op, uint64_t at)
{
	ASSERT(op < h->n && at > h->ops[op].begin);
	h->ops[op].kind = NAME_NOTHING;
	h->ops[op].end = at;
}

void name_free(struct name_history *h)
{
	free(h->ops);
	*h = (struct name_history){0};
}

/* The state of the search: names, or one cell, whose value is the first tag. */
struct state {
	uint32_t tag[LINEAR_NAMES];
};

static bool has_name(const struct state *s, uint32_t tag)
{
	bool has = false;

	for (uint32_t i = 0; i < LINEAR_NAMES; i++)
		has |= s->tag[i] == tag;
	return has;
}

static bool step_link(const struct name_op *op, const struct state *from, struct state *to)
{
	bool there = from->tag[op->a] != 0, lives = has_name(from, op->tag);

	if (op->end != LINEAR_NEVER && op->ok != (lives && !there))
		return false;
	if (lives && !there)
		to->tag[op->a] = op->tag;
	else if (op->end != LINEAR_NEVER)
		return op->exists ? there : !lives;
	return true;
}

/* If the operation can end like this in this state, computes the state after it. */
static bool step_name(const void *vop, uint64_t now, const struct state *from, struct state *to)
{
	const struct name_op *op = vop;
	bool known = op->end != LINEAR_NEVER, there = from->tag[op->a] != 0;

	(void)now;
	*to = *from;
	switch (op->kind) {
	case NAME_CREATE:
		if (known && op->ok == there)
			return false;
		if (!there)
			to->tag[op->a] = op->tag;
		return true;
	case NAME_UNLINK:
		if (known && op->ok != there)
			return false;
		to->tag[op->a] = 0;
		return true;
	case NAME_LOOKUP:
		return !known || op->tag == from->tag[op->a];
	case NAME_RENAME:
		if (known && op->ok != there)
			return false;
		/* Two names of one file: POSIX has both stay. */
		if (there && from->tag[op->a] != from->tag[op->b]) {
			to->tag[op->b] = from->tag[op->a];
			to->tag[op->a] = 0;
		}
		return true;
	case NAME_LINK:
		return step_link(op, from, to);
	case NAME_NOTHING:
		return true;
	}
	return false;
}

/* A history to be searched: n operations of one size, with begin and end at these offsets. */
struct model {
	const void *ops;
	size_t n, size, times;
	/* now: the operation takes effect at this time or later. */
	bool (*step)(const void *op, uint64_t now, const struct state *from, struct state *to);
};

static const void *op_of(const struct model *m, size_t i)
{
	return (const char *)m->ops + i * m->size;
}

static uint64_t time_of(const struct model *m, size_t i, bool end)
{
	uint64_t times[2];

	memcpy(times, (const char *)op_of(m, i) + m->times, sizeof(times));
	return times[end];
}

/* A begin or an end, in order of time. Taken out of the list while its operation is in the order
 * that is being tried. */
struct event {
	uint64_t at;
	uint32_t op;
	bool is_begin;
	struct event *prev, *next, *other; /* other: the end of a begin; NULL: none */
};

struct tried {
	struct event *event;
	struct state before;
	uint64_t before_at;
};

struct seen {
	uint64_t key[2]; /* of the set of operations and the state: 128 bits of hash */
};

struct search {
	const struct model *m;
	struct event *events, head;
	struct tried *stack;
	size_t depth, n_left; /* n_left: operations with an end that are not in the order yet */
	struct state state;
	uint64_t at;     /* the last begin in the order */
	uint64_t set[2]; /* hash of the set of operations in the order */
	struct seen *seen;
	size_t n_seen, seen_room;
	uint64_t steps;
	size_t best_depth;
	uint32_t stuck_op; /* where the longest order could not be continued */
};

static int compare_events(const void *a, const void *b)
{
	const struct event *x = a, *y = b;

	return x->at < y->at ? -1 : x->at > y->at;
}

static uint64_t op_hash(uint32_t op, uint32_t half)
{
	return hash_u64_2(op + 1, 0x9e3779b97f4a7c15ull + half);
}

static void lift(struct search *s, struct event *e)
{
	e->prev->next = e->next;
	if (e->next != NULL)
		e->next->prev = e->prev;
	if (e->other != NULL) {
		e->other->prev->next = e->other->next;
		if (e->other->next != NULL)
			e->other->next->prev = e->other->prev;
		s->n_left--;
	}
	s->set[0] ^= op_hash(e->op, 0);
	s->set[1] ^= op_hash(e->op, 1);
}

static void unlift(struct search *s, struct event *e)
{
	if (e->other != NULL) {
		e->other->prev->next = e->other;
		if (e->other->next != NULL)
			e->other->next->prev = e->other;
		s->n_left++;
	}
	e->prev->next = e;
	if (e->next != NULL)
		e->next->prev = e;
	s->set[0] ^= op_hash(e->op, 0);
	s->set[1] ^= op_hash(e->op, 1);
}

static void seen_put(struct seen *table, size_t space, const struct seen *k)
{
	size_t i = k->key[0] & (space - 1);

	while (table[i].key[0] != 0 || table[i].key[1] != 0)
		i = (i + 1) & (space - 1);
	table[i] = *k;
}

static void seen_grow(struct search *s)
{
	size_t space = s->seen_room != 0 ? s->seen_room * 2 : 1024;
	struct seen *table = calloc(space, sizeof(*table));

	ASSERT(table != NULL);
	for (size_t i = 0; i < s->seen_room; i++)
		if (s->seen[i].key[0] != 0 || s->seen[i].key[1] != 0)
			seen_put(table, space, &s->seen[i]);
	free(s->seen);
	s->seen = table;
	s->seen_room = space;
}

/* Whether these operations in another order, with an equal resulting state, have been tried
 * already. */
static bool seen_before(struct search *s, uint32_t op, const struct state *state)
{
	uint64_t a = hash_u64_2((uint64_t)state->tag[0] << 32 | state->tag[1], 1);
	uint64_t b = hash_u64_2((uint64_t)state->tag[2] << 32 | state->tag[3], 2);
	struct seen k = {{s->set[0] ^ op_hash(op, 0), s->set[1] ^ op_hash(op, 1)}};

	k.key[0] = hash_u64_2(k.key[0] ^ a, b) | 1;
	k.key[1] = hash_u64_2(k.key[1] ^ b, a + 3);
	if (2 * s->n_seen >= s->seen_room)
		seen_grow(s);
	for (size_t i = k.key[0] & (s->seen_room - 1);; i = (i + 1) & (s->seen_room - 1)) {
		if (s->seen[i].key[0] == k.key[0] && s->seen[i].key[1] == k.key[1])
			return true;
		if (s->seen[i].key[0] == 0 && s->seen[i].key[1] == 0)
			break;
	}
	seen_put(s->seen, s->seen_room, &k);
	s->n_seen++;
	return false;
}

static void make_list(struct search *s)
{
	const struct model *m = s->m;
	struct event **begin = calloc(m->n, sizeof(struct event *));
	size_t n = 0;

	ASSERT(begin != NULL || m->n == 0);
	for (size_t i = 0; i < m->n; i++) {
		uint64_t end = time_of(m, i, true);

		s->events[n] = (struct event){.at = time_of(m, i, false), .op = (uint32_t)i};
		s->events[n++].is_begin = true;
		if (end != LINEAR_NEVER) {
			s->events[n++] = (struct event){.at = end, .op = (uint32_t)i};
			s->n_left++;
		}
	}
	qsort(s->events, n, sizeof(*s->events), compare_events);
	struct event *last = &s->head;
	for (size_t i = 0; i < n; i++) {
		struct event *e = &s->events[i];

		last->next = e;
		e->prev = last;
		last = e;
		if (e->is_begin)
			begin[e->op] = e;
		else
			begin[e->op]->other = e;
	}
	free(begin);
}

/* Returns 1 if there is an order, 0 if there is none, -1 at the bound. */
static int search_run(struct search *s)
{
	struct event *e = s->head.next;
	struct state next;

	while (s->n_left > 0) {
		if (++s->steps > STEPS_MAX)
			return -1;
		if (e != NULL && e->is_begin) {
			if (s->m->step(op_of(s->m, e->op), s->at, &s->state, &next) &&
			    !seen_before(s, e->op, &next)) {
				s->stack[s->depth++] = (struct tried){e, s->state, s->at};
				s->state = next;
				s->at = e->at > s->at ? e->at : s->at;
				lift(s, e);
				e = s->head.next;
			} else {
				e = e->next;
			}
			continue;
		}
		/* The reply of an operation does not follow from this order. */
		if (s->depth >= s->best_depth && e != NULL) {
			s->best_depth = s->depth;
			s->stuck_op = e->op;
		}
		if (s->depth == 0)
			return 0;
		s->depth--;
		e = s->stack[s->depth].event;
		s->state = s->stack[s->depth].before;
		s->at = s->stack[s->depth].before_at;
		unlift(s, e);
		e = e->next;
	}
	return 1;
}

/* Not possible, or not decided: *ret_stuck is the operation that could not follow the longest
 * order, of *ret_depth operations. */
static enum names_verdict search(const struct model *m, const struct state *start,
				 uint32_t *ret_stuck, size_t *ret_depth)
{
	struct search s = {.m = m, .state = *start};
	int rc;

	s.events = calloc(2 * m->n + 1, sizeof(*s.events));
	s.stack = calloc(m->n + 1, sizeof(*s.stack));
	ASSERT(s.events != NULL && s.stack != NULL);
	make_list(&s);
	rc = search_run(&s);
	*ret_stuck = s.stuck_op;
	*ret_depth = s.best_depth;
	free(s.events);
	free(s.stack);
	free(s.seen);
	return rc < 0 ? NAMES_NOT_DECIDED : rc == 1 ? NAMES_POSSIBLE : NAMES_IMPOSSIBLE;
}

enum names_verdict name_check(const struct name_history *h, char why[LINEAR_WHY_SIZE])
{
	static const char *const kinds[] = {"create", "unlink", "lookup",
					    "rename", "link",   "nothing"};
	struct model m = {h->ops, h->n, sizeof(*h->ops), offsetof(struct name_op, begin),
			  step_name};
	size_t depth;
	uint32_t stuck;
	enum names_verdict v = search(&m, &(struct state){{0}}, &stuck, &depth);

	if (v != NAMES_POSSIBLE) {
		const struct name_op *op = &h->ops[stuck];

		snprintf(why, LINEAR_WHY_SIZE,
			 "%s: %s %u %u by client %u at %lld..%lld: %s, tag %u; the longest order "
			 "has %zu of %zu operations",
			 v == NAMES_NOT_DECIDED ? "not decided" : "no order explains",
			 kinds[op->kind], op->a, op->b, op->client, (long long)op->begin,
			 (long long)op->end, op->ok ? "yes" : "no", op->tag, depth, h->n);
	}
	return v;
}

/* ---- cells ---- */

size_t cell_begin(struct cell_history *h, const struct cell_op *op, uint64_t at)
{
	h->ops = grow(h->ops, h->n, &h->space, sizeof(*h->ops));
	h->ops[h->n] = *op;
	h->ops[h->n].begin = at;
	h->ops[h->n].end = LINEAR_NEVER;
	if (op->until == 0)
		h->ops[h->n].until = LINEAR_NEVER;
	return h->n++;
}

static bool tells(enum cell_kind kind)
{
	return kind == CELL_READ || kind == CELL_LOOK;
}

/* The client may have shown the lost write to its own programs, and it died with the client. */
static void void_own(struct cell_history *h, const struct cell_op *lost)
{
	for (size_t i = 0; i < h->n; i++) {
		struct cell_op *op = &h->ops[i];

		if (tells(op->kind) && op->client == lost->client && op->cell == lost->cell &&
		    op->end != LINEAR_NEVER && op->end > lost->begin) {
			op->end = LINEAR_NEVER;
			op->until = lost->until;
		}
	}
}

void cell_over(struct cell_history *h, uint32_t client, uint64_t at)
{
	for (size_t i = 0; i < h->n; i++) {
		struct cell_op *op = &h->ops[i];

		if (op->client != client || op->end != LINEAR_NEVER || op->until != LINEAR_NEVER)
			continue;
		op->until = at;
		if (!tells(op->kind))
			void_own(h, op);
	}
}

void cell_done(struct cell_history *h, size_t op, uint64_t at)
{
	ASSERT(op < h->n && at > h->ops[op].begin);
	h->ops[op].end = at;
}

void cell_saw(struct cell_history *h, size_t op, uint32_t value, uint64_t at)
{
	cell_done(h, op, at);
	h->ops[op].value = value;
}

void cell_free(struct cell_history *h)
{
	free(h->ops);
	*h = (struct cell_history){0};
}

static bool step_cell(const void *vop, uint64_t now, const struct state *from, struct state *to)
{
	const struct cell_op *op = vop;
	bool absent = from->tag[0] == CELL_ABSENT;

	*to = *from;
	if (now > op->until)
		return false;
	switch (op->kind) {
	case CELL_WRITE:
		to->tag[0] = op->value;
		return true;
	case CELL_READ:
		return op->value == from->tag[0] ||
		       (op->value == CELL_EMPTY && (absent || from->tag[0] == 0));
	case CELL_LOOK:
		return (op->value != 0) != absent;
	case CELL_CUT:
		to->tag[0] = CELL_ABSENT;
		return true;
	case CELL_STAYS:
		if (!absent)
			return false;
		/* fall through */
	case CELL_EXTEND:
		to->tag[0] = absent ? 0 : from->tag[0];
		return true;
	}
	return false;
}

static int compare_cells(const void *a, const void *b)
{
	const struct cell_op *x = a, *y = b;

	if (x->cell != y->cell)
		return x->cell < y->cell ? -1 : 1;
	return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static enum names_verdict check_cell(const struct cell_op *ops, size_t n, char why[LINEAR_WHY_SIZE])
{
	static const char *const kinds[] = {"write", "read", "look", "cut", "extend", "stays"};
	struct model m = {ops, n, sizeof(*ops), offsetof(struct cell_op, begin), step_cell};
	size_t depth;
	uint32_t stuck;
	enum names_verdict v = search(&m, &(struct state){{CELL_ABSENT}}, &stuck, &depth);

	if (v != NAMES_POSSIBLE)
		snprintf(why, LINEAR_WHY_SIZE,
			 "cell %u: %s: %s %lld by client %u at %lld..%lld; the longest order has "
			 "%zu of %zu operations",
			 ops->cell, v == NAMES_NOT_DECIDED ? "not decided" : "no order explains",
			 kinds[ops[stuck].kind],
			 ops[stuck].value == CELL_ABSENT ? -1ll : (long long)ops[stuck].value,
			 ops[stuck].client, (long long)ops[stuck].begin, (long long)ops[stuck].end,
			 depth, n);
	return v;
}

static uint64_t over_at(const struct cell_op *op)
{
	return op->end < op->until ? op->end : op->until;
}

/* Has a write after the cell overlapped the truncation? Then it may extend the file once more. */
static bool meets_write(const struct cell_history *h, size_t n, const struct cell_op *cut)
{
	for (size_t i = 0; i < n; i++) {
		const struct cell_op *op = &h->ops[i];

		if (op->kind == CELL_EXTEND && op->value != 0 && op->cell == cut->cell &&
		    op->begin < over_at(cut) && over_at(op) > cut->begin)
			return true;
	}
	return false;
}

static void add_stays(struct cell_history *h)
{
	size_t n = h->n;

	for (size_t i = 0; i < n; i++) {
		struct cell_op op = h->ops[i];

		if (op.kind != CELL_CUT || !meets_write(h, n, &op))
			continue;
		op.kind = CELL_STAYS;
		op.until = over_at(&op);
		cell_begin(h, &op, op.begin);
	}
}

enum names_verdict cell_check(struct cell_history *h, char why[LINEAR_WHY_SIZE])
{
	enum names_verdict worst = NAMES_POSSIBLE;
	size_t n = 0;

	add_stays(h);

	/* A read without a reply proves nothing. */
	for (size_t i = 0; i < h->n; i++)
		if ((h->ops[i].kind != CELL_READ && h->ops[i].kind != CELL_LOOK) ||
		    h->ops[i].end != LINEAR_NEVER)
			h->ops[n++] = h->ops[i];
	h->n = n;
	if (n > 0)
		qsort(h->ops, n, sizeof(*h->ops), compare_cells);
	for (size_t i = 0, k; i < n; i = k) {
		enum names_verdict v;

		for (k = i + 1; k < n && h->ops[k].cell == h->ops[i].cell; k++)
			continue;
		v = check_cell(h->ops + i, k - i, why);
		if (v == NAMES_IMPOSSIBLE)
			return v;
		if (v == NAMES_NOT_DECIDED)
			worst = v;
	}
	return worst;
}
