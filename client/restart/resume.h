/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that takes over from another continues with the open files, locks and data marks in
 * restart memory. Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_RESTART_RESUME_H
#define LEAT_CLIENT_RESTART_RESUME_H

#include "common/base/status.h"

struct client;

/* Called after the first session and map. Fetches attributes and locks of the files that were open,
 * and determines whether their data is durable or may be lost. Returns 0 or an error. Yields. */
int restart_resume(struct client *c) CHECK_RESULT;
/* Called by the client's tick: after SETTLED_US, ends the work that the previous process had begun.
 * Does not yield. */
void restart_resume_tick(struct client *c);

#endif
