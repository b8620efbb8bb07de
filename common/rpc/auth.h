/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handshake: both sides agree on protocol version, cluster, roles and limits, and prove that
 * they have the cluster key. PROTOCOL.md describes the messages. Yields; to enforce a deadline, the
 * caller shuts the link down.
 */
#ifndef LEAT_COMMON_RPC_AUTH_H
#define LEAT_COMMON_RPC_AUTH_H

#include "common/rpc/addr.h"
#include "common/rpc/rpc.h"

#define AUTH_TRANSCRIPT_MAX 2048u

/* What this side sends about itself. */
struct auth_self {
	enum rpc_role role;
	const char *name;
	struct uuid cluster; /* zero: not yet learned */
	const struct rpc_key *key;
	uint32_t loop;       /* client: the server loop to reach */
	uint32_t credits;    /* client: requested, server: granted */
	uint32_t bulk_max;
	const char *addrs;   /* server: its other addresses; NULL: none */
};

/* What the peer sent about itself, and the negotiated values. */
struct auth_peer {
	enum rpc_role role;
	char name[64];
	struct uuid cluster;
	uint32_t version, loop, credits, bulk_max;
	char addrs[ADDR_LIST_SIZE]; /* of a server, blank-separated */
};

/* State between auth_server and auth_server_finish. */
struct auth_state {
	uint8_t key[32];
	uint8_t transcript[AUTH_TRANSCRIPT_MAX];
	uint32_t len;
};

/* Runs the client's side of the handshake. 0, -LE_VERSION, -LE_WRONG_CLUSTER, -LE_AUTH, the status
 * that the server sent, or the status of the broken link. */
int auth_client(struct link *k, const struct auth_self *self,
		struct auth_peer *ret_peer) CHECK_RESULT;
/* Runs the server's side up to the client's proof. 0: the client has proved its identity and waits
 * for auth_server_finish. On failure *ret_peer may be filled in, for the log; a client that this
 * side refuses has received the reason. */
int auth_server(struct link *k, const struct auth_self *self, struct auth_state *ret_state,
		struct auth_peer *ret_peer) CHECK_RESULT;
/* Sends the client that it is accepted (status 0), or the reason why not. */
int auth_server_finish(struct link *k, struct auth_state *st, int status) CHECK_RESULT;

/* Reads the cluster key file: 64 hex digits. -LE_CONFIG: malformed; -LE_ACCES: users other than the
 * owner may access it; else the status of the failed read. Failures fill in ret_problem. Blocking:
 * at start only. */
int rpc_key_check(const char *path, struct rpc_key *ret_key,
		  struct rpc_key_problem *ret_problem) CHECK_RESULT;
/* Like rpc_key_check, but logs the problem. */
int rpc_key_load(const char *path, struct rpc_key *ret_key) CHECK_RESULT;

#endif
