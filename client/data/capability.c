/* SPDX-License-Identifier: Apache-2.0 */
#include "client/data/capability.h"

#include <fcntl.h>
#include <stdlib.h>

#include "client/base/background.h"
#include "client/cache/attr_cache.h"
#include "client/cache/inode_cache.h"
#include "client/cache/lease_grant.h"
#include "client/client.h"
#include "client/servers/chain_call.h"
#include "client/servers/mds_call.h"
#include "client/servers/open_count.h"
#include "client/servers/replica_select.h"
#include "client/servers/session.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/proto/mds_proto.h"
#include "common/rpc/rpc.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

#define CAP_TRIES       4
/* About five seconds in all: many heartbeats. */
#define EXPIRED_TRIES       10
#define EXPIRED_WAIT_US     50000u
#define EXPIRED_WAIT_MAX_US 1000000u
#define EXPIRED_TELL_US     60000000u

struct cred cap_renew_cred(const struct inode_io *d)
{
	/* Rights were checked when the file was opened; in POSIX they last as long as the file is
	 * open. */
	return (struct cred){.uid = d->renew_uid, .gid = d->renew_gid, .flags = CRED_CHECKED};
}

void cap_set(struct inode_io *d, const struct cap *cap)
{
	if (cap->rights & CAP_READ) {
		d->caps[CAP_TO_READ] = d->inode->cap = *cap;
		d->cap_gens[CAP_TO_READ] = d->inode->cap_gen = d->c->session_gen;
	}
	if (cap->rights & CAP_WRITE) {
		d->caps[CAP_TO_WRITE] = *cap;
		d->cap_gens[CAP_TO_WRITE] = d->c->session_gen;
	}
}

static bool cap_good(const struct inode_io *d, enum cap_right right)
{
	return d->cap_gens[right] == d->c->session_gen &&
	       d->caps[right].gen == d->inode->attr.layout.gen;
}

static void count_renewal(struct inode_io *d, uint32_t flags, int by)
{
	uint32_t *n = (flags & O_ACCMODE) == O_RDONLY ? &d->n_read : &d->n_write;

	*n += (uint32_t)by;
	if ((flags & O_APPEND) != 0)
		d->n_append += (uint32_t)by;
}

int cap_close(struct inode_io *d, struct mds_close_req *req)
{
	struct client *c = d->c;
	struct inode *i = d->inode;
	const bool writing = (req->flags & O_ACCMODE) != O_RDONLY;
	struct mds_close_rep rep;
	struct rpc_call call;
	uint32_t gen;
	bool again;
	int rc;

	do {
		gen = c->session_gen;
		rc = mds_call_lasting(c, OP_mds_close, req, &rep, &call, &d->n_late);
		/* In the new session the file is open again. */
		again = rc == -LE_IO && gen != c->session_gen && !c->stopping;
		if (again)
			rpc_call_fini(&call);
		if (again && writing)
			req->flags |= CLOSE_MUST_QUERY; /* other clients may have changed the
			                                 * file in between */
	} while (again);
	rpc_call_fini(&call);
	log_debug("client %s: closed ino %llu, dirty %u, size %llu: %s", c->name,
		  (unsigned long long)i->ino.v, req->dirty, (unsigned long long)req->size,
		  status_name(rc));
	TRY(rc);
	if ((req->flags & CLOSE_UNCOUNTED) == 0)
		session_closed(d, req->flags);
	/* The record at the MDS now differs from the attributes at the time of the open. */
	if (writing) {
		i->attr_us = 0;
		i->settled_us = 0;
	}
	if (rep.attr.ino.v != 0)
		inode_update(c, i, &rep.attr, true, call.sent_us);
	return 0;
}

struct renewal {
	struct inode_io *d;
	uint32_t end;
};

static void renewal_end(void *arg)
{
	struct renewal r = *(struct renewal *)arg;
	struct inode_io *d = r.d;
	struct inode *i = d->inode;
	struct client *c = d->c;
	struct mds_close_req req = {.ino = i->ino, .flags = r.end};
	int rc = cap_close(d, &req);

	free(arg);
	count_renewal(d, r.end, -1);
	if (d->n_read + d->n_write == 0) /* no other open of this client */
		lease_shared_end(c, i);
	(void)rc; /* an error means that the session or the client ends, and with it its opens */
	inode_put(c, i);
	client_bg_end(c);
}

int cap_reopen(struct inode_io *d, uint32_t flags, uint32_t end_flags)
{
	/* The file is open, and may no longer have a name. */
	struct mds_open_req req = {
		.cred = cap_renew_cred(d), .ino = d->inode->ino, .flags = flags | OPEN_ORPHAN};
	struct renewal *end = malloc(sizeof(*end));
	struct mds_open_rep rep;
	struct rpc_call call;
	int rc;

	if (end == NULL)
		return -LE_NOMEM;
	*end = (struct renewal){d, end_flags};
	rc = mds_call_uninterruptible(d->c, OP_mds_open, &req, &rep, &call);
	if (rc >= 0) {
		inode_update(d->c, d->inode, &rep.attr, false, call.sent_us);
		inode_opened(d->inode, flags);
		cap_set(d, &rep.cap);
	}
	rpc_call_fini(&call);
	if (rc < 0) {
		free(end);
		return rc;
	}
	/* A server that restarts in between must count this open too; else the close would end
	 * another open. */
	session_opened(d, flags, call.session);
	count_renewal(d, flags, 1);
	inode_ref(d->inode);
	if (client_bg_spawn(d->c, "renewed", renewal_end, end) < 0) {
		latch_add(&d->c->bg, 1);
		renewal_end(end);
	}
	return 0;
}

/* Renews a capability, which the MDS grants with an open. Yields. */
static int renew(struct inode_io *d, enum cap_right right)
{
	/* the MDS refuses other opens */
	bool append = (d->inode->attr.flags & ATTR_APPEND) != 0;
	uint32_t flags = right == CAP_TO_WRITE ? O_RDWR | (append ? O_APPEND : 0) : O_RDONLY;

	/* The file must stay open; else the client would not report its size to the MDS. */
	if (right == CAP_TO_WRITE && d->lost_gen == d->c->session_gen)
		TRY(session_await(d));
	if (!cap_good(d, right))
		TRY(cap_reopen(d, flags, flags));
	return cap_good(d, right) ? 0 : -LE_STALE;
}

int cap_get(struct inode_io *d, enum cap_right right, struct cap *ret_cap)
{
	int rc = 0;

	if (!cap_good(d, right)) {
		fmutex_lock(&d->cap_lock);
		if (!cap_good(d, right))
			rc = renew(d, right);
		fmutex_unlock(&d->cap_lock);
	}
	if (rc >= 0)
		*ret_cap = d->caps[right];
	return rc;
}

void cap_void(struct inode_io *d, const struct cap *cap, enum cap_right right)
{
	if (d->caps[right].mac_lo == cap->mac_lo && d->caps[right].mac_hi == cap->mac_hi)
		d->cap_gens[right] = 0;
}

/* One request, and the renewals of its capability. */
struct again {
	struct inode_io *d;
	struct cap_auth *auth;
	uint32_t session_gen;
	int refused, gone; /* how often the capability was refused; how often the session had
	                    * ended */
	bool given_up;
};

/* Waits before another try. A new capability that was refused as expired becomes valid when the
 * object server has received the metadata server's clock, with the next heartbeat. Yields. */
static int await_clock(const struct again *a)
{
	uint64_t us = EXPIRED_WAIT_US << (a->refused - 2);

	return fiber_sleep_us(us < EXPIRED_WAIT_MAX_US ? us : EXPIRED_WAIT_MAX_US);
}

/* Logs the problem, at most once in EXPIRED_TELL_US. */
static void log_expired(const struct inode_io *d)
{
	struct client *c = d->c;

	if (c->expired_logged_us != 0 && loop_now_us() < c->expired_logged_us + EXPIRED_TELL_US)
		return;
	c->expired_logged_us = loop_now_us();
	log_error("client %s: ino %llu: an object server refuses new capabilities as expired: the "
		  "metadata server's clock jumps, or the object server has no contact to it; "
		  "compare the servers' clocks with `leat status`",
		  c->name, (unsigned long long)d->inode->ino.v);
}

/* Called when a capability was refused: voids it. Returns 0 if a new one may be requested.
 * Yields. */
static int may_renew(struct again *a, int status)
{
	cap_void(a->d, a->auth->cap, a->auth->right);
	a->refused++;
	if (status == -LE_CAP_EXPIRED) {
		if (a->refused < EXPIRED_TRIES && loop_now_us() < fiber_deadline())
			return a->refused > 1 ? await_clock(a) : 0;
		log_expired(a->d);
	} else if (a->refused < CAP_TRIES) {
		return 0;
	}
	a->given_up = true;
	return status;
}

/* The hook replica_route.renew, for a mutation that may have been executed in an earlier attempt.
 * Yields. */
static int renew_refused(void *arg, int status)
{
	struct again *a = arg;
	struct inode_io *d = a->d;
	struct cap cap;

	TRY(may_renew(a, status));
	TRY(cap_get(d, a->auth->right, &cap));
	/* The (slot, seq) is valid only in its session, and for the same data generation. */
	if (a->session_gen != d->c->session_gen || cap.gen != *a->auth->gen)
		return -LE_BAD_CAP;
	*a->auth->cap = cap;
	return 0;
}

/* Called when a request was not executed, because of its capability or session. Returns 0 if it may
 * be repeated. Yields. */
static int may_repeat(struct again *a, const struct replica_route *replica_route, int status)
{
	/* In another session, or under another (slot, seq), a server cannot recognise a mutation
	 * that it has executed before. It would execute it again, over later writes of other
	 * clients. */
	if (replica_route->unknown && (a->auth->session_gen == 0 || cap_is_refused(status)))
		return -LE_IO;
	if (a->given_up || (status == -LE_SESSION_GONE && ++a->gone == CAP_TRIES))
		return status;
	return cap_is_refused(status) ? may_renew(a, status) : 0;
}

int cap_call(struct inode_io *d, uint64_t idx, struct rpc_call *call, struct cap_auth *auth,
	    struct replica_route *replica_route)
{
	struct again again = {.d = d, .auth = auth};
	struct layout layout;
	int rc;

	if (auth->right == CAP_TO_WRITE) {
		replica_route->renew = renew_refused;
		replica_route->renew_arg = &again;
	}
	for (;;) {
		TRY(cap_get(d, auth->right, auth->cap));
		if (auth->session_gen != 0 && auth->session_gen != d->c->session_gen)
			return -LE_SESSION_GONE;
		layout = d->inode->attr.layout;
		again.session_gen = d->c->session_gen;
		*auth->gen = auth->cap->gen;
		rc = oss_call(d->c, &layout, idx, call, replica_route);
		if (!cap_is_refused(rc) && rc != -LE_SESSION_GONE)
			break;
		rc = may_repeat(&again, replica_route, rc);
		if (rc < 0)
			break;
	}
	return rc == -LE_SESSION_GONE && auth->session_gen == 0 ? -LE_IO : rc;
}
