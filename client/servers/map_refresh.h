/* SPDX-License-Identifier: Apache-2.0 */
/* Fetches the cluster map from the metadata server. Owned by the client's loop. */
#ifndef LEAT_CLIENT_SERVERS_MAP_REFRESH_H
#define LEAT_CLIENT_SERVERS_MAP_REFRESH_H

#include <stdint.h>

#include "common/base/status.h"

struct client;

/* Fetches and applies the map. At most one fetch runs; a further caller waits for its end, until
 * deadline_us. Returns 0 or the error of the caller's fetch or wait. After a wait, 0 does not mean
 * that the fetch succeeded. Yields. */
int map_refresh(struct client *c, uint64_t deadline_us) CHECK_RESULT;
/* Starts a background fiber that fetches the map until its epoch is the newest that a reply has
 * mentioned. Returns 0 or why the fiber did not start. Does not yield. */
int map_refresh_start(struct client *c) CHECK_RESULT;

#endif
