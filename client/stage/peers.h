/*
 * Other nodes that make, or have, the same copy. Each chunk has an owner among them, by rendezvous
 * hashing of (chunk, node): the owner reads it from the source, the others get it from the owner,
 * which fetches it at once when it is asked, or from whoever the owner says has it (spread.h). One
 * that has not begun yet is waited for, some seconds. Who
 * does not answer, answers late, or answers wrongly is left out, and what it owned falls to the
 * next in the same order, for everybody alike; in the end there is always the source. Everything
 * belongs to one loop.
 */
#ifndef LEAT_STAGE_PEERS_H
#define LEAT_STAGE_PEERS_H

#include "client/stage/fetch.h"
#include "client/stage/stage.h"
#include "common/rpc/rpc.h"

#define PEERS_MAX      4096u
#define PEER_ADDR_SIZE 256u

struct swarm;

/* ---- how nodes reach each other: by rpc, or simulated ---- */

struct swarm_peer {
	char addr[PEER_ADDR_SIZE];
	void *conn; /* of the net; NULL at first */
	bool away;  /* left out: nobody waits for it any longer */
};
struct swarm_ask {
	const char *id, *from; /* of the data set; the asker's own address */
	uint64_t chunk;
	uint32_t off, len; /* these bytes of it; len 0: all */
	uint32_t wait_ms;
	/* Not 0: the answer is waited for so long, a connection not at all: -LE_AGAIN. */
	uint32_t quick_ms;
	bool demand, again; /* see peer_proto.h */
};
struct swarm_answer {
	uint32_t len;
	char ask[PEER_ADDR_SIZE]; /* "": the bytes are there */
};
struct swarm_net_ops {
	/* The bytes into s, not verified. Yields. */
	int (*ask)(void *net, struct swarm_peer *p, const struct swarm_ask *q, struct slot *s,
		   struct swarm_answer *ret_answer);
	/* The connection is not needed any more. Yields. */
	void (*leave)(void *net, struct swarm_peer *p);
	/* Tells each node of which is known that it makes or has the copy. -LE_SHUTDOWN from each
	 * ends it. Yields. */
	int (*look)(void *net, const char *id,
		    int (*each)(void *arg, const char *addr, size_t len, bool ready), void *arg);
	/* Tells the node, if it is on this machine, that its copy of the chunk is damaged. NULL:
	 * there is nobody to be told. Yields. */
	int (*damaged)(void *net, struct swarm_peer *p, const char *id, uint64_t chunk);
};
/* peers_net.c: rpc, and the metadata server. For net: */
struct swarm_rpc {
	struct leat_fs *fs;
	const struct rpc_key *key;
	bool loader; /* as what it calls itself: a loader, else an agent */
	struct rpc_net_totals ended; /* of connections that are no more */
};
extern const struct swarm_net_ops swarm_net_rpc;

/* ---- a job's nodes ---- */

struct swarm_options {
	const struct swarm_net_ops *ops;
	void *net; /* for them; outlives the swarm */
	/* Says what is right; outlives the swarm. */
	const struct manifest *manifest;
	/* How long the source takes for a chunk, about, as of late; NULL: nobody knows. */
	const uint64_t *source_us;
	uint32_t look_ms; /* how often it asks who is there; 0: as staging needs it */
	/* After each look, the first within swarm_create; must not yield. NULL is fine. */
	void (*looked)(void *arg, const struct swarm *w);
	void *looked_arg;
	/* Where this node hands out chunks, as others know it. */
	const char *self;
	/* Addresses of all that take part, this node's among them ("" or NULL: whoever tells the
	 * metadata server that it is making the copy). */
	const char *members;
	uint32_t self_member; /* which of them this node is */
	/* Without members: how many there will be, this node included; they are waited for some
	 * seconds, so that chunks do not change their owners while they come. 0: not known. */
	uint32_t expect;
	const int *stop;           /* non-zero: nobody is waited for any more; NULL is fine */
	const struct share *share; /* which of the members holds what; NULL: each all */
};

struct swarm_stats {
	uint32_t members; /* besides this node */
	uint32_t dropped; /* how often one was left out */
	uint32_t lied;    /* ... for wrong bytes */
};

/* How many addresses a text of members has; NULL: none. */
uint32_t swarm_count(const char *members);
int swarm_create(const struct swarm_options *opts, struct swarm **ret_swarm) CHECK_RESULT;
void swarm_destroy(struct swarm *w); /* NULL is fine. Yields. */
/* As fetch_options.from_peer; arg is the swarm. Yields. */
int swarm_get(void *arg, uint64_t chunk, struct slot *s, enum fetch_ask how) CHECK_RESULT;
/* Bytes of a chunk, whole blocks of its file (the last one may be shorter), verified, from a node
 * that has all of the data set, into a slot of at least len bytes. Waits for no connection and for
 * a silent node not for long: -LE_AGAIN. Yields. */
int swarm_get_part(struct swarm *w, uint64_t chunk, uint32_t off, uint32_t len,
		   struct slot *s) CHECK_RESULT;
/* This machine's copy, which this process may not write, has a damaged chunk: its agent is told.
 * -LE_NOENT: there is none. Yields. */
int swarm_damaged(struct swarm *w, uint64_t chunk) CHECK_RESULT;
/* Nodes that have all of it and may be asked now. */
uint32_t swarm_n_ready(const struct swarm *w);
/* For fetch_options.turn: each member its own. */
uint32_t swarm_turn(const struct swarm *w);
/* The other side of asking: from the job's own fetch, in a slot of the pool (NULL: the answer says
 * whom to ask). Within q->wait_ms. Yields. */
int swarm_serve(struct swarm *w, struct fetch *ft, const struct swarm_ask *q,
		struct slot_pool *pool, struct slot **ret_slot,
		struct swarm_answer *ret_answer) CHECK_RESULT;
void swarm_stats(const struct swarm *w, struct swarm_stats *ret_stats);
/* fn for each connection of the net. */
void swarm_conns(const struct swarm *w, void (*fn)(void *arg, void *conn), void *arg);

/* The rank of a node for a chunk: the highest owns it. */
uint64_t swarm_weight(const char *node, uint64_t chunk);

#endif
