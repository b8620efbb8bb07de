/*
 * rename(2): all in one critical section. A directory may not move below itself: its new parent's
 * ancestors are walked through the parent pointers; directories move only here and the sections run
 * one after another, so no two renames can make a circle.
 */
#include <linux/fs.h>

#include "mds/op.h"

struct rename {
	struct inode *from_dir, *to_dir, *moved, *replaced;
	const struct inode_rec *from_rec, *to_rec, *moved_rec, *replaced_rec;
	struct dentry *from, *to;
};

static int check_ancestors(struct op *op, struct ino dir, struct ino moved)
{
	const struct inode_rec *rec;

	for (uint32_t depth = 0; dir.v != LEAT_ROOT_INO.v; depth++) {
		if (dir.v == moved.v)
			return -LE_INVAL;
		if (depth > 65536)
			return -LE_LOOP;
		TRY(file_get(op, dir, VIEW_NEWEST, NULL, &rec));
		dir = rec->parent;
	}
	return 0;
}

static int check_replaced(const struct mds_rename_req *in, struct rename *rn)
{
	bool dir = S_ISDIR(rn->moved_rec->attr.mode);

	if ((in->flags & RENAME_NOREPLACE) != 0)
		return -LE_EXIST;
	TRY(perm_sticky(&in->cred, &rn->to_rec->attr, &rn->replaced_rec->attr));
	if (S_ISDIR(rn->replaced_rec->attr.mode)) {
		if (!dir)
			return -LE_ISDIR;
		return rn->replaced_rec->entries > 0 ? -LE_NOTEMPTY : 0;
	}
	return dir ? -LE_NOTDIR : 0;
}

/* 1: old and new are the same inode, nothing is to be done. */
static int prepare(struct op *op, const struct mds_rename_req *in, struct rename *rn)
{
	struct dentry_val val;
	int rc;

	TRY(dir_get_for_change(op, &in->cred, in->parent, &rn->from_dir, &rn->from_rec));
	TRY(dir_get_for_change(op, &in->cred, in->new_parent, &rn->to_dir, &rn->to_rec));
	TRY(dentry_find(op->store, in->parent, in->name, VIEW_NEWEST, &rn->from, &val));
	TRY(file_get(op, val.ino, VIEW_NEWEST, &rn->moved, &rn->moved_rec));
	TRY(perm_sticky(&in->cred, &rn->from_rec->attr, &rn->moved_rec->attr));
	if (S_ISDIR(rn->moved_rec->attr.mode) && !ino_equal(in->parent, in->new_parent)) {
		TRY(perm_access(&in->cred, &rn->moved_rec->attr, PERM_W)); /* its .. changes */
		TRY(check_ancestors(op, in->new_parent, rn->moved->ino));
		if (rn->to_rec->attr.nlink >= LEAT_LINK_MAX)
			return -LE_MLINK;
	}
	rc = dentry_find(op->store, in->new_parent, in->new_name, VIEW_NEWEST, &rn->to, &val);
	if (rc == -LE_NOENT)
		return 0;
	TRY(rc);
	TRY(file_get(op, val.ino, VIEW_NEWEST, &rn->replaced, &rn->replaced_rec));
	if (rn->replaced == rn->moved)
		return (in->flags & RENAME_NOREPLACE) != 0 ? -LE_EXIST : 1;
	return check_replaced(in, rn);
}

static int rename_status(int rc)
{
	return rc == -LE_EXIST ? -LE_BUSY : rc; /* . and .. */
}

int mds_rename(struct op *op, const void *vin, void *vout)
{
	const struct mds_rename_req *in = vin;
	struct mds_rename_rep *out = vout;
	struct rename rn = {0};
	struct inode_rec *rec;
	struct attr gone;
	int rc;

	if ((in->flags & ~(uint32_t)RENAME_NOREPLACE) != 0)
		return -LE_INVAL;
	TRY(rename_status(name_check(in->name)));
	TRY(rename_status(name_check(in->new_name)));
	rc = prepare(op, in, &rn);
	if (rc < 0)
		return rc;
	if (rc == 1) {
		out->attr = rn.moved_rec->attr;
		return 0;
	}

	int dir = S_ISDIR(rn.moved_rec->attr.mode) ? 1 : 0;
	bool replaced = rn.replaced != NULL;
	rec = inode_edit(op->store, rn.moved);
	inode_changed(op, rec);
	if (dir != 0)
		rec->parent = in->new_parent;
	out->attr = rec->attr;
	if (replaced) {
		dentry_replace(op->store, rn.to, rn.moved->ino, rec->attr.mode);
		out->replaced = rn.replaced->ino;
		/* A replaced directory's link becomes the moved one's. */
		dir_changed(op, rn.to_dir, 0, 0, &out->new_dir);
		inode_unlink(op, rn.replaced, true, &gone);
	} else {
		dentry_put(op->store, rn.to, rn.moved->ino, rec->attr.mode);
		dir_changed(op, rn.to_dir, 1, dir, &out->new_dir);
	}
	/* Behind the insertion, which may need this place to lead to a higher collision index. */
	if (dentry_remove(op->store, rn.from))
		inode_edit(op->store, rn.from_dir)->flags |= INODE_TOMBS;
	dir_changed(op, rn.from_dir, -1, -dir, &out->dir);
	return 0;
}
