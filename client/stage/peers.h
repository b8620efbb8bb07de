/*
 * Other nodes that make, or have, the same copy. Each chunk has an owner among them, by rendezvous
 * hashing of (chunk, node): the owner reads it from the source, the others get it from the owner,
 * which fetches it at once when it is asked. Who does not answer, answers late, or answers wrongly
 * is left out, and what it owned falls to the next in the same order, for everybody alike; in the
 * end there is always the source. Everything belongs to one loop.
 */
#ifndef LEAT_STAGE_PEERS_H
#define LEAT_STAGE_PEERS_H

#include "client/stage/fetch.h"
#include "client/stage/stage.h"
#include "common/rpc/rpc.h"

#define PEERS_MAX 4096u

struct swarm;

struct swarm_options {
	struct leat_fs *fs;
	const struct stage_job *job; /* whose manifest says what is right; outlives the swarm */
	const struct rpc_key *key;
	/* Where this node hands out chunks, as others know it. */
	const char *self;
	/* Addresses of all that take part, this node's among them ("" or NULL: whoever tells the
	 * metadata server that it is making the copy). */
	const char *members;
	uint32_t self_member; /* which of them this node is */
};

struct swarm_stats {
	uint32_t members; /* besides this node */
	uint32_t dropped; /* how often one was left out */
	uint32_t lied;    /* ... for wrong bytes */
};

int swarm_create(const struct swarm_options *opts, struct swarm **ret_swarm) CHECK_RESULT;
void swarm_destroy(struct swarm *w); /* NULL is fine. Yields. */
/* from_peer of a job; arg is the swarm. */
int swarm_get(void *arg, uint64_t chunk, struct slot *s, enum fetch_ask ask) CHECK_RESULT;
void swarm_stats(const struct swarm *w, struct swarm_stats *ret_stats);

/* One rank of rendezvous hashing: the highest of all nodes owns the chunk. */
uint64_t swarm_weight(const char *node, uint64_t chunk);

#endif
