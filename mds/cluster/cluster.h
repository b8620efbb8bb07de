/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cluster map: targets, chains, chain tables, and their epoch.
 *
 * A chain keeps its number for ever. Its class is the number of members that it should have. A
 * version of the chain table is "the first n chains of this class": growth adds chains and a
 * version, so nothing that the layout of a file names ever changes, except the members of chains.
 * Class 1 has one chain for each target, made when the target first registers. Chains of the other
 * classes are built when they are first needed (chain_table.h), and their members change
 * (membership.h). Each change is durable before this server acts on it or sends it.
 *
 * Owned by the loop.
 */
#ifndef LEAT_MDS_CLUSTER_CLUSTER_H
#define LEAT_MDS_CLUSTER_CLUSTER_H

#include "common/base/clocks.h"
#include "common/rpc/rpc.h"
#include "mds/params.h"
#include "mds/store/txn.h"

struct target {
	struct target_info info; /* the target owns addrs, host and rack */
	uint64_t commits;        /* of the target's store, as last reported */
	uint64_t commits_stored;
	uint64_t incarnation, judged; /* judged: the last one with a decided and stored state in
				       * its chains */
	uint64_t last_contact_us;
	uint64_t sessions_gen; /* generation of the session list that its fence has applied
				* (ossd/ops/fence.h) */
	uint32_t read_ms;      /* silence after which it refuses reads; 0: not reported */
	int64_t down_ns; /* Wall clock: since when it has been away; 0: it is not. target_away_us()
			  * computes how long, by the monotonic clock, from the next two. */
	uint64_t down_us;   /* since then, or since this server started */
	uint64_t waited_us; /* time away before this server started, by the wall clock */
	uint32_t chain;        /* id of its chain of class 1 */
	uint32_t chains_epoch; /* map epoch of the last change of a chain that it is or was a member
				* of */
	/* For failure_detector.c and membership.c. The bools are independent: the connection, the
	 * process, the verdict and the stored states change at different times, and an operator may
	 * give up a target in any of these. Its durable state is info.state. */
	uint64_t peer;     /* connection of its last request, 0: none */
	char from[96];     /* its remote address, as transports print it */
	bool ended;        /* that connection has ended, */
	uint64_t ended_us; /* at this time */
	bool gone;         /* its process has ended */
	bool dead;         /* the failure detector found it dead; not durable yet */
	bool restarted;    /* A new process; the stored states are those of the previous one. Its
			    * state in each chain must be decided before it may serve, because
			    * requests in flight of the previous process are lost. */
	bool settling;     /* that decision is being made durable */
	/* How far its wall clock is ahead of this server's, and within which bound, as the target
	 * reports. */
	struct clock_seen clock;
	bool leaving;      /* it is being given up (give_up.h): it may not register */
	char *addrs, *host, *rack;
};

struct chain {
	uint32_t id, epoch, replicas, n_members;
	struct chain_member members[CHAIN_MEMBERS_MAX]; /* SYNC ones first */
	uint32_t lead; /* the target that should be the head */
	uint32_t flags; /* enum chain_flags */
};

struct cluster {
	struct store *store;
	const struct mds_params *params;
	struct target **targets; /* by id - 1 */
	uint32_t n_targets;
	struct chain **chains; /* by id - 1 */
	uint32_t n_chains, cap_chains;
	struct chain_class {
		struct chain **chains; /* by id */
		uint32_t n, cap, table; /* table: newest version, 0: none */
	} classes[LEAT_REPLICAS_MAX + 1]; /* by number of members */
	struct table_info *tables;        /* by version - 1 */
	uint32_t n_tables, cap_tables;
	uint32_t epoch;     /* of the map, durable */
	uint32_t rotor;     /* for placement */
	struct fmutex lock; /* held while the map changes */
	struct waitq changed;
	struct waitq settled; /* woken when a target may be sent its chains */
	struct waitq fenced;  /* woken when a target has applied a session list, or has ended */
	struct waitq work;    /* wakes failure_detector.c */
	bool kicked, stopping;
	struct latch tellers;
	uint32_t n_stopping; /* Fibers of membership.c that still notify targets which lost the
			      * right to serve. Until each such target has acknowledged or its lease
			      * has expired, no target is sent any change. */
	uint64_t detect_from_us; /* before this time, silence does not make a target dead */
	uint64_t rebalance_us;  /* time of the last request for a rebalance, 0: none */
	bool rebalance_idle;    /* the last pass found nothing to move, and nothing has changed
				 * since */
	uint64_t replaced_us;   /* time of the last rebalance_pass */
	uint64_t quiet_us;      /* time of the last change of a member */
	uint32_t n_given_up;    /* Raised before chains restart empty or are lost, because a
				 * conversion may be writing to them; it starts again then. */
	/* Sends a target its chains (encoded chain_info, target_info), once. Empty: tests whether
	 * it is alive. Returns 0 or the status of the request. Yields. */
	int (*send)(void *arg, uint32_t target, struct bytes chains, struct bytes targets,
		    uint64_t deadline_us);
	/* Returns 0 if nothing listens at the target's addresses: its process has ended. Yields. */
	int (*probe)(void *arg, const struct target *t);
	/* Called when a target has come up or has another address. Does not yield. */
	void (*target_changed)(void *arg, struct target *t);
	void *arg;
};

/* Reads the map from the store. Returns 0, -LE_NOMEM, -LE_CORRUPT_STORE or the error of the store.
 * Yields. */
int cluster_load(struct cluster *c, struct store *s, const struct mds_params *p) CHECK_RESULT;
/* Wakes all fibers that wait on the map, so that they end soon. The caller then calls
 * latch_wait(&c->tellers) and cluster_fini. Does not yield. */
void cluster_stop(struct cluster *c);
/* Frees the map. Does not yield. */
void cluster_fini(struct cluster *c);

struct target *cluster_target(const struct cluster *c, uint32_t id);     /* NULL: none */
struct chain *cluster_chain(const struct cluster *c, uint32_t id);       /* NULL: none */
const struct table_info *cluster_table(const struct cluster *c, uint32_t version); /* NULL: none */
/* The chain of chunk idx of a file. NULL: the layout names no table, or one of another class. */
struct chain *cluster_layout_chain(const struct cluster *c, const struct layout *l, uint64_t idx);
/* The number of different chains in the layout's stripe; chunks 0 … n - 1 lie on them. 0: there is
 * no such table. */
uint32_t cluster_layout_width(const struct cluster *c, const struct layout *l);
/* True if one of these chains is lost. An operation that has to read or change chunks there
 * fails. */
bool cluster_layout_lost(const struct cluster *c, const struct layout *l);
/* True if no new file may use the chain: it is lost, or all its SYNC members are being given up. */
bool cluster_chain_closed(const struct cluster *c, const struct chain *ch);
/* The target that serves the chain. NULL: no member is SYNC. */
struct target *cluster_chain_head(const struct cluster *c, const struct chain *ch);
/* The epoch of the target's own chain, of class 1; 0: it has none. */
uint32_t cluster_chain_epoch(const struct cluster *c, const struct target *t);

/* Makes changed commit counters of targets durable. Yields. */
void cluster_store_commits(struct cluster *c);
/* The capacity and free space of all targets except removed ones. */
void cluster_space(const struct cluster *c, uint64_t *ret_total, uint64_t *ret_free);

/* ---- for the files of this folder that change the map; the caller holds c->lock ---- */
/* Copies the texts into the target. Returns 0, or -LE_NOMEM and changes nothing. */
int target_set_text(struct target *t, struct bytes addrs, struct bytes host,
		    struct bytes rack) CHECK_RESULT;
void target_free(struct target *t); /* NULL is allowed */
/* Reserves memory for n more chains of the class and for one table version. Returns 0 or
 * -LE_NOMEM. */
int cluster_reserve(struct cluster *c, uint32_t replicas, uint32_t n) CHECK_RESULT;
/* Write the row of a chain or table version into the open batch. */
void cluster_put_chain(struct cluster *c, const struct chain *ch);
void cluster_put_table(struct cluster *c, const struct table_info *t);
/* Add a chain or table version to the map once it is durable. cluster_add_chain takes over the
 * allocated struct. cluster_reserve must have been called for them. */
void cluster_add_chain(struct cluster *c, struct chain *ch);
void cluster_add_table(struct cluster *c, const struct table_info *t);
/* Notes the time, by the wall clock, since when the target has been away: now, or the time in its
 * stored record (0: it is not away). */
void target_went_away(struct target *t, int64_t down_ns, struct env *env);
/* The time that the target has been away, for a comparison with after_us. It uses the monotonic
 * clock, so a jump of the wall clock has no effect. Of the time before this server started, which
 * only the wall clock can measure, at most half of after_us counts. So a clock that is wrong at the
 * start replaces no target immediately, and a target that has long been away is replaced soon. */
uint64_t target_away_us(const struct target *t, struct env *env, uint64_t after_us);
/* The chain as it is sent and stored. Its members are encoded into buf. */
struct chain_info chain_info_of(const struct chain *ch, uint8_t buf[CHAIN_MEMBERS_BUF]);
/* Writes the row of the target, with the members of info, into the open batch. */
void cluster_put_target(struct cluster *c, const struct target *t,
			const struct target_info *info);
/* Marks the chain's members to be sent it. Called after cluster_commit. */
void cluster_chain_changed(struct cluster *c, const struct chain *ch);
/* Raises the map epoch and makes it durable with the open batch. Returns 0 or the error of the
 * store. Yields. */
int cluster_commit(struct cluster *c) CHECK_RESULT;

#endif
