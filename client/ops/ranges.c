/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of ll.h that change a range of a file on the servers: fallocate and copy. */

#include "client/cache/attr_cache.h"
#include "client/cache/inode_cache.h"
#include "client/cache/lease_grant.h"
#include "client/cache/prefetch_cache.h"
#include "client/data/capability.h"
#include "client/data/flush.h"
#include "client/data/open_file.h"
#include "client/ll.h"
#include "client/ops/delegated_open.h"
#include "client/ops/own_change.h"
#include "client/ops/truncation.h"
#include "client/servers/mds_call.h"
#include "common/base/assert.h"
#include "common/base/status.h"
#include "common/proto/mds_proto.h"
#include "common/rpc/rpc.h"

/* Returns the credentials for a change of data. The MDS removes set-id bits unless the user is
 * root. Where the caller itself decides about set-id bits, root is sent instead of the user of the
 * last open. */
static struct cred change_cred(const struct ll_file *f)
{
	struct cred cred = cap_renew_cred(f->d);

	if (!f->kills_suid)
		cred.uid = 0;
	return cred;
}

int ll_fallocate(struct ll_file *file, uint32_t mode, uint64_t off, uint64_t len)
{
	struct ll_file *f = CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC);
	struct mds_fallocate_req req = {
		.cred = change_cred(f),
		.ino = f->inode->ino,
		.mode = mode,
		.off = off,
		.len = len,
	};
	struct mds_fallocate_rep rep;
	struct pending_change ch;
	struct rpc_call call;
	int rc;

	if (!f->can_write)
		return -LE_BADF;
	TRY(wb_flush(f->d));
	/* All data is with the chains by now, so the MDS, which queries them, does not treat any of
	 * it as beyond the end. */
	pending_change_begin(f->c, &ch, f->inode->ino);
	rc = mds_call(f->c, OP_mds_fallocate, &req, &rep, &call);
	if (change_outcome_unknown(rc))
		lease_invalidate_data(f->c, f->inode);
	pending_change_end(&ch, rc);
	rpc_call_fini(&call);
	TRY(rc);
	f->d->sparse = true;
	ra_drop_all(f->d);
	f->inode->n_truncations++; /* invalidates a query of the size in progress */
	inode_update(f->c, f->inode, &rep.attr, true, call.sent_us);
	f->inode->settled_us = 0;
	return 0;
}

static bool may_copy(const struct ll_file *f, uint64_t off, const struct ll_file *to,
		     uint64_t to_off)
{
	uint32_t chunk = f->inode->attr.layout.chunk_size;

	return chunk != 0 && to->inode->attr.layout.chunk_size == chunk && off % chunk == 0 &&
	       to_off % chunk == 0 && f->inode != to->inode && f->d->n_write == 0 && !to->append &&
	       to->d->n_write == 1; /* no other writer has data in the range that a failed copy
	                             * truncates */
}

int64_t ll_copy(struct ll_file *file, uint64_t off, struct ll_file *to_file, uint64_t to_off,
		uint64_t len)
{
	struct ll_file *f = CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC);
	struct ll_file *to = CAST_OBJ(to_file, struct ll_file, LL_FILE_MAGIC);
	struct inode_io *d = to->d;
	struct mds_copy_req req = {
		.cred = change_cred(to),
		.ino = f->inode->ino,
		.off = off,
		.to = to->inode->ino,
		.to_off = to_off,
		.len = len,
	};
	struct mds_copy_rep rep;
	struct pending_change ch;
	struct rpc_call call;
	int rc;

	if (!f->can_read || !to->can_write)
		return -LE_BADF;
	if (!may_copy(f, off, to, to_off))
		return -LE_NOTSUP;
	TRY(wb_flush(d));
	req.to_size = d->size;
	if (d->size > to_off)
		return -LE_NOTSUP;
	pending_change_begin(f->c, &ch, to->inode->ino);
	rc = delegation_report(f->c, f->inode);
	if (rc >= 0) {
		rc = mds_call(f->c, OP_mds_copy, &req, &rep, &call);
		rpc_call_fini(&call);
		if (rc >= 0 && rep.len > req.len)
			rc = -LE_BAD_MESSAGE;
	}
	pending_change_end(&ch, rc);
	TRY(rc);
	to->wrote = true;
	d->sparse = true;
	if (d->durable_end < to_off + rep.len)
		d->durable_end = to_off + rep.len;
	ra_drop_all(d);
	to->inode->n_truncations++; /* as with fallocate */
	inode_update(f->c, to->inode, &rep.attr, true, call.sent_us);
	to->inode->settled_us = 0;
	if (d->size < to_off + rep.len)
		d->size = to_off + rep.len;
	return (int64_t)rep.len;
}
