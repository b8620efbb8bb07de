/*
 * What targets say of themselves: they register, after a start and whenever they connect again, and
 * send heartbeats, for which they get their lease and news of their chains.
 *
 * Owned by the loop.
 */
#ifndef LEAT_MDS_TARGETS_H
#define LEAT_MDS_TARGETS_H

#include "mds/cluster.h"

/* -LE_WRONG_CLUSTER, -LE_STORE_OLD, -LE_OVERLOAD (targets_max), -LE_INVAL; -LE_NOT_READY: it is not
 * decided yet what it is in its chains. Yields. */
int target_register(struct cluster *c, const struct mds_target_register_req *in,
		    struct mds_target_register_rep *out) CHECK_RESULT;
/* -LE_NO_TARGET: not known, register first. Yields when the target was down. */
int target_heartbeat(struct cluster *c, const struct mds_target_heartbeat_req *in,
		     struct mds_target_heartbeat_rep *out) CHECK_RESULT;
/* Until nothing comes into effect any more of sessions that are not in that set. Yields. */
void targets_await_fence(struct cluster *c, uint64_t gen);
/* Until every target that counts as up reads for nobody whose session is not in that set, however
 * long it may be out of touch; no longer than it takes to find that one is down. ids, room for
 * targets_max: the targets of which this is not known then. Who is down and has not said so may
 * serve such reads, unless its process is gone. -LE_NOMEM. Yields. */
int targets_await_reads(struct cluster *c, uint64_t gen, uint32_t *ids,
			uint32_t *ret_n) CHECK_RESULT;
/* A target has said after how long a silence it reads for nobody (0: it reads on), and is told what
 * is to be so. Does not yield. */
void target_goes_by(struct cluster *c, uint32_t target, uint32_t said_ms, uint32_t told_ms);

#endif
