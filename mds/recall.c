/* Recalls; see recall.h. */
#include "mds/recall.h"

#include <stdlib.h>

#include "common/base/fault.h"
#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/ops/export.h"

#define ASK_MS           1000u /* one attempt to tell a holder */
#define AGAIN_MS         20u
#define PRESUMED_MS      500u /* between attempts to ask */
#define PARALLEL         64u
#define TRIES_MIN        2u
#define TRIES_TOLD       10u
#define SESSION_MAX      128u /* asked of one session at a time: its end bounds callbacks too */
#define OWNERS_MAX       16u  /* of these, beyond which news of owners waits for a term */
#define HOLDERS_MAX      256u /* asked at a time */
#define PRESUMED_AT_ONCE 64u

static uint64_t term_us(const struct mds *m)
{
	/* Clocks differ. */
	return m->params.client_lease_ms * 1100ull;
}

/* After a restart: is it known what nobody can have cached? */
static bool leases_known(const struct mds *m)
{
	return m->recovery.sessions_back || loop_now_us() >= m->start_us + term_us(m);
}

/* Whose leases stay. */
static const struct session *spared(const struct op *op)
{
	return op->recall_own ? NULL : op->session;
}

static bool is_unsettled(const struct op *op, struct ino ino)
{
	const struct inode_rec *rec;
	struct inode *i;

	return inode_get(op->store, ino, VIEW_NEWEST, &i, &rec) == 0 &&
	       (rec->attr.flags & ATTR_UNSETTLED) != 0;
}

/* A file that is not settled, and that nobody who is back has open for writing: a session that is
 * missing may have had its write lease, and have data that no object server has seen. */
static bool is_hidden(const struct op *op, struct ino ino)
{
	uint32_t own = op->session != NULL && op->session->from_store;
	const struct open_file *f;

	if (op->m->sessions.n_from_store <= own) /* as ever, but just after a restart */
		return false;
	f = open_file_find(&op->m->opens, ino);
	return (f == NULL || f->n_writers == 0) && is_unsettled(op, ino);
}

static int leased(struct op *op, const struct ino *inos, uint32_t n, bool write)
{
	op->n_recall = 0;
	op->recall_own = false;
	for (uint32_t i = 0; i < n && !FAULT(MDS_NO_RECALL); i++) {
		if (!leases_known(op->m) || is_hidden(op, inos[i]) ||
		    lease_foreign(&op->m->leases, inos[i], op->session, write))
			op->recall[op->n_recall++] = inos[i];
		ASSERT(op->n_recall <= ARRAY_SIZE(op->recall));
	}
	op->recall_writes = write;
	return op->n_recall > 0 ? -LE_LEASED : 0;
}

int op_changes_all(struct op *op, const struct ino *inos, uint32_t n)
{
	return leased(op, inos, n, false);
}

int op_looks(struct op *op, const struct attr *a)
{
	/* Nobody writes it: there is no write lease, and after a restart nobody can have one. */
	return (a->flags & ATTR_UNSETTLED) != 0 ? leased(op, &a->ino, 1, true) : 0;
}

int op_asks_own(struct op *op, struct ino ino, struct ino told)
{
	if (ino_equal(ino, told) || told.v == TOLD_ALL || op->session == NULL ||
	    lease_find(&op->m->leases, ino, op->session) == NULL)
		return 0;
	op->recall[0] = ino;
	op->n_recall = 1;
	op->recall_writes = false;
	op->recall_own = true;
	return -LE_LEASED;
}

struct asking {
	struct mds *m;
	struct session *session;
	struct ino ino;
	int status; /* why it was given up before the lease was given back */
};

static int call_back(struct session *se, uint16_t op, const void *req, void *rep)
{
	struct rpc_call call = {
		.op = op, .req = req, .rep = rep, .deadline_us = loop_deadline_ms(ASK_MS)};
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

static int ask(const struct asking *a)
{
	struct cb_recall_req req = {a->ino};
	struct cb_recall_rep rep;

	return call_back(a->session, OP_cb_recall, &req, &rep);
}

static bool is_late(const struct mds *m, const struct session *se)
{
	return loop_now_us() > se->heard_us + term_us(m);
}

/* Silence counts only after it was asked: it may be this process that stood still. */
static bool is_silent(const struct asking *a, uint32_t tries)
{
	struct session *se = a->session;

	if (!is_late(a->m, se))
		return false;
	if (tries > TRIES_MIN)
		se->silent_us = loop_now_us();
	return se->silent_us > se->heard_us;
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

/* It has what nobody else may have, and cannot be asked: the session ends, which ends its leases
 * first. Who waits for this one does not wait for all that the session had open. */
static void give_up(const struct asking *a)
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
	log_warn("session %llu of %s does not give back what it has of inode %llu: it is ended",
		 (unsigned long long)a->session->id, a->session->name,
		 (unsigned long long)a->ino.v);
}

/* That somebody has unlocked the file is word enough, and does no harm where it is not so. */
static void ask_whether_there(void *arg)
{
	struct asking a = *(struct asking *)arg;
	struct session *se = a.session;
	struct cb_unlocked_req req = {a.ino};
	struct cb_unlocked_rep rep;

	free(arg);
	for (uint32_t tries = 1; is_late(a.m, se) && !se->ended; tries++) {
		if (!is_silent(&a, 0) && call_back(se, OP_cb_unlocked, &req, &rep) >= 0)
			break;
		if (is_silent(&a, tries)) {
			give_up(&a);
			break;
		}
		if (mds_sleep_ms(a.m, AGAIN_MS) < 0)
			break;
	}
	se->asked = false;
	session_unref(se);
	latch_done(&a.m->fibers);
}

void recall_silent(struct mds *m, struct session *se, struct ino ino)
{
	struct asking *a;

	if (se->asked || se->ended || se->ending || !is_late(m, se))
		return;
	a = malloc(sizeof(*a));
	if (a == NULL)
		return; /* who waits asks again */
	*a = (struct asking){m, se, ino, 0};
	latch_add(&m->fibers, 1);
	if (fiber_spawn("ask-silent", ask_whether_there, a) < 0) {
		latch_done(&m->fibers);
		free(a);
		return;
	}
	se->asked = true;
	session_ref(se);
}

/* It may have it open. */
static int presume(const struct asking *a)
{
	if (a->session->ended)
		return 0; /* nor anything else */
	TRY(open_presume(&a->m->opens, a->session, a->ino));
	waitq_wake_all(&a->m->presumed_q);
	return 0;
}

/* Rounded down: who asks and gives up again and again must not have another's session ended. */
static void asked_until(struct lease *l, uint64_t began_us, uint64_t now_us)
{
	uint64_t ds = l->asked_ds + (now_us - began_us) / 100000;

	l->asked_ds = ds < UINT16_MAX ? (uint16_t)ds : UINT16_MAX;
	l->asked_s = (uint32_t)(now_us / 1000000);
}

static void ask_holder(void *arg)
{
	struct asking *a = arg;
	struct leases *ls = &a->m->leases;
	const uint64_t began_us = loop_now_us(), ttl_us = a->m->params.session_ttl_ms * 1000ull;
	uint64_t stubborn_us = began_us + ttl_us;
	struct lease *l = lease_find(ls, a->ino, a->session);

	/* A request waits for a shorter time, and then the next one asks. What was long ago was
	 * another trouble. */
	if (l != NULL && began_us > l->asked_s * 1000000ull + ttl_us)
		l->asked_ds = 0;
	if (l != NULL)
		stubborn_us -= l->asked_ds * 100000ull;
	for (uint32_t tries = 1; lease_find(ls, a->ino, a->session) != NULL; tries++) {
		/* To ask who was found silent before takes a second, and it may have had a million
		 * leases. */
		int rc = is_silent(a, 0) ? -LE_TIMEDOUT : ask(a);
		bool answered = rc >= 0, silent = is_silent(a, tries);

		l = lease_find(ls, a->ino, a->session);
		if (l == NULL)
			break;
		if (answered || (silent && !l->write && presume(a) >= 0)) {
			lease_drop(ls, l);
			break;
		}
		if (!a->session->ended && (silent || loop_now_us() > stubborn_us))
			give_up(a);
		if (tries == TRIES_TOLD)
			log_info("session %llu of %s has not given back its lease on inode %llu "
				 "yet: %s",
				 (unsigned long long)a->session->id, a->session->name,
				 (unsigned long long)a->ino.v, status_name(rc));
		a->status = mds_sleep_ms(a->m, AGAIN_MS);
		if (a->status < 0)
			break;
	}
	/* Who else waits for it asks then. */
	l = lease_find(ls, a->ino, a->session);
	if (l != NULL) {
		l->recalling = false;
		asked_until(l, began_us, loop_now_us());
		waitq_wake_all(&l->file->q);
	}
	session_unref(a->session);
}

/* Asks those whom nobody is asking yet: how many, or why it was given up. */
static int ask_holders(struct op *op, struct lease_file *f, bool write)
{
	struct asking as[HOLDERS_MAX];
	uint32_t n = 0;

	list_for_each (k, &f->leases) {
		struct lease *l = list_entry(k, struct lease, by_file);

		if (l->session == spared(op) || l->recalling || (write && !l->write) ||
		    n == HOLDERS_MAX)
			continue;
		l->recalling = true;
		session_ref(l->session);
		as[n++] = (struct asking){op->m, l->session, f->ino, 0};
	}
	metric_add(&op->m->metrics.recalls, n);
	if (n > 0)
		fiber_parallel("recall", ask_holder, as, sizeof(as[0]), n, PARALLEL);
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
	while (lease_foreign(ls, ino, spared(op), op->recall_writes)) {
		if (op->m->stopping)
			return -LE_SHUTDOWN;
		rc = ask_holders(op, f, op->recall_writes);
		if (rc > 0)
			continue;
		TRY(rc);
		until_us = loop_deadline_ms(ASK_MS);
		rc = waitq_wait(&f->q, until_us);
		/* When the request's own time has come, a wait ends at once, each time. */
		if (rc < 0 && (rc != -LE_TIMEDOUT || until_us > fiber_deadline()))
			return rc;
	}
	leases_quarrel(ls, ino);
	return 0;
}

static void end_missing(void *arg)
{
	struct asking *a = arg;

	a->status = session_end(a->m, a->session);
	session_unref(a->session);
}

/* It asks, and so is no missing one. (Nobody asks now for what a former incarnation began.) */
static bool is_here(const struct op *op, const struct session *se)
{
	return se == op->session && op->r != NULL;
}

/* Ends sessions that have not returned, and are not about to; waits a moment if there are none.
 * Which of them it was that had the lease is not known any more. */
static int missing_end(const struct op *op)
{
	struct mds *m = op->m;
	struct asking as[PARALLEL];
	uint64_t now_us = loop_now_us();
	uint32_t n = 0;

	/* A start that took long has left them no time; intents come before its end. */
	if (now_us < m->serving_us || now_us - m->serving_us < term_us(m))
		return mds_sleep_ms(m, AGAIN_MS);
	list_for_each (k, &m->sessions.all) {
		struct session *se = list_entry(k, struct session, link);

		if (!se->from_store || se->ended || is_here(op, se) || n == PARALLEL ||
		    (se->peer != NULL && !is_late(m, se)))
			continue;
		log_warn("session %llu of %s has not returned, and may have data, or a lock, that "
			 "somebody needs: it is ended",
			 (unsigned long long)se->id, se->name);
		session_ref(se);
		as[n++] = (struct asking){m, se, {0}, 0};
	}
	if (n == 0)
		return mds_sleep_ms(m, AGAIN_MS);
	fiber_parallel("end-missing", end_missing, as, sizeof(as[0]), n, n);
	for (uint32_t i = 0; i < n; i++)
		TRY(as[i].status);
	return m->stopping ? -LE_SHUTDOWN : 0;
}

int recall_missing(const struct op *op)
{
	return leases_known(op->m) ? missing_end(op) : 0;
}

int op_recall(struct op *op)
{
	struct ino inos[ARRAY_SIZE(op->recall)];
	uint32_t n = op->n_recall;

	memcpy(inos, op->recall, sizeof(inos));
	while (!leases_known(op->m))
		TRY(mds_sleep_ms(op->m, AGAIN_MS));
	for (uint32_t i = 0; i < n; i++)
		while (is_hidden(op, inos[i]))
			TRY(missing_end(op));
	for (uint32_t i = 0; i < n; i++)
		if (lease_foreign(&op->m->leases, inos[i], spared(op), op->recall_writes))
			TRY(recall_one(op, inos[i]));
	return 0;
}

void op_unblock(struct op *op)
{
	while (op->n_blocked > 0)
		leases_unblock(&op->m->leases, op->blocked[--op->n_blocked]);
}

/* ---- another owner ---- */

struct told {
	struct list link;
	struct session *session;
};

static bool is_told(const struct op *op, const struct session *se)
{
	list_for_each (k, &op->told)
		if (list_entry(k, struct told, link)->session == se)
			return true;
	return false;
}

static int tell_later(struct op *op, struct session *se)
{
	struct told *t;

	if (se == op->session)
		return 0;
	t = malloc(sizeof(*t));
	if (t == NULL)
		return -LE_NOMEM;
	t->session = se;
	session_ref(se);
	list_push(&op->told, &t->link);
	return 0;
}

int op_gives(struct op *op, struct ino ino)
{
	const struct lease_file *f = lease_file_find(&op->m->leases, ino);
	bool again = !list_empty(&op->told); /* the section is run once more */

	if (f == NULL)
		return 0;
	list_for_each (k, &f->leases) {
		struct session *se = list_entry(k, struct lease, by_file)->session;

		if (!again || !is_told(op, se))
			TRY(tell_later(op, se));
	}
	return 0;
}

/* Who does not hear it goes by the former owner until its kernel asks again. */
static void tell_owner(void *arg)
{
	struct asking *a = arg;
	struct cb_owner_req req = {a->ino};
	struct cb_owner_rep rep;
	uint64_t until_us = loop_now_us() + term_us(a->m);
	int rc = -LE_DISCONNECTED;

	while (!a->session->ended && !is_late(a->m, a->session) && loop_now_us() < until_us) {
		rc = call_back(a->session, OP_cb_owner, &req, &rep);
		if (rc >= 0 || rc == -LE_TIMEDOUT)
			break;
		/* Another process may be about to go on with it. */
		if (mds_sleep_ms(a->m, AGAIN_MS) < 0)
			break;
	}
	/* Whoever is silent for long says so himself, not once per file. */
	if (rc < 0 && !a->session->ended && !is_late(a->m, a->session))
		log_info("session %llu of %s was not told of the new owner of inode %llu: %s",
			 (unsigned long long)a->session->id, a->session->name,
			 (unsigned long long)a->ino.v, status_name(rc));
	session_unref(a->session);
}

void op_given(struct op *op, struct ino ino)
{
	struct open_file *f = open_file_find(&op->m->opens, ino);
	struct asking as[HOLDERS_MAX];
	struct list *n;
	uint32_t n_as;
	int rc = 0;

	if (f != NULL)
		list_for_each (k, &f->opens)
			if (rc == 0)
				rc = tell_later(op, list_entry(k, struct open, by_file)->session);
	if (rc < 0)
		log_warn("inode %llu: no memory to tell who has it open of its new owner",
			 (unsigned long long)ino.v);
	do {
		for (n_as = 0; n_as < HOLDERS_MAX && (n = list_pop(&op->told)) != NULL; n_as++) {
			struct told *t = list_entry(n, struct told, link);

			as[n_as] = (struct asking){op->m, t->session, ino, 0};
			free(t);
		}
		if (n_as > 0)
			fiber_parallel("tell-owner", tell_owner, as, sizeof(as[0]), n_as, PARALLEL);
	} while (n_as == HOLDERS_MAX);
}

void op_gives_end(struct op *op)
{
	struct list *n;

	while ((n = list_pop(&op->told)) != NULL) {
		struct told *t = list_entry(n, struct told, link);

		session_unref(t->session);
		free(t);
	}
}

/* ---- places that appends were given ---- */

/* Until it writes at none of them, or its session has ended, with all that it had open. */
static void ask_placed(void *arg)
{
	struct asking *a = arg;
	struct open_file *f = open_file_find(&a->m->opens, a->ino);
	uint64_t stubborn_us = loop_now_us() + a->m->params.session_ttl_ms * 1000ull;
	struct cb_cut_req req = {a->ino, f->placed};
	struct cb_cut_rep rep;
	struct open *o;

	for (uint32_t tries = 1;; tries++) {
		int rc;

		o = open_find(&a->m->opens, a->session, a->ino);
		if (o == NULL || !o->placed)
			break;
		rc = call_back(a->session, OP_cb_cut, &req, &rep);
		o = open_find(&a->m->opens, a->session, a->ino);
		if (rc >= 0 && o != NULL)
			o->placed = false;
		if (rc >= 0 || o == NULL)
			break;
		if (!a->session->ended &&
		    (is_silent(a, tries) || loop_now_us() > stubborn_us))
			give_up(a);
		a->status = mds_sleep_ms(a->m, AGAIN_MS);
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

/* Whom a former incarnation has given some is not known before he has returned, be the cut its own
 * or a new one; of its own also whoever asked for it, of whom another program may append. Who does
 * not return is ended: he may be away from here alone, and write there yet. */
static int await_placed(struct op *op, const struct open_file *f)
{
	for (;;) {
		uint32_t own = !f->trimming && op->session != NULL && op->session->from_store;
		bool unsettled = false;

		/* Asked each time: whoever asks for the cut may have come back meanwhile. */
		if (op->m->sessions.n_from_store <= own)
			break;
		/* What had no writers before the start had no such places. */
		if (f->n_writers > 0 && !f->had_writers)
			break;
		TRY(op_read(op, look_unsettled, &f->ino, &unsettled));
		if (!unsettled)
			break;
		TRY(leases_known(op->m) ? missing_end(op) : mds_sleep_ms(op->m, AGAIN_MS));
	}
	return 0;
}

int recall_places(struct op *op, struct open_file *f)
{
	struct asking as[HOLDERS_MAX];
	uint32_t n;

	TRY(await_placed(op, f));
	do {
		n = 0;
		list_for_each (k, &f->opens) {
			struct open *o = list_entry(k, struct open, by_file);

			if (!o->placed || n == HOLDERS_MAX)
				continue;
			session_ref(o->session);
			as[n++] = (struct asking){op->m, o->session, f->ino, 0};
		}
		if (n > 0)
			fiber_parallel("recall-places", ask_placed, as, sizeof(as[0]), n, PARALLEL);
		for (uint32_t i = 0; i < n; i++)
			TRY(as[i].status);
	} while (n == HOLDERS_MAX);
	return 0;
}

/* ---- what is presumed ---- */

/* Some of what is presumed of those who are heard, each session with a reference. *ret_any: of
 * others too. */
static uint32_t find_presumed(struct mds *m, struct asking *as, bool *ret_any)
{
	uint32_t n = 0;

	*ret_any = false;
	list_for_each (k, &m->sessions.all) {
		struct session *se = list_entry(k, struct session, link);

		if (list_empty(&se->presumed))
			continue;
		*ret_any = true;
		if (se->peer == NULL || se->silent_us > se->heard_us)
			continue;
		list_for_each (l, &se->presumed) {
			const struct open *o = list_entry(l, struct open, by_presumed);

			if (n == PRESUMED_AT_ONCE)
				return n;
			session_ref(se);
			as[n++] = (struct asking){m, se, o->file->ino, 0};
		}
	}
	return n;
}

static void ask_presumed(void *arg)
{
	struct asking *a = arg;
	struct open *o;

	a->status = ask(a);
	o = open_find(&a->m->opens, a->session, a->ino);
	if (a->status >= 0 && o != NULL && o->presumed) {
		open_presumed_end(&a->m->opens, o);
		a->status = data_idle(a->m, a->ino);
	}
	if (a->status < 0) /* others first, until it is heard */
		a->session->silent_us = loop_now_us();
	session_unref(a->session);
}

void recall_presumed(struct mds *m)
{
	struct asking as[PRESUMED_AT_ONCE];

	while (!m->stopping) {
		bool any, failed = false;
		uint32_t n = find_presumed(m, as, &any);
		int rc = 0;

		if (n > 0)
			fiber_parallel("ask-presumed", ask_presumed, as, sizeof(as[0]), n, n);
		for (uint32_t i = 0; i < n; i++)
			failed |= as[i].status < 0;
		if (any && (n == 0 || failed))
			rc = mds_sleep_ms(m, PRESUMED_MS);
		else if (!any)
			rc = waitq_wait(&m->presumed_q, NO_DEADLINE);
		if (rc < 0)
			break;
	}
}

/* ---- giving ---- */

static bool is_present(const struct inode *i, const struct attr *a)
{
	const struct attr *d = &i->durable.attr;

	/* Reading changes the access time without counting as a change. */
	return !i->o.in[0] && !i->o.in[1] && d->change == a->change && d->flags == a->flags &&
	       d->layout.gen == a->layout.gen && d->atime_ns == a->atime_ns &&
	       d->mtime_ns == a->mtime_ns;
}

/* The session is the only one that has the file open, and for writing; and it knows the size, as
 * the record had it when it began. */
static bool writes_alone(const struct open *o)
{
	const struct open_file *f = o->file;

	/* What a process wrote that has ended the one that goes on with its session does not know.
	 */
	return o->n_write > 0 && o->n_write == f->n_writers && o->n_read == f->n_readers &&
	       o->old_write == 0 && !f->untracked;
}

/* What the session may be given on an inode with writers: nobody else has a write lease while it
 * has the file open, so there is no data but with the chains. Nothing while sessions are missing
 * that may have had one. */
static bool may_share(struct op *op, const struct attr *a, bool *ret_alone)
{
	const struct open *o = open_find(&op->m->opens, op->session, a->ino);

	if (o == NULL || o->n_read + o->n_write == o->presumed || !op->m->recovery.sessions_back)
		return false;
	*ret_alone = writes_alone(o);
	return true;
}

void op_lease(struct op *op, struct attr *a)
{
	struct mds *m = op->m;
	struct open_file *f;
	const struct lease *own;
	struct inode *i;
	bool unsettled = (a->flags & ATTR_UNSETTLED) != 0, write = false;

	if (op->session == NULL || op->session->ended || op->session->peer == NULL ||
	    a->ino.v == 0 || a->nlink == 0 || !export_may_lease(op, a) ||
	    inode_get(op->store, a->ino, VIEW_DURABLE, &i, NULL) < 0 || !is_present(i, a))
		return;
	f = open_file_find(&m->opens, a->ino);
	if (f != NULL && f->busy.held)
		return;
	if (unsettled && !may_share(op, a, &write))
		return;
	if (lease_foreign(&m->leases, a->ino, op->session, !write))
		return;
	/* That it has a write lease may be on its way to it still: it is recalled as one. */
	own = lease_find(&m->leases, a->ino, op->session);
	if (!lease_give(&m->leases, op->session, a->ino,
			write || (unsettled && own != NULL && own->write)))
		return;
	a->flags |= unsettled && !write ? ATTR_SHARED : ATTR_LEASED;
	if (write)
		open_file_ends_unknown(f); /* it appends without asking */
}
