/* SPDX-License-Identifier: Apache-2.0 */
/* oss_stat, oss_list, oss_grant, oss_sync: size of a file, content of the store, grants of space;
 * waiting until earlier changes are durable. */
#include "ossd/chain/commit.h"
#include "ossd/chunk/chunk_files.h"
#include "ossd/ops/handlers.h"
#include "ossd/ops/op.h"

int op_stat(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_stat_req *req = in;
	struct oss_stat_rep *rep = out;
	struct chunk_key file = {op_chain(r), req->ino, req->gen, 0};
	struct ranges preallocated;
	struct chunk_stat st;
	struct chain *c;
	int rc;

	TRY(ranges_get(req->preallocated, &preallocated));
	TRY(op_admit(r, CHAIN_HEAD, &c));
	TRY(op_check_cap(r, &req->cap, req->ino, req->gen, 0));
	touched_note_whole(&op_target(r)->grace.touched, &file, TOUCHED_SIZE, r->hdr.session);
	if (chain_replicated(c))
		TRY(chain_barrier(c));
	rc = chunk_stat(op_target(r)->store, &file, req->chunk_size, &preallocated, &st);
	for (uint32_t i = 0; i < REPAIRS_MAX && rc == -LE_CORRUPT && !st.uncertain; i++) {
		TRY(op_repair(op_target(r), c, &st.damaged));
		rc = chunk_stat(op_target(r)->store, &file, req->chunk_size, &preallocated, &st);
	}
	TRY(rc);
	/* Time has passed: check that this target is still head. */
	TRY(op_admit(r, CHAIN_HEAD, &c));
	rep->size = st.size;
	rep->used = st.used;
	rep->mtime_ns = st.mtime_ns;
	rep->n_chunks = st.n_chunks;
	rep->covered = st.covered;
	return 0;
}

#define LIST_MAX     1024u
#define SUMMARY_ROOM 96u /* encoded size of one chunk_summary, with reserve for new fields */

static int list_one(void *arg, const struct chunk_summary *c)
{
	struct wire_w *w = arg;

	wire_put_chunk_summary(w, c);
	return w->status;
}

/* For servers and tools only: the list names every file that has data here. */
int op_list(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_list_req *req = in;
	struct oss_list_rep *rep = out;
	uint32_t max = req->max < LIST_MAX ? req->max : LIST_MAX;
	struct chunk_key from = chunk_key_of(op_chain(r), &req->from);
	struct wire_w w;
	void *buf;
	bool more = false;

	if (r->peer->role != ROLE_MDS && r->peer->role != ROLE_TOOL && r->peer->role != ROLE_OSSD)
		return -LE_PERM;
	if (!op_target(r)->ready)
		return -LE_NOT_READY;
	if (r->hdr.target != op_target(r)->id)
		return -LE_NO_TARGET;
	if (max == 0)
		return -LE_INVAL;
	buf = rpc_req_alloc(r, (size_t)max * SUMMARY_ROOM);
	if (!buf)
		return -LE_NOMEM;
	wire_w_init(&w, buf, (size_t)max * SUMMARY_ROOM);
	TRY(chunk_list(op_target(r)->store, &from, max, list_one, &w, &more));
	rep->chunks = bytes_of(buf, (uint32_t)w.len);
	rep->more = more;
	return 0;
}

int op_sync(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_sync_req *req = in;
	struct oss_sync_rep *rep = out;
	struct chain *c;

	TRY(op_admit(r, CHAIN_HEAD, &c));
	rep->lost =
		!c->filled && writer_sessions_lost(&op_target(r)->store->writers, r->hdr.session);
	if (req->ino.v != 0)
		chunk_leases_await(&op_target(r)->leases,
				   &(struct chunk_leased){c, req->ino, NULL, r->hdr.session});
	if (chain_replicated(c))
		return chain_barrier(c);
	return group_commit_barrier(&op_target(r)->store->gc);
}

int op_grant(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_grant_req *req = in;
	struct oss_grant_rep *rep = out;
	struct target *t = op_target(r);
	struct chain *c;

	/* A head requests a grant from the members downstream, to cover what it grants its
	 * clients. */
	bool member = r->peer->role == ROLE_OSSD && r->hdr.session & SESSION_CHAIN;
	struct space *sp = &t->store->space;
	uint64_t now_us = env_now_us(t->env);

	TRY(op_admit(r, member ? CHAIN_MEMBER : CHAIN_HEAD, &c));
	if (r->peer->role != ROLE_OSSD && r->hdr.session & SESSION_CHAIN)
		return -LE_PERM;
	if (r->hdr.session == 0)
		return -LE_INVAL;
	rep->grant = member ? space_grant_member(sp, r->hdr.session, req->want, now_us)
			    : space_grant(sp, r->hdr.session, req->want, now_us);
	return 0;
}
