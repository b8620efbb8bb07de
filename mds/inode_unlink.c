/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/inode_unlink.h"

#include "common/base/log.h"
#include "common/rt/loop.h"
#include "mds/file/orphan_delay.h"
#include "mds/inode_ops.h"
#include "mds/mds.h"
#include "mds/recovery.h"

void inode_unlink(struct op *op, struct inode *i, bool replaced, struct attr *ret_attr)
{
	struct open_file *f = open_file_find(&op->m->opens, i->ino);
	struct inode_rec *rec = inode_edit(op->store, i);

	rec->attr.nlink = S_ISDIR(rec->attr.mode) ? 0 : rec->attr.nlink - 1;
	inode_changed(op, rec);
	*ret_attr = rec->attr;
	if (rec->attr.nlink > 0)
		return;
	if (inode_not_open(op, i->ino) &&
	    !(replaced && S_ISREG(rec->attr.mode) && orphan_delay_add(op->m, i->ino))) {
		inode_remove(op, i);
		return;
	}
	txn_put(op->store, key_of('O', i->ino.v), NULL, 0);
	if (replaced && f != NULL)
		f->replaced_us = loop_now_us();
	if (!op->m->recovery.sessions_back && recovery_orphan(op->m, i->ino) < 0)
		log_warn("orphan inode %llu takes space until the next start: no memory to note it",
			 (unsigned long long)i->ino.v);
}
