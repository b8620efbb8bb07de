/*
 * Decoders: functions of the user, called by threads of the loader, that make of a field's bytes
 * what training wants. Room for what they write is part of the slot and reserved before anything is
 * read.
 *
 * The threads are the loader's own, so that a function that takes long, or for ever, holds up
 * nothing else: leat_next says which sample it is at, and leat_loader_close leaves it behind.
 */
#ifndef LEAT_LOADER_DECODE_H
#define LEAT_LOADER_DECODE_H

#include "client/loader/batch.h"

#define DECODE_THREADS_MAX 64u
#define DECODE_OUT_MAX     ((uint64_t)1 << 36)

struct decoders;

/* Fails with a word in leat_last_error. *ret_decoders is NULL where none are asked for. */
int decode_open(const struct leat_loader_options *o, const struct leat_dataset *ds,
		const struct field_set *set, struct decoders **ret_decoders) CHECK_RESULT;
/* No batch is being decoded any more. Waits for the threads. NULL is fine. */
void decode_close(struct decoders *d);
/* From now on no function is called. */
void decode_stop(struct decoders *d);
/* Waits as long as a function may take: is none running any more? */
bool decode_wait_idle(struct decoders *d);
/* A function has been at work for longer than it may: says so in leat_last_error. */
bool decode_is_late(struct decoders *d);

/* At the end of batch_plan: where the results will lie; adds to b->need. -LE_NOMEM,
 * -LE_2BIG. */
int decode_plan(struct leat_batch *b) CHECK_RESULT;
/* In a fiber, when everything was read. Sets b->d on failure, and b->lost. Yields. */
void decode_batch(struct leat_batch *b);

#endif
