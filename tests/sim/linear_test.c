/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checkers of linear.c refuse impossible histories and nothing else: classic wrong histories by
 * hand, and random small ones compared with trying every order.
 */
#include "tests/sim/linear_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/hmap.h"
#include "tests/sim/linear.h"

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			printf("%s:%d: %s\n", __FILE__, __LINE__, #cond);                          \
			return 1;                                                                  \
		}                                                                                  \
	} while (0)

#define SMALL 7

static uint64_t rnd(uint64_t *state, uint64_t n)
{
	*state += 0x9e3779b97f4a7c15ull;
	return hash_u64(*state) % n;
}

/* ---- registers ---- */

struct given {
	uint64_t write, read; /* one of them, or read 0 with neither */
	uint64_t begin, end;
};

static bool possible(const struct given *g, size_t n)
{
	struct reg_history h = {0};
	char why[LINEAR_WHY_SIZE];
	bool ok;

	for (size_t i = 0; i < n; i++) {
		size_t op = reg_begin(&h, 3, (uint32_t)i, g[i].write, g[i].begin);

		if (g[i].end != LINEAR_NEVER)
			reg_end(&h, op, g[i].read, g[i].end);
	}
	ok = reg_check(&h, why);
	reg_free(&h);
	return ok;
}
#define POSSIBLE(...)                                                                              \
	possible((const struct given[]){__VA_ARGS__},                                              \
		 sizeof((const struct given[]){__VA_ARGS__}) / sizeof(struct given))
#define W(value, begin, end)                                                                       \
	{                                                                                          \
		value, 0, begin, end                                                               \
	}
#define R(value, begin, end)                                                                       \
	{                                                                                          \
		0, value, begin, end                                                               \
	}

int linear_test_registers(void)
{
	CHECK(POSSIBLE(R(0, 1, 2), W(5, 3, 4), R(5, 5, 6)));
	/* stale: an acknowledged write is not visible */
	CHECK(!POSSIBLE(W(5, 1, 2), R(0, 3, 4)));
	/* during the write both values are right, in this order */
	CHECK(POSSIBLE(W(5, 1, 10), R(0, 2, 3), R(5, 4, 5)));
	/* visible, and then not: a value was visible that was not committed */
	CHECK(!POSSIBLE(W(5, 1, 10), R(5, 2, 3), R(0, 4, 5)));
	CHECK(!POSSIBLE(W(5, 1, LINEAR_NEVER), R(5, 2, 3), R(0, 4, 5)));
	/* no client has written that; not yet */
	CHECK(!POSSIBLE(R(5, 2, 3)));
	CHECK(!POSSIBLE(R(5, 1, 2), W(5, 3, 4)));
	/* no reply: it may take effect late, or not at all */
	CHECK(POSSIBLE(W(5, 1, LINEAR_NEVER), R(0, 2, 3), R(5, 4, 5)));
	CHECK(POSSIBLE(W(5, 1, LINEAR_NEVER), W(6, 2, 3), R(6, 4, 5), R(5, 6, 7)));
	CHECK(POSSIBLE(W(5, 1, LINEAR_NEVER), R(0, 2, 3)));
	/* executed twice: an old value returns */
	CHECK(!POSSIBLE(W(5, 1, 2), W(6, 3, 4), R(6, 5, 6), R(5, 7, 8)));
	CHECK(!POSSIBLE(W(5, 1, LINEAR_NEVER), R(5, 2, 3), W(6, 4, 5), R(6, 6, 7), R(5, 8, 9)));
	/* two concurrent writes: any order, but one order for all readers */
	CHECK(POSSIBLE(W(5, 1, 9), W(6, 2, 10), R(6, 11, 12)));
	CHECK(!POSSIBLE(W(5, 1, 4), W(6, 2, 5), R(6, 6, 7), R(5, 8, 9)));
	CHECK(!POSSIBLE(W(5, 1, 2), W(6, 3, 4), W(7, 5, 6), R(6, 7, 8)));
	return 0;
}

/* Every order of the operations that have ended, with any of the others in between. */
static bool any_order(const struct given *g, size_t n, uint32_t done, uint64_t value)
{
	uint32_t left = 0;

	for (size_t i = 0; i < n; i++)
		left |= (done & 1u << i) == 0 && g[i].end != LINEAR_NEVER ? 1u << i : 0;
	if (left == 0)
		return true;
	for (size_t i = 0; i < n; i++) {
		bool first = (done & 1u << i) == 0;

		for (size_t k = 0; k < n && first; k++)
			first = k == i || (done & 1u << k) != 0 || g[k].end > g[i].begin;
		if (!first)
			continue;
		if (g[i].write == 0 && g[i].read != value && g[i].end != LINEAR_NEVER)
			continue;
		if (any_order(g, n, done | 1u << i, g[i].write != 0 ? g[i].write : value))
			return true;
	}
	return false;
}

/* Distinct times for n operations, some of which never end. */
static void random_times(uint64_t *state, size_t n, uint64_t begin[], uint64_t end[])
{
	uint64_t time[2 * SMALL];
	uint64_t n_times = 2 * n;

	for (uint64_t i = 0; i < n_times; i++)
		time[i] = i + 1;
	for (uint64_t i = n_times; i > 1; i--) {
		uint64_t k = rnd(state, i), t = time[k];

		time[k] = time[i - 1];
		time[i - 1] = t;
	}
	for (size_t i = 0; i < n; i++) {
		uint64_t a = time[2 * i], b = time[2 * i + 1];

		begin[i] = a < b ? a : b;
		end[i] = rnd(state, 6) == 0 ? LINEAR_NEVER : a < b ? b : a;
	}
}

int linear_test_registers_random(void)
{
	uint64_t state = 42;
	uint32_t n_possible = 0;

	for (int round = 0; round < 60000; round++) {
		struct given g[SMALL];
		uint64_t begin[SMALL], end[SMALL];
		size_t n = 2 + rnd(&state, SMALL - 1);
		bool want;

		random_times(&state, n, begin, end);
		for (size_t i = 0; i < n; i++) {
			bool write = i < 2 || rnd(&state, 3) == 0;

			g[i] = (struct given){write ? i + 1 : 0, write ? 0 : rnd(&state, 4),
					      begin[i], end[i]};
		}
		want = any_order(g, n, 0, 0);
		n_possible += want;
		if (possible(g, n) == want)
			continue;
		printf("round %d: checker and search differ, search says %d\n", round, want);
		for (size_t i = 0; i < n; i++)
			printf("  %s %llu at %lld..%lld\n", g[i].write ? "write" : "read",
			       (unsigned long long)(g[i].write ? g[i].write : g[i].read),
			       (long long)g[i].begin, (long long)g[i].end);
		return 1;
	}
	/* Neither kind is rare. */
	CHECK(n_possible > 6000 && n_possible < 54000);
	return 0;
}

/* ---- names ---- */

static bool names_possible(const struct name_op *ops, size_t n)
{
	struct name_history h = {0};
	char why[LINEAR_WHY_SIZE];
	bool ok;

	for (size_t i = 0; i < n; i++) {
		size_t op = name_begin(&h, &ops[i], ops[i].begin);

		if (ops[i].end != LINEAR_NEVER)
			name_end(&h, op, ops[i].ok,
				 ops[i].kind == NAME_LINK ? ops[i].exists : ops[i].tag, ops[i].end);
	}
	ok = name_check(&h, why) == NAMES_POSSIBLE;
	name_free(&h);
	return ok;
}
#define NAMES(...)                                                                                 \
	names_possible((const struct name_op[]){__VA_ARGS__},                                      \
		       sizeof((const struct name_op[]){__VA_ARGS__}) / sizeof(struct name_op))
#define CREATE(name, who, yes, from, to)                                                           \
	{                                                                                          \
		.kind = NAME_CREATE, .a = name, .tag = who, .ok = yes, .begin = from, .end = to    \
	}
#define UNLINK(name, yes, from, to)                                                                \
	{                                                                                          \
		.kind = NAME_UNLINK, .a = name, .ok = yes, .begin = from, .end = to                \
	}
#define LOOKUP(name, who, from, to)                                                                \
	{                                                                                          \
		.kind = NAME_LOOKUP, .a = name, .tag = who, .begin = from, .end = to               \
	}
#define RENAME(from_name, to_name, yes, from, to)                                                  \
	{                                                                                          \
		.kind = NAME_RENAME, .a = from_name, .b = to_name, .ok = yes, .begin = from,       \
		.end = to                                                                          \
	}

#define LINK(name, who, yes, was_there, from, to)                                                  \
	{                                                                                          \
		.kind = NAME_LINK, .a = name, .tag = who, .ok = yes, .exists = was_there,          \
		.begin = from, .end = to                                                           \
	}

int linear_test_links(void)
{
	/* a second name; the file lives as long as it has one */
	CHECK(NAMES(CREATE(0, 7, true, 1, 2), LINK(1, 7, true, false, 3, 4), LOOKUP(1, 7, 5, 6),
		    UNLINK(0, true, 7, 8), LOOKUP(1, 7, 9, 10)));
	CHECK(!NAMES(CREATE(0, 7, true, 1, 2), UNLINK(0, true, 3, 4),
		     LINK(1, 7, true, false, 5, 6)));
	CHECK(NAMES(CREATE(0, 7, true, 1, 2), UNLINK(0, true, 3, 4),
		    LINK(1, 7, false, false, 5, 6)));
	/* refused without a reason */
	CHECK(!NAMES(CREATE(0, 7, true, 1, 2), LINK(1, 7, false, true, 3, 4)));
	CHECK(!NAMES(CREATE(0, 7, true, 1, 2), LINK(1, 7, false, false, 3, 4)));
	/* executed twice: the second time the name is there */
	CHECK(!NAMES(CREATE(0, 7, true, 1, 2), LINK(1, 7, false, true, 3, 4), LOOKUP(1, 7, 5, 6)));
	/* two names of one file are not renamed over each other */
	CHECK(NAMES(CREATE(0, 7, true, 1, 2), LINK(1, 7, true, false, 3, 4),
		    RENAME(0, 1, true, 5, 6), LOOKUP(0, 7, 7, 8), LOOKUP(1, 7, 9, 10)));
	CHECK(!NAMES(CREATE(0, 7, true, 1, 2), LINK(1, 7, true, false, 3, 4),
		     RENAME(0, 1, true, 5, 6), LOOKUP(0, 0, 7, 8)));
	/* no reply */
	CHECK(NAMES(CREATE(0, 7, true, 1, 2), LINK(1, 7, true, false, 3, LINEAR_NEVER),
		    LOOKUP(1, 0, 4, 5), LOOKUP(1, 7, 6, 7)));
	return 0;
}

int linear_test_names(void)
{
	CHECK(NAMES(LOOKUP(0, 0, 1, 2), CREATE(0, 7, true, 3, 4), LOOKUP(0, 7, 5, 6),
		    UNLINK(0, true, 7, 8), LOOKUP(0, 0, 9, 10)));
	/* two winners of one exclusive creation */
	CHECK(!NAMES(CREATE(0, 7, true, 1, 3), CREATE(0, 8, true, 2, 4)));
	CHECK(NAMES(CREATE(0, 7, true, 1, 3), CREATE(0, 8, false, 2, 4), LOOKUP(0, 7, 5, 6)));
	/* removed twice */
	CHECK(!NAMES(CREATE(0, 7, true, 1, 2), UNLINK(0, true, 3, 5), UNLINK(0, true, 4, 6)));
	/* an acknowledged creation is lost */
	CHECK(!NAMES(CREATE(0, 7, true, 1, 2), LOOKUP(0, 0, 3, 4)));
	/* rename is one step: never both, never neither */
	CHECK(!NAMES(CREATE(0, 7, true, 1, 2), RENAME(0, 1, true, 3, 10), LOOKUP(0, 0, 4, 5),
		     LOOKUP(1, 0, 6, 7)));
	CHECK(!NAMES(CREATE(0, 7, true, 1, 2), RENAME(0, 1, true, 3, 10), LOOKUP(1, 7, 4, 5),
		     LOOKUP(0, 7, 6, 7)));
	CHECK(NAMES(CREATE(0, 7, true, 1, 2), RENAME(0, 1, true, 3, 10), LOOKUP(1, 0, 4, 5),
		    LOOKUP(0, 0, 6, 7), LOOKUP(1, 7, 8, 9)));
	/* no reply */
	CHECK(NAMES(CREATE(0, 7, true, 1, LINEAR_NEVER), LOOKUP(0, 0, 2, 3), LOOKUP(0, 7, 4, 5)));
	CHECK(!NAMES(CREATE(0, 7, true, 1, LINEAR_NEVER), LOOKUP(0, 7, 2, 3), LOOKUP(0, 0, 4, 5)));
	CHECK(NAMES(UNLINK(0, false, 1, 2), CREATE(0, 7, true, 3, 4),
		    UNLINK(0, true, 5, LINEAR_NEVER), LOOKUP(0, 0, 6, 7)));
	/* a repeated creation whose reply takes its own first attempt for another client's */
	CHECK(!NAMES(CREATE(0, 7, false, 1, 2), LOOKUP(0, 7, 3, 4)));
	return 0;
}

static bool names_step(const struct name_op *op, uint32_t tag[LINEAR_NAMES])
{
	bool known = op->end != LINEAR_NEVER, there = tag[op->a] != 0;

	bool lives = false;

	for (uint32_t i = 0; i < LINEAR_NAMES; i++)
		lives |= tag[i] == op->tag;
	if (known && op->kind == NAME_LOOKUP)
		return tag[op->a] == op->tag;
	if (op->kind == NAME_LINK) {
		if (known && !op->ok && op->exists != there && (op->exists || lives))
			return false;
		if (known && op->ok != (lives && !there))
			return false;
		if (lives && !there)
			tag[op->a] = op->tag;
		return true;
	}
	if (known && op->ok != (op->kind == NAME_CREATE ? !there : there))
		return false;
	if (op->kind == NAME_CREATE && !there)
		tag[op->a] = op->tag;
	if (op->kind == NAME_UNLINK)
		tag[op->a] = 0;
	if (op->kind == NAME_RENAME && there && tag[op->a] != tag[op->b]) {
		tag[op->b] = tag[op->a];
		tag[op->a] = 0;
	}
	return true;
}

static bool names_any_order(const struct name_op *ops, size_t n, uint32_t done,
			    const uint32_t tag[LINEAR_NAMES])
{
	bool left = false;

	for (size_t i = 0; i < n; i++)
		left |= (done & 1u << i) == 0 && ops[i].end != LINEAR_NEVER;
	if (!left)
		return true;
	for (size_t i = 0; i < n; i++) {
		bool first = (done & 1u << i) == 0;
		uint32_t next[LINEAR_NAMES];

		for (size_t k = 0; k < n && first; k++)
			first = k == i || (done & 1u << k) != 0 || ops[k].end > ops[i].begin;
		memcpy(next, tag, sizeof(next));
		if (first && names_step(&ops[i], next) &&
		    names_any_order(ops, n, done | 1u << i, next))
			return true;
	}
	return false;
}

int linear_test_names_random(void)
{
	uint64_t state = 43;
	uint32_t n_possible = 0;

	for (int round = 0; round < 60000; round++) {
		struct name_op ops[SMALL];
		uint64_t begin[SMALL], end[SMALL];
		size_t n = 2 + rnd(&state, SMALL - 1);
		const uint32_t none[LINEAR_NAMES] = {0};
		bool want;

		random_times(&state, n, begin, end);
		for (size_t i = 0; i < n; i++) {
			bool create = rnd(&state, 2) == 0;

			ops[i] = (struct name_op){
				.kind = create ? NAME_CREATE
					       : (enum name_kind)rnd(&state, N_NAME_KINDS),
				.a = (uint32_t)rnd(&state, 2),
				.b = (uint32_t)rnd(&state, 2),
				.ok = rnd(&state, 3) != 0,
				.begin = begin[i],
				.end = end[i],
			};
			ops[i].tag = ops[i].kind == NAME_LOOKUP ? (uint32_t)rnd(&state, n + 1)
				     : ops[i].kind == NAME_LINK ? (uint32_t)rnd(&state, n) + 1
								: (uint32_t)i + 1;
			ops[i].exists = rnd(&state, 2);
		}
		want = names_any_order(ops, n, 0, none);
		n_possible += want;
		if (names_possible(ops, n) == want)
			continue;
		printf("round %d: checker and search differ, search says %d\n", round, want);
		return 1;
	}
	CHECK(n_possible > 6000 && n_possible < 54000);
	return 0;
}

/* ---- cells ---- */

static bool cells_possible(const struct cell_op *ops, size_t n)
{
	struct cell_history h = {0};
	char why[LINEAR_WHY_SIZE];
	bool ok;

	for (size_t i = 0; i < n; i++) {
		size_t op = cell_begin(&h, &ops[i], ops[i].begin);

		if (ops[i].end != LINEAR_NEVER)
			cell_saw(&h, op, ops[i].value, ops[i].end);
	}
	ok = cell_check(&h, why) == NAMES_POSSIBLE;
	cell_free(&h);
	return ok;
}
#define CELLS(...)                                                                                 \
	cells_possible((const struct cell_op[]){__VA_ARGS__},                                      \
		       sizeof((const struct cell_op[]){__VA_ARGS__}) / sizeof(struct cell_op))
#define CELL(what, v, from, to)                                                                    \
	{                                                                                          \
		.kind = CELL_##what, .value = v, .begin = from, .end = to                          \
	}

int linear_test_cells(void)
{
	CHECK(CELLS(CELL(READ, CELL_ABSENT, 1, 2), CELL(EXTEND, 0, 3, 4), CELL(READ, 0, 5, 6)));
	CHECK(CELLS(CELL(WRITE, 5, 1, 2), CELL(EXTEND, 0, 3, 4), CELL(READ, 5, 5, 6)));
	/* While the file is truncated the cell is there or not, but there are no zeros. */
	CHECK(CELLS(CELL(WRITE, 5, 1, 2), CELL(CUT, 0, 3, 6), CELL(READ, 5, 4, 5)));
	CHECK(CELLS(CELL(WRITE, 5, 1, 2), CELL(CUT, 0, 3, 6), CELL(READ, CELL_ABSENT, 4, 5)));
	CHECK(!CELLS(CELL(WRITE, 5, 1, 2), CELL(CUT, 0, 3, 6), CELL(READ, 0, 4, 5)));
	/* A truncated cell does not return. */
	CHECK(!CELLS(CELL(WRITE, 5, 1, 2), CELL(CUT, 0, 3, 8), CELL(LOOK, 0, 4, 5),
		     CELL(READ, 5, 6, 7)));
	/* Truncated and extended again: zeros, but not before. */
	CHECK(CELLS(CELL(WRITE, 5, 1, 2), CELL(CUT, 0, 3, 6), CELL(EXTEND, 0, 4, 7),
		    CELL(READ, 0, 5, 8)));
	CHECK(!CELLS(CELL(WRITE, 5, 1, 2), CELL(CUT, 0, 3, 6), CELL(READ, 0, 4, 5),
		     CELL(EXTEND, 0, 7, 8)));
	/* Truncated twice by one request: what was written after a reader saw the truncation is
	 * lost. */
	CHECK(!CELLS(CELL(EXTEND, 0, 1, 2), CELL(CUT, 0, 3, 12), CELL(LOOK, 0, 4, 5),
		     CELL(WRITE, 5, 6, 7), CELL(LOOK, 1, 8, 9), CELL(READ, CELL_ABSENT, 10, 11)));
	/* A write after the cell, during the truncation, may stay though this cell is truncated. */
	CHECK(CELLS(CELL(CUT, 0, 1, 10), CELL(EXTEND, 1, 2, 3), CELL(WRITE, 5, 4, 5),
		    CELL(READ, 0, 6, 7)));
	CHECK(!CELLS(CELL(CUT, 0, 1, 10), CELL(EXTEND, 0, 2, 3), CELL(WRITE, 5, 4, 5),
		     CELL(READ, 0, 6, 7)));
	CHECK(CELLS(CELL(WRITE, 5, 1, 2), CELL(CUT, 0, 3, LINEAR_NEVER), CELL(LOOK, 1, 4, 5),
		    CELL(READ, CELL_ABSENT, 6, 7)));
	return 0;
}

static bool cells_step(const struct cell_op *op, uint32_t *value)
{
	bool known = op->end != LINEAR_NEVER;

	if (op->kind == CELL_READ)
		return !known || op->value == *value;
	if (op->kind == CELL_LOOK)
		return !known || (op->value == 1) == (*value != CELL_ABSENT);
	if (op->kind == CELL_WRITE)
		*value = op->value;
	if (op->kind == CELL_CUT)
		*value = CELL_ABSENT;
	if (op->kind == CELL_EXTEND && *value == CELL_ABSENT)
		*value = 0;
	return true;
}

static bool cells_any_order(const struct cell_op *ops, size_t n, uint32_t done, uint32_t value)
{
	bool left = false;

	for (size_t i = 0; i < n; i++)
		left |= (done & 1u << i) == 0 && ops[i].end != LINEAR_NEVER;
	if (!left)
		return true;
	for (size_t i = 0; i < n; i++) {
		bool first = (done & 1u << i) == 0;
		uint32_t next = value;

		for (size_t k = 0; k < n && first; k++)
			first = k == i || (done & 1u << k) != 0 || ops[k].end > ops[i].begin;
		if (first && cells_step(&ops[i], &next) &&
		    cells_any_order(ops, n, done | 1u << i, next))
			return true;
	}
	return false;
}

int linear_test_cells_random(void)
{
	static const enum cell_kind kinds[] = {CELL_WRITE, CELL_CUT,  CELL_EXTEND,
					       CELL_READ,  CELL_READ, CELL_LOOK};
	uint64_t state = 44;
	uint32_t n_possible = 0;

	for (int round = 0; round < 60000; round++) {
		struct cell_op ops[SMALL];
		uint64_t begin[SMALL], end[SMALL];
		size_t n = 2 + rnd(&state, SMALL - 1);
		bool want;

		random_times(&state, n, begin, end);
		for (size_t i = 0; i < n; i++) {
			uint32_t seen = (uint32_t)rnd(&state, 3);

			ops[i] = (struct cell_op){
				.kind = i == 0 ? CELL_WRITE : kinds[rnd(&state, ARRAY_SIZE(kinds))],
				.begin = begin[i],
				.end = end[i],
			};
			ops[i].value = ops[i].kind == CELL_WRITE    ? (uint32_t)i + 1
				       : ops[i].kind == CELL_LOOK   ? seen % 2
				       : ops[i].kind == CELL_EXTEND ? 0
				       : seen == 2                  ? CELL_ABSENT
								    : seen;
		}
		want = cells_any_order(ops, n, 0, CELL_ABSENT);
		n_possible += want;
		if (cells_possible(ops, n) == want)
			continue;
		printf("round %d: checker and search differ, search says %d\n", round, want);
		return 1;
	}
	CHECK(n_possible > 6000 && n_possible < 54000);
	return 0;
}
