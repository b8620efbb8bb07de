/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/session/lock_notify.h"

#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/mds.h"

#define TELL_MS    1000u
#define TELL_BATCH 64u

struct notification {
	struct rpc_peer *peer;
	struct ino ino;
};

/* Sends cb_unlocked to one client. */
static void notify_one(void *arg)
{
	struct notification *t = arg;
	struct cb_unlocked_req req = {t->ino};
	struct cb_unlocked_rep rep;
	struct rpc_call call = {.op = OP_cb_unlocked,
				.req = &req,
				.rep = &rep,
				.deadline_us = loop_deadline_ms(TELL_MS)};

	if (!t->peer->gone && rpc_callback(t->peer, &call) < 0)
		log_debug("%s could not be notified of an unlocked file", t->peer->name);
	rpc_call_fini(&call);
	rpc_peer_unref(t->peer);
}

void locks_notify(struct mds *m)
{
	while (!m->stopping) {
		struct notification v[TELL_BATCH];
		uint64_t session;
		struct ino ino;
		uint32_t n = 0;

		while (n < TELL_BATCH && locks_next(&m->locks, &session, &ino)) {
			struct session *se = session_find(&m->sessions, session);

			if (se == NULL || se->peer == NULL)
				continue;
			rpc_peer_ref(se->peer);
			v[n++] = (struct notification){se->peer, ino};
		}
		if (n > 0)
			fiber_parallel("notify-unlocked", notify_one, v, sizeof(v[0]), n, n);
		else if (waitq_wait(&m->locks.work, NO_DEADLINE) < 0)
			break;
	}
}
