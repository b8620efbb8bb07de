/*
 * A file's data as a whole: asking the chains for its size, trimming and punching under an intent,
 * settling the size of files whose writers are gone.
 */
#include <stdlib.h>

#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/op.h"
#include "mds/prepared.h"
#include "mds/recall.h"

#define STRIPE_MAX   65536u
#define SETTLING_MAX 64u
#define SETTLE_TRIES 10u
#define AGAIN_MS     500u
#define DAMAGE_TRIES 3u /* until it is believed that no copy has it good */

/* ---- all chains of a stripe at once ---- */

struct job {
	struct mds *m;
	struct oss_number no; /* seq 0: the chain alone */
	uint16_t op;
	const void *req;
	bool for_ever;
	uint64_t deadline_us;
	union {
		struct oss_stat_rep stat;
		struct oss_trim_rep trim;
		struct oss_punch_rep punch;
		struct oss_sync_rep sync;
	} rep;
	int status;
};

static int job_call(struct job *j)
{
	struct oss *o = &j->m->oss;

	if (j->no.seq == 0)
		return oss_call(o, j->no.chain, j->op, j->req, &j->rep, j->deadline_us);
	return oss_call_numbered(o, &j->no, j->op, j->req, &j->rep, j->deadline_us);
}

static void job_run(void *arg)
{
	struct job *j = arg;
	uint64_t wait_ms = 50;
	uint32_t n_damaged = 0;

	for (;;) {
		j->status = job_call(j);
		/* A higher number has its slot only because it was done. (A store that was restored
		 * has it once more.) */
		if (j->no.seq != 0 && j->status == -LE_STALE_SEQ)
			j->status = 0;
		if (j->status >= 0 || !j->for_ever || j->m->stopping)
			return;
		if (j->status == -LE_CORRUPT && ++n_damaged == DAMAGE_TRIES)
			return;
		if (wait_ms >= 1000)
			log_warn("chain %u: %s fails: %s; trying on", j->no.chain,
				 msg_find(j->op)->name, status_name(j->status));
		if (mds_sleep_ms(j->m, wait_ms) < 0)
			return;
		wait_ms = wait_ms * 2 > 5000 ? 5000 : wait_ms * 2;
		j->deadline_us = loop_deadline_ms(j->m->params.oss_timeout_ms);
	}
}

/* One job per chain of the stripe. The caller frees. */
static int jobs_make(struct mds *m, const struct layout *l, struct job **ret_jobs, uint32_t *ret_n)
{
	uint32_t width = cluster_layout_width(&m->cluster, l);
	struct job *jobs;

	if (width == 0 || width > STRIPE_MAX)
		return -LE_CORRUPT_STORE;
	jobs = calloc(width, sizeof(*jobs));
	if (jobs == NULL)
		return -LE_NOMEM;
	for (uint32_t i = 0; i < width; i++)
		jobs[i] = (struct job){
			.m = m, .no.chain = cluster_layout_chain(&m->cluster, l, i)->id};
	*ret_jobs = jobs;
	*ret_n = width;
	return 0;
}

static int jobs_run(struct job *jobs, uint32_t n, uint16_t op, const void *req,
		    uint64_t deadline_us)
{
	for (uint32_t i = 0; i < n; i++) {
		jobs[i].op = op;
		jobs[i].req = req;
		jobs[i].for_ever = deadline_us == NO_DEADLINE;
		jobs[i].deadline_us = jobs[i].for_ever
					      ? loop_deadline_ms(jobs[i].m->params.oss_timeout_ms)
					      : deadline_us;
	}
	fiber_parallel("stripe", job_run, jobs, sizeof(*jobs), n, 16);
	for (uint32_t i = 0; i < n; i++)
		TRY(jobs[i].status);
	return 0;
}

struct cap data_cap(struct mds *m, struct ino ino, uint32_t gen, uint64_t session)
{
	struct cap c = {.ino = ino,
			.gen = gen,
			.rights = CAP_READ | CAP_WRITE,
			.epoch = m->cluster.epoch,
			.session = session,
			.expiry_s = env_wall_ns(m->env) / 1000000000 + m->params.cap_ttl_s};

	cap_sign(&m->cap_key, &c);
	return c;
}

static struct cap own_cap(struct mds *m, struct ino ino, uint32_t gen)
{
	return data_cap(m, ino, gen, SESSION_MDS);
}

int data_stat(struct mds *m, struct ino ino, const struct layout *l,
	      const struct ranges *prepared, uint64_t deadline_us, struct data_ends *ret_ends)
{
	uint8_t buf[RANGES_SIZE];
	struct oss_stat_req req = {
		.cap = own_cap(m, ino, l->gen),
		.ino = ino,
		.gen = l->gen,
		.chunk_size = l->chunk_size,
		.prepared = prepared != NULL ? ranges_put(prepared, buf) : bytes_of(NULL, 0),
	};
	struct data_ends e = {0};
	struct job *jobs;
	uint32_t n;
	int rc;

	if (l->width == 0) {
		*ret_ends = e;
		return 0;
	}
	TRY(jobs_make(m, l, &jobs, &n));
	rc = jobs_run(jobs, n, OP_oss_stat, &req, deadline_us);
	for (uint32_t i = 0; rc == 0 && i < n; i++) {
		const struct oss_stat_rep *r = &jobs[i].rep.stat;

		e.size = r->size > e.size ? r->size : e.size;
		e.mtime_ns = r->mtime_ns > e.mtime_ns ? r->mtime_ns : e.mtime_ns;
		e.used += r->used;
		e.n_chunks += r->n_chunks;
		e.covered += r->covered;
	}
	free(jobs);
	if (rc == 0)
		*ret_ends = e;
	return rc;
}

/* ---- intents ---- */

/* For whoever wants to know whether the data is what it was (convert.c). */
static void data_touched(struct mds *m, struct ino ino)
{
	struct open_file *f = open_file_find(&m->opens, ino);

	if (f != NULL)
		f->write_opens++;
}

/*
 * Who carries out an intent that a former incarnation had carried out in part must not do it twice,
 * over what others have written since: the object servers answer again what they know by slot and
 * number. So an intent has a slot of its own as long as it is there.
 */
static int intent_slot_take(struct mds *m, uint32_t *ret_slot)
{
	bool *first = memchr(m->intent_slots, false, sizeof(m->intent_slots));

	if (first == NULL)
		return -LE_OVERLOAD;
	*first = true;
	*ret_slot = (uint32_t)(first - m->intent_slots);
	return 0;
}

int intent_slot_hold(struct mds *m, uint32_t *slot)
{
	if (*slot >= INTENTS_MAX)
		return -LE_CORRUPT_STORE;
	if (m->intent_slots[*slot])
		return intent_slot_take(m, slot);
	m->intent_slots[*slot] = true;
	return 0;
}

int data_begin(struct op *op, struct intent_rec *rec, const struct inode_rec *inode, bool final,
	       uint64_t *ret_no)
{
	uint64_t no = op->m->intent_seq + 1;

	TRY(intent_slot_take(op->m, &rec->oss_slot));
	op->m->intent_seq = no;
	data_touched(op->m, inode->attr.ino);
	rec->ino = inode->attr.ino;
	rec->layout = inode->attr.layout;
	rec->part = !final;
	if (op->session != NULL) {
		rec->op = op->desc->op;
		rec->session = op->session->id;
		rec->slot = op->slot;
		rec->seq = op->seq;
	}
	TXN_PUT(op->store, key_of('T', no), intent_rec, rec);
	*ret_no = no;
	return 0;
}

/* The chunk that is cut through goes first: where it is lost or damaged everywhere, nothing is to
 * be cut off. */
static int trim_all(struct job *jobs, uint32_t n, const struct oss_trim_req *req)
{
	uint32_t at = (uint32_t)(req->size / req->chunk_size % n);
	struct job first = jobs[at];

	if (req->size % req->chunk_size == 0 || n == 1)
		return jobs_run(jobs, n, OP_oss_trim, req, NO_DEADLINE);
	jobs[at] = jobs[0];
	jobs[0] = first;
	TRY(jobs_run(jobs, 1, OP_oss_trim, req, NO_DEADLINE));
	return jobs_run(jobs + 1, n - 1, OP_oss_trim, req, NO_DEADLINE);
}

/* What the object servers say when they have done it. */
struct applied {
	bool again;    /* a former incarnation may have carried it out, in part */
	bool shown;    /* others may still show what it was */
	int64_t at_ns; /* by their clocks nothing of it was later */
};

/* A chain that had nothing to change shows nothing outdated. But one that is asked again may have
 * changed it the first time. */
static bool changes_shown(const struct job *j, bool trims)
{
	uint64_t n = trims ? j->rep.trim.n_chunks : j->rep.punch.n_chunks;
	bool shown = trims ? j->rep.trim.shown : j->rep.punch.shown;

	return shown && (n > 0 || j->no.again);
}

/* -LE_CORRUPT: a chunk of which a part would remain is damaged in all its copies. */
static int apply(struct mds *m, uint64_t no, const struct intent_rec *rec, struct applied *ret)
{
	const struct layout *l = &rec->layout;
	struct oss_trim_req trim = {own_cap(m, rec->ino, l->gen), rec->ino, l->gen, l->chunk_size,
				    rec->off};
	struct oss_punch_req punch = {
		own_cap(m, rec->ino, l->gen), rec->ino, l->gen, l->chunk_size, rec->off, rec->len};
	struct job *jobs;
	uint32_t n;
	int rc;

	if (l->width == 0)
		return 0;
	TRY(jobs_make(m, l, &jobs, &n));
	for (uint32_t i = 0; i < n; i++) {
		jobs[i].no.slot = rec->oss_slot;
		jobs[i].no.seq = no;
		jobs[i].no.again = ret->again;
	}
	if (rec->kind == INTENT_TRIM)
		rc = trim_all(jobs, n, &trim);
	else
		rc = jobs_run(jobs, n, OP_oss_punch, &punch, NO_DEADLINE);
	for (uint32_t i = 0; i < n; i++) {
		bool trims = rec->kind == INTENT_TRIM;
		int64_t at_ns = trims ? jobs[i].rep.trim.at_ns : jobs[i].rep.punch.at_ns;

		ret->shown |= changes_shown(&jobs[i], trims);
		ret->at_ns = at_ns > ret->at_ns ? at_ns : ret->at_ns;
	}
	ret->again = true;
	free(jobs);
	return rc;
}

static int ask_unshown(struct mds *m, struct ino ino, const struct layout *l, uint64_t deadline_us)
{
	struct oss_sync_req req = {.ino = ino};
	struct job *jobs;
	uint32_t n;
	int rc;

	TRY(jobs_make(m, l, &jobs, &n));
	rc = jobs_run(jobs, n, OP_oss_sync, &req, deadline_us);
	free(jobs);
	return rc;
}

/* Until nobody shows what the file was: all that show it, also where nobody can be asked, do for
 * CHUNK_LEASE_MS at most. */
static void await_unshown(struct mds *m, struct ino ino, const struct layout *l)
{
	uint64_t until_us = loop_deadline_ms(CHUNK_LEASE_MS);

	if (ask_unshown(m, ino, l, until_us) < 0)
		while (loop_now_us() < until_us && mds_sleep_ms(m, 10) == 0)
			;
}

struct finish {
	uint64_t intent;
	const struct intent_rec *rec;
	bool prepares, asked;   /* something is, or was prepared; the chains were asked then */
	struct ranges prepared; /* what is left */
	struct data_ends ends;
	struct applied applied;
};

/* By the only one who writes it, who knows of the cut when it is answered. */
static bool is_own(struct op *op, const struct open_file *f)
{
	const struct open *o =
		op->session != NULL ? open_find(&op->m->opens, op->session, f->ino) : NULL;

	return o != NULL && o->n_write == f->n_writers;
}

static void finish_trim(struct op *op, const struct intent_rec *in, struct inode_rec *rec)
{
	struct open_file *f = open_file_find(&op->m->opens, in->ino);

	rec->attr.size = in->off;
	rec->flags |= INODE_CUT;
	if (rec->attr.blocks > (in->off + 511) / 512)
		rec->attr.blocks = (in->off + 511) / 512;
	rec->append_end = 0;
	if (f == NULL)
		return;
	/* What closes have reported so far is void, and so is what they still report: a close may
	 * have taken its size before this and arrive after it, also one of the session that
	 * truncates. */
	f->size = f->used = 0;
	if (f->n_writers > 0)
		f->ask_chains = f->cut = true;
	if (!is_own(op, f))
		f->untracked = true;
}

static int finish_txn(struct op *op, const void *vin, void *vout)
{
	const struct finish *fi = vin;
	const struct intent_rec *in = fi->rec;
	const struct inode_rec *old;
	struct attr *ret_attr = vout;
	struct inode_rec *rec;
	struct inode *i;
	int rc = inode_get(op->store, in->ino, VIEW_NEWEST, &i, &old);

	if (rc < 0 && rc != -LE_NOENT)
		return rc;
	TRY(op_changes(op, in->ino));
	data_touched(op->m, in->ino);
	txn_delete(op->store, key_of('T', fi->intent));
	*ret_attr = (struct attr){.ino = in->ino};
	if (in->part)
		op_cuts(op, in->ino);
	if (rc == -LE_NOENT)
		return 0;
	rec = inode_edit(op->store, i);
	inode_cut(rec);
	if (rec->attr.layout.gen == in->layout.gen) {
		if (in->kind == INTENT_TRIM)
			finish_trim(op, in, rec);
		else if (in->extend > rec->attr.size)
			rec->attr.size = in->extend;
		if (fi->asked)
			prepared_take(op, rec, &fi->prepared, &fi->ends);
		else if (fi->prepares)
			prepared_change(op, rec, &fi->prepared);
	}
	inode_data_changed(op, rec);
	inode_accounts_for(rec, fi->applied.at_ns);
	attr_apply(op, rec, in->mask & ~(uint32_t)SET_SIZE, &in->attr);
	*ret_attr = rec->attr;
	return 0;
}

/* A part of what was to be punched may be. */
static int abandon_txn(struct op *op, const void *vin, void *vout)
{
	const struct finish *fi = vin;
	struct open_file *f = open_file_find(&op->m->opens, fi->rec->ino);
	const struct inode_rec *old;
	struct inode_rec *rec;
	struct inode *i;
	int rc = inode_get(op->store, fi->rec->ino, VIEW_NEWEST, &i, &old);

	(void)vout;
	if (rc < 0 && rc != -LE_NOENT)
		return rc;
	TRY(op_changes(op, fi->rec->ino));
	data_touched(op->m, fi->rec->ino);
	txn_delete(op->store, key_of('T', fi->intent));
	if (rc < 0)
		return 0;
	rec = inode_edit(op->store, i);
	if (f != NULL && fi->rec->kind == INTENT_TRIM) { /* what was there is void all the same */
		rec->append_end = 0;
		open_file_ends_unknown(f);
	}
	inode_cut(rec);
	inode_changed(op, rec);
	return 0;
}

static int look_prepared(struct op *op, const void *in, void *vout)
{
	struct finish *fi = vout;
	const struct intent_rec *it = fi->rec;
	const struct inode_rec *rec;

	(void)in;
	TRY(file_get(op, it->ino, VIEW_NEWEST, NULL, &rec));
	prepared_get(rec, &fi->prepared);
	fi->prepares = fi->prepared.n > 0 || it->prepares;
	if (it->prepares)
		prepared_add(&fi->prepared, &it->layout, it->off, it->len);
	else
		prepared_remove(&fi->prepared, it->off,
				it->kind == INTENT_TRIM ? UINT64_MAX : it->len);
	return 0;
}

/* When the chains have done it: how much of what is prepared is written now. */
static void ask_prepared(struct op *op, struct finish *fi)
{
	const struct intent_rec *rec = fi->rec;

	if (op_read(op, look_prepared, NULL, fi) < 0 || !fi->prepares)
		return;
	fi->asked = data_stat(op->m, rec->ino, &rec->layout, &fi->prepared,
			      loop_deadline_ms(op->m->params.oss_timeout_ms), &fi->ends) == 0;
}

/* A durable intent that is left is carried out by the next start, over all that has been written
 * until then: nothing that may pass is a reason to leave it. (A damaged store does not pass.) */
static bool tries_on(struct mds *m, const struct intent_rec *rec, int rc)
{
	if (rc >= 0 || rc == -LE_CORRUPT || rc == -LE_CORRUPT_STORE || m->stopping)
		return false;
	log_warn("intent on inode %llu: %s; trying on", (unsigned long long)rec->ino.v,
		 status_name(rc));
	return mds_sleep_ms(m, AGAIN_MS) == 0;
}

static int carry_out(struct op *op, struct open_file *f, uint64_t intent,
		     const struct intent_rec *rec, struct attr *ret_attr, bool *ret_shown)
{
	struct finish fi = {.intent = intent, .rec = rec, .applied.again = op->resumes};
	int rc, end;

	/* However long whoever asked is willing to wait. */
	fiber_set_deadline(NO_DEADLINE);
	do {
		rc = f->cutting ? recall_places(op, f) : 0;
	} while (tries_on(op->m, rec, rc));
	TRY(rc);
	f->trimming = f->cutting;
	do {
		rc = apply(op->m, intent, rec, &fi.applied);
	} while (tries_on(op->m, rec, rc));
	*ret_shown = fi.applied.shown;
	if (rc < 0 && rc != -LE_CORRUPT)
		return rc;
	if (rc == 0)
		ask_prepared(op, &fi);
	op->final = rc == 0 && rec->session != 0 && !rec->part;
	op->owed = true;
	do {
		end = op_mutate(op, rc == 0 ? finish_txn : abandon_txn, &fi, ret_attr);
	} while (tries_on(op->m, rec, end));
	op->owed = false;
	TRY(end);
	op->m->intent_slots[rec->oss_slot] = false;
	return rc;
}

/* Nobody else has it open, so nobody shows it. */
static bool is_alone(struct op *op, const struct open_file *f)
{
	const struct open *o =
		op->session != NULL ? open_find(&op->m->opens, op->session, f->ino) : NULL;

	return f->n_readers == (o != NULL ? o->n_read : 0) &&
	       f->n_writers == (o != NULL ? o->n_write : 0);
}

int data_carry_out(struct op *op, struct open_file *f, uint64_t intent,
		   const struct intent_rec *rec, struct attr *ret_attr)
{
	bool shown = false;
	int rc;

	f->cutting = rec->kind == INTENT_TRIM;
	rc = carry_out(op, f, intent, rec, ret_attr, &shown);
	f->cutting = f->trimming = false;
	/* Only now: a read that keeps pages from going may wait for the end of the cut. */
	if (shown && !is_alone(op, f))
		await_unshown(op->m, rec->ino, &rec->layout);
	return rc;
}

static int look_layout(struct op *op, const void *in, void *out)
{
	const struct inode_rec *rec;

	TRY(file_get(op, *(const struct ino *)in, VIEW_NEWEST, NULL, &rec));
	*(struct layout *)out = rec->attr.layout;
	return 0;
}

void data_cut_before(struct op *op, struct ino ino)
{
	struct layout l;

	fiber_set_deadline(NO_DEADLINE);
	if (op_read(op, look_layout, &ino, &l) == 0 && l.width != 0)
		await_unshown(op->m, ino, &l);
}

uint32_t data_next_gen(const struct inode_rec *rec)
{
	uint32_t gen = rec->attr.layout.gen;

	return (gen > rec->gen_used ? gen : rec->gen_used) + 1;
}

void data_drop(struct op *op, struct inode_rec *rec)
{
	struct open_file *f = open_file_find(&op->m->opens, rec->attr.ino);

	data_remove(op, &rec->attr);
	rec->attr.layout.gen = data_next_gen(rec);
	inode_cut(rec);
	prepared_change(op, rec, &(struct ranges){0});
	rec->attr.size = rec->attr.blocks = 0;
	rec->attr.chains_ns = 0;
	rec->append_end = 0;
	rec->flags &= ~(uint32_t)INODE_CUT;
	/* Nobody can write the new generation yet. */
	rec->attr.flags &= ~(uint32_t)ATTR_UNSETTLED;
	if (f != NULL)
		f->size = f->used = 0;
	open_file_counted(&op->m->opens, f);
}

/* ---- settling ---- */

struct settle {
	struct mds *m;
	struct open_file *file;
	bool owed; /* by data_settle_owed */
	uint32_t write_opens; /* of the file, when the chains were asked */
	struct layout layout;
	struct ranges prepared;
	struct data_ends ends;
};

static int settle_look(struct op *op, const void *in, void *vout)
{
	struct settle *st = vout;
	const struct inode_rec *rec;

	(void)in;
	TRY(file_get(op, st->file->ino, VIEW_NEWEST, NULL, &rec));
	if ((rec->attr.flags & ATTR_UNSETTLED) == 0)
		open_file_counted(&op->m->opens, st->file);
	if ((rec->attr.flags & ATTR_UNSETTLED) == 0 || st->file->n_writers > 0 ||
	    rec->attr.nlink == 0)
		return -LE_BUSY;
	st->layout = rec->attr.layout;
	prepared_get(rec, &st->prepared);
	st->write_opens = st->file->write_opens;
	return 0;
}

static int settle_txn(struct op *op, const void *in, void *vout)
{
	struct settle *st = vout;
	const struct open_file *f = st->file;
	const struct inode_rec *old;
	struct inode_rec *rec;
	struct inode *i;

	(void)in;
	TRY(file_get(op, f->ino, VIEW_NEWEST, &i, &old));
	if ((old->attr.flags & ATTR_UNSETTLED) == 0 || f->n_writers > 0 ||
	    old->attr.layout.gen != st->layout.gen)
		return -LE_BUSY;
	/* Opened, written and closed while the chains answered: what they said may be too old. */
	if (f->write_opens != st->write_opens)
		return -LE_AGAIN;
	TRY(op_changes(op, f->ino));
	rec = inode_edit(op->store, i);
	rec->attr.flags &= ~(uint32_t)ATTR_UNSETTLED;
	rec->flags &= ~(uint32_t)INODE_CUT;
	prepared_take(op, rec, &st->prepared, &st->ends);
	if (st->ends.size > rec->attr.size)
		rec->attr.size = st->ends.size;
	inode_places_end(rec);
	/* What was reported may have been cut off since. */
	inode_written(op, rec,
		      f->mtime_ns > st->ends.mtime_ns ? f->mtime_ns : st->ends.mtime_ns);
	open_file_counted(&op->m->opens, st->file);
	return 0;
}

/* Others need not wait for chains that are known to be away. */
static bool chains_ready(struct mds *m, const struct layout *l)
{
	uint32_t width = cluster_layout_width(&m->cluster, l);

	for (uint32_t i = 0; i < width; i++)
		if (!oss_ready(&m->oss, cluster_layout_chain(&m->cluster, l, i)->id))
			return false;
	return true;
}

static int settle_once(struct op *op, struct settle *st)
{
	struct mds *m = st->m;

	TRY(op_read(op, settle_look, NULL, st));
	if (st->owed && !chains_ready(m, &st->layout))
		return -LE_TARGET_DOWN;
	TRY(data_stat(m, st->file->ino, &st->layout, &st->prepared,
		      loop_deadline_ms(m->params.oss_timeout_ms), &st->ends));
	TRY(op_mutate(op, settle_txn, NULL, st));
	metric_add(&m->metrics.settled, 1);
	return 0;
}

static void settle(void *arg)
{
	struct settle *st = arg;
	struct mds *m = st->m;
	struct op op;
	int rc;

	op_init(&op, m);
	for (uint32_t tries = st->owed ? 1 : SETTLE_TRIES; tries > 0 && !m->stopping; tries--) {
		fmutex_lock(&st->file->busy);
		rc = settle_once(&op, st);
		fmutex_unlock(&st->file->busy);
		/* Who is left unsettled is tried again by the next that looks at it, and every
		 * second as long as bytes of a quota are reserved for it. */
		if (rc != -LE_AGAIN &&
		    (rc != -LE_TARGET_DOWN || tries == 1 || mds_sleep_ms(m, 500) < 0))
			break;
	}
	op_fini(&op);
	st->file->settling = false;
	open_file_put(&m->opens, st->file);
	m->n_settling--;
	latch_done(&m->fibers);
	free(st);
}

static void settle_start(struct mds *m, struct ino ino, bool owed)
{
	struct open_file *f = open_file_find(&m->opens, ino);
	struct settle *st;

	if (m->stopping || !m->recovery.sessions_back || m->n_settling >= SETTLING_MAX ||
	    (f != NULL && (f->n_writers > 0 || f->settling)))
		return;
	st = calloc(1, sizeof(*st));
	if (st == NULL)
		return;
	if (open_file_get(&m->opens, ino, &st->file) < 0) {
		free(st);
		return;
	}
	st->m = m;
	st->owed = owed;
	latch_add(&m->fibers, 1);
	if (fiber_spawn("settle", settle, st) < 0) {
		latch_done(&m->fibers);
		open_file_put(&m->opens, st->file);
		free(st);
		return;
	}
	st->file->settling = true;
	m->n_settling++;
}

void data_settle_start(struct mds *m, struct ino ino)
{
	settle_start(m, ino, false);
}

/* Not all at once: others are to be settled too. */
void data_settle_owed(struct mds *m)
{
	struct list tried, *n;

	list_init(&tried);
	while (m->n_settling < SETTLING_MAX / 2 && (n = list_pop(&m->opens.owed)) != NULL) {
		list_push(&tried, n);
		settle_start(m, list_entry(n, struct open_file, owed)->ino, true);
	}
	list_splice(&m->opens.owed, &tried);
}

/* ---- the last opener has gone ---- */

static int idle_txn(struct op *op, const void *vin, void *vout)
{
	const struct ino *ino = vin;
	bool *unsettled = vout;
	const struct open_file *f = open_file_find(&op->m->opens, *ino);
	const struct inode_rec *rec;
	struct inode *i;
	int rc = inode_get(op->store, *ino, VIEW_NEWEST, &i, &rec);

	*unsettled = false;
	if (rc < 0)
		return rc == -LE_NOENT ? 0 : rc;
	if (rec->attr.nlink == 0) {
		if (!inode_not_open(op, *ino))
			return 0;
		inode_remove(op, i);
		txn_delete(op->store, key_of('O', ino->v));
	} else if ((rec->attr.flags & ATTR_UNSETTLED) != 0 && (f == NULL || f->n_writers == 0)) {
		*unsettled = true;
	}
	return 0;
}

int data_idle(struct mds *m, struct ino ino)
{
	bool unsettled = false;
	struct op op;
	int rc;

	op_init(&op, m);
	rc = op_mutate(&op, idle_txn, &ino, &unsettled);
	if (op.removed)
		reclaim_kick(m);
	op_fini(&op);
	if (unsettled)
		data_settle_start(m, ino);
	return rc;
}
