/*
 * What keeps the chunks of a target whole, put together: resync of other members, copies for this
 * one, repair of damaged blocks, scrub, removal of what belongs to chains that have left. Owned by
 * the target's loop.
 */
#ifndef LEAT_OSSD_CARE_H
#define LEAT_OSSD_CARE_H

#include "ossd/chain/resync.h"
#include "ossd/chunk/chunk_copy.h"

struct care {
	struct chains *chains;
	struct chunk_store *s;
	struct env *env;
	const struct ossd_params *p;
	struct ossd_metrics *metrics;
	struct pace pace;
	struct resync *resync;
	struct slot_pool *copies; /* data that comes from other members */
	uint64_t incarnation;     /* changes with every start */
	struct list repairing;    /* chunks that are being repaired just now */
	uint64_t damage_seen;     /* blocks, since the last scrub began */
	bool drop_due, members_known, stopping;
	bool index_damaged; /* met by what nobody asked for: the target tells, and ends */
	struct fiber *dropper;
	struct latch fibers;
};

struct care_options {
	struct chains *chains; /* its log and hooks are used */
	struct transport *transport;
	const struct ossd_params *p;
	struct ossd_metrics *metrics;
	/* mds_chain_synced. Yields. */
	int (*synced)(void *arg, uint32_t chain, uint32_t epoch, uint32_t target);
	void *arg;
};
/* After chains_open, before anything is adopted. */
int care_start(const struct care_options *o, struct care **ret_care) CHECK_RESULT;
/* After chains_stop, before chains_close. Yields until all has ended. */
void care_stop(struct care *k);
/* Frees it, when no request is left either. */
void care_free(struct care *k);

/* The metadata server has named all chains that this target is a member of, and they are adopted:
 * chunks of any others may go. Does not yield. */
void care_members_known(struct care *k);

/* How something ended that nobody waits for. That the index is damaged is always said of the own
 * one: chains_call does not return that of another target. Does not yield. */
static inline void care_noticed(struct care *k, int rc)
{
	k->index_damaged |= rc == -LE_CORRUPT_STORE;
}

/* ---- copies of chunks ---- */

/* A part of a chunk as another member stores it. */
struct fetched {
	struct chunk_record *rec; /* one reference for the caller */
	struct slot *slot;        /* of care->copies, for the caller */
	struct chunk_part part;
};
/* As many blocks of a version as fit into a slot, from the block first on. */
struct part_at {
	const struct chunk_key *key;
	uint64_t version;
	uint32_t first;
};
/* -LE_STALE: it has no such version. Yields. */
int fetch_part(struct care *k, struct chain *c, uint32_t from, const struct part_at *at,
	       struct fetched *ret_part) CHECK_RESULT;
void fetch_free(struct care *k, struct fetched *f);

/* What is here of a chunk when it is decided that another's takes its place, and the epoch. */
struct chunk_own {
	uint64_t version, sum; /* 0: none, or one that cannot be read */
	uint32_t epoch;
};
/* Copies the chunk from req->source in the place of *own. -LE_STALE: another has come in between;
 * -LE_STALE_EPOCH. Durable when it returns. Yields. */
int replace_own(struct care *k, struct chain *c, const struct oss_resync_chunk_req *req,
		const struct chunk_own *own, uint64_t *ret_bytes) CHECK_RESULT;
/* What the member has of the chunk now. Yields. */
int member_state(struct chain *c, uint32_t target, const struct chunk_key *key,
		 struct version_state *ret_state) CHECK_RESULT;
/* A member's side of oss_resync_chunk, oss_resync_rows: durable when they return. Yield. */
int receive_chunk(struct care *k, struct chain *c, const struct oss_resync_chunk_req *req,
		  struct oss_resync_chunk_rep *rep) CHECK_RESULT;
int receive_rows(struct care *k, struct chain *c,
		 const struct oss_resync_rows_req *req) CHECK_RESULT;

/* ---- repair ---- */

/* Reads all blocks of the chunk; damaged ones are fetched from other SYNC members and put in their
 * place, under the same version. 0: all are good now (or there is no such chunk); -LE_CORRUPT: some
 * could not be repaired; -LE_BUSY: somebody else repaired it just now. found, repaired: blocks.
 * Yields. */
struct repair {
	uint32_t found, repaired;
	uint64_t bytes; /* read */
	/* It cannot be read here, and all other SYNC members, or all others, have answered that
	 * they have none either. */
	bool nobody, nowhere;
};
int repair_chunk(struct care *k, const struct chunk_key *key, struct repair *ret) CHECK_RESULT;

#endif
