/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/lease/owner_notify.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/background.h"
#include "mds/lease/holder.h"
#include "mds/lease/lease_check.h"

struct notified_session {
	struct list link;
	struct session *session;
};

static bool is_told(const struct op *op, const struct session *se)
{
	list_for_each (k, &op->notified_sessions)
		if (list_entry(k, struct notified_session, link)->session == se)
			return true;
	return false;
}

static int notify_later(struct op *op, struct session *se)
{
	struct notified_session *t;

	if (se == op->session)
		return 0;
	t = malloc(sizeof(*t));
	if (t == NULL)
		return -LE_NOMEM;
	t->session = se;
	session_ref(se);
	list_push(&op->notified_sessions, &t->link);
	return 0;
}

int op_gives(struct op *op, struct ino ino)
{
	const struct lease_file *f = lease_file_find(&op->m->leases, ino);
	bool again = !list_empty(&op->notified_sessions); /* the section is run again */

	if (f == NULL)
		return 0;
	list_for_each (k, &f->leases) {
		struct session *se = list_entry(k, struct lease, by_file)->session;

		if (!again || !is_told(op, se))
			TRY(notify_later(op, se));
	}
	return 0;
}

/* Sends cb_owner to one client, repeatedly while that fails immediately, for a lease term at
 * most. */
static void notify_owner(void *arg)
{
	struct holder *a = arg;
	struct cb_owner_req req = {a->ino};
	struct cb_owner_rep rep;
	uint64_t until_us = loop_now_us() + lease_term_us(a->m);
	int rc = -LE_DISCONNECTED;

	while (!a->session->ended && !holder_is_late(a->m, a->session) &&
	       loop_now_us() < until_us) {
		rc = holder_call(a->session, OP_cb_owner, &req, &rep);
		if (rc >= 0 || rc == -LE_TIMEDOUT)
			break;
		/* Another process may be about to take the session over. */
		if (mds_sleep_ms(a->m, HOLDER_AGAIN_MS) < 0)
			break;
	}
	/* No line for each file if the client is silent: that is logged once, when it is
	 * evicted. */
	if (rc < 0 && !a->session->ended && !holder_is_late(a->m, a->session))
		log_info("session %llu of %s could not be notified of the new owner of inode %llu: "
			 "%s",
			 (unsigned long long)a->session->id, a->session->name,
			 (unsigned long long)a->ino.v, status_name(rc));
	session_unref(a->session);
}

void op_given(struct op *op, struct ino ino)
{
	struct open_file *f = open_file_find(&op->m->opens, ino);
	struct holder as[HOLDERS_MAX];
	struct list *n;
	uint32_t n_as;
	int rc = 0;

	if (f != NULL)
		list_for_each (k, &f->opens)
			if (rc == 0)
				rc = notify_later(op, list_entry(k, struct open, by_file)->session);
	if (rc < 0)
		log_warn("inode %llu: no memory to notify all clients that have it open of its new "
			 "owner",
			 (unsigned long long)ino.v);
	do {
		for (n_as = 0; n_as < HOLDERS_MAX && (n = list_pop(&op->notified_sessions)) != NULL;
		     n_as++) {
			struct notified_session *t = list_entry(n, struct notified_session, link);

			as[n_as] = (struct holder){.m = op->m, .session = t->session, .ino = ino};
			free(t);
		}
		if (n_as > 0)
			fiber_parallel("notify-owner", notify_owner, as, sizeof(as[0]), n_as,
				       HOLDER_PARALLEL);
	} while (n_as == HOLDERS_MAX);
}

void op_gives_end(struct op *op)
{
	struct list *n;

	while ((n = list_pop(&op->notified_sessions)) != NULL) {
		struct notified_session *t = list_entry(n, struct notified_session, link);

		session_unref(t->session);
		free(t);
	}
}
