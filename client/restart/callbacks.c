/* SPDX-License-Identifier: Apache-2.0 */
#include "client/restart/callbacks.h"

#include "client/client.h"
#include "client/ops/file_lock.h"
#include "client/ops/recall.h"
#include "client/servers/cluster_map.h"
#include "common/base/assert.h"
#include "common/proto/mds_proto.h"

static bool recalls_caching(const struct cb_recall_req *req)
{
	return (req->modes & LEASE_CACHING) != 0;
}

int session_callback(void *arg, struct rpc_client *rpc, uint16_t op, const void *req, void *rep)
{
	struct client *c = CAST_OBJ(arg, struct client, CLIENT_MAGIC);

	(void)rpc, (void)rep;
	if (op == OP_cb_map_changed) {
		map_saw_epoch(c, ((const struct cb_map_changed_req *)req)->epoch);
		return 0;
	}
	/* The reply would mean that this client has reported all open files. */
	if (c->reporting &&
	    (op == OP_cb_owner || (op == OP_cb_recall && recalls_caching(req))))
		return -LE_NOT_READY;
	if (op == OP_cb_recall)
		return lease_recall(c, (const struct cb_recall_req *)req);
	if (op == OP_cb_owner)
		return lease_owner_changed(c, ((const struct cb_owner_req *)req)->ino);
	if (op == OP_cb_unlocked) {
		lock_unlocked(c, ((const struct cb_unlocked_req *)req)->ino);
		return 0;
	}
	return -LE_UNKNOWN_OP;
}
