/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The leases of this client (mds/lease/leases.h). While it has a lease on an inode, its cached
 * state is valid, and the kernel may cache it too. Replies of the MDS grant leases (ATTR_LEASED),
 * and cb_recall recalls them. All leases end when the MDS has not replied for the lease time, when
 * it has restarted, and when the session ends.
 *
 * A reply and a recall may overtake each other: a reply grants a lease only if its request was sent
 * after the last recall. A recall waits for requests of this client only as far as they make
 * written data visible.
 *
 * Owned by the client's loop. No function yields.
 */
#ifndef LEAT_CLIENT_CACHE_LEASE_GRANT_H
#define LEAT_CLIENT_CACHE_LEASE_GRANT_H

#include <stdbool.h>
#include <stdint.h>

#include "client/cache/lease_return.h"
#include "common/rt/fiber.h"

struct attr;
struct client;
struct inode;

/* How long after their expiry the kernel may still use attributes. The value is generous, because a
 * superfluous notification does no harm. */
#define KERNEL_ATTR_LATE_US 1000000u

/* The lease state of a client. */
struct client_leases {
	uint64_t term_us;     /* how long leases last after last_contact_us */
	uint64_t last_contact_us;    /* when the newest answered request was sent */
	uint64_t void_us;     /* leases from older requests are void */
	uint64_t unshared_us; /* shared leases from older requests are void */
	bool lapsed;          /* leases have expired without contact, and lease_tick has ended
	                       * them */
	/* ops/delegated_open.h: inodes with delegated opens that are not reported to the MDS; and
	 * changes in flight that may hit any inode, during which no open is delegated. */
	uint32_t n_unreported_opens, n_blind;
	/* serialises reports of delegated opens to the MDS */
	struct fmutex reporting;
	struct lease_returns lease_returns; /* leases of evicted inodes */
};

/* Takes a lease that a reply grants, unless the request was sent before the last recall or return;
 * then the lease is queued for return. sent_us: when the request was sent. */
void lease_given(struct client *c, struct inode *i, uint64_t sent_us);

/* Records whether a reply, already merged into i->attr, grants a shared lease. */
void lease_shared_update(struct client *c, struct inode *i, const struct attr *attr,
			 uint64_t sent_us);
/* Drops the inode's leases after a truncation by this client that failed but may still take effect
 * at the MDS. */
void lease_invalidate(struct inode *i);
/* Like lease_invalidate, and drops cached data, in the kernel too (in the background). For a
 * truncation that may have begun. */
void lease_invalidate_data(struct client *c, struct inode *i);
/* Called after this client's last close of a file: drops its shared lease and queues it for return.
 * i->data must still exist. */
void lease_shared_end(struct client *c, struct inode *i);
/* Returns true if the inode has a valid shared lease, to be reported to a restarted MDS. */
bool lease_shared_lasts(const struct client *c, const struct inode *i);
/* Drops the shared lease of one inode. Used when a write lease is reclaimed for it instead. */
void lease_unshare(struct inode *i);
/* Drops all shared leases: all leases end, or the restarted MDS had no space for them. */
void lease_unshare_all(struct client *c);
/* Initialises and frees the client's lease state. */
void lease_init(struct client *c);
void lease_fini(struct client *c);
/* Called when the inode leaves the cache. Queues its lease, to be returned when the kernel's
 * attributes have expired. If the queue is full, makes the kernel drop them. */
void lease_on_evict(struct client *c, const struct inode *i);

/* Returns true if the kernel may still cache attributes of the inode, perhaps from the previous
 * process. */
bool kernel_has_attr(const struct client *c, const struct inode *i);

#endif
