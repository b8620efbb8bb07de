/* SPDX-License-Identifier: Apache-2.0 */
/* mkdir(2). */
#include "mds/inode_ops.h"
#include "mds/lease/lease_check.h"
#include "mds/ops/ops.h"

int mds_mkdir(struct op *op, const void *vin, void *vout)
{
	const struct mds_mkdir_req *in = vin;
	struct mds_mkdir_rep *out = vout;
	const struct inode_rec *drec;
	struct dentry_val val;
	struct inode_rec *rec;
	struct inode *dir;
	struct dentry *d;
	int rc;

	TRY(name_check(in->name));
	TRY(dir_get_for_change(op, &in->cred, in->parent, &dir, &drec));
	rc = dentry_find(op->store, in->parent, in->name, VIEW_NEWEST, &d, &val);
	if (rc != -LE_NOENT)
		return rc == 0 ? -LE_EXIST : rc;
	TRY(inode_quota(op, drec, S_IFDIR));
	if (drec->attr.nlink >= LEAT_LINK_MAX)
		return -LE_MLINK;
	TRY(op_changes(op, in->parent));

	struct inode *i = inode_make(op, &in->cred, drec, S_IFDIR | (in->mode & 07777), &rec);
	rec->attr.layout = drec->attr.layout;
	rec->attr.layout.flags |= LAYOUT_F_INHERITED;
	rec->attr.size = 4096;
	rec->attr.blocks = DIR_BLOCKS;
	dentry_put(op->store, d, i->ino, S_IFDIR);
	dir_changed(op, dir, 1, 1, &out->dir);
	out->attr = rec->attr;
	return 0;
}
