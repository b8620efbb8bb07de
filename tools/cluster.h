/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tool's connection to the servers: its own loop for as long as one command takes, role
 * ROLE_TOOL, no session. Sends only requests of the kinds READ and CTRL of the protocol.
 */
#ifndef LEAT_TOOLS_CLUSTER_H
#define LEAT_TOOLS_CLUSTER_H

#include "common/proto/messages.h"
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
	json_t *status; /* of oss_status; NULL: not requested, or no reply (error) */
	int error;
	struct cluster *cluster;
};

struct cluster {
	const struct tool *tool;
	struct transport *transport;
	struct rpc_key key;
	struct rpc_client *mds;
	uint64_t deadline_us;
	uint32_t status_flags; /* STATUS_MEMORY */
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
	FETCH_TARGET_STATUS = 2,
	FETCH_REMOVED = 4 /* also the targets that were removed */
};

/*
 * Connects, runs fn(c, arg) in a fiber, and disconnects. fn returns 0 or a negative status of the
 * metadata server. Returns an exit status, after a message unless it is EXIT_OK.
 */
int cluster_run(struct tool *t, uint32_t timeout_ms, int (*fn)(struct cluster *c, void *arg),
		void *arg);
/* Sends a request to the metadata server and waits for the reply. The caller ends `call` with
 * rpc_call_fini, whatever is returned. Yields. */
int cluster_call(struct cluster *c, uint16_t op, const void *req, void *rep,
		 struct rpc_call *call) CHECK_RESULT;
/* Fetches the map and, by flags, the status of the servers into c. A target that does not reply
 * is no failure; its error is set. Yields. */
int cluster_fetch(struct cluster *c, uint32_t flags) CHECK_RESULT;
/* Fetches c->mds_status again. Yields. */
int cluster_fetch_mds(struct cluster *c) CHECK_RESULT;

/* Sends a request to a target over a separate connection and waits for the reply, which must
 * have no byte members. -LE_TARGET_DOWN if the target has no address. Yields. */
int cluster_target_call(struct cluster *c, const struct target_view *v, uint16_t op,
			const void *req, void *rep) CHECK_RESULT;

/* Opens a separate connection to a target for several requests; the caller closes it. It is
 * established in the background. */
int cluster_target_open(struct cluster *c, const struct target_view *v,
			struct rpc_client **ret_rpc) CHECK_RESULT;

/* The state of a target ("new", "up", "down", "unknown"), and whether it takes part: "in use",
 * "draining", "bad" or "removed". */
const char *target_state_name(uint32_t state);
const char *target_service_name(uint32_t flags);

#endif
