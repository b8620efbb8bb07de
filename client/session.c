#include "client/session.h"

#include <stdlib.h>

#include "client/client.h"
#include "client/delegation.h"
#include "client/kept.h"
#include "client/lease.h"
#include "client/lock.h"
#include "client/retry.h"
#include "common/base/log.h"

#define RECLAIM_ENTRY    16u
#define RECLAIM_BATCH    1024u
#define RECLAIM_LOCKS    256u
#define SETUP_TIMEOUT_MS 5000u
#define PING_MIN_MS      100u
#define PING_MAX_MS      5000u

static int setup_call(struct client *c, uint16_t op, const void *req, void *rep,
		      struct rpc_call *call)
{
	uint16_t flags = call->flags;

	*call = (struct rpc_call){
		.op = op,
		.flags = flags,
		.req = req,
		.rep = rep,
		.session = c->session,
		.deadline_us = loop_deadline_ms(SETUP_TIMEOUT_MS),
		.sent_us = loop_now_us(),
	};
	return rpc_call(c->mds, call);
}

static int reclaim_send(struct client *c, uint16_t flags, const struct mds_reclaim_req *req)
{
	struct mds_reclaim_rep rep = {0};
	struct rpc_call call = {.flags = flags};
	int rc = setup_call(c, OP_mds_reclaim, req, &rep, &call);

	if (rc >= 0 && rep.n_unshared > 0)
		lease_unshare_all(c);
	if (rc >= 0 && rep.n_lost > 0)
		log_warn("client %s: %u open files or locks are gone after the server's restart",
			 c->name, rep.n_lost);
	rpc_call_fini(&call);
	return rc;
}

static void reclaim_put(struct wire_w *w, struct ino ino, uint32_t flags, uint32_t count)
{
	if (count == 0)
		return;
	wire_put_ino(w, &ino);
	wire_put_u32(w, &flags);
	wire_put_u32(w, &count);
}

/* All that is open, as mds_reclaim wants it. */
static int list_opens(struct client *c, uint8_t **ret_buf, uint32_t *ret_len)
{
	uint32_t n = 0;
	struct wire_w w;
	uint8_t *buf;

	list_for_each (l, &c->inodes.open)
		n++;
	buf = malloc((size_t)n * 3 * RECLAIM_ENTRY + 1);
	if (buf == NULL)
		return -LE_NOMEM;
	wire_w_init(&w, buf, (size_t)n * 3 * RECLAIM_ENTRY);
	list_for_each (l, &c->inodes.open) {
		struct idata *d = list_entry(l, struct idata, open_link);
		uint32_t state = io_hides(d)                        ? RECLAIM_HIDDEN
				 : lease_shared_lasts(c, d->inode) ? RECLAIM_SHARED
								   : 0;

		d->lost_gen = 0; /* nobody asks whether it may be open */
		/* It gets a write lease to be recalled, or nobody would ask it to show that. */
		if (state == RECLAIM_HIDDEN)
			lease_unshare(d->inode);
		delegation_counted(d);
		reclaim_put(&w, d->inode->ino, O_RDONLY | (state & RECLAIM_SHARED), d->n_read);
		reclaim_put(&w, d->inode->ino, O_RDWR | state, d->n_write - d->n_append);
		reclaim_put(&w, d->inode->ino, O_RDWR | O_APPEND | state, d->n_append);
	}
	*ret_buf = buf;
	*ret_len = (uint32_t)w.len;
	return 0;
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Tells a restarted MDS what this session has open, and then what it has locked. */
static int reclaim(struct client *c, uint16_t flags, bool all)
{
	const uint32_t n_opens = RECLAIM_BATCH * RECLAIM_ENTRY;
	const uint32_t n_locks = RECLAIM_LOCKS * LOCK_RECLAIM_ENTRY;
	struct mds_reclaim_req done = {.done = all};
	uint8_t *opens, *locks = NULL;
	uint32_t opens_len, locks_len = 0;
	int rc = 0;

	TRY(list_opens(c, &opens, &opens_len));
	for (uint32_t at = 0; at < opens_len && rc >= 0; at += n_opens) {
		struct mds_reclaim_req req = {
			.opens = bytes_of(opens + at, least(opens_len - at, n_opens))};
		rc = reclaim_send(c, flags, &req);
	}
	if (rc >= 0)
		rc = lock_list(c, &locks, &locks_len);
	for (uint32_t at = 0; at < locks_len && rc >= 0; at += n_locks) {
		struct mds_reclaim_req req = {
			.locks = bytes_of(locks + at, least(locks_len - at, n_locks))};
		rc = reclaim_send(c, flags, &req);
	}
	if (rc >= 0)
		rc = reclaim_send(c, flags, &done);
	free(opens);
	free(locks);
	return rc;
}

int session_setup_call(struct client *c, uint16_t flags, uint16_t op, const void *req, void *rep)
{
	struct rpc_call call = {
		.op = op,
		.flags = flags,
		.req = req,
		.rep = rep,
		.session = c->session,
		.slot = c->setup_slot,
		.seq = ++c->mds_seqs.seqs[c->setup_slot],
		.deadline_us = loop_deadline_ms(SETUP_TIMEOUT_MS),
	};
	int rc = rpc_call(c->mds, &call);

	rpc_call_fini(&call);
	return rc;
}

/* One open of a file in the new session: counts, capability, and what the file has become. */
static int reopen_one(struct client *c, uint16_t flags, struct idata *d, uint32_t mode)
{
	struct mds_open_req req = {
		.cred = io_renew_cred(d), .ino = d->inode->ino, .flags = mode | OPEN_ORPHAN};
	struct mds_open_rep rep = {0};
	uint64_t sent_us = loop_now_us();
	int rc = session_setup_call(c, flags, OP_mds_open, &req, &rep);

	if (rc >= 0) {
		inode_update(c, d->inode, &rep.attr, false, sent_us);
		inode_opened(d->inode, mode);
		io_take_cap(d, &rep.cap);
	}
	return rc;
}

static uint32_t *reopened_count(struct idata *d, uint32_t flags)
{
	if (d->reopened.gen != d->c->session_gen) {
		memset(&d->reopened, 0, sizeof(d->reopened));
		d->reopened.gen = d->c->session_gen;
	}
	if ((flags & O_ACCMODE) == O_RDONLY)
		return &d->reopened.n_read;
	return (flags & O_APPEND) != 0 ? &d->reopened.n_append : &d->reopened.n_write;
}

static bool is_lost(const struct idata *d)
{
	return d->lost_gen == d->c->session_gen;
}

void session_opened(struct idata *d, uint32_t flags, uint64_t session)
{
	struct client *c = d->c;

	if ((!c->reopening && !is_lost(d)) || session != c->session)
		return;
	if (d->n_read + d->n_write + d->n_delegated == 0) {
		d->reopened_gen = c->session_gen; /* and it has no locks */
		d->lost_gen = 0;
	} else {
		++*reopened_count(d, flags);
	}
}

void session_closed(struct idata *d, uint32_t flags)
{
	uint32_t *n;

	if (!is_lost(d))
		return;
	n = reopened_count(d, flags);
	/* Of those who write the MDS takes another one where there is none of that kind. */
	if (*n == 0 && (flags & O_ACCMODE) != O_RDONLY)
		n = reopened_count(d, flags ^ O_APPEND);
	*n -= *n > 0;
}

static bool is_reopening(const struct idata *d)
{
	return (d->c->reopening && d->reopened_gen != d->c->session_gen) ||
	       d->c->reopening_lost == d;
}

bool session_misses(const struct idata *d)
{
	return !d->c->stopping && (is_reopening(d) || is_lost(d));
}

bool session_reopens(struct client *c, struct ino ino)
{
	const struct idata *lost = c->reopening_lost;
	struct inode *i = c->reopening && !c->stopping ? inode_peek(c, ino) : NULL;
	bool reopens = i != NULL && i->data != NULL && is_reopening(i->data);

	if (lost != NULL && ino_equal(lost->inode->ino, ino))
		reopens = !c->stopping;
	if (i != NULL)
		inode_put_later(c, i);
	return reopens;
}

/* What is counted changes meanwhile. */
static int reopen_file(struct idata *d, uint16_t flags)
{
	static const uint32_t modes[] = {O_RDONLY, O_RDWR | O_APPEND, O_RDWR};

	delegation_counted(d);
	for (size_t i = 0; i < ARRAY_SIZE(modes);) {
		uint32_t *done = reopened_count(d, modes[i]);
		uint32_t n = modes[i] == O_RDONLY ? d->n_read
			     : modes[i] == O_RDWR ? d->n_write - d->n_append
						  : d->n_append;

		if (*done >= n) {
			i++;
			continue;
		}
		TRY(reopen_one(d->c, flags, d, modes[i]));
		++*done;
	}
	return lock_renew(d->c, d, flags);
}

/* The files that are open, in the new session. A file that is gone stays stale: its next use tells.
 * 1: one has to wait, perhaps for somebody else; it is the last one of those that are left. */
static int reopen_all(struct client *c, uint16_t flags)
{
	uint32_t n_lost = 0;
	int rc = 0;

	list_for_each (l, &c->inodes.open) {
		struct idata *d = list_entry(l, struct idata, open_link);

		if (d->reopened_gen == c->session_gen)
			continue; /* before it was cut short, or since the session began */
		inode_ref(d->inode);
		rc = reopen_file(d, flags);
		if (rc < 0 && status_retry(rc) == RETRY_NEVER) {
			n_lost++;
			d->lost_gen = c->session_gen;
			rc = 0;
		}
		if (rc >= 0)
			d->reopened_gen = c->session_gen;
		inode_put_later(c, d->inode);
		if (rc < 0) {
			list_remove(&d->open_link);
			list_push(&c->inodes.open, &d->open_link);
			if (status_retry(rc) != RETRY_CONN)
				rc = 1;
			break;
		}
	}
	inode_put_deferred(c);
	if (n_lost > 0)
		log_warn("client %s: %u open files could not be opened again", c->name, n_lost);
	return rc;
}

/* Once more: whoever has refused it may have changed his mind, or there is room again. Closes wait
 * meanwhile, and are waited for: it must be known which of the opens they end. */
static int reopen_lost(struct idata *d)
{
	struct client *c = d->c;
	uint64_t session = c->session;
	int rc = 0;

	fmutex_lock(&c->session_lock);
	if (is_lost(d) && !list_empty(&d->closes)) {
		rc = -LE_NOT_READY;
	} else if (is_lost(d)) {
		c->reopening_lost = d;
		rc = reopen_file(d, RPC_CALL_NO_WAIT);
		c->reopening_lost = NULL;
		if (rc >= 0)
			d->lost_gen = 0;
	}
	fmutex_unlock(&c->session_lock);
	if (rc != -LE_SESSION_GONE)
		return rc;
	TRY(session_renew(c, session));
	return -LE_NOT_READY; /* once more, as long as the time lasts */
}

int session_await(struct idata *d)
{
	struct retry r;
	int rc;

	retry_begin(&r, d->c);
	while (session_misses(d)) {
		rc = is_reopening(d) ? -LE_NOT_READY : reopen_lost(d);
		if (rc < 0)
			TRY(retry_next(&r, rc));
	}
	return 0;
}

static void session_lost_data(struct client *c, uint64_t old)
{
	log_warn("client %s: session %llu is gone, now %llu", c->name, (unsigned long long)old,
		 (unsigned long long)c->session);
	list_for_each (l, &c->inodes.open) {
		struct idata *d = list_entry(l, struct idata, open_link);

		wb_session_gone(d);
		lock_session_gone(d);
	}
}

static int session_open(struct client *c, uint16_t flags, uint64_t former)
{
	struct mds_session_open_req req = {
		.client = c->id,
		.name = bytes_str(c->name),
		.session = former,
		.slots = MDS_SLOTS,
		.takeover = c->taking_over,
	};
	struct mds_session_open_rep rep = {0};
	struct rpc_call call = {.flags = flags};
	uint64_t old = c->session;
	bool anew; /* leases are not known there */
	int rc, left = 0;

	rc = setup_call(c, OP_mds_session_open, &req, &rep, &call);
	rpc_call_fini(&call);
	if (rc == -LE_SESSION_GONE && former != 0)
		return session_open(c, flags, 0);
	TRY(rc);
	c->session = rep.session;
	anew = old != rep.session || c->incarnation != rep.incarnation;
	c->incarnation = rep.incarnation;
	c->judged = rep.judges != 0;
	c->ttl_ms = rep.ttl_ms;
	seq_table_limit(&c->mds_seqs, rep.slots);
	if (old != rep.session) {
		c->session_gen++;
		/* Until all has been opened again, also over another connection: files of which the
		 * server does not know may be removed under those who have them open. */
		c->reopening = old != 0;
		if (old != 0)
			session_lost_data(c, old);
	}
	if (anew)
		lease_void_all(c, rep.lease_ms,
			       old == rep.session && rep.reclaim == RECLAIM_ALL);
	else /* perhaps of a former process, which alone has been told */
		c->leases.term_us = (uint64_t)rep.lease_ms * 1000;
	kept_session(c);
	/* Of what a restarted server, or a new session, does not know nothing has to be ended. */
	if (rep.reclaim != RECLAIM_TAKEOVER)
		c->taking_over = false;
	if (rep.reclaim != RECLAIM_NONE)
		TRY(reclaim(c, flags, rep.reclaim == RECLAIM_ALL));
	else if (c->reopening)
		TRY(left = reopen_all(c, flags));
	c->reopening = left > 0; /* with the next ping */
	c->telling = false;
	if (old != 0)
		lock_ask_again(c);
	if (c->map.epoch != 0)
		map_saw_epoch(c, rep.map_epoch);
	return 0;
}

static int connected(void *arg, struct rpc_client *rpc)
{
	struct client *c = CAST_OBJ(arg, struct client, CLIENT_MAGIC);
	int rc;

	/* The very first call comes from within rpc_client_create. */
	if (c->mds == NULL)
		c->mds = rpc;
	fmutex_lock(&c->session_lock);
	rc = session_open(c, RPC_CALL_SETUP, c->session);
	c->setup_status = rc;
	fmutex_unlock(&c->session_lock);
	if (rc < 0)
		log_debug("client %s: no session: %s", c->name, status_name(rc));
	return rc;
}

static int callback(void *arg, struct rpc_client *rpc, uint16_t op, const void *req, void *rep)
{
	struct client *c = CAST_OBJ(arg, struct client, CLIENT_MAGIC);

	(void)rpc, (void)rep;
	if (op == OP_cb_map_changed) {
		map_saw_epoch(c, ((const struct cb_map_changed_req *)req)->epoch);
		return 0;
	}
	/* The answer would mean that the MDS knows what is open. */
	if ((op == OP_cb_recall || op == OP_cb_owner) && c->telling)
		return -LE_NOT_READY;
	if (op == OP_cb_recall)
		return lease_recall(c, ((const struct cb_recall_req *)req)->ino);
	if (op == OP_cb_owner)
		return lease_owner_changed(c, ((const struct cb_owner_req *)req)->ino);
	if (op == OP_cb_cut)
		return io_cut(c, (const struct cb_cut_req *)req);
	if (op == OP_cb_unlocked) {
		lock_unlocked(c, ((const struct cb_unlocked_req *)req)->ino);
		return 0;
	}
	return -LE_UNKNOWN_OP;
}

int session_renew(struct client *c, uint64_t gone)
{
	int rc = 0;

	fmutex_lock(&c->session_lock);
	if (c->session == gone) {
		/* Never waits for a connection: the connected hook needs the lock we hold. */
		rc = session_open(c, RPC_CALL_NO_WAIT, 0);
	}
	fmutex_unlock(&c->session_lock);
	return rc;
}

/* What was cut short, over the same connection. */
static int session_reopen(struct client *c)
{
	int rc = 0;

	fmutex_lock(&c->session_lock);
	if (c->reopening)
		rc = session_open(c, RPC_CALL_NO_WAIT, c->session);
	fmutex_unlock(&c->session_lock);
	return rc;
}

int session_check(struct client *c)
{
	struct mds_ping_req req = {.map_epoch = c->map.epoch};
	struct mds_ping_rep rep = {0};
	struct rpc_call call = {.flags = RPC_CALL_NO_WAIT};
	uint64_t session = c->session;
	int rc = setup_call(c, OP_mds_ping, &req, &rep, &call);

	rpc_call_fini(&call);
	if (rc >= 0) {
		map_saw_epoch(c, rep.map_epoch);
		if (session == c->session)
			lease_heard(c, call.sent_us);
	}
	if (rc >= 0 && c->reopening)
		return session_reopen(c);
	if (rc != -LE_SESSION_GONE)
		return rc;
	if (session == c->session)
		TRY(session_renew(c, session));
	return -LE_SESSION_GONE;
}

static void keepalive_fiber(void *arg)
{
	struct client *c = CAST_OBJ(arg, struct client, CLIENT_MAGIC);

	c->keepalive = fiber_self();
	while (!c->stopping) {
		uint32_t ms = c->ttl_ms / 4, lease_ms = (uint32_t)(c->leases.term_us / 4000);
		int rc;

		if (lease_ms < ms)
			ms = lease_ms;
		if (ms < PING_MIN_MS)
			ms = PING_MIN_MS;
		if (ms > PING_MAX_MS)
			ms = PING_MAX_MS;
		rc = fiber_sleep_us((uint64_t)ms * 1000);
		if (c->stopping)
			break;
		if (rc >= 0)
			rc = session_check(c);
		if (rc < 0)
			log_debug("client %s: ping: %s", c->name, status_name(rc));
	}
	c->keepalive = NULL;
	client_bg_end(c);
}

int session_start(struct client *c, const char *mds_addrs, uint64_t deadline_us)
{
	struct rpc_client_options opts = {
		.transport = c->transport,
		.addrs = mds_addrs,
		.name = c->name,
		.role = ROLE_CLIENT,
		.key = c->key,
		.in_flight_max = CLIENT_IN_FLIGHT_MAX,
		.arg = c,
		.connected = connected,
		.callback = callback,
		/* What is mounted waits for DNS to come back, whichever process serves it. */
		.hosts_known = c->former_us == 0,
	};
	uint64_t seq;
	int rc = -LE_CONNREFUSED;

	fmutex_init(&c->session_lock);
	TRY(seq_table_init(&c->mds_seqs, MDS_SLOTS, c->seq_base));
	c->mds_seqs.n_kept = 1; /* delegation.h */
	TRY(seq_take(&c->mds_seqs, NO_DEADLINE, &c->setup_slot, &seq));
	kept_reserve(c);
	TRY(rpc_client_create(&opts, &c->mds));
	/* Any call waits for the connection and so for the session. A call may also be lost on the
	 * way, so none gets the whole time. */
	while (rc < 0 && loop_now_us() < deadline_us) {
		uint64_t once_us = loop_deadline_ms(SETUP_TIMEOUT_MS);
		struct mds_ping_req req = {0};
		struct mds_ping_rep rep = {0};
		struct rpc_call call = {
			.op = OP_mds_ping,
			.req = &req,
			.rep = &rep,
			.session = c->session,
			.deadline_us = once_us < deadline_us ? once_us : deadline_us,
		};

		rc = rpc_call(c->mds, &call);
		rpc_call_fini(&call);
		if (rc == -LE_SESSION_GONE && c->session != 0)
			rc = 0; /* was asked for with the number before the hook ran */
		/* Nor does an unknown host become known; after a time-out others may answer. */
		if (rc == -LE_NO_HOST && loop_now_us() < call.deadline_us)
			break;
		if (rc < 0 && (status_retry(rc) == RETRY_NEVER || fiber_sleep_us(1000) < 0))
			break;
	}
	if (rc < 0)
		return rc == -LE_TIMEDOUT && c->setup_status < 0 ? c->setup_status : rc;
	return client_bg_spawn(c, "keepalive", keepalive_fiber, c);
}

void session_stop(struct client *c)
{
	struct mds_session_close_req req = {.session = c->session};
	struct mds_session_close_rep rep;
	struct rpc_call call;
	int rc = 0;

	if (c->mds == NULL)
		return;
	if (c->session != 0) {
		call = (struct rpc_call){
			.op = OP_mds_session_close,
			.flags = RPC_CALL_NO_WAIT,
			.req = &req,
			.rep = &rep,
			.session = c->session,
			.deadline_us = loop_deadline_ms(1000),
		};
		rc = rpc_call(c->mds, &call);
		rpc_call_fini(&call);
	}
	if (rc < 0)
		log_debug("client %s: session not closed: %s", c->name, status_name(rc));
	rpc_client_destroy(c->mds);
	c->mds = NULL;
}

bool ll_judged(const struct client *c)
{
	return c->judged;
}
