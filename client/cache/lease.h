/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the client has a lease on an inode. Owned by the client's loop. No function yields. */
#ifndef LEAT_CLIENT_CACHE_LEASE_H
#define LEAT_CLIENT_CACHE_LEASE_H

#include <stdbool.h>
#include <stdint.h>

struct client;
struct inode;

/* Returns true if the client has a lease: cached state is valid, and no other client changes the
 * inode before the MDS has recalled the lease. */
bool lease_held(const struct client *c, const struct inode *i);
/* Returns true if the present lease was already held at since_us: a reply to a request sent then is
 * covered by it. */
bool lease_held_since(const struct client *c, const struct inode *i, uint64_t since_us);

#endif
