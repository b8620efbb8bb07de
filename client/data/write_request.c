/* SPDX-License-Identifier: Apache-2.0 */
#include "client/data/write_request.h"

#include <stdlib.h>

#include "client/base/background.h"
#include "client/cache/inode_cache.h"
#include "client/cache/lease.h"
#include "client/client.h"
#include "client/data/capability.h"
#include "client/data/restart_marks.h"
#include "client/data/seal.h"
#include "client/data/space_grant.h"
#include "client/data/write_error.h"
#include "client/data/write_state.h"
#include "client/layout/slot_vec.h"
#include "client/layout/stripe.h"
#include "client/ll.h"
#include "client/servers/cluster_map.h"
#include "client/servers/replica_select.h"
#include "client/servers/target.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/proto/oss_proto.h"
#include "common/proto/types.h"
#include "common/proto/wire.h"
#include "common/rpc/rpc.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"
#include "common/rt/slot.h"

#define FREE_WREQS_MAX   256u

void wb_init(struct writeback *wb)
{
	*wb = (struct writeback){0};
	list_init(&wb->coalescing);
	list_init(&wb->free);
	waitq_init(&wb->q);
}

void wb_fini(struct writeback *wb)
{
	struct list *l;

	while ((l = list_pop(&wb->free)) != NULL)
		free(list_entry(l, struct wreq, link));
}

static struct wreq *wreq_alloc(struct client *c)
{
	struct list *l = list_pop(&c->wb.free);

	if (l == NULL)
		return malloc(sizeof(struct wreq));
	c->wb.n_free--;
	return list_entry(l, struct wreq, link);
}

static void wreq_free(struct wreq *w)
{
	struct client *c = w->d->c;

	if (c->wb.n_free < FREE_WREQS_MAX) {
		c->wb.n_free++;
		list_push_front(&c->wb.free, &w->link);
	} else {
		free(w);
	}
}

/* Returns true if an older write to one of the same blocks is in flight. It must be durable first,
 * because servers apply writes in the order of arrival. */
static bool must_wait(const struct wreq *w)
{
	for (struct list *l = w->link.prev; l != &w->d->writes; l = l->prev) {
		const struct wreq *o = list_entry(l, struct wreq, link);

		if (o->idx == w->idx && o->block_first <= w->block_last &&
		    w->block_first <= o->block_last)
			return true;
	}
	return false;
}

/* Makes the target sync all that it has accepted, without delay. Yields. */
static void sync_fiber(void *arg)
{
	struct target *t = arg;
	struct client *c = t->c;

	do {
		struct oss_sync_req req = {0};
		struct oss_sync_rep rep;
		struct rpc_call call = {
			.op = OP_oss_sync,
			.req = &req,
			.rep = &rep,
			.session = c->session,
			.target = t->id,
			.chain = t->chain,
			.epoch = t->epoch,
			.deadline_us = loop_deadline_ms(GRANT_TIMEOUT_MS),
		};

		t->sync_again = false;
		/* If it fails, the replies arrive a little later. */
		if (t->rpc != NULL)
			(void)!rpc_call(t->rpc, &call);
		rpc_call_fini(&call);
	} while (t->sync_again);
	t->syncing = false;
	client_bg_end(c);
}

/* Syncs the target that has accepted the write: the head of its chain may have changed since. */
static void sync_target(struct client *c, const struct wreq *w)
{
	struct target *t = map_target(c, w->call->target);

	if (t == NULL)
		return;
	t->sync_again = true;
	if (t->syncing)
		return;
	t->syncing = true;
	if (client_bg_spawn(c, "oss_sync", sync_fiber, t) < 0)
		t->syncing = false;
}

/* The hook rpc_call.accepted: the write was accepted, or has to be repeated. */
static void wreq_accepted(void *arg)
{
	struct wreq *w = arg;

	/* It was sent lazily, and a fiber has begun to wait since. */
	if (wreq_is_visible(w) && !w->lazy && w->sent_lazy)
		sync_target(w->d->c, w);
	restart_mark_update(w->d, wb_has_unflushed(w->d));
	waitq_wake_all(&w->d->write_q);
}

static void expedite_up_to(struct inode_io *d, uint64_t seq)
{
	list_for_each (l, &d->writes) {
		struct wreq *w = list_entry(l, struct wreq, link);

		if (w->seq > seq)
			break;
		if (!w->lazy)
			continue;
		w->lazy = false;
		if (w->sent_lazy && w->call != NULL && w->call->ret_accepted)
			sync_target(d->c, w);
	}
}

void wb_expedite(struct inode_io *d)
{
	expedite_up_to(d, d->write_seq);
}

/* The write is not repeated, because other clients have read or written the range since. */
static void say_late(const struct wreq *w)
{
	struct inode_io *d = w->d;
	uint64_t off = w->idx * d->inode->attr.layout.chunk_size + w->off;

	d->c->stats.late_writes++;
	log_warn(
		"client %s: ino %llu: bytes %llu to %llu are lost: an object server crashed before "
		"they were durable, this client reconnected after the grace period (grace_ms), "
		"and other clients have used them since; fsync or close reports it: write them "
		"again",
		d->c->name, (unsigned long long)d->inode->ino.v, (unsigned long long)off,
		(unsigned long long)(off + w->len - 1));
}

static int wreq_send(struct wreq *w)
{
	struct inode_io *d = w->d;
	struct client *c = d->c;
	uint32_t chunk_size = d->inode->attr.layout.chunk_size;
	bool pack = d->inode->attr.layout.compression == COMPRESSION_LZ4;
	struct oss_write_req req = {
		.chunk = {.ino = d->inode->ino, .idx = w->idx},
		.chunk_size = chunk_size,
		.off = w->off,
		.len = w->len,
		.pieces = bytes_of(w->pieces, w->n_pieces * PIECE_WIRE_SIZE),
		.flags = (w->lazy ? WRITE_LAZY : 0u) | (pack ? WRITE_PACK : 0u) |
			 (w->pages ? WRITE_PAGES : 0u) | (w->reservation ? WRITE_RESERVED : 0u) |
			 /* A client that opens the file waits until this is visible. */
			 (lease_held(c, d->inode) ? WRITE_ALONE : 0u),
		.grant_want = grant_want(c),
		.mtime_ns = w->mtime_ns,
	};
	struct oss_write_rep rep;
	struct rpc_call call = {
		.op = OP_oss_write,
		.req = &req,
		.rep = &rep,
		.bulk_out = w->vec,
		.n_bulk_out = w->n_vec,
		.accepted = wreq_accepted,
		.accepted_arg = w,
	};
	struct cap_auth auth = {
		.right = CAP_TO_WRITE,
		.cap = &req.cap,
		.gen = &req.chunk.gen,
		/* A background write of a lost session must no longer reach the file. */
		.session_gen = w->behind || w->reservation ? w->session_gen : 0,
	};
	struct replica_route replica_route = {.hash = 0};
	int rc;

	w->call = &call;
	w->sent_lazy = w->lazy;
	rc = cap_call(d, w->idx, &call, &auth, &replica_route);
	if (rc >= 0) {
		uint64_t end = w->idx * chunk_size + w->off + w->len;

		replica_route.target->grant = rep.grant;
		if (end > d->durable_end)
			d->durable_end = end;
		if (rep.mtime_ns > d->mtime_ns)
			d->mtime_ns = rep.mtime_ns;
	}
	/* After the loss of the session the append continues with an unknown outcome. */
	if (w->reservation && (rc >= 0 || (rc == -LE_SESSION_GONE && replica_route.unknown)))
		d->reservation_written = true;
	w->call = NULL;
	rpc_call_fini(&call);
	if (rc == -LE_LATE)
		say_late(w);
	return rc == -LE_SESSION_GONE && !w->reservation ? -LE_IO : rc;
}

static void wreq_end(struct wreq *w, int status)
{
	struct inode_io *d = w->d;
	struct client *c = d->c;

	for (uint32_t i = 0; i < w->n_vec; i++)
		slot_unref(w->vec[i].slot);
	w->n_vec = 0;
	if (w->target != NULL) {
		grant_release(w->target, w->reserved);
		c->wb.dirty -= w->len;
	}
	list_remove(&w->link);
	if (list_empty(&d->writes) && d->coalesce.slot == NULL)
		d->mtime_guess_ns = 0;
	w->status = status;
	w->done = true;
	waitq_wake_all(&d->write_q);
	waitq_wake_all(&c->wb.q);
	if (w->behind && status < 0)
		wb_set_error(d, status);
	else
		restart_mark_update(d, wb_has_unflushed(d));
	if (!w->behind)
		return;
	inode_put(c, d->inode);
	wreq_free(w);
}

static void wreq_run(struct wreq *w)
{
	int rc = 0;

	/* An interrupt does not end it: the bytes are acknowledged. Older writes end by their
	 * deadlines. */
	if (must_wait(w))
		expedite_up_to(w->d, w->seq - 1);
	while (must_wait(w))
		if (waitq_wait(&w->d->write_q, NO_DEADLINE) < 0)
			continue;
	rc = wreq_seal(w);
	if (rc >= 0)
		rc = wreq_send(w);
	wreq_end(w, rc);
}

static void wreq_fiber(void *arg)
{
	struct wreq *w = arg;
	struct client *c = w->d->c;

	fiber_set_deadline(w->deadline_us);
	wreq_run(w);
	client_bg_end(c);
}

/* Creates a request, last among the inode's. The caller takes the slot references. */
static struct wreq *wreq_make(struct inode_io *d, uint64_t idx, uint32_t off, uint32_t len)
{
	struct client *c = d->c;
	struct wreq *w = wreq_alloc(c);
	uint32_t bs = chunk_block_size(d->inode->attr.layout.chunk_size);

	if (w == NULL)
		return NULL;
	w->d = d;
	w->seq = ++d->write_seq;
	w->idx = idx;
	w->off = off;
	w->len = len;
	w->block_first = off / bs;
	w->block_last = (off + len - 1) / bs;
	w->deadline_us = client_deadline(c);
	w->session_gen = c->session_gen;
	w->target = NULL;
	w->reserved = 0;
	w->behind = w->pages = w->reservation = false;
	w->mtime_ns = 0;
	w->done = false;
	w->status = 0;
	w->call = NULL;
	w->lazy = w->sent_lazy = false;
	w->n_vec = 0;
	inode_ref(d->inode);
	list_push(&d->writes, &w->link);
	return w;
}

static void wreq_start(struct wreq *w)
{
	/* Without a fiber it ends immediately with an error, because the caller must not yield
	 * here. */
	if (client_bg_spawn(w->d->c, "oss_write", wreq_fiber, w) < 0)
		wreq_end(w, -LE_NOMEM);
}

static int wreq_begin(struct inode_io *d, const struct stripe_part *part,
		      const struct slot_vec *vec, uint32_t n, unsigned how, struct wreq **ret_w)
{
	struct wreq *w;

	if (part->len > WREQ_LEN_MAX || d->inode->attr.layout.chunk_size < LEAT_CHUNK_SIZE_MIN)
		return -LE_INVAL;
	w = wreq_make(d, part->idx, part->off, part->len);
	if (w == NULL)
		return -LE_NOMEM;
	w->pages = how & WB_PAGES;
	w->reservation = how & WB_RESERVED;
	if (w->reservation)
		w->session_gen = d->reservation_gen;
	w->n_vec = vec_slice(vec, n, part->at, part->len, w->vec, LL_VECS_MAX);
	for (uint32_t i = 0; i < w->n_vec; i++)
		slot_ref(w->vec[i].slot);
	*ret_w = w;
	return 0;
}

int wb_submit(struct inode_io *d, const struct stripe_part *part, const struct slot_vec *vec,
	      uint32_t n, unsigned how, struct wreq **ret_wait)
{
	struct client *c = d->c;
	const struct layout *l = &d->inode->attr.layout;
	uint64_t need;
	struct target *t;
	struct wreq *w;

	TRY(wreq_begin(d, part, vec, n, how, &w));
	need = grant_need(chunk_block_size(l->chunk_size), part->off, part->len);
	t = how & WB_BEHIND ? map_head(c, l, part->idx) : NULL;
	if (t != NULL && restart_mark_begin(d) && grant_reserve(t, need)) {
		w->behind = true;
		w->mtime_ns = d->mtime_guess_ns;
		w->target = t;
		w->reserved = need;
		c->wb.dirty += w->len;
	}
	*ret_wait = w->behind ? NULL : w;
	wreq_start(w);
	return 0;
}

int wb_await_visible(const struct wreq *w)
{
	while (!w->done && !wreq_is_visible(w))
		TRY(waitq_wait(&w->d->write_q, NO_DEADLINE));
	return w->done ? w->status : 0;
}

int wb_wait(struct wreq *w)
{
	struct inode_io *d = w->d;
	int rc;

	while (!w->done) {
		if (waitq_wait(&d->write_q, NO_DEADLINE) < 0 && !w->done) {
			w->behind = true;
			return -LE_INTR;
		}
	}
	rc = w->status;
	wreq_free(w);
	inode_put(d->c, d->inode);
	return rc;
}

int wb_write_now(struct inode_io *d, const struct stripe_part *part, const struct slot_vec *vec,
		 uint32_t n, unsigned how)
{
	uint64_t deadline = fiber_deadline();
	struct wreq *w;

	TRY(wreq_begin(d, part, vec, n, how, &w));
	fiber_set_deadline(w->deadline_us);
	wreq_run(w);
	fiber_set_deadline(deadline);
	return wb_wait(w);
}

void wb_submit_coalesced(struct inode_io *d, uint64_t idx, uint32_t off, struct slot_vec vec,
			struct target *t, uint64_t reserved)
{
	struct wreq *w = wreq_make(d, idx, off, vec.len);

	if (w == NULL) {
		grant_release(t, reserved);
		d->c->wb.dirty -= vec.len;
		slot_unref(vec.slot);
		wb_set_error(d, -LE_NOMEM);
		return;
	}
	w->vec[0] = vec;
	w->n_vec = 1;
	w->behind = true;
	w->mtime_ns = d->mtime_guess_ns;
	w->lazy = true;
	w->target = t;
	w->reserved = reserved;
	wreq_start(w);
}

bool wreq_overlaps(const struct inode_io *d, uint64_t off, uint64_t len, bool visible_too)
{
	uint64_t chunk_size = d->inode->attr.layout.chunk_size;

	list_for_each (l, &d->writes) {
		const struct wreq *w = list_entry(l, struct wreq, link);

		if ((visible_too || !wreq_is_visible(w)) &&
		    range_overlaps(w->idx * chunk_size + w->off, w->len, off, len))
			return true;
	}
	return false;
}
