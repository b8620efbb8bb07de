/* SPDX-License-Identifier: Apache-2.0 */
/* readlink(2). */
#include "mds/inode_ops.h"
#include "mds/ops/ops.h"

int mds_readlink(struct op *op, const void *vin, void *vout)
{
	const struct mds_readlink_req *in = vin;
	struct mds_readlink_rep *out = vout;
	const struct inode_rec *rec;
	void *copy;

	TRY(file_get(op, in->ino, VIEW_DURABLE, NULL, &rec));
	if (!S_ISLNK(rec->attr.mode))
		return -LE_INVAL;
	copy = op_alloc(op, rec->symlink.len);
	if (copy == NULL)
		return -LE_NOMEM;
	memcpy(copy, rec->symlink.data, rec->symlink.len);
	out->target = bytes_of(copy, rec->symlink.len);
	return 0;
}
