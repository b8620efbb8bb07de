/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Background fibers of a metadata server, and how a fiber sleeps so that a stop of the server wakes
 * it. Owned by the loop.
 */
#ifndef LEAT_MDS_BACKGROUND_H
#define LEAT_MDS_BACKGROUND_H

#include <stdint.h>

#include "common/base/status.h"

struct mds;

/* Starts a fiber that runs fn(m). mds_stop waits for it, so fn must return soon after
 * m->stopping is set. Returns 0, -LE_NOMEM or what fiber_spawn returns. Does not yield. */
int mds_spawn(struct mds *m, const char *name, void (*fn)(struct mds *m)) CHECK_RESULT;
/* Sleeps for ms milliseconds. Returns 0 then, -LE_SHUTDOWN when the server stops, -LE_TIMEDOUT when
 * the deadline of the calling fiber's request comes first. Yields. */
int mds_sleep_ms(struct mds *m, uint64_t ms) CHECK_RESULT;

#endif
