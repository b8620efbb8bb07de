/*
 * Who is a member of which chain, in which state: the metadata server's side of
 * ossd/chain/README.md, "Membership", "Failure" and "Return".
 *
 * Every change is one move of one member, by the table in membership.c; what changes together is
 * one durable transaction with epochs raised, and one message per target afterwards. The rules:
 *
 *   - a SYNC member is taken away only while another SYNC member has just answered, or none is left
 *     that could: then the first one that is back leads, for every SYNC member is complete;
 *   - who lost the right to serve and lives is told before those who stay, in whatever way these
 *     would hear of it, or its lease has run out: a target that there is news for gets neither
 *     these nor a lease until then;
 *   - who restarted is not told of its chains before it is decided what it is in them.
 *
 * Owned by the loop; c->lock is held over each decision.
 */
#ifndef LEAT_MDS_MEMBERSHIP_H
#define LEAT_MDS_MEMBERSHIP_H

#include "mds/cluster.h"

/* The last server may have decided what it had no time to tell: whoever may have served is told
 * where it may not now, before anybody hears of anything else; and leases count from now. Once the
 * server listens, before it takes a request. */
int membership_start(struct cluster *c) CHECK_RESULT;
/* Nobody is yet to stop. */
bool membership_may_tell(const struct cluster *c);

/* Brings all chains in line with what is known of the targets: who is dead is taken out, who is
 * back is filled up, who restarted is judged. Where that has to wait for somebody's answer it is
 * left for the next call. Yields. */
int membership_reconcile(struct cluster *c) CHECK_RESULT;
/* After a registration: waits until the target may be told of its chains. -LE_NOT_READY. Yields. */
int membership_settle(struct cluster *c, struct target *t) CHECK_RESULT;
/* The source says that a member is complete. -LE_STALE_EPOCH, -LE_INVAL. Yields. */
int membership_synced(struct cluster *c, const struct mds_chain_synced_req *in,
		      struct mds_chain_synced_rep *out) CHECK_RESULT;
/* Chains that are whole are led by whom they were made for, so that the lead is even. Yields. */
int membership_even_heads(struct cluster *c) CHECK_RESULT;
/* Everything that target held is gone: out of all chains at once. Yields. */
int membership_bad(struct cluster *c, struct target *t) CHECK_RESULT;

/* How many chains have all their copies, have lost some, serve nobody; how many have a member that
 * is being filled, a member that is to leave. */
struct chain_health {
	uint32_t whole, degraded, down, syncing, moving;
};
void membership_health(const struct cluster *c, struct chain_health *ret_h);

/* ---- sets of moves, for replace.c; under c->lock ---- */
struct moves {
	struct cluster *c;
	struct chain *next; /* new values of chains, each once */
	uint32_t n, cap;
	int status; /* -LE_NOMEM: nothing will be done */
};
/* The value that the chain will have, to be changed by the next two. NULL without memory. */
struct chain *moves_chain(struct moves *m, const struct chain *ch);
#define MEMBER_NONE 3 /* not a member: as state of a move */
void member_move(struct chain *next, uint32_t target, int state);
/* Durable with epochs raised, then known and told; the set is empty afterwards. Nothing to do is
 * fine. Yields. */
int moves_commit(struct moves *m) CHECK_RESULT;

#endif
