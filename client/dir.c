/*
 * Directories. A batch of entries is fetched at once; what the caller does not take is kept for
 * a moment for the call that goes on behind it (a few batches in all), so that readers with small
 * buffers do not fetch the same entries again and again.
 */
#include "client/dir.h"

#include "client/io.h"
#include "client/retry.h"

#define BATCH_BYTES (64u << 10)

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

/* Takes the kept batch out that goes on behind cookie. */
static bool batch_take(struct client *c, const struct dir_batch *want, struct dir_batch *ret_b)
{
	for (uint32_t i = 0; i < READDIR_CACHE; i++) {
		struct dir_batch *b = &c->dirs[i];

		if (!b->used || !ino_equal(b->ino, want->ino) || b->cookie != want->cookie ||
		    b->plus != want->plus || b->uid != want->uid)
			continue;
		if (!batch_good(c, b)) {
			batch_free(b);
			return false;
		}
		*ret_b = *b;
		b->used = false;
		return true;
	}
	return false;
}

static void batch_keep(struct client *c, const struct dir_batch *b)
{
	struct dir_batch *to = &c->dirs[0];

	for (uint32_t i = 0; i < READDIR_CACHE; i++) {
		if (!c->dirs[i].used) {
			to = &c->dirs[i];
			break;
		}
		if (c->dirs[i].at_us < to->at_us)
			to = &c->dirs[i];
	}
	batch_free(to);
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

	if (cookie == 0 || !batch_take(c, &b, &b))
		TRY(batch_fetch(c, cred, &b));
	for (;;) {
		uint64_t before = b.cookie;

		rc = batch_walk(c, &b, each, arg);
		if (rc != 0 || b.eof)
			break;
		rpc_call_fini(&b.call);
		/* An empty batch that is not the last one would be asked for for ever. */
		if (b.cookie == before)
			return -LE_BAD_MESSAGE;
		TRY(batch_fetch(c, cred, &b));
	}
	if (rc > 0)
		batch_keep(c, &b);
	else
		rpc_call_fini(&b.call);
	TRY(rc);
	*ret_eof = rc == 0;
	return 0;
}
