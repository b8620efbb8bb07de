/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long the kernel may cache the attributes and names that a mount gives it (ll_attr_us,
 * ll_name_us, ll_leased). Owned by the client's loop.
 */
#ifndef LEAT_CLIENT_CACHE_KERNEL_CACHE_H
#define LEAT_CLIENT_CACHE_KERNEL_CACHE_H

#include "common/proto/types.h"

struct client;

/* Called before a name moves from directory `from` to `to`. The kernel does not change the expiry
 * of its entry, so a recall of `to` must wait at least as long as one of `from`. Does not yield. */
void lease_name_moves(struct client *c, struct ino from, struct ino to);
/* Called after the move. If this client has no lease on `to`, so that no recall will wait for the
 * kernel, waits here until the kernel's entry has expired. Yields. */
void lease_name_moved(struct client *c, struct ino from, struct ino to);

#endif
