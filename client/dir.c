/*
 * Directories. A batch of entries is fetched at once, and the one behind it while the caller works
 * on it; what the caller does not take is kept for a moment for the call that goes on behind it (a
 * few batches in all), so that readers with small buffers do not fetch the same entries again and
 * again.
 */
#include "client/dir.h"

#include <stdlib.h>
#include <string.h>

#include "client/io.h"
#include "client/retry.h"

#define BATCH_BYTES   (64u << 10)
#define AHEAD_MAX     (READDIR_CACHE / 2)
#define BATCH_KEPT_US 1000000u
#define LOOK_IDLE_US  100000u /* who has not looked for so long has stopped */
#define LOOK_PAUSE_US 5000u

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

/* Nobody else has changed the directory since. */
static bool is_leased(struct client *c, const struct dir_batch *b)
{
	struct inode *i = inode_peek(c, b->ino);
	bool leased = i != NULL && lease_held_since(c, i, b->at_us);

	if (i != NULL)
		inode_put(c, i);
	return leased;
}

/* This client neither, and what it tells of the entries is not old. */
static bool batch_good(struct client *c, const struct dir_batch *b)
{
	struct inode *i = inode_peek(c, b->ino);
	bool good = i != NULL && inode_attr_fresh(c, i) && i->attr.change == b->rep.change &&
		    loop_now_us() < b->at_us + BATCH_KEPT_US;

	if (i != NULL)
		inode_put(c, i);
	return good && is_leased(c, b);
}

/* The one that goes on behind that cookie, perhaps still coming; or NULL. */
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

/* Takes the kept batch out that goes on behind cookie. Yields while it is coming. */
static bool batch_take(struct client *c, const struct dir_batch *want, struct dir_batch *ret_b)
{
	struct dir_batch *b;

	while ((b = batch_find(c, want, want->cookie)) != NULL && b->coming)
		if (waitq_wait(&c->dirs_q, NO_DEADLINE) < 0)
			return false; /* and asks itself, which ends as well */
	if (b == NULL)
		return false;
	if (!batch_good(c, b)) {
		batch_free(b);
		return false;
	}
	*ret_b = *b;
	b->used = false;
	return true;
}

/* The place of the oldest that is not coming: so many do not at one time. */
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

/* ---- ahead ---- */

/* Of a fiber in the background. */
struct ahead {
	struct client *c;
	struct dir_batch *to; /* its place; NULL: look_fiber's own */
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
	*a->to = a->b;
	c->n_dirs_coming--;
	waitq_wake_all(&c->dirs_q);
	free(a);
	client_bg_end(c);
}

/* The batch behind that one, which nobody has asked for yet. That it does not come is no failure:
 * who wants it asks. */
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

/* The batch behind b's cookie; when it is a whole one the next is fetched ahead, once. */
static int batch_get(struct client *c, const struct cred *cred, struct dir_batch *b)
{
	if (b->cookie == 0 || !batch_take(c, b, b))
		TRY(batch_fetch(c, cred, b));
	if (b->pos == 0)
		ahead_start(c, cred, b);
	return 0;
}

/* ---- reading ---- */

/* What is known better than by the directory's answer: this client's own writes. False: nothing. */
static bool entry_attr(struct client *c, struct attr *attr)
{
	struct inode *i = inode_peek(c, attr->ino);

	if (i == NULL)
		return false;
	inode_attr(c, i, attr);
	if (io_times_open(i))
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
	names_listed(c, dir, b->rep.change, e->name, e->attr.ino, b->at_us);
	inode_put(c, dir);
}

bool ll_still_listed(struct client *c, struct ino dir, struct bytes name, struct attr *attr)
{
	struct inode *d = inode_peek(c, dir);
	struct ino now = {0};
	bool still = d != NULL && names_find(c, d, name, &now) && ino_equal(now, attr->ino);

	if (d != NULL)
		inode_put(c, d);
	if (!still || !entry_attr(c, attr))
		return false;
	if (!ll_leased(c, attr->ino))
		attr->flags &= ~(uint32_t)ATTR_LEASED;
	return true;
}

/* Hands entries out until the caller has enough (1) or the batch ends (0). */
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
		/* An empty batch that is not the last one would be asked for for ever. */
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

/* ---- who looks at names that he was given alone ---- */

static int count_entry(void *arg, const struct ll_dirent *e)
{
	uint32_t *n = arg;

	(void)e;
	(*n)++;
	return 0;
}

/* Not further than what would push out what he has not come to. */
static bool look_goes_on(struct client *c, uint32_t n)
{
	const struct dir_look *l = &c->look;
	uint32_t ahead_max = c->params.inodes_max / 4 * 3;

	for (;;) {
		if (c->stopping || loop_now_us() > l->looked_us + LOOK_IDLE_US)
			return false;
		if (n < l->n_looked + ahead_max)
			return true;
		if (fiber_sleep_us(LOOK_PAUSE_US) < 0)
			return false;
	}
}

static void look_fiber(void *arg)
{
	struct ahead *a = arg;
	struct client *c = a->c;
	struct dir_batch *b = &a->b;
	uint32_t n = 0;
	bool more = true;

	while (more && look_goes_on(c, n)) {
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

void ll_look_ahead(struct client *c, const struct cred *cred, struct ino dir, bool first)
{
	struct dir_look *l = &c->look;
	struct ahead *a;

	if (ino_equal(l->dir, dir)) {
		l->n_looked++;
		l->looked_us = loop_now_us();
	}
	if (!first || l->running)
		return;
	a = c->stopping ? NULL : ahead_new(c, cred);
	if (a == NULL)
		return;
	a->b = (struct dir_batch){.ino = dir, .plus = true, .uid = cred->uid};
	*l = (struct dir_look){.dir = dir, .running = true, .looked_us = loop_now_us()};
	if (client_bg_spawn(c, "look-ahead", look_fiber, a) == 0)
		return;
	l->running = false;
	free(a);
}
