/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Other nodes that make, or have, the same copy: a swarm. Each chunk has an owner among them, by
 * rendezvous hashing of (chunk, node). The owner reads the chunk from the source, immediately
 * when another node requests it. The others get it from the owner, or from the node that the
 * owner refers them to (spread.h). A node that has not begun yet is waited for, for some
 * seconds. A node that does not answer, answers late or sends wrong bytes is left out; what it
 * owned falls to the next in rank, which is the same for all nodes, and in the end to the
 * source. Everything belongs to one loop.
 */
#ifndef LEAT_CLIENT_STAGE_FETCH_PEERS_H
#define LEAT_CLIENT_STAGE_FETCH_PEERS_H

#include "client/stage/fetch/fetch.h"
#include "client/stage/fetch/share.h"
#include "common/rpc/rpc.h"

#define PEERS_MAX      4096u
#define PEER_ADDR_SIZE 256u

struct swarm;

/* ---- how nodes reach each other: by rpc, or simulated ---- */

struct swarm_peer {
	char addr[PEER_ADDR_SIZE];
	void *conn; /* of the net; NULL at first */
	bool away;  /* left out: no fiber waits for it any longer */
};
/* A request for bytes of a chunk. */
struct swarm_ask {
	const char *id, *from; /* of the data set; the requesting node's address */
	uint64_t chunk;
	uint32_t off, len; /* these bytes of the chunk; len 0: all */
	uint32_t wait_ms;
	/* Not 0: waits so long for the answer, and not at all for a connection: -LE_AGAIN. */
	uint32_t quick_ms;
	bool demand, again; /* demand: the node is to fetch the chunk if it lacks it; again: not
			     * to refer to another node */
};
struct swarm_answer {
	uint32_t len;
	char ask[PEER_ADDR_SIZE]; /* the node to request it from; "": the bytes are there */
};
struct swarm_net_ops {
	/* Requests the bytes and receives them into s, not verified. Yields. */
	int (*ask)(void *net, struct swarm_peer *p, const struct swarm_ask *q, struct slot *s,
		   struct swarm_answer *ret_answer);
	/* Closes the connection. Yields. */
	void (*leave)(void *net, struct swarm_peer *p);
	/* Calls each for every node that makes or has the copy, until it returns -LE_SHUTDOWN.
	 * Yields. */
	int (*look)(void *net, const char *id,
		    int (*each)(void *arg, const char *addr, size_t len, bool ready), void *arg);
	/* Reports to the node, if it is on this machine, that its copy of the chunk is damaged.
	 * NULL: there is no such report. Yields. */
	int (*damaged)(void *net, struct swarm_peer *p, const char *id, uint64_t chunk);
};

/* ---- a job's nodes ---- */

struct swarm_options {
	const struct swarm_net_ops *ops;
	void *net; /* argument of ops; outlives the swarm */
	/* Verifies chunks; outlives the swarm. */
	const struct manifest *manifest;
	/* Average time that the source takes for a chunk; NULL: not measured. */
	const uint64_t *source_us;
	uint32_t poll_ms; /* poll interval for nodes; 0: as staging needs it */
	/* Called after each poll, the first within swarm_create; must not yield. May be NULL. */
	void (*looked)(void *arg, const struct swarm *w);
	void *looked_arg;
	/* The address at which this node serves chunks. */
	const char *self;
	/* Addresses of all members, this node's among them. "" or NULL: the nodes that report to
	 * the metadata server that they make the copy. */
	const char *members;
	uint32_t self_member; /* index of this node among them */
	/* Without members: the number of nodes to come, including this one. The swarm waits some
	 * seconds for them, so that chunks do not change their owners while nodes begin. 0: does
	 * not wait. */
	uint32_t expect;
	const int *stop;           /* non-zero: no longer waits for any node; may be NULL */
	const struct share *share; /* which member holds which files; NULL: each holds all */
};

struct swarm_stats {
	uint32_t members; /* besides this node */
	uint32_t dropped; /* how often a node was left out */
	uint32_t lied;    /* ... for wrong bytes */
};

/* Returns the number of addresses in a text of members; NULL: 0. */
uint32_t swarm_count(const char *members);
/* Looks up the nodes. opts is copied, its pointers are borrowed. Yields. */
int swarm_create(const struct swarm_options *opts, struct swarm **ret_swarm) CHECK_RESULT;
/* Closes all connections. NULL is fine. Yields. */
void swarm_destroy(struct swarm *w);
/* Gets a chunk from another node: fetch_options.from_peer, with the swarm as arg. Yields. */
int swarm_get(void *arg, uint64_t chunk, struct slot *s, enum fetch_ask how) CHECK_RESULT;
/* Gets bytes of a chunk from a node that has all of the data set, into a slot of at least len
 * bytes, and verifies them. off and len are whole blocks of the file; the last block may be
 * shorter. Waits for no connection, and not long for an answer: -LE_AGAIN. Yields. */
int swarm_get_part(struct swarm *w, uint64_t chunk, uint32_t off, uint32_t len,
		   struct slot *s) CHECK_RESULT;
/* Reports a damaged chunk of this machine's copy, which this process may not write, to the agent
 * of this machine. -LE_NOENT: no agent. Yields. */
int swarm_damaged(struct swarm *w, uint64_t chunk) CHECK_RESULT;
/* Returns how many nodes with the whole copy can be requested now. Does not yield. */
uint32_t swarm_n_ready(const struct swarm *w);
/* Returns fetch_options.turn of this node, different for each member. Does not yield. */
uint32_t swarm_turn(const struct swarm *w);
/* Serves a request of another node from ft, within q->wait_ms: a slot of the pool with the
 * bytes, or with *ret_slot NULL the node to request them from, in the answer. Yields. */
int swarm_serve(struct swarm *w, struct fetch *ft, const struct swarm_ask *q,
		struct slot_pool *pool, struct slot **ret_slot,
		struct swarm_answer *ret_answer) CHECK_RESULT;
void swarm_stats(const struct swarm *w, struct swarm_stats *ret_stats);
/* Calls fn for each connection of the net. Does not yield. */
void swarm_conns(const struct swarm *w, void (*fn)(void *arg, void *conn), void *arg);

/* The rank of a node for a chunk: the node with the highest owns it. A pure function. */
uint64_t swarm_weight(const char *node, uint64_t chunk);

#endif
