/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends one open. The close of the last writer settles the inode. If one session alone wrote and no
 * other truncated the file, the size that its closes reported counts. Otherwise the chains are
 * queried afterwards (data_settle_start). Until then the inode stays unsettled, so that clients
 * that need the size query the chains too.
 */
#include "mds/ops/close.h"

#include "mds/access/exports_policy.h"
#include "mds/file/orphan_delay.h"
#include "mds/file/settle.h"
#include "mds/inode_ops.h"
#include "mds/lease/lease_check.h"
#include "mds/op_execute.h"
#include "mds/ops/ops.h"
#include "mds/ops/reach.h"

/* True if the chains must be queried. No writer can report how much of the preallocated ranges has
 * been written, or what a truncation in progress leaves: some chains may be truncated already and
 * have newer data. */
static bool size_is_queried(const struct open_file *f, const struct inode_rec *rec)
{
	return size_must_be_queried(f) ||
	       (f->size_state == SIZE_REPORTED &&
		(rec->preallocated.len > 0 || f->truncation != TRUNCATION_NONE));
}

struct close_args {
	const struct mds_close_req *in;
	bool must_query_size;
};

/* True if the client marks the size that it reports as unreliable. */
static bool is_doubted(const struct mds_close_req *in)
{
	return (in->flags & (CLOSE_MUST_QUERY | CLOSE_TRUNCATED)) != 0;
}

static void note_report(struct open_file *f, const struct mds_close_req *in)
{
	uint64_t used = in->used == UINT64_MAX ? in->size : in->used;

	size_is_reported(f);
	if (in->mtime_ns > f->mtime_ns)
		f->mtime_ns = in->mtime_ns;
	/* The size may be older than a truncation; appends would then start after the end. */
	if (size_reports_are_old(f) || is_doubted(in))
		return;
	if (in->size > f->size)
		f->size = in->size;
	if (used > f->used)
		f->used = used;
}

static void note_end_of_writing(struct open_file *f, const struct mds_close_req *in)
{
	if (in->dirty != 0)
		note_report(f, in);
	if ((in->flags & CLOSE_TRUNCATED) != 0)
		size_is_truncated(f, true);
	if ((in->flags & CLOSE_MUST_QUERY) != 0)
		size_is_shared(f);
	if (is_doubted(in)) /* it may have written more than it reports */
		f->append_end = APPEND_END_UNKNOWN;
}

static struct inode_rec *settle_reported(struct op *op, struct inode *i, struct open_file *f)
{
	struct inode_rec *rec = inode_edit(op->store, i);
	bool reported = f->size_state == SIZE_REPORTED;

	size_is_settled(f);
	rec->attr.flags &= ~(uint32_t)ATTR_UNSETTLED;
	if (reported && f->size > rec->attr.size)
		rec->attr.size = f->size;
	inode_drop_append_reservations(rec);
	if (!reported)
		return rec;
	rec->attr.blocks = (f->used + 511) / 512;
	inode_written(op, rec, f->mtime_ns);
	return rec;
}

/* Turns the write lease of a session that no longer writes into a read lease, so that reads of
 * other sessions need not recall it, and ends its LEASE_APPEND. */
static void closed_lease(struct op *op, const struct mds_close_req *in)
{
	const struct open *o = open_find(&op->m->opens, op->session, in->ino);
	struct lease *l = lease_find(&op->m->leases, in->ino, op->session);

	if (l == NULL || (o != NULL && o->n_write > 0))
		return;
	if ((l->modes & LEASE_WRITE) != 0)
		l->modes = (l->modes & LEASE_APPEND) | LEASE_READ;
	lease_end(&op->m->leases, l, LEASE_APPEND);
}

/* Sets the access time of a file that was read, after recalling leases under which other clients
 * cache it. Writes. */
static int was_read(struct op *op, const struct mds_close_req *in, struct inode *i,
		    const struct inode_rec *rec)
{
	int64_t now = op_now(op);

	if ((in->flags & CLOSE_ATIME) == 0 || rec->attr.nlink == 0 ||
	    (rec->attr.flags & ATTR_NOATIME) != 0 ||
	    ((in->flags & CLOSE_STRICT) == 0 && !attr_atime_due(&rec->attr, now)))
		return 0;
	TRY(op_changes(op, in->ino));
	inode_edit(op->store, i)->attr.atime_ns = now;
	return 0;
}

static int close_txn(struct op *op, const void *vin, void *vout)
{
	struct close_args *a = (struct close_args *)vin;
	const struct mds_close_req *in = a->in;
	struct mds_close_rep *out = vout;
	bool counted = (in->flags & CLOSE_UNCOUNTED) == 0;
	struct open *o = counted ? open_find(&op->m->opens, op->session, in->ino) : NULL;
	const struct inode_rec *rec;
	struct open_file *f;
	struct inode *i;
	int rc = inode_get(op->store, in->ino, VIEW_NEWEST, &i, &rec);

	if (rc == -LE_MISS || (rc < 0 && rc != -LE_NOENT))
		return rc;
	/* The open has ended with its session: its end was taken into account then. */
	if (o != NULL && open_flags_write(in->flags) && o->n_write == 0)
		o = NULL;
	if (o == NULL && export_squashes(op) && !reach_knows(op, in->ino))
		return 0;
	if (open_flags_write(in->flags) && o != NULL)
		TRY(op_changes(op, in->ino));
	if (rc == 0)
		TRY(was_read(op, in, i, rec));
	if (o == NULL) { /* a repeated close, or an open that was lost in a restart */
		if (rc == 0 && inode_get(op->store, in->ino, VIEW_NEWEST, &i, &rec) == 0)
			out->attr = rec->attr;
		return 0;
	}
	f = o->file;
	f->refs++;
	if (open_flags_write(in->flags))
		note_end_of_writing(f, in);
	open_drop(&op->m->opens, o, in->flags);
	if (rc == 0 && rec->attr.nlink == 0 && inode_not_open(op, in->ino)) {
		if (orphan_delay_closed(op->m, f))
			goto out;
		inode_remove(op, i);
		txn_delete(op->store, key_of('O', in->ino.v));
	} else if (rc == 0 && open_flags_write(in->flags) &&
		   (rec->attr.flags & ATTR_UNSETTLED) != 0) {
		a->must_query_size = f->n_writers == 0 && size_is_queried(f, rec);
		if (f->n_writers == 0 && !a->must_query_size)
			rec = settle_reported(op, i, f);
	}
	if (rc < 0 || (rec->attr.flags & ATTR_UNSETTLED) == 0)
		open_file_counted(&op->m->opens, f);
	if (rc == 0 && rec->attr.nlink > 0 &&
	    inode_get(op->store, in->ino, VIEW_NEWEST, &i, &rec) == 0)
		out->attr = rec->attr; /* including the changes just made */
	closed_lease(op, in);
out:
	open_file_put(&op->m->opens, f);
	return 0;
}

int close_file(struct op *op, const struct mds_close_req *in, struct mds_close_rep *out)
{
	struct close_args a = {in, false};

	TRY(op_mutate(op, close_txn, &a, out));
	if (a.must_query_size)
		data_settle_start(op->m, in->ino);
	return 0;
}

int mds_close(struct op *op, const void *vin, void *vout)
{
	const struct mds_close_req *in = vin;

	/* A counted open leaves no row in the store. A client that repeats the close after a
	 * restart has reclaimed the open first, so this close must end it (open_state_redo). A
	 * settled size stays settled. */
	op->final = (in->flags & CLOSE_UNCOUNTED) != 0;
	op->lazy = (in->flags & CLOSE_LAZY) != 0;
	/* The client has closed the file, whether or not it still waits for the reply. */
	fiber_set_deadline(NO_DEADLINE);
	return close_file(op, in, vout);
}
