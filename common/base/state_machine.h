/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Phases of long-lived objects: an enum, one table of allowed moves, and one function that checks,
 * makes and counts a move. Counts are of the whole process: tests verify with them that every move
 * of every table was made. Any thread.
 *
 *   STATE_MACHINE(version_moves, "version", N_VERSION_STATES, ...)
 *   v->state = state_machine_move(&version_moves, v->state, JOINED);
 */
#ifndef LEAT_COMMON_BASE_STATE_MACHINE_H
#define LEAT_COMMON_BASE_STATE_MACHINE_H

#include <stdint.h>
#include <stdio.h>

#define STATE_MACHINE_STATES_MAX 12u

struct state_machine {
	const char *name;
	uint32_t n_states;
	const char *states[STATE_MACHINE_STATES_MAX];
	uint32_t allowed[STATE_MACHINE_STATES_MAX]; /* bit i: to state i */
	_Atomic uint64_t taken[STATE_MACHINE_STATES_MAX][STATE_MACHINE_STATES_MAX];
	struct state_machine *next;
};

/* Defines a table that state_machines_each visits. */
#define STATE_MACHINE(var, title, n, ...) \
	static struct state_machine var = { .name = title, .n_states = (n), __VA_ARGS__ }; \
	__attribute__((constructor)) static void list_##var(void) \
	{ \
		state_machine_list(&var); \
	}
void state_machine_list(struct state_machine *t);

/* Returns `to`. A move that is not in the table is a bug and ends the program. */
int state_machine_move(struct state_machine *t, int from, int to);
/* Returns how often the move was made. */
uint64_t state_machine_taken(const struct state_machine *t, int from, int to);
/* Calls fn for every allowed move of every table. The order of tables is undefined. */
void state_machines_each(void (*fn)(void *arg, const struct state_machine *t, int from, int to),
		      void *arg);

#endif
