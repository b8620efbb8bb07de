/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the operations (handlers.h): the target, the admission of requests, and execution
 * exactly once. Owned by the target's loop.
 */
#ifndef LEAT_OSSD_OPS_OP_H
#define LEAT_OSSD_OPS_OP_H

#include "common/rpc/cap.h"
#include "common/rpc/rpc.h"
#include "ossd/chain/chain.h"
#include "ossd/ops/fence.h"
#include "ossd/ops/grace.h"
#include "ossd/ops/lease.h"

#define TARGET_MAGIC 0x7467726cu
#define CAP_MEMO     1024u

struct maintenance;
struct scrub;

/* One target of the process. Owned by its loop. */
struct target {
	uint32_t magic;
	struct env *env;
	const struct ossd_params *p;
	struct ossd_metrics *metrics;
	struct chunk_store *store;
	struct chains *chains;
	struct maintenance *maintenance;
	struct scrub *scrub;
	struct cap_key cap_key;
	struct cap memo[CAP_MEMO]; /* verified capabilities, by session and inode */
	struct chunk_leases leases;
	struct fence fence;
	struct grace grace;
	uint64_t incarnation; /* changes with each start of the process */
	bool ready;           /* The MDS has registered the target. */
	/* The target's number, from its store until the MDS has registered it; and the chain of
	 * which it is the only member. */
	uint32_t id, chain;
	uint64_t start_us;
	const char *addrs;
};

/* Returns the target that the request was sent to. */
static inline struct target *op_target(const struct rpc_req *r)
{
	return CAST_OBJ(r->arg, struct target, TARGET_MAGIC);
}

/* Returns the chain of a request. Without one, the request means the chain of which the target is
 * the only member. */
static inline uint32_t op_chain(const struct rpc_req *r)
{
	return r->hdr.chain ? r->hdr.chain : op_target(r)->chain;
}

/* Checks that the request is for this target, that the target may serve its chain in its epoch and
 * in the role `need`, and that the client's session has not ended. Sets *ret_chain. The first call
 * for a request may wait for the grace period, so it yields; later calls do not. Returns 0,
 * -LE_NOT_READY, -LE_NO_TARGET, -LE_STALE_EPOCH, -LE_NOT_HEAD, -LE_NO_LEASE, -LE_PENDING,
 * -LE_SESSION_GONE, -LE_PERM or -LE_INTR. */
int op_admit(struct rpc_req *r, enum chain_need need, struct chain **ret_chain) CHECK_RESULT;
/* Checks that the capability gives these rights on this generation of the inode's data. Accepts
 * every request of the MDS. Returns 0; -LE_BAD_CAP; or -LE_CAP_EXPIRED, by the MDS's clock: the
 * client must renew the capability at the MDS and repeat the request. Does not yield. */
int op_check_cap(struct rpc_req *r, const struct cap *cap, struct ino ino, uint32_t gen,
		 uint32_t rights) CHECK_RESULT;

/* A request that changes data. */
struct mutation {
	struct rpc_req *r;
	struct target *t;
	struct chain *chain;
	/* The replay entry. NULL if the request has no sequence number: it is from the MDS, or for
	 * a copy. */
	struct replay_ent *ent;
};
/* Executes a mutation exactly once. Admits the request and calls fn, or fills `out` with the stored
 * reply if the request was executed before. fn must call op_answer, and then, without a yield in
 * between, join the group commit for which it waits. Returns the result of fn, 0 with the stored
 * reply, or the status of a refusal. Yields. */
int op_mutate(struct rpc_req *r, int (*fn)(struct mutation *m, const void *in, void *out),
	      const void *in, void *out) CHECK_RESULT;
/* Puts the reply into the open batch, which also has the change. Does not yield. */
void op_answer(struct mutation *m, const void *out);
/* Like op_answer, for a replicated chain: sends the reply to all members with the version. */
void op_answer_version(struct mutation *m, const void *out, struct version *v);
/* Returns 0 if this target is still head in the epoch of the request, else -LE_STALE_EPOCH or
 * -LE_NOT_HEAD. Call it after each yield that precedes a join. Does not yield. */
int op_still_head(const struct mutation *m) CHECK_RESULT;
/* Makes the reply to a change that is already durable durable too, in a group of its own, at every
 * member. Returns 0 or an error. Yields. */
int op_answer_durable(struct mutation *m, const void *out) CHECK_RESULT;

/* Repairs for one request, at most. A write between the read and the repair can make another
 * repair necessary. */
#define REPAIRS_MAX 8u
/* Repairs a chunk that is lost or has a damaged block, from another member. Returns 0 if the caller
 * may read the chunk again; -LE_NOT_READY if the chunk is lost here, and a member that is not SYNC
 * may have it; -LE_CORRUPT otherwise. Yields. */
int op_repair(struct target *t, const struct chain *c, const struct chunk_key *id) CHECK_RESULT;
/* Like op_repair, for a chunk that will be removed. Returns 1 if all members have answered that
 * they do not have the chunk: then it may be removed. Yields. */
int op_repair_removed(struct target *t, const struct chain *c,
		      const struct chunk_key *id) CHECK_RESULT;

/* Returns true for the session of a client. The metadata server, copies and other members have
 * sessions too. */
static inline bool op_is_client(uint64_t session)
{
	return session > 1 && session < SESSION_COPY;
}

/* Records that the connection belongs to the session; 0: the connection has ended. Does not
 * yield. */
void op_peer_session(struct target *t, struct rpc_peer *p, uint64_t session);

#endif
