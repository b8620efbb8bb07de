/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Object servers that are the members of one chain, in simulated processes. The rig stands in for
 * the metadata server: it decides on members and epochs, and sends them to the servers. One client
 * process writes and reads.
 */
#ifndef LEAT_TESTS_UNIT_OSSD_CHAIN_CHAIN_RIG_H
#define LEAT_TESTS_UNIT_OSSD_CHAIN_CHAIN_RIG_H

#include "common/rpc/rpc.h"
#include "common/rt/sim/sim.h"
#include "ossd/chain/commit.h"
#include "ossd/ops/op.h"

#define RIG_MEMBERS 3
#define RIG_CHAIN   9u
#define RIG_CS      (256u << 10)
#define RIG_BS      16384u

struct chain_rig;

struct member {
	struct chain_rig *rig;
	struct sim_proc *proc;
	char name[16], dir[24];
	struct ossd_params params;
	struct ossd_metrics metrics;
	struct target target;
	struct rpc_server *server;
	struct slot_pool *bulk;
	bool formatted, running;
	enum member_state state;
	struct rpc_client *client; /* of the test's process, in the role of a metadata server */
};

struct chain_rig {
	struct sim *sim;
	struct transport *transport;
	struct rpc_key key;
	struct member m[RIG_MEMBERS];
	uint32_t n, epoch;
	uint32_t order[RIG_MEMBERS]; /* positions in m, head first */
	struct sim_proc *client;
	struct slot_pool *pool;
	void (*fn)(struct chain_rig *r);
	bool done;
	uint32_t lease_ms; /* 0: leases are not renewed */
	uint32_t grace_ms; /* 0: servers that crashed have no grace period */
	uint64_t disk;     /* size of the data files, before the run */
	uint64_t disk_us;  /* latency of a disk operation is 1..this; 0: 500 */
};

/* Runs fn in a fiber of the client's process, with n servers up and all of them SYNC in epoch 1. */
void chain_rig_run(uint64_t seed, uint32_t n, void (*fn)(struct chain_rig *r));
void chain_rig_run_on(struct chain_rig *r, uint64_t seed, uint32_t n,
		      void (*fn)(struct chain_rig *r));

/* Sets a new epoch (+ 1) with the members in r->order and the states in r->m[].state; sends it to
 * all servers that run. */
void crig_members(struct chain_rig *r);
/* Sends the chain to member i. */
void crig_tell(struct chain_rig *r, uint32_t i);
void crig_crash(struct chain_rig *r, uint32_t i);
/* Starts member i again, with what its disk has. */
void crig_restart(struct chain_rig *r, uint32_t i);
void crig_cut_off(struct chain_rig *r, uint32_t a, uint32_t b, bool cut);
/* Sends a request to member i as the member before it. */
int crig_say(struct chain_rig *r, uint32_t i, const struct oss_forward_req *req);

struct crig_write {
	struct chunk_id chunk;
	uint32_t off, len;
	const void *data;
	uint64_t session, seq;
	uint32_t slot;
	uint32_t flags; /* enum write_flags */
	uint64_t base;
	bool again;    /* FRAME_AGAIN */
	bool seen;     /* and FRAME_SEEN */
	bool accepted; /* out */
};
/* One attempt at member i. Returns 0 or a status. */
int crig_write(struct chain_rig *r, uint32_t i, struct crig_write *w, uint64_t timeout_ms);
/* Writes in a fiber. */
struct crig_async {
	struct chain_rig *r;
	uint32_t at;
	struct crig_write w;
	uint64_t timeout_ms;
	int rc;
	bool ended;
};
void crig_start(struct crig_async *a);
void crig_wait(struct crig_async *a);
/* Returns the number of bytes, up to the end of the chunk, or a status. */
int64_t crig_read(struct chain_rig *r, uint32_t i, const struct chunk_id *chunk, void *buf,
		 uint32_t len);
/* Like crig_read, for a client's session. */
int64_t crig_read_as(struct chain_rig *r, uint32_t i, uint64_t session,
		     const struct chunk_id *chunk, void *buf, uint32_t len);
/* Reads the whole chunk, after no version of it is pending. */
int64_t crig_read_any(struct chain_rig *r, uint32_t i, const struct chunk_id *chunk, uint8_t *buf);
/* Writes fragments of the same blocks of a chunk: writer i writes bytes i, i + 4, … of each
 * kilobyte's 64. Each write is repeated until it succeeds: after any error if `again` is set, else
 * only after OVERLOAD. */
struct crig_writer {
	struct chain_rig *r;
	struct chunk_id chunk;
	uint32_t i, n;
	uint8_t *model; /* of the chunk */
	bool again;
	uint64_t timeout_ms;
};
#define RIG_WRITERS 4u
/* Runs RIG_WRITERS writers concurrently. Afterwards all members have the model, up to the end of
 * the written bytes. */
void crig_write_many(struct crig_writer *like);
int crig_remove(struct chain_rig *r, uint32_t i, struct ino ino, uint64_t seq);
int crig_trim(struct chain_rig *r, uint32_t i, const struct chunk_id *file, uint64_t size,
	     uint64_t seq, uint8_t *ret_shown);
/* Punches a hole, under slot 79. */
int crig_punch(struct chain_rig *r, uint32_t i, const struct chunk_id *file, uint64_t off,
	       uint64_t len, uint64_t seq);
void crig_fill(uint8_t *p, uint32_t len, uint64_t seed);
/* Waits until no version is pending; checks that all running members have equal chunks, versions
 * and sums. */
void crig_wait_quiet(struct chain_rig *r);
void crig_check_equal(struct chain_rig *r);

#endif
