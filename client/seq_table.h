/*
 * The (slot, sequence) pairs of a session's mutations at one server. A mutation takes a slot, is
 * repeated with the same pair until it is answered, and gives the slot back. Each taking
 * of a slot moves its sequence on, whether the last request was answered or given up, so a late
 * copy of a request that was given up is refused by the server as soon as the slot is used
 * again; slots given back last are taken first, to make that soon. But a slot whose request the
 * server may still be busy with (seq_doubt) is taken last: the next one would wait for it there.
 *
 * Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_SEQ_TABLE_H
#define LEAT_CLIENT_SEQ_TABLE_H

#include "common/rt/fiber.h"

struct seq_table {
	uint64_t *seqs;  /* by slot: the last one taken, 0: none yet */
	uint32_t *stack; /* of free slots */
	bool *doubted;   /* by slot: goes to the bottom of the stack */
	uint32_t n_free;
	uint32_t n_max; /* slots there is memory for */
	uint32_t n;     /* slots the server allows */
	uint32_t n_kept; /* of these, left to seq_take_kept */
	struct turnq turn, kept_turn; /* of seq_take, of seq_take_kept */
};

/* Sequences begin behind base. -LE_NOMEM */
int seq_table_init(struct seq_table *t, uint32_t n_max, uint64_t base) CHECK_RESULT;
void seq_table_fini(struct seq_table *t);
/* The server allows only n slots: the others are never taken again. More than before: no change. */
void seq_table_limit(struct seq_table *t, uint32_t n);
/* Waits for a free slot, in turn: -LE_TIMEDOUT, -LE_INTR. Yields. */
int seq_take(struct seq_table *t, uint64_t deadline_us, uint32_t *ret_slot,
	     uint64_t *ret_seq) CHECK_RESULT;
/* The same, of those that seq_take leaves: for what others wait for that themselves hold slots. */
int seq_take_kept(struct seq_table *t, uint64_t deadline_us, uint32_t *ret_slot,
		  uint64_t *ret_seq) CHECK_RESULT;
/* A certain slot, which nobody has taken, until it is given back: was it free? */
bool seq_take_slot(struct seq_table *t, uint32_t slot);
/* Of a slot that is taken: how its request ends is not known. */
void seq_doubt(struct seq_table *t, uint32_t slot);
void seq_give(struct seq_table *t, uint32_t slot);

#endif
