/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions of clients: open, close, ping, reclaim; and the session list for object servers. */
#include "common/base/checksum.h"
#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/access/exports_policy.h"
#include "mds/file/idle.h"
#include "mds/ops/export.h"
#include "mds/ops/lock.h"
#include "mds/ops/open.h"
#include "mds/ops/ops.h"
#include "mds/recovery.h"
#include "mds/session/session_end.h"

/* Locks in one reply, and bytes of each. */
#define HELD_MAX   1024u
#define HELD_ENTRY 40u

static int session_get(struct op *op, const struct mds_session_open_req *in,
		       struct session **ret_session)
{
	struct sessions *ss = &op->m->sessions;
	struct session *se = session_find_client(ss, &in->client);

	if (se != NULL && se->ended)
		return -LE_NOT_READY; /* its end is not durable yet */
	if (in->session != 0 && (se == NULL || se->id != in->session))
		return -LE_SESSION_GONE;
	if (se == NULL) {
		TRY(session_create(ss, &in->client, in->name, in->slots, &se));
		log_info("session %llu of %s opened", (unsigned long long)se->id, se->name);
	}
	*ret_session = se;
	return 0;
}

/* Over a new connection a client reclaims everything again. Drops what it reclaimed over the
 * previous one, perhaps not completely, which would count twice. */
static void forget_reclaimed(struct mds *m, struct session *se)
{
	while (se->from_store && !list_empty(&se->opens))
		open_drop_all(&m->opens, list_entry(se->opens.next, struct open, by_session));
	se->reclaimed_sum = se->n_unshared = 0;
}

/* The opens of the previous process stay until the new process has reclaimed all of its own, so
 * that no file counts as closed in between. Recorded replies are sent once more and count again
 * what they opened, because the previous process may not have received them. Its waits for locks
 * are dropped; the new process repeats those it needs. */
static void takeover_begin(struct mds *m, struct session *se)
{
	locks_drop_waits(&m->locks, se->id);
	list_for_each (n, &se->opens)
		open_set_old(list_entry(n, struct open, by_session));
	for (uint32_t i = 0; i < se->n_slots; i++)
		se->slots[i].from_store = true;
	se->reclaimed_sum = se->n_unshared = 0;
	se->taking_over = true;
}

static int takeover_end(struct mds *m, struct session *se)
{
	const uint64_t deadline = fiber_deadline();
	uint32_t n = 0;
	int rc = 0;

	/* Independent of the deadline of the request. */
	fiber_set_deadline(NO_DEADLINE);
	se->taking_over = false;
	list_for_each (l, &se->opens)
		n++;
	while (rc == 0 && n-- > 0 && !list_empty(&se->opens) && !se->taking_over) {
		struct open *o = list_entry(se->opens.next, struct open, by_session);
		struct open_file *f = o->file;
		struct ino ino = f->ino;

		list_remove(&o->by_session);
		list_push(&se->opens, &o->by_session);
		if (o->old_read + o->old_write == 0)
			continue;
		f->refs++;
		open_drop_old(&m->opens, o);
		if (f->n_writers == 0)
			rc = data_idle(m, ino);
		open_file_put(&m->opens, f);
	}
	fiber_set_deadline(deadline);
	if (rc < 0)
		se->taking_over = true; /* the client repeats it */
	return rc;
}

int mds_session_open(struct op *op, const void *vin, void *vout)
{
	const struct mds_session_open_req *in = vin;
	struct mds_session_open_rep *out = vout;
	struct mds *m = op->m;
	struct session *se;
	int rc;

	if (uuid_is_zero(&in->client))
		return -LE_INVAL;
	fmutex_lock(&m->sessions.lock);
	rc = op->r != NULL && op->r->peer->gone ? -LE_DISCONNECTED : session_get(op, in, &se);
	if (rc == 0 && export_must_end(op, se)) {
		fmutex_unlock(&m->sessions.lock);
		return export_end(m, se);
	}
	if (rc == 0) {
		if (op->r != NULL && !op->r->peer->gone) {
			struct session *before = session_of(op->r->peer);

			if (before != NULL && before != se)
				session_detach(before, op->r->peer);
			if (before != se)
				forget_reclaimed(m, se);
			op->r->peer->user = se;
			session_attach(se, op->r->peer);
		}
		se->last_contact_us = loop_now_us();
		if (in->takeover != 0 && !se->from_store)
			takeover_begin(m, se);
		*out = (struct mds_session_open_rep){
			.session = se->id,
			.slots = se->n_slots,
			.ttl_ms = m->params.session_ttl_ms,
			.incarnation = op->store->cluster.incarnation,
			.map_epoch = m->cluster.epoch,
			.reclaim = se->from_store    ? RECLAIM_ALL
				   : se->taking_over ? RECLAIM_TAKEOVER
						     : RECLAIM_NONE,
			.lease_ms = m->params.client_lease_ms,
			.mds_checks_access = export_squashes(op),
			.now_ns = env_wall_ns(m->env),
		};
	}
	fmutex_unlock(&m->sessions.lock);
	return rc;
}

int mds_session_close(struct op *op, const void *vin, void *vout)
{
	const struct mds_session_close_req *in = vin;

	(void)vout;
	if (op->session == NULL || op->session->id != in->session)
		return session_find(&op->m->sessions, in->session) == NULL ? 0 : -LE_PERM;
	op->session->closing = true;
	return session_end(op->m, op->session);
}

int mds_lease_return(struct op *op, const void *vin, void *vout)
{
	const struct mds_lease_return_req *in = vin;
	struct leases *ls = &op->m->leases;
	struct wire_r r;

	(void)vout;
	if (op->session == NULL)
		return -LE_SESSION_GONE;
	wire_r_init(&r, in->inos.data, in->inos.len);
	while (!wire_r_end(&r)) {
		struct lease *l;
		struct ino ino;

		wire_get_ino(&r, &ino);
		TRY(r.status);
		l = lease_find(ls, ino, op->session);
		if (l != NULL)
			lease_end(ls, l, LEASE_CACHING);
	}
	return 0;
}

int mds_session_list(struct op *op, const void *vin, void *vout)
{
	const struct mds_session_list_req *in = vin;
	struct mds_session_list_rep *out = vout;
	struct sessions *ss = &op->m->sessions;
	struct wire_w w;
	void *buf;

	out->gen = ss->gen;
	out->newest = op->store->counters.next_session - 1;
	if (in->have_gen == ss->gen)
		return 0;
	buf = op_alloc(op, 8u * ss->n + 8);
	if (buf == NULL)
		return -LE_NOMEM;
	wire_w_init(&w, buf, 8u * ss->n + 8);
	list_for_each (n, &ss->all)
		wire_put_u64(&w, &list_entry(n, struct session, link)->id);
	out->sessions = bytes_of(buf, (uint32_t)w.len);
	return w.status;
}

int mds_ping(struct op *op, const void *vin, void *vout)
{
	const struct mds_ping_req *in = vin;
	struct mds_ping_rep *out = vout;

	if (op->session == NULL && op->r != NULL && op->r->hdr.session != 0)
		return -LE_SESSION_GONE;
	if (op->session != NULL)
		(void)clock_seen_update(&op->session->clock, in->ahead_us, in->bound_us);
	out->now_ns = env_wall_ns(op->m->env);
	out->map_epoch = op->m->cluster.epoch;
	out->incarnation = op->store->cluster.incarnation;
	return 0;
}

static bool give_again(struct op *op, struct ino ino, enum lease_mode mode)
{
	if (!lease_give(&op->m->leases, op->session, ino, mode))
		return false;
	lease_find(&op->m->leases, ino, op->session)->claimed = export_squashes(op);
	return true;
}

/* Until the session has returned, nothing changes that it may have cached (lease/lease_check.c). If
 * the server has not restarted the session may have a write lease, which must not become a shared
 * one. */
static bool share_again(struct op *op, struct ino ino)
{
	return op->session->from_store && give_again(op, ino, LEASE_SHARED);
}

/* Requests that need the file recall this like a write lease, so that the session flushes what it
 * has written. */
static int hide_again(struct op *op, struct ino ino)
{
	if ((lease_modes(&op->m->leases, ino, op->session) & LEASE_CACHING) != 0 ||
	    give_again(op, ino, LEASE_WRITE))
		return 0;
	return -LE_OVERLOAD;
}

static int reclaim_all(struct op *op, struct bytes opens, struct mds_reclaim_rep *out)
{
	struct wire_r r;

	wire_r_init(&r, opens.data, opens.len);
	while (!wire_r_end(&r)) {
		struct ino ino;
		uint32_t flags, n;
		bool shared, hidden;
		int rc;

		wire_get_ino(&r, &ino);
		wire_get_u32(&r, &flags);
		wire_get_u32(&r, &n);
		TRY(r.status);
		shared = (flags & RECLAIM_SHARED) != 0;
		hidden = (flags & RECLAIM_UNFLUSHED) != 0;
		flags &= ~(RECLAIM_SHARED | RECLAIM_UNFLUSHED);
		/* Its network may be read-only by now. */
		if (open_flags_write(flags) && export_read_only(op))
			rc = -LE_STALE;
		else
			rc = open_reclaim(op, ino, flags, n);
		if (rc == -LE_STALE)
			out->n_lost++;
		else
			TRY(rc);
		if (hidden && rc == 0)
			TRY(hide_again(op, ino));
		if (shared && (rc < 0 || !share_again(op, ino)))
			op->session->n_unshared++;
	}
	return 0;
}

static int reclaim_locks(struct op *op, struct bytes locks, uint32_t *ret_lost)
{
	struct wire_r r;

	wire_r_init(&r, locks.data, locks.len);
	while (!wire_r_end(&r)) {
		struct file_lock l;
		struct ino ino;
		int rc;

		wire_get_ino(&r, &ino);
		wire_get_file_lock(&r, &l);
		TRY(r.status);
		rc = lock_reclaim(op, ino, &l);
		if (rc == -LE_STALE || rc == -LE_LOCKED || rc == -LE_NOLCK)
			++*ret_lost;
		else
			TRY(rc);
	}
	return 0;
}

struct held_list {
	struct wire_w w;
	uint32_t n;
};

static bool take_held(void *arg, struct ino ino, const struct file_lock *l)
{
	struct held_list *h = arg;

	wire_put_ino(&h->w, &ino);
	wire_put_file_lock(&h->w, l);
	return ++h->n == HELD_MAX;
}

/* Adds the locks that the session holds to the reply, for the process that takes it over. */
static int send_held(struct op *op, uint32_t from, struct mds_reclaim_rep *out)
{
	const size_t space = (size_t)HELD_MAX * HELD_ENTRY;
	struct held_list h = {.n = 0};
	uint32_t n;
	void *buf = op_alloc(op, space);

	if (buf == NULL)
		return -LE_NOMEM;
	wire_w_init(&h.w, buf, space);
	n = locks_each(&op->m->locks, op->session->id, from - 1, take_held, &h);
	TRY(h.w.status);
	out->held = bytes_of(buf, (uint32_t)h.w.len);
	out->locks_next = n == HELD_MAX ? from + n : 0;
	return 0;
}

int mds_reclaim(struct op *op, const void *vin, void *vout)
{
	const struct mds_reclaim_req *in = vin;
	struct mds_reclaim_rep *out = vout;
	struct session *se = op->session;
	uint64_t sum = checksum64(in->opens.data, in->opens.len) | 1;
	int rc = 0;

	if (se == NULL)
		return -LE_SESSION_GONE;
	if (in->opens.len % 16 != 0)
		return -LE_BAD_MESSAGE;
	if (!se->from_store && !se->taking_over)
		return 0;
	session_ref(se);
	if (sum != se->reclaimed_sum ||
	    in->opens.len == 0) { /* else it is a repeated message */
		rc = reclaim_all(op, in->opens, out);
		/* The opens counted so far were dropped when the next connection began. */
		if (rc == 0 && op->r != NULL && op->r->peer != se->peer)
			rc = -LE_DISCONNECTED;
		if (rc == 0) {
			se->reclaimed_sum = sum;
			se->reclaimed_lost = out->n_lost;
		}
	} else {
		out->n_lost = se->reclaimed_lost;
	}
	out->n_unshared = se->n_unshared;
	if (rc == 0)
		rc = reclaim_locks(op, in->locks, &out->n_lost);
	if (rc == 0 && in->locks_from > 0)
		rc = send_held(op, in->locks_from, out);
	if (rc == 0 && in->done != 0 && se->taking_over)
		rc = takeover_end(op->m, se);
	else if (rc == 0 && in->done != 0 && session_returned(&op->m->sessions, se))
		recovery_session(op->m);
	session_unref(se);
	return rc;
}
