/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Returns leases of evicted inodes to the MDS, many in one request, so that it need not recall them
 * one by one. If the kernel may still cache an inode's attributes, the lease is returned after
 * these have expired. Until then the MDS can recall it, and the client makes the kernel drop the
 * attributes.
 *
 * A reply to a request sent before the return grants no lease (lease_grant.h). That is recorded per
 * inode for EXACT_US, then per hash bucket.
 *
 * Owned by the client's loop. At most LEASE_RETURN_MAX entries. A lease that does not fit is
 * recalled later, without effect.
 */
#ifndef LEAT_CLIENT_CACHE_LEASE_RETURN_H
#define LEAT_CLIENT_CACHE_LEASE_RETURN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/hmap.h"
#include "common/base/list.h"
#include "common/proto/types.h"

struct client;

#define LEASE_RETURN_SLOTS 8192u
#define LEASE_RETURN_MAX   (1u << 17)

/* The queue of leases to be returned. */
struct lease_returns {
	struct hmap map;
	struct list due;     /* to be returned now */
	struct list waiting; /* to be returned when the kernel's attributes have expired */
	struct list left;    /* returned, oldest first */
	uint32_t n_due, n_returning;
	uint64_t old_us[LEASE_RETURN_SLOTS]; /* by hash: replies to older requests grant no lease */
};

/* Returns the memory of the queue in bytes. */
uint64_t lease_returns_bytes(const struct lease_returns *ds);
/* Initialises the queue. */
void lease_returns_init(struct lease_returns *ds);
/* Frees all entries, without returning leases. */
void lease_returns_fini(struct lease_returns *ds);
/* Queues the lease of an evicted inode, or one that was granted but not taken. The kernel may cache
 * its attributes until kernel_until_us (0: it does not). Returns false if there is no space. Does
 * not look up inodes and does not yield. */
bool lease_return_add(struct client *c, struct ino ino, uint64_t kernel_until_us);
/* Records a recall at at_us: replies to older requests grant no lease. Does not yield. */
void lease_return_recalled(struct client *c, struct ino ino, uint64_t at_us);
/* Returns true if a request sent at sent_us is too old to grant a lease on ino. Does not yield. */
bool lease_return_is_newer(const struct client *c, struct ino ino, uint64_t sent_us);
/* Returns leases that are due, in the background, and drops old entries. Called by the client's
 * tick. Does not yield. */
void lease_returns_tick(struct client *c);
/* Notifies the kernel to drop the attributes of all queued inodes that it may still cache. */
void lease_returns_invalidate(struct client *c);

#endif
