/* SPDX-License-Identifier: Apache-2.0 */
/* Sets attributes and the size of a file (ll_setattr). */

#include <stddef.h>

#include "client/cache/attr_cache.h"
#include "client/cache/inode_cache.h"
#include "client/cache/lease_grant.h"
#include "client/cache/prefetch_cache.h"
#include "client/client.h"
#include "client/data/flush.h"
#include "client/data/open_file.h"
#include "client/data/size.h"
#include "client/data/sync.h"
#include "client/ll.h"
#include "client/ops/delegated_open.h"
#include "client/ops/own_change.h"
#include "client/ops/removed_dir.h"
#include "client/ops/truncation.h"
#include "client/servers/mds_call.h"
#include "common/proto/mds_proto.h"
#include "common/proto/types.h"
#include "common/rpc/rpc.h"

/* Flushes data that must be written before a change of size or times. Yields. */
static int settle_before(struct inode *i, uint32_t mask)
{
	if (i->data == NULL || !(mask & (SET_SIZE | SET_MTIME | SET_MTIME_NOW)))
		return 0;
	return wb_flush(i->data);
}

/* Returns the time of the newest write that a server has confirmed; 0: uncertain. */
static int64_t last_written(const struct inode *i)
{
	const struct inode_io *d = i->data;

	if (d == NULL || d->size_unverified || d->err_gen != 0)
		return 0;
	return d->mtime_ns > i->attr.chains_ns ? d->mtime_ns : i->attr.chains_ns;
}

int ll_setattr(struct client *c, const struct cred *cred, struct ino ino, struct ll_file *file,
	       uint32_t mask, const struct attr *attr, struct attr *ret_attr)
{
	struct mds_setattr_req req = {.cred = *cred, .ino = ino, .mask = mask, .attr = *attr};
	struct mds_setattr_rep rep;
	struct pending_change ch;
	struct rpc_call call = {0};
	struct inode *i = inode_get(c, ino);
	int rc;

	if (i == NULL)
		return -LE_NOMEM;
	/* The right to truncate came with the open. */
	if (file != NULL && file->can_write && (mask & SET_SIZE))
		req.cred.flags |= CRED_CHECKED;
	/* A close that arrives later would set the time of the last write. */
	rc = mask & (SET_MTIME | SET_MTIME_NOW) ? sync_wait_closing(i) : 0;
	if (rc >= 0)
		rc = settle_before(i, mask);
	if (rc >= 0 && i->data != NULL && (mask & SET_SIZE)) {
		ra_drop_all(i->data);
		rc = delegation_report(c, i);
	}
	if (rc >= 0) {
		pending_change_begin(c, &ch, ino);
		rc = mask & SET_SIZE ? truncate_flush(i) : 0;
		req.attr.chains_ns = last_written(i);
		if (rc >= 0)
			rc = mds_call(c, OP_mds_setattr, &req, &rep, &call);
		if (change_outcome_unknown(rc) && (mask & SET_SIZE))
			lease_invalidate_data(c, i);
		else if (rc < 0 && (mask & SET_SIZE))
			lease_invalidate(i);
		pending_change_end(&ch, rc);
		rpc_call_fini(&call);
	}
	if (rc >= 0) {
		inode_update(c, i, &rep.attr, true, call.sent_us);
		if (mask & SET_SIZE) {
			if (i->data != NULL && attr->size > i->data->size)
				i->data->sparse = true;
			inode_truncated(i, &rep.attr);
			if (i->data != NULL && attr->size > 0)
				i->data->sparse = true;
		}
		rc = size_settle(c, i, &rep.attr);
		if (rc == -LE_ACCES || rc == -LE_PERM)
			rc = 0;
	}
	if (rc >= 0 && ret_attr != NULL)
		inode_attr(c, i, ret_attr);
	else if (rc == -LE_STALE)
		rc = removed_dir_set(c, &req, i, ret_attr);
	inode_put(c, i);
	return rc;
}
