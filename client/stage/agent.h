/*
 * The inside of an agent: jobs for this node, chunks for others. One loop, that of its Leat
 * instance, owns all of it; the metrics alone are read from another thread.
 */
#ifndef LEAT_STAGE_AGENT_H
#define LEAT_STAGE_AGENT_H

#include "client/stage/metrics.h"
#include "client/stage/params.h"
#include "client/stage/peers.h"
#include "client/stage/stage.h"
#include "common/base/list.h"
#include "common/base/network.h"
#include "common/rpc/rpc.h"

#define AGENT_DIRS_MAX    8u
#define AGENT_JOBS_KEPT   256u /* ended ones, for who asks how they ended */
#define AGENT_SERVED_MAX  16u
#define AGENT_COPIES_MAX  512u /* told to the metadata server */
#define AGENT_RIGHTS      256u /* addresses of which it is known what they may do */
#define AGENT_DAMAGED_MAX 1024u
#define AGENT_DAMAGED_OF  128u /* of these from one peer */

/* One copy that is being made, or was. Its strings are its own. */
struct agent_job {
	struct list link;
	struct agent *a;
	uint64_t number;
	struct stage_job *job; /* while it runs */
	struct swarm *swarm;
	struct leat_stage_options o;
	struct leat_stage_result r; /* once it has ended */
	char *source, *to, *catalog, *order, *lease, *members;
	const char *more[AGENT_DIRS_MAX];
	int cancel;
	uint32_t reached, self, expect, copies;
	enum placement placement;
	uint64_t capacity; /* as asked for */
	uint64_t window;
	uint32_t flags; /* enum peer_stage_flags */
	uint32_t asked; /* so many want it, and have not taken that back */
	struct swarm_stats swarm_stats;
	bool running, shared;
};

/* A READY copy from which chunks are handed out. */
struct served {
	struct local_store store;
	struct manifest *m;
	uint64_t used_us, checked_us;
	uint32_t refs;
};

/* What the network of an address may do less than this node: enum peer_less. */
struct agent_right {
	struct net_address who;
	uint64_t known_us; /* 0: it is not */
	uint32_t less;
};

struct agent {
	struct leat_fs *fs;
	struct stage_io io;
	struct agent_params p;
	struct rpc_key key;
	struct swarm_rpc swarm_net;
	struct rpc_server *server;
	struct slot_pool *jobs_pool, *serve_pool;
	struct throttle throttle;
	struct throttle look_rate; /* names asked for, for the rights of copies */
	uint64_t age_told_us;
	int age_stop;
	char node[128], addr[256];
	char dirs_text[4096];
	const char *dirs[AGENT_DIRS_MAX]; /* NULL behind the last: at most 7 */
	uint32_t n_dirs;
	struct list jobs;
	uint32_t n_jobs, n_running;
	uint64_t last_job; /* its number; begins anywhere: nobody takes a job for one of before */
	struct served *served[AGENT_SERVED_MAX];
	struct leat_stage_copy *copies; /* READY ones, as they were looked at last */
	uint32_t n_copies;
	bool untold; /* nobody may hear of it: its network has less rights */
	bool look;   /* something may have become READY, or gone */
	uint64_t looked_us;
	bool stopping;
	struct latch fibers;
	struct waitq stop;
	struct {
		char id[MANIFEST_ID_SIZE];
		uint64_t chunk;
		struct net_address who;
	} damaged[AGENT_DAMAGED_MAX]; /* that somebody has told of, to be looked at */
	uint32_t n_damaged;
	bool healing;
	struct agent_metrics metrics;
	struct metrics_server *page;
	struct agent_right rights[AGENT_RIGHTS];
};

/* agent_serve.c: handlers of the rpc server. */
extern const struct rpc_handler agent_handlers[];
extern const uint32_t n_agent_handlers;
void agent_served_drop(struct agent *a, const char *id); /* NULL: all that are idle */

/* agent_rights.c. May the peer have what needs these rights (enum peer_less)? -LE_PERM: its network
 * has not all of them that this node has, or that cannot be learned. Yields. */
int agent_admit(struct agent *a, const struct rpc_peer *p, uint32_t need) CHECK_RESULT;

/* agent_heal.c: that chunk of a copy here may be damaged, says the peer of that name. -LE_NOENT: no
 * READY one is here; -LE_BUSY: the peer, or all of them, have told of too many that have not been
 * looked at yet. Yields. */
int agent_damaged(struct agent *a, const char *peer, const char *id, uint64_t chunk) CHECK_RESULT;

/* agent_age.c: until the agent stops. */
void agent_age_fiber(void *agent);

/* agent.c. Its connections, as common/rpc/net_report.h has them; NULL without memory. malloc'd. */
char *agent_net(struct agent *a);

/* agent_jobs.c, in fibers of the loop */
int agent_job_start(struct agent *a, const struct peer_stage_req *req, char *message, size_t size,
		    uint64_t *ret_number) CHECK_RESULT; /* enum leat_stage_code */
struct agent_job *agent_job_find(struct agent *a, struct bytes what, bool by_id);
/* number 0: the newest for `what`. NULL: none. */
struct agent_job *agent_job_numbered(struct agent *a, uint64_t number, struct bytes what);
void agent_jobs_end(struct agent *a); /* cancels all, waits */
/* malloc'd. */
char *agent_job_json(const struct agent_job *j);
char *agent_json(struct agent *a);
void agent_job_free(struct agent_job *j);

#endif
