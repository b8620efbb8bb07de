/*
 * The MDS as a client of object servers: one connection per target, session 1, a few slots for each
 * chain. Requests are repeated under the same number, at whoever is the head by then, until they
 * are answered or the time is over. Numbers start at incarnation << 32, so none is ever used twice.
 * A change that is repeated after a restart as well brings its own slot and number.
 *
 * Owned by the loop.
 */
#ifndef LEAT_MDS_OSS_CLIENT_H
#define LEAT_MDS_OSS_CLIENT_H

#include "common/rpc/net_report.h"
#include "mds/cluster.h"

struct oss_target;
struct oss_slots;

struct oss {
	struct cluster *cluster;
	const struct mds_params *params;
	struct transport *transport;
	struct rpc_key key;
	uint64_t incarnation;
	struct oss_target **targets; /* id - 1 */
	uint32_t n_targets;
	struct oss_slots **chains; /* id - 1; made when first needed */
	uint32_t n_chains;
	bool stopping;
};

int oss_init(struct oss *o, struct cluster *c, const struct mds_params *p, struct transport *t,
	     const struct rpc_key *key) CHECK_RESULT;
/* Calls under way end with -LE_SHUTDOWN; nobody may call afterwards. Yields. */
void oss_stop(struct oss *o);
void oss_fini(struct oss *o);
/* It is up, or at another address. Does not yield. */
void oss_target_changed(struct oss *o, struct target *t);
/* To the head of a chain. rep: without bytes members (those are cleared). Gives up at the deadline,
 * also that of the fiber: -LE_TARGET_DOWN. Yields. */
int oss_call(struct oss *o, uint32_t chain, uint16_t op, const void *req, void *rep,
	     uint64_t deadline_us) CHECK_RESULT;
/* The same, of kind WRITE, under a slot and number of the caller's: what was done under them in a
 * former incarnation is answered, not done again. Of one slot numbers grow, one at a time. */
struct oss_number {
	uint32_t chain, slot;
	uint64_t seq;
	bool again; /* it may have been carried out before, also in part; set by each attempt */
};
int oss_call_numbered(struct oss *o, struct oss_number *no, uint16_t op, const void *req, void *rep,
		      uint64_t deadline_us) CHECK_RESULT;
/* Is there a connection to the head of the chain? Does not yield. */
bool oss_ready(const struct oss *o, uint32_t chain);
/* To the head of a chain, not of kind WRITE: one attempt. -LE_DISCONNECTED also at once when there
 * is no connection. Yields. */
int oss_call_once(struct oss *o, uint32_t chain, uint16_t op, const void *req, void *rep,
		  uint64_t deadline_us) CHECK_RESULT;
/* To a target itself, about no chain: one attempt, of kind CTRL. -LE_TARGET_DOWN at once when there
 * is no connection. Yields. */
int oss_call_target(struct oss *o, uint32_t target, uint16_t op, const void *req, void *rep,
		    uint64_t deadline_us) CHECK_RESULT;

/* What the connections to object servers carried is added. */
void oss_totals(const struct oss *o, struct rpc_net_totals *totals);
void oss_net(const struct oss *o, struct net_report *r);

#endif
