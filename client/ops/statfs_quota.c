/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of ll.h about a whole file system or tree: statfs, quotas, layouts. */

#include <stdlib.h>

#include "client/cache/attr_cache.h"
#include "client/client.h"
#include "client/ll.h"
#include "client/ops/lookup.h"
#include "client/ops/own_change.h"
#include "client/servers/mds_call.h"
#include "common/base/status.h"
#include "common/proto/mds_proto.h"
#include "common/proto/types.h"
#include "common/rpc/rpc.h"

int ll_quota_set(struct client *c, const struct mds_quota_set_req *req, struct attr *ret_attr,
		 bool *ret_made)
{
	struct mds_quota_set_rep rep;
	struct rpc_call call;
	int rc = mds_call(c, OP_mds_quota_set, req, &rep, &call);

	rpc_call_fini(&call);
	TRY(rc);
	*ret_made = rep.made != 0;
	return lookup_note(c, &req->cred, &rep.attr, call.sent_us, ret_attr);
}

int ll_quota_get(struct client *c, struct ino ino, struct mds_quota_get_rep *ret_q)
{
	struct mds_quota_get_req req = {.ino = ino};
	struct rpc_call call;
	int rc = mds_call(c, OP_mds_quota_get, &req, ret_q, &call);

	rpc_call_fini(&call);
	return rc < 0 ? rc : 0;
}

int ll_statfs(struct client *c, struct ino ino, struct ll_statfs *ret_st)
{
	struct mds_statfs_req req = {.ino = ino};
	struct mds_statfs_rep rep;
	struct rpc_call call;
	int rc;

	rc = mds_call(c, OP_mds_statfs, &req, &rep, &call);
	rpc_call_fini(&call);
	TRY(rc);
	*ret_st = (struct ll_statfs){rep.total, rep.free, rep.avail, rep.inodes, rep.inodes_free};
	return 0;
}

int ll_layout_set(struct client *c, const struct cred *cred, struct ino ino,
		  const struct layout *layout, struct attr *ret_attr)
{
	struct mds_layout_set_req req = {.cred = *cred, .ino = ino, .layout = *layout};
	struct mds_layout_set_rep rep;
	struct rpc_call call;
	struct pending_change ch;
	struct ino reported_ino;
	int rc;

	pending_change_begin(c, &ch, ino);
	rc = pending_change_report(&ch, ino, &reported_ino);
	if (rc >= 0) {
		rc = mds_call(c, OP_mds_layout_set, &req, &rep, &call);
		rpc_call_fini(&call);
	}
	pending_change_end(&ch, rc);
	TRY(rc);
	inode_saw(c, &rep.attr, true, call.sent_us);
	return lookup_note(c, cred, &rep.attr, call.sent_us, ret_attr);
}
