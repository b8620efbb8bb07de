/* SPDX-License-Identifier: Apache-2.0 */
/* Handles the recall of one lease, and the end of all leases. Owned by the client's loop. */
#ifndef LEAT_CLIENT_OPS_RECALL_H
#define LEAT_CLIENT_OPS_RECALL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/proto/types.h"

struct cb_recall_req;
struct client;

/* Called when a session is opened, or resumed at a restarted MDS: ends all leases. On return the
 * kernel caches no older names and attributes. lease_ms: the new lease time. goes_on: the session
 * continues and the MDS accepts reclaims; shared leases then stay if the old lease time has not
 * passed, because the MDS changes nothing until it has the reclaims. Yields. */
void lease_void_all(struct client *c, uint32_t lease_ms, bool goes_on);
/* Called by the client's tick: ends all leases if the MDS has not replied for the lease time, and
 * returns leases of evicted inodes. Does not yield. */
void lease_tick(struct client *c);

/* Handles cb_recall. For LEASE_APPEND: see append_recall. For LEASE_CACHING, returns when nothing
 * of the inode is cached and all written data is visible. Returns 0, -LE_INTR, or the error of
 * reporting a delegated open. Yields. */
int lease_recall(struct client *c, const struct cb_recall_req *req) CHECK_RESULT;
/* Handles cb_owner. If the inode is open, returns when the kernel has been notified of the new
 * owner. Yields. */
int lease_owner_changed(struct client *c, struct ino ino) CHECK_RESULT;

#endif
