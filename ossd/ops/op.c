/* SPDX-License-Identifier: Apache-2.0 */
#include "ossd/ops/op.h"

#include "common/base/planted_bug.h"
#include "ossd/chain/commit.h"
#include "ossd/chain/maintenance.h"
#include "ossd/chain/repair.h"
#include "ossd/chunk/store_record.h"

#define MDS_SESSION 1u

static int admit(const struct rpc_req *r, enum chain_need need, struct chain **ret_chain)
{
	const struct target *t = op_target(r);

	if (!t->ready)
		return -LE_NOT_READY;
	if (r->hdr.target != t->id)
		return -LE_NO_TARGET;
	return chain_admit(t->chains, op_chain(r), r->hdr.epoch, need, ret_chain);
}

int op_admit(struct rpc_req *r, enum chain_need need, struct chain **ret_chain)
{
	int rc;

	TRY(admit(r, need, ret_chain));
	rc = grace_admit(&op_target(r)->grace, *ret_chain, r);
	TRY(rc);
	if (rc == 1)
		TRY(admit(r, need, ret_chain));
	if (r->peer->role != ROLE_MDS && r->hdr.session == MDS_SESSION)
		return -LE_PERM;
	/* A session that has ended may not read either: its rights end with it, even if its
	 * capability has not expired. */
	if (op_is_client(r->hdr.session))
		TRY(fence_admit_any(&op_target(r)->fence, r->hdr.session));
	/* A copy holds no grant. It uses a connection that belongs to another session. */
	if (r->hdr.session != SESSION_COPY)
		op_peer_session(op_target(r), r->peer, r->hdr.session);
	else if (r->peer->role != ROLE_OSSD)
		return -LE_PERM;
	return 0;
}

void op_peer_session(struct target *t, struct rpc_peer *p, uint64_t session)
{
	uint64_t now = (uint64_t)(uintptr_t)p->user;

	if (now == session || (session && p->gone))
		return;
	if (now)
		space_peer(&t->store->space, now, -1, env_now_us(t->env));
	if (session)
		space_peer(&t->store->space, session, 1, env_now_us(t->env));
	p->user = (void *)(uintptr_t)session;
}

static int repair(struct target *t, const struct chain *c, const struct chunk_key *id,
		  struct repair *r)
{
	int rc = -LE_CORRUPT;

	*r = (struct repair){0};
	if (t->maintenance && chain_others_sync(c) > 0 && !PLANTED_BUG(CHAIN_NO_REPAIR))
		rc = repair_chunk(t->maintenance, id, r);
	if (rc == 0 || rc == -LE_BUSY || rc == -LE_STALE)
		return 0;
	/* A member that is not SYNC may have the chunk. */
	if (c->n_sync < c->n_members && chunk_store_lost(t->store, id) != INVENTORY_NONE)
		return -LE_NOT_READY;
	return -LE_CORRUPT;
}

int op_repair(struct target *t, const struct chain *c, const struct chunk_key *id)
{
	struct repair r;

	return repair(t, c, id, &r);
}

int op_repair_removed(struct target *t, const struct chain *c, const struct chunk_key *id)
{
	struct repair r;
	int rc = repair(t, c, id, &r);

	return rc == -LE_CORRUPT && r.nowhere ? 1 : rc;
}

static bool cap_equal(const struct cap *a, const struct cap *b)
{
	return a->ino.v == b->ino.v && a->gen == b->gen && a->rights == b->rights &&
	       a->epoch == b->epoch && a->session == b->session && a->expiry_s == b->expiry_s &&
	       a->mac_lo == b->mac_lo && a->mac_hi == b->mac_hi;
}

int op_check_cap(struct rpc_req *r, const struct cap *cap, struct ino ino, uint32_t gen,
		 uint32_t rights)
{
	struct target *t = op_target(r);
	uint64_t session = r->hdr.session;
	struct cap *memo = &t->memo[hash_u64_2(ino.v, session) % CAP_MEMO];
	int64_t now_s = mds_clock_now_ns(&t->store->clock, t->env) / 1000000000;
	int rc;

	if (r->peer->role == ROLE_MDS)
		return 0;
	if (cap_equal(memo, cap) && cap->ino.v == ino.v && cap->gen == gen &&
	    cap->session == session && (cap->rights & rights) == rights && cap->expiry_s > now_s)
		return 0;
	rc = cap_check(&t->cap_key, cap, ino, gen, session, rights, now_s);
	if (rc == -LE_CAP_EXPIRED)
		metric_add(&t->metrics->expired_caps, 1);
	TRY(rc);
	*memo = *cap;
	return 0;
}

/* ---- exactly once ---- */

static int answer_again(struct rpc_req *r, const struct replay_ent *e, void *out)
{
	struct wire_r w;

	wire_r_init(&w, e->reply, e->reply_len);
	r->desc->get_rep(&w, out);
	metric_add(&op_target(r)->metrics->replays, 1);
	return w.status;
}

static uint32_t encode(const struct mutation *m, const void *out, uint8_t buf[REPLAY_REPLY_MAX])
{
	struct wire_w w;

	wire_w_init(&w, buf, REPLAY_REPLY_MAX);
	m->r->desc->put_rep(&w, out);
	ASSERT(w.status == 0);
	return (uint32_t)w.len;
}

void op_answer(struct mutation *m, const void *out)
{
	uint8_t buf[REPLAY_REPLY_MAX];

	if (m->ent)
		replay_join(m->ent, group_commit_batch(&m->t->store->gc), buf, encode(m, out, buf));
}

void op_answer_version(struct mutation *m, const void *out, struct version *v)
{
	if (!m->ent)
		return;
	v->session = m->r->hdr.session;
	v->slot = m->r->hdr.slot;
	v->seq = m->r->hdr.seq;
	v->op = m->r->hdr.op;
	v->answer_len = (uint8_t)encode(m, out, v->answer);
	replay_join(m->ent, group_commit_batch(&m->t->store->gc), v->answer, v->answer_len);
}

int op_still_head(const struct mutation *m)
{
	const struct chain *c = m->chain;

	if (c->epoch != m->r->hdr.epoch && !PLANTED_BUG(CHAIN_SKIP_EPOCH))
		return -LE_STALE_EPOCH;
	return chain_is_head(c) ? 0 : -LE_NOT_HEAD;
}

static int answer_everywhere(struct mutation *m, const void *out)
{
	struct version *v = version_create(m->chain);
	int rc;

	if (!v)
		return -LE_NOMEM;
	rc = op_still_head(m);
	if (rc == 0) {
		op_answer_version(m, out, v);
		version_join_answer(v);
		rc = version_wait(v, m->r);
	}
	version_unref(v);
	return rc;
}

int op_answer_durable(struct mutation *m, const void *out)
{
	struct group_commit *g = &m->t->store->gc;

	if (!m->ent)
		return 0;
	TRY(chunk_store_status(m->t->store));
	TRY(op_still_head(m));
	if (chain_replicated(m->chain))
		return answer_everywhere(m, out);
	op_answer(m, out);
	return group_commit_wait(g, group_commit_join(g, NULL, false));
}

static int mutate(struct mutation *m, struct replay_key *key,
		  int (*fn)(struct mutation *m, const void *in, void *out), const void *in,
		  void *out)
{
	const struct rpc_req *r = m->r;
	uint64_t run = 0;
	int rc;

	if (r->hdr.seq == 0 && r->peer->role != ROLE_MDS && r->hdr.session != SESSION_COPY)
		return -LE_INVAL;
	if (r->hdr.slot >= REPLAY_SLOTS)
		return -LE_INVAL;
	if (r->hdr.seq) {
		rc = replay_begin(&m->t->store->replay, key, r->hdr.seq, r->hdr.op, &m->ent);
		if (rc == REPLAY_ANSWER)
			return answer_again(m->r, m->ent, out);
		TRY(rc);
		run = m->ent->run;
	}
	rc = fn(m, in, out);
	if (m->ent)
		replay_end(m->ent, run, rc == 0);
	return rc;
}

int op_mutate(struct rpc_req *r, int (*fn)(struct mutation *m, const void *in, void *out),
	      const void *in, void *out)
{
	struct mutation m = {.r = r, .t = op_target(r)};
	struct replay_key key = {op_chain(r), r->hdr.slot, r->hdr.session};
	struct chunk_store *s = m.t->store;
	struct writing_session *se = NULL;
	int rc;

	TRY(op_admit(r, CHAIN_HEAD, &m.chain));
	if (!op_is_client(r->hdr.session))
		return chain_outcome(m.chain, mutate(&m, &key, fn, in, out));
	/* Checked twice: when the fence confirms that it refuses a session, no change of it may be
	 * in flight. */
	TRY(fence_admit(&m.t->fence, r->hdr.session));
	TRY(chain_outcome(m.chain, writer_sessions_begin(&s->writers, &s->gc, r->hdr.session, &se)));
	rc = fence_admit(&m.t->fence, r->hdr.session);
	if (rc == 0)
		rc = mutate(&m, &key, fn, in, out);
	writer_sessions_end(se);
	return chain_outcome(m.chain, rc);
}
