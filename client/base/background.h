/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Background fibers of a client, for which client_destroy waits, and the deadline of one operation.
 * Owned by the client's loop. No function yields.
 */
#ifndef LEAT_CLIENT_BASE_BACKGROUND_H
#define LEAT_CLIENT_BASE_BACKGROUND_H

#include <stdint.h>

#include "common/base/status.h"

struct client;

/* Starts fn(arg) as a fiber of the client's loop; client_destroy waits for it. fn calls
 * client_bg_end as its last step. Returns 0 or the error of fiber_spawn_on. */
int client_bg_spawn(struct client *c, const char *name, void (*fn)(void *arg),
		    void *arg) CHECK_RESULT;
/* Called by a background fiber as its last step: client_destroy no longer waits for it. The fiber
 * must not use the client afterwards. */
void client_bg_end(struct client *c);
/* Returns the earlier of two times: the running fiber's deadline, and request_timeout_ms from
 * now. */
uint64_t client_deadline(const struct client *c);

#endif
