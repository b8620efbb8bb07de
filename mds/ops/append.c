/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reserves the range of an O_APPEND write: after all that is reserved, recorded or reported, and,
 * where another session may write without a reservation, after all that the chains store.
 * append_end is separate from the size, so that reserved bytes are not visible before they are
 * written.
 */
#include "common/base/planted_bug.h"
#include "common/rt/loop.h"
#include "mds/file/chain_stat.h"
#include "mds/inode_ops.h"
#include "mds/op_execute.h"
#include "mds/ops/ops.h"

struct append {
	const struct mds_append_req *in;
	struct open_file *file;
	struct layout layout;
	uint64_t ends;
	bool asked; /* ends is the size that the chains have reported */
};

static uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* True if the client's previous reservation is still valid: the file was not truncated since. */
static bool had_place(const struct append *a, const struct inode_rec *rec)
{
	return a->in->had_end != 0 && a->in->had_end >= a->in->len &&
	       a->in->had_end <= max_u64(rec->append_end, rec->attr.size) &&
	       a->in->had_truncations == rec->attr.n_truncations;
}

/* True if the previous reservation is to be released, because another session wrote there first.
 * The next one then starts where those bytes end, which the chains report, unless there is a later
 * reservation. */
static bool gives_back(const struct append *a, const struct inode_rec *rec)
{
	return a->in->had_lost && had_place(a, rec) && a->in->had_end == rec->append_end;
}

/* True if the chains must be queried: the file may end after what is recorded here or reported by
 * the appending client. */
static bool must_ask(const struct op *op, const struct append *a, const struct inode_rec *rec)
{
	return (rec->attr.flags & ATTR_UNSETTLED) != 0 && !a->asked &&
	       (a->file->append_end != APPEND_END_KNOWN || size_reports_are_old(a->file) ||
		a->file->truncation != TRUNCATION_NONE || a->in->had_lost ||
		open_file_other_writers(&op->m->opens, a->file, op->session, true));
}

static int append_txn(struct op *op, const void *vin, void *vout)
{
	struct append *a = (struct append *)vin;
	struct mds_append_rep *out = vout;
	const struct inode_rec *old;
	struct inode_rec *rec;
	struct inode *i;
	struct open *o = open_find(&op->m->opens, op->session, a->in->ino);
	uint64_t off, reserved;

	TRY(file_get(op, a->in->ino, VIEW_NEWEST, &i, &old));
	if (!S_ISREG(old->attr.mode))
		return -LE_INVAL;
	if ((old->attr.flags & ATTR_SEALED) != 0)
		return -LE_PERM;
	/* In a new session a client opens the file again, if it may, before it requests a
	 * reservation. */
	if (o == NULL || o->n_write == 0)
		return -LE_BADF;
	if (a->in->had_there && !had_place(a, old))
		return -LE_EXIST;
	if (must_ask(op, a, old)) {
		a->layout = old->attr.layout;
		return -LE_BUSY;
	}
	reserved = gives_back(a, old) ? 0 : old->append_end;
	off = max_u64(max_u64(reserved, old->attr.size), max_u64(a->file->size, a->ends));
	/* After a truncation the client may have only the previous length. Its own data is on the
	 * chains: it flushes before it requests a reservation. */
	if (!size_reports_are_old(a->file))
		off = max_u64(off, a->in->size);
	if (had_place(a, old) && !a->in->had_lost)
		off = a->in->had_end - a->in->len;
	if (off > LEAT_FILE_SIZE_MAX || a->in->len > LEAT_FILE_SIZE_MAX - off)
		return -LE_FBIG;
	/* A truncation that has begun recalls no reservation that is given later. */
	ASSERT(a->file->truncation == TRUNCATION_NONE);
	if (!PLANTED_BUG(MDS_FORGET_APPEND))
		TRY(lease_give_append(&op->m->leases, op->session, a->in->ino));
	rec = inode_edit(op->store, i);
	rec->append_end = max_u64(reserved, off + a->in->len);
	out->off = off;
	out->change = rec->attr.change;
	out->n_truncations = rec->attr.n_truncations;
	/* From now on the chains need not be queried. A session that writes without reservation
	 * still has the file open (then they are queried again), reports its size when it closes,
	 * or has a write lease, which is recalled before another session appends. But a session
	 * that ended silently, perhaps during the query, may have written after it; that clears
	 * APPEND_END_QUERIED. */
	if (a->asked && a->file->append_end == APPEND_END_QUERIED &&
	    !lease_foreign(&op->m->leases, a->in->ino, NULL, LEASE_CACHING))
		a->file->append_end = APPEND_END_KNOWN;
	return 0;
}

static int append_locked(struct op *op, struct append *a, void *out)
{
	struct data_ends ends;
	int rc = op_mutate(op, append_txn, a, out);

	if (rc != -LE_BUSY)
		return rc;
	fmutex_lock(&a->file->busy);
	a->file->append_end = APPEND_END_QUERIED;
	rc = data_stat(op->m, a->in->ino, &a->layout, NULL,
		       loop_deadline_ms(op->m->params.oss_timeout_ms), &ends);
	if (rc == 0) {
		a->ends = ends.size;
		a->asked = true;
		rc = op_mutate(op, append_txn, a, out);
	}
	fmutex_unlock(&a->file->busy);
	return rc;
}

int mds_append(struct op *op, const void *vin, void *vout)
{
	struct append a = {.in = vin};
	int rc;

	TRY(open_file_get(&op->m->opens, a.in->ino, &a.file));
	op->final = true;
	rc = append_locked(op, &a, vout);
	open_file_put(&op->m->opens, a.file);
	return rc;
}
