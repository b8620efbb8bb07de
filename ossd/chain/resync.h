/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fills SYNCING members of chains in which this target is the tail: one job, with a separate
 * fiber, for each member and epoch.
 *
 *    query the member → LOGGED: the chunks of both sides' rows, or FULL: all, window by window
 *    → ROWS: replies and floor → notify the metadata server → REPORTED
 *
 * A window is a range of chunks. While the chunks of both sides are listed, changes in it are only
 * recorded. Then its todo list is completed without a yield: chunks that differ, are pending or
 * were recorded. From then on every chunk before or in the window that is not on the list is
 * *covered*: it is equal, and new versions of it are forwarded to the member. A chunk on the list
 * becomes covered when it has been made equal, under its lock. A log needs one window, which
 * includes all chunks.
 *
 * Any failure ends the attempt. The job repeats it after a pause, as long as the epoch lasts and
 * the member is SYNCING. Chunks that were copied are then equal. Owned by the target's loop.
 */
#ifndef LEAT_OSSD_CHAIN_RESYNC_H
#define LEAT_OSSD_CHAIN_RESYNC_H

#include "ossd/chain/chain.h"
#include "ossd/chain/chain_log.h"
#include "ossd/chain/maintenance_turn.h"

#define RESYNC_COPY_MS 20000u /* limit for one oss_resync_chunk, in which the member copies a
                               * chunk */

struct resync;
struct maintenance;

struct resync_options {
	struct chains *chains;
	struct maintenance *maintenance; /* copies chunks, and repairs those that the source
	                                  * cannot read */
	struct chain_log *log;
	struct maintenance_turns *turns;
	const struct ossd_params *p;
	struct ossd_metrics *metrics;
	/* Sends mds_chain_synced. Yields. */
	int (*synced)(void *arg, uint32_t chain, uint32_t epoch, uint32_t target);
	void *arg;
};

enum resync_phase {
	RESYNC_IDLE, /* waits for a free place among resync_parallel jobs */
	RESYNC_LOGGED,
	RESYNC_FULL,
	RESYNC_ROWS,
	RESYNC_REPORTED,
	RESYNC_FAILED,
};
#define N_RESYNC_PHASES 6

/* Creates the resync and watches o->log for changes. Jobs are started by resync_adopted. Does
 * not yield. */
int resync_start(const struct resync_options *o, struct resync **ret_resync) CHECK_RESULT;
/* Cancels all jobs, and yields until they have ended. */
void resync_stop(struct resync *r);

/* Call when the chain has a new epoch, or was dropped. Does not yield, like the next two. */
void resync_adopted(struct resync *r, struct chain *c);
/* True if the SYNCING member gets new versions of this chunk. Call after the version has joined,
 * not before. k NULL: true if the member is being filled. */
bool resync_fills(struct resync *r, struct chain *c, uint32_t target, const struct chunk_key *k);
/* Call when a version did not reach the member, so that it is no longer equal. False: the member
 * was reported as complete, so it must get the version. */
bool resync_failed(struct resync *r, struct chain *c, uint32_t target);

/* State of a running job, for status pages and heartbeats. */
struct resync_progress {
	uint32_t chain, target, epoch;
	enum resync_phase phase;
	bool logged;
	uint64_t compared, copied, removed, bytes; /* chunks; bytes copied */
	uint64_t left; /* chunks left to compare; in a full comparison only those of the window */
};
/* Fills in at most max entries. Returns their number. */
uint32_t resync_progress(const struct resync *r, struct resync_progress *ret, uint32_t max);
const char *resync_phase_name(enum resync_phase phase);

#endif
