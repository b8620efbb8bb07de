/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Background work of a target: resync of other members, copies for this one, repair of damaged
 * blocks, scrub, removal of chunks of chains that this target has left. Owned by the target's
 * loop.
 */
#ifndef LEAT_OSSD_CHAIN_MAINTENANCE_H
#define LEAT_OSSD_CHAIN_MAINTENANCE_H

#include "ossd/chain/resync.h"
#include "ossd/chunk/chunk_copy.h"

struct maintenance {
	struct chains *chains;
	struct chunk_store *s;
	struct env *env;
	const struct ossd_params *p;
	struct ossd_metrics *metrics;
	struct maintenance_turns turns;
	struct resync *resync;
	struct slot_pool *copies; /* for data from other members */
	uint64_t incarnation;     /* changes with each start */
	struct list repairing;    /* chunks that are being repaired */
	uint64_t damage_seen;     /* damaged blocks since the last scrub began */
	bool drop_due, members_known, stopping;
	bool index_damaged; /* found by background work: the target reports it, and ends */
	struct fiber *dropper;
	struct latch fibers;
};

struct maintenance_options {
	struct chains *chains; /* maintenance uses its log, and sets its hooks */
	struct transport *transport;
	const struct ossd_params *p;
	struct ossd_metrics *metrics;
	/* Sends mds_chain_synced. Yields. */
	int (*synced)(void *arg, uint32_t chain, uint32_t epoch, uint32_t target);
	void *arg;
};
/* Call after chains_open, before any chain is adopted. */
int maintenance_start(const struct maintenance_options *o,
		      struct maintenance **ret_care) CHECK_RESULT;
/* Call after chains_stop, before chains_close. Yields until all work has ended. */
void maintenance_stop(struct maintenance *k);
/* Call when no request is left either. */
void maintenance_free(struct maintenance *k);

/* Call when the metadata server has sent all chains of which this target is a member, and they are
 * adopted: chunks of other chains may be removed. Does not yield. */
void maintenance_members_known(struct maintenance *k);

/* Records the result of background work. -LE_CORRUPT_STORE means this target's index: chains_call
 * does not return the status of another one. Does not yield. */
static inline void maintenance_noticed(struct maintenance *k, int rc)
{
	k->index_damaged |= rc == -LE_CORRUPT_STORE;
}

#endif
