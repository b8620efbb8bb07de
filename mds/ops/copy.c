/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_file_range of whole chunks: object servers send them to each other.
 *
 * First checks the conditions: aligned ranges, equal chunk sizes, no other writer, and no data of
 * the target at or after the destination. Then copies chunks, a few at a time, as many as can be
 * started within BEGIN_MS. Finally sets the new size, in one batch with the replay row. A
 * repetition after a crash writes the same data again. If a condition fails it returns -LE_NOTSUP,
 * and the client copies by itself.
 *
 * The copy has deadlines of its own, not that of the attempt that started it: the client repeats
 * the request meanwhile and receives the result of this execution.
 *
 * Copied chunks are written without sequence numbers, so one without a received reply may still be
 * written later. That time passes before any result is returned. What a failed copy has written
 * after the end of the target is truncated.
 *
 * Both files' `busy` locks are held, taken in the order of inode numbers.
 */
#include <stdlib.h>

#include "common/rt/loop.h"
#include "mds/background.h"
#include "mds/file/chunk_copy.h"
#include "mds/inode_ops.h"
#include "mds/lease/lease_check.h"
#include "mds/op_execute.h"
#include "mds/ops/ops.h"
#include "mds/ops/setattr.h"
#include "mds/xattr_rows.h"

#define CHUNKS_MAX 64u
#define WIDTH      4u
#define PAUSE_MS   200u
/* No chunk is started later than this; the reply reports the chunks done by then. */
#define BEGIN_MS 4000u
/* Retries while servers restart. Together with the last attempt and its end this is shorter than a
 * client waits for the reply. */
#define TRY_MS 8000u

struct copying {
	const struct mds_copy_req *in;
	struct open_file *from, *to;
	struct layout from_layout, to_layout;
	uint64_t len;      /* bytes to copy */
	uint64_t to_end;   /* end of the target before the copy */
	uint32_t write_opens;
	uint64_t begin_us; /* no chunk is started after that */
	uint64_t until_us; /* no chunk is retried after that */
	int64_t at_ns;     /* the latest write time of the copied data */
	bool failed;
	bool lingers; /* a write may still be in flight */
};

static bool is_open(struct op *op, struct ino ino, bool for_writing)
{
	const struct open *o = open_find(&op->m->opens, op->session, ino);

	return o != NULL && (for_writing ? op_writes(op, ino) : o->granted != 0);
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* The length of one copy: whole chunks; the last one may be the end of the source. */
static uint64_t portion(const struct mds_copy_req *in, const struct attr *from)
{
	uint64_t chunk = from->layout.chunk_size, len = in->len;

	if (in->off >= from->size)
		return 0;
	if (len > CHUNKS_MAX * chunk)
		len = CHUNKS_MAX * chunk;
	if (len >= from->size - in->off)
		return from->size - in->off;
	return len - len % chunk;
}

static int look_txn(struct op *op, const void *vin, void *vout)
{
	struct copying *k = vout;
	const struct mds_copy_req *in = vin;
	const struct inode_rec *from, *to;
	uint32_t chunk;

	TRY(cred_check(&in->cred));
	TRY(file_get(op, in->ino, VIEW_NEWEST, NULL, &from));
	TRY(file_get(op, in->to, VIEW_NEWEST, NULL, &to));
	if (!S_ISREG(from->attr.mode) || !S_ISREG(to->attr.mode))
		return -LE_INVAL;
	if (!is_open(op, in->ino, false) || !is_open(op, in->to, true))
		return -LE_STALE;
	if ((to->attr.flags & ATTR_SEALED) != 0)
		return -LE_PERM;
	TRY(op_changes(op, in->to));
	chunk = from->attr.layout.chunk_size;
	k->to_end =
		max_u64(max_u64(to->attr.size, to->append_end), max_u64(in->to_size, k->to->size));
	if ((from->attr.flags & ATTR_UNSETTLED) != 0 || size_must_be_queried(k->to) ||
	    open_file_other_writers(&op->m->opens, k->to, op->session, false) ||
	    /* Below a quota the client must reserve space before it writes. */
	    to->attr.project != 0 || from->attr.layout.width == 0 || to->attr.layout.width == 0 ||
	    to->attr.layout.chunk_size != chunk || in->off % chunk != 0 ||
	    in->to_off % chunk != 0 || in->to_off < k->to_end)
		return -LE_NOTSUP;
	k->len = portion(in, &from->attr);
	if (k->len == 0)
		return -LE_NOTSUP;
	if (in->to_off > LEAT_FILE_SIZE_MAX - k->len)
		return -LE_FBIG;
	k->from_layout = from->attr.layout;
	k->to_layout = to->attr.layout;
	k->write_opens = k->to->write_opens;
	return 0;
}

struct part {
	struct op *op;
	struct copying *k;
	uint64_t i;
	bool begun;
	int status;
};

static bool may_pass(int rc)
{
	return rc == -LE_BUSY || status_retry(rc) != RETRY_NEVER;
}

static void copy_part(void *arg)
{
	struct part *p = arg;
	struct copying *k = p->k;
	struct mds *m = p->op->m;
	uint32_t chunk = k->from_layout.chunk_size;
	struct chunk_copy cc = {
		.ino = k->in->ino,
		.to_ino = k->in->to,
		.from = &k->from_layout,
		.to = &k->to_layout,
		.idx = k->in->off / chunk + p->i,
		.to_idx = k->in->to_off / chunk + p->i,
	};
	struct oss_copy_rep rep;

	/* The first chunk is always started. */
	if (p->i > 0 && (k->failed || loop_now_us() > k->begin_us))
		return;
	p->begun = true;
	cc.at = (uint32_t)(cc.idx % cluster_layout_width(&m->cluster, cc.from));
	while (!k->failed) {
		p->status = chunk_copy(m, &cc, &rep);
		if (p->status >= 0 && rep.at_ns > k->at_ns)
			k->at_ns = rep.at_ns;
		if (p->status >= 0)
			return;
		k->lingers = k->lingers || p->status != -LE_TARGET_DOWN;
		if (!may_pass(p->status) || loop_now_us() > k->until_us ||
		    mds_sleep_ms(m, PAUSE_MS) < 0)
			k->failed = true;
	}
}

static int copy_all(struct op *op, struct copying *k)
{
	uint32_t chunk = k->from_layout.chunk_size;
	uint32_t n = (uint32_t)((k->len + chunk - 1) / chunk);
	struct part *parts = calloc(n, sizeof(*parts));
	int rc = 0;

	if (parts == NULL)
		return -LE_NOMEM;
	for (uint32_t i = 0; i < n; i++)
		parts[i] = (struct part){op, k, i, false, 0};
	fiber_parallel("copy", copy_part, parts, sizeof(*parts), n, WIDTH);
	for (uint32_t i = 0; i < n && rc == 0; i++)
		rc = parts[i].status;
	/* Chunks are started in order: after the first one not started none is copied. */
	for (uint32_t i = 0; i < n; i++)
		if (!parts[i].begun && k->len > (uint64_t)i * chunk)
			k->len = (uint64_t)i * chunk;
	free(parts);
	return rc;
}

static int finish_txn(struct op *op, const void *vin, void *vout)
{
	const struct copying *k = vin;
	struct mds_copy_rep *out = vout;
	const struct inode_rec *old;
	struct inode_rec *rec;
	struct inode *i;

	TRY(file_get(op, k->in->to, VIEW_NEWEST, &i, &old));
	if (old->attr.layout.gen != k->to_layout.gen)
		return -LE_STALE;
	TRY(op_changes(op, k->in->to));
	rec = inode_edit(op->store, i);
	rec->attr.size = max_u64(rec->attr.size, k->in->to_off + k->len);
	inode_data_changed(op, rec);
	inode_accounts_for(rec, k->at_ns);
	if (k->in->cred.uid != 0)
		rec->attr.mode = perm_kill_suid(rec->attr.mode);
	inode_drop_caps(op, rec);
	out->attr = rec->attr;
	out->len = k->len;
	return 0;
}

static int copy_locked(struct op *op, struct copying *k, struct mds_copy_rep *out)
{
	int rc;

	op->final = false;
	TRY(op_mutate(op, look_txn, k->in, k));
	k->begin_us = loop_deadline_ms(BEGIN_MS);
	k->until_us = loop_deadline_ms(TRY_MS);
	rc = copy_all(op, k);
	if (k->lingers)
		(void)!mds_sleep_ms(op->m, COPY_LINGER_MS);
	if (rc < 0)
		return rc;
	op->final = true;
	return op_mutate(op, finish_txn, k, out);
}

/* Truncates what a failed copy wrote after the end, which would count as data. If other sessions
 * may have written since, it keeps all data and leaves the size to the chains instead. */
static void cut_off(struct op *op, const struct copying *k)
{
	struct mds_setattr_req req = {
		.ino = k->in->to, .mask = SET_SIZE, .attr = {.size = k->to_end}};
	struct attr attr;

	req.cred.flags = CRED_CHECKED;
	if (k->to->write_opens != k->write_opens ||
	    open_file_other_writers(&op->m->opens, k->to, op->session, false) ||
	    truncate_file(op, &req, req.ino, false, &attr) < 0)
		size_is_shared(k->to);
}

int mds_copy(struct op *op, const void *vin, void *vout)
{
	struct copying k = {.in = vin};
	struct fmutex *first, *second;
	int rc;

	if (op->session == NULL)
		return -LE_SESSION_GONE;
	if (ino_equal(k.in->ino, k.in->to))
		return -LE_NOTSUP;
	TRY(open_file_get(&op->m->opens, k.in->ino, &k.from));
	rc = open_file_get(&op->m->opens, k.in->to, &k.to);
	if (rc < 0) {
		open_file_put(&op->m->opens, k.from);
		return rc;
	}
	fiber_set_deadline(NO_DEADLINE);
	first = k.in->ino.v < k.in->to.v ? &k.from->busy : &k.to->busy;
	second = first == &k.from->busy ? &k.to->busy : &k.from->busy;
	fmutex_lock(first);
	fmutex_lock(second);
	rc = copy_locked(op, &k, vout);
	fmutex_unlock(second);
	fmutex_unlock(first);
	if (rc < 0 && k.to_layout.width != 0) {
		cut_off(op, &k);
		rc = may_pass(rc) ? -LE_NOTSUP : rc; /* the client's own copy retries as long as it
						      * should */
	}
	open_file_put(&op->m->opens, k.to);
	open_file_put(&op->m->opens, k.from);
	return rc;
}
