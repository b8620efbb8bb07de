/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of a loader that runs on the data set's loops: claims steps in order, reserves their
 * memory, fills slots. "With the lock": the caller holds ld->lock.
 */
#ifndef LEAT_CLIENT_LOADER_BATCH_LOADER_FILL_H
#define LEAT_CLIENT_LOADER_BATCH_LOADER_FILL_H

#include "client/loader/batch/loader.h"

/* Starts the fibers that fill slots. The caller must call loader_stop even on failure. */
int loader_start(struct leat_loader *ld) CHECK_RESULT;
/* Ends the fibers and waits for them. A loop's thread must not call it. */
void loader_stop(struct leat_loader *ld);
/* Wakes the fibers to check for work. With the lock. */
void loader_wake(struct leat_loader *ld);
/* Continues with that step; drops batches that were read ahead. With the lock. */
void loader_jump(struct leat_loader *ld, uint64_t epoch, uint64_t step);
/* Returns the slot of the step that leat_next hands out next, or NULL. With the lock. */
struct leat_batch *loader_wanted(struct leat_loader *ld);
/* True if the next step cannot become ready until the user releases a batch. With the lock. */
bool loader_is_held(const struct leat_loader *ld);
/* Makes event_fd readable if leat_try_next would not fail with EAGAIN, else clears it. With the
 * lock. */
void loader_update_event(struct leat_loader *ld);
/* True at the end of the last epoch of the options. With the lock. */
bool loader_at_end(const struct leat_loader *ld);

#endif
