/* Attributes by inode number, from memory. */
#include "mds/op.h"
#include "mds/recall.h"

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
	if (rec->prepared.len > 0) {
		uint8_t *buf = op_alloc(op, rec->prepared.len);

		if (buf == NULL)
			return -LE_NOMEM;
		memcpy(buf, rec->prepared.data, rec->prepared.len);
		out->prepared = bytes_of(buf, rec->prepared.len);
	}
	if (f != NULL && f->trimming)
		out->attr.flags |= ATTR_CUTTING;
	inode_hurry(op->store, i);
	if ((rec->attr.flags & ATTR_UNSETTLED) != 0)
		data_settle_start(op->m, in->ino); /* nothing if it has writers */
	return 0;
}
