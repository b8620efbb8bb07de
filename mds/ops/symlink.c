/* SPDX-License-Identifier: Apache-2.0 */
/* symlink(2). The target is part of the inode record. */
#include <stdlib.h>

#include "mds/inode_ops.h"
#include "mds/lease/lease_check.h"
#include "mds/ops/ops.h"

int mds_symlink(struct op *op, const void *vin, void *vout)
{
	const struct mds_symlink_req *in = vin;
	struct mds_symlink_rep *out = vout;
	const struct inode_rec *drec, born = {.symlink = in->target};
	struct dentry_val val;
	struct inode_rec *rec;
	struct inode *dir;
	struct dentry *d;
	int rc;

	TRY(name_check(in->name));
	if (in->target.len == 0)
		return -LE_NOENT;
	if (in->target.len > LEAT_SYMLINK_MAX)
		return -LE_NAMETOOLONG;
	if (memchr(in->target.data, 0, in->target.len) != NULL)
		return -LE_INVAL;
	TRY(dir_get_for_change(op, &in->cred, in->parent, &dir, &drec));
	rc = dentry_find(op->store, in->parent, in->name, VIEW_NEWEST, &d, &val);
	if (rc != -LE_NOENT)
		return rc == 0 ? -LE_EXIST : rc;
	TRY(store_space(op->store));
	TRY(quota_check(op->store, drec->attr.project, quota_bytes(&born), 1));
	TRY(op_changes(op, in->parent));
	char *target = malloc(in->target.len);
	if (target == NULL)
		return -LE_NOMEM;
	memcpy(target, in->target.data, in->target.len);

	struct inode *i = inode_make(op, &in->cred, drec, S_IFLNK | 0777, &rec);
	i->symlink = target;
	rec->symlink = bytes_of(target, in->target.len);
	rec->attr.size = in->target.len;
	/* inode_make has counted the inode */
	quota_ahead(op->store, rec->attr.project, quota_bytes(&born), 0);
	dentry_put(op->store, d, i->ino, S_IFLNK);
	dir_changed(op, dir, 1, 0, &out->dir);
	out->attr = rec->attr;
	return 0;
}
