/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a batch: which bytes of which files are placed where in its slot. */
#ifndef LEAT_CLIENT_LOADER_BATCH_BATCH_PLAN_H
#define LEAT_CLIENT_LOADER_BATCH_BATCH_PLAN_H

#include "client/loader/batch/batch.h"

/* Sets pieces, runs, offsets, lengths, labels and b->need for the b->n samples in b->ids.
 * -LE_NOMEM, or -LE_2BIG, with b->d. Any thread, under the owner's lock. Does not yield. */
int batch_plan(struct leat_batch *b) CHECK_RESULT;

#endif
