/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The (slot, sequence) pairs of a session's mutations at one server. A mutation takes a slot, is
 * repeated with the same pair until it has an answer, and releases the slot. So the server executes
 * it once.
 *
 * Each use of a slot increments its sequence, whether the last request was answered or abandoned. A
 * late duplicate of an abandoned request is therefore refused as soon as the slot is used again.
 * The slot released last is taken first, so that this happens soon. The exception is a slot with a
 * request that the server may still execute (request_slot_mark_unknown): it is taken last, because
 * its next request would wait for that one.
 *
 * Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_SERVERS_REQUEST_SLOTS_H
#define LEAT_CLIENT_SERVERS_REQUEST_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/rt/fiber.h"

/* The request slots of one server or chain. */
struct request_slots {
	uint64_t *seqs;  /* by slot: last sequence used */
	uint32_t *stack; /* free slots */
	bool *unknown;   /* by slot: outcome unknown, released to the bottom of the stack */
	uint32_t n_free;
	uint32_t n_max;               /* slots allocated */
	uint32_t n;                   /* slots that the server allows */
	uint32_t n_reserved;              /* slots kept for request_slot_take_reserved */
	struct turnq turn, reserved_turn; /* waiters of request_slot_take; of
	                                   * request_slot_take_reserved */
};

/* Initialises the table with n_max free slots. Sequences start at base + 1. Returns 0 or
 * -LE_NOMEM. */
int request_slots_init(struct request_slots *t, uint32_t n_max, uint64_t base) CHECK_RESULT;
/* Frees the memory. No fiber may wait for a slot. */
void request_slots_fini(struct request_slots *t);
/* Lowers the number of slots to n, as the server allows; higher slots are not taken again. Never
 * raises it. */
void request_slots_limit(struct request_slots *t, uint32_t n);
/* Takes a slot and its next sequence. Waits in turn for a free one that is not reserved. Returns 0,
 * -LE_TIMEDOUT or -LE_INTR. Yields. */
int request_slot_take(struct request_slots *t, uint64_t deadline_us, uint32_t *ret_slot,
	     uint64_t *ret_seq) CHECK_RESULT;
/* Like request_slot_take, but may take a reserved slot. For requests that holders of other slots
 * wait for. */
int request_slot_take_reserved(struct request_slots *t, uint64_t deadline_us, uint32_t *ret_slot,
		  uint64_t *ret_seq) CHECK_RESULT;
/* Takes one particular slot, without a new sequence. Returns false if it is not free. Does not
 * yield. */
bool request_slot_take_one(struct request_slots *t, uint32_t slot);
/* Marks a taken slot: the outcome of its request is unknown. Does not yield. */
void request_slot_mark_unknown(struct request_slots *t, uint32_t slot);
/* Releases a slot and wakes a waiter. Does not yield. */
void request_slot_release(struct request_slots *t, uint32_t slot);

#endif
