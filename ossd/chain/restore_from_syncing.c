/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/chain/restore_from_syncing.h"

#include "common/base/log.h"
#include "ossd/chain/receive.h"
#include "ossd/chunk/store_record.h"

#define CALL_MS 5000u

/* Requests the target's version of the chunk. Returns 0 (version 0: no such chunk), or 1: the
 * target cannot read it, or has it marked as lost. */
static int ask_one(const struct restore *g, const struct chunk_key *key, struct chunk_summary *ret)
{
	struct oss_list_req req = {.from = chunk_key_id(key), .max = 1};
	struct oss_list_rep rep = {0};
	struct rpc_call call = {.op = OP_oss_list,
				.flags = RPC_CALL_NO_WAIT,
				.req = &req,
				.rep = &rep,
				.deadline_us = loop_deadline_ms(CALL_MS)};
	int rc = g->c->epoch == g->epoch ? chain_call(g->c, g->target, &call) : -LE_CANCELED;
	struct chunk_summary first = {0};
	struct chunk_key found;
	struct wire_r w;

	wire_r_init(&w, rep.chunks.data, rep.chunks.len);
	if (rc == 0 && !wire_r_end(&w)) {
		wire_get_chunk_summary(&w, &first);
		rc = w.status;
	}
	rpc_call_fini(&call);
	TRY(rc);
	found = chunk_key_of(key->chain, &first.chunk);
	if (!chunk_key_equal(&found, key))
		first = (struct chunk_summary){0};
	else if (first.version == 0)
		return 1;
	*ret = first;
	return 0;
}

/*
 * The member has the content that this target had, unless the chunk has changed since. Without a
 * log that shows this, older content is better than none; content of a removed chunk is not read.
 */
int restore_find(struct maintenance *k, const struct restore *g, const struct chunk_key *key,
		struct oss_resync_chunk_req *ret_req)
{
	bool lost = chunk_store_lost(k->s, key) != INVENTORY_NONE;
	struct chunk_summary theirs = {0};
	int rc;

	if (g->log_valid && chain_log_changed(k->chains->log, key))
		return 1;
	rc = ask_one(g, key, &theirs);
	if (rc)
		return rc;
	if (theirs.version) {
		*ret_req = (struct oss_resync_chunk_req){theirs.chunk, theirs.version, theirs.sum,
							 g->target};
		return 0;
	}
	/* The target was SYNC too: a chunk that it does not have was never committed. */
	if (lost && g->log_valid) {
		rc = chunk_copy_remove(k->s, key, NULL, NULL);
		if (rc < 0)
			return rc;
	}
	return 1;
}

int restore_take(struct maintenance *k, const struct restore *g,
		const struct oss_resync_chunk_req *req)
{
	struct chunk_own own = {.epoch = g->epoch};
	uint64_t bytes;

	TRY(replace_own(k, g->c, req, &own, &bytes));
	metric_add(&k->metrics->restored, 1);
	log_error("chain=%u inode=%llu gen=%u chunk=%llu: lost here, restored from target %u%s",
		  g->c->id, (unsigned long long)req->chunk.ino.v, req->chunk.gen,
		  (unsigned long long)req->chunk.idx, g->target,
		  g->log_valid ? "" : ", possibly an older version");
	return 0;
}
