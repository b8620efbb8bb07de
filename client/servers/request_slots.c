/* SPDX-License-Identifier: Apache-2.0 */
#include "client/servers/request_slots.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/status.h"
#include "common/rt/fiber.h"

int request_slots_init(struct request_slots *t, uint32_t n_max, uint64_t base)
{
	*t = (struct request_slots){.n_max = n_max, .n = n_max};
	turnq_init(&t->turn);
	turnq_init(&t->reserved_turn);
	t->seqs = calloc(n_max, sizeof(*t->seqs));
	t->stack = calloc(n_max, sizeof(*t->stack));
	t->unknown = calloc(n_max, sizeof(*t->unknown));
	if (t->seqs == NULL || t->stack == NULL || t->unknown == NULL) {
		request_slots_fini(t);
		return -LE_NOMEM;
	}
	for (uint32_t slot = n_max; slot-- > 0;) {
		t->seqs[slot] = base;
		t->stack[t->n_free++] = slot;
	}
	return 0;
}

void request_slots_fini(struct request_slots *t)
{
	free(t->seqs);
	free(t->stack);
	free(t->unknown);
	t->seqs = NULL;
	t->stack = NULL;
	t->unknown = NULL;
}

void request_slots_limit(struct request_slots *t, uint32_t n)
{
	uint32_t restart = 0;

	if (n < 1)
		n = 1;
	if (n >= t->n)
		return;
	for (uint32_t i = 0; i < t->n_free; i++)
		if (t->stack[i] < n)
			t->stack[restart++] = t->stack[i];
	t->n_free = restart;
	t->n = n;
	if (t->n_reserved >= n)
		t->n_reserved = n - 1;
}

static bool is_free(void *arg)
{
	const struct request_slots *t = arg;

	return t->n_free > t->n_reserved;
}

static bool is_free_reserved(void *arg)
{
	const struct request_slots *t = arg;

	return t->n_free > 0;
}

/* Wakes waiters; those of reserved slots first, because other holders wait for them. */
static void wake(struct request_slots *t)
{
	turnq_wake(&t->reserved_turn);
	turnq_wake(&t->turn);
}

static void take(struct request_slots *t, uint32_t *ret_slot, uint64_t *ret_seq)
{
	uint32_t slot;

	ASSERT(t->n_free > 0);
	slot = t->stack[--t->n_free];
	ASSERT(slot < t->n && !t->unknown[slot]);

	*ret_slot = slot;
	*ret_seq = ++t->seqs[slot];
	if (t->n_free > 0)
		wake(t);
}

int request_slot_take(struct request_slots *t, uint64_t deadline_us, uint32_t *ret_slot,
		      uint64_t *ret_seq)
{
	TRY(turnq_wait(&t->turn, is_free, t, NO_DEADLINE, deadline_us));
	take(t, ret_slot, ret_seq);
	return 0;
}

int request_slot_take_reserved(struct request_slots *t, uint64_t deadline_us, uint32_t *ret_slot,
			       uint64_t *ret_seq)
{
	TRY(turnq_wait(&t->reserved_turn, is_free_reserved, t, NO_DEADLINE, deadline_us));
	take(t, ret_slot, ret_seq);
	return 0;
}

bool request_slot_take_one(struct request_slots *t, uint32_t slot)
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

void request_slot_mark_unknown(struct request_slots *t, uint32_t slot)
{
	t->unknown[slot] = true;
}

void request_slot_release(struct request_slots *t, uint32_t slot)
{
	uint32_t at;

	ASSERT(slot < t->n_max);
	at = t->unknown[slot] ? 0 : t->n_free;
	t->unknown[slot] = false;
	/* The server's limit was lowered since: the slot is not used again. */
	if (slot >= t->n)
		return;
	ASSERT(t->n_free < t->n);
	memmove(&t->stack[at + 1], &t->stack[at], (t->n_free - at) * sizeof(t->stack[0]));
	t->stack[at] = slot;
	t->n_free++;
	wake(t);
}
