/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A version is one change of one chunk of a replicated chain. It exists from the time it joins a
 * group commit until all members have it, or it is aborted. The head determines which versions all
 * members hold durably, and notifies the members.
 *
 * NEW → JOINED (in the open group; the next version builds on it) → DURABLE (at this member) →
 * COMMITTED: at the head when it is durable at every SYNC member and the version before it is
 * committed, at others when the head has notified them. JOINED, DURABLE → ABORTED (a member cannot
 * store it, or a version before it) or DROPPED (the head does not have it, or this target has left
 * the chain).
 *
 * Owned by the target's loop. References to a version are held by its chunk's list, the group
 * commit, the fiber that forwards it, and the request that waits for it.
 */
#ifndef LEAT_OSSD_CHAIN_COMMIT_H
#define LEAT_OSSD_CHAIN_COMMIT_H

#include "ossd/chain/chain.h"
#include "ossd/chunk/chunk_tx.h"

enum version_phase {
	VERSION_NEW,
	VERSION_JOINED,
	VERSION_DURABLE,
	VERSION_COMMITTED,
	VERSION_ABORTED,
	VERSION_DROPPED,
};
#define N_VERSION_PHASES 6
#define VERSION_VECS     24u
#define CHAIN_NOTES_MAX  1024u

struct version {
	struct list link;       /* in tx.ent->held; once aborted or dropped: in a list of
	                         * versions_take_back() */
	struct list chain_link; /* in chain->pending */
	struct chain *chain;
	struct chunk_tx tx;
	struct commit_member undo;
	struct chunk_key key;
	uint64_t serial;       /* ascending in the order in which the chain's versions joined */
	uint64_t known;        /* the chain's newest serial when the head was last confirmed to
	                        * have it */
	uint64_t number, base; /* base 0: the chunk did not exist */
	uint64_t sum;
	int state;  /* enum version_phase */
	int status; /* ABORTED, DROPPED: the status for its request */
	int behind; /* error of the members downstream, which do not have it; 0: none */
	uint32_t refs;
	/* The bools are no phases, which `state` has. Each notes what this member, a member
	 * downstream or the head has done, and they do these things in any order. */
	bool chunkless;       /* FORWARD_ANSWER: tx is used only as a member of the group commit */
	bool durable;         /* at this member, even if it was aborted since */
	bool accepted_behind; /* all members downstream hold it in memory */
	bool durable_behind;
	bool forwarding;  /* a fiber forwards it: forwarder, once that runs */
	bool told;        /* the head has committed it */
	bool unconfirmed; /* of an earlier epoch, and possibly not at the head: not forwarded */
	bool ended;       /* final: waiting requests return */
	bool keep;        /* DROPPED, but stays in the store until a resync compares it */
	struct fiber *forwarder;
	struct waitq q;
	uint64_t head_contact_us; /* when the head last mentioned it */
	/* The data for the next member, kept in memory while slots permit. */
	struct slot_vec vec[VERSION_VECS];
	uint32_t n_vec;
	/* The reply to the client. replay: only at members downstream of the head. */
	struct replay_ent *replay;
	uint64_t session, seq;
	uint32_t slot;
	uint16_t op;
	uint8_t answer_len;
	uint8_t answer[REPLAY_REPLY_MAX];
};

/* Returns a version with one reference. NULL: no memory. */
struct version *version_create(struct chain *c);
void version_ref(struct version *v);
void version_unref(struct version *v);
static inline bool version_pending(const struct version *v)
{
	return v->state == VERSION_JOINED || v->state == VERSION_DURABLE;
}

/* Begins v->tx at the head with chunk_tx_begin, when the chunk's window has space and no removal
 * of it is pending, and sets the version's number. Yields. */
int version_begin(struct version *v, const struct chunk_key *id) CHECK_RESULT;
/* Like version_begin, for a write: also waits like chunk_tx_begin_write. Yields. */
int version_begin_write(struct version *v, const struct chunk_write *w) CHECK_RESULT;
/* Like version_begin, but with chunk_tx_begin_over: for a removal. Yields. */
int version_begin_over(struct version *v, const struct chunk_key *id) CHECK_RESULT;
/* Call when v->tx has made its change and the reply is filled in. Adds the version's rows to the
 * open batch and joins the group: the version is visible and pending, and the chunk is unlocked.
 * Does not yield. */
void version_join(struct version *v);
/* Joins a version without a chunk: only a reply. Its row is in the open batch. Does not yield. */
void version_join_answer(struct version *v);
/* Waits until the version has ended. Returns 0, or the status for its request. Sends ACCEPTED for
 * r when all members hold the version in memory. Yields. */
int version_wait(struct version *v, struct rpc_req *r) CHECK_RESULT;
/* Commits all versions of the chunk that can be committed now. Does not yield. */
void version_settle(struct version *v);
/* Takes back v and all later versions of the chunk. Call under the chunk's lock. Their state
 * becomes ABORTED or DROPPED; status is that of v (the others': -LE_ABORTED). They are moved into
 * the list, with a reference each. Returns the group with which this is durable. Does not yield. */
uint64_t versions_take_back(struct version *v, int state, int status, struct list *gone);
/* Ends the versions in the list, and drops their references. */
void versions_gone(struct list *gone);

/* Expedites and awaits everything that is pending in the chain, and what else has joined. Returns
 * -LE_STALE_EPOCH if the epoch changes meanwhile. Yields. */
int chain_barrier(struct chain *c) CHECK_RESULT;
/* Expedites and awaits the newest pending version of the chunk. Yields. */
int chunk_barrier(struct chain *c, const struct chunk_key *id) CHECK_RESULT;

/* ---- messages ---- */
int chain_committed(struct chain *c, const struct oss_commit_req *req) CHECK_RESULT;
/* Answers an oss_resolve. answers: needs space for as many version_state as there are notes. */
int chain_resolve(struct chain *c, struct bytes notes, struct wire_w *answers) CHECK_RESULT;

/* ---- for chains.c ---- */
struct adoption {
	bool was_head, was_sync;
	bool behind_may_lack; /* the next members may lack what was durable at those before them */
	bool head_may_lack;   /* the new head may lack versions that are pending here */
};
/* Call when the chain has a new epoch: drops the versions of a target that has left or was away,
 * forwards the others again, and makes a new head take over what is pending. Does not yield. */
void versions_adopted(struct chain *c, const struct adoption *how);
/* Starts the fiber that queries heads about versions without news. */
int versions_start(struct chains *cs) CHECK_RESULT;
/* Wakes everything that waits for a version, after cs->stopping was set. Does not yield. */
void versions_stop(struct chains *cs);
/* Call after the last request has ended. Yields. */
void versions_end(struct chains *cs);
void versions_free(struct chains *cs);

#endif
