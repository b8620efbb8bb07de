/* SPDX-License-Identifier: Apache-2.0 */
/* Creates a regular file, or finds an existing one, and opens it: one request, one batch. */
#include <fcntl.h>

#include "mds/cluster/placement.h"
#include "mds/inode_ops.h"
#include "mds/lease/lease_check.h"
#include "mds/op_execute.h"
#include "mds/ops/open.h"
#include "mds/ops/ops.h"
#include "mds/ops/reach.h"

struct create_args {
	const struct mds_create_req *in;
	struct opening o;
	struct ino found;
};

static int create_new(struct op *op, const struct mds_create_req *in, struct inode *dir,
		      const struct inode_rec *drec, struct dentry *d, struct mds_create_rep *out)
{
	struct ino next = {op->store->counters.next_ino};
	struct layout layout;
	struct inode_rec *rec;
	struct open *open;

	TRY(inode_quota(op, drec, S_IFREG));
	TRY(placement_choose(&op->m->cluster, &op->m->params, &drec->attr.layout, next, &layout));
	TRY(op_changes(op, in->parent));
	TRY(open_prepare(&op->m->opens, op->session, next, &open));

	struct inode *i = inode_make(op, &in->cred, drec,
				     S_IFREG | (in->mode & 07777), &rec);
	ASSERT(ino_equal(i->ino, next));
	rec->attr.layout = layout;
	if (open_flags_write(in->flags))
		rec->attr.flags |= ATTR_UNSETTLED;
	dentry_put(op->store, d, i->ino, S_IFREG);
	dir_changed(op, dir, 1, 0, &out->dir);
	open_add(&op->m->opens, open, in->flags, 1, true);
	open_grant(open, in->flags);
	out->attr = rec->attr;
	out->created = 1;
	op_cap(op, &rec->attr, in->flags, &out->cap);
	return 0;
}

static int create_txn(struct op *op, const void *vin, void *vout)
{
	struct create_args *a = (struct create_args *)vin;
	const struct mds_create_req *in = a->in;
	struct mds_create_rep *out = vout;
	const struct inode_rec *drec, *rec;
	struct dentry_val val;
	struct inode *dir, *i;
	struct dentry *d;
	int rc;

	TRY(cred_check(&in->cred));
	TRY(dir_get(op, in->parent, &dir, &drec));
	TRY(perm_access(&in->cred, drec, PERM_X));
	rc = dentry_find(op->store, in->parent, in->name, VIEW_NEWEST, &d, &val);
	if (rc == -LE_NOENT) {
		TRY(perm_access(&in->cred, drec, PERM_W));
		return create_new(op, in, dir, drec, d, out);
	}
	TRY(rc);
	if ((in->flags & O_EXCL) != 0)
		return -LE_EXIST;
	TRY(file_get(op, val.ino, VIEW_NEWEST, &i, &rec));
	a->found = val.ino;
	reach_note(op, rec, in->parent, d->cookie);
	if ((in->flags & O_TRUNC) != 0)
		TRY(op_asks_own(op, val.ino, in->reported_ino));
	return open_existing(op, &a->o, i, rec, &out->attr, &out->cap);
}

int mds_create(struct op *op, const void *vin, void *vout)
{
	const struct mds_create_req *in = vin;
	struct create_args a = {.in = in,
				.o = {.cred = &in->cred,
				      .flags = in->flags,
				      .truncated = open_has_truncated(op),
				      .reported_ino = in->reported_ino}};
	int rc = name_check(in->name);

	if (rc < 0)
		return rc == -LE_EXIST ? -LE_ISDIR : rc;
	for (;;) {
		op->final = true;
		rc = op_mutate(op, create_txn, &a, vout);
		if (rc != -LE_BUSY || !a.o.truncate_first)
			return rc;
		TRY(open_truncate(op, &a.o, a.found));
	}
}
