/*
 * Sending a version to the members behind: the next SYNC one; at the tail every SYNCING one that
 * resync.c has brought so far. A fiber for each version, as long as it is pending and not durable
 * there; it tries again when the connection breaks, the member is slow, or the epoch changes.
 */
#ifndef LEAT_OSSD_CHAIN_FORWARD_H
#define LEAT_OSSD_CHAIN_FORWARD_H

#include "ossd/chain/commit.h"

/* Holds the data of a write for the member behind: w's and that of merged blocks. When memory is
 * short it does not, and the disk is read instead. Before join. */
void forward_keep(struct version *v, const struct chunk_write *w);
void forward_release(struct version *v);
/* Starts the fiber; without a member behind, the version is durable there already. After join.
 * Does not yield. */
void forward_start(struct version *v);
/* Whoever waits for a member behind looks at the epoch again. */
void forward_interrupt(struct version *v);
/* The members behind, as enum above: how many (0: this is the end). */
uint32_t forward_targets(struct chain *c, const struct chunk_key *key,
			 uint32_t targets[CHAIN_MEMBERS_MAX]);
/* Tells the members behind that the versions from in->version to in->upto of in->chunk are taken
 * back, and in->base is the newest again: 0 when that is durable there. epoch: in which they were
 * taken back here. Ends when somebody else is head, or may have been. Yields. */
int forward_abort(struct chain *c, const struct oss_forward_req *in, uint32_t epoch) CHECK_RESULT;
/* Is a failure of the member behind one of the version (it must be aborted), or one that may pass?
 * */
bool forward_is_final(int status);

#endif
