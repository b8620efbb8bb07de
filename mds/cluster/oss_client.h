/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The MDS as a client of object servers: one connection for each target, session 1, a few slots for
 * each chain. A request is repeated under the same number, to the target that is then the head of
 * the chain, until it is answered or the deadline passes. Numbers start at incarnation << 32, so
 * none is used twice. A change that may be repeated after a restart has a slot and number of its
 * own.
 *
 * Owned by the loop.
 */
#ifndef LEAT_MDS_CLUSTER_OSS_CLIENT_H
#define LEAT_MDS_CLUSTER_OSS_CLIENT_H

#include "common/rpc/net_report.h"
#include "mds/cluster/cluster.h"

struct oss_target;
struct oss_slots;

struct oss {
	struct cluster *cluster;
	const struct mds_params *params;
	struct transport *transport;
	struct rpc_key key;
	uint64_t incarnation;
	struct oss_target **targets; /* by id - 1 */
	uint32_t n_targets;
	struct oss_slots **chains; /* by id - 1; made when first needed */
	uint32_t n_chains;
	bool stopping;
};

/* Makes a client without connections. Returns 0 or -LE_NOMEM. Does not yield. */
int oss_init(struct oss *o, struct cluster *c, const struct mds_params *p, struct transport *t,
	     const struct rpc_key *key) CHECK_RESULT;
/* Ends calls in flight with -LE_SHUTDOWN and closes the connections. No call may follow. Yields. */
void oss_stop(struct oss *o);
/* Frees the client, after oss_stop. Does not yield. */
void oss_fini(struct oss *o);
/* Connects to a target that has come up or has another address. Does not yield. */
void oss_target_changed(struct oss *o, struct target *t);
/* Sends a request to the head of a chain until it is answered. rep: its members of type bytes are
 * cleared. Returns the status of the reply; -LE_TARGET_DOWN at the deadline, or at that of the
 * fiber; -LE_GIVEN_UP if the chain is lost; or -LE_SHUTDOWN. Yields. */
int oss_call(struct oss *o, uint32_t chain, uint16_t op, const void *req, void *rep,
	     uint64_t deadline_us) CHECK_RESULT;
/* Like oss_call, for a request of kind WRITE under a slot and number of the caller. A change that
 * was made under them before a restart is answered, not made again. The numbers of a slot increase,
 * and only one is in flight. */
struct oss_number {
	uint32_t chain, slot;
	uint64_t seq;
	bool again; /* an attempt failed, so the change may have been made, wholly or in part */
};
int oss_call_numbered(struct oss *o, struct oss_number *no, uint16_t op, const void *req, void *rep,
		      uint64_t deadline_us) CHECK_RESULT;
/* True if there is a connection to the head of the chain. Does not yield. */
bool oss_ready(const struct oss *o, uint32_t chain);
/* Sends a request, not of kind WRITE, to the head of a chain, once. Returns the status of the
 * reply, or -LE_DISCONNECTED immediately if there is no connection. Yields. */
int oss_call_once(struct oss *o, uint32_t chain, uint16_t op, const void *req, void *rep,
		  uint64_t deadline_us) CHECK_RESULT;
/* Sends a request of kind CTRL, which concerns no chain, to a target, once. Returns the status of
 * the reply, -LE_DISCONNECTED immediately if there is no connection, or -LE_TARGET_DOWN if the
 * target has no client yet. Yields. */
int oss_call_target(struct oss *o, uint32_t target, uint16_t op, const void *req, void *rep,
		    uint64_t deadline_us) CHECK_RESULT;

/* Add what the connections have carried to the totals, and the connections to the report. */
void oss_totals(const struct oss *o, struct rpc_net_totals *totals);
void oss_net(const struct oss *o, struct net_report *r);

#endif
