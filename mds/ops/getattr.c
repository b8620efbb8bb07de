/* SPDX-License-Identifier: Apache-2.0 */
/* getattr: attributes by inode number, from memory. */
#include "mds/file/settle.h"
#include "mds/inode_ops.h"
#include "mds/lease/lease_check.h"
#include "mds/ops/ops.h"

int mds_getattr(struct op *op, const void *vin, void *vout)
{
	const struct mds_getattr_req *in = vin;
	struct mds_getattr_rep *out = vout;
	const struct open_file *f = open_file_find(&op->m->opens, in->ino);
	const struct inode_rec *rec;
	struct inode *i;

	TRY(file_get(op, in->ino, VIEW_DURABLE, &i, &rec));
	TRY(op_looks(op, &rec->attr));
	out->attr = rec->attr;
	if (rec->preallocated.len > 0) {
		uint8_t *buf = op_alloc(op, rec->preallocated.len);

		if (buf == NULL)
			return -LE_NOMEM;
		memcpy(buf, rec->preallocated.data, rec->preallocated.len);
		out->preallocated = bytes_of(buf, rec->preallocated.len);
	}
	if (f != NULL && f->truncation == TRUNCATION_TRIMS)
		out->attr.flags |= ATTR_TRUNCATING;
	inode_expedite(op->store, i);
	if ((rec->attr.flags & ATTR_UNSETTLED) != 0)
		data_settle_start(op->m, in->ino); /* no effect while the file has writers */
	return 0;
}
