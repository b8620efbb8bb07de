/*
 * Phases of long-lived things: an enum, one table of the moves that are allowed, one function that
 * makes a move, checks it, counts and traces it. Counts are of the whole process, for tests that
 * want to see every move of every table taken; any thread may move.
 *
 *   MOVE_TABLE(version_moves, "version", N_VERSION_STATES, {"new", ...}, {1u << JOINED | ..., ...})
 *   v->state = move_take(&version_moves, v->state, JOINED);
 */
#ifndef LEAT_BASE_MOVES_H
#define LEAT_BASE_MOVES_H

#include <stdint.h>
#include <stdio.h>

#define MOVE_STATES_MAX 12u

struct move_table {
	const char *name;
	uint32_t n_states;
	const char *states[MOVE_STATES_MAX];
	uint32_t allowed[MOVE_STATES_MAX]; /* bit i: to state i */
	_Atomic uint64_t taken[MOVE_STATES_MAX][MOVE_STATES_MAX];
	struct move_table *next;
};

/* A table that move_tables_each finds. */
#define MOVE_TABLE(var, title, n, ...) \
	static struct move_table var = { .name = title, .n_states = (n), __VA_ARGS__ }; \
	__attribute__((constructor)) static void list_##var(void) \
	{ \
		move_table_list(&var); \
	}
void move_table_list(struct move_table *t);

/* The new state. A move that is not in the table is a bug: it ends the program. */
int move_take(struct move_table *t, int from, int to);
/* How often it was made. */
uint64_t move_taken(const struct move_table *t, int from, int to);
/* Every allowed move of every table, in no order of tables. */
void move_tables_each(void (*fn)(void *arg, const struct move_table *t, int from, int to),
		      void *arg);

#endif
