#include "ossd/chain/regain.h"

#include "common/base/log.h"

#define CALL_MS 5000u

/* version 0: it has no such chunk. 1: it has, but cannot read it, or knows that it is lost. */
static int ask_one(const struct regain *g, const struct chunk_key *key, struct chunk_summary *ret)
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
 * What the member has is what this one had, unless it has changed since. Where the log does not
 * tell, older content is better than none, and of what has been removed nobody reads.
 */
int regain_find(struct care *k, const struct regain *g, const struct chunk_key *key,
		struct oss_resync_chunk_req *ret_req)
{
	bool lost = chunk_store_lost(k->s, key) != LEDGER_NONE;
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
	/* It was SYNC as well, so what it does not have was never committed. */
	if (lost && g->log_valid) {
		rc = chunk_copy_remove(k->s, key, NULL, NULL);
		if (rc < 0)
			return rc;
	}
	return 1;
}

int regain_take(struct care *k, const struct regain *g, const struct oss_resync_chunk_req *req)
{
	struct chunk_own own = {.epoch = g->epoch};
	uint64_t bytes;

	TRY(replace_own(k, g->c, req, &own, &bytes));
	metric_add(&k->metrics->regained, 1);
	log_error("chain=%u inode=%llu gen=%u chunk=%llu: what was lost here, target %u has%s: "
		  "taken over",
		  g->c->id, (unsigned long long)req->chunk.ino.v, req->chunk.gen,
		  (unsigned long long)req->chunk.idx, g->target,
		  g->log_valid ? "" : ", perhaps as it was before");
	return 0;
}
