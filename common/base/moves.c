#include "common/base/moves.h"

#include "common/base/assert.h"
#include "common/base/log.h"

static struct move_table *tables;

/* From constructors only: one thread. */
void move_table_list(struct move_table *t)
{
	t->next = tables;
	tables = t;
}

int move_take(struct move_table *t, int from, int to)
{
	ASSERT(from >= 0 && to >= 0 && (uint32_t)from < t->n_states && (uint32_t)to < t->n_states);
	if (!(t->allowed[from] & 1u << to))
		PANIC("%s: no move from %s to %s", t->name, t->states[from], t->states[to]);
	__atomic_fetch_add((uint64_t *)&t->taken[from][to], 1, __ATOMIC_RELAXED);
	log_debug("%s: %s -> %s", t->name, t->states[from], t->states[to]);
	return to;
}

uint64_t move_taken(const struct move_table *t, int from, int to)
{
	return __atomic_load_n((const uint64_t *)&t->taken[from][to], __ATOMIC_RELAXED);
}

void move_tables_each(void (*fn)(void *arg, const struct move_table *t, int from, int to),
		      void *arg)
{
	for (struct move_table *t = tables; t; t = t->next)
		for (uint32_t from = 0; from < t->n_states; from++)
			for (uint32_t to = 0; to < t->n_states; to++)
				if (t->allowed[from] & 1u << to)
					fn(arg, t, (int)from, (int)to);
}
