/* SPDX-License-Identifier: Apache-2.0 */
/* rmdir(2). A directory is empty if its count of entries is 0; tombstones do not count. */
#include "mds/inode_ops.h"
#include "mds/inode_unlink.h"
#include "mds/lease/lease_check.h"
#include "mds/ops/ops.h"

int mds_rmdir(struct op *op, const void *vin, void *vout)
{
	const struct mds_rmdir_req *in = vin;
	struct mds_rmdir_rep *out = vout;
	const struct inode_rec *drec, *rec;
	struct dentry_val val;
	struct inode *dir, *i;
	struct dentry *d;
	struct attr gone;
	int rc = name_check(in->name);

	if (rc == -LE_EXIST)
		return in->name.len == 1 ? -LE_INVAL : -LE_NOTEMPTY;
	TRY(rc);
	TRY(dir_get_for_change(op, &in->cred, in->parent, &dir, &drec));
	TRY(dentry_find(op->store, in->parent, in->name, VIEW_NEWEST, &d, &val));
	TRY(file_get(op, val.ino, VIEW_NEWEST, &i, &rec));
	TRY(perm_remove(&in->cred, &drec->attr, &rec->attr));
	if (!S_ISDIR(rec->attr.mode))
		return -LE_NOTDIR;
	if (rec->entries > 0)
		return -LE_NOTEMPTY;
	TRY(op_changes(op, in->parent, val.ino));

	if (dentry_remove(op->store, d))
		inode_edit(op->store, dir)->flags |= INODE_TOMBS;
	dir_changed(op, dir, -1, -1, &out->dir);
	out->removed = val.ino;
	inode_unlink(op, i, false, &gone);
	return 0;
}
