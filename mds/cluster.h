/*
 * The cluster map: targets, chains, chain tables, and their epoch.
 *
 * Chains have numbers for ever and a class: how many members they shall have. A version of the
 * chain table is "the first n chains of this class": growing adds chains and a version, nothing
 * that a file's layout names ever changes but the members of chains. Class 1 has one chain for each
 * target, made when it registers first; the others are built when they are first asked for
 * (chain_table.h) and their members change (membership.h). Each change is durable before it is
 * acted on or told.
 *
 * Owned by the loop.
 */
#ifndef LEAT_MDS_CLUSTER_H
#define LEAT_MDS_CLUSTER_H

#include "common/rpc/rpc.h"
#include "mds/params.h"
#include "mds/store/txn.h"

struct target {
	struct target_info info; /* addrs, host and rack: own memory */
	uint64_t commits;        /* of the target's store, as last heard */
	uint64_t commits_stored;
	uint64_t incarnation, judged; /* judged: the one that its chains know, on record */
	uint64_t heard_us;
	uint64_t sessions_gen; /* by that set of sessions it judges: fence.h of ossd */
	uint32_t read_ms;      /* after so long a silence it reads for nobody; 0: not known to */
	int64_t down_ns; /* wall clock: since when it is away; 0: it is not */
	uint32_t chain;        /* id of the one of class 1 */
	uint32_t chains_epoch; /* map epoch of the last change of a chain that it is or was in */
	/* For detect.c and membership.c: */
	uint64_t peer;     /* connection that it was last heard on, 0: none */
	char from[96];     /* the other end of that one, as transports name it */
	bool ended;        /* that connection is over, */
	uint64_t ended_us; /* since then */
	bool gone;         /* its process has ended */
	bool dead;         /* judged: it cannot act any more; not durable yet */
	bool restarted;    /* another process than the one that was in sync: what that had under way
			    * is to be settled before it may serve */
	bool settling;     /* that is being made durable */
	char *addrs, *host, *rack;
};

struct chain {
	uint32_t id, epoch, replicas, n_members;
	struct chain_member members[CHAIN_MEMBERS_MAX]; /* SYNC ones first */
	uint32_t lead; /* who is to be the first */
};

struct cluster {
	struct store *store;
	const struct mds_params *params;
	struct target **targets; /* id - 1 */
	uint32_t n_targets;
	struct chain **chains; /* id - 1 */
	uint32_t n_chains, cap_chains;
	struct chain_class {
		struct chain **chains; /* by id */
		uint32_t n, cap, table; /* table: newest version, 0: none */
	} classes[LEAT_REPLICAS_MAX + 1]; /* by number of members */
	struct table_info *tables;        /* version - 1 */
	uint32_t n_tables, cap_tables;
	uint32_t epoch;     /* of the map, durable */
	uint32_t rotor;     /* for placement */
	struct fmutex lock; /* changes */
	struct waitq changed;
	struct waitq settled; /* a target may be told of its chains */
	struct waitq fenced;  /* one has said which sessions it refuses */
	struct waitq work;    /* for detect.c */
	bool kicked, stopping;
	struct latch tellers;
	uint32_t n_stopping; /* changes of which somebody who served is yet to hear, or to lose its
			      * lease: until then nobody else hears of any (membership.c) */
	uint64_t judge_from_us; /* nobody is judged by silence before */
	uint64_t rebalance_us;  /* when a rebalance was last asked for, 0: never */
	bool rebalance_idle;    /* it found nothing more to move, and nothing has changed since */
	uint64_t replaced_us;   /* when replace.c looked last */
	uint64_t quiet_us;      /* since when no member has changed */
	/* One attempt to tell a target of chains (encoded chain_info, target_info); empty: whether
	 * it is alive. Yields. */
	int (*send)(void *arg, uint32_t target, struct bytes chains, struct bytes targets,
		    uint64_t deadline_us);
	/* 0: nobody listens at the target's addresses, its process is gone. Yields. */
	int (*probe)(void *arg, const struct target *t);
	/* A target has come up or has another address. Does not yield. */
	void (*target_changed)(void *arg, struct target *t);
	void *arg;
};

int cluster_load(struct cluster *c, struct store *s, const struct mds_params *p) CHECK_RESULT;
/* Whoever waits ends soon; then latch_wait(&c->tellers), then cluster_fini. */
void cluster_stop(struct cluster *c);
void cluster_fini(struct cluster *c);

struct target *cluster_target(const struct cluster *c, uint32_t id);     /* NULL: none */
struct chain *cluster_chain(const struct cluster *c, uint32_t id);       /* NULL: none */
const struct table_info *cluster_table(const struct cluster *c, uint32_t version); /* NULL: none */
/* The chain of a file's chunk. NULL: the layout names no table, or one of another class. */
struct chain *cluster_layout_chain(const struct cluster *c, const struct layout *l, uint64_t idx);
/* How many different chains the layout's stripe has (0: no such table): chunks 0 … n - 1 are on
 * them. */
uint32_t cluster_layout_width(const struct cluster *c, const struct layout *l);
/* Who serves the chain. NULL: nobody, no member is SYNC. */
struct target *cluster_chain_head(const struct cluster *c, const struct chain *ch);
uint32_t cluster_chain_epoch(const struct cluster *c, const struct target *t);

/* Stores commit counters that have changed. Yields. */
void cluster_store_commits(struct cluster *c);
void cluster_space(const struct cluster *c, uint64_t *ret_total, uint64_t *ret_free);

/* ---- for the files of this folder that change the map; under c->lock ---- */
/* Copies. -LE_NOMEM: nothing has changed. */
int target_set_text(struct target *t, struct bytes addrs, struct bytes host,
		    struct bytes rack) CHECK_RESULT;
void target_free(struct target *t); /* NULL is fine */
/* Room for n more chains of the class and for one table version. */
int cluster_reserve(struct cluster *c, uint32_t replicas, uint32_t n) CHECK_RESULT;
/* Into the open batch. */
void cluster_put_chain(struct cluster *c, const struct chain *ch);
void cluster_put_table(struct cluster *c, const struct table_info *t);
/* After they are durable: takes over malloc'd ones, for which there is room. */
void cluster_add_chain(struct cluster *c, struct chain *ch);
void cluster_add_table(struct cluster *c, const struct table_info *t);
void cluster_put_target(struct cluster *c, const struct target *t,
			const struct target_info *info);
/* Its members will be told. After cluster_commit. */
void cluster_chain_changed(struct cluster *c, const struct chain *ch);
/* Makes the new epoch and what is in the open batch durable; then it counts. Yields. */
int cluster_commit(struct cluster *c) CHECK_RESULT;

/* ---- cluster_map.c: on the wire ---- */
#define MAP_PAGE_BYTES (160u << 10)
/* The page that begins with the given item (0: the first); buf has MAP_PAGE_BYTES. */
int cluster_map_encode(const struct cluster *c, uint32_t from, void *buf,
		       struct mds_map_get_rep *out) CHECK_RESULT;
struct chain_info chain_info_of(const struct chain *ch, uint8_t buf[CHAIN_MEMBERS_BUF]);
void chain_encode(const struct chain *ch, struct wire_w *w);
/* These chains, and the targets that are in them: two parts of one piece of memory, to be freed by
 * the first one's data. */
int cluster_chains_encode(const struct cluster *c, struct chain *const *chains, uint32_t n,
			  struct bytes *ret_chains, struct bytes *ret_targets) CHECK_RESULT;
/* All chains that a target is in. */
int cluster_chains_of(const struct cluster *c, const struct target *t, struct bytes *ret_chains,
		      struct bytes *ret_targets) CHECK_RESULT;

#endif
