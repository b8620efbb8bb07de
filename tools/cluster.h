/*
 * A tool's connection to the servers: a loop of its own for as long as one command takes, role
 * ROLE_TOOL, no session. Only what reads (kinds READ and CTRL of the protocol) is asked for.
 */
#ifndef LEAT_TOOLS_CLUSTER_H
#define LEAT_TOOLS_CLUSTER_H

#include "common/proto/message.h"
#include "common/rpc/rpc.h"
#include "tools/tool.h"

#define TARGETS_MAX 65536u
#define ADDRS_SIZE  512u

struct target_view {
	uint32_t id, state, loop, epoch, flags;
	uint64_t capacity, used, free;
	struct uuid uuid;
	char addrs[ADDRS_SIZE];
	char host[256];
	json_t *status; /* of oss_status; NULL: not asked, or no answer: see error */
	int error;
	struct cluster *cluster;
};

struct cluster {
	const struct tool *tool;
	struct transport *transport;
	struct rpc_key key;
	struct rpc_client *mds;
	uint64_t deadline_us;
	/* cluster_fetch fills these in */
	uint32_t epoch, n_targets, n_targets_up, n_chains;
	struct uuid uuid;
	char mds_addr[96];
	struct target_view *targets;
	json_t *mds_status;
	uint64_t capacity, used, free;
};

/* What to fetch beyond the map. */
enum fetch_flags {
	FETCH_MDS_STATUS = 1,
	FETCH_TARGET_STATUS = 2
};

/*
 * Connects, runs fn(c, arg) in a fiber, disconnects. Returns an exit status; messages have been
 * printed. fn returns a status (0 or negative): what the metadata server answered.
 */
int cluster_run(struct tool *t, uint32_t timeout_ms, int (*fn)(struct cluster *c, void *arg),
		void *arg);
/* One request to the metadata server. rpc_call_fini(call) always. Yields. */
int cluster_call(struct cluster *c, uint16_t op, const void *req, void *rep,
		 struct rpc_call *call) CHECK_RESULT;
/* The map, and by flags the status of the servers. A target that does not answer is no failure.
 * Yields. */
int cluster_fetch(struct cluster *c, uint32_t flags) CHECK_RESULT;
/* Only c->mds_status, anew. Yields. */
int cluster_fetch_mds(struct cluster *c) CHECK_RESULT;

/* One request to a target, over a connection of its own; rep has no bytes. -LE_TARGET_DOWN.
 * Yields. */
int cluster_target_call(struct cluster *c, const struct target_view *v, uint16_t op,
			const void *req, void *rep) CHECK_RESULT;

/* A connection of its own that stays, for several of them. It is made in the background. */
int cluster_target_open(struct cluster *c, const struct target_view *v,
			struct rpc_client **ret_rpc) CHECK_RESULT;

const char *target_state_name(uint32_t state);
const char *target_service_name(uint32_t flags); /* in use, draining, bad, removed */

#endif
