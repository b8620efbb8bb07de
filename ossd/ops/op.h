/*
 * What the operations share: the target they work on, who may do what, and exactly once.
 * A handler is found by its name: ops/read.c has op_read. Every handler runs in the fiber of
 * its request on the target's loop; r->arg is the struct target.
 */
#ifndef LEAT_OSSD_OP_H
#define LEAT_OSSD_OP_H

#include "common/rpc/cap.h"
#include "common/rpc/rpc.h"
#include "ossd/chain/chain.h"
#include "ossd/ops/fence.h"
#include "ossd/ops/grace.h"
#include "ossd/ops/lease.h"

#define TARGET_MAGIC 0x7467726cu
#define CAP_MEMO     1024u

/* The one target of this process; owned by its loop. */
struct care;
struct scrub;
struct target {
	uint32_t magic;
	struct env *env;
	const struct ossd_params *p;
	struct ossd_metrics *metrics;
	struct chunk_store *store;
	struct chains *chains;
	struct care *care;
	struct scrub *scrub;
	struct cap_key cap_key;
	struct cap memo[CAP_MEMO]; /* verified ones, by session and inode */
	struct chunk_leases leases;
	struct fence fence;
	struct grace grace;
	uint64_t incarnation; /* of this process */
	/* From the MDS: */
	bool ready;
	uint32_t id, chain; /* chain: its own, of one member */
	uint64_t start_us;
	const char *addrs;
};

static inline struct target *op_target(const struct rpc_req *r)
{
	return CAST_OBJ(r->arg, struct target, TARGET_MAGIC);
}

/* The chain that a request means. Clients that do not name one yet mean the target's own. */
static inline uint32_t op_chain(const struct rpc_req *r)
{
	return r->hdr.chain ? r->hdr.chain : op_target(r)->chain;
}
/* Is this the target, is it in service, does the client know the chain's present epoch, is this the
 * member to ask? The first time it waits for the grace time, later ones do not yield.
 * Does the client's session live, as far as is known here? -LE_NOT_READY, -LE_NO_TARGET,
 * -LE_STALE_EPOCH, -LE_NOT_HEAD, -LE_NO_LEASE, -LE_PENDING, -LE_SESSION_GONE, -LE_INTR */
int op_admit(struct rpc_req *r, enum chain_need need, struct chain **ret_chain) CHECK_RESULT;
/* The capability, unless the MDS asks. -LE_BAD_CAP */
int op_check_cap(struct rpc_req *r, const struct cap *cap, struct ino ino, uint32_t gen,
		 uint32_t rights) CHECK_RESULT;

/* A request that changes something. */
struct mutation {
	struct rpc_req *r;
	struct target *t;
	struct chain *chain;
	struct replay_ent *ent; /* NULL: the MDS asks, or a copy is made, without a number */
};
/* Admits, runs fn unless it was answered before. fn calls op_answer and then, without a yield
 * between, joins the group commit for whose end it waits. */
int op_mutate(struct rpc_req *r, int (*fn)(struct mutation *m, const void *in, void *out),
	      const void *in, void *out) CHECK_RESULT;
void op_answer(struct mutation *m, const void *out);
/* The same in a replicated chain: the answer goes with the version to all members. */
void op_answer_version(struct mutation *m, const void *out, struct version *v);
/* Is this still the head, in the epoch that the client knows? After a yield, before a join. */
int op_still_head(const struct mutation *m) CHECK_RESULT;
/* For changes that are durable already: their answer in a group of its own, at every member. */
int op_answer_durable(struct mutation *m, const void *out) CHECK_RESULT;

/* How often damage is repaired for one request: while others write the chunk, what was repaired may
 * be another version's. */
#define REPAIRS_MAX 8u
/* A block of the chunk does not match its checksum, or it is lost. 0: it is whole now, others had
 * it; -LE_NOT_READY: it is lost, and members that are away may have it; -LE_CORRUPT. Yields. */
int op_repair(struct target *t, const struct chain *c, const struct chunk_key *id) CHECK_RESULT;
/* The same for one that is to be removed. 1: no member has it, and all were asked: so it may go.
 * Yields. */
int op_repair_removed(struct target *t, const struct chain *c,
		      const struct chunk_key *id) CHECK_RESULT;

/* A client's, not that of the metadata server, a copy or another member. */
static inline bool op_is_client(uint64_t session)
{
	return session > 1 && session < SESSION_COPY;
}

/* The connection works for this session from now on (0: it has ended). */
void op_peer_session(struct target *t, struct rpc_peer *p, uint64_t session);

/* What oss_read does with a chunk once the request is admitted: waits for what is pending where
 * that is this member's to do, reads, repairs what is damaged. cr: admit is filled in here. */
int op_read_chunk(struct rpc_req *r, struct chain *c, struct chunk_read *cr) CHECK_RESULT;

int op_read(struct rpc_req *r, const void *in, void *out);
int op_reclaim(struct rpc_req *r, const void *in, void *out);
int op_release(struct rpc_req *r, const void *in, void *out);
int op_write(struct rpc_req *r, const void *in, void *out);
int op_trim(struct rpc_req *r, const void *in, void *out);
int op_punch(struct rpc_req *r, const void *in, void *out);
int op_remove(struct rpc_req *r, const void *in, void *out);
int op_stat(struct rpc_req *r, const void *in, void *out);
int op_list(struct rpc_req *r, const void *in, void *out);
int op_sums(struct rpc_req *r, const void *in, void *out);
int op_grant(struct rpc_req *r, const void *in, void *out);
int op_status(struct rpc_req *r, const void *in, void *out);
int op_sync(struct rpc_req *r, const void *in, void *out);
int op_chain_set(struct rpc_req *r, const void *in, void *out);
int op_forward(struct rpc_req *r, const void *in, void *out);
int op_commit(struct rpc_req *r, const void *in, void *out);
int op_resolve(struct rpc_req *r, const void *in, void *out);
int op_resync_ask(struct rpc_req *r, const void *in, void *out);
int op_resync_chunk(struct rpc_req *r, const void *in, void *out);
int op_resync_rows(struct rpc_req *r, const void *in, void *out);
int op_fetch(struct rpc_req *r, const void *in, void *out);
int op_copy(struct rpc_req *r, const void *in, void *out);
int op_readv(struct rpc_req *r, const void *in, void *out);
int op_scrub(struct rpc_req *r, const void *in, void *out);

#endif
