/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rename(2), in one critical section. A directory may not move below itself, so the ancestors of
 * its new parent are checked through the parent fields. Directories move only here, and sections
 * run one after another, so no two renames can make a cycle. RENAME_EXCHANGE: the two inodes swap
 * names. RENAME_WHITEOUT: a whiteout, character device 0:0, stays at the old name, by which
 * overlayfs hides a name of the layer below.
 */
#include <linux/fs.h>

#include "common/base/assert.h"
#include "mds/inode_ops.h"
#include "mds/inode_unlink.h"
#include "mds/lease/lease_check.h"
#include "mds/ops/ops.h"

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
	TRY(perm_remove(&in->cred, &rn->to_rec->attr, &rn->replaced_rec->attr));
	TRY(perm_sealed_name(&in->cred, &rn->replaced_rec->attr));
	if (S_ISDIR(rn->replaced_rec->attr.mode)) {
		if (!dir)
			return -LE_ISDIR;
		return rn->replaced_rec->entries > 0 ? -LE_NOTEMPTY : 0;
	}
	return dir ? -LE_NOTDIR : 0;
}

static bool exchanges(const struct mds_rename_req *in)
{
	return (in->flags & RENAME_EXCHANGE) != 0;
}

/* Checks that the inode may move into another directory. */
static int check_move(struct op *op, const struct cred *cred, struct inode *i,
		      const struct inode_rec *rec, struct ino dir)
{
	const struct inode_rec *drec;

	/* An inode of a project stays below its root: programs copy the file instead. */
	TRY(file_get(op, dir, VIEW_NEWEST, NULL, &drec));
	if (drec->attr.project != rec->attr.project)
		return -LE_XDEV;
	if (!S_ISDIR(rec->attr.mode))
		return 0;
	TRY(perm_access(cred, rec, PERM_W)); /* its `..` changes */
	return check_ancestors(op, dir, i->ino);
}

static int check_exchange(struct op *op, const struct mds_rename_req *in, const struct rename *rn)
{
	bool dir = S_ISDIR(rn->moved_rec->attr.mode), other = S_ISDIR(rn->replaced_rec->attr.mode);

	TRY(perm_remove(&in->cred, &rn->to_rec->attr, &rn->replaced_rec->attr));
	TRY(perm_sealed_name(&in->cred, &rn->replaced_rec->attr));
	if (ino_equal(in->parent, in->new_parent))
		return 0;
	TRY(check_move(op, &in->cred, rn->replaced, rn->replaced_rec, in->parent));
	if (dir && !other && rn->to_rec->attr.nlink >= LEAT_LINK_MAX)
		return -LE_MLINK;
	return other && !dir && rn->from_rec->attr.nlink >= LEAT_LINK_MAX ? -LE_MLINK : 0;
}

/* Returns 1 if old and new name are the same inode: nothing to do. */
static int prepare(struct op *op, const struct mds_rename_req *in, struct rename *rn)
{
	struct dentry_val val;
	int rc;

	TRY(dir_get_for_change(op, &in->cred, in->parent, &rn->from_dir, &rn->from_rec));
	TRY(dir_get_for_change(op, &in->cred, in->new_parent, &rn->to_dir, &rn->to_rec));
	TRY(dentry_find(op->store, in->parent, in->name, VIEW_NEWEST, &rn->from, &val));
	TRY(file_get(op, val.ino, VIEW_NEWEST, &rn->moved, &rn->moved_rec));
	TRY(perm_remove(&in->cred, &rn->from_rec->attr, &rn->moved_rec->attr));
	TRY(perm_sealed_name(&in->cred, &rn->moved_rec->attr));
	if (!ino_equal(in->parent, in->new_parent)) {
		TRY(check_move(op, &in->cred, rn->moved, rn->moved_rec, in->new_parent));
		if (S_ISDIR(rn->moved_rec->attr.mode) && !exchanges(in) &&
		    rn->to_rec->attr.nlink >= LEAT_LINK_MAX)
			return -LE_MLINK;
	}
	rc = dentry_find(op->store, in->new_parent, in->new_name, VIEW_NEWEST, &rn->to, &val);
	if (rc == -LE_NOENT && !exchanges(in))
		return 0;
	TRY(rc);
	TRY(file_get(op, val.ino, VIEW_NEWEST, &rn->replaced, &rn->replaced_rec));
	if (rn->replaced == rn->moved)
		return (in->flags & RENAME_NOREPLACE) != 0 ? -LE_EXIST : 1;
	return exchanges(in) ? check_exchange(op, in, rn) : check_replaced(in, rn);
}

static int rename_status(int rc)
{
	return rc == -LE_EXIST ? -LE_BUSY : rc; /* `.` and `..` */
}

static void has_moved(struct op *op, struct inode *i, struct attr *ret_attr)
{
	struct inode_rec *rec = inode_edit(op->store, i);

	inode_changed(op, rec);
	*ret_attr = rec->attr;
}

static void exchange(struct op *op, struct rename *rn, struct mds_rename_rep *out)
{
	struct attr other;
	int links;

	has_moved(op, rn->moved, &out->attr);
	has_moved(op, rn->replaced, &other);
	links = S_ISDIR(out->attr.mode) - S_ISDIR(other.mode);
	out->replaced = rn->replaced->ino;
	dentry_replace(op->store, rn->to, rn->moved->ino, out->attr.mode);
	dentry_replace(op->store, rn->from, rn->replaced->ino, other.mode);
	dir_changed(op, rn->to_dir, 0, links, &out->new_dir);
	dir_changed(op, rn->from_dir, 0, -links, &out->dir);
}

/* The permission for a whiteout is that of mknod. With CRED_CHECKED the kernel has checked
 * CAP_MKNOD. */
static int check_flags(const struct mds_rename_req *in)
{
	if ((in->flags & ~(uint32_t)(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT)) != 0 ||
	    (exchanges(in) && in->flags != RENAME_EXCHANGE))
		return -LE_INVAL;
	if ((in->flags & RENAME_WHITEOUT) != 0 && in->cred.uid != 0 &&
	    (in->cred.flags & CRED_CHECKED) == 0)
		return -LE_PERM;
	return 0;
}

/* Removes the old name. links: link count that the directory loses. */
static void leave(struct op *op, struct rename *rn, int links, struct mds_rename_rep *out)
{
	bool whiteout = out->whiteout.v != 0;

	/* After the insertion, which may need this place as the predecessor of a higher collision
	 * index. */
	if (whiteout)
		dentry_replace(op->store, rn->from, out->whiteout, S_IFCHR);
	else if (dentry_remove(op->store, rn->from))
		inode_edit(op->store, rn->from_dir)->flags |= INODE_TOMBS;
	dir_changed(op, rn->from_dir, whiteout ? 0 : -1, -links, &out->dir);
}

int mds_rename(struct op *op, const void *vin, void *vout)
{
	const struct mds_rename_req *in = vin;
	struct mds_rename_rep *out = vout;
	struct rename rn = {0};
	struct inode_rec *made;
	struct attr gone;
	int rc;

	TRY(check_flags(in));
	TRY(rename_status(name_check(in->name)));
	TRY(rename_status(name_check(in->new_name)));
	rc = prepare(op, in, &rn);
	if (rc < 0)
		return rc;
	if (rc == 1) {
		out->attr = rn.moved_rec->attr;
		return 0;
	}
	if ((in->flags & RENAME_WHITEOUT) != 0)
		TRY(inode_quota(op, rn.from_rec, S_IFCHR));
	TRY(op_changes(op, in->parent, in->new_parent, rn.moved->ino,
		       rn.replaced != NULL ? rn.replaced->ino : rn.moved->ino));
	if (exchanges(in)) {
		exchange(op, &rn, out);
		return 0;
	}
	if (rn.replaced != NULL)
		TRY(op_asks_own(op, rn.replaced->ino, in->reported_ino));

	ASSERT(rn.moved != rn.replaced);
	int dir = S_ISDIR(rn.moved_rec->attr.mode) ? 1 : 0;
	if ((in->flags & RENAME_WHITEOUT) != 0)
		out->whiteout = inode_make(op, &in->cred, rn.from_rec, S_IFCHR, &made)->ino;
	has_moved(op, rn.moved, &out->attr);
	if (rn.replaced != NULL) {
		dentry_replace(op->store, rn.to, rn.moved->ino, out->attr.mode);
		out->replaced = rn.replaced->ino;
		/* The link of a replaced directory becomes that of the moved one. */
		dir_changed(op, rn.to_dir, 0, 0, &out->new_dir);
		inode_unlink(op, rn.replaced, true, &gone);
	} else {
		dentry_put(op->store, rn.to, rn.moved->ino, out->attr.mode);
		dir_changed(op, rn.to_dir, 1, dir, &out->new_dir);
	}
	leave(op, &rn, dir, out);
	return 0;
}
