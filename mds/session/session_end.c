/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/session/session_end.h"

#include "common/rt/loop.h"
#include "mds/cluster/registration.h"
#include "mds/mds.h"

/* A session may have a million leases and opens. Between two steps the loop serves other
 * sessions, and inode_idle runs for many inodes concurrently. */
#define DROP_AT_ONCE  1024u
#define IDLE_AT_ONCE  256u
#define IDLE_PARALLEL 64u

/* True also for a session that has not returned after a restart: it has not reported its opens. */
static bool may_have_writers(const struct session *se)
{
	if (se->from_store)
		return true;
	list_for_each (n, &se->opens)
		if (list_entry(n, struct open, by_session)->n_write > 0)
			return true;
	return false;
}

struct idling {
	struct mds *m;
	struct ino ino;
	int status;
};

static void idle_one(void *arg)
{
	struct idling *i = arg;

	i->status = i->m->hooks.inode_idle(i->m, i->ino);
}

/* The session is no longer in the tables, so this drops everything even after an error. An inode
 * for which inode_idle was not called then stays an orphan, or unsettled, until the next start. */
static int drop_all(struct mds *m, struct session *se)
{
	struct idling is[IDLE_AT_ONCE];
	int rc = 0;

	locks_drop_session(&m->locks, se->id);
	while (leases_drop_some(&m->leases, se, DROP_AT_ONCE))
		fiber_yield();
	while (!list_empty(&se->opens)) {
		uint32_t n = 0;

		while (n < IDLE_AT_ONCE && !list_empty(&se->opens)) {
			struct open *o = list_entry(se->opens.next, struct open, by_session);

			is[n++] = (struct idling){m, o->file->ino, 0};
			open_drop_all(&m->opens, o);
		}
		if (rc == 0 && m->stopping)
			rc = -LE_SHUTDOWN;
		if (rc == 0)
			fiber_parallel("idle", idle_one, is, sizeof(is[0]), n, IDLE_PARALLEL);
		for (uint32_t i = 0; i < n && rc == 0; i++)
			rc = is[i].status;
	}
	return rc;
}

int session_end(struct mds *m, struct session *se)
{
	const uint64_t deadline = fiber_deadline();
	bool mine;
	int rc = 0;

	session_ref(se);
	/* The deadline of the request does not apply: a session must not be ended in part. */
	fiber_set_deadline(NO_DEADLINE);
	fmutex_lock(&m->sessions.lock);
	/* If another fiber has removed the session, that fiber does the rest. */
	mine = !se->ended;
	if (mine)
		rc = session_remove(&m->sessions, se);
	fmutex_unlock(&m->sessions.lock);
	/* A silent client may have writes in flight, which the object servers refuse once they
	 * have fenced the session. Until then no other client gets its leases and locks, even if
	 * this server is stopping. */
	if (mine && rc == 0 && !se->closing && may_have_writers(se))
		targets_await_fence(&m->cluster, m->sessions.gen);
	if (mine && rc == 0) {
		rc = drop_all(m, se);
		if (se->from_store && session_returned(&m->sessions, se))
			m->hooks.session_back(m);
	}
	fiber_set_deadline(deadline);
	session_unref(se);
	return rc;
}
