/*
 * The target's side of its life in the cluster: connect to the MDS, register, heartbeat, keep the
 * lease, learn of which chains it is a member and which sessions live. Runs in the background on
 * the target's loop.
 */
#ifndef LEAT_OSSD_REGISTRATION_H
#define LEAT_OSSD_REGISTRATION_H

#include "ossd/ops/op.h"

struct registration {
	struct target *t;
	struct rpc_client *client;
	struct rpc_server *server;
	char addrs[CONFIG_STR_MAX];
	char mds_addrs[CONFIG_STR_MAX];
	struct transport *transport;
	/* lease_ms, fence_ms 0: the metadata server gives none */
	uint32_t heartbeat_ms, lease_ms, fence_ms, read_ms;
	uint32_t chains_epoch;           /* of the last answer that named chains */
	int failed; /* the MDS will never take this store */
	int last_logged;
	bool stopping, again;
	bool distrust; /* the index is damaged: this target serves nothing any more */
	struct fiber *fiber;
	struct latch running;
};

struct registration_options {
	struct transport *transport;
	const struct rpc_key *key;
	const char *mds_addrs;
	struct rpc_server *server; /* for the figures; must outlive it, or be taken away */
	const char *addrs; /* what clients are told */
};

int registration_start(struct registration *g, struct target *t,
		       const struct registration_options *o) CHECK_RESULT;
void registration_stop(struct registration *g);
/* The store cannot be trusted: requests are refused, the metadata server is told, so that members
 * of chains are filled elsewhere, and then the program ends. Does not yield. */
void registration_distrust(struct registration *g);
/* mds_chain_synced: this target has filled a member. Yields. */
int registration_synced(struct registration *g, uint32_t chain, uint32_t epoch,
			uint32_t target) CHECK_RESULT;

#endif
