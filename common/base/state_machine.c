/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/state_machine.h"

#include "common/base/assert.h"
#include "common/base/log.h"

static struct state_machine *tables;

/* Called by constructors only: one thread. */
void state_machine_list(struct state_machine *t)
{
	t->next = tables;
	tables = t;
}

int state_machine_move(struct state_machine *t, int from, int to)
{
	ASSERT(from >= 0 && to >= 0 && (uint32_t)from < t->n_states && (uint32_t)to < t->n_states);
	if (!(t->allowed[from] & 1u << to))
		PANIC("%s: no move from %s to %s", t->name, t->states[from], t->states[to]);
	__atomic_fetch_add((uint64_t *)&t->taken[from][to], 1, __ATOMIC_RELAXED);
	log_debug("%s: %s -> %s", t->name, t->states[from], t->states[to]);
	return to;
}

uint64_t state_machine_taken(const struct state_machine *t, int from, int to)
{
	return __atomic_load_n((const uint64_t *)&t->taken[from][to], __ATOMIC_RELAXED);
}

void state_machines_each(void (*fn)(void *arg, const struct state_machine *t, int from, int to),
		      void *arg)
{
	for (struct state_machine *t = tables; t; t = t->next)
		for (uint32_t from = 0; from < t->n_states; from++)
			for (uint32_t to = 0; to < t->n_states; to++)
				if (t->allowed[from] & 1u << to)
					fn(arg, t, (int)from, (int)to);
}
