/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chains that this target is a member of: the members and their states, the epoch, and whether
 * this target may serve (lease). README.md describes the protocol.
 *
 * Owned by the target's loop. A decision of the metadata server is durable (row E) before it takes
 * effect. Versions in flight then continue under the new epoch (commit.h, forward.h).
 */
#ifndef LEAT_OSSD_CHAIN_CHAIN_H
#define LEAT_OSSD_CHAIN_CHAIN_H

#include "common/rpc/rpc.h"
#include "ossd/chain/chain_log.h"
#include "ossd/chunk/chunk_store.h"

struct chains;
struct chain;
struct version;

/* A head reserves space at the next member under the session SESSION_CHAIN | its target. */
#define SESSION_CHAIN (1ull << 63)

/* CHAIN_ADOPTED: loaded, but not confirmed by the metadata server since the start. CHAIN_FENCED:
 * the lease has expired. CHAIN_DROPPED: this target is no longer a member. */
enum chain_phase { CHAIN_NONE, CHAIN_ADOPTED, CHAIN_SERVING, CHAIN_FENCED, CHAIN_DROPPED };
#define N_CHAIN_PHASES 5

struct chain {
	struct hmap_node node;
	struct chains *all;
	uint32_t id, epoch;
	uint64_t adopted_us;
	int phase; /* enum chain_phase */
	struct chain_member members[CHAIN_MEMBERS_MAX];
	uint32_t n_members, n_sync;
	uint32_t self;       /* position of this target; n_members: not a member */
	bool filled;         /* This target was not SYNC at some time since the start, so other
	                      * members have filled it or are filling it. */
	uint64_t floor;      /* highest version of a removed chunk */
	uint64_t taken_back; /* highest number of a version that was aborted or dropped */
	struct list pending; /* struct version.chain_link, oldest first */
	uint32_t n_pending;
	uint64_t serial; /* serial of the last version that has joined */
	struct waitq settled; /* woken when a version has ended or the epoch has changed */
	/* Committed versions of which the members downstream have not been notified yet. */
	struct version_note *notes;
	uint32_t n_notes;
	bool notifier, expedite; /* used by commit.c */
	/* Leases of chunks (ops/lease.h). */
	uint64_t leases_us; /* when the last lease expires that another head has granted, or this
	                     * target before its start */
	uint64_t leases_of; /* the session that holds all of them; 0: several, or unknown */
	uint64_t told_us;   /* at the head: until when its announcement to the other SYNC members
	                     * is valid */
	struct fmutex announcing;
	void *resync; /* used by resync.c */
};

/* A target to which this one sends requests. To copy a chunk (oss_copy), that may be itself. */
struct chain_peer {
	struct list link;
	uint32_t target;
	char addrs[CONFIG_STR_MAX];
	struct rpc_client *client; /* NULL until the first call */
};

/* What the chains report to resync.c. Any hook may be NULL. No hook yields. */
struct chain_hooks {
	void *arg; /* for the use of the owner of the hooks */
	/* Called at the tail. Returns true if the SYNCING target gets new versions of the chunk. */
	bool (*fills)(struct chain *c, uint32_t target, const struct chunk_key *k);
	/* Called when the target could not be reached or could not apply a version. Returns true if
	 * it will not become SYNC in its present state. Returns false if it may be SYNC on record
	 * already, so that no version may be committed without it. */
	bool (*failed)(struct chain *c, uint32_t target, int status);
	/* Called when the epoch has changed. c->phase may be CHAIN_DROPPED. May spawn fibers. */
	void (*adopted)(struct chain *c);
};

struct chains_options {
	struct chunk_store *store;
	struct transport *transport;
	const struct rpc_key *key;
	const char *name;
	/* window_max: pending versions of one chunk. changed_max: changed chunks in the log; a
	 * chain with more is compared in full. */
	uint32_t window_max, changed_max;
	uint32_t waiting_max; /* writers that may wait for space in a window */
	/* Slots with data for the next members: kept_max of requests, kept_merged_max of merged
	 * blocks. */
	uint32_t kept_max, kept_merged_max;
	uint64_t start_us; /* No earlier process has served since then. */
};

struct chains {
	struct chains_options o;
	struct chunk_store *store;
	struct env *env;
	struct ossd_metrics *metrics;
	uint32_t target; /* the number of this target; 0: not registered yet */
	struct hmap by_id;
	struct list peers; /* struct chain_peer: targets that have an address */
	struct fmutex adopting;
	bool not_named; /* The last list of all chains lacks some that were adopted after it was
	                 * requested. */
	uint64_t lease_until_us;
	uint32_t lease_ms;
	struct chain_log *log;
	struct chain_hooks hooks;
	/* forward_start: commit.c, which is in an earlier layer than forward.c, cannot call it. */
	void (*forward)(struct version *v);
	struct list free_versions;
	uint32_t n_pending, n_waiting;
	uint32_t n_kept, n_kept_merged; /* slots held for the next members */
	bool starved; /* A version could not be forwarded, because no fiber could be started. */
	bool stopping;
	struct waitq stop;
	struct latch fibers;
};

/* Returns the chain, or NULL if this target has none with that number. Does not yield. */
struct chain *chain_find(const struct chains *cs, uint32_t id);
/* Returns the chain after c in some order: the first if c is NULL, NULL after the last. No chain
 * may be added between two calls. Does not yield. */
struct chain *chain_next(const struct chains *cs, const struct chain *c);

/* Returns true if the chain has more than one member. Then all SYNC members must commit a version,
 * and other members have the data too. */
static inline bool chain_replicated(const struct chain *c)
{
	return c->n_members > 1;
}
/* Returns true if this target is SYNC. */
static inline bool chain_is_sync(const struct chain *c)
{
	return c->self < c->n_sync;
}
/* Returns the number of other members that are SYNC in the adopted epoch. A returning member may be
 * SYNC on record before this target has been notified. */
static inline uint32_t chain_others_sync(const struct chain *c)
{
	return c->n_sync - chain_is_sync(c);
}
/* Returns true if this target is the head. */
static inline bool chain_is_head(const struct chain *c)
{
	return c->self == 0 && c->n_sync > 0;
}
/* Returns true if this target is the last SYNC member. */
static inline bool chain_is_tail(const struct chain *c)
{
	return c->n_sync > 0 && c->self == c->n_sync - 1;
}
/* Returns the state of the target, MEMBER_OUT if it is not a member. Does not yield. */
enum member_state chain_state_of(const struct chain *c, uint32_t target);
/* Returns the status with which the head answers a request whose result is rc. If rc is an error,
 * this store has failed and another member is SYNC, that is -LE_SHUTDOWN, so that the client
 * retries at the next head. Otherwise it is rc. Does not yield. */
int chain_outcome(const struct chain *c, int rc) CHECK_RESULT;

/* ---- membership ---- */

/* Updates the addresses of other members. `targets` is an encoded list of target_info. Returns 0 or
 * an error. Yields. */
int chains_addrs(struct chains *cs, struct bytes targets) CHECK_RESULT;
/* Call when the metadata server has answered the heartbeat that was sent at sent_us: the lease of
 * the target counts from then. Chains of one member need no lease. Does not yield. */
void chains_lease(struct chains *cs, uint64_t sent_us, uint32_t lease_ms);
/* Returns true while the lease of the target has not expired. Does not yield. */
bool chains_leased(const struct chains *cs);
/* Sets *ret_data to the packed (u32 chain, u32 epoch) of all adopted chains, which the caller
 * frees. Returns 0 or -LE_NOMEM. Does not yield. */
int chains_held(const struct chains *cs, void **ret_data, uint32_t *ret_len) CHECK_RESULT;

enum chain_need {
	CHAIN_MEMBER, /* any state but OUT: messages of other members */
	CHAIN_SYNC,   /* reads */
	CHAIN_HEAD,   /* all other requests */
};
/* Checks that this target may serve a request of that kind in that epoch. Returns 0,
 * -LE_NO_TARGET, -LE_NOT_READY, -LE_STALE_EPOCH, -LE_NO_LEASE or -LE_NOT_HEAD. Reads the clock.
 * Does not yield. */
int chain_admit(struct chains *cs, uint32_t id, uint32_t epoch, enum chain_need need,
		struct chain **ret_chain) CHECK_RESULT;

/* Call before the head grants leases of chunks. Announces to all SYNC members that there are some,
 * as any member may be the next head. Sends nothing while the last announcement is valid. Returns
 * 0, -LE_NOT_READY if a member does not answer, or -LE_STALE_EPOCH. Yields. */
int chain_announce_leases(struct chain *c) CHECK_RESULT;
/* Call when the head has announced leases of chunks. They may last ms from now. Does not yield. */
void chain_leases_announced(struct chain *c, uint32_t ms);

/* ---- requests to other members ---- */

/* Sends one call to a member, under the chain's present epoch. The caller has set op, req, rep,
 * deadline and data in it. Returns the result of rpc_call; -LE_TARGET_DOWN if the member's address
 * is unknown; -LE_NOT_READY if the member's store is damaged, which must not be mistaken for damage
 * of this store. Yields. */
int chain_call(struct chain *c, uint32_t target, struct rpc_call *call) CHECK_RESULT;
/* Like chain_call, but this target need not be a member of the chain. The caller has set chain and
 * epoch in the call too. Yields. */
int chains_call(struct chains *cs, uint32_t target, struct rpc_call *call) CHECK_RESULT;

/* ---- for chains.c ---- */
/* Returns the chain, and makes it if there is none. Returns NULL if there is no memory. */
struct chain *chain_get(struct chains *cs, uint32_t id);
/* Sets the phase. Asserts that the table of moves permits it. */
void chain_move(struct chain *c, int to);
/* Returns true if this target is the only member, so that no other can have been head. */
bool chain_led_alone(const struct chain *c);
/* Returns the only session to which the previous process has granted leases of chunks; 0 if there
 * are several, or if that is unknown. */
uint64_t chain_own_leases(const struct chain *c);
/* Returns true if this target knows which leases of chunks were granted before now. */
bool chain_knows_leases(const struct chain *c);
/* Takes over the leases of chunks that the previous head has granted. `knew`: this target was SYNC
 * and got the announcements. Otherwise assumes that leases were granted until since_us for their
 * full term, all to the session `whose`, or to any with 0. Does not yield. */
void chain_leases_taken_over(struct chain *c, bool knew, uint64_t since_us, uint64_t whose);

#endif
