/*
 * Fills the SYNCING members of the chains whose tail this target is: one job, with a fiber of its
 * own, for each member and epoch.
 *
 *   ask the member → LOGGED: the chunks of both sides' rows, or FULL: all, window by window
 *   → ROWS: answers and floor → tell the metadata server → REPORTED
 *
 * A window is a range of chunks. While both sides are listed, changes in it are only noted. Then,
 * without a yield, its todo list is complete (what differs, is pending or was noted), and from this
 * moment every chunk behind or in the window that is not on the list is *covered*: it is equal, and
 * new versions of it go to the member. A chunk on the list becomes covered when it has been made
 * equal, under its lock. A log needs one window: everything.
 *
 * Any failure ends the job; it begins again after a pause, as long as the epoch lasts and the
 * member is SYNCING. What was copied is found equal then. Owned by the target's loop.
 */
#ifndef LEAT_OSSD_RESYNC_H
#define LEAT_OSSD_RESYNC_H

#include "ossd/chain/chain.h"
#include "ossd/chain/chain_log.h"
#include "ossd/chain/pace.h"

struct resync;

struct care;
struct resync_options {
	struct chains *chains;
	struct care *care; /* copies, and repairs what the source cannot read */
	struct chain_log *log;
	struct pace *pace;
	const struct ossd_params *p;
	struct ossd_metrics *metrics;
	/* mds_chain_synced. Yields. */
	int (*synced)(void *arg, uint32_t chain, uint32_t epoch, uint32_t target);
	void *arg;
};

enum resync_phase {
	RESYNC_IDLE, /* waits for its turn */
	RESYNC_LOGGED,
	RESYNC_FULL,
	RESYNC_ROWS,
	RESYNC_REPORTED,
	RESYNC_FAILED,
};
#define N_RESYNC_PHASES 6

int resync_start(const struct resync_options *o, struct resync **ret_resync) CHECK_RESULT;
/* Yields until all jobs have ended. */
void resync_stop(struct resync *r);

/* The chain has a new epoch, or was dropped. Does not yield, like the next two. */
void resync_adopted(struct resync *r, struct chain *c);
/* Does the SYNCING member get new versions of this chunk? To be asked when the version has joined,
 * not before. k NULL: is it being filled at all? */
bool resync_fills(struct resync *r, struct chain *c, uint32_t target, const struct chunk_key *k);
/* A version did not reach the member: what it has is not equal any more. False: it has been
 * reported as complete, so it must have the version. */
bool resync_failed(struct resync *r, struct chain *c, uint32_t target);

/* Of a running job, for status pages and heartbeats. */
struct resync_progress {
	uint32_t chain, target, epoch;
	enum resync_phase phase;
	bool logged;
	uint64_t compared, copied, removed, bytes; /* chunks; bytes copied */
	uint64_t left; /* chunks known to be left; of a full comparison those of the window */
};
/* At most max; how many there are. */
uint32_t resync_progress(const struct resync *r, struct resync_progress *ret, uint32_t max);
const char *resync_phase_name(enum resync_phase phase);

#endif
