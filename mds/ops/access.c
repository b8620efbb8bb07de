/* SPDX-License-Identifier: Apache-2.0 */
/* access(2): checks only, changes nothing. */
#include "mds/inode_ops.h"
#include "mds/ops/ops.h"

int mds_access(struct op *op, const void *vin, void *vout)
{
	const struct mds_access_req *in = vin;
	const struct inode_rec *rec;

	(void)vout;
	TRY(cred_check(&in->cred));
	TRY(file_get(op, in->ino, VIEW_DURABLE, NULL, &rec));
	return perm_access(&in->cred, rec, in->mask & 7);
}
