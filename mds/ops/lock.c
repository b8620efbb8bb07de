/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File locks of fcntl(2) and flock(2). Nothing is stored: after a restart of this server clients
 * reclaim their locks, and until all have done so no new lock is given. A session that does not
 * return, or that is silent and holds a conflicting lock, does not block a request for long: it is
 * ended like a holder of a write lease (lease/recall.h).
 */
#include "mds/ops/lock.h"

#include "common/rt/loop.h"
#include "mds/access/exports_policy.h"
#include "mds/lease/recall.h"
#include "mds/ops/ops.h"
#include "mds/ops/reach.h"

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

/* Before all sessions have returned their locks are unknown. */
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

