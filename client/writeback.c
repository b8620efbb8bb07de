#include "client/writeback.h"

#include <stdlib.h>

#include "client/io.h"
#include "client/kept.h"
#include "client/retry.h"
#include "common/base/log.h"

#define FREE_WREQS_MAX   256u
#define GRANT_AGAIN_US   200000u
#define GRANT_TIMEOUT_MS 5000u
#define GRANT_RETURN_MS  500u /* nobody waits long for a server to take back what it gave */

void wb_init(struct writeback *wb)
{
	*wb = (struct writeback){0};
	list_init(&wb->gathers);
	list_init(&wb->free);
	waitq_init(&wb->q);
}

void wb_fini(struct writeback *wb)
{
	struct list *l;

	while ((l = list_pop(&wb->free)) != NULL)
		free(list_entry(l, struct wreq, link));
}

void wb_set_error(struct idata *d, int status)
{
	d->err = status;
	d->err_gen++;
	d->n_unheard = d->n_files;
	kept_write_moved(d);
	log_warn("client %s: write behind to ino %llu failed: %s", d->c->name,
		 (unsigned long long)d->inode->ino.v, status_name(status));
}

/* ---- space grants ---- */

bool grant_reserve(struct target *t, uint64_t len)
{
	if (t->reserved + len > t->grant)
		return false;
	t->reserved += len;
	return true;
}

void grant_release(struct target *t, uint64_t len)
{
	t->reserved -= len < t->reserved ? len : t->reserved;
}

uint64_t grant_need(uint32_t block_size, uint64_t off, uint64_t len)
{
	uint64_t first = off / block_size, end = (off + len + block_size - 1) / block_size;

	return (end - first) * block_size;
}

uint64_t grant_want(const struct client *c)
{
	return c->params.dirty_max;
}

static void grant_call(struct target *t, uint64_t want, uint32_t timeout_ms)
{
	struct client *c = t->c;
	struct oss_grant_req req = {.want = want};
	struct oss_grant_rep rep = {0};
	struct rpc_call call = {
		.op = OP_oss_grant,
		.req = &req,
		.rep = &rep,
		.session = c->session,
		.target = t->id,
		.chain = t->chain,
		.epoch = t->epoch,
		.deadline_us = loop_deadline_ms(timeout_ms),
	};
	int rc = t->rpc != NULL ? rpc_call(t->rpc, &call) : -LE_DISCONNECTED;

	if (rc >= 0)
		t->grant = rep.grant;
	rpc_call_fini(&call);
}

static void grant_fiber(void *arg)
{
	struct target *t = arg;
	struct client *c = t->c;

	grant_call(t, grant_want(c), GRANT_TIMEOUT_MS);
	t->grant_asking = false;
	client_bg_end(c);
}

static void grant_return_fiber(void *arg)
{
	struct target *t = arg;

	grant_call(t, 0, GRANT_RETURN_MS);
	client_bg_end(t->c);
}

void grant_return_all(struct client *c)
{
	for (struct hmap_node *n = hmap_next(&c->map.targets, NULL); n != NULL;
	     n = hmap_next(&c->map.targets, n)) {
		struct target *t = container_of(n, struct target, node);

		/* One that cannot be told finds out by itself: the grant's time runs out. */
		if (t->grant > 0 && t->up &&
		    client_bg_spawn(c, "oss_grant", grant_return_fiber, t) < 0)
			break;
	}
	latch_wait(&c->bg);
}

void grant_ask(struct idata *d)
{
	struct client *c = d->c;
	const struct layout *l = &d->inode->attr.layout;
	uint32_t width = map_width(c, l);
	uint64_t now = loop_now_us();
	struct target *t;

	if (grant_want(c) == 0)
		return;
	for (uint32_t i = 0; i < width && i < 64; i++) {
		const struct chain *ch = map_chain(c, l, i);

		t = map_head(c, l, i);
		if (t == NULL || t->grant_asking || t->grant > grant_want(c) / 4)
			continue;
		if (t->grant_asked_us != 0 && now < t->grant_asked_us + GRANT_AGAIN_US)
			continue;
		if (target_connect(t) < 0)
			continue;
		target_asked(t, ch);
		t->grant_asked_us = now;
		t->grant_asking = true;
		if (client_bg_spawn(c, "oss_grant", grant_fiber, t) < 0)
			t->grant_asking = false;
	}
}

/* ---- write requests ---- */

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

/* An older write to a block of ours must be durable first: the servers apply in the order of
 * arrival. */
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

/* What the target has accepted so far becomes durable without delay. */
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
		/* Without it the answers come a little later. */
		if (t->rpc != NULL)
			(void)!rpc_call(t->rpc, &call);
		rpc_call_fini(&call);
	} while (t->sync_again);
	t->syncing = false;
	client_bg_end(c);
}

/* Whoever has accepted the write: the head of its chain may have changed since it was begun. */
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

/* Do readers see it? */
static bool is_shown(const struct wreq *w)
{
	return w->call != NULL && w->call->ret_accepted;
}

/* Or no more: it has to be repeated. */
static void wreq_accepted(void *arg)
{
	struct wreq *w = arg;

	/* Sent as lazy, and somebody has begun to wait since. */
	if (is_shown(w) && !w->lazy && w->sent_lazy)
		sync_target(w->d->c, w);
	kept_write_moved(w->d);
	waitq_wake_all(&w->d->write_q);
}

static void hurry_up_to(struct idata *d, uint64_t seq)
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

void wb_hurry(struct idata *d)
{
	hurry_up_to(d, d->write_seq);
}

/* ---- compression ---- */

struct seal {
	const struct wreq *w;
	struct pieces_out out;
	uint32_t len, n_packed;
};

/* On a worker thread. */
static void seal_run(void *arg)
{
	struct seal *s = arg;

	s->len = pieces_seal(&s->out, s->w->vec, &s->n_packed);
}

/* Compressing takes a millisecond or more, in which the loop has others to serve. */
static int seal_blocks(struct wreq *w, uint32_t block_size)
{
	struct client *c = w->d->c;
	struct seal s = {.w = w, .out = {block_size, w->off, w->len, NULL, w->pieces, NULL}};
	struct slot *slot;
	int rc = slot_get(c->seals, w->deadline_us, &slot);

	if (rc < 0)
		return rc == -LE_TIMEDOUT ? -LE_IO : rc;
	s.out.to = slot->data;
	s.out.scratch = slot->data + WREQ_LEN_MAX;
	if (w->len < GATHER_BELOW || env_offload(c->env, seal_run, &s) < 0)
		seal_run(&s);
	if (s.n_packed == 0) {
		slot_unref(slot);
		return 0;
	}
	/* From here on what goes out is what was sealed: the plain bytes have done their service.
	 */
	for (uint32_t i = 0; i < w->n_vec; i++)
		slot_unref(w->vec[i].slot);
	w->vec[0] = (struct slot_vec){slot, 0, s.len};
	w->n_vec = 1;
	return 0;
}

/* Pieces and data as they are to travel: once for each wreq. */
static int wreq_seal(struct wreq *w)
{
	const struct layout *l = &w->d->inode->attr.layout;
	uint32_t bs = chunk_block_size(l->chunk_size);

	w->n_pieces = w->block_last - w->block_first + 1;
	if (l->compression == COMPRESSION_LZ4 && pieces_whole(bs, w->off, w->len))
		return seal_blocks(w, bs);
	pieces_cut(bs, w->off, w->len, w->vec, w->pieces);
	return 0;
}

/* What others have read or written there since is newer than this write, so it stays. */
static void say_late(const struct wreq *w)
{
	struct idata *d = w->d;
	uint64_t off = w->idx * d->inode->attr.layout.chunk_size + w->off;

	d->c->stats.late_writes++;
	log_warn("client %s: ino %llu, bytes %llu to %llu are lost: their object server crashed "
		 "before they were durable, this client came back to it after its grace time "
		 "(grace_ms), and others have used them since; fsync or close says so, write them "
		 "again",
		 d->c->name, (unsigned long long)d->inode->ino.v, (unsigned long long)off,
		 (unsigned long long)(off + w->len - 1));
}

static int wreq_send(struct wreq *w)
{
	struct idata *d = w->d;
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
			 (w->pages ? WRITE_PAGES : 0u) | (w->placed ? WRITE_PLACED : 0u) |
			 /* Whoever opens the file waits until this is seen. */
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
	struct io_auth auth = {
		.right = IO_WRITE,
		.cap = &req.cap,
		.gen = &req.chunk.gen,
		/* What was written behind under a session that is gone must not reach the file any
		   more. */
		.session_gen = w->behind || w->placed ? w->session_gen : 0,
	};
	struct route route = {.spread = 0};
	int rc;

	w->call = &call;
	w->sent_lazy = w->lazy;
	rc = io_call(d, w->idx, &call, &auth, &route);
	if (rc >= 0) {
		uint64_t end = w->idx * chunk_size + w->off + w->len;

		route.target->grant = rep.grant;
		if (end > d->durable_end)
			d->durable_end = end;
		if (rep.mtime_ns > d->mtime_ns)
			d->mtime_ns = rep.mtime_ns;
	}
	/* Nothing else than a session's end leaves it open whether it was carried out, and does not
	 * end the append. */
	if (w->placed && (rc >= 0 || (rc == -LE_SESSION_GONE && route.unknown)))
		d->placed_there = true;
	w->call = NULL;
	rpc_call_fini(&call);
	if (rc == -LE_LATE)
		say_late(w);
	return rc == -LE_SESSION_GONE && !w->placed ? -LE_IO : rc;
}

static void wreq_end(struct wreq *w, int status)
{
	struct idata *d = w->d;
	struct client *c = d->c;

	for (uint32_t i = 0; i < w->n_vec; i++)
		slot_unref(w->vec[i].slot);
	w->n_vec = 0;
	if (w->target != NULL) {
		grant_release(w->target, w->reserved);
		c->wb.dirty -= w->len;
	}
	list_remove(&w->link);
	if (list_empty(&d->writes) && d->gather.slot == NULL)
		d->mtime_guess_ns = 0;
	w->status = status;
	w->done = true;
	waitq_wake_all(&d->write_q);
	waitq_wake_all(&c->wb.q);
	if (w->behind && status < 0)
		wb_set_error(d, status);
	else
		kept_write_moved(d);
	if (!w->behind)
		return;
	inode_put(c, d->inode);
	wreq_free(w);
}

static void wreq_run(struct wreq *w)
{
	int rc = 0;

	/* Not for interruption: the bytes were promised, and older ones end by their own deadlines.
	 */
	if (must_wait(w))
		hurry_up_to(w->d, w->seq - 1);
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

/* In order behind the inode's others. References to slots: the caller's affair. */
static struct wreq *wreq_make(struct idata *d, uint64_t idx, uint32_t off, uint32_t len)
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
	w->behind = w->pages = w->placed = false;
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
	/* Without a fiber of its own it ends at once with an error: the caller may not yield here.
	 */
	if (client_bg_spawn(w->d->c, "oss_write", wreq_fiber, w) < 0)
		wreq_end(w, -LE_NOMEM);
}

static int wreq_begin(struct idata *d, const struct stripe_part *part, const struct slot_vec *vec,
		      uint32_t n, unsigned how, struct wreq **ret_w)
{
	struct wreq *w;

	if (part->len > WREQ_LEN_MAX || d->inode->attr.layout.chunk_size < LEAT_CHUNK_SIZE_MIN)
		return -LE_INVAL;
	w = wreq_make(d, part->idx, part->off, part->len);
	if (w == NULL)
		return -LE_NOMEM;
	w->pages = how & WB_PAGES;
	w->placed = how & WB_PLACED;
	if (w->placed)
		w->session_gen = d->placed_gen;
	w->n_vec = vec_slice(vec, n, part->at, part->len, w->vec, LL_VECS_MAX);
	for (uint32_t i = 0; i < w->n_vec; i++)
		slot_ref(w->vec[i].slot);
	*ret_w = w;
	return 0;
}

int wb_submit(struct idata *d, const struct stripe_part *part, const struct slot_vec *vec,
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
	if (t != NULL && kept_write_begin(d) && grant_reserve(t, need)) {
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

int wb_await_shown(const struct wreq *w)
{
	while (!w->done && !is_shown(w))
		TRY(waitq_wait(&w->d->write_q, NO_DEADLINE));
	return w->done ? w->status : 0;
}

int wb_wait(struct wreq *w)
{
	struct idata *d = w->d;
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

int wb_write_now(struct idata *d, const struct stripe_part *part, const struct slot_vec *vec,
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

void wb_submit_gathered(struct idata *d, uint64_t idx, uint32_t off, struct slot_vec vec,
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

/* ---- flushing ---- */

int wb_flush(struct idata *d)
{
	gather_submit(d);
	wb_hurry(d);
	return wb_drain(d);
}

int wb_drain(struct idata *d)
{
	uint64_t seq;

	gather_submit(d);
	seq = d->write_seq;
	while (!list_empty(&d->writes) && list_entry(d->writes.next, struct wreq, link)->seq <= seq)
		TRY(waitq_wait(&d->write_q, NO_DEADLINE));
	return 0;
}

/* Is there a write up to seq that not everybody sees? */
static bool hidden(const struct idata *d, uint64_t seq)
{
	list_for_each (l, &d->writes) {
		const struct wreq *w = list_entry(l, struct wreq, link);

		if (w->seq > seq)
			return false;
		if (!is_shown(w))
			return true;
	}
	return false;
}

bool wb_is_hidden(const struct idata *d)
{
	return d->gather.slot != NULL || hidden(d, UINT64_MAX);
}

int wb_show(struct idata *d)
{
	uint64_t seq;

	gather_submit(d);
	seq = d->write_seq;
	while (hidden(d, seq))
		TRY(waitq_wait(&d->write_q, NO_DEADLINE));
	return 0;
}

static bool writes_overlap(const struct idata *d, uint64_t off, uint64_t len, bool shown_too)
{
	uint64_t chunk_size = d->inode->attr.layout.chunk_size;

	list_for_each (l, &d->writes) {
		const struct wreq *w = list_entry(l, struct wreq, link);

		if ((shown_too || !is_shown(w)) &&
		    range_overlaps(w->idx * chunk_size + w->off, w->len, off, len))
			return true;
	}
	return false;
}

bool wb_pending(const struct idata *d, uint64_t off, uint64_t len)
{
	return gather_overlaps(d, off, len) || writes_overlap(d, off, len, true);
}

int wb_show_range(struct idata *d, uint64_t off, uint64_t len)
{
	if (gather_overlaps(d, off, len))
		gather_submit(d);
	while (writes_overlap(d, off, len, false))
		TRY(waitq_wait(&d->write_q, NO_DEADLINE));
	return 0;
}

/* A quarter of the slots is for readers and for requests that come in. */
static bool is_short(const struct slot_pool *p)
{
	return slot_pool_free(p) < slot_pool_total(p) / 4;
}

int wb_throttle(struct idata *d, const struct slot_pool *pool)
{
	struct client *c = d->c;

	/* Of the caller's slots those hold too many whose writes do not get on, not others. */
	while (c->wb.dirty > 0 && (c->wb.dirty > c->params.dirty_max || is_short(c->slots) ||
				   (is_short(pool) && !list_empty(&d->writes)))) {
		gather_submit_all(c, UINT64_MAX);
		if (c->wb.dirty == 0)
			break;
		TRY(waitq_wait(&c->wb.q, NO_DEADLINE));
	}
	return 0;
}

void wb_session_gone(struct idata *d)
{
	if (gather_drop(d))
		wb_set_error(d, -LE_IO);
	/* Others may have cut it since, of which we were not told. A close or an append that was
	 * refused is sent again as it is. */
	d->durable_end = 0;
	d->was_cut |= d->n_write > 0;
	d->unsure |= d->n_write > 0;
	if (d->append_req != NULL)
		d->append_req->size = 0;
	list_for_each (l, &d->closes) {
		struct mds_close_req *req = list_entry(l, struct ll_file, link)->close_req;

		req->flags |= req->dirty ? CLOSE_CUT : 0u;
	}
}
