/* See linear.h. */
#include "tests/sim/linear.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/hmap.h"

#define STEPS_MAX 20000000u

static void *grow(void *list, size_t n, size_t *room, size_t size)
{
	if (n < *room)
		return list;
	*room = *room != 0 ? *room * 2 : 256;
	list = realloc(list, *room * size);
	ASSERT(list != NULL);
	return list;
}

/* ---- registers ---- */

size_t reg_begin(struct reg_history *h, uint32_t reg, uint32_t client, uint64_t write_value,
		 uint64_t at)
{
	h->ops = grow(h->ops, h->n, &h->room, sizeof(*h->ops));
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
 * if that is the wrong way round, at some moment in between. */
struct zone {
	const struct reg_op *first, *last; /* whose end and begin these are; NULL: the beginning */
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

/* The zone of the n operations on one value, the write first; false: they contradict each other. */
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
		/* Nobody has seen it and nobody was told that it is there. */
		if (k == i + 1 && ops[i].write && ops[i].end == LINEAR_NEVER)
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
	h->ops = grow(h->ops, h->n, &h->room, sizeof(*h->ops));
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

void name_free(struct name_history *h)
{
	free(h->ops);
	*h = (struct name_history){0};
}

struct names {
	uint32_t tag[LINEAR_NAMES];
};

static bool has_name(const struct names *s, uint32_t tag)
{
	bool has = false;

	for (uint32_t i = 0; i < LINEAR_NAMES; i++)
		has |= s->tag[i] == tag;
	return has;
}

static bool step_link(const struct name_op *op, const struct names *from, struct names *to)
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

/* Could the operation end like this in this state? Then what comes after it. */
static bool step(const struct name_op *op, const struct names *from, struct names *to)
{
	bool known = op->end != LINEAR_NEVER, there = from->tag[op->a] != 0;

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
	}
	return false;
}

/* A begin or an end, in order of time. Lifted out of the list while its operation is in the order
 * that is being tried. */
struct event {
	uint64_t at;
	uint32_t op;
	bool is_begin;
	struct event *prev, *next, *other; /* other: the end of a begin; NULL: none */
};

struct tried {
	struct event *event;
	struct names before;
};

struct seen {
	uint64_t key[2]; /* of the set of operations and the state: 128 bits of hash */
};

struct search {
	const struct name_history *h;
	struct event *events, head;
	struct tried *stack;
	size_t depth, n_left; /* n_left: operations with an end that are not in the order yet */
	struct names state;
	uint64_t set[2]; /* hash of the set of operations in the order */
	struct seen *seen;
	size_t n_seen, seen_room;
	uint64_t steps;
	size_t best_depth;
	uint32_t stuck_op; /* where the longest order could not go on */
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

static void seen_put(struct seen *table, size_t room, const struct seen *k)
{
	size_t i = k->key[0] & (room - 1);

	while (table[i].key[0] != 0 || table[i].key[1] != 0)
		i = (i + 1) & (room - 1);
	table[i] = *k;
}

static void seen_grow(struct search *s)
{
	size_t room = s->seen_room != 0 ? s->seen_room * 2 : 1024;
	struct seen *table = calloc(room, sizeof(*table));

	ASSERT(table != NULL);
	for (size_t i = 0; i < s->seen_room; i++)
		if (s->seen[i].key[0] != 0 || s->seen[i].key[1] != 0)
			seen_put(table, room, &s->seen[i]);
	free(s->seen);
	s->seen = table;
	s->seen_room = room;
}

/* The same operations in another order, leading to the same state, have been tried already. */
static bool seen_before(struct search *s, uint32_t op, const struct names *state)
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
	const struct name_history *h = s->h;
	struct event **begin = calloc(h->n, sizeof(struct event *));
	size_t n = 0;

	ASSERT(begin != NULL || h->n == 0);
	for (size_t i = 0; i < h->n; i++) {
		const struct name_op *op = &h->ops[i];

		s->events[n] = (struct event){.at = op->begin, .op = (uint32_t)i};
		s->events[n++].is_begin = true;
		if (op->end != LINEAR_NEVER) {
			s->events[n++] = (struct event){.at = op->end, .op = (uint32_t)i};
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

/* 1: an order was found, 0: there is none, -1: the bound. */
static int search_run(struct search *s)
{
	struct event *e = s->head.next;
	struct names next;

	while (s->n_left > 0) {
		if (++s->steps > STEPS_MAX)
			return -1;
		if (e != NULL && e->is_begin) {
			if (step(&s->h->ops[e->op], &s->state, &next) &&
			    !seen_before(s, e->op, &next)) {
				s->stack[s->depth++] = (struct tried){e, s->state};
				s->state = next;
				lift(s, e);
				e = s->head.next;
			} else {
				e = e->next;
			}
			continue;
		}
		/* Somebody has got an answer that does not come out of this order. */
		if (s->depth >= s->best_depth && e != NULL) {
			s->best_depth = s->depth;
			s->stuck_op = e->op;
		}
		if (s->depth == 0)
			return 0;
		s->depth--;
		e = s->stack[s->depth].event;
		s->state = s->stack[s->depth].before;
		unlift(s, e);
		e = e->next;
	}
	return 1;
}

enum names_verdict name_check(const struct name_history *h, char why[LINEAR_WHY_SIZE])
{
	static const char *const kinds[] = {"create", "unlink", "lookup", "rename", "link"};
	struct search s = {.h = h};
	int rc;

	s.events = calloc(2 * h->n + 1, sizeof(*s.events));
	s.stack = calloc(h->n + 1, sizeof(*s.stack));
	ASSERT(s.events != NULL && s.stack != NULL);
	make_list(&s);
	rc = search_run(&s);
	if (rc != 1 && h->n > 0) {
		const struct name_op *op = &h->ops[s.stuck_op];

		snprintf(why, LINEAR_WHY_SIZE,
			 "%s: %s %u %u by client %u at %lld..%lld: %s, tag %u; the longest order "
			 "has %zu of %zu operations",
			 rc < 0 ? "not decided" : "no order explains", kinds[op->kind], op->a,
			 op->b, op->client, (long long)op->begin, (long long)op->end,
			 op->ok ? "yes" : "no", op->tag, s.best_depth, h->n);
	}
	free(s.events);
	free(s.stack);
	free(s.seen);
	return rc < 0 ? NAMES_NOT_DECIDED : rc == 1 ? NAMES_POSSIBLE : NAMES_IMPOSSIBLE;
}
