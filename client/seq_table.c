#include "client/seq_table.h"

#include <stdlib.h>
#include <string.h>

int seq_table_init(struct seq_table *t, uint32_t n_max, uint64_t base)
{
	*t = (struct seq_table){.n_max = n_max, .n = n_max};
	waitq_init(&t->q);
	t->seqs = calloc(n_max, sizeof(*t->seqs));
	t->stack = calloc(n_max, sizeof(*t->stack));
	if (t->seqs == NULL || t->stack == NULL) {
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
	t->seqs = NULL;
	t->stack = NULL;
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

static int take(struct seq_table *t, uint32_t n_kept, uint64_t deadline_us, uint32_t *ret_slot,
		uint64_t *ret_seq)
{
	uint32_t slot;

	while (t->n_free <= n_kept) {
		int rc = waitq_wait(&t->q, deadline_us);
		if (rc < 0) {
			/* A wake that came with the time-out belongs to the next waiter. */
			if (t->n_free > n_kept)
				waitq_wake_one(&t->q);
			return rc;
		}
	}
	slot = t->stack[--t->n_free];
	*ret_slot = slot;
	*ret_seq = ++t->seqs[slot];
	return 0;
}

int seq_take(struct seq_table *t, uint64_t deadline_us, uint32_t *ret_slot, uint64_t *ret_seq)
{
	return take(t, t->n_kept, deadline_us, ret_slot, ret_seq);
}

int seq_take_kept(struct seq_table *t, uint64_t deadline_us, uint32_t *ret_slot, uint64_t *ret_seq)
{
	return take(t, 0, deadline_us, ret_slot, ret_seq);
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

void seq_give(struct seq_table *t, uint32_t slot)
{
	/* Taken before the server allowed fewer: gone for good. */
	if (slot >= t->n)
		return;
	ASSERT(t->n_free < t->n);
	t->stack[t->n_free++] = slot;
	waitq_wake_one(&t->q);
}
