/* SPDX-License-Identifier: Apache-2.0 */
/* link(2). */
#include "common/base/assert.h"
#include "mds/inode_ops.h"
#include "mds/lease/lease_check.h"
#include "mds/ops/ops.h"

int mds_link(struct op *op, const void *vin, void *vout)
{
	const struct mds_link_req *in = vin;
	struct mds_link_rep *out = vout;
	const struct inode_rec *drec, *old;
	struct dentry_val val;
	struct inode_rec *rec;
	struct inode *dir, *i;
	struct dentry *d;
	int rc;

	TRY(name_check(in->name));
	TRY(dir_get_for_change(op, &in->cred, in->parent, &dir, &drec));
	TRY(file_get(op, in->ino, VIEW_NEWEST, &i, &old));
	if (S_ISDIR(old->attr.mode))
		return -LE_PERM;
	if ((old->attr.flags & ATTR_SEALED) != 0)
		return -LE_PERM;
	TRY(perm_fixed(&old->attr));
	if (old->attr.nlink == 0 && (old->flags & INODE_LINKABLE) == 0)
		return -LE_NOENT;
	if (old->attr.nlink >= LEAT_LINK_MAX)
		return -LE_MLINK;
	if (old->attr.project != drec->attr.project)
		return -LE_XDEV;
	rc = dentry_find(op->store, in->parent, in->name, VIEW_NEWEST, &d, &val);
	if (rc != -LE_NOENT)
		return rc == 0 ? -LE_EXIST : rc;
	TRY(store_space(op->store));
	TRY(op_changes(op, in->parent, in->ino));

	rec = inode_edit(op->store, i);
	if (rec->attr.nlink == 0) {
		rec->flags &= ~(uint32_t)INODE_LINKABLE;
		txn_delete(op->store, key_of('O', i->ino.v));
	}
	ASSERT(rec->attr.nlink < LEAT_LINK_MAX);
	rec->attr.nlink++;
	inode_changed(op, rec);
	dentry_put(op->store, d, i->ino, rec->attr.mode);
	dir_changed(op, dir, 1, 0, &out->dir);
	out->attr = rec->attr;
	return 0;
}
