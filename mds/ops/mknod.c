/* SPDX-License-Identifier: Apache-2.0 */
/* mknod(2): all types except directory and symbolic link. Does not open the file. */
#include "mds/cluster/placement.h"
#include "mds/inode_ops.h"
#include "mds/lease/lease_check.h"
#include "mds/ops/ops.h"

int mds_mknod(struct op *op, const void *vin, void *vout)
{
	const struct mds_mknod_req *in = vin;
	struct mds_mknod_rep *out = vout;
	const struct inode_rec *drec;
	struct layout layout = {0};
	struct dentry_val val;
	struct inode_rec *rec;
	struct inode *dir;
	struct dentry *d;
	int rc;

	TRY(name_check(in->name));
	if (!S_ISREG(in->mode) && !S_ISFIFO(in->mode) && !S_ISSOCK(in->mode) &&
	    !S_ISCHR(in->mode) && !S_ISBLK(in->mode))
		return -LE_INVAL;
	TRY(dir_get_for_change(op, &in->cred, in->parent, &dir, &drec));
	if ((S_ISCHR(in->mode) || S_ISBLK(in->mode)) && in->cred.uid != 0 &&
	    (in->cred.flags & CRED_CHECKED) == 0)
		return -LE_PERM;
	rc = dentry_find(op->store, in->parent, in->name, VIEW_NEWEST, &d, &val);
	if (rc != -LE_NOENT)
		return rc == 0 ? -LE_EXIST : rc;
	TRY(inode_quota(op, drec, in->mode));
	if (S_ISREG(in->mode))
		TRY(placement_choose(&op->m->cluster, &op->m->params, &drec->attr.layout,
				     (struct ino){op->store->counters.next_ino}, &layout));
	TRY(op_changes(op, in->parent));

	struct inode *i = inode_make(op, &in->cred, drec, in->mode, &rec);
	rec->attr.layout = layout;
	rec->attr.rdev = S_ISCHR(in->mode) || S_ISBLK(in->mode) ? in->rdev : 0;
	dentry_put(op->store, d, i->ino, in->mode);
	dir_changed(op, dir, 1, 0, &out->dir);
	out->attr = rec->attr;
	return 0;
}
