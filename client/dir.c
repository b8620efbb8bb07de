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

#define BATCH_BYTES (64u << 10)
#define AHEAD_MAX   (READDIR_CACHE / 2)

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

static bool batch_good(struct client *c, const struct dir_batch *b)
{
	struct inode *i = inode_peek(c, b->ino);
	bool good = i != NULL && lease_held_since(c, i, b->at_us);

	if (i != NULL)
		inode_put(c, i);
	return good;
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

struct ahead {
	struct client *c;
	struct dir_batch *to; /* its place */
	struct dir_batch b;
	struct cred cred;
	uint8_t groups[];
};

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
	a = malloc(sizeof(*a) + cred->groups.len);
	if (a == NULL)
		return;
	to = batch_place(c);
	a->c = c;
	a->to = to;
	a->b = (struct dir_batch){.ino = b->ino,
				  .cookie = b->rep.last,
				  .plus = b->plus,
				  .uid = b->uid,
				  .used = true,
				  .coming = true};
	a->cred = *cred;
	if (cred->groups.len > 0)
		memcpy(a->groups, cred->groups.data, cred->groups.len);
	a->cred.groups.data = a->groups;
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

/* What is known better than by the directory's answer: this client's own writes. */
static void entry_attr(struct client *c, struct ll_dirent *e, uint64_t sent_us)
{
	struct inode *i;

	inode_saw(c, &e->attr, false, sent_us);
	i = inode_peek(c, e->attr.ino);
	if (i == NULL)
		return;
	inode_attr(c, i, &e->attr);
	if (io_times_open(i))
		e->attr.flags |= ATTR_UNSETTLED;
	else if (inode_size_fresh(c, i))
		e->attr.flags &= ~(uint32_t)ATTR_UNSETTLED;
	inode_put(c, i);
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
			entry_attr(c, &e, b->at_us);
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
