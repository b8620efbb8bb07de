/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening by inode number, and what create shares with it. The open is counted in the critical
 * section, so that a later unlink takes it into account. The first writer marks the inode unsettled
 * in the same batch.
 */
#include "mds/ops/open.h"

#include "mds/access/exports_policy.h"
#include "mds/file/truncate.h"
#include "mds/inode_ops.h"
#include "mds/lease/lease_check.h"

#include <fcntl.h>

#include "common/rt/loop.h"
#include "mds/op_execute.h"
#include "mds/ops/close.h"
#include "mds/ops/ops.h"
#include "mds/ops/setattr.h"
#include "mds/xattr_rows.h"

int open_existing(struct op *op, struct opening *o, struct inode *i, const struct inode_rec *old,
		  struct attr *ret_attr, struct cap *ret_cap)
{
	const struct cred *c = o->cred;
	uint32_t flags = o->flags;
	bool write = open_flags_write(flags), settled = (old->attr.flags & ATTR_UNSETTLED) == 0;
	bool trunc = (flags & O_TRUNC) != 0 && !ino_equal(o->truncated, i->ino);
	struct inode_rec *rec;
	struct open *open;
	uint32_t mask = 0;

	if (S_ISDIR(old->attr.mode))
		return -LE_ISDIR;
	if (!S_ISREG(old->attr.mode))
		return S_ISLNK(old->attr.mode) ? -LE_LOOP : -LE_NXIO;
	/* Even if a session has it open: mds/file/orphan_delay.h. */
	if (old->attr.nlink == 0 && (flags & OPEN_ORPHAN) == 0)
		return -LE_STALE;
	if ((flags & O_ACCMODE) != O_WRONLY)
		mask |= PERM_R;
	if (write || trunc)
		mask |= PERM_W;
	TRY(perm_access(c, old, mask));
	if ((write || trunc) && (old->attr.flags & ATTR_SEALED) != 0)
		return -LE_PERM;
	if ((old->attr.flags & ATTR_APPEND) != 0 && (trunc || (write && (flags & O_APPEND) == 0)))
		return -LE_PERM;
	bool drop = trunc && (!inode_has_no_data(old) ||
			      cluster_layout_lost(&op->m->cluster, &old->attr.layout));
	if (drop && !inode_not_open(op, i->ino)) {
		o->truncate_first = true;
		return -LE_BUSY;
	}
	TRY(write || trunc ? op_changes(op, i->ino) : op_looks(op, &old->attr));
	TRY(open_prepare(&op->m->opens, op->session, i->ino, &open));
	/* Other clients may have looked it up at the same time: the orphan delay applies after this
	 * open has ended. */
	if (old->attr.nlink == 0 && open->file->replaced_us == 0)
		open->file->replaced_us = loop_now_us();

	if (trunc || (write && settled)) {
		rec = inode_edit(op->store, i);
		if (drop)
			data_drop(op, rec);
		if (trunc) {
			inode_data_changed(op, rec);
			inode_drop_caps(op, rec);
			if (c->uid != 0)
				rec->attr.mode = perm_kill_suid(rec->attr.mode);
			settled = settled || drop;
		}
		if (write)
			rec->attr.flags |= ATTR_UNSETTLED;
		old = rec;
	}
	open_add(&op->m->opens, open, flags, 1, settled);
	open_grant(open, flags);
	*ret_attr = old->attr;
	op_cap(op, &old->attr, flags, ret_cap);
	return 0;
}

struct open_args {
	const struct mds_open_req *in;
	struct opening *o;
};

static int open_txn(struct op *op, const void *vin, void *vout)
{
	const struct open_args *a = vin;
	struct mds_open_rep *out = vout;
	const struct inode_rec *rec;
	struct inode *i;

	TRY(cred_check(&a->in->cred));
	TRY(file_get(op, a->in->ino, VIEW_NEWEST, &i, &rec));
	return open_existing(op, a->o, i, rec, &out->attr, &out->cap);
}

int open_truncate(struct op *op, struct opening *o, struct ino ino)
{
	struct mds_setattr_req req = {.cred = *o->cred, .ino = ino, .mask = SET_SIZE};
	struct attr attr;

	o->truncate_first = false;
	req.cred.flags |= CRED_CHECKED; /* open_existing has checked */
	TRY(truncate_file(op, &req, o->reported_ino, false, &attr));
	o->truncated = ino;
	op->begun = true;
	return 0;
}

struct ino open_has_truncated(struct op *op)
{
	struct ino ino = op_has_truncated(op);

	if (ino.v != 0)
		data_truncated_before(op, ino);
	return ino;
}

int mds_open(struct op *op, const void *vin, void *vout)
{
	const struct mds_open_req *in = vin;
	struct opening o = {.cred = &in->cred,
			    .flags = in->flags,
			    .truncated = open_has_truncated(op),
			    .reported_ino = in->ino};
	struct open_args a = {in, &o};
	int rc;

	for (;;) {
		op->final = true;
		rc = op_mutate(op, open_txn, &a, vout);
		if (rc != -LE_BUSY || !o.truncate_first)
			return rc;
		TRY(open_truncate(op, &o, in->ino));
	}
}

/* ---- after a restart ---- */

struct reclaim_args {
	struct ino ino;
	uint32_t flags, n;
};

static int reclaim_txn(struct op *op, const void *vin, void *vout)
{
	const struct reclaim_args *a = vin;
	const struct inode_rec *rec;
	struct inode *i;
	struct open *open;
	bool settled;

	(void)vout;
	TRY(file_get(op, a->ino, VIEW_NEWEST, &i, &rec));
	if (!S_ISREG(rec->attr.mode))
		return -LE_STALE;
	settled = (rec->attr.flags & ATTR_UNSETTLED) == 0;
	TRY(open_prepare(&op->m->opens, op->session, a->ino, &open));
	if (a->n == 0 || a->n > UINT32_MAX - open->file->n_readers ||
	    a->n > UINT32_MAX - open->file->n_writers) {
		open_trim(&op->m->opens, open);
		return -LE_INVAL;
	}
	if (open_flags_write(a->flags) && settled)
		inode_edit(op->store, i)->attr.flags |= ATTR_UNSETTLED;
	open_add(&op->m->opens, open, a->flags, a->n, settled);
	if (!export_squashes(op))
		open_grant(open, a->flags);
	if (open_flags_write(a->flags)) {
		/* What other sessions reported before, and when the file was truncated, is lost. */
		if ((rec->flags & INODE_TRUNCATING) != 0)
			size_is_truncated(open->file, false);
		size_is_shared(open->file);
		TRY(lease_give_append(&op->m->leases, op->session, a->ino)); /* possibly */
	}
	return 0;
}

int open_reclaim(struct op *op, struct ino ino, uint32_t flags, uint32_t n)
{
	struct reclaim_args a = {ino, flags, n};

	op->final = false;
	return op_mutate(op, reclaim_txn, &a, NULL);
}

int open_state_redo(struct op *op, uint16_t what, const void *in, void *out)
{
	const struct mds_create_req *create = in;
	const struct mds_open_req *open = in;
	const struct mds_close_req *close = in;

	if (what == OP_mds_create)
		return open_reclaim(op, ((struct mds_create_rep *)out)->attr.ino, create->flags, 1);
	if (what == OP_mds_tmpfile)
		return open_reclaim(op, ((struct mds_tmpfile_rep *)out)->attr.ino,
				    ((const struct mds_tmpfile_req *)in)->flags, 1);
	if (what == OP_mds_open)
		return open_reclaim(op, open->ino, open->flags, 1);
	if ((close->flags & CLOSE_UNCOUNTED) != 0 ||
	    open_find(&op->m->opens, op->session, close->ino) == NULL)
		return 0;
	op->final = false;
	return close_file(op, close, out);
}
