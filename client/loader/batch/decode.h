/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoders: functions of the user that convert the bytes of a field into what training needs. The
 * slot reserves space for their results before anything is read.
 *
 * Threads of the loader call them, not the loops, so a function that runs long or for ever delays
 * only its own loader: leat_next reports the sample, and leat_loader_close does not wait for it.
 */
#ifndef LEAT_CLIENT_LOADER_BATCH_DECODE_H
#define LEAT_CLIENT_LOADER_BATCH_DECODE_H

#include "client/loader/batch/batch.h"

#define DECODE_THREADS_MAX 64u
#define DECODE_OUT_MAX     ((uint64_t)1 << 36)

struct decoders;

/* Starts the threads. *ret_decoders is NULL if the options have no decoders. Sets
 * leat_last_error on failure. */
int decode_open(const struct leat_loader_options *o, const struct leat_dataset *ds,
		const struct field_set *set, struct decoders **ret_decoders) CHECK_RESULT;
/* Ends the threads and waits for them. No batch may be in decode_batch. NULL is fine. */
void decode_close(struct decoders *d);
/* Prevents further calls of decoders. */
void decode_stop(struct decoders *d);
/* Waits at most the time limit of one call. True: no decoder is running. */
bool decode_wait_idle(struct decoders *d);
/* True if a call exceeds its time limit; leat_last_error names the sample. */
bool decode_is_late(struct decoders *d);

/* Places the results in the slot, at the end of batch_plan; adds to b->need. -LE_NOMEM,
 * -LE_2BIG. */
int decode_plan(struct leat_batch *b) CHECK_RESULT;
/* Decodes a batch when all its bytes were read, in a fiber. Sets b->d on failure, and b->lost.
 * Yields. */
void decode_batch(struct leat_batch *b);

#endif
