/* SPDX-License-Identifier: Apache-2.0 */
#include "client/data/chunk_lease.h"

#include <stdlib.h>

#include "client/base/background.h"
#include "client/cache/inode_cache.h"
#include "client/client.h"
#include "client/data/capability.h"
#include "client/ll.h"
#include "client/servers/replica_select.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/proto/oss_proto.h"
#include "common/rpc/rpc.h"

struct ll_chunk_leases *chunk_leases_make(struct inode_io *d)
{
	struct ll_chunk_leases *l = calloc(1, sizeof(*l));

	if (l == NULL)
		return NULL;
	l->d = d;
	/* Leases of the previous process may still exist, under the same session. */
	l->number = d->c->seq_base + ++d->c->n_chunk_leases;
	l->hole = UINT64_MAX;
	inode_ref(d->inode);
	return l;
}

void chunk_leases_add(struct ll_chunk_leases *l, uint64_t idx)
{
	for (uint32_t k = 0; k < l->n; k++)
		if (l->idx[k] == idx)
			return;
	if (l->n < READ_CHUNKS_MAX)
		l->idx[l->n++] = idx;
}

/* Releases the lease on one chunk. Yields. */
static void give_back(struct ll_chunk_leases *l, uint64_t idx)
{
	struct inode_io *d = l->d;
	struct oss_release_req req = {.chunk = {.ino = d->inode->ino, .idx = idx},
				      .lease = l->number};
	struct oss_release_rep rep;
	struct rpc_call call = {.op = OP_oss_release, .req = &req, .rep = &rep};
	struct cap_auth auth = {.right = CAP_TO_READ, .cap = &req.cap, .gen = &req.chunk.gen};
	struct replica_route replica_route = {.head = true};
	int rc = cap_call(d, idx, &call, &auth, &replica_route);

	rpc_call_fini(&call);
	if (rc < 0) /* it expires by itself */
		log_debug("cannot release lease on ino %llu chunk %llu: %s",
			  (unsigned long long)d->inode->ino.v, (unsigned long long)idx,
			  status_name(rc));
}

static void leases_free(struct ll_chunk_leases *l)
{
	inode_put(l->d->c, l->d->inode);
	free(l);
}

static void give_back_fiber(void *arg)
{
	struct ll_chunk_leases *l = arg;
	struct client *c = l->d->c;

	for (uint32_t k = 0; k < l->n; k++)
		give_back(l, l->idx[k]);
	leases_free(l);
	client_bg_end(c);
}

void ll_release_leases(struct ll_chunk_leases *l)
{
	struct client *c = l->d->c;

	if (l->n == 0 || c->stopping ||
	    client_bg_spawn(c, "release-chunks", give_back_fiber, l) < 0)
		leases_free(l);
}
