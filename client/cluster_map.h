/*
 * The client's copy of the cluster map, and the connections to the object servers: one per target,
 * made when first needed. Owned by the client's loop.
 *
 * Targets and chains are never freed before the client is, so pointers to them may be kept across
 * yields; members may change with every refresh, tables move, and both are looked up anew for each
 * attempt.
 */
#ifndef LEAT_CLIENT_CLUSTER_MAP_H
#define LEAT_CLIENT_CLUSTER_MAP_H

#include "client/seq_table.h"
#include "common/base/hmap.h"
#include "common/proto/types.h"
#include "common/rpc/rpc.h"

struct client;

#define MAP_MEMBERS_MAX  CHAIN_MEMBERS_MAX
#define TARGET_ADDRS_MAX 512u
#define TARGET_HOST_MAX  256u

struct target {
	struct hmap_node node; /* by id */
	struct client *c;
	uint32_t id;
	enum target_state state;
	char addrs[TARGET_ADDRS_MAX];
	uint32_t loop;
	uint32_t chain, epoch;  /* one that it was asked for last, and its epoch */
	struct rpc_client *rpc; /* NULL until needed */
	bool near;              /* on this client's host */
	bool up;                /* the connection is there */
	bool lost;              /* it was, and no other has come since */
	bool no_readv;          /* it is of an older release */
	uint64_t slow_until_us; /* somebody else was quicker: not asked first until then */
	struct waitq up_q;      /* the connection has come */
	/* Space: grant is what the target holds for us, reserved the part of it that data under way
	 * may use. */
	uint64_t grant, reserved;
	uint64_t grant_asked_us;
	bool grant_asking;
	bool syncing, sync_again; /* an oss_sync is under way; another one must follow */
	/* reclaim.c: its process, which began with that life of this client's; it is being told of
	 * what was repeated; the connection is another one since that began; what it was told. */
	uint64_t incarnation, life;
	bool reclaiming, reclaim_again;
	enum reclaim_done told;
	uint64_t total, free;
};

struct map_member {
	struct target *target;
	bool sync; /* holds everything that was ever acknowledged */
};

struct chain {
	struct hmap_node node; /* by id */
	uint32_t id, epoch;
	struct map_member members[MAP_MEMBERS_MAX]; /* the first is the head */
	uint32_t n_members;
	/* The mutations of this client's session: their identity is the chain's, whoever leads it.
	 * Made with the first one. */
	struct seq_table seqs;
	bool has_seqs;
	struct list flights; /* struct flight: requests that a member has been sent */
};

/* A request under way. When the map says that who was asked is no longer the right one, the wait
 * for the answer ends at once: an interrupt that the sender takes back (flight_end). */
struct flight {
	struct list link;
	struct fiber *fiber;
	const struct target *target;
	bool head;  /* it must be the head; else any that is in sync */
	bool moved; /* has been interrupted */
};

/* The chains of a class, by id. */
struct chain_class {
	struct chain **chains;
	uint32_t n;
};

struct cluster_map {
	uint32_t epoch;  /* 0: none yet */
	uint32_t wanted; /* an epoch that somebody has seen */
	struct hmap targets, chains;
	struct chain_class classes[LEAT_REPLICAS_MAX + 1]; /* by number of members */
	struct table_info *tables;                         /* version - 1 */
	uint32_t n_tables;
	bool refreshing;
	struct waitq q;       /* the end of a refresh */
	struct waitq changed; /* another epoch has come */
};

int map_init(struct cluster_map *m) CHECK_RESULT;
/* Closes the connections. Yields. */
void map_fini(struct cluster_map *m);

/* Fetches the map; at most one fetch runs, others join it. Yields. */
int map_refresh(struct client *c, uint64_t deadline_us) CHECK_RESULT;
/* Somebody saw this epoch: refreshes in the background when ours is older. */
void map_saw_epoch(struct client *c, uint32_t epoch);

/* The chain of chunk idx of a layout; NULL: the map does not know. Does not yield. */
struct chain *map_chain(const struct client *c, const struct layout *l, uint64_t idx);
/* The head of that chain, whose space grant covers what is written there; NULL: nobody. */
struct target *map_head(const struct client *c, const struct layout *l, uint64_t idx);
/* NULL: unknown. */
struct target *map_target(const struct client *c, uint32_t id);
/* How many different places a file of this layout can use: at most its width. */
uint32_t map_width(const struct client *c, const struct layout *l);

/* Starts connecting where that has not begun: -LE_NO_TARGET without an address. Does not yield. */
int target_connect(struct target *t) CHECK_RESULT;
/* Waits a moment for its connection: -LE_DISCONNECTED. Yields. */
int target_await_up(struct target *t, uint64_t deadline_us) CHECK_RESULT;
/* The target is asked about this chain: its operations without a chunk name the same. */
static inline void target_asked(struct target *t, const struct chain *ch)
{
	t->chain = ch->id;
	t->epoch = ch->epoch;
}

/* Around rpc_call. The end returns its status, -LE_STALE_EPOCH where the map ended the wait. */
void flight_begin(struct chain *ch, struct flight *f, const struct target *t, bool head);
int flight_end(struct flight *f, int status);

/* Takes a decoded reply over into the map: -LE_BAD_MESSAGE, -LE_NOMEM; then the old one stays. */
int map_apply(struct client *c, const struct mds_map_get_rep *rep) CHECK_RESULT;

#endif
