#include "client/seq_table.h"

#include <stdlib.h>
#include <string.h>

int seq_table_init(struct seq_table *t, uint32_t n_max, uint64_t base)
{
	*t = (struct seq_table){.n_max = n_max, .n = n_max};
	turnq_init(&t->turn);
	turnq_init(&t->kept_turn);
	t->seqs = calloc(n_max, sizeof(*t->seqs));
	t->stack = calloc(n_max, sizeof(*t->stack));
	t->doubted = calloc(n_max, sizeof(*t->doubted));
	if (t->seqs == NULL || t->stack == NULL || t->doubted == NULL) {
		seq_table_fini(t);
		return -LE_NOMEM;
	}
	for (uint32_t slot = n_max; slot-- > 0;) {
		t->seqs[slot] = base;
		t->stack[t->n_free++] = slot;
	}
	return 0;
}

void seq_table_fini(struct seq_table *t)
{
	free(t->seqs);
	free(t->stack);
	free(t->doubted);
	t->seqs = NULL;
	t->stack = NULL;
	t->doubted = NULL;
}

void seq_table_limit(struct seq_table *t, uint32_t n)
{
	uint32_t kept = 0;

	if (n < 1)
		n = 1;
	if (n >= t->n)
		return;
	for (uint32_t i = 0; i < t->n_free; i++)
		if (t->stack[i] < n)
			t->stack[kept++] = t->stack[i];
	t->n_free = kept;
	t->n = n;
	if (t->n_kept >= n)
		t->n_kept = n - 1;
}

static bool is_free(void *arg)
{
	const struct seq_table *t = arg;

	return t->n_free > t->n_kept;
}

static bool is_free_kept(void *arg)
{
	const struct seq_table *t = arg;

	return t->n_free > 0;
}

/* There may be some: those of whom others wait first. */
static void wake(struct seq_table *t)
{
	turnq_wake(&t->kept_turn);
	turnq_wake(&t->turn);
}

static void take(struct seq_table *t, uint32_t *ret_slot, uint64_t *ret_seq)
{
	uint32_t slot = t->stack[--t->n_free];

	*ret_slot = slot;
	*ret_seq = ++t->seqs[slot];
	if (t->n_free > 0)
		wake(t);
}

int seq_take(struct seq_table *t, uint64_t deadline_us, uint32_t *ret_slot, uint64_t *ret_seq)
{
	TRY(turnq_wait(&t->turn, is_free, t, NO_DEADLINE, deadline_us));
	take(t, ret_slot, ret_seq);
	return 0;
}

int seq_take_kept(struct seq_table *t, uint64_t deadline_us, uint32_t *ret_slot, uint64_t *ret_seq)
{
	TRY(turnq_wait(&t->kept_turn, is_free_kept, t, NO_DEADLINE, deadline_us));
	take(t, ret_slot, ret_seq);
	return 0;
}

bool seq_take_slot(struct seq_table *t, uint32_t slot)
{
	for (uint32_t i = 0; i < t->n_free; i++) {
		if (t->stack[i] != slot)
			continue;
		memmove(&t->stack[i], &t->stack[i + 1], (t->n_free - i - 1) * sizeof(t->stack[0]));
		t->n_free--;
		return true;
	}
	return false;
}

void seq_doubt(struct seq_table *t, uint32_t slot)
{
	t->doubted[slot] = true;
}

void seq_give(struct seq_table *t, uint32_t slot)
{
	uint32_t at = t->doubted[slot] ? 0 : t->n_free;

	t->doubted[slot] = false;
	/* Taken before the server allowed fewer: gone for good. */
	if (slot >= t->n)
		return;
	ASSERT(t->n_free < t->n);
	memmove(&t->stack[at + 1], &t->stack[at], (t->n_free - at) * sizeof(t->stack[0]));
	t->stack[at] = slot;
	t->n_free++;
	wake(t);
}
