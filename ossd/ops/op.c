#include "ossd/ops/op.h"

#define MDS_SESSION 1u

int op_admit(struct rpc_req *r)
{
	const struct target *t = op_target(r);

	if (!t->ready)
		return -LE_NOT_READY;
	if (r->hdr.target != t->id)
		return -LE_NO_TARGET;
	if (r->hdr.epoch != t->epoch)
		return -LE_STALE_EPOCH;
	if (r->peer->role != ROLE_MDS && r->hdr.session == MDS_SESSION)
		return -LE_PERM;
	op_peer_session(op_target(r), r->peer, r->hdr.session);
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
	int64_t now_s = env_wall_ns(t->env) / 1000000000;

	if (r->peer->role == ROLE_MDS)
		return 0;
	if (cap_equal(memo, cap) && cap->ino.v == ino.v && cap->gen == gen &&
	    cap->session == session && (cap->rights & rights) == rights && cap->expiry_s > now_s)
		return 0;
	TRY(cap_check(&t->cap_key, cap, ino, gen, session, rights, now_s));
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

void op_answer(struct mutation *m, const void *out)
{
	uint8_t buf[REPLAY_REPLY_MAX];
	struct wire_w w;

	if (!m->ent)
		return;
	wire_w_init(&w, buf, sizeof(buf));
	m->r->desc->put_rep(&w, out);
	ASSERT(w.status == 0);
	replay_join(m->ent, group_commit_batch(&m->t->store->gc), buf, (uint32_t)w.len);
}

int op_answer_durable(struct mutation *m, const void *out)
{
	struct group_commit *g = &m->t->store->gc;

	if (!m->ent)
		return 0;
	TRY(chunk_store_status(m->t->store));
	op_answer(m, out);
	return group_commit_wait(g, group_commit_join(g, NULL, false));
}

int op_mutate(struct rpc_req *r, int (*fn)(struct mutation *m, const void *in, void *out),
	      const void *in, void *out)
{
	struct mutation m = {.r = r, .t = op_target(r)};
	struct replay_key key = {op_chain(r), r->hdr.slot, r->hdr.session};
	int rc;

	TRY(op_admit(r));
	if (r->hdr.seq == 0 && r->peer->role != ROLE_MDS)
		return -LE_INVAL;
	if (r->hdr.seq) {
		rc = replay_begin(&m.t->store->replay, &key, r->hdr.seq, r->hdr.op, &m.ent);
		if (rc == 1)
			return answer_again(r, m.ent, out);
		TRY(rc);
	}
	rc = fn(&m, in, out);
	if (m.ent)
		replay_end(m.ent, rc == 0);
	return rc;
}
