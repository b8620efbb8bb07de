/* SPDX-License-Identifier: Apache-2.0 */
/* statfs(2), from the last heartbeats of the targets. */
#include "mds/file/preallocated.h"
#include "mds/inode_ops.h"
#include "mds/ops/ops.h"

#define INODES_MAX 1000000000u

static void limit_to(uint64_t soft, uint64_t hard, uint64_t used, uint64_t *total, uint64_t *free)
{
	uint64_t most = hard != 0 ? hard : soft;
	uint64_t left = most > used ? most - used : 0;

	if (most == 0)
		return;
	*total = most < *total ? most : *total;
	*free = left < *free ? left : *free;
}

/* Limits totals and free space to what the quota allows. */
static void limit(struct store *s, uint32_t project, struct mds_statfs_rep *out)
{
	const struct quota *q = quota_find(s, project);
	uint64_t avail = out->avail;

	if (q == NULL)
		return;
	limit_to(q->rec.bytes_soft, q->rec.bytes_hard, q->rec.bytes + q->reserved, &out->total,
		 &out->free);
	out->avail = out->free < avail ? out->free : avail;
	limit_to(q->rec.inodes_soft, q->rec.inodes_hard, q->rec.inodes, &out->inodes,
		 &out->inodes_free);
}

int mds_statfs(struct op *op, const void *vin, void *vout)
{
	struct mds_statfs_rep *out = vout;
	uint64_t n = op->store->counters.n_inodes;

	const struct mds_statfs_req *in = vin;
	const struct inode_rec *rec;

	cluster_space(&op->m->cluster, &out->total, &out->free);
	out->free = preallocated_space(op);
	out->avail = out->free;
	out->inodes = n < INODES_MAX ? INODES_MAX : n;
	out->inodes_free = out->inodes - n;
	if (in->ino.v == 0)
		return 0;
	TRY(file_get(op, in->ino, VIEW_DURABLE, NULL, &rec));
	limit(op->store, rec->attr.project, out);
	return 0;
}
