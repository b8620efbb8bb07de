/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/attr_apply.h"

#include "mds/access/perm.h"
#include "mds/inode_ops.h"
#include "mds/mds.h"
#include "mds/xattr_rows.h"

void attr_apply(struct op *op, struct inode_rec *rec, uint32_t mask, const struct attr *new)
{
	const struct open_file *f = open_file_find(&op->m->opens, rec->attr.ino);
	int64_t now = op_now(op);

	if ((mask & SET_MODE) != 0)
		rec->attr.mode = (rec->attr.mode & S_IFMT) | (new->mode & 07777);
	if ((mask & SET_UID) != 0)
		rec->attr.uid = new->uid;
	if ((mask & SET_GID) != 0)
		rec->attr.gid = new->gid;
	if ((mask & (SET_UID | SET_GID | SET_KILL_SUID)) != 0 && (mask & SET_MODE) == 0 &&
	    !S_ISDIR(rec->attr.mode))
		rec->attr.mode = perm_kill_suid(rec->attr.mode);
	if ((mask & (SET_UID | SET_GID | SET_KILL_SUID | SET_KILL_CAPS)) != 0 &&
	    !S_ISDIR(rec->attr.mode))
		inode_drop_caps(op, rec);
	if ((mask & SET_ATIME) != 0)
		rec->attr.atime_ns = new->atime_ns;
	if ((mask & SET_ATIME_NOW) != 0)
		rec->attr.atime_ns = now;
	if ((mask & SET_MTIME) != 0)
		rec->attr.mtime_ns = new->mtime_ns;
	if ((mask & SET_MTIME_NOW) != 0)
		rec->attr.mtime_ns = now;
	if ((mask & SET_FLAGS) != 0)
		rec->attr.flags =
			(rec->attr.flags & ~(uint32_t)ATTR_SETTABLE) | (new->flags &ATTR_SETTABLE);
	if ((mask & SET_PROJECT) != 0)
		rec->attr.project = new->project;
	if ((mask & SET_SEALED) != 0)
		rec->attr.flags |= new->flags &ATTR_SEALED;
	if ((mask & SET_MTIME_NOW) != 0)
		inode_accounts_for(rec, now);
	/* The new mtime is later than all writes that the caller and closes have reported. */
	if ((mask & SET_MTIME) != 0)
		inode_accounts_for(rec, new->chains_ns);
	if ((mask & SET_MTIME) != 0 && f != NULL)
		inode_accounts_for(rec, f->mtime_ns);
}
