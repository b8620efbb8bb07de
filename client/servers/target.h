/* SPDX-License-Identifier: Apache-2.0 */
/* A target of an object server, and the connection to it. Owned by the client's loop. */
#ifndef LEAT_CLIENT_SERVERS_TARGET_H
#define LEAT_CLIENT_SERVERS_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "client/servers/cluster_map.h"
#include "common/base/hmap.h"
#include "common/base/status.h"
#include "common/proto/oss_proto.h"
#include "common/proto/types.h"
#include "common/rt/fiber.h"

struct client;
struct rpc_client;

#define TARGET_ADDRS_MAX 512u
#define TARGET_HOST_MAX  256u

/* A target of an object server. Its bools are independent: each tells one thing of the server, or
 * that one request is in flight (or must follow it). */
struct target {
	struct hmap_node node; /* by id */
	struct client *c;
	uint32_t id;
	enum target_state state;
	char addrs[TARGET_ADDRS_MAX];
	/* which loop of the server serves the target */
	uint32_t loop;
	uint32_t chain, epoch;  /* chain of the last request, and its epoch */
	struct rpc_client *rpc; /* NULL until the first request */
	bool near;              /* on this client's host */
	bool up;                /* connected */
	bool lost;              /* the connection was lost, and is not back */
	bool removed;           /* no longer part of the cluster */
	uint64_t slow_until_us; /* not preferred for reads until then: it was slow */
	struct waitq up_q;      /* waiters for the connection */
	/* Space in bytes: grant: granted to this client by the target; reserved: the part of it
	 * that data in flight may use. */
	uint64_t grant, reserved;
	/* time of the last grant request; one is in flight */
	uint64_t grant_asked_us;
	bool grant_asking;
	bool syncing, sync_again; /* an oss_sync is in flight; another one must follow */
	/* crash_replay.c: the server process; client.server_generations when the client first
	 * observed it; whether a report is in progress, and must start again over a new
	 * connection; what was reported last. */
	uint64_t incarnation, generation;
	bool crash_replaying, crash_replay_again;
	enum replay_stage told;
	/* capacity in bytes, as the map reports it */
	uint64_t total, free;
};

/* Creates the connection if there is none. It is established in the background. Returns 0,
 * -LE_NO_TARGET if the target has no address, or -LE_NOMEM. Does not yield. */
int target_connect(struct target *t) CHECK_RESULT;
/* Waits for the connection, for CONNECT_WAIT_US at most. Returns 0, -LE_DISCONNECTED or -LE_INTR.
 * Yields. */
int target_await_up(struct target *t, uint64_t deadline_us) CHECK_RESULT;

/* Notes the chain of a request to this target: a request that concerns no chunk (grant, sync) names
 * this chain. */
static inline void target_asked(struct target *t, const struct chain *ch)
{
	t->chain = ch->id;
	t->epoch = ch->epoch;
}

/* Called when the target's address has changed: drops the connection. Its calls end, and are
 * repeated over a new one. Does not yield, unless no fiber can be started. */
void target_drop_rpc(struct target *t);

#endif
