/* SPDX-License-Identifier: Apache-2.0 */
/* Object servers of one chain in a simulated cluster, without a metadata server: the test sets the
 * members of the chain. Each node is a process of its own; the test runs in another. */
#ifndef LEAT_TESTS_UNIT_OSSD_CHAIN_RESYNC_RIG_H
#define LEAT_TESTS_UNIT_OSSD_CHAIN_RESYNC_RIG_H

#include "common/rt/sim/sim.h"
#include "ossd/chain/maintenance.h"
#include "ossd/dispatch.h"
#include "ossd/ops/op.h"
#include "ossd/scrub/scrub.h"
#include "ossd/server.h"

#define RRIG_NODES 3u
#define RRIG_CHAIN 9u
#define RRIG_CS    65536u

struct rrig;
struct rnode {
	struct rrig *rig;
	uint32_t id; /* target id, from 1 */
	char name[16];
	struct sim_proc *proc;
	struct ossd_params params;
	struct ossd_metrics metrics;
	struct target *target; /* NULL unless it runs */
	struct rpc_server *server;
	struct slot_pool *pool;
	bool formatted, stop, up;
	uint32_t adopted;                       /* number of the last order that was executed */
	void (*fn)(struct rnode *n, void *arg); /* to be run in the node's process */
	void *arg;
	uint32_t synced_target, synced_epoch; /* last report of a filled member */
	struct rpc_client *client;            /* of the test's process */
};

struct rrig {
	struct sim *sim;
	struct transport *net;
	struct rpc_key key;
	struct sim_proc *driver;
	struct rnode node[RRIG_NODES];
	uint32_t n_nodes;
	struct slot_pool *slots;
	/* The chain that the nodes have to adopt. */
	uint32_t epoch, orders;
	struct chain_member members[CHAIN_MEMBERS_MAX];
	uint32_t n_members;
	void (*fn)(struct rrig *r, void *arg);
	void *arg;
	bool done;
	/* Seed of the test's random choices. */
	uint64_t seed;
};

void rrig_init(struct rrig *r, uint32_t n_nodes, uint64_t seed);
void rrig_fini(struct rrig *r);
/* Starts the nodes that are not up, runs fn in a fiber of the test's process until it ends. */
void rrig_run(struct rrig *r, void (*fn)(struct rrig *r, void *arg), void *arg);

/* ---- to be called in fn ---- */
void rrig_start(struct rrig *r, uint32_t node);
/* Power loss: what was not synced is lost. */
void rrig_crash(struct rrig *r, uint32_t node);
/* Runs fn in a fiber of the node. */
void rrig_do(struct rrig *r, uint32_t node, void (*fn)(struct rnode *n, void *arg), void *arg);
/* A new epoch: states by node, 'S' SYNC, 'Y' SYNCING, 'O' OUT, '-' no member; in the order given by
 * `order` (node numbers). Waits until all nodes that are up have adopted it. */
void rrig_set(struct rrig *r, const char *order, const char *states);
/* Waits until a node has reported that the target is filled, in the present epoch. */
bool rrig_wait_synced(struct rrig *r, uint32_t node, uint32_t ms);
/* Writes one whole chunk of len bytes of value at the head; repeats on errors that allow it. */
int rrig_write(struct rrig *r, uint64_t ino, uint64_t idx, uint8_t value, uint32_t len);
/* Removes the files first to last, 16 at most, in one request. */
int rrig_remove(struct rrig *r, uint64_t first, uint64_t last);
int rrig_trim(struct rrig *r, uint64_t ino, uint64_t size);
/* Like rrig_trim, with a sequence number of the metadata server's session, so that the reply is
 * recorded. */
int rrig_trim_as(struct rrig *r, uint64_t ino, uint64_t size, uint64_t seq);
/* Reads the chunk from a node and verifies it. Returns 0 and its first byte (0: no such chunk), or
 * a status. */
int rrig_read(struct rrig *r, uint32_t node, uint64_t ino, uint64_t idx, uint8_t *ret_value);
/* Returns the number of chunks of the two nodes; asserts that they have equal chunks. */
uint64_t rrig_same(struct rrig *r, uint32_t a, uint32_t b);

#endif
