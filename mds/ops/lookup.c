/* SPDX-License-Identifier: Apache-2.0 */
/* lookup: a name in a directory, from memory. */
#include "mds/inode_ops.h"
#include "mds/lease/lease_check.h"
#include "mds/ops/ops.h"
#include "mds/ops/reach.h"

#include <fcntl.h>

/* Serves `.` and `..` for clients that have an inode without its path. */
static int lookup_dots(struct op *op, const struct inode_rec *dir, struct bytes name,
		       struct attr *ret_attr)
{
	const struct inode_rec *rec;

	if (name.len == 1) {
		*ret_attr = dir->attr;
		return 0;
	}
	TRY(file_get(op, dir->parent, VIEW_DURABLE, NULL, &rec));
	*ret_attr = rec->attr;
	return 0;
}

int mds_lookup(struct op *op, const void *vin, void *vout)
{
	const struct mds_lookup_req *in = vin;
	struct mds_lookup_rep *out = vout;
	const struct inode_rec *dir, *rec;
	struct dentry_val val;
	struct dentry *d;
	struct inode *i;
	int rc = name_check(in->name);

	TRY(cred_check(&in->cred));
	if (rc < 0 && rc != -LE_EXIST)
		return rc;
	TRY(parent_get(op, in->parent, VIEW_DURABLE, NULL, &dir));
	TRY(perm_access(&in->cred, dir, PERM_X));
	if (rc == -LE_EXIST)
		return lookup_dots(op, dir, in->name, &out->attr);
	out->dir = dir->attr;
	rc = dentry_find(op->store, in->parent, in->name, VIEW_DURABLE, &d, &val);
	if (rc == -LE_NOENT) {
		op_lease(op, &out->dir);
		return (out->dir.flags & ATTR_LEASED) != 0 ? 0 : rc;
	}
	TRY(rc);
	TRY(file_get(op, val.ino, VIEW_DURABLE, &i, &rec));
	TRY(op_looks(op, &rec->attr));
	out->attr = rec->attr;
	reach_note(op, rec, in->parent, d->cookie);
	if ((rec->attr.flags & ATTR_UNSETTLED) != 0)
		inode_expedite(op->store, i);
	else if (S_ISREG(rec->attr.mode) && op->session != NULL &&
		 perm_access(&in->cred, rec, PERM_R) == 0)
		op_cap(op, &rec->attr, O_RDONLY, &out->cap);
	return 0;
}
