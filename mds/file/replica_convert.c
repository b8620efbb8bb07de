/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One fiber for each tree walks it until a walk finds nothing left to do. For the files of a
 * directory it starts up to convert_parallel fibers. See replica_convert.h.
 *
 * The steps for a file; no lock is held while data moves:
 *
 *   begin     under file->busy, so that no truncation is in progress: writes the intent, with the
 *             new layout, durably
 *   copy      sends oss_copy to each chain of the old layout, for one chunk after the other
 *   exchange  under file->busy: sets the new layout; -LE_AGAIN if the file was opened for writing
 *             or truncated since begin
 *   forget    if copy or exchange fails: ends the intent and queues the copy for removal
 */
#include "mds/file/replica_convert.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/background.h"
#include "mds/cluster/chain_table.h"
#include "mds/cluster/placement.h"
#include "mds/file/chunk_copy.h"
#include "mds/file/settle.h"
#include "mds/file/space_reclaim.h"
#include "mds/file/truncate.h"
#include "mds/inode_ops.h"
#include "mds/lease/lease_check.h"
#include "mds/op_execute.h"
#include "mds/store/scan.h"

#define JOBS_MAX      64u
#define BATCH         64u
#define DEPTH_MAX     4096u
#define CHAINS_WIDTH  4u
#define COPY_TRIES    20u
#define COPY_PAUSE_MS 200u
#define OPEN_WAIT_MS  2000u /* for sessions that have the file open when its copy is complete */
#define OPEN_PAUSE_MS 50u
#define PAUSE_MIN_MS  500u
#define PAUSE_MAX_MS  15000u

/* A directory that is being walked: entries from cookie on are left. */
struct frame {
	struct ino dir;
	uint64_t cookie;
};

struct convert_job {
	struct list link;
	struct mds *m;
	struct ino root;
	uint32_t replicas;
	bool stop;
	bool overtaken;            /* by the request in progress, for a tree around this */
	uint64_t n_asks, n_walked; /* requests for it so far; before the walk */
	/* Of the present walk: */
	uint64_t n_seen, n_waiting, n_failed, n_done;
	/* In total: */
	uint64_t n_walks, n_converted, bytes;
	uint64_t last_waiting, last_failed; /* of the last walk */
	int error;                          /* the last one */
	struct frame *frames;
	uint32_t n_frames;
};

/* One file. */
struct convert {
	struct convert_job *job;
	struct ino ino;
	struct open_file *file;
	struct layout from, to;
	uint64_t intent; /* 0: there is nothing to copy */
	uint32_t write_opens;
	uint32_t n_given_up; /* of the cluster, when it was begun */
	uint64_t bytes;
	bool lingers; /* a write of a failed oss_copy may be in flight */
	bool unsettled;
	int status;
};

static bool is_over(const struct convert_job *j)
{
	return j->stop || j->m->stopping;
}

/* ---- one file: begin, exchange, forget ---- */

static void choose_layout(struct op *op, const struct convert *cv, const struct inode_rec *rec,
			  struct layout *ret_l, int *ret_rc)
{
	struct layout want = rec->attr.layout;

	want.replicas = (uint8_t)cv->job->replicas;
	*ret_rc = placement_choose(&op->m->cluster, &op->m->params, &want, cv->ino, ret_l);
	ret_l->gen = data_next_gen(rec);
}

static bool has_rested(struct op *op, const struct inode_rec *rec)
{
	int64_t ns = op->m->params.convert_after_ms * (int64_t)1000000;
	int64_t now = op_now(op);

	/* If a clock was set back the file must not wait for ever. */
	return rec->attr.ctime_ns > now || now - rec->attr.ctime_ns >= ns;
}

/* Returns -LE_EXIST if there is nothing to convert, -LE_BUSY if the file cannot be converted
 * now. */
static int begin_txn(struct op *op, const void *in, void *vout)
{
	struct convert *cv = vout;
	struct intent_rec intent = {.kind = INTENT_CONVERT, .ino = cv->ino};
	const struct inode_rec *old;
	struct inode_rec *rec;
	struct inode *i;
	int rc;

	(void)in;
	TRY(file_get(op, cv->ino, VIEW_NEWEST, &i, &old));
	if (!S_ISREG(old->attr.mode) || old->attr.nlink == 0 ||
	    old->attr.layout.replicas == cv->job->replicas)
		return -LE_EXIST;
	if (!inode_not_open(op, cv->ino))
		return -LE_BUSY;
	cv->unsettled = (old->attr.flags & ATTR_UNSETTLED) != 0;
	if (cv->unsettled || !has_rested(op, old))
		return -LE_BUSY;
	choose_layout(op, cv, old, &cv->to, &rc);
	TRY(rc);
	cv->from = old->attr.layout;
	TRY(op_changes(op, cv->ino));
	cv->write_opens = cv->file->write_opens;
	cv->n_given_up = op->m->cluster.n_given_up;
	rec = inode_edit(op->store, i);
	if (inode_has_no_data(old)) {
		rec->attr.layout = cv->to;
		return 0;
	}
	rec->gen_used = cv->to.gen;
	cv->intent = ++op->m->intent_seq;
	intent.layout = cv->to;
	TXN_PUT(op->store, key_of('T', cv->intent), intent_rec, &intent);
	return 0;
}

static int exchange_txn(struct op *op, const void *vin, void *vout)
{
	const struct convert *cv = vin;
	const struct inode_rec *old;
	struct inode_rec *rec;
	struct inode *i;

	(void)vout;
	TRY(file_get(op, cv->ino, VIEW_NEWEST, &i, &old));
	if (old->attr.nlink == 0 || old->attr.layout.gen != cv->from.gen ||
	    (old->attr.flags & ATTR_UNSETTLED) != 0 || cv->file->write_opens != cv->write_opens)
		return -LE_AGAIN;
	/* A part of the copy may have been lost with a target that was given up. */
	if (cv->n_given_up != op->m->cluster.n_given_up)
		return -LE_AGAIN;
	if (!inode_not_open(op, cv->ino))
		return -LE_BUSY;
	TRY(op_changes(op, cv->ino));
	rec = inode_edit(op->store, i);
	data_remove(op, &rec->attr);
	rec->attr.layout = cv->to;
	/* An evicted client may still read the old generation and find holes where its chunks
	 * were removed. The counter makes it detect that. */
	inode_was_truncated(rec);
	txn_delete(op->store, key_of('T', cv->intent));
	return 0;
}

struct forget {
	uint64_t no;
	const struct intent_rec *rec;
};

static int forget_txn(struct op *op, const void *vin, void *vout)
{
	const struct forget *f = vin;
	struct attr gone = {.ino = f->rec->ino, .layout = f->rec->layout};

	(void)vout;
	data_remove(op, &gone);
	txn_delete(op->store, key_of('T', f->no));
	return 0;
}

int convert_forget(struct op *op, uint64_t no, const struct intent_rec *rec)
{
	struct forget f = {no, rec};
	int rc;

	op->final = false;
	rc = op_mutate(op, forget_txn, &f, NULL);
	if (rc == 0)
		space_reclaim_kick(op->m);
	return rc;
}

/* ---- one file: copying ---- */

struct chain_copy {
	struct convert *cv;
	uint32_t at; /* position in the old stripe */
	uint64_t bytes;
	int status;
};

static int copy_once(struct chain_copy *cc, uint64_t idx, struct oss_copy_rep *rep)
{
	const struct convert *cv = cc->cv;
	struct chunk_copy one = {.ino = cv->ino,
				 .to_ino = cv->ino,
				 .from = &cv->from,
				 .to = &cv->to,
				 .at = cc->at,
				 .idx = idx,
				 .to_idx = idx};

	return chunk_copy(cv->job->m, &one, rep);
}

/* Tries COPY_TRIES times, because object servers may restart and chains may change. */
static int copy_chunk(struct chain_copy *cc, uint64_t idx, struct oss_copy_rep *rep)
{
	struct convert *cv = cc->cv;
	int rc = -LE_CANCELED;

	for (uint32_t i = 0; i < COPY_TRIES && !is_over(cv->job); i++) {
		if (cv->file->write_opens != cv->write_opens)
			return -LE_AGAIN;
		rc = copy_once(cc, idx, rep);
		if (rc != -LE_BUSY && (rc >= 0 || status_retry(rc) == RETRY_NEVER))
			return rc;
		cv->lingers |= rc != -LE_TARGET_DOWN;
		log_debug("inode %llu: copying chunk %lld: %s", (unsigned long long)cv->ino.v,
			  (long long)idx, status_name(rc));
		if (mds_sleep_ms(cv->job->m, COPY_PAUSE_MS) < 0)
			break;
	}
	return rc;
}

static void copy_chain(void *arg)
{
	struct chain_copy *cc = arg;
	struct oss_copy_rep rep = {.next = COPY_NONE};
	uint64_t idx = COPY_NONE;

	do {
		cc->status = copy_chunk(cc, idx, &rep);
		if (cc->status < 0)
			return;
		if (idx != COPY_NONE && rep.next != COPY_NONE && rep.next <= idx) {
			cc->status = -LE_BAD_MESSAGE;
			return;
		}
		cc->bytes += rep.bytes;
		idx = rep.next;
	} while (idx != COPY_NONE);
}

static int copy_data(struct convert *cv)
{
	uint32_t width = cluster_layout_width(&cv->job->m->cluster, &cv->from);
	struct chain_copy *cc;
	int rc = 0;

	if (width == 0)
		return -LE_CORRUPT_STORE;
	cc = calloc(width, sizeof(*cc));
	if (cc == NULL)
		return -LE_NOMEM;
	for (uint32_t i = 0; i < width; i++)
		cc[i] = (struct chain_copy){.cv = cv, .at = i};
	fiber_parallel("convert-chain", copy_chain, cc, sizeof(*cc), width, CHAINS_WIDTH);
	for (uint32_t i = 0; i < width; i++) {
		cv->bytes += cc[i].bytes;
		rc = rc < 0 ? rc : cc[i].status;
	}
	free(cc);
	return rc;
}

/* Waits up to OPEN_WAIT_MS for sessions that have the file open to close it. */
static int exchange(struct convert *cv, struct op *op)
{
	uint64_t until = loop_deadline_ms(OPEN_WAIT_MS);
	int rc;

	for (;;) {
		fmutex_lock(&cv->file->busy);
		rc = op_mutate(op, exchange_txn, cv, NULL);
		fmutex_unlock(&cv->file->busy);
		if (rc != -LE_BUSY || loop_now_us() > until || is_over(cv->job))
			return rc;
		TRY(mds_sleep_ms(cv->job->m, OPEN_PAUSE_MS));
	}
}

static int convert_with(struct convert *cv, struct op *op)
{
	struct intent_rec intent = {.ino = cv->ino};
	int rc;

	fmutex_lock(&cv->file->busy);
	rc = op_mutate(op, begin_txn, NULL, cv);
	fmutex_unlock(&cv->file->busy);
	if (cv->unsettled)
		data_settle_start(op->m, cv->ino);
	if (rc < 0 || cv->intent == 0)
		return rc;
	rc = copy_data(cv);
	if (rc == 0 && cv->lingers)
		rc = mds_sleep_ms(op->m, COPY_LINGER_MS);
	if (rc == 0)
		rc = exchange(cv, op);
	if (rc == 0) {
		space_reclaim_kick(op->m);
		return 0;
	}
	/* If the server is stopping, the next start discards the copy. */
	intent.layout = cv->to;
	if (!op->m->stopping && convert_forget(op, cv->intent, &intent) < 0)
		log_warn("inode %llu: an unfinished copy takes space until the next start",
			 (unsigned long long)cv->ino.v);
	return rc;
}

static void convert_file(void *arg)
{
	struct convert *cv = arg;
	struct mds *m = cv->job->m;
	struct op op;

	if (is_over(cv->job)) {
		cv->status = -LE_CANCELED;
		return;
	}
	cv->status = open_file_get(&m->opens, cv->ino, &cv->file);
	if (cv->status < 0)
		return;
	if (cv->file->converting) {
		cv->status = -LE_BUSY;
	} else {
		cv->file->converting = true;
		op_init(&op, m);
		cv->status = convert_with(cv, &op);
		op_fini(&op);
		cv->file->converting = false;
	}
	open_file_put(&m->opens, cv->file);
}

/* ---- a tree ---- */

static void count_file(struct convert_job *j, const struct convert *cv)
{
	int rc = cv->status;

	j->n_seen++;
	if (rc == 0) {
		j->n_done++;
		j->n_converted++;
		j->bytes += cv->bytes;
		return;
	}
	if (rc == -LE_EXIST || rc == -LE_STALE)
		return;
	if (rc == -LE_BUSY || rc == -LE_AGAIN || rc == -LE_CANCELED ||
	    status_retry(rc) != RETRY_NEVER) {
		j->n_waiting++;
		return;
	}
	if (j->error != rc)
		log_warn("inode %llu: converting the file failed: %s; retrying",
			 (unsigned long long)cv->ino.v, status_text(rc));
	j->n_failed++;
	j->error = rc;
}

static void convert_files(struct convert_job *j, struct convert *v, uint32_t n)
{
	fiber_parallel("convert", convert_file, v, sizeof(*v), n, j->m->params.convert_parallel);
	for (uint32_t i = 0; i < n; i++)
		count_file(j, &v[i]);
}

struct listing {
	struct convert_job *job;
	struct convert files[BATCH];
	uint32_t n;
	struct ino subdir; /* the first one, where the list ends; 0: none */
	uint64_t next;     /* cookie after the last entry that was read */
	bool full;
	int status;
};

static int each_entry(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct listing *l = arg;
	struct dentry_rec rec;
	struct wire_r r;

	wire_r_init(&r, value, len);
	wire_get_dentry_rec(&r, &rec);
	if (key_len != 17 || r.status < 0) {
		l->status = -LE_CORRUPT_STORE;
		return 1;
	}
	l->next = get_be((const uint8_t *)key + 9, 8) + 1;
	if (rec.ino.v == 0)
		return 0;
	if (rec.type == S_IFDIR >> 12)
		l->subdir = rec.ino;
	else if (rec.type == S_IFREG >> 12)
		l->files[l->n++] = (struct convert){.job = l->job, .ino = rec.ino};
	l->full = l->subdir.v != 0 || l->n == BATCH;
	return l->full;
}

/* Sets the number of replicas that new files in the directory get. */
static int dir_txn(struct op *op, const void *vin, void *vout)
{
	const struct convert_job *j = vin;
	struct ino *ino = vout;
	const struct inode_rec *old;
	struct inode_rec *rec;
	struct inode *i;

	TRY(file_get(op, *ino, VIEW_NEWEST, &i, &old));
	if (is_over(j) || !S_ISDIR(old->attr.mode) || old->attr.layout.replicas == j->replicas)
		return 0;
	TRY(op_changes(op, *ino));
	rec = inode_edit(op->store, i);
	rec->attr.layout.replicas = (uint8_t)j->replicas;
	inode_changed(op, rec);
	return 0;
}

static int enter(struct convert_job *j, struct ino dir)
{
	struct frame *v;
	struct op op;
	int rc;

	if (j->n_frames == DEPTH_MAX)
		return -LE_TOO_BIG;
	op_init(&op, j->m);
	rc = op_mutate(&op, dir_txn, j, &dir);
	op_fini(&op);
	if (rc == -LE_STALE)
		return 0;
	TRY(rc);
	v = realloc(j->frames, (j->n_frames + 1) * sizeof(*v));
	if (v == NULL)
		return -LE_NOMEM;
	j->frames = v;
	v[j->n_frames++] = (struct frame){dir, 0};
	return 0;
}

/* Converts up to BATCH files of the innermost directory, or enters its next subdirectory. */
static int walk_step(struct convert_job *j)
{
	struct frame *f = &j->frames[j->n_frames - 1];
	struct key begin = key_dentry(f->dir, f->cookie), end = key_after(key_of('D', f->dir.v));
	struct listing *l = calloc(1, sizeof(*l));
	int rc;

	if (l == NULL)
		return -LE_NOMEM;
	l->job = j;
	l->next = f->cookie;
	rc = store_scan(&j->m->store, &begin, &end, each_entry, l);
	if (rc == 0)
		rc = l->status;
	if (rc == 0) {
		f->cookie = l->next;
		if (!l->full)
			j->n_frames--;
		convert_files(j, l->files, l->n);
		if (l->subdir.v != 0)
			rc = enter(j, l->subdir);
	}
	free(l);
	return rc;
}

static int root_txn(struct op *op, const void *in, void *vout)
{
	const struct convert_job *j = in;
	const struct inode_rec *rec;
	bool *ret_dir = vout;

	TRY(file_get(op, j->root, VIEW_NEWEST, NULL, &rec));
	*ret_dir = S_ISDIR(rec->attr.mode);
	return rec->attr.nlink == 0 ? -LE_STALE : 0;
}

static int walk(struct convert_job *j)
{
	bool dir = false;
	struct op op;
	int rc;

	op_init(&op, j->m);
	rc = op_read(&op, root_txn, j, &dir);
	op_fini(&op);
	TRY(rc);
	j->n_seen = j->n_waiting = j->n_failed = j->n_done = j->n_frames = 0;
	if (!dir) {
		struct convert one = {.job = j, .ino = j->root};

		convert_files(j, &one, 1);
		return 0;
	}
	rc = enter(j, j->root);
	while (rc == 0 && j->n_frames > 0 && !is_over(j))
		rc = walk_step(j);
	return rc;
}

/* ---- nested trees ---- */

struct above {
	struct ino ino, parent;
};

static int parent_txn(struct op *op, const void *in, void *vout)
{
	struct above *a = vout;
	const struct inode_rec *rec;

	(void)in;
	TRY(file_get(op, a->ino, VIEW_NEWEST, NULL, &rec));
	a->parent = S_ISDIR(rec->attr.mode) ? rec->parent : (struct ino){0};
	return 0;
}

/* True if ino is `dir` or a directory below it. False for a file: its record does not name a
 * parent. */
static bool is_below(struct op *op, struct ino ino, struct ino dir)
{
	for (uint32_t depth = 0; depth < DEPTH_MAX && ino.v != 0; depth++) {
		struct above a = {.ino = ino};

		if (ino_equal(ino, dir))
			return true;
		if (ino_equal(ino, LEAT_ROOT_INO) || op_read(op, parent_txn, NULL, &a) < 0)
			return false;
		ino = a.parent;
	}
	return false;
}

/* True if the tree is, since a rename, a part of one that is converted to another number. The
 * caller holds the lock. */
static bool is_within(struct convert_job *j)
{
	bool yes = false;
	struct op op;

	op_init(&op, j->m);
	list_for_each (n, &j->m->conversions.jobs) {
		const struct convert_job *outer = list_entry(n, struct convert_job, link);

		if (outer != j && !outer->stop && outer->replicas != j->replicas)
			yes |= is_below(&op, j->root, outer->root);
	}
	op_fini(&op);
	return yes;
}

/* ---- jobs ---- */

static struct convert_job *job_find(const struct conversions *cv, struct ino root)
{
	list_for_each (n, &cv->jobs) {
		struct convert_job *j = list_entry(n, struct convert_job, link);

		if (ino_equal(j->root, root) && !j->stop)
			return j;
	}
	return NULL;
}

static void end_forget(struct conversions *cv, struct ino root)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < cv->n_ends; i++)
		if (!ino_equal(cv->ends[i].root, root))
			cv->ends[n++] = cv->ends[i];
	cv->n_ends = n;
}

static void end_note(const struct convert_job *j, int status)
{
	struct conversions *cv = &j->m->conversions;

	end_forget(cv, j->root);
	if (cv->n_ends == CONVERSION_ENDS_MAX)
		end_forget(cv, cv->ends[0].root);
	cv->ends[cv->n_ends++] = (struct conversion_end){j->root, j->replicas, status};
}

/* Lists the conversion as ended. Its fiber stops later. */
static void job_stop(struct convert_job *j)
{
	j->stop = true;
	end_note(j, -LE_CANCELED);
}

static int row_txn(struct op *op, const void *vin, void *vout)
{
	const struct convert_job *j = vin;

	(void)vout;
	/* The row of a stopped job is deleted, or belongs to a newer job. */
	if (!j->stop)
		txn_delete(op->store, key_of('V', j->root.v));
	return 0;
}

/* The caller holds the lock. */
static void job_end(struct convert_job *j, int rc)
{
	struct mds *m = j->m;
	struct op op;

	op_init(&op, m);
	if (!m->stopping && op_mutate(&op, row_txn, j, NULL) < 0)
		log_warn(
			"inode %llu: the end of its conversion could not be stored: the next start "
			"begins it again",
			(unsigned long long)j->root.v);
	op_fini(&op);
	if (!m->stopping)
		log_info("inode %llu: conversion to %u copies %s: %llu files, %llu bytes",
			 (unsigned long long)j->root.v, j->replicas,
			 rc < 0    ? status_text(rc)
			 : j->stop ? "was stopped"
				   : "is complete",
			 (unsigned long long)j->n_converted, (unsigned long long)j->bytes);
	/* If the server is stopping, the next start continues the conversion. */
	if (!j->stop && !m->stopping)
		end_note(j, rc);
	list_remove(&j->link);
	m->conversions.n--;
	free(j->frames);
	free(j);
	latch_done(&m->fibers);
}

/* Walks the tree until a walk finds nothing left to do. */
static int walk_on(struct convert_job *j)
{
	uint64_t pause_ms = PAUSE_MIN_MS;
	int rc = 0;

	while (!is_over(j)) {
		uint32_t replicas = j->replicas;

		if (j->m->recovery.sessions_back) {
			j->n_walked = j->n_asks;
			rc = replicas > 1 ? chain_table_want(&j->m->cluster, replicas) : 0;
			if (rc == 0)
				rc = walk(j);
			fmutex_lock(&j->m->conversions.lock);
			if (rc == 0 && is_within(j))
				rc = -LE_CANCELED;
			fmutex_unlock(&j->m->conversions.lock);
			if (rc == -LE_STALE || rc == -LE_CANCELED)
				break;
			if (rc < 0 && j->error != rc)
				log_warn("inode %llu: converting the tree failed: %s; retrying",
					 (unsigned long long)j->root.v, status_text(rc));
			j->error = rc < 0 ? rc : j->n_failed > 0 ? j->error : 0;
			j->last_waiting = j->n_waiting;
			j->last_failed = j->n_failed;
			j->n_walks++;
			if (rc == 0 && !is_over(j) && j->n_walked == j->n_asks &&
			    j->n_waiting + j->n_failed + j->n_done == 0)
				break;
			pause_ms = rc == 0 && j->n_done > 0 ? PAUSE_MIN_MS : pause_ms * 2;
		}
		if (pause_ms > PAUSE_MAX_MS)
			pause_ms = PAUSE_MAX_MS;
		if (mds_sleep_ms(j->m, pause_ms) < 0)
			break;
	}
	return rc;
}

static void job_run(void *arg)
{
	struct convert_job *j = arg;
	struct conversions *cv = &j->m->conversions;
	bool again;
	int rc;

	/* Wait until ask_start has written the row. */
	fmutex_lock(&cv->lock);
	fmutex_unlock(&cv->lock);
	do {
		rc = walk_on(j);
		/* Wait for a request in progress: it may renew this conversion. */
		fmutex_lock(&cv->lock);
		again = !is_over(j) && rc != -LE_STALE &&
			(rc == -LE_CANCELED ? !is_within(j) : j->n_walked != j->n_asks);
		if (!again)
			job_end(j, rc);
		fmutex_unlock(&cv->lock);
	} while (again);
}

static int job_start(struct mds *m, struct ino root, uint32_t replicas,
		     struct convert_job **ret_job)
{
	struct convert_job *j = calloc(1, sizeof(*j));
	int rc;

	if (j == NULL)
		return -LE_NOMEM;
	*j = (struct convert_job){.m = m, .root = root, .replicas = replicas};
	latch_add(&m->fibers, 1);
	list_push(&m->conversions.jobs, &j->link);
	m->conversions.n++;
	rc = fiber_spawn("convert", job_run, j);
	if (rc < 0) {
		list_remove(&j->link);
		m->conversions.n--;
		free(j);
		latch_done(&m->fibers);
		return rc;
	}
	*ret_job = j;
	return 0;
}

void conversions_init(struct conversions *cv)
{
	list_init(&cv->jobs);
	cv->n = cv->n_ends = 0;
	fmutex_init(&cv->lock);
}

struct row {
	struct ino root;
	uint32_t replicas;
};

struct rows {
	struct row *v;
	uint32_t n;
	int status;
};

static int each_row(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct rows *rows = arg;
	struct convert_rec rec;
	struct wire_r r;
	struct row *v;

	wire_r_init(&r, value, len);
	wire_get_convert_rec(&r, &rec);
	if (key_len != 9 || r.status < 0 || rec.replicas < 1 || rec.replicas > LEAT_REPLICAS_MAX) {
		rows->status = -LE_CORRUPT_STORE;
		return 1;
	}
	v = realloc(rows->v, (rows->n + 1) * sizeof(*v));
	if (v == NULL) {
		rows->status = -LE_NOMEM;
		return 1;
	}
	rows->v = v;
	v[rows->n++] = (struct row){{get_be((const uint8_t *)key + 1, 8)}, rec.replicas};
	return 0;
}

/* JOBS_MAX limits requests only: every row is continued. */
int conversions_start(struct mds *m)
{
	struct rows rows = {0};
	struct convert_job *j;
	int rc = store_scan_prefix(&m->store, key_kind('V'), each_row, &rows);

	rc = rc < 0 ? rc : rows.status;
	for (uint32_t i = 0; rc == 0 && i < rows.n; i++)
		rc = job_start(m, rows.v[i].root, rows.v[i].replicas, &j);
	free(rows.v);
	return rc;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

void conversions_each(const struct mds *m, void (*each)(void *arg, const struct conversion_view *v),
		      void *arg)
{
	list_for_each (n, &m->conversions.jobs) {
		const struct convert_job *j = list_entry(n, struct convert_job, link);
		struct conversion_view v = {
			.root = j->root,
			.replicas = j->replicas,
			.n_walks = j->n_walks,
			.n_seen = j->n_seen,
			.n_converted = j->n_converted,
			.bytes = j->bytes,
			.n_waiting = larger(j->n_waiting, j->last_waiting),
			.n_failed = larger(j->n_failed, j->last_failed),
			.error = j->error,
		};

		if (!j->stop)
			each(arg, &v);
	}
}

/* ---- requests ---- */

/* Conversions of nested trees to different numbers would convert each other's files for ever. A
 * request for a part of a tree that is being converted is refused. A request for a tree that
 * contains others overtakes their conversions, which end. One that a rename moves into another
 * tree ends too (is_within). The caller holds the lock, so the list does not change. */
static int make_space(struct op *op, struct ino root, uint32_t replicas)
{
	list_for_each (n, &op->m->conversions.jobs) {
		struct convert_job *j = list_entry(n, struct convert_job, link);

		j->overtaken = false;
		if (j->stop || ino_equal(j->root, root) || j->replicas == replicas)
			continue;
		if (is_below(op, root, j->root))
			return -LE_BUSY;
		j->overtaken = is_below(op, j->root, root);
	}
	return 0;
}

static int may_txn(struct op *op, const void *vin, void *vout)
{
	const struct mds_layout_set_req *in = vin;
	struct mds_layout_set_rep *out = vout;
	const struct inode_rec *rec;

	TRY(cred_check(&in->cred));
	if (in->cred.uid != 0)
		return -LE_PERM;
	TRY(file_get(op, in->ino, VIEW_NEWEST, NULL, &rec));
	if (!S_ISDIR(rec->attr.mode) && !S_ISREG(rec->attr.mode))
		return -LE_INVAL;
	out->attr = rec->attr;
	return 0;
}

static int ask_txn(struct op *op, const void *vin, void *vout)
{
	const struct mds_layout_set_req *in = vin;
	struct convert_rec row = {.replicas = in->layout.replicas};

	TRY(may_txn(op, vin, vout));
	if ((in->layout.flags & LAYOUT_F_STOP) != 0) {
		txn_delete(op->store, key_of('V', in->ino.v));
		return 0;
	}
	TXN_PUT(op->store, key_of('V', in->ino.v), convert_rec, &row);
	/* In the same batch, or a restart would begin them again. */
	list_for_each (n, &op->m->conversions.jobs) {
		const struct convert_job *j = list_entry(n, struct convert_job, link);

		if (j->overtaken)
			txn_delete(op->store, key_of('V', j->root.v));
	}
	return 0;
}

static int ask_stop(struct op *op, const struct mds_layout_set_req *in,
		    struct mds_layout_set_rep *out)
{
	struct convert_job *j = job_find(&op->m->conversions, in->ino);

	TRY(op_mutate(op, ask_txn, in, out));
	if (j != NULL)
		job_stop(j);
	return 0;
}

/* Starts the fiber before the row is written, so that no row is without a fiber. The fiber waits
 * for the lock. */
static int ask_start(struct op *op, const struct mds_layout_set_req *in,
		     struct mds_layout_set_rep *out)
{
	struct conversions *cv = &op->m->conversions;
	struct convert_job *j = job_find(cv, in->ino);
	bool new = j == NULL;
	int rc;

	TRY(make_space(op, in->ino, in->layout.replicas));
	if (new && cv->n >= JOBS_MAX)
		return -LE_OVERLOAD;
	if (new)
		TRY(job_start(op->m, in->ino, in->layout.replicas, &j));
	rc = op_mutate(op, ask_txn, in, out);
	if (rc < 0) {
		j->stop |= new;
		return rc;
	}
	list_for_each (n, &cv->jobs) {
		struct convert_job *inner = list_entry(n, struct convert_job, link);

		if (inner->overtaken && !inner->stop)
			job_stop(inner);
	}
	end_forget(cv, in->ino);
	j->replicas = in->layout.replicas;
	j->n_asks++;
	return 0;
}

int convert_ask(struct op *op, const struct mds_layout_set_req *in, struct mds_layout_set_rep *out)
{
	struct conversions *cv = &op->m->conversions;
	bool stop = (in->layout.flags & LAYOUT_F_STOP) != 0;
	int rc;

	if (!stop && in->layout.replicas < 1)
		return -LE_INVAL;
	TRY(op_read(op, may_txn, in, out));
	/* Makes chains with that many members, if there are none yet. */
	if (!stop && in->layout.replicas > 1)
		TRY(chain_table_want(&op->m->cluster, in->layout.replicas));
	fmutex_lock(&cv->lock);
	op->final = true;
	rc = stop ? ask_stop(op, in, out) : ask_start(op, in, out);
	fmutex_unlock(&cv->lock);
	return rc;
}
