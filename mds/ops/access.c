/* access(2): only the question, nothing changes. */
#include "mds/op.h"

int mds_access(struct op *op, const void *vin, void *vout)
{
	const struct mds_access_req *in = vin;
	const struct inode_rec *rec;

	(void)vout;
	TRY(cred_check(&in->cred));
	TRY(file_get(op, in->ino, VIEW_DURABLE, NULL, &rec));
	return perm_access(&in->cred, rec, in->mask & 7);
}
