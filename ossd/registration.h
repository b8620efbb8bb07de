/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target's connection to the metadata server: register, send heartbeats, keep the lease,
 * receive the target's chains and the set of live sessions. Runs in the background on the target's
 * loop.
 */
#ifndef LEAT_OSSD_REGISTRATION_H
#define LEAT_OSSD_REGISTRATION_H

#include "ossd/ops/op.h"

#define REGISTRATION_MAGIC 0x52474953u
struct registration {
	uint32_t magic;
	struct target *t;
	struct rpc_client *client;
	struct rpc_server *server;
	char addrs[CONFIG_STR_MAX];
	char mds_addrs[CONFIG_STR_MAX];
	struct transport *transport;
	/* lease_ms, fence_ms 0: the metadata server sets none */
	uint32_t heartbeat_ms, lease_ms, fence_ms, read_ms;
	uint32_t chains_epoch;           /* of the last reply that contained chains */
	int failed; /* status with which the MDS has refused this store for good; 0: none */
	int last_logged;
	bool stopping, again;
	bool distrust; /* the index is damaged: this target serves no requests */
	struct fiber *fiber;
	struct latch running;
};

struct registration_options {
	struct transport *transport;
	const struct rpc_key *key;
	const char *mds_addrs;
	struct rpc_server *server; /* for statistics; must outlive the registration, or be set to
	                            * NULL */
	const char *addrs; /* addresses for clients */
	bool reports_unreachable;   /* log when the metadata server cannot be reached */
};

/* Starts the connection and the heartbeat fiber. t must outlive it. On failure nothing is left. */
int registration_start(struct registration *g, struct target *t,
		       const struct registration_options *o) CHECK_RESULT;
/* Ends the heartbeat fiber, sends a last heartbeat if the target is registered, and closes the
 * connection. Yields. */
void registration_stop(struct registration *g);
/* Call when the index is damaged: requests are refused, and the metadata server is notified, so
 * that other targets replace this one in its chains. Then the program ends. Does not yield. */
void registration_distrust(struct registration *g);
/* Sends mds_chain_synced: this target has filled a member. Yields. */
int registration_synced(struct registration *g, uint32_t chain, uint32_t epoch,
			uint32_t target) CHECK_RESULT;

#endif
