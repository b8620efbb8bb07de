/* SPDX-License-Identifier: Apache-2.0 */
/* Sets the layout that a directory gives to new files and directories in it, or that of a file
 * without data. */
#include "mds/cluster/chain_table.h"
#include "mds/cluster/placement.h"
#include "mds/file/truncate.h"
#include "mds/inode_ops.h"
#include "mds/lease/lease_check.h"
#include "mds/op_execute.h"
#include "mds/ops/ops.h"

static void merge(struct layout *l, const struct layout *new)
{
	if (new->width != 0)
		l->width = new->width;
	if (new->chunk_size != 0)
		l->chunk_size = new->chunk_size;
	if (new->storage_class != 0)
		l->storage_class = new->storage_class;
	if (new->replicas != 0)
		l->replicas = new->replicas;
	if (new->compression != 0)
		l->compression =
			new->compression == COMPRESSION_OFF ? COMPRESSION_NONE : new->compression;
}

static int check(struct op *op, const struct mds_layout_set_req *in, struct inode **ret_i,
		 const struct inode_rec **ret_rec)
{
	const struct inode_rec *rec;

	TRY(cred_check(&in->cred));
	TRY(file_get(op, in->ino, VIEW_NEWEST, ret_i, &rec));
	TRY(perm_owner(&in->cred, &rec->attr));
	TRY(perm_fixed(&rec->attr));
	*ret_rec = rec;
	return 0;
}

static int may_txn(struct op *op, const void *in, void *out)
{
	const struct inode_rec *rec;
	struct inode *i;

	(void)out;
	return check(op, in, &i, &rec);
}

static int layout_set_txn(struct op *op, const void *vin, void *vout)
{
	const struct mds_layout_set_req *in = vin;
	struct mds_layout_set_rep *out = vout;
	const struct inode_rec *old;
	struct inode_rec *rec;
	struct layout l;
	struct inode *i;

	TRY(check(op, in, &i, &old));
	l = old->attr.layout;
	merge(&l, &in->layout);
	if (S_ISDIR(old->attr.mode)) {
		l.flags &= (uint8_t)~LAYOUT_F_INHERITED;
	} else {
		if (!S_ISREG(old->attr.mode))
			return -LE_INVAL;
		if ((old->attr.flags & ATTR_SEALED) != 0)
			return -LE_PERM;
		if (!inode_has_no_data(old) || !inode_not_open(op, in->ino))
			return -LE_BUSY;
		TRY(placement_choose(&op->m->cluster, &op->m->params, &l, in->ino, &l));
		l.gen = data_next_gen(old);
	}

	TRY(op_changes(op, in->ino));
	rec = inode_edit(op->store, i);
	rec->attr.layout = l;
	inode_changed(op, rec);
	out->attr = rec->attr;
	return 0;
}

int mds_layout_set(struct op *op, const void *vin, void *vout)
{
	const struct mds_layout_set_req *in = vin;

	TRY(placement_check(&in->layout));
	if ((in->layout.flags & (LAYOUT_F_CONVERT | LAYOUT_F_STOP)) != 0)
		return convert_ask(op, in, vout);
	TRY(op_read(op, may_txn, in, NULL));
	/* Builds chains of that many members if there are none yet. */
	if (in->layout.replicas > 1)
		TRY(chain_table_want(&op->m->cluster, in->layout.replicas));
	op->final = true;
	return op_mutate(op, layout_set_txn, vin, vout);
}
