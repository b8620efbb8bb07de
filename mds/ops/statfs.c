/* statfs(2), from the last heartbeats of the targets. */
#include "mds/op.h"

#define INODES_MAX 1000000000u

int mds_statfs(struct op *op, const void *vin, void *vout)
{
	struct mds_statfs_rep *out = vout;
	uint64_t n = op->store->counters.n_inodes;

	(void)vin;
	cluster_space(&op->m->cluster, &out->total, &out->free);
	out->avail = out->free;
	out->inodes = n < INODES_MAX ? INODES_MAX : n;
	out->inodes_free = out->inodes - n;
	return 0;
}
