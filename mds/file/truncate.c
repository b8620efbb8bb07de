/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/file/truncate.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/planted_bug.h"
#include "common/rt/loop.h"
#include "mds/attr_apply.h"
#include "mds/background.h"
#include "mds/cluster/placement.h"
#include "mds/file/chain_stat.h"
#include "mds/file/preallocated.h"
#include "mds/file/stripe.h"
#include "mds/inode_ops.h"
#include "mds/lease/lease_check.h"
#include "mds/lease/recall.h"
#include "mds/op_execute.h"

#define AGAIN_MS 500u

/* Counts a change of the data, so that a conversion detects it (replica_convert.c). */
static void data_touched(struct mds *m, struct ino ino)
{
	struct open_file *f = open_file_find(&m->opens, ino);

	if (f != NULL)
		f->write_opens++;
}

/*
 * An intent has a separate slot at the object servers as long as it exists. An object server
 * that has executed it for a previous incarnation must not execute it again, over data that
 * clients have written since: it recognizes slot and number, and repeats its reply.
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

	if (cluster_layout_lost(&op->m->cluster, &inode->attr.layout))
		return -LE_GIVEN_UP;
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

/* Trims the chain of the chunk of which a part remains before the others: if that chunk is lost
 * or damaged in all its replicas, nothing may be truncated. */
static int trim_all(struct stripe_job *jobs, uint32_t n, const struct oss_trim_req *req)
{
	uint32_t at = (uint32_t)(req->size / req->chunk_size % n);
	struct stripe_job first = jobs[at];

	if (req->size % req->chunk_size == 0 || n == 1)
		return stripe_jobs_run(jobs, n, OP_oss_trim, req, NO_DEADLINE);
	jobs[at] = jobs[0];
	jobs[0] = first;
	TRY(stripe_jobs_run(jobs, 1, OP_oss_trim, req, NO_DEADLINE));
	return stripe_jobs_run(jobs + 1, n - 1, OP_oss_trim, req, NO_DEADLINE);
}

/* From the replies of the object servers. */
struct applied {
	bool again;    /* the requests may have been sent before */
	bool shown;    /* a client may still return old data from a cache */
	int64_t at_ns; /* no change was later, by the object servers' clocks */
};

/* True if a client may have pages of the chain that are outdated now. A chain that changed
 * nothing has none, unless the request is a repetition: then the first one may have changed it. */
static bool changes_shown(const struct stripe_job *j, bool trims)
{
	uint64_t n = trims ? j->rep.trim.n_chunks : j->rep.punch.n_chunks;
	bool shown = trims ? j->rep.trim.shown : j->rep.punch.shown;

	return shown && (n > 0 || j->no.again);
}

/* Returns -LE_CORRUPT if a chunk of which a part would remain is damaged in all its replicas. */
static int apply(struct mds *m, uint64_t no, const struct intent_rec *rec, struct applied *ret)
{
	const struct layout *l = &rec->layout;
	struct oss_trim_req trim = {data_own_cap(m, rec->ino, l->gen), rec->ino, l->gen,
				    l->chunk_size, rec->off};
	struct oss_punch_req punch = {data_own_cap(m, rec->ino, l->gen),
				      rec->ino,
				      l->gen,
				      l->chunk_size,
				      rec->off,
				      rec->len};
	struct stripe_job *jobs;
	uint32_t n;
	int rc;

	if (l->width == 0)
		return 0;
	TRY(stripe_jobs_make(m, l, &jobs, &n));
	for (uint32_t i = 0; i < n; i++) {
		jobs[i].no.slot = rec->oss_slot;
		jobs[i].no.seq = no;
		jobs[i].no.again = ret->again;
	}
	if (rec->kind == INTENT_TRIM)
		rc = trim_all(jobs, n, &trim);
	else
		rc = stripe_jobs_run(jobs, n, OP_oss_punch, &punch, NO_DEADLINE);
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
	struct stripe_job *jobs;
	uint32_t n;
	int rc;

	TRY(stripe_jobs_make(m, l, &jobs, &n));
	rc = stripe_jobs_run(jobs, n, OP_oss_sync, &req, deadline_us);
	free(jobs);
	return rc;
}

/* Waits until no client can return old pages: until all chains answer that no chunk lease is
 * left or, if a chain cannot be reached, for CHUNK_LEASE_MS, when all have expired. */
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
	bool prepares, asked;   /* the file has, or gets, preallocated ranges; the chains were
	                         * queried for them */
	struct ranges preallocated; /* after the intent */
	struct data_ends ends;
	struct applied applied;
};

/* True if the session of the request is the only writer: its client learns of the truncation
 * from the reply. */
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
	rec->flags |= INODE_TRUNCATING;
	if (rec->attr.blocks > (in->off + 511) / 512)
		rec->attr.blocks = (in->off + 511) / 512;
	rec->append_end = 0;
	if (f == NULL)
		return;
	/* Sizes that closes have reported are void, and so are those of closes that arrive
	 * later: a client, even the one of this request, may have taken the size before the
	 * truncation. */
	f->size = f->used = 0;
	if (f->n_writers > 0 && !PLANTED_BUG(MDS_TRUST_SIZES))
		size_is_truncated(f, is_own(op, f));
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
		op_truncates(op, in->ino);
	if (rc == -LE_NOENT)
		return 0;
	rec = inode_edit(op->store, i);
	inode_was_truncated(rec);
	if (rec->attr.layout.gen == in->layout.gen) {
		if (in->kind == INTENT_TRIM)
			finish_trim(op, in, rec);
		else if (in->extend > rec->attr.size)
			rec->attr.size = in->extend;
		if (fi->asked)
			preallocated_take(op, rec, &fi->preallocated, &fi->ends);
		else if (fi->prepares)
			preallocated_change(op, rec, &fi->preallocated);
	}
	inode_data_changed(op, rec);
	inode_accounts_for(rec, fi->applied.at_ns);
	attr_apply(op, rec, in->mask & ~(uint32_t)SET_SIZE, &in->attr);
	*ret_attr = rec->attr;
	return 0;
}

/* Ends an intent that failed with -LE_CORRUPT. Of a punch a part may have been executed. */
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
	if (f != NULL && fi->rec->kind == INTENT_TRIM) { /* reservations were recalled already */
		rec->append_end = 0;
		f->append_end = APPEND_END_UNKNOWN;
	}
	inode_was_truncated(rec);
	inode_changed(op, rec);
	return 0;
}

static int read_preallocated(struct op *op, const void *in, void *vout)
{
	struct finish *fi = vout;
	const struct intent_rec *it = fi->rec;
	const struct inode_rec *rec;

	(void)in;
	TRY(file_get(op, it->ino, VIEW_NEWEST, NULL, &rec));
	preallocated_get(rec, &fi->preallocated);
	fi->prepares = fi->preallocated.n > 0 || it->prepares;
	if (it->prepares)
		preallocated_add(&fi->preallocated, &it->layout, it->off, it->len);
	else
		preallocated_remove(&fi->preallocated, it->off,
				it->kind == INTENT_TRIM ? UINT64_MAX : it->len);
	return 0;
}

/* After the chains have executed the intent: queries how much of the preallocated ranges they
 * store. */
static void query_preallocated(struct op *op, struct finish *fi)
{
	const struct intent_rec *rec = fi->rec;

	if (op_read(op, read_preallocated, NULL, fi) < 0 || !fi->prepares)
		return;
	fi->asked = data_stat(op->m, rec->ino, &rec->layout, &fi->preallocated,
			      loop_deadline_ms(op->m->params.oss_timeout_ms), &fi->ends) == 0;
}

/* True if a step that failed with rc is to be repeated now, after a pause. The next start would
 * execute an intent that is left over all data written until then, so no temporary error ends
 * the attempts. (A damaged store is not temporary.) */
static bool tries_on(struct mds *m, const struct intent_rec *rec, int rc)
{
	if (rc >= 0 || rc == -LE_CORRUPT || rc == -LE_CORRUPT_STORE || m->stopping)
		return false;
	log_warn("inode %llu: truncating or punching failed: %s; retrying",
		 (unsigned long long)rec->ino.v, status_name(rc));
	return mds_sleep_ms(m, AGAIN_MS) == 0;
}

static int look_change(struct op *op, const void *in, void *out)
{
	const struct inode_rec *rec;
	int rc = inode_get(op->store, *(const struct ino *)in, VIEW_NEWEST, NULL, &rec);

	if (rc == 0)
		*(uint64_t *)out = rec->attr.change;
	return rc == -LE_NOENT ? 0 : rc;
}

/* Recalls LEASE_APPEND from all sessions, that of the request included. Called while appends get no
 * reservation (open_file.truncation). Returns 0 when no client writes, now or later, to an older
 * one. */
static int recall_appends(struct op *op, const struct open_file *f)
{
	uint64_t change = UINT64_MAX;
	int rc;

	ASSERT(f->busy.held && f->truncation != TRUNCATION_NONE);
	TRY(op_read(op, look_change, &f->ino, &change));
	op->recall[0] = f->ino;
	op->n_recall = 1;
	op->recall_modes = LEASE_APPEND;
	op->recall_own = true;
	op->recall_change = change;
	rc = op_recall(op);
	op_unblock(op);
	op->recall_change = 0;
	return rc;
}

static int carry_out(struct op *op, struct open_file *f, uint64_t intent,
		     const struct intent_rec *rec, struct attr *ret_attr, bool *ret_shown)
{
	struct finish fi = {.intent = intent, .rec = rec, .applied.again = op->resumes};
	int rc, end;

	/* The intent is durable: the deadline of the request does not apply. */
	fiber_set_deadline(NO_DEADLINE);
	do {
		rc = f->truncation != TRUNCATION_NONE ? recall_appends(op, f) : 0;
	} while (tries_on(op->m, rec, rc));
	TRY(rc);
	if (f->truncation != TRUNCATION_NONE)
		f->truncation = TRUNCATION_TRIMS;
	do {
		rc = apply(op->m, intent, rec, &fi.applied);
	} while (tries_on(op->m, rec, rc));
	*ret_shown = fi.applied.shown;
	if (rc < 0 && rc != -LE_CORRUPT)
		return rc;
	if (rc == 0)
		query_preallocated(op, &fi);
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

/* True if no other session has the file open: no other client has pages of it. */
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

	if (rec->kind == INTENT_TRIM && f->truncation == TRUNCATION_NONE)
		f->truncation = TRUNCATION_BEGUN;
	rc = carry_out(op, f, intent, rec, ret_attr, &shown);
	f->truncation = TRUNCATION_NONE;
	/* Only now: a read that holds pages at its client may itself wait for the end of the
	 * truncation. */
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

void data_truncated_before(struct op *op, struct ino ino)
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

/* Chooses a layout without lost chains, if there is one. */
static void place_anew(struct op *op, struct inode_rec *rec)
{
	struct layout l;

	if (placement_choose(&op->m->cluster, &op->m->params, &rec->attr.layout, rec->attr.ino,
			     &l) == 0) {
		l.flags = rec->attr.layout.flags;
		rec->attr.layout = l;
	}
}

void data_drop(struct op *op, struct inode_rec *rec)
{
	struct open_file *f = open_file_find(&op->m->opens, rec->attr.ino);

	uint32_t gen = data_next_gen(rec);

	data_remove(op, &rec->attr);
	if (cluster_layout_lost(&op->m->cluster, &rec->attr.layout))
		place_anew(op, rec);
	rec->attr.layout.gen = gen;
	inode_was_truncated(rec);
	preallocated_change(op, rec, &(struct ranges){0});
	rec->attr.size = rec->attr.blocks = 0;
	rec->attr.chains_ns = 0;
	rec->append_end = 0;
	rec->flags &= ~(uint32_t)INODE_TRUNCATING;
	/* No session has a capability for the new generation yet. */
	rec->attr.flags &= ~(uint32_t)ATTR_UNSETTLED;
	if (f != NULL) {
		f->size = f->used = 0;
		size_is_settled(f);
	}
	open_file_counted(&op->m->opens, f);
}
