/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Selects the member of a chain for a request. The head gets mutations and the requests that only
 * the head can answer; any member in sync can serve a read. Members that are connected and were not
 * slow lately are preferred, then those on this host; among equals the choice depends on the chunk
 * and the client.
 *
 * Owned by the client's loop. No function yields. A struct replica_route belongs to one operation
 * and its repetitions.
 */
#ifndef LEAT_CLIENT_SERVERS_REPLICA_SELECT_H
#define LEAT_CLIENT_SERVERS_REPLICA_SELECT_H

#include <stdbool.h>
#include <stdint.h>

#include "client/servers/cluster_map.h"
#include "common/proto/types.h"

struct client;
struct target;

/* Returns the number that spreads this client's reads of a chunk over equal members. */
uint64_t replica_hash(const struct client *c, struct ino ino, uint64_t idx);

#define REPLICA_TRIED_MAX (2 * MAP_MEMBERS_MAX)

/* Which member serves an operation, and which members have failed. */
struct replica_route {
	uint64_t hash;       /* replica_hash; the same number gives the same member */
	struct chain *chain;   /* of the last attempt; NULL: none yet */
	struct target *target; /* member of the last attempt; NULL: none */
	bool head;             /* only the head can answer */
	bool unknown;          /* an attempt of a mutation has an unknown outcome */
	/* Called when a mutation's capability was refused with `status`. Returns 0 if there is a
	 * new one: the request is then repeated under the same (slot, seq). NULL: the operation
	 * fails. Yields. */
	int (*renew)(void *arg, int status);
	void *renew_arg;
	/* Members that failed this operation. bad: their replica is damaged, so they are excluded
	 * from it. The others are tried again when all have failed. */
	struct {
		const struct target *target;
		bool bad;
	} tried[REPLICA_TRIED_MAX];
	uint32_t n_tried;
};

/* Returns true if any member in sync can answer op. */
bool replica_any_member(uint16_t op);
/* Returns the best member that has not failed, or NULL. With r->head only the head is considered,
 * even if it has failed. */
struct target *replica_pick(const struct replica_route *r, const struct chain *ch, uint64_t now_us);
/* Marks the member of the last attempt as failed. */
void replica_failed(struct replica_route *r, bool bad);
/* Clears the failures of all members that are not bad. */
void replica_retry_failed(struct replica_route *r);

#endif
