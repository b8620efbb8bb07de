/* SPDX-License-Identifier: Apache-2.0 */
/* unlink(2). */
#include "mds/inode_ops.h"
#include "mds/inode_unlink.h"
#include "mds/lease/lease_check.h"
#include "mds/ops/ops.h"

int mds_unlink(struct op *op, const void *vin, void *vout)
{
	const struct mds_unlink_req *in = vin;
	struct mds_unlink_rep *out = vout;
	const struct inode_rec *drec, *rec;
	struct dentry_val val;
	struct inode *dir, *i;
	struct dentry *d;
	int rc = name_check(in->name);

	if (rc < 0)
		return rc == -LE_EXIST ? -LE_ISDIR : rc;
	TRY(dir_get_for_change(op, &in->cred, in->parent, &dir, &drec));
	TRY(dentry_find(op->store, in->parent, in->name, VIEW_NEWEST, &d, &val));
	TRY(file_get(op, val.ino, VIEW_NEWEST, &i, &rec));
	TRY(perm_remove(&in->cred, &drec->attr, &rec->attr));
	TRY(perm_sealed_name(&in->cred, &rec->attr));
	if (S_ISDIR(rec->attr.mode))
		return -LE_ISDIR;
	TRY(op_changes(op, in->parent, val.ino));
	TRY(op_asks_own(op, val.ino, in->reported_ino));

	if (dentry_remove(op->store, d))
		inode_edit(op->store, dir)->flags |= INODE_TOMBS;
	dir_changed(op, dir, -1, 0, &out->dir);
	inode_unlink(op, i, false, &out->attr);
	return 0;
}
