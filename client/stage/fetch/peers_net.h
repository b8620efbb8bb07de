/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connections of agents and loaders to nodes that have a copy: rpc clients, made at the first
 * request to a node. The metadata server lists the nodes.
 */
#ifndef LEAT_CLIENT_STAGE_FETCH_PEERS_NET_H
#define LEAT_CLIENT_STAGE_FETCH_PEERS_NET_H

#include "client/stage/fetch/peers.h"
#include "common/rpc/rpc.h"

struct leat_fs;

#define SWARM_RPC_MAGIC 0x4c535250u /* LSRP */

/* The net of swarm_net_rpc. */
struct swarm_rpc {
	uint32_t magic;
	struct leat_fs *fs;
	const struct rpc_key *key;
	bool loader;                 /* introduces itself as a loader, else as an agent */
	struct rpc_net_totals ended; /* of closed connections */
};

/* Owned by the loop of net.fs. */
extern const struct swarm_net_ops swarm_net_rpc;

#endif
