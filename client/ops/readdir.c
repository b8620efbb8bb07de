/* SPDX-License-Identifier: Apache-2.0 */
#include "client/ops/readdir.h"

#include <stdlib.h>
#include <string.h>

#include "client/base/background.h"
#include "client/cache/attr_cache.h"
#include "client/cache/dentry_cache.h"
#include "client/cache/inode_cache.h"
#include "client/cache/lease.h"
#include "client/client.h"
#include "client/data/size.h"
#include "client/ll.h"
#include "client/servers/mds_call.h"
#include "common/base/assert.h"
#include "common/base/status.h"
#include "common/proto/mds_proto.h"
#include "common/proto/types.h"
#include "common/proto/wire.h"
#include "common/rpc/rpc.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

#define BATCH_BYTES   (64u << 10)
#define AHEAD_MAX     (READDIR_CACHE / 2)
#define BATCH_KEPT_US 1000000u
#define PREFETCH_IDLE_US  100000u /* a caller that sends no request for this long has stopped */
#define PREFETCH_PAUSE_US 5000u

static void batch_free(struct dir_batch *b)
{
	if (!b->used)
		return;
	rpc_call_fini(&b->call);
	b->used = false;
}

void dir_forget_all(struct client *c)
{
	for (uint32_t i = 0; i < READDIR_CACHE; i++)
		batch_free(&c->dirs[i]);
}

/* Returns true if no other client has changed the directory since the batch was fetched. */
static bool is_leased(struct client *c, const struct dir_batch *b)
{
	struct inode *i = inode_peek(c, b->ino);
	bool leased = i != NULL && lease_held_since(c, i, b->at_us);

	if (i != NULL)
		inode_put(c, i);
	return leased;
}

/* Returns true if no client has changed the directory since, and the entries' attributes are not
 * older than BATCH_KEPT_US. */
static bool batch_good(struct client *c, const struct dir_batch *b)
{
	struct inode *i = inode_peek(c, b->ino);
	bool good = i != NULL && inode_attr_fresh(c, i) && i->attr.change == b->rep.change &&
		    loop_now_us() < b->at_us + BATCH_KEPT_US;

	if (i != NULL)
		inode_put(c, i);
	return good && is_leased(c, b);
}

/* Returns the batch that continues at that cookie, perhaps still in flight; or NULL. */
static struct dir_batch *batch_find(struct client *c, const struct dir_batch *want, uint64_t cookie)
{
	for (uint32_t i = 0; i < READDIR_CACHE; i++) {
		struct dir_batch *b = &c->dirs[i];

		if (b->used && ino_equal(b->ino, want->ino) && b->cookie == cookie &&
		    b->plus == want->plus && b->uid == want->uid)
			return b;
	}
	return NULL;
}

/* Removes from the cache, and returns, the batch that continues at want's cookie. Waits for one in
 * flight. Returns 0, -LE_NOENT if there is none, or -LE_INTR. Yields. */
static int batch_take(struct client *c, const struct dir_batch *want, struct dir_batch *ret_b)
{
	struct dir_batch *b;

	while ((b = batch_find(c, want, want->cookie)) != NULL && b->coming)
		TRY(waitq_wait(&c->dirs_q, NO_DEADLINE));
	if (b == NULL)
		return -LE_NOENT;
	if (!batch_good(c, b)) {
		batch_free(b);
		return -LE_NOENT;
	}
	*ret_b = *b;
	b->used = false;
	return 0;
}

/* Returns the entry to replace: the oldest that is not in flight. At most AHEAD_MAX are. */
static struct dir_batch *batch_place(struct client *c)
{
	struct dir_batch *to = NULL;

	for (uint32_t i = 0; i < READDIR_CACHE; i++) {
		struct dir_batch *b = &c->dirs[i];

		if (!b->used)
			return b;
		if (!b->coming && (to == NULL || b->at_us < to->at_us))
			to = b;
	}
	ASSERT(to != NULL);
	batch_free(to);
	return to;
}

static void batch_keep(struct client *c, struct dir_batch *b)
{
	struct dir_batch *to = batch_place(c);

	*to = *b;
	to->used = true;
}

static int batch_fetch(struct client *c, const struct cred *cred, struct dir_batch *b)
{
	struct mds_readdir_req req = {
		.cred = *cred,
		.ino = b->ino,
		.cookie = b->cookie,
		.max_bytes = BATCH_BYTES,
		.flags = b->plus ? READDIR_PLUS : 0,
	};
	int rc = mds_call(c, OP_mds_readdir, &req, &b->rep, &b->call);

	if (rc < 0) {
		rpc_call_fini(&b->call);
		return rc;
	}
	b->pos = 0;
	b->eof = b->rep.eof != 0;
	b->at_us = b->call.sent_us;
	return 0;
}

/* A fetch by a background fiber. */
struct ahead {
	struct client *c;
	struct dir_batch *to; /* the entry to fill; NULL: for prefetch_fiber */
	struct dir_batch b;
	struct cred cred;
	uint8_t groups[];
};

static struct ahead *ahead_new(struct client *c, const struct cred *cred)
{
	struct ahead *a = calloc(1, sizeof(*a) + cred->groups.len);

	if (a == NULL)
		return NULL;
	a->c = c;
	a->cred = *cred;
	if (cred->groups.len > 0)
		memcpy(a->groups, cred->groups.data, cred->groups.len);
	a->cred.groups.data = a->groups;
	return a;
}

static void ahead_fiber(void *arg)
{
	struct ahead *a = arg;
	struct client *c = a->c;

	a->b.used = batch_fetch(c, &a->cred, &a->b) >= 0;
	a->b.coming = false;
	ASSERT(a->to->coming && c->n_dirs_coming > 0);
	*a->to = a->b;
	c->n_dirs_coming--;
	waitq_wake_all(&c->dirs_q);
	free(a);
	client_bg_end(c);
}

/* Starts to fetch the batch after b in the background. If that fails, the caller fetches it when it
 * is needed. */
static void ahead_start(struct client *c, const struct cred *cred, const struct dir_batch *b)
{
	struct dir_batch *to;
	struct ahead *a;

	if (b->eof || c->stopping || c->n_dirs_coming == AHEAD_MAX ||
	    batch_find(c, b, b->rep.last) != NULL)
		return;
	a = ahead_new(c, cred);
	if (a == NULL)
		return;
	to = batch_place(c);
	a->to = to;
	a->b = (struct dir_batch){.ino = b->ino,
				  .cookie = b->rep.last,
				  .plus = b->plus,
				  .uid = b->uid,
				  .used = true,
				  .coming = true};
	*to = a->b;
	c->n_dirs_coming++;
	if (client_bg_spawn(c, "readdir-ahead", ahead_fiber, a) == 0)
		return;
	c->n_dirs_coming--;
	to->used = to->coming = false;
	waitq_wake_all(&c->dirs_q);
	free(a);
}

/* Gets the batch at b's cookie, from the cache or the MDS. A whole batch starts the fetch of the
 * next one. Yields. */
static int batch_get(struct client *c, const struct cred *cred, struct dir_batch *b)
{
	int rc = b->cookie == 0 ? -LE_NOENT : batch_take(c, b, b);

	if (rc == -LE_NOENT)
		rc = batch_fetch(c, cred, b);
	TRY(rc);
	if (b->pos == 0)
		ahead_start(c, cred, b);
	return 0;
}

/* Replaces attributes of a listing by cached ones, which include this client's writes. Returns
 * false if the inode is not cached. */
static bool entry_attr(struct client *c, struct attr *attr)
{
	struct inode *i = inode_peek(c, attr->ino);

	if (i == NULL)
		return false;
	inode_attr(c, i, attr);
	if (size_times_are_open(i))
		attr->flags |= ATTR_UNSETTLED;
	else if (inode_size_fresh(c, i))
		attr->flags &= ~(uint32_t)ATTR_UNSETTLED;
	inode_put(c, i);
	return true;
}

static void entry_known(struct client *c, const struct dir_batch *b, struct ll_dirent *e)
{
	struct inode *dir = inode_peek(c, b->ino);

	inode_saw(c, &e->attr, false, b->at_us);
	(void)entry_attr(c, &e->attr);
	if (dir == NULL)
		return;
	dentry_cache_update_listed(c, dir, b->rep.change, e->name, e->attr.ino, b->at_us);
	inode_put(c, dir);
}

bool ll_still_listed(struct client *c, struct ino dir, struct bytes name, struct attr *attr)
{
	struct inode *d = inode_peek(c, dir);
	struct ino now = {0};
	bool still = d != NULL && dentry_cache_find(c, d, name, &now) && ino_equal(now, attr->ino);

	if (d != NULL)
		inode_put(c, d);
	if (!still || !entry_attr(c, attr))
		return false;
	if (!ll_leased(c, attr->ino))
		attr->flags &= ~(uint32_t)ATTR_LEASED;
	return true;
}

/* Passes entries to each(). Returns 1 if the caller has enough, 0 at the end of the batch, or an
 * error. */
static int batch_walk(struct client *c, struct dir_batch *b,
		      int (*each)(void *arg, const struct ll_dirent *e), void *arg)
{
	struct wire_r r;

	wire_r_init(&r, (const uint8_t *)b->rep.entries.data + b->pos, b->rep.entries.len - b->pos);
	while (!wire_r_end(&r)) {
		struct dirent_wire dw;
		struct ll_dirent e;

		memset(&dw, 0, sizeof(dw));
		wire_get_dirent_wire(&r, &dw);
		TRY(r.status);
		e = (struct ll_dirent){.cookie = dw.cookie, .name = dw.name, .attr = dw.attr};
		if (b->plus)
			entry_known(c, b, &e);
		if (each(arg, &e) > 0)
			return 1;
		b->cookie = dw.cookie;
		b->pos = (uint32_t)(r.p - (const uint8_t *)b->rep.entries.data);
	}
	return 0;
}

int ll_readdir(struct client *c, const struct cred *cred, struct ino ino, uint64_t cookie,
	       bool plus, int (*each)(void *arg, const struct ll_dirent *e), void *arg,
	       bool *ret_eof)
{
	struct dir_batch b = {.ino = ino, .cookie = cookie, .plus = plus, .uid = cred->uid};
	int rc = 0;

	TRY(batch_get(c, cred, &b));
	for (;;) {
		uint64_t before = b.cookie;

		rc = batch_walk(c, &b, each, arg);
		if (rc != 0 || b.eof)
			break;
		rpc_call_fini(&b.call);
		/* An empty batch that is not the last would be requested again and again. */
		if (b.cookie == before)
			return -LE_BAD_MESSAGE;
		TRY(batch_get(c, cred, &b));
	}
	if (rc > 0)
		batch_keep(c, &b);
	else
		rpc_call_fini(&b.call);
	TRY(rc);
	*ret_eof = rc == 0;
	return 0;
}

static int count_entry(void *arg, const struct ll_dirent *e)
{
	uint32_t *n = arg;

	(void)e;
	(*n)++;
	return 0;
}

/* Returns true while the look-ahead is to continue. Waits so as not to evict entries that the
 * caller has not reached. Yields. */
static bool prefetch_may_go_on(struct client *c, uint32_t n)
{
	const struct attr_prefetch *l = &c->look;
	uint32_t ahead_max = c->params.inodes_max / 4 * 3;

	for (;;) {
		if (c->stopping || loop_now_us() > l->requested_us + PREFETCH_IDLE_US)
			return false;
		if (n < l->n_requested + ahead_max)
			return true;
		if (fiber_sleep_us(PREFETCH_PAUSE_US) < 0)
			return false;
	}
}

static void prefetch_fiber(void *arg)
{
	struct ahead *a = arg;
	struct client *c = a->c;
	struct dir_batch *b = &a->b;
	uint32_t n = 0;
	bool more = true;

	while (more && prefetch_may_go_on(c, n)) {
		uint64_t before = b->cookie;

		if (batch_fetch(c, &a->cred, b) < 0)
			break;
		more = batch_walk(c, b, count_entry, &n) >= 0 && !b->eof && b->cookie != before &&
		       is_leased(c, b);
		rpc_call_fini(&b->call);
	}
	c->look.running = false;
	free(a);
	client_bg_end(c);
}

void ll_prefetch_attrs(struct client *c, const struct cred *cred, struct ino dir, bool first)
{
	struct attr_prefetch *l = &c->look;
	struct ahead *a;

	if (ino_equal(l->dir, dir)) {
		l->n_requested++;
		l->requested_us = loop_now_us();
	}
	if (!first || l->running)
		return;
	a = c->stopping ? NULL : ahead_new(c, cred);
	if (a == NULL)
		return;
	a->b = (struct dir_batch){.ino = dir, .plus = true, .uid = cred->uid};
	*l = (struct attr_prefetch){.dir = dir, .running = true, .requested_us = loop_now_us()};
	if (client_bg_spawn(c, "look-ahead", prefetch_fiber, a) == 0)
		return;
	l->running = false;
	free(a);
}
