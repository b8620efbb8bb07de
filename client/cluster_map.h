/*
 * The client's copy of the cluster map, and the connections to the object servers: one per target,
 * made when first needed. Owned by the client's loop.
 *
 * Targets are never freed before the client is, so a pointer to one may be kept across yields;
 * chains and tables may move with every refresh and are looked up anew for each attempt.
 */
#ifndef LEAT_CLIENT_CLUSTER_MAP_H
#define LEAT_CLIENT_CLUSTER_MAP_H

#include "client/seq_table.h"
#include "common/base/hmap.h"
#include "common/proto/types.h"
#include "common/rpc/rpc.h"

struct client;

#define CHAIN_MEMBERS_MAX 8u
#define TARGET_ADDRS_MAX  512u

struct target {
	struct hmap_node node; /* by id */
	struct client *c;
	uint32_t id;
	enum target_state state;
	char addrs[TARGET_ADDRS_MAX];
	uint32_t loop, epoch;   /* epoch: of its chain, when it was last looked up */
	struct rpc_client *rpc; /* NULL until needed */
	struct seq_table seqs;
	/* Space: grant is what the target holds for us, reserved the part of it that data under way
	 * may use. */
	uint64_t grant, reserved;
	uint64_t grant_asked_us;
	bool grant_asking;
	bool syncing, sync_again; /* an oss_sync is under way; another one must follow */
	uint64_t total, free;
};

struct chain {
	uint32_t id, epoch;
	uint32_t members[CHAIN_MEMBERS_MAX];
	uint32_t n_members;
};

struct chain_table {
	uint32_t version, n;
	uint32_t *chains; /* positions in cluster_map.chains, UINT32_MAX: unknown chain */
};

struct cluster_map {
	uint32_t epoch;  /* 0: none yet */
	uint32_t wanted; /* an epoch that somebody has seen */
	struct hmap targets;
	struct chain *chains; /* by id */
	uint32_t n_chains;
	struct chain_table *tables;
	uint32_t n_tables;
	bool refreshing;
	struct waitq q; /* the end of a refresh */
};

int map_init(struct cluster_map *m) CHECK_RESULT;
/* Closes the connections. Yields. */
void map_fini(struct cluster_map *m);

/* Fetches the map; at most one fetch runs, others join it. Yields. */
int map_refresh(struct client *c, uint64_t deadline_us) CHECK_RESULT;
/* Somebody saw this epoch: refreshes in the background when ours is older. */
void map_saw_epoch(struct client *c, uint32_t epoch);

/*
 * The target to talk to for chunk idx of a layout (the head of its chain), with its connection, and
 * the chain's epoch. -LE_NO_TARGET when the map does not know. Does not yield.
 */
int map_find(struct client *c, const struct layout *l, uint64_t idx, struct target **ret_target,
	     uint32_t *ret_epoch) CHECK_RESULT;
/* How many different places a file of this layout can use: at most its width. */
uint32_t map_width(const struct client *c, const struct layout *l);

/* Takes a decoded reply over into the map: -LE_BAD_MESSAGE, -LE_NOMEM; then the old one stays. */
int map_apply(struct client *c, const struct mds_map_get_rep *rep) CHECK_RESULT;

#endif
