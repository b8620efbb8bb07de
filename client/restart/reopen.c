/* SPDX-License-Identifier: Apache-2.0 */
#include "client/restart/reopen.h"

#include <fcntl.h>
#include <stdlib.h>

#include "client/cache/attr_cache.h"
#include "client/cache/inode_cache.h"
#include "client/cache/lease_grant.h"
#include "client/client.h"
#include "client/data/capability.h"
#include "client/data/flush.h"
#include "client/data/write.h"
#include "client/ops/delegated_open.h"
#include "client/ops/file_lock.h"
#include "client/ops/recall.h"
#include "client/restart/callbacks.h"
#include "client/servers/open_count.h"
#include "client/servers/session.h"
#include "common/base/assert.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/proto/mds_proto.h"
#include "common/proto/types.h"
#include "common/proto/wire.h"
#include "common/rpc/rpc.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

#define RECLAIM_ENTRY    16u
#define RECLAIM_BATCH    1024u
#define RECLAIM_LOCKS    256u

static int reclaim_send(struct client *c, uint16_t flags, const struct mds_reclaim_req *req)
{
	struct mds_reclaim_rep rep = {0};
	struct rpc_call call = {.flags = flags};
	int rc = session_call(c, OP_mds_reclaim, req, &rep, &call);

	if (rc >= 0 && rep.n_unshared > 0)
		lease_unshare_all(c);
	if (rc >= 0 && rep.n_lost > 0)
		log_warn("client %s: %u open files or locks were not restored by the metadata "
			 "server",
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

/* Encodes all open files for mds_reclaim into *ret_buf, which the caller frees. */
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
		struct inode_io *d = list_entry(l, struct inode_io, open_link);
		uint32_t state = has_unflushed(d)                        ? RECLAIM_UNFLUSHED
				 : lease_shared_lasts(c, d->inode) ? RECLAIM_SHARED
								   : 0;

		d->lost_gen = 0; /* the reclaim covers opens that were refused */
		/* The client reclaims a write lease instead, which the MDS can recall; otherwise no
		 * other client could make the data visible. */
		if (state == RECLAIM_UNFLUSHED)
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

/* Reports to a restarted MDS which files this session has open, and then its locks. all: the report
 * is complete. Yields. */
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

/* Opens a file once in the new session; merges the attributes and the capability. Yields. */
static int reopen_one(struct client *c, uint16_t flags, struct inode_io *d, uint32_t mode)
{
	struct mds_open_req req = {
		.cred = cap_renew_cred(d), .ino = d->inode->ino, .flags = mode | OPEN_ORPHAN};
	struct mds_open_rep rep = {0};
	uint64_t sent_us = loop_now_us();
	int rc = session_setup_call(c, flags, OP_mds_open, &req, &rep);

	if (rc >= 0) {
		inode_update(c, d->inode, &rep.attr, false, sent_us);
		inode_opened(d->inode, mode);
		cap_set(d, &rep.cap);
	}
	return rc;
}

static bool session_reopens(struct client *c, struct ino ino)
{
	const struct inode_io *lost = c->reopening_lost;
	struct inode *i = c->reopening && !c->stopping ? inode_peek(c, ino) : NULL;
	bool reopens = i != NULL && i->data != NULL && open_count_is_reopening(i->data);

	if (lost != NULL && ino_equal(lost->inode->ino, ino))
		reopens = !c->stopping;
	if (i != NULL)
		inode_put_later(c, i);
	return reopens;
}

/* Opens a file as often as it is open here, and takes its locks again. The counts of opens may
 * change meanwhile. Yields. */
static int reopen_file(struct inode_io *d, uint16_t flags)
{
	static const uint32_t modes[] = {O_RDONLY, O_RDWR | O_APPEND, O_RDWR};

	delegation_counted(d);
	for (size_t i = 0; i < ARRAY_SIZE(modes);) {
		uint32_t *done = open_count_reopened(d, modes[i]);
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

/* Opens all files again in the new session. A file that no longer exists stays stale, and its next
 * use fails. Returns 1 if a file has to wait, perhaps for another client: it becomes the last of
 * those that are left. Yields. */
static int reopen_all(struct client *c, uint16_t flags)
{
	uint32_t n_lost = 0;
	int rc = 0;

	list_for_each (l, &c->inodes.open) {
		struct inode_io *d = list_entry(l, struct inode_io, open_link);

		if (d->reopened_gen == c->session_gen)
			continue; /* reopened before an interruption, or opened since */
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

/* Tries once more to reopen a file after a refusal: rights may have changed, or there is space
 * again. Closes wait meanwhile, and the reopening waits for closes in flight, so that it is clear
 * which opens they end. Yields. */
static int reopen_lost(struct inode_io *d)
{
	struct client *c = d->c;
	uint64_t session = c->session;
	int rc = 0;

	fmutex_lock(&c->session_lock);
	if (open_count_is_lost(d) && !list_empty(&d->closes)) {
		rc = -LE_NOT_READY;
	} else if (open_count_is_lost(d)) {
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
	return -LE_NOT_READY; /* the caller repeats it within its time */
}

static void session_lost_data(struct client *c, uint64_t old)
{
	log_warn("client %s: session %llu was lost, new session %llu", c->name,
		 (unsigned long long)old, (unsigned long long)c->session);
	list_for_each (l, &c->inodes.open) {
		struct inode_io *d = list_entry(l, struct inode_io, open_link);

		wb_session_gone(d);
		lock_session_gone(d);
	}
}

const struct session_ops restart_session_ops = {
	.void_leases = lease_void_all,
	.reclaim = reclaim,
	.reopen = reopen_all,
	.reopen_lost = reopen_lost,
	.reopens = session_reopens,
	.lost = session_lost_data,
	.taken_up = lock_ask_again,
	.callback = session_callback,
};
