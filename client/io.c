#include "client/io.h"

#include <stdlib.h>

#include "client/kept.h"
#include "client/retry.h"
#include "client/session.h"
#include "common/base/fault.h"
#include "common/base/log.h"
#include "common/proto/ranges.h"

#define CAP_TRIES       4
#define STAT_WIDTH      16u
#define SECTOR          512u
#define CUT_WAIT_US     200u
#define CUT_WAIT_MAX_US 20000u

struct cred io_renew_cred(const struct idata *d)
{
	/* Rights were checked when the file was opened and stay, as POSIX wants it. */
	return (struct cred){.uid = d->renew_uid, .gid = d->renew_gid, .flags = CRED_CHECKED};
}

void io_take_cap(struct idata *d, const struct cap *cap)
{
	if (cap->rights & CAP_READ) {
		d->caps[IO_READ] = d->inode->cap = *cap;
		d->cap_gens[IO_READ] = d->inode->cap_gen = d->c->session_gen;
	}
	if (cap->rights & CAP_WRITE) {
		d->caps[IO_WRITE] = *cap;
		d->cap_gens[IO_WRITE] = d->c->session_gen;
	}
}

static bool cap_good(const struct idata *d, enum io_right right)
{
	return d->cap_gens[right] == d->c->session_gen &&
	       d->caps[right].gen == d->inode->attr.layout.gen;
}

static void count_renewal(struct idata *d, uint32_t flags, int by)
{
	uint32_t *n = (flags & O_ACCMODE) == O_RDONLY ? &d->n_read : &d->n_write;

	*n += (uint32_t)by;
	if ((flags & O_APPEND) != 0)
		d->n_append += (uint32_t)by;
}

int io_close(struct idata *d, struct mds_close_req *req)
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
		/* In another session it is open again, as all that was. */
		again = rc == -LE_IO && gen != c->session_gen && !c->stopping;
		if (again)
			rpc_call_fini(&call);
		if (again && writing)
			req->flags |= CLOSE_ASK; /* others may have changed it between the two */
	} while (again);
	rpc_call_fini(&call);
	log_debug("client %s: close of ino %llu, dirty %u, size %llu: %s", c->name,
		  (unsigned long long)i->ino.v, req->dirty, (unsigned long long)req->size,
		  status_name(rc));
	TRY(rc);
	if ((req->flags & CLOSE_UNCOUNTED) == 0)
		session_closed(d, req->flags);
	/* What the MDS has now is not what we were told when the file was opened. */
	if (writing) {
		i->attr_us = 0;
		i->settled_us = 0;
	}
	if (rep.attr.ino.v != 0)
		inode_update(c, i, &rep.attr, true, call.sent_us);
	return 0;
}

struct renewal {
	struct idata *d;
	uint32_t end;
};

static void renewal_end(void *arg)
{
	struct renewal r = *(struct renewal *)arg;
	struct idata *d = r.d;
	struct inode *i = d->inode;
	struct client *c = d->c;
	struct mds_close_req req = {.ino = i->ino, .flags = r.end};
	int rc = io_close(d, &req);

	free(arg);
	count_renewal(d, r.end, -1);
	if (d->n_read + d->n_write == 0) /* nobody had it open but this one */
		lease_shared_end(c, i);
	(void)rc; /* the session, or the client, ends: so do its opens */
	inode_put(c, i);
	client_bg_end(c);
}

/* Nobody waits for the close, so that who is interrupted leaves nothing open. */
int io_reopen(struct idata *d, uint32_t flags, uint32_t end_flags)
{
	/* It is open: whether it still has a name does not matter. */
	struct mds_open_req req = {
		.cred = io_renew_cred(d), .ino = d->inode->ino, .flags = flags | OPEN_ORPHAN};
	struct renewal *end = malloc(sizeof(*end));
	struct mds_open_rep rep;
	struct rpc_call call;
	int rc;

	if (end == NULL)
		return -LE_NOMEM;
	*end = (struct renewal){d, end_flags};
	rc = mds_call_to_end(d->c, OP_mds_open, &req, &rep, &call);
	if (rc >= 0) {
		inode_update(d->c, d->inode, &rep.attr, false, call.sent_us);
		inode_opened(d->inode, flags);
		io_take_cap(d, &rep.cap);
	}
	rpc_call_fini(&call);
	if (rc < 0) {
		free(end);
		return rc;
	}
	/* A server that is restarted in between is told of this one as well, else the close would
	 * end another one. */
	session_opened(d, flags, call.session);
	count_renewal(d, flags, 1);
	inode_ref(d->inode);
	if (client_bg_spawn(d->c, "renewed", renewal_end, end) < 0) {
		latch_add(&d->c->bg, 1);
		renewal_end(end);
	}
	return 0;
}

/* A capability comes with an open. */
static int renew(struct idata *d, enum io_right right)
{
	bool append = (d->inode->attr.flags & ATTR_APPEND) != 0; /* else it is refused */
	uint32_t flags = right == IO_WRITE ? O_RDWR | (append ? O_APPEND : 0) : O_RDONLY;

	/* To stay open: else nobody would tell the MDS how long the file has become. */
	if (right == IO_WRITE && d->lost_gen == d->c->session_gen)
		TRY(session_await(d));
	if (!cap_good(d, right))
		TRY(io_reopen(d, flags, flags));
	return cap_good(d, right) ? 0 : -LE_STALE;
}

int io_get_cap(struct idata *d, enum io_right right, struct cap *ret_cap)
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

void io_void_cap(struct idata *d, const struct cap *cap, enum io_right right)
{
	if (d->caps[right].mac_lo == cap->mac_lo && d->caps[right].mac_hi == cap->mac_hi)
		d->cap_gens[right] = 0;
}

/* Of a change, where its capability was refused: it may have been made before. */
struct again {
	struct idata *d;
	struct io_auth *auth;
	uint32_t session_gen;
	int tries;
};

static int renew_refused(void *arg)
{
	struct again *a = arg;
	struct idata *d = a->d;
	struct cap cap;

	if (++a->tries == CAP_TRIES)
		return -LE_BAD_CAP;
	io_void_cap(d, a->auth->cap, a->auth->right);
	TRY(io_get_cap(d, a->auth->right, &cap));
	/* The number says nothing in another session, or of other data. */
	if (a->session_gen != d->c->session_gen || cap.gen != *a->auth->gen)
		return -LE_BAD_CAP;
	*a->auth->cap = cap;
	return 0;
}

int io_call(struct idata *d, uint64_t idx, struct rpc_call *call, struct io_auth *auth,
	    struct route *route)
{
	struct again again = {.d = d, .auth = auth};
	struct layout layout;
	int rc;

	if (auth->right == IO_WRITE) {
		route->renew = renew_refused;
		route->renew_arg = &again;
	}
	for (int tries = 1;; tries++) {
		TRY(io_get_cap(d, auth->right, auth->cap));
		if (auth->session_gen != 0 && auth->session_gen != d->c->session_gen)
			return -LE_SESSION_GONE;
		layout = d->inode->attr.layout;
		again.session_gen = d->c->session_gen;
		*auth->gen = auth->cap->gen;
		rc = oss_call(d->c, &layout, idx, call, route);
		if ((rc != -LE_BAD_CAP && rc != -LE_SESSION_GONE) || tries == CAP_TRIES)
			break;
		/* In another session, or under another number, nobody knows that it was made
		 * before, and it would be made again, over what others have written since. */
		if (route->unknown && (auth->session_gen == 0 || rc == -LE_BAD_CAP))
			return -LE_IO;
		if (rc == -LE_BAD_CAP)
			io_void_cap(d, auth->cap, auth->right);
	}
	return rc == -LE_SESSION_GONE && auth->session_gen == 0 ? -LE_IO : rc;
}

uint64_t io_spread(const struct client *c, struct ino ino, uint64_t idx)
{
	return hash_u64_2(hash_u64_2(ino.v, idx), c->spread);
}

/* ---- size and times of a file with writers ---- */

struct stat_part {
	struct idata *d;
	uint64_t idx;
	struct bytes prepared;
	struct io_stored stored;
	int status;
};

static void stat_part(void *arg)
{
	struct stat_part *p = arg;
	struct oss_stat_req req = {
		.ino = p->d->inode->ino,
		.chunk_size = p->d->inode->attr.layout.chunk_size,
		.prepared = p->prepared,
	};
	struct oss_stat_rep rep;
	struct rpc_call call = {.op = OP_oss_stat, .req = &req, .rep = &rep};
	struct io_auth auth = {.right = IO_READ, .cap = &req.cap, .gen = &req.gen};
	struct route route = {0};

	p->status = io_call(p->d, p->idx, &call, &auth, &route);
	if (p->status >= 0)
		p->stored = (struct io_stored){rep.size, rep.used, rep.covered, rep.mtime_ns};
	rpc_call_fini(&call);
}

int io_stat(struct idata *d, struct bytes prepared, struct io_stored *ret_stored)
{
	struct stat_part parts[STAT_WIDTH];
	struct io_stored sum = {0};
	uint32_t width = map_width(d->c, &d->inode->attr.layout);

	for (uint32_t at = 0; at < width;) {
		uint32_t n = width - at < STAT_WIDTH ? width - at : STAT_WIDTH;

		for (uint32_t i = 0; i < n; i++)
			parts[i] = (struct stat_part){.d = d, .idx = at + i, .prepared = prepared};
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

struct sync_part {
	struct idata *d;
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
	struct route route = {.head = true};

	p->status = oss_call(p->d->c, &p->d->inode->attr.layout, p->idx, &call, &route);
	p->lost = p->status >= 0 && rep.lost;
	rpc_call_fini(&call);
}

int io_sync(struct idata *d, bool readers, bool *ret_lost)
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

/* It would have been recalled before. That a file is sealed does not suffice: its data may have got
 * another generation, in a conversion, while this client was believed to be gone. */
static bool change_known(struct client *c, struct inode *i)
{
	return inode_attr_fresh(c, i) || lease_shared(c, i);
}

bool io_known_uncut(struct client *c, struct inode *i, uint32_t cuts)
{
	return i->attr.cuts == cuts && change_known(c, i);
}

int io_cut_since(struct client *c, struct inode *i, uint32_t cuts, enum io_cut *ret_cut)
{
	struct cred cred = io_renew_cred(i->data);
	struct attr attr = {.cuts = i->attr.cuts};

	if (!change_known(c, i))
		TRY(ask_attr(c, &cred, i, &attr));
	*ret_cut = (attr.flags & ATTR_CUTTING) != 0 ? CUT_NOW
		   : attr.cuts != cuts              ? CUT_PERHAPS
						    : CUT_NOT;
	return 0;
}

int io_wait_uncut(const struct client *c, struct io_patience *p)
{
	uint64_t now = loop_now_us();

	if (p->until_us == 0)
		p->until_us = client_deadline(c);
	if (now >= p->until_us)
		return -LE_IO;
	p->wait_us = p->wait_us == 0 ? CUT_WAIT_US : p->wait_us * 2;
	if (p->wait_us > CUT_WAIT_MAX_US)
		p->wait_us = CUT_WAIT_MAX_US;
	return fiber_sleep_us(p->wait_us);
}

/* What the chains say, who were asked at that time, when write seq was the last one. */
static void take_stored(struct inode *i, const struct attr *attr, const struct io_stored *st,
			uint64_t at_us, uint64_t seq)
{
	struct idata *d = i->data;

	i->settled_us = at_us;
	i->attr.size = st->size > attr->size ? st->size : attr->size;
	i->attr.blocks = (st->used + SECTOR - 1) / SECTOR;
	if (attr_chains_time(&i->attr, st->mtime_ns))
		attr_take_written(&i->attr, st->mtime_ns);
	if (d->write_seq == seq && d->gather.slot == NULL) {
		d->size = i->attr.size;
		d->unsure = false;
	} else if (d->size < i->attr.size) {
		d->size = i->attr.size;
	}
}

/* Asks the chains, also how much of what fallocate has prepared is not written. attr: the file's,
 * becomes what the MDS says with that. used then counts it. */
static int stat_with_prepared(struct client *c, struct inode *i, struct attr *attr,
			      struct io_stored *ret_st)
{
	struct cred cred = io_renew_cred(i->data);
	struct mds_getattr_req req = {.cred = cred, .ino = i->ino};
	struct mds_getattr_rep rep;
	struct ranges prepared;
	struct rpc_call call;
	int rc;

	if ((attr->flags & ATTR_PREPARED) == 0)
		return io_stat(i->data, bytes_of(NULL, 0), ret_st);
	rc = mds_call(c, OP_mds_getattr, &req, &rep, &call);
	if (rc >= 0)
		rc = ranges_get(rep.prepared, &prepared);
	if (rc >= 0) {
		inode_update(c, i, &rep.attr, false, call.sent_us);
		*attr = rep.attr;
		rc = io_stat(i->data, rep.prepared, ret_st);
	}
	rpc_call_fini(&call);
	if (rc >= 0)
		ret_st->used += ranges_bytes(&prepared) - ret_st->covered;
	return rc;
}

/* 1: they are to be asked again, and attr is what the MDS says now. */
static int settle_once(struct client *c, struct inode *i, struct attr *attr, struct io_patience *p)
{
	struct idata *d = i->data;
	struct cred cred = io_renew_cred(d);
	uint64_t at_us = loop_now_us(), seq;
	uint32_t cuts = i->cuts;
	enum io_cut cut = CUT_NOT;
	struct io_stored st;

	/* The chains know then what we have written; others may have cut some of it off since. */
	TRY(wb_show(d));
	seq = d->write_seq;
	TRY(stat_with_prepared(c, i, attr, &st));
	/* A file is made shorter chain by chain, and known to be when all are. */
	if (!FAULT(CLIENT_TRUST_HOLES))
		TRY(io_cut_since(c, i, attr->cuts, &cut));
	if (cut == CUT_NOW)
		TRY(io_wait_uncut(c, p));
	if (cut == CUT_NOT && i->cuts == cuts) {
		take_stored(i, attr, &st, at_us, seq);
		return 0;
	}
	TRY(ask_attr(c, &cred, i, attr));
	return 1;
}

/* Of a file with writers: it is the only one, and what it has written is where it was. */
static bool knows_size(const struct client *c, const struct inode *i)
{
	return lease_held(c, i) && !inode_is_unsure(i);
}

int io_settle(struct client *c, struct inode *i, const struct attr *attr)
{
	struct io_patience patience = {0};
	struct attr known = *attr;
	int rc;

	do {
		struct idata *d;

		if (!(i->attr.flags & ATTR_UNSETTLED) || !S_ISREG(i->attr.mode) ||
		    (i->settled_us != 0 && knows_size(c, i)))
			return 0;
		TRY(inode_data(c, i, &d));
		rc = settle_once(c, i, &known, &patience);
	} while (rc > 0);
	return rc;
}

/* The MDS takes its time with a lazy close, unless somebody asks for the file. */
static void hurry_closing(struct idata *d)
{
	struct cred cred = io_renew_cred(d);
	struct mds_getattr_req req = {.cred = cred, .ino = d->inode->ino};
	struct mds_getattr_rep rep;
	struct rpc_call call;
	int rc = mds_call(d->c, OP_mds_getattr, &req, &rep, &call);

	/* Without it the close takes as long as it takes. */
	(void)rc;
	rpc_call_fini(&call);
}

int io_wait_closing(struct inode *i)
{
	struct idata *d = i->data;
	int rc = 0;

	if (d == NULL || d->n_closing == 0)
		return 0;
	wb_hurry(d);
	d->n_close_waiters++;
	waitq_wake_all(&d->c->company);
	if (d->n_lazy > 0)
		hurry_closing(d);
	while (rc == 0 && d->n_closing > 0) {
		uint64_t until_us = loop_deadline_ms(d->c->params.request_timeout_ms);

		if (until_us > fiber_deadline())
			until_us = fiber_deadline();
		rc = waitq_wait(&d->closing_q, until_us);
		/* However long it takes to write all that it has: but a server that is away is not
		 * waited for. */
		if (rc == -LE_TIMEDOUT && d->n_late == 0 && until_us < fiber_deadline())
			rc = 0;
	}
	d->n_close_waiters--;
	return rc == -LE_TIMEDOUT ? -LE_IO : rc;
}

/* Somebody who may not read the file still gets the MDS's idea of it. */
static int settle_if_allowed(struct client *c, struct inode *i, const struct attr *attr)
{
	int rc = io_settle(c, i, attr);

	return rc == -LE_ACCES || rc == -LE_PERM || rc == -LE_STALE || rc == -LE_NOENT ? 0 : rc;
}

int io_ask_attr(struct client *c, const struct cred *cred, struct inode *i)
{
	struct attr attr;

	return ask_attr(c, cred, i, &attr);
}

int io_know_rights(struct client *c, const struct cred *cred, struct inode *i)
{
	return inode_attr_fresh(c, i) || lease_shared(c, i) ? 0 : io_ask_attr(c, cred, i);
}

int io_wait_times(struct inode *i)
{
	if (!io_times_open(i))
		return 0;
	/* A write that fails is its writer's to hear of. */
	return wb_flush(i->data) == -LE_INTR ? -LE_INTR : 0;
}

void io_settled_attr(const struct client *c, const struct inode *i, struct attr *ret_attr)
{
	inode_attr(c, i, ret_attr);
	/* The chains know what was written here as well, and what others have cut off of that. */
	if ((i->attr.flags & ATTR_UNSETTLED) != 0 && i->settled_us != 0 && !knows_size(c, i))
		ret_attr->size = i->attr.size;
	ret_attr->flags &= ~(uint32_t)ATTR_UNSETTLED;
}

static int ask_all(struct client *c, const struct cred *cred, struct inode *i)
{
	struct attr attr;
	bool shared = false; /* then it is known what the MDS would say */

	TRY(io_wait_times(i));
	attr = i->attr;
	if (!inode_attr_fresh(c, i)) {
		TRY(io_wait_closing(i));
		i->settled_us = 0; /* what the chains said then is too old */
		shared = lease_shared(c, i);
		attr = i->attr;
		/* As it says: i->attr may have the size of before a cut, from another fiber. */
		if (!shared)
			TRY(ask_attr(c, cred, i, &attr));
	}
	if (shared)
		attr.size = i->shared_size;
	return settle_if_allowed(c, i, &attr);
}

int io_attr(struct client *c, const struct cred *cred, struct inode *i, struct attr *ret_attr)
{
	TRY(ask_all(c, cred, i));
	io_settled_attr(c, i, ret_attr);
	return 0;
}

bool io_error_heard(struct ll_file *f)
{
	struct idata *d = f->d;

	if (f->err_seen == d->err_gen)
		return false;
	f->err_seen = d->err_gen;
	if (--d->n_unheard == 0)
		kept_write_moved(d);
	return true;
}

int io_take_error(struct ll_file *f)
{
	return io_error_heard(f) ? f->d->err : 0;
}
