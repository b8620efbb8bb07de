/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's copy of the cluster map: targets, chains and chain tables. Owned by the client's
 * loop.
 *
 * Targets and chains live as long as the client, so pointers to them stay valid across yields. A
 * chain's members change with any refresh, and tables move: look both up again for each attempt.
 */
#ifndef LEAT_CLIENT_SERVERS_CLUSTER_MAP_H
#define LEAT_CLIENT_SERVERS_CLUSTER_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "client/servers/request_slots.h"
#include "common/base/hmap.h"
#include "common/base/list.h"
#include "common/base/status.h"
#include "common/proto/types.h"
#include "common/rt/fiber.h"

struct client;
struct fiber;
struct layout;
struct mds_map_get_rep;
struct table_info;
struct target;

#define MAP_MEMBERS_MAX CHAIN_MEMBERS_MAX

/* A member of a chain. */
struct map_member {
	struct target *target;
	bool sync; /* has all data that was ever acknowledged */
};

/* A replication chain. */
struct chain {
	struct hmap_node node; /* by id */
	/* epoch: of the last map that named the chain */
	uint32_t id, epoch;
	struct map_member members[MAP_MEMBERS_MAX]; /* the first is the head */
	uint32_t n_members;
	bool lost; /* its data was declared lost: every request fails immediately */
	/* Request slots for this session's mutations. They belong to the chain, also when its head
	 * changes. Created with the first mutation. */
	struct request_slots seqs;
	bool has_seqs;
	struct list flights; /* struct flight: requests in flight to a member */
};

/* A request in flight. If in a new map the member is no longer the right one, the wait for the
 * answer ends: map_apply interrupts the fiber, and flight_end clears that interrupt. */
struct flight {
	struct list link;
	struct fiber *fiber;
	const struct target *target;
	bool head;  /* the member must be the head; else any member in sync suffices */
	bool moved; /* the fiber was interrupted */
};

/* All chains with one number of replicas, by id. */
struct chain_class {
	struct chain **chains;
	uint32_t n;
};

/* The cluster map of a client. */
struct cluster_map {
	uint32_t epoch;  /* 0: none yet */
	uint32_t wanted; /* the newest epoch that any reply has mentioned */
	struct hmap targets, chains;
	struct chain_class classes[LEAT_REPLICAS_MAX + 1]; /* by number of replicas */
	struct table_info *tables;                         /* indexed by version - 1 */
	uint32_t n_tables;
	bool refreshing;
	struct waitq q;       /* waiters for the end of a refresh */
	struct waitq changed; /* waiters for a new epoch */
	/* Starts a fetch of the map in the background. Returns 0 or why it did not start. */
	int (*refresh)(struct client *c);
	/* Called when the connection to a target is established. Must not yield. */
	void (*connected)(struct target *t);
};

/* Initialises an empty map without hooks. Returns 0. */
int map_init(struct cluster_map *m) CHECK_RESULT;
/* Closes all connections and frees targets and chains. Yields. */
void map_fini(struct cluster_map *m);

/* Notes that a reply mentioned this epoch. Starts a refresh in the background if the client's map
 * is older. Does not yield. */
void map_saw_epoch(struct client *c, uint32_t epoch);

/* Returns the chain of chunk idx of a layout, or NULL if the map does not have it. Does not
 * yield. */
struct chain *map_chain(const struct client *c, const struct layout *l, uint64_t idx);
/* Returns the head of that chain, or NULL if it has none. The head's space grant covers writes to
 * the chunk. Does not yield. */
struct target *map_head(const struct client *c, const struct layout *l, uint64_t idx);
/* Returns the target with that id, or NULL. Does not yield. */
struct target *map_target(const struct client *c, uint32_t id);
/* Returns over how many chains a file of this layout is spread: its width, or fewer if the chain
 * table is smaller. */
uint32_t map_width(const struct client *c, const struct layout *l);

/* flight_begin and flight_end enclose an rpc_call to member t of ch. head: t must be the head.
 * flight_end takes the call's status and returns it, or -LE_STALE_EPOCH if a new map ended the
 * wait. Neither yields. */
void flight_begin(struct chain *ch, struct flight *f, const struct target *t, bool head);
int flight_end(struct flight *f, int status);

/* Replaces the map by a decoded reply. Returns 0; or -LE_BAD_MESSAGE or -LE_NOMEM, and the old map
 * stays. Does not yield. */
int map_apply(struct client *c, const struct mds_map_get_rep *rep) CHECK_RESULT;

#endif
