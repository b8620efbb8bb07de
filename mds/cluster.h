/*
 * The cluster map: targets, chains, chain tables, and their epoch. Chains have one member now.
 * Chain k is made when target k registers first, and table version n is chains 1..n in this order:
 * append-only, as the architecture wants it. Each change is durable before it is acted on or told.
 *
 * Owned by the loop.
 */
#ifndef LEAT_MDS_CLUSTER_H
#define LEAT_MDS_CLUSTER_H

#include "common/rpc/rpc.h"
#include "mds/params.h"
#include "mds/store/txn.h"

struct target {
	struct target_info info; /* addrs and host: own memory */
	uint64_t commits;        /* of the target's store, as last heard */
	uint64_t commits_stored;
	uint64_t incarnation;
	uint64_t heard_us;
	uint32_t chain;     /* id */
	char *addrs, *host; /* NUL-terminated */
};

struct chain {
	uint32_t id, epoch, member;
};

struct cluster {
	struct store *store;
	const struct mds_params *params;
	struct target **targets;     /* id - 1 */
	struct chain *chains;        /* id - 1 */
	uint32_t n_targets, table_n; /* table_n: newest version, and number of chains */
	uint32_t epoch;              /* of the map, durable */
	uint32_t rotor;              /* for placement */
	struct fmutex lock;          /* changes */
	struct waitq changed;
	/* A target has come up or has another address. Does not yield. */
	void (*target_changed)(void *arg, struct target *t);
	void *arg;
};

int cluster_load(struct cluster *c, struct store *s, const struct mds_params *p) CHECK_RESULT;
void cluster_fini(struct cluster *c);

struct target *cluster_target(const struct cluster *c, uint32_t id); /* NULL: none */
/* Which target serves the chain at that position of a table. NULL: no such table or position. */
struct target *cluster_chain_target(const struct cluster *c, uint32_t table, uint32_t index);
uint32_t cluster_chain_epoch(const struct cluster *c, const struct target *t);

/* -LE_WRONG_CLUSTER, -LE_STORE_OLD, -LE_OVERLOAD (targets_max), -LE_INVAL. Yields. */
int cluster_register(struct cluster *c, const struct mds_target_register_req *in,
		     struct mds_target_register_rep *out) CHECK_RESULT;
/* -LE_NO_TARGET: not known, register first. Yields when the target was down. */
int cluster_heartbeat(struct cluster *c, const struct mds_target_heartbeat_req *in,
		      struct mds_target_heartbeat_rep *out) CHECK_RESULT;
/* Marks silent targets as down, stores commit counters now and then. Yields. */
void cluster_watch(struct cluster *c, bool store_commits);
/* Encodes the map; buf has cluster_map_size bytes. */
size_t cluster_map_size(const struct cluster *c);
int cluster_map_encode(const struct cluster *c, void *buf, size_t size,
		       struct mds_map_get_rep *out) CHECK_RESULT;
void cluster_space(const struct cluster *c, uint64_t *ret_total, uint64_t *ret_free);

#endif
