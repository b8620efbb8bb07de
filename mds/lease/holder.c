/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/lease/holder.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/lease/lease_check.h"
#include "mds/mds.h"
#include "mds/session/session_end.h"

#define TRIES_MIN   2u
#define SESSION_MAX 128u /* callbacks to one session in flight */
#define OWNERS_MAX  16u  /* of them, for a notice of a new owner to be sent */

int holder_call(struct session *se, uint16_t op, const void *req, void *rep)
{
	struct rpc_call call = {
		.op = op, .req = req, .rep = rep, .deadline_us = loop_deadline_ms(HOLDER_ASK_MS)};
	struct rpc_peer *p = se->peer;
	int rc;

	if (p == NULL || p->gone)
		return -LE_DISCONNECTED;
	if (se->n_recalls >= (op == OP_cb_owner ? OWNERS_MAX : SESSION_MAX))
		return -LE_OVERLOAD;
	se->n_recalls++;
	rpc_peer_ref(p);
	rc = rpc_callback(p, &call);
	rpc_call_fini(&call);
	rpc_peer_unref(p);
	se->n_recalls--;
	return rc;
}

int holder_recall(const struct holder *a)
{
	struct cb_recall_req req = {a->ino, a->modes, a->change};
	struct cb_recall_rep rep;

	return holder_call(a->session, OP_cb_recall, &req, &rep);
}

bool holder_is_late(const struct mds *m, const struct session *se)
{
	return loop_now_us() > se->last_contact_us + lease_term_us(m);
}

bool holder_is_silent(const struct holder *a, uint32_t tries)
{
	struct session *se = a->session;

	if (!holder_is_late(a->m, se))
		return false;
	if (tries > TRIES_MIN)
		se->silent_us = loop_now_us();
	return se->silent_us > se->last_contact_us;
}

struct ending {
	struct mds *m;
	struct session *session;
};

static void end_session(void *arg)
{
	struct ending *e = arg;

	if (session_end(e->m, e->session) < 0)
		log_debug("session %llu ends later", (unsigned long long)e->session->id);
	e->session->ending = false;
	session_unref(e->session);
	latch_done(&e->m->fibers);
	free(e);
}

void holder_end_session(const struct holder *a)
{
	struct ending *e = a->session->ending ? NULL : malloc(sizeof(*e));

	if (e == NULL)
		return;
	*e = (struct ending){a->m, a->session};
	latch_add(&a->m->fibers, 1);
	if (fiber_spawn("end-session", end_session, e) < 0) {
		latch_done(&a->m->fibers);
		free(e);
		return;
	}
	a->session->ending = true;
	session_ref(a->session);
	log_warn("session %llu of %s did not release what it holds of inode %llu: evicting it",
		 (unsigned long long)a->session->id, a->session->name,
		 (unsigned long long)a->ino.v);
}
