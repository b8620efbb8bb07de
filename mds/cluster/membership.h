/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Membership: which targets are members of which chain, and in which state. This is the metadata
 * server's side of ossd/chain/README.md, "Membership", "Failure" and "Return".
 *
 * A change is a set of moves; a move changes one member, by the table in membership.c. Moves that
 * belong together are one durable transaction that raises the epochs, followed by one message to
 * each target. The rules:
 *
 *   - A SYNC member is removed only while another SYNC member has just replied, or if none is left
 *     that could reply. Then the first one that returns leads: every SYNC member is complete.
 *   - A live target that lost the right to serve is notified before the targets that stay, or its
 *     lease expires first. Until then a target with pending changes gets neither the changes nor a
 *     lease, by heartbeat or otherwise.
 *   - A target that has restarted is not sent its chains before its state in them is decided.
 *
 * Owned by the loop; c->lock is held over each decision.
 */
#ifndef LEAT_MDS_CLUSTER_MEMBERSHIP_H
#define LEAT_MDS_CLUSTER_MEMBERSHIP_H

#include "mds/cluster/cluster.h"

/* Called once the server listens, before it serves a request. The previous process may have decided
 * changes that it did not send. So each target that may have served is first sent the chains that
 * it may no longer serve, and only then do targets receive changes. All leases count from now.
 * Returns 0 or -LE_NOMEM. Does not yield. */
int membership_start(struct cluster *c) CHECK_RESULT;
/* True if no target has yet to stop, so that targets may be sent changes. Does not yield. */
bool membership_may_notify(const struct cluster *c);

/* Updates all chains to the states of the targets: removes dead targets, starts filling returned
 * ones, decides the state of restarted ones. A decision that needs the reply of a silent target is
 * left to the next call. Returns 0, -LE_NOMEM or the error of the store. Yields. */
int membership_reconcile(struct cluster *c) CHECK_RESULT;
/* Called after a registration: waits until the target may be sent its chains. Returns 0,
 * -LE_NOT_READY after a bounded wait, -LE_INTR, or the error of the store. Yields. */
int membership_settle(struct cluster *c, struct target *t) CHECK_RESULT;
/* Makes a member SYNC that the member which fills it reports as complete. Returns 0 (also for a
 * repeated report), -LE_STALE_EPOCH, -LE_INVAL or the error of the store. Yields. */
int membership_synced(struct cluster *c, const struct mds_chain_synced_req *in,
		      struct mds_chain_synced_rep *out) CHECK_RESULT;
/* Gives the lead of whole chains back to the targets that they were made for, so that each target
 * leads about as many. Returns 0 or the error of the store. Yields. */
int membership_even_heads(struct cluster *c) CHECK_RESULT;
/* Marks a target bad, because its store cannot be trusted, and removes it from all chains that
 * have another SYNC member, in one transaction. Returns 0 or the error of the store. Yields. */
int membership_bad(struct cluster *c, struct target *t) CHECK_RESULT;

/* Numbers of chains. whole: with all copies; degraded: with fewer; down: with none that can serve.
 * Of these, syncing: with a member that is being filled; moving: with a member that is to leave.
 * lost: in addition, chains that were given up with their data. */
struct chain_health {
	uint32_t whole, degraded, down, syncing, moving, lost;
};
/* Counts the chains. Does not yield. */
void membership_health(const struct cluster *c, struct chain_health *ret_h);

/* ---- sets of moves; the caller holds c->lock ---- */
struct moves {
	struct cluster *c;
	struct chain *next; /* new values of chains, each once */
	uint32_t n, cap;
	int status; /* < 0: the set will not be applied, and moves_commit returns this */
	/* A target that gets new flags in the same transaction, NULL: none. */
	struct target *target;
	uint32_t flags;
};
/* The new value of the chain, which member_move() or the caller changes. Returns NULL without
 * memory. Does not yield. */
struct chain *moves_chain(struct moves *m, const struct chain *ch);
#define MEMBER_NONE 3 /* state in a move: not a member */
/* Gives the target that state in the chain; asserts that the table of moves allows it. */
void member_move(struct chain *next, uint32_t target, int state);
/* Makes the set durable with raised epochs, applies it to the map and notifies the targets in the
 * background. Empties the set. Returns 0, also for an empty set, m->status, or the error of the
 * store. Yields. */
int moves_commit(struct moves *m) CHECK_RESULT;

#endif
