/*
 * The chains that this target is a member of: who the members are, in which state, in which epoch,
 * and whether this target may act (lease). README.md is the protocol.
 *
 * Owned by the target's loop. What the metadata server decided is durable (row E) before it is
 * acted on; what was under way then goes on under the new epoch (commit.h, forward.h).
 */
#ifndef LEAT_OSSD_CHAIN_H
#define LEAT_OSSD_CHAIN_H

#include "common/rpc/rpc.h"
#include "ossd/chain/chain_log.h"
#include "ossd/chunk/chunk_store.h"

struct chains;
struct chain;
struct version;

/* The session under which a head holds space at the members behind it: this | its target. */
#define SESSION_CHAIN (1ull << 63)

/* CHAIN_ADOPTED: known, but the metadata server has not spoken since the start. CHAIN_FENCED: the
 * lease has run out. CHAIN_DROPPED: not a member any more. */
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
	bool filled;         /* by others, since the start: what was seen is here */
	uint64_t floor;      /* highest version of a removed chunk */
	uint64_t taken_back; /* highest number of a version that was taken back */
	struct list pending; /* struct version.chain_link, oldest first */
	uint32_t n_pending;
	uint64_t serial; /* of the last version that has joined */
	struct waitq settled; /* a version has ended, the epoch has changed */
	/* What was committed and the member behind has not been told. */
	struct version_note *notes;
	uint32_t n_notes;
	bool notifier, hurry; /* of commit.c */
	/* Leases of chunks (ops/lease.h). */
	uint64_t leases_us; /* those that others have given as heads, or this target before its
			       start, have ended by then */
	uint64_t leases_of; /* all are that session's; 0: nobody knows */
	uint64_t told_us;   /* of the head: until when the others in sync believe that there are
			       some */
	struct fmutex telling;
	void *resync; /* of resync.c */
};

/* A target, as far as this one talks to it: another, or, where a chunk is copied (oss_copy),
 * itself. */
struct chain_peer {
	struct list link;
	uint32_t target;
	char addrs[CONFIG_STR_MAX];
	struct rpc_client *client; /* NULL: nothing was to be said yet */
};

/* What resync.c wants to hear. Any may be NULL; none yields. */
struct chain_hooks {
	void *arg; /* whose they are */
	/* Does this SYNCING member get new versions of the chunk? Asked at the tail. */
	bool (*fills)(struct chain *c, uint32_t target, const struct chunk_key *k);
	/* It could not be reached or could not apply one. True: it will not become SYNC as it is.
	 * False: it may be SYNC on record already, so the version is not committed without it. */
	bool (*failed)(struct chain *c, uint32_t target, int status);
	/* The epoch has changed; c->phase may be CHAIN_DROPPED. May spawn fibers. */
	void (*adopted)(struct chain *c);
};

struct chains_options {
	struct chunk_store *store;
	struct transport *transport;
	const struct rpc_key *key;
	const char *name;
	uint32_t window_max, changed_max;
	uint32_t waiting_max; /* writers that wait for room in a window */
	uint32_t kept_max, kept_merged_max; /* slots with data for members behind: of requests, of
					       merged blocks */
	/* Peers' addresses are wanted that nobody has told yet. Does not yield. */
	void (*want_addrs)(void *arg);
	void *arg;
	uint64_t start_us; /* a former process has not worked any more since then */
};

struct chains {
	struct chains_options o;
	struct chunk_store *store;
	struct env *env;
	struct ossd_metrics *metrics;
	uint32_t target; /* own number; 0: not registered yet */
	struct hmap by_id;
	struct list peers; /* struct chain_peer: those whose addresses are known */
	struct fmutex adopting;
	bool not_named; /* the last list of all chains lacks some that were heard of since */
	uint64_t lease_until_us;
	uint32_t lease_ms;
	struct chain_log *log;
	struct chain_hooks hooks;
	struct list free_versions;
	uint32_t n_pending, n_waiting;
	uint32_t n_kept, n_kept_merged; /* slots held for members behind */
	bool starved; /* a version could not be forwarded for want of a fiber */
	bool stopping;
	struct waitq stop;
	struct latch fibers;
};

/* Reads the E and F rows. Yields. */
int chains_open(const struct chains_options *o, struct chains **ret_chains) CHECK_RESULT;
/* Whoever waits for a version gets -LE_SHUTDOWN. Before the server's requests are drained. */
void chains_stop(struct chains *cs);
/* After that and before the store is closed. Yields. */
void chains_close(struct chains *cs);

struct chain *chain_find(const struct chains *cs, uint32_t id); /* NULL: none */
/* All in no order: NULL first. The set must not change meanwhile (it only grows). */
struct chain *chain_next(const struct chains *cs, const struct chain *c);

/* More than one member, so versions have to be committed by all; the chain's own copy is not all
 * there is. */
static inline bool chain_replicated(const struct chain *c)
{
	return c->n_members > 1;
}
static inline bool chain_is_sync(const struct chain *c)
{
	return c->self < c->n_sync;
}
/* Who else is in sync, by what this one knows: one that comes back may be in sync on record before
 * it has heard so. */
static inline uint32_t chain_others_sync(const struct chain *c)
{
	return c->n_sync - chain_is_sync(c);
}
static inline bool chain_is_head(const struct chain *c)
{
	return c->self == 0 && c->n_sync > 0;
}
static inline bool chain_is_tail(const struct chain *c)
{
	return c->n_sync > 0 && c->self == c->n_sync - 1;
}
enum member_state chain_state_of(const struct chain *c, uint32_t target); /* MEMBER_OUT: none */
/* Of what the head of a chain is asked for: nothing is final that a store says which has failed,
 * where another member has what this one had: it leads soon, and whoever asks is to come again. */
int chain_outcome(const struct chain *c, int rc) CHECK_RESULT;

/* ---- membership ---- */

/*
 * The metadata server speaks. chains: encoded chain_info one behind the other. Each that is newer
 * than what is known becomes durable, then is acted on. asked_us: this target is a member of no
 * others, but for those that it has heard of since it asked then (not_named: there are some); 0:
 * nothing is said of others. Yields. -LE_BAD_MESSAGE, -LE_IO.
 */
int chains_adopt(struct chains *cs, struct bytes chains, uint64_t asked_us) CHECK_RESULT;
/* targets: encoded target_info: addresses of other members. Yields. */
int chains_addrs(struct chains *cs, struct bytes targets) CHECK_RESULT;
/* The metadata server has answered what was sent at sent_us. Chains of one member need no lease. */
void chains_lease(struct chains *cs, uint64_t sent_us, uint32_t lease_ms);
bool chains_leased(const struct chains *cs);
/* Packed (u32 chain, u32 epoch) of all that was adopted; from malloc. */
int chains_held(const struct chains *cs, void **ret_data, uint32_t *ret_len) CHECK_RESULT;

enum chain_need {
	CHAIN_MEMBER, /* any that is not OUT: messages of other members */
	CHAIN_SYNC,   /* reads */
	CHAIN_HEAD,   /* everything else */
};
/* -LE_NO_TARGET, -LE_NOT_READY, -LE_STALE_EPOCH, -LE_NO_LEASE, -LE_NOT_HEAD. Looks at a fresh
 * clock, does not yield. */
int chain_admit(struct chains *cs, uint32_t id, uint32_t epoch, enum chain_need need,
		struct chain **ret_chain) CHECK_RESULT;

/* Before the head gives leases of chunks: whoever may be head next knows that there are some. Costs
 * nothing most of the time. -LE_NOT_READY: somebody does not answer. Yields. */
int chain_tell_leases(struct chain *c) CHECK_RESULT;
/* The head has said that there may be some for that long. */
void chain_leases_told(struct chain *c, uint32_t ms);

/* ---- talking to other members ---- */

/* One call to a member, under the chain's present epoch. The caller's rpc_call has op, req, rep,
 * deadline and data. -LE_TARGET_DOWN without an address; -LE_NOT_READY where its store is damaged,
 * so that nobody takes that for the own one. Yields. */
int chain_call(struct chain *c, uint32_t target, struct rpc_call *call) CHECK_RESULT;
/* The same about a chain that this target need not be a member of: call has chain and epoch. */
int chains_call(struct chains *cs, uint32_t target, struct rpc_call *call) CHECK_RESULT;

#endif
