/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/file/idle.h"

#include "mds/file/settle.h"
#include "mds/file/space_reclaim.h"
#include "mds/inode_ops.h"
#include "mds/op_execute.h"

static int idle_txn(struct op *op, const void *vin, void *vout)
{
	const struct ino *ino = vin;
	bool *unsettled = vout;
	const struct open_file *f = open_file_find(&op->m->opens, *ino);
	const struct inode_rec *rec;
	struct inode *i;
	int rc = inode_get(op->store, *ino, VIEW_NEWEST, &i, &rec);

	*unsettled = false;
	if (rc < 0)
		return rc == -LE_NOENT ? 0 : rc;
	if (rec->attr.nlink == 0) {
		if (!inode_not_open(op, *ino))
			return 0;
		inode_remove(op, i);
		txn_delete(op->store, key_of('O', ino->v));
	} else if ((rec->attr.flags & ATTR_UNSETTLED) != 0 && (f == NULL || f->n_writers == 0)) {
		*unsettled = true;
	}
	return 0;
}

int data_idle(struct mds *m, struct ino ino)
{
	bool unsettled = false;
	struct op op;
	int rc;

	op_init(&op, m);
	rc = op_mutate(&op, idle_txn, &ino, &unsettled);
	if (op.removed)
		space_reclaim_kick(m);
	op_fini(&op);
	if (unsettled)
		data_settle_start(m, ino);
	return rc;
}
