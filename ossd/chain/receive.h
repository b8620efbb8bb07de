/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies chunks from other members: parts of them, whole chunks, and the member's side of a
 * resync. Owned by the target's loop.
 */
#ifndef LEAT_OSSD_CHAIN_RECEIVE_H
#define LEAT_OSSD_CHAIN_RECEIVE_H

#include "ossd/chain/maintenance.h"

/* A part of a chunk as another member stores it. */
struct fetched {
	struct chunk_record *rec; /* a reference, owned by the caller */
	struct slot *slot;        /* from maintenance->copies, owned by the caller */
	struct chunk_part part;
};

/* Selects the blocks of a version from `first` on, as many as fit into a slot. */
struct part_at {
	const struct chunk_key *key;
	uint64_t version;
	uint32_t first;
};

/* Fetches a part of a chunk from a member. -LE_STALE: the member has no such version. Yields. */
int fetch_part(struct maintenance *k, struct chain *c, uint32_t from, const struct part_at *at,
	       struct fetched *ret_part) CHECK_RESULT;
void fetch_free(struct maintenance *k, struct fetched *f);

/* The state of a chunk here, and the epoch, when it was decided to replace the chunk by another
 * member's. */
struct chunk_own {
	uint64_t version, sum; /* 0: no chunk, or an unreadable one */
	uint32_t epoch;
};

/* Replaces the chunk by a copy from req->source, if it is still as *own says. -LE_STALE: the chunk
 * has changed. -LE_STALE_EPOCH: the epoch has changed. Durable on return. Yields. */
int replace_own(struct maintenance *k, struct chain *c, const struct oss_resync_chunk_req *req,
		const struct chunk_own *own, uint64_t *ret_bytes) CHECK_RESULT;
/* Requests the member's present state of the chunk. Yields. */
int member_state(struct chain *c, uint32_t target, const struct chunk_key *key,
		 struct version_state *ret_state) CHECK_RESULT;
/* A member's side of oss_resync_chunk and oss_resync_rows. Durable on return. Yield. */
int receive_chunk(struct maintenance *k, struct chain *c, const struct oss_resync_chunk_req *req,
		  struct oss_resync_chunk_rep *rep) CHECK_RESULT;
int receive_rows(struct maintenance *k, struct chain *c,
		 const struct oss_resync_rows_req *req) CHECK_RESULT;

#endif
