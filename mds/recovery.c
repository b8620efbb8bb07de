/* SPDX-License-Identifier: Apache-2.0 */
/* Intents and orphans after a start; see recovery.h. */
#include "mds/recovery.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "mds/background.h"
#include "mds/file/idle.h"
#include "mds/file/truncate.h"
#include "mds/op.h"

/* ---- intents ---- */

struct intent {
	struct mds *m;
	uint64_t no;
	struct intent_rec rec;
	struct open_file *file;
	struct session *session; /* gets the result as a reply; NULL: none */
};

static void intent_session(struct mds *m, struct intent *in)
{
	struct session *se = session_find(&m->sessions, in->rec.session);
	struct replay_slot *row;

	if (se == NULL || in->rec.slot >= se->n_slots)
		return;
	row = &se->slots[in->rec.slot];
	if (in->rec.seq <= row->seqs.last || row->seqs.running != 0 || msg_find(in->rec.op) == NULL)
		return;
	replay_seq_begin(&row->seqs, in->rec.seq); /* a repeated request waits for this fiber */
	session_ref(se);
	in->session = se;
}

/* Marks the truncation as one that the previous incarnation may have begun. */
static void may_have_begun(struct intent *in)
{
	if (in->rec.kind == INTENT_TRIM)
		in->file->truncation = TRUNCATION_TRIMS;
}

static void intent_run(void *arg)
{
	struct intent *in = arg;
	struct mds *m = in->m;
	struct attr attr;
	struct op op;
	int rc;

	/* Counted before it waits, so that two intents on one file do not hold up the start.
	 * Requests wait for the lock after all intents. */
	m->recovery.n_starting--;
	fmutex_lock(&in->file->busy);
	may_have_begun(in);
	op_init(&op, m);
	op.resumes = true;
	if (in->session != NULL) {
		op.session = in->session;
		op.slot = in->rec.slot;
		op.seq = in->rec.seq;
		op.desc = msg_find(in->rec.op);
	}
	rc = in->rec.kind == INTENT_CONVERT
		     ? convert_forget(&op, in->no, &in->rec)
		     : data_carry_out(&op, in->file, in->no, &in->rec, &attr);
	if (rc < 0 && !m->stopping)
		log_error("recovery: executing the intent on inode %llu failed: %s",
			  (unsigned long long)in->rec.ino.v, status_text(rc));
	if (in->session != NULL) {
		replay_end(&in->session->slots[in->rec.slot], in->rec.op, rc, rc >= 0 && op.kept);
		session_unref(in->session);
	}
	op_fini(&op);
	fmutex_unlock(&in->file->busy);
	open_file_put(&m->opens, in->file);
	m->recovery.n_intents--;
	latch_done(&m->fibers);
	free(in);
}

/* Takes back what intent_start has taken for an intent that no fiber will execute. The intent stays
 * in the store. */
static void intent_drop(struct intent *in)
{
	struct mds *m = in->m;

	if (in->session != NULL) {
		replay_end(&in->session->slots[in->rec.slot], in->rec.op, 0, false);
		session_unref(in->session);
	}
	if (in->file != NULL)
		open_file_put(&m->opens, in->file);
	if (in->rec.kind != INTENT_CONVERT)
		m->intent_slots[in->rec.oss_slot] = false;
	free(in);
}

static int intent_start(struct mds *m, uint64_t no, const struct intent_rec *rec)
{
	struct intent *in = calloc(1, sizeof(*in));
	int rc;

	if (in == NULL)
		return -LE_NOMEM;
	in->m = m;
	in->no = no;
	in->rec = *rec;
	rc = rec->kind == INTENT_CONVERT ? 0 : intent_slot_hold(m, &in->rec.oss_slot);
	if (rc < 0) {
		free(in);
		return rc;
	}
	rc = open_file_get(&m->opens, rec->ino, &in->file);
	if (rc < 0) {
		intent_drop(in);
		return rc;
	}
	intent_session(m, in);
	rc = fiber_spawn("intent", intent_run, in);
	if (rc < 0) {
		intent_drop(in);
		return rc;
	}
	may_have_begun(in);
	latch_add(&m->fibers, 1);
	m->recovery.n_intents++;
	m->recovery.n_starting++;
	return 0;
}

struct scan {
	struct mds *m;
	struct {
		uint64_t no;
		struct intent_rec rec;
	} * intents;
	uint32_t n, cap;
	int status;
};

static int each_intent(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct scan *sc = arg;
	struct wire_r r;

	sc->status = -LE_CORRUPT_STORE;
	if (key_len != 9)
		return 1;
	if (sc->n == sc->cap) {
		uint32_t cap = sc->cap == 0 ? 16 : sc->cap * 2;
		void *p = realloc(sc->intents, cap * sizeof(*sc->intents));

		if (p == NULL) {
			sc->status = -LE_NOMEM;
			return 1;
		}
		sc->intents = p;
		sc->cap = cap;
	}
	sc->intents[sc->n].no = get_be((const uint8_t *)key + 1, 8);
	wire_r_init(&r, value, len);
	wire_get_intent_rec(&r, &sc->intents[sc->n].rec);
	if (r.status < 0)
		return 1;
	sc->n++;
	sc->status = 0;
	return 0;
}

int recovery_orphan(struct mds *m, struct ino ino)
{
	struct recovery *rv = &m->recovery;

	if (rv->n_orphans == rv->cap_orphans) {
		uint32_t cap = rv->cap_orphans == 0 ? 64 : rv->cap_orphans * 2;
		uint64_t *p = realloc(rv->orphans, cap * sizeof(*p));

		if (p == NULL)
			return -LE_NOMEM;
		rv->orphans = p;
		rv->cap_orphans = cap;
	}
	rv->orphans[rv->n_orphans++] = ino.v;
	return 0;
}

static int each_orphan(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct scan *sc = arg;

	(void)value, (void)len;
	sc->status = -LE_CORRUPT_STORE;
	if (key_len != 9)
		return 1;
	sc->status = recovery_orphan(sc->m, (struct ino){get_be((const uint8_t *)key + 1, 8)});
	return sc->status < 0;
}

static int scan(struct scan *sc, char kind,
		int (*each)(void *arg, const void *key, size_t key_len, const void *value,
			    size_t len))
{
	const uint8_t begin = (uint8_t)kind, end = (uint8_t)(kind + 1);
	struct kv_range range = {&begin, 1, &end, 1, UINT32_MAX};
	bool more;

	TRY(kv_scan(sc->m->store.kv, NULL, &range, each, sc, &more));
	return sc->status;
}

/* ---- orphans ---- */

static void remove_orphans(struct mds *m)
{
	struct recovery *rv = &m->recovery;

	while (rv->n_orphans > 0 && !m->stopping) {
		struct ino ino = {rv->orphans[rv->n_orphans - 1]};
		int rc = data_idle(m, ino); /* leaves it to the last close if it is open */

		if (rc < 0) {
			if (!m->stopping)
				log_error("recovery: orphan inode %llu was not removed: %s",
					  (unsigned long long)ino.v, status_text(rc));
			if (rc == -LE_IO)
				return;
		}
		rv->n_orphans--;
	}
}

void recovery_session(struct mds *m)
{
	if (m->recovery.sessions_back || m->sessions.n_from_store > 0)
		return;
	m->recovery.sessions_back = true;
	metric_set(&m->metrics.recovering, 0);
	log_info("recovery: every session has returned or expired; %u orphans",
		 m->recovery.n_orphans);
	if (mds_spawn(m, "orphans", remove_orphans) < 0)
		log_warn("recovery: no memory to remove orphans: they take space until the next "
			 "start");
}

int recovery_start(struct mds *m)
{
	struct scan sc = {.m = m};
	int rc = scan(&sc, 'O', each_orphan);

	if (rc == 0)
		rc = scan(&sc, 'T', each_intent);
	for (uint32_t i = 0; rc == 0 && i < sc.n; i++)
		rc = intent_start(m, sc.intents[i].no, &sc.intents[i].rec);
	free(sc.intents);
	TRY(rc);
	while (m->recovery.n_starting > 0)
		fiber_yield();
	metric_set(&m->metrics.recovering, 1);
	if (m->sessions.n_from_store > 0)
		log_info("recovery: waiting for %u sessions; %u orphans, %u intents",
			 m->sessions.n_from_store, m->recovery.n_orphans, m->recovery.n_intents);
	recovery_session(m);
	return 0;
}

void recovery_fini(struct mds *m)
{
	free(m->recovery.orphans);
}
