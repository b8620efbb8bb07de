/*
 * The handshake: protocol version, cluster, roles, limits, and proof on both sides that the other
 * one has the cluster key. PROTOCOL.md has the messages. Yields; the caller sets the deadline by
 * shutting the link down.
 */
#ifndef LEAT_RPC_AUTH_H
#define LEAT_RPC_AUTH_H

#include "common/rpc/addr.h"
#include "common/rpc/rpc.h"

#define AUTH_TRANSCRIPT_MAX 2048u

/* What a side says of itself. */
struct auth_self {
	enum rpc_role role;
	const char *name;
	struct uuid cluster; /* zero: does not know */
	const struct rpc_key *key;
	uint32_t loop;       /* client: of the server */
	uint32_t credits;    /* client: wishes, server: grants */
	uint32_t bulk_max;
	const char *addrs;   /* server: where else it can be reached; NULL: says nothing */
};

/* What it has learned of the other one, and what both agreed upon. */
struct auth_peer {
	enum rpc_role role;
	char name[64];
	struct uuid cluster;
	uint32_t version, loop, credits, bulk_max;
	char addrs[ADDR_LIST_SIZE]; /* of a server, blank-separated */
};

/* Kept between auth_server and auth_server_finish. */
struct auth_state {
	uint8_t key[32];
	uint8_t transcript[AUTH_TRANSCRIPT_MAX];
	uint32_t len;
};

/* 0, -LE_VERSION, -LE_WRONG_CLUSTER, -LE_AUTH, what the server answered, or why the link broke. */
int auth_client(struct link *k, const struct auth_self *self,
		struct auth_peer *ret_peer) CHECK_RESULT;
/* 0: the client is who it says, and waits for auth_server_finish. The refused client has been told.
 */
int auth_server(struct link *k, const struct auth_self *self, struct auth_state *ret_state,
		struct auth_peer *ret_peer) CHECK_RESULT;
/* Tells the client that it is accepted (0) or why not. */
int auth_server_finish(struct link *k, struct auth_state *st, int status) CHECK_RESULT;

#endif
