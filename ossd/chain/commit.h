/*
 * Versions: one change of one chunk of a replicated chain, from the moment it has joined a group
 * commit until all members have it, or it is taken back. Which versions all members hold durably,
 * and who is told.
 *
 * NEW → JOINED (in the open group, and in memory what the next version is made of) → DURABLE
 * (here) → COMMITTED: at the head when it is durable at every SYNC member and the version before
 * it is committed, at others when the head has said so. JOINED, DURABLE → ABORTED (a member cannot
 * have it, or a version before it) or DROPPED (the head does not have it, or this member is none
 * any more).
 *
 * Owned by the target's loop. A version lives until its last user has gone: its chunk's list, the
 * group commit, the fiber that forwards it, the request that waits for it.
 */
#ifndef LEAT_OSSD_CHAIN_COMMIT_H
#define LEAT_OSSD_CHAIN_COMMIT_H

#include "ossd/chain/chain.h"

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
	struct list link;       /* of tx.ent->held; when taken back: of who does it */
	struct list chain_link; /* of chain->pending */
	struct chain *chain;
	struct chunk_tx tx;
	struct commit_member undo;
	struct chunk_key key;
	uint64_t serial;       /* in the order in which the chain's versions have joined */
	uint64_t known;        /* the chain's newest serial when it was known to be the head's */
	uint64_t number, base; /* base 0: there was no chunk */
	uint64_t sum;
	int state;  /* enum version_phase */
	int status; /* ABORTED, DROPPED: what its request is told */
	int behind; /* why the members behind can not have it; 0 */
	uint32_t refs;
	bool chunkless;       /* FORWARD_ANSWER: tx has only a place in the group commit */
	bool durable;         /* here, whatever became of it */
	bool accepted_behind; /* everybody behind holds it in memory */
	bool durable_behind;
	bool forwarding;  /* there is a fiber that does it: forwarder, once it runs */
	bool told;        /* the head has committed it */
	bool unconfirmed; /* of a former epoch, and perhaps not the head's: it stays here */
	bool ended;       /* nothing more will happen: who waits may go */
	bool keep;        /* DROPPED, but stays in the store: a resync will compare it */
	struct fiber *forwarder;
	struct waitq q;
	uint64_t heard_us; /* when the head last spoke of it */
	/* The data for the member behind, in memory as long as there is room for it. */
	struct slot_vec vec[VERSION_VECS];
	uint32_t n_vec;
	/* The answer. replay: of a member behind the head. */
	struct replay_ent *replay;
	uint64_t session, seq;
	uint32_t slot;
	uint16_t op;
	uint8_t answer_len;
	uint8_t answer[REPLAY_REPLY_MAX];
};

/* One reference for the caller. NULL without memory. */
struct version *version_create(struct chain *c);
void version_ref(struct version *v);
void version_unref(struct version *v);
static inline bool version_pending(const struct version *v)
{
	return v->state == VERSION_JOINED || v->state == VERSION_DURABLE;
}

/* At the head: chunk_tx_begin of v->tx, when there is room in the chunk's window and nothing is
 * built on a removal that is not committed; the version's number is set. Yields. */
int version_begin(struct version *v, const struct chunk_key *id) CHECK_RESULT;
/* The same for a write: as chunk_tx_begin_write. Yields. */
int version_begin_write(struct version *v, const struct chunk_write *w) CHECK_RESULT;
/* The same with chunk_tx_begin_over: for a removal. */
int version_begin_over(struct version *v, const struct chunk_key *id) CHECK_RESULT;
/* The rows of the version that go into the open batch, then its place in the group: shown, pending,
 * unlocked. The change has been made (v->tx), the answer filled in. Does not yield. */
void version_join(struct version *v);
/* A version without chunk: just the answer, whose row is in the open batch. Does not yield. */
void version_join_answer(struct version *v);
/* Until it has ended: 0, or what its request is told. accept: r is told when everybody holds it. */
int version_wait(struct version *v, struct rpc_req *r) CHECK_RESULT;
/* Whatever can be committed now of the chunk's versions is. Does not yield. */
void version_settle(struct version *v);
/* Takes back v and all behind it, under the chunk's lock: state is ABORTED or DROPPED, status is
 * v's (the others': -LE_ABORTED). They come into gone, a reference each. Returns the group with
 * which that is durable. Does not yield. */
uint64_t versions_take_back(struct version *v, int state, int status, struct list *gone);
/* They have ended. */
void versions_gone(struct list *gone);

/* Everything that is pending in the chain now has ended, and so is what else had joined. Hurries.
 * -LE_STALE_EPOCH when the epoch changes meanwhile. Yields. */
int chain_barrier(struct chain *c) CHECK_RESULT;
/* The newest version of the chunk that is pending now has ended. Hurries. Yields. */
int chunk_barrier(struct chain *c, const struct chunk_key *id) CHECK_RESULT;
/* Somebody waits for what is pending: here and behind. Does not yield. */
void chain_hurry(struct chain *c);

/* ---- messages ---- */
int chain_committed(struct chain *c, const struct oss_commit_req *req) CHECK_RESULT;
/* answers: room for as many version_state as there are notes. */
int chain_resolve(struct chain *c, struct bytes notes, struct wire_w *answers) CHECK_RESULT;

/* ---- for chain.c ---- */
struct adoption {
	bool was_head, was_sync;
	bool behind_may_lack; /* who is behind now may not have what was durable behind */
	bool head_may_lack;   /* who is head now may not have what is pending here */
};
void versions_adopted(struct chain *c, const struct adoption *how);
int versions_start(struct chains *cs) CHECK_RESULT;
void versions_stop(struct chains *cs);
/* After the last request has ended. Yields. */
void versions_end(struct chains *cs);
void versions_free(struct chains *cs);

#endif
