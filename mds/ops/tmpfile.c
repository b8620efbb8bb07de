/* SPDX-License-Identifier: Apache-2.0 */
/*
 * O_TMPFILE: a regular file that has no name and is open. It is an orphan from the start, so its
 * last close, or the end of its session, removes it, unless link has given it a name.
 */
#include <fcntl.h>

#include "common/base/log.h"
#include "mds/cluster/placement.h"
#include "mds/inode_ops.h"
#include "mds/op_execute.h"
#include "mds/ops/ops.h"
#include "mds/recovery.h"

static int tmpfile_txn(struct op *op, const void *vin, void *vout)
{
	const struct mds_tmpfile_req *in = vin;
	struct mds_tmpfile_rep *out = vout;
	struct ino next = {op->store->counters.next_ino};
	const struct inode_rec *drec;
	struct inode_rec *rec;
	struct layout layout;
	struct inode *dir;
	struct open *open;

	TRY(cred_check(&in->cred));
	TRY(dir_get_for_change(op, &in->cred, in->parent, &dir, &drec));
	TRY(inode_quota(op, drec, S_IFREG));
	TRY(placement_choose(&op->m->cluster, &op->m->params, &drec->attr.layout, next, &layout));
	TRY(open_prepare(&op->m->opens, op->session, next, &open));

	(void)inode_make(op, &in->cred, drec, S_IFREG | (in->mode & 07777), &rec);
	rec->attr.layout = layout;
	rec->attr.nlink = 0;
	if ((in->flags & O_EXCL) == 0)
		rec->flags |= INODE_LINKABLE;
	if (open_flags_write(in->flags))
		rec->attr.flags |= ATTR_UNSETTLED;
	txn_put(op->store, key_of('O', next.v), NULL, 0);
	if (!op->m->recovery.sessions_back && recovery_orphan(op->m, next) < 0)
		log_warn("orphan inode %llu takes space until the next start: no memory to note it",
			 (unsigned long long)next.v);
	open_add(&op->m->opens, open, in->flags, 1, true);
	open_grant(open, in->flags);
	out->attr = rec->attr;
	op_cap(op, &rec->attr, in->flags, &out->cap);
	return 0;
}

int mds_tmpfile(struct op *op, const void *vin, void *vout)
{
	const struct mds_tmpfile_req *in = vin;

	if (!open_flags_write(in->flags))
		return -LE_INVAL;
	op->final = true;
	return op_mutate(op, tmpfile_txn, in, vout);
}
