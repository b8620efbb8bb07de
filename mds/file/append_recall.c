/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/file/append_recall.h"

#include "common/rt/loop.h"
#include "mds/background.h"
#include "mds/lease/holder.h"
#include "mds/lease/lease_check.h"
#include "mds/lease/recall.h"
#include "mds/op_execute.h"

/* Calls one client back until it writes to none of its reservations, or its opens have ended
 * with its session. */
static void request_reservation(void *arg)
{
	struct holder *a = arg;
	struct open_file *f = open_file_find(&a->m->opens, a->ino);
	uint64_t stubborn_us = loop_now_us() + a->m->params.session_ttl_ms * 1000ull;
	struct cb_append_recall_req req = {a->ino, f->placed};
	struct cb_append_recall_rep rep;
	struct open *o;

	for (uint32_t tries = 1;; tries++) {
		int rc;

		o = open_find(&a->m->opens, a->session, a->ino);
		if (o == NULL || !o->placed)
			break;
		rc = holder_call(a->session, OP_cb_append_recall, &req, &rep);
		o = open_find(&a->m->opens, a->session, a->ino);
		if (rc >= 0 && o != NULL)
			o->placed = false;
		if (rc >= 0 || o == NULL)
			break;
		if (!a->session->ended &&
		    (holder_is_silent(a, tries) || loop_now_us() > stubborn_us))
			holder_end_session(a);
		a->status = mds_sleep_ms(a->m, HOLDER_AGAIN_MS);
		if (a->status < 0)
			break;
	}
	session_unref(a->session);
}

static int look_unsettled(struct op *op, const void *in, void *out)
{
	const struct inode_rec *rec;
	int rc = inode_get(op->store, *(const struct ino *)in, VIEW_NEWEST, NULL, &rec);

	if (rc == 0)
		*(bool *)out = (rec->attr.flags & ATTR_UNSETTLED) != 0;
	return rc == -LE_NOENT ? 0 : rc;
}

/* After a restart: waits until every session that may have a reservation from the previous
 * incarnation has returned, or evicts it: its client may be cut off from this server only, and
 * still write to object servers. The session of the request counts as returned, except for a
 * truncation that the previous incarnation began (trimming): another program of that client may
 * append. */
static int await_reserved(struct op *op, const struct open_file *f)
{
	for (;;) {
		uint32_t own = !f->trimming && op->session != NULL && op->session->from_store;
		bool unsettled = false;

		/* Computed in each round: the session of the request may return meanwhile. */
		if (op->m->sessions.n_from_store <= own)
			break;
		/* The file was settled when its present writers opened it, so none from before
		 * has a reservation. */
		if (f->n_writers > 0 && !f->had_writers)
			break;
		TRY(op_read(op, look_unsettled, &f->ino, &unsettled));
		if (!unsettled)
			break;
		TRY(leases_known(op->m) ? recall_end_missing(op)
					: mds_sleep_ms(op->m, HOLDER_AGAIN_MS));
	}
	return 0;
}

int append_recall_all(struct op *op, struct open_file *f)
{
	struct holder as[HOLDERS_MAX];
	uint32_t n;

	TRY(await_reserved(op, f));
	do {
		n = 0;
		list_for_each (k, &f->opens) {
			struct open *o = list_entry(k, struct open, by_file);

			if (!o->placed || n == HOLDERS_MAX)
				continue;
			session_ref(o->session);
			as[n++] = (struct holder){op->m, o->session, f->ino, 0};
		}
		if (n > 0)
			fiber_parallel("recall-appends", request_reservation, as, sizeof(as[0]), n,
				       HOLDER_PARALLEL);
		for (uint32_t i = 0; i < n; i++)
			TRY(as[i].status);
	} while (n == HOLDERS_MAX);
	return 0;
}
