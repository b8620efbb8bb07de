/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/lease/recall.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/background.h"
#include "mds/lease/holder.h"
#include "mds/lease/lease_check.h"
#include "mds/session/session_end.h"

#define TRIES_TOLD 10u

/* Probes the client of a late session with cb_unlocked, which is harmless if no lock was
 * removed, and evicts the session if the client does not answer. */
static void probe_client(void *arg)
{
	struct holder a = *(struct holder *)arg;
	struct session *se = a.session;
	struct cb_unlocked_req req = {a.ino};
	struct cb_unlocked_rep rep;

	free(arg);
	for (uint32_t tries = 1; holder_is_late(a.m, se) && !se->ended; tries++) {
		if (!holder_is_silent(&a, 0) && holder_call(se, OP_cb_unlocked, &req, &rep) >= 0)
			break;
		if (holder_is_silent(&a, tries)) {
			holder_end_session(&a);
			break;
		}
		if (mds_sleep_ms(a.m, HOLDER_AGAIN_MS) < 0)
			break;
	}
	se->asked = false;
	session_unref(se);
	latch_done(&a.m->fibers);
}

void recall_silent(struct mds *m, struct session *se, struct ino ino)
{
	struct holder *a;

	if (se->asked || se->ended || se->ending || !holder_is_late(m, se))
		return;
	a = malloc(sizeof(*a));
	if (a == NULL)
		return; /* the client that waits for the lock requests it again */
	*a = (struct holder){.m = m, .session = se, .ino = ino};
	latch_add(&m->fibers, 1);
	if (fiber_spawn("probe-silent", probe_client, a) < 0) {
		latch_done(&m->fibers);
		free(a);
		return;
	}
	se->asked = true;
	session_ref(se);
}

/* Counts an assumed open: the client may have opened the file under its lease. */
static int presume(const struct holder *a)
{
	if (a->session->ended)
		return 0; /* it has no opens */
	TRY(open_assume(&a->m->opens, a->session, a->ino));
	waitq_wake_all(&a->m->assumed_q);
	return 0;
}

/* Adds this request's wait to the time for which the recall has been without result. Rounded
 * down, so that a client that sends requests and cancels them immediately cannot get the holder
 * evicted. */
static void asked_until(struct lease *l, uint64_t began_us, uint64_t now_us)
{
	uint64_t ds = l->waited_ds + (now_us - began_us) / 100000;

	l->waited_ds = ds < UINT16_MAX ? (uint16_t)ds : UINT16_MAX;
	l->waited_until_s = (uint32_t)(now_us / 1000000);
}

/* The lease that is being recalled; NULL: it has ended. */
static struct lease *held(const struct holder *a)
{
	struct lease *l = lease_find(&a->m->leases, a->ino, a->session);

	return l != NULL && (l->modes & a->modes) != 0 ? l : NULL;
}

/* True if a recall of these modes needs an answer even from a holder that is silent. */
static bool must_answer(const struct lease *l, unsigned modes)
{
	return (l->modes & modes & (LEASE_WRITE | LEASE_APPEND)) != 0;
}

static void ask_holder(void *arg)
{
	struct holder *a = arg;
	struct leases *ls = &a->m->leases;
	const uint64_t began_us = loop_now_us(), ttl_us = a->m->params.session_ttl_ms * 1000ull;
	uint64_t stubborn_us = began_us + ttl_us;
	struct lease *l = held(a);

	ASSERT(a->modes == LEASE_CACHING || a->modes == LEASE_APPEND);
	/* No single request waits for ttl_us, so the waits of requests add up. Waits that ended
	 * more than ttl_us ago do not count. */
	if (l != NULL && began_us > l->waited_until_s * 1000000ull + ttl_us)
		l->waited_ds = 0;
	if (l != NULL)
		stubborn_us -= l->waited_ds * 100000ull;
	for (uint32_t tries = 1; held(a) != NULL; tries++) {
		/* A callback to a silent client takes HOLDER_ASK_MS, and the client may have a
		 * million leases: do not send one for each. */
		int rc = holder_is_silent(a, 0) ? -LE_TIMEDOUT : holder_recall(a);
		bool answered = rc >= 0, silent = holder_is_silent(a, tries);

		l = held(a);
		if (l == NULL)
			break;
		if (answered || (silent && !must_answer(l, a->modes) && presume(a) >= 0)) {
			l->recalling = false;
			lease_end(ls, l, a->modes);
			break;
		}
		if (!a->session->ended && (silent || loop_now_us() > stubborn_us))
			holder_end_session(a);
		if (tries == TRIES_TOLD)
			log_info("session %llu of %s has not released its lease on inode %llu "
				 "yet: %s",
				 (unsigned long long)a->session->id, a->session->name,
				 (unsigned long long)a->ino.v, status_name(rc));
		a->status = mds_sleep_ms(a->m, HOLDER_AGAIN_MS);
		if (a->status < 0)
			break;
	}
	/* Another request that waits for this lease sends the next callbacks. */
	l = held(a);
	if (l != NULL)
		asked_until(l, began_us, loop_now_us());
	l = lease_find(ls, a->ino, a->session);
	if (l != NULL) {
		l->recalling = false;
		waitq_wake_all(&l->file->q);
	}
	session_unref(a->session);
}

/* Recalls, concurrently, the leases that no other request is recalling. Returns how many that
 * were, or the error that ended a wait. */
static int ask_holders(struct op *op, struct lease_file *f)
{
	/* Whichever caching mode the request needs, the holder gives up all that it caches. */
	uint8_t modes = (op->recall_modes & LEASE_APPEND) != 0 ? LEASE_APPEND : LEASE_CACHING;
	struct holder as[HOLDERS_MAX];
	uint32_t n = 0;

	list_for_each (k, &f->leases) {
		struct lease *l = list_entry(k, struct lease, by_file);

		if (l->session == lease_spared(op) || l->recalling ||
		    (l->modes & op->recall_modes) == 0 || n == HOLDERS_MAX)
			continue;
		l->recalling = true;
		session_ref(l->session);
		as[n++] = (struct holder){.m = op->m,
					  .session = l->session,
					  .ino = f->ino,
					  .modes = modes,
					  .change = op->recall_change};
	}
	metric_add(&op->m->metrics.recalls, n);
	if (n > 0)
		fiber_parallel("recall", ask_holder, as, sizeof(as[0]), n, HOLDER_PARALLEL);
	for (uint32_t i = 0; i < n; i++)
		TRY(as[i].status);
	return (int)n;
}

static int recall_one(struct op *op, struct ino ino)
{
	struct leases *ls = &op->m->leases;
	struct lease_file *f;
	uint64_t until_us;
	int rc;

	if (op->n_blocked == ARRAY_SIZE(op->blocked))
		return -LE_OVERLOAD;
	f = leases_block(ls, ino);
	if (f == NULL)
		return -LE_NOMEM;
	op->blocked[op->n_blocked++] = f;
	while (lease_foreign(ls, ino, lease_spared(op), op->recall_modes)) {
		if (op->m->stopping)
			return -LE_SHUTDOWN;
		rc = ask_holders(op, f);
		if (rc > 0)
			continue;
		TRY(rc);
		until_us = loop_deadline_ms(HOLDER_ASK_MS);
		rc = waitq_wait(&f->q, until_us);
		/* After the deadline of the request every wait ends immediately, so do not loop. */
		if (rc < 0 && (rc != -LE_TIMEDOUT || until_us > fiber_deadline()))
			return rc;
	}
	if ((op->recall_modes & LEASE_APPEND) == 0)
		lease_mark_contended(ls, ino);
	return 0;
}

static void end_missing(void *arg)
{
	struct holder *a = arg;

	a->status = session_end(a->m, a->session);
	session_unref(a->session);
}

/* True for the session of the request: its client is here. An operation that a previous
 * incarnation began has no request. */
static bool is_here(const struct op *op, const struct session *se)
{
	return se == op->session && op->r != NULL;
}

int recall_end_missing(const struct op *op)
{
	struct mds *m = op->m;
	struct holder as[HOLDER_PARALLEL];
	uint64_t now_us = loop_now_us();
	uint32_t n = 0;

	/* Clients can return only from serving_us on. Intents, which call this, run during the
	 * start too, and that may take longer than a lease term. */
	if (now_us < m->serving_us || now_us - m->serving_us < lease_term_us(m))
		return mds_sleep_ms(m, HOLDER_AGAIN_MS);
	list_for_each (k, &m->sessions.all) {
		struct session *se = list_entry(k, struct session, link);

		if (!se->from_store || se->ended || is_here(op, se) || n == HOLDER_PARALLEL ||
		    (se->peer != NULL && !holder_is_late(m, se)))
			continue;
		log_warn("session %llu of %s has not returned after the restart, and may have data "
			 "or a lock that another client needs: evicting it",
			 (unsigned long long)se->id, se->name);
		session_ref(se);
		as[n++] = (struct holder){.m = m, .session = se};
	}
	if (n == 0)
		return mds_sleep_ms(m, HOLDER_AGAIN_MS);
	fiber_parallel("end-missing", end_missing, as, sizeof(as[0]), n, n);
	for (uint32_t i = 0; i < n; i++)
		TRY(as[i].status);
	return m->stopping ? -LE_SHUTDOWN : 0;
}

int recall_missing(const struct op *op)
{
	return leases_known(op->m) ? recall_end_missing(op) : 0;
}

/* Waits until no session that has not returned after the restart may have a lease that is to be
 * recalled. Computed in each round: sessions return meanwhile. */
static int await_returned(struct op *op, struct ino ino)
{
	int rc;

	while ((rc = lease_is_hidden(op, ino)) != 0) {
		if (rc == -LE_MISS)
			rc = store_load(op->store);
		else
			rc = leases_known(op->m) ? recall_end_missing(op)
						 : mds_sleep_ms(op->m, HOLDER_AGAIN_MS);
		TRY(rc);
	}
	return 0;
}

int op_recall(struct op *op)
{
	struct ino inos[ARRAY_SIZE(op->recall)];
	uint32_t n = op->n_recall;

	ASSERT(n > 0 && n <= ARRAY_SIZE(inos) && op->recall_modes != 0);
	memcpy(inos, op->recall, sizeof(inos));
	for (uint32_t i = 0; i < n; i++)
		TRY(await_returned(op, inos[i]));
	for (uint32_t i = 0; i < n; i++)
		if (lease_foreign(&op->m->leases, inos[i], lease_spared(op), op->recall_modes))
			TRY(recall_one(op, inos[i]));
	return 0;
}

void op_unblock(struct op *op)
{
	while (op->n_blocked > 0)
		leases_unblock(&op->m->leases, op->blocked[--op->n_blocked]);
}
