/*
 * Locks of fcntl(2) and flock(2). Nothing is stored: a client tells what it has after a restart
 * of this server, and until all have told nobody gets a new one. Whoever asks waits neither for a
 * session that does not return, nor for one that is silent and has what he asks for: they are ended
 * as if they had a write lease (recall.h).
 */
#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/op.h"
#include "mds/ops/export.h"
#include "mds/ops/reach.h"
#include "mds/recall.h"

#define TELL_MS    1000u
#define TELL_BATCH 64u

struct wanted {
	struct mds *m;
	struct ino ino;
};

static void holder(void *arg, uint64_t session)
{
	const struct wanted *w = arg;
	struct session *se = session_find(&w->m->sessions, session);

	if (se != NULL)
		recall_silent(w->m, se, w->ino);
}

/* A lock of a session that has not returned would not be known. */
static int await_sessions(const struct op *op)
{
	if (op->m->recovery.sessions_back)
		return 0;
	TRY(recall_missing(op));
	return -LE_NOT_READY;
}

int mds_lock(struct op *op, const void *vin, void *vout)
{
	const struct mds_lock_req *in = vin;
	struct mds *m = op->m;
	uint64_t session = op->session->id;
	int rc;

	(void)vout;
	if (!file_lock_valid(&in->lock))
		return -LE_INVAL;
	if ((in->flags & LOCK_CANCEL) != 0) {
		locks_cancel(&m->locks, in->ino, session, &in->lock);
		return 0;
	}
	if (in->lock.type != FILE_LOCK_NONE) {
		if (open_find(&m->opens, op->session, in->ino) == NULL)
			return -LE_STALE;
		TRY(await_sessions(op));
	}
	rc = locks_set(&m->locks, in->ino, session, &in->lock, (in->flags & LOCK_WAIT) != 0);
	if (rc == -LE_LOCKED)
		locks_holders(&m->locks, in->ino, session, &in->lock, holder,
			      &(struct wanted){m, in->ino});
	return rc;
}

int mds_lock_test(struct op *op, const void *vin, void *vout)
{
	const struct mds_lock_test_req *in = vin;
	struct mds_lock_test_rep *out = vout;
	const struct file_lock *l;

	if (op->session == NULL)
		return -LE_SESSION_GONE;
	if (!file_lock_valid(&in->lock))
		return -LE_INVAL;
	if (export_squashes(op) && open_find(&op->m->opens, op->session, in->ino) == NULL &&
	    !reach_knows(op, in->ino))
		return -LE_STALE;
	TRY(await_sessions(op));
	l = locks_find(&op->m->locks, in->ino, op->session->id, &in->lock);
	out->lock = l != NULL ? *l : in->lock;
	if (l == NULL)
		out->lock.type = FILE_LOCK_NONE;
	return 0;
}

int lock_reclaim(struct op *op, struct ino ino, const struct file_lock *l)
{
	if (!file_lock_valid(l) || l->type == FILE_LOCK_NONE)
		return -LE_BAD_MESSAGE;
	if (open_find(&op->m->opens, op->session, ino) == NULL)
		return -LE_STALE;
	return locks_set(&op->m->locks, ino, op->session->id, l, false);
}

/* ---- who waits is told ---- */

struct tell {
	struct rpc_peer *peer;
	struct ino ino;
};

/* Not told, it asks by itself after a while. */
static void tell_one(void *arg)
{
	struct tell *t = arg;
	struct cb_unlocked_req req = {t->ino};
	struct cb_unlocked_rep rep;
	struct rpc_call call = {.op = OP_cb_unlocked,
				.req = &req,
				.rep = &rep,
				.deadline_us = loop_deadline_ms(TELL_MS)};

	if (!t->peer->gone && rpc_callback(t->peer, &call) < 0)
		log_debug("%s was not told of an unlocked file", t->peer->name);
	rpc_call_fini(&call);
	rpc_peer_unref(t->peer);
}

void locks_tell(struct mds *m)
{
	while (!m->stopping) {
		struct tell v[TELL_BATCH];
		uint64_t session;
		struct ino ino;
		uint32_t n = 0;

		while (n < TELL_BATCH && locks_next(&m->locks, &session, &ino)) {
			struct session *se = session_find(&m->sessions, session);

			if (se == NULL || se->peer == NULL)
				continue;
			rpc_peer_ref(se->peer);
			v[n++] = (struct tell){se->peer, ino};
		}
		if (n > 0)
			fiber_parallel("tell-unlocked", tell_one, v, sizeof(v[0]), n, n);
		else if (waitq_wait(&m->locks.work, NO_DEADLINE) < 0)
			break;
	}
}
