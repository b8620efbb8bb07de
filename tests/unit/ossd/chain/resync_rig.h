/* SPDX-License-Identifier: Apache-2.0 */
/* Object servers of one chain in a simulated cluster, without a metadata server: the test says who
 * is in the chain. Each node is a process of its own; the test runs in another. */
#ifndef LEAT_TESTS_RESYNC_RIG_H
#define LEAT_TESTS_RESYNC_RIG_H

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
	uint32_t id; /* of the target, from 1 */
	char name[16];
	struct sim_proc *proc;
	struct ossd_params params;
	struct ossd_metrics metrics;
	struct target *target; /* while it runs */
	struct rpc_server *server;
	struct slot_pool *pool;
	bool formatted, stop, up;
	uint32_t adopted;                       /* orders carried out */
	void (*fn)(struct rnode *n, void *arg); /* to be run there */
	void *arg;
	uint32_t synced_target, synced_epoch; /* what it reported last */
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
	/* The chain as it is to be: nodes follow. */
	uint32_t epoch, orders;
	struct chain_member members[CHAIN_MEMBERS_MAX];
	uint32_t n_members;
	void (*fn)(struct rrig *r, void *arg);
	void *arg;
	bool done;
	/* Model of what was acknowledged: version and fill byte of each chunk. */
	uint64_t seed;
};

void rrig_init(struct rrig *r, uint32_t n_nodes, uint64_t seed);
void rrig_fini(struct rrig *r);
/* Starts the nodes that are not up, runs fn in a fiber of the test's process until it ends. */
void rrig_run(struct rrig *r, void (*fn)(struct rrig *r, void *arg), void *arg);

/* ---- from fn ---- */
void rrig_start(struct rrig *r, uint32_t node);
/* Power loss: what was not synced is gone. */
void rrig_crash(struct rrig *r, uint32_t node);
/* Runs fn in a fiber of the node. */
void rrig_do(struct rrig *r, uint32_t node, void (*fn)(struct rnode *n, void *arg), void *arg);
/* A new epoch: states by node, 'S' SYNC, 'Y' SYNCING, 'O' OUT, '-' no member; in the order given by
 * `order` (node numbers). Waits until all nodes that are up have adopted it. */
void rrig_set(struct rrig *r, const char *order, const char *states);
/* Waits until some node has reported that the target is filled, in the present epoch. */
bool rrig_wait_synced(struct rrig *r, uint32_t node, uint32_t ms);
/* One whole write of len bytes of value at the head; asked again where that is right. */
int rrig_write(struct rrig *r, uint64_t ino, uint64_t idx, uint8_t value, uint32_t len);
/* The files first to last, 16 at most, in one request. */
int rrig_remove(struct rrig *r, uint64_t first, uint64_t last);
int rrig_trim(struct rrig *r, uint64_t ino, uint64_t size);
/* The same under a number of the metadata server's session, so that its answer is kept. */
int rrig_trim_as(struct rrig *r, uint64_t ino, uint64_t size, uint64_t seq);
/* A verified read of the chunk from a node: 0, its first byte (0: no such chunk). */
int rrig_read(struct rrig *r, uint32_t node, uint64_t ino, uint64_t idx, uint8_t *ret_value);
/* How many chunks the two nodes have; asserts that they are the same ones with the same content. */
uint64_t rrig_same(struct rrig *r, uint32_t a, uint32_t b);

#endif
