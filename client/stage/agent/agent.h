/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of an agent, which the files of this folder share: its jobs, and the chunks that it
 * serves to other nodes. The loop of its Leat instance owns all of it; another thread reads the
 * metrics.
 */
#ifndef LEAT_CLIENT_STAGE_AGENT_AGENT_H
#define LEAT_CLIENT_STAGE_AGENT_AGENT_H

#include "client/dataset/metrics.h"
#include "client/dataset/params.h"
#include "client/stage/fetch/peers.h"
#include "client/stage/fetch/peers_net.h"
#include "client/stage/job/job.h"
#include "common/base/list.h"
#include "common/base/metrics_http.h"
#include "common/base/network.h"
#include "common/rpc/rpc.h"
#include "common/rt/alive.h"

#define AGENT_DIRS_MAX    8u
#define AGENT_JOBS_KEPT   256u /* jobs that have ended, for later queries */
#define AGENT_SERVED_MAX  16u
#define AGENT_COPIES_MAX  512u /* reported to the metadata server */
#define AGENT_RIGHTS      256u /* addresses in the cache of rights */
#define AGENT_DAMAGED_MAX 1024u
#define AGENT_DAMAGED_OF  128u /* ... of which one peer may have reported so many */

#define AGENT_MAGIC     0x4c41474eu /* LAGN */
#define AGENT_JOB_MAGIC 0x4c414a42u /* LAJB */

/* A copy that is being made, or was. The strings belong to the job. */
struct agent_job {
	uint32_t magic;
	struct list link;
	struct agent *a;
	uint64_t number;
	struct stage_job *job; /* while it runs */
	struct swarm *swarm;
	struct leat_stage_options o;
	struct leat_stage_result r; /* after its end */
	char *source, *to, *catalog, *order, *lease, *members;
	const char *more[AGENT_DIRS_MAX];
	int cancel;
	uint32_t reached, self, expect, copies;
	enum placement placement;
	uint64_t capacity; /* as requested */
	uint64_t window;
	uint32_t flags; /* enum peer_stage_flags */
	uint32_t asked; /* requests for it, less those that were cancelled */
	struct swarm_stats swarm_stats;
	bool running, shared;
};

/* A READY copy from which chunks are served. */
struct served {
	struct local_store store;
	struct manifest *m;
	uint64_t used_us, checked_us;
	uint32_t refs;
};

/* Which rights the network of an address lacks that this node has: enum peer_less. */
struct agent_right {
	struct net_address who;
	uint64_t known_us; /* time of the answer; 0: the entry is empty */
	uint32_t less;
};

struct agent {
	uint32_t magic;
	struct leat_fs *fs;
	struct stage_io io;
	struct agent_params p;
	struct rpc_key key;
	struct swarm_rpc swarm_net;
	struct rpc_server *server;
	struct slot_pool *jobs_pool, *serve_pool;
	struct rate_limit throttle;
	struct rate_limit name_rate; /* names looked up, for the rights of copies */
	uint64_t age_logged_us;
	int age_stop;
	char node[128], addr[256];
	char dirs_text[4096];
	const char *dirs[AGENT_DIRS_MAX]; /* at most 7, and NULL at the end */
	uint32_t n_dirs;
	struct list jobs;
	uint32_t n_jobs, n_running;
	/* The number of the last job. The first one is random, so that a job of a previous agent is
	 * not taken for one of this agent. */
	uint64_t last_job;
	struct served *served[AGENT_SERVED_MAX];
	struct leat_stage_copy *copies; /* READY ones, at the last poll */
	uint32_t n_copies;
	bool untold; /* the metadata server refuses reports, since this network has fewer rights */
	bool look;   /* poll soon: a copy may have become READY, or was removed */
	uint64_t polled_us;
	bool stopping;
	struct latch fibers;
	struct list running; /* struct agent_fiber: those that have begun */
	struct waitq stop;
	struct {
		char id[MANIFEST_ID_SIZE];
		uint64_t chunk;
		struct net_address who;
	} damaged[AGENT_DAMAGED_MAX]; /* chunks that peers have reported, to be checked */
	uint32_t n_damaged;
	bool healing;
	struct agent_metrics metrics;
	struct metrics_server *page;
	struct alive alive;
	struct agent_right rights[AGENT_RIGHTS];
	uint64_t unanswered_us; /* when the metadata server did not answer about rights; 0: never */
};

#endif
