/* SPDX-License-Identifier: Apache-2.0 */
#include "client/data/sync.h"

#include <stddef.h>

#include "client/cache/inode_cache.h"
#include "client/client.h"
#include "client/data/capability.h"
#include "client/data/size.h"
#include "client/data/write_request.h"
#include "client/servers/chain_call.h"
#include "client/servers/cluster_map.h"
#include "client/servers/mds_call.h"
#include "client/servers/replica_select.h"
#include "common/base/status.h"
#include "common/proto/mds_proto.h"
#include "common/proto/oss_proto.h"
#include "common/proto/types.h"
#include "common/rpc/rpc.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

struct sync_part {
	struct inode_io *d;
	uint64_t idx;
	struct ino ino;
	int status;
	bool lost;
};

static void sync_part(void *arg)
{
	struct sync_part *p = arg;
	struct oss_sync_req req = {.ino = p->ino};
	struct oss_sync_rep rep;
	struct rpc_call call = {.op = OP_oss_sync, .req = &req, .rep = &rep};
	struct replica_route replica_route = {.head = true};

	p->status = oss_call(p->d->c, &p->d->inode->attr.layout, p->idx, &call, &replica_route);
	p->lost = p->status >= 0 && rep.lost;
	rpc_call_fini(&call);
}

int sync_accepted(struct inode_io *d, bool readers, bool *ret_lost)
{
	uint32_t width = map_width(d->c, &d->inode->attr.layout);
	struct ino ino = readers ? d->inode->ino : (struct ino){0};
	struct sync_part parts[STAT_WIDTH];

	if (ret_lost != NULL)
		*ret_lost = false;
	for (uint32_t at = 0, n; at < width; at += n) {
		n = width - at < STAT_WIDTH ? width - at : STAT_WIDTH;
		for (uint32_t i = 0; i < n; i++)
			parts[i] = (struct sync_part){d, at + i, ino, 0, false};
		fiber_parallel("oss_sync", sync_part, parts, sizeof(*parts), n, n);
		for (uint32_t i = 0; i < n; i++) {
			TRY(parts[i].status);
			if (ret_lost != NULL && parts[i].lost)
				*ret_lost = true;
		}
	}
	return 0;
}

/* The MDS delays a lazy close until the file is requested: requests it. Yields. */
static void expedite_closing(struct inode_io *d)
{
	struct cred cred = cap_renew_cred(d);
	struct mds_getattr_req req = {.cred = cred, .ino = d->inode->ino};
	struct mds_getattr_rep rep;
	struct rpc_call call;
	int rc = mds_call(d->c, OP_mds_getattr, &req, &rep, &call);

	/* If that fails, the close takes its usual time. */
	(void)rc;
	rpc_call_fini(&call);
}

int sync_wait_closing(struct inode *i)
{
	struct inode_io *d = i->data;
	int rc = 0;

	if (d == NULL || d->n_closing == 0)
		return 0;
	wb_expedite(d);
	d->n_close_waiters++;
	waitq_wake_all(&d->c->piggyback_q);
	if (d->n_lazy > 0)
		expedite_closing(d);
	while (rc == 0 && d->n_closing > 0) {
		uint64_t until_us = loop_deadline_ms(d->c->params.request_timeout_ms);

		if (until_us > fiber_deadline())
			until_us = fiber_deadline();
		rc = waitq_wait(&d->closing_q, until_us);
		/* The wait lasts as long as the data takes to be written, but ends if a server is
		 * unreachable. */
		if (rc == -LE_TIMEDOUT && d->n_late == 0 && until_us < fiber_deadline())
			rc = 0;
	}
	d->n_close_waiters--;
	return rc == -LE_TIMEDOUT ? -LE_IO : rc;
}
