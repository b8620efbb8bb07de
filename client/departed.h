/*
 * Inodes that the client does not remember any more, but of which the MDS believes that it has a
 * lease: given back, many at a time, so that nobody has to recall them. Those of which the kernel
 * still has attributes are given back when these have gone by themselves; until then a recall finds
 * them here.
 *
 * What was asked for before a lease was given back gives none (lease.h): that is known of each
 * inode for a while, then of all with the same hash.
 *
 * Owned by the client's loop. Bounded by DEPARTED_MAX; what finds no room is recalled in vain some
 * day.
 */
#ifndef LEAT_CLIENT_DEPARTED_H
#define LEAT_CLIENT_DEPARTED_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/hmap.h"
#include "common/base/list.h"
#include "common/proto/types.h"

struct client;

#define DEPARTED_SLOTS 8192u
#define DEPARTED_MAX   (1u << 17)

struct departures {
	struct hmap map;
	struct list due;     /* to be given back now, */
	struct list waiting; /* or when the kernel has nothing of them; */
	struct list left;    /* given back, oldest first */
	uint32_t n_due, n_returning;
	uint64_t old_us[DEPARTED_SLOTS]; /* by hash: older requests give no lease */
};

void departures_init(struct departures *ds);
void departures_fini(struct departures *ds);
/* The client has forgotten ino, or has not taken the lease that it was given. The kernel may have
 * attributes until that time. False: there is no room. Looks no inode up and does not yield. */
bool departed(struct client *c, struct ino ino, uint64_t kernel_until_us);
/* It has been recalled: what was asked for before then gives no lease. */
void departed_recalled(struct client *c, struct ino ino, uint64_t at_us);
/* Whether a request of that time is too old to give a lease on ino. */
bool departed_since(const struct client *c, struct ino ino, uint64_t sent_us);
/* Gives back what is due. Now and then. */
void departures_tick(struct client *c);
/* Tells the kernel to forget what it may still have of them. */
void departures_invalidate(struct client *c);

#endif
