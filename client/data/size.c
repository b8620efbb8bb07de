/* SPDX-License-Identifier: Apache-2.0 */
#include "client/data/size.h"

#include <stddef.h>
#include <sys/stat.h>

#include "client/base/background.h"
#include "client/cache/attr_cache.h"
#include "client/cache/inode_cache.h"
#include "client/cache/lease.h"
#include "client/cache/lease_grant.h"
#include "client/client.h"
#include "client/data/append.h"
#include "client/data/capability.h"
#include "client/data/flush.h"
#include "client/data/sync.h"
#include "client/servers/cluster_map.h"
#include "client/servers/mds_call.h"
#include "client/servers/replica_select.h"
#include "common/base/log.h"
#include "common/base/planted_bug.h"
#include "common/base/status.h"
#include "common/proto/mds_proto.h"
#include "common/proto/oss_proto.h"
#include "common/proto/ranges.h"
#include "common/proto/types.h"
#include "common/proto/wire.h"
#include "common/rpc/rpc.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

#define SECTOR          512u
#define TRUNC_WAIT_US     200u
#define TRUNC_WAIT_MAX_US 20000u

struct stat_part {
	struct inode_io *d;
	uint64_t idx;
	struct bytes preallocated;
	struct size_stored stored;
	int status;
};

static void stat_part(void *arg)
{
	struct stat_part *p = arg;
	struct oss_stat_req req = {
		.ino = p->d->inode->ino,
		.chunk_size = p->d->inode->attr.layout.chunk_size,
		.preallocated = p->preallocated,
	};
	struct oss_stat_rep rep;
	struct rpc_call call = {.op = OP_oss_stat, .req = &req, .rep = &rep};
	struct cap_auth auth = {.right = CAP_TO_READ, .cap = &req.cap, .gen = &req.gen};
	struct replica_route replica_route = {0};

	p->status = cap_call(p->d, p->idx, &call, &auth, &replica_route);
	/* The data of a lost chain no longer changes, and the size that the MDS has recorded
	 * includes it. */
	if (p->status == -LE_GIVEN_UP)
		p->status = 0;
	else if (p->status >= 0)
		p->stored = (struct size_stored){rep.size, rep.used, rep.covered, rep.mtime_ns};
	rpc_call_fini(&call);
}

int size_stat_chains(struct inode_io *d, struct bytes preallocated, struct size_stored *ret_stored)
{
	struct stat_part parts[STAT_WIDTH];
	struct size_stored sum = {0};
	uint32_t width = map_width(d->c, &d->inode->attr.layout);

	for (uint32_t at = 0; at < width;) {
		uint32_t n = width - at < STAT_WIDTH ? width - at : STAT_WIDTH;

		for (uint32_t i = 0; i < n; i++)
			parts[i] = (struct stat_part){
				.d = d, .idx = at + i, .preallocated = preallocated};
		fiber_parallel("oss_stat", stat_part, parts, sizeof(*parts), n, n);
		for (uint32_t i = 0; i < n; i++) {
			TRY(parts[i].status);
			if (parts[i].stored.size > sum.size)
				sum.size = parts[i].stored.size;
			if (parts[i].stored.mtime_ns > sum.mtime_ns)
				sum.mtime_ns = parts[i].stored.mtime_ns;
			sum.used += parts[i].stored.used;
			sum.covered += parts[i].stored.covered;
		}
		at += n;
	}
	*ret_stored = sum;
	return 0;
}

static int ask_attr(struct client *c, const struct cred *cred, struct inode *i,
		    struct attr *ret_attr)
{
	struct mds_getattr_req req = {.cred = *cred, .ino = i->ino};
	struct mds_getattr_rep rep;
	struct rpc_call call;
	int rc = mds_call(c, OP_mds_getattr, &req, &rep, &call);

	rpc_call_fini(&call);
	TRY(rc);
	inode_update(c, i, &rep.attr, false, call.sent_us);
	*ret_attr = rep.attr;
	return 0;
}

/* Returns true if the MDS would have recalled a lease here before any change. A sealed file is no
 * exception: a conversion can give its data another generation while the MDS considers this client
 * dead. */
static bool change_known(struct client *c, struct inode *i)
{
	return inode_attr_fresh(c, i) || lease_shared(c, i);
}

bool size_known_untruncated(struct client *c, struct inode *i, uint32_t n_truncations)
{
	return i->attr.n_truncations == n_truncations && change_known(c, i);
}

int size_truncated_since(struct client *c, struct inode *i, uint32_t n_truncations,
			 enum trunc_state *ret_state)
{
	struct cred cred = cap_renew_cred(i->data);
	struct attr attr = {.n_truncations = i->attr.n_truncations};

	if (!change_known(c, i))
		TRY(ask_attr(c, &cred, i, &attr));
	*ret_state = (attr.flags & ATTR_TRUNCATING) != 0 ? TRUNC_ACTIVE
		   : attr.n_truncations != n_truncations              ? TRUNC_MAYBE
						    : TRUNC_NONE;
	return 0;
}

int size_wait_untruncated(const struct client *c, struct trunc_patience *p)
{
	uint64_t now = loop_now_us();

	if (p->until_us == 0)
		p->until_us = client_deadline(c);
	if (now >= p->until_us)
		return -LE_IO;
	p->wait_us = p->wait_us == 0 ? TRUNC_WAIT_US : p->wait_us * 2;
	if (p->wait_us > TRUNC_WAIT_MAX_US)
		p->wait_us = TRUNC_WAIT_MAX_US;
	return fiber_sleep_us(p->wait_us);
}

/* Stores what the chains reported when they were queried at at_us, after write seq of this
 * client. */
static void take_stored(struct inode *i, const struct attr *attr, const struct size_stored *st,
			uint64_t at_us, uint64_t seq)
{
	struct inode_io *d = i->data;

	i->settled_us = at_us;
	i->attr.size = st->size > attr->size ? st->size : attr->size;
	i->attr.blocks = (st->used + SECTOR - 1) / SECTOR;
	if (attr_chains_time(&i->attr, st->mtime_ns))
		attr_take_written(&i->attr, st->mtime_ns);
	if (d->write_seq == seq && d->coalesce.slot == NULL) {
		d->size = i->attr.size;
		d->size_unverified = false;
	} else if (d->size < i->attr.size) {
		d->size = i->attr.size;
	}
}

/* Queries the chains, including how much of the preallocated ranges is unwritten, which `used` then
 * counts. attr: the file's; replaced by what the MDS reports with the ranges. Yields. */
static int stat_with_preallocated(struct client *c, struct inode *i, struct attr *attr,
			      struct size_stored *ret_st)
{
	struct cred cred = cap_renew_cred(i->data);
	struct mds_getattr_req req = {.cred = cred, .ino = i->ino};
	struct mds_getattr_rep rep;
	struct ranges preallocated;
	struct rpc_call call;
	int rc;

	if ((attr->flags & ATTR_PREPARED) == 0)
		return size_stat_chains(i->data, bytes_of(NULL, 0), ret_st);
	rc = mds_call(c, OP_mds_getattr, &req, &rep, &call);
	if (rc >= 0)
		rc = ranges_get(rep.preallocated, &preallocated);
	if (rc >= 0) {
		inode_update(c, i, &rep.attr, false, call.sent_us);
		*attr = rep.attr;
		rc = size_stat_chains(i->data, rep.preallocated, ret_st);
	}
	rpc_call_fini(&call);
	if (rc >= 0)
		ret_st->used += ranges_bytes(&preallocated) - ret_st->covered;
	return rc;
}

/* One attempt. Returns 1 if the chains must be queried again, and attr is then the MDS's present
 * state. Yields. */
static int settle_once(struct client *c, struct inode *i, struct attr *attr,
		       struct trunc_patience *p)
{
	struct inode_io *d = i->data;
	struct cred cred = cap_renew_cred(d);
	uint64_t at_us = loop_now_us(), seq;
	uint32_t n_truncations = i->n_truncations;
	enum trunc_state truncated = TRUNC_NONE;
	struct size_stored st;

	/* The chains then have all writes of this client; other clients may have truncated some of
	 * them. */
	TRY(wb_flush_visible(d));
	seq = d->write_seq;
	TRY(stat_with_preallocated(c, i, attr, &st));
	/* A truncation works chain by chain, and is reported when all are done. */
	if (!PLANTED_BUG(CLIENT_TRUST_HOLES))
		TRY(size_truncated_since(c, i, attr->n_truncations, &truncated));
	if (truncated == TRUNC_ACTIVE)
		TRY(size_wait_untruncated(c, p));
	if (truncated == TRUNC_NONE && i->n_truncations == n_truncations) {
		take_stored(i, attr, &st, at_us, seq);
		return 0;
	}
	TRY(ask_attr(c, &cred, i, attr));
	return 1;
}

/* For a file with writers: returns true if this client is the only one and its size is verified. */
static bool knows_size(const struct client *c, const struct inode *i)
{
	return lease_held(c, i) && !inode_size_is_unverified(i);
}

int size_settle(struct client *c, struct inode *i, const struct attr *attr)
{
	struct trunc_patience patience = {0};
	struct attr known = *attr;
	int rc;

	do {
		struct inode_io *d;

		if (!(i->attr.flags & ATTR_UNSETTLED) || !S_ISREG(i->attr.mode) ||
		    (i->settled_us != 0 && knows_size(c, i)))
			return 0;
		TRY(inode_data(c, i, &d));
		rc = settle_once(c, i, &known, &patience);
	} while (rc > 0);
	return rc;
}

/* A user without the right to read gets the MDS's values, unsettled. */
static int settle_if_allowed(struct client *c, struct inode *i, const struct attr *attr)
{
	int rc = size_settle(c, i, attr);

	return rc == -LE_ACCES || rc == -LE_PERM || rc == -LE_STALE || rc == -LE_NOENT ? 0 : rc;
}

int size_request_attr(struct client *c, const struct cred *cred, struct inode *i)
{
	struct attr attr;

	return ask_attr(c, cred, i, &attr);
}

int size_refresh_rights(struct client *c, const struct cred *cred, struct inode *i)
{
	return inode_attr_fresh(c, i) || lease_shared(c, i) ? 0 : size_request_attr(c, cred, i);
}

int size_wait_times(struct inode *i)
{
	if (!size_times_are_open(i))
		return 0;
	/* An error of the write is reported to its writer. */
	return wb_flush(i->data) == -LE_INTR ? -LE_INTR : 0;
}

void size_settled_attr(const struct client *c, const struct inode *i, struct attr *ret_attr)
{
	inode_attr(c, i, ret_attr);
	/* The chains have this client's writes too, and other clients' truncations of them. */
	if ((i->attr.flags & ATTR_UNSETTLED) != 0 && i->settled_us != 0 && !knows_size(c, i))
		ret_attr->size = i->attr.size;
	ret_attr->flags &= ~(uint32_t)ATTR_UNSETTLED;
}

static int ask_all(struct client *c, const struct cred *cred, struct inode *i)
{
	struct attr attr;
	bool shared = false; /* a cached reply of the MDS is valid */

	TRY(size_wait_times(i));
	attr = i->attr;
	if (!inode_attr_fresh(c, i)) {
		TRY(sync_wait_closing(i));
		i->settled_us = 0; /* too old */
		shared = lease_shared(c, i);
		attr = i->attr;
		/* As the MDS reports it: i->attr may have an older size from another fiber. */
		if (!shared)
			TRY(ask_attr(c, cred, i, &attr));
	}
	if (shared)
		attr.size = i->shared_size;
	return settle_if_allowed(c, i, &attr);
}

int size_get_attr(struct client *c, const struct cred *cred, struct inode *i, struct attr *ret_attr)
{
	TRY(ask_all(c, cred, i));
	size_settled_attr(c, i, ret_attr);
	return 0;
}

/* A client that is the last one to use a shared file queries once in this time, and gets a write
 * lease. */
#define SHARED_AGAIN_US 1000000u

/* Returns true if the MDS counts opens of this client. Opens that are being closed do not count,
 * because the MDS may have removed them already. */
static bool is_counted(const struct inode_io *d)
{
	return d != NULL && d->n_read + d->n_write > d->n_closing;
}

static void reask_fiber(void *arg)
{
	struct inode_io *d = arg;
	struct client *c = d->c;
	struct inode *i = d->inode;
	struct cred cred = cap_renew_cred(d);
	int rc = size_request_attr(c, &cred, i);

	if (rc < 0) /* a caller that needs the answer queries again */
		log_debug("client %s: cannot query ino %llu: %s", c->name,
			  (unsigned long long)i->ino.v, status_name(rc));
	d->reasking = false;
	inode_put(c, i);
	client_bg_end(c);
}

static void reask(struct client *c, struct inode *i)
{
	struct inode_io *d = i->data;

	if (d->reasking || loop_now_us() < i->attr_us + SHARED_AGAIN_US || c->stopping)
		return;
	d->reasking = true;
	inode_ref(i);
	if (client_bg_spawn(c, "reask", reask_fiber, d) == 0)
		return;
	d->reasking = false;
	inode_put(c, i);
}

bool lease_shared(struct client *c, struct inode *i)
{
	if (!lease_shared_lasts(c, i) || i->attr_us == 0 || i->n_changing > 0 ||
	    !is_counted(i->data))
		return false;
	reask(c, i);
	return true;
}
