/*
 * Writing. Large writes go to the servers at once from the caller's slots, small ones are gathered.
 * Written behind is what the targets' space grants cover; everything else waits for the servers'
 * answer.
 */
#include "client/io.h"
#include "client/kept.h"
#include "client/retry.h"
#include "client/session.h"
#include "client/stripe.h"
#include "common/base/fault.h"
#include "common/base/payload.h"

#define WRITE_PARTS (LL_IO_MAX / LEAT_CHUNK_SIZE_MIN + 2)

/* What a write takes away from the file: security.capability in any case; the set-id bits where the
 * writer is a user of the library. Of programs on a mount the kernel says whose writes do that. */
static uint32_t write_kills(const struct ll_file *f)
{
	const struct attr *a = &f->inode->attr;
	uint32_t mask = (a->flags & ATTR_FILE_CAPS) != 0 ? SET_KILL_CAPS : 0;
	bool set_id =
		(a->mode & S_ISUID) != 0 || (a->mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP);

	return set_id && f->kills_suid ? mask | SET_KILL_SUID : mask;
}

/* What must be done before bytes are accepted: the privileges that the file gives go. It may have
 * become immutable since it was opened. */
static int write_prepare(struct ll_file *f)
{
	struct idata *d = f->d;
	struct cred cred = io_renew_cred(d);

	TRY(io_know_rights(f->c, &cred, f->inode));
	if ((f->inode->attr.flags & (ATTR_SEALED | ATTR_IMMUTABLE)) != 0)
		return -LE_PERM;
	if (write_kills(f) != 0) {
		struct mds_setattr_req req = {
			.cred = cred, .ino = f->inode->ino, .mask = write_kills(f)};
		struct mds_setattr_rep rep;
		struct rpc_call call;
		int rc = mds_call(f->c, OP_mds_setattr, &req, &rep, &call);

		if (rc >= 0)
			inode_update(f->c, f->inode, &rep.attr, true, call.sent_us);
		rpc_call_fini(&call);
		TRY(rc);
	}
	return 0;
}

/* The bytes are accepted: what the file looks like to its own client from now on. */
static void note_written(struct ll_file *f, uint64_t off, uint64_t len)
{
	struct idata *d = f->d;
	const struct layout *l = &f->inode->attr.layout;

	if (off > d->size)
		d->sparse = true;
	if (off + len > d->size)
		d->size = off + len;
	if (l->compression != COMPRESSION_NONE && d->size >= chunk_block_size(l->chunk_size))
		d->packed = true;
	f->wrote = true;
	f->c->stats.write_ops++;
	f->c->stats.written_bytes += len;
}

static int wait_all(struct wreq **waits, uint32_t n)
{
	int rc = 0;

	for (uint32_t i = 0; i < n; i++) {
		int one = wb_wait(waits[i]);
		if (one < 0 && rc == 0)
			rc = one;
	}
	return rc;
}

/* Does it make longer what others look at? Then its parts are shown one after the other: the chains
 * tell how long the file is, each what it has, and of a part that is not there yet zeros would be
 * read. Under a write lease nobody looks before all of it is shown. */
static bool grows_in_sight(const struct ll_file *f, uint64_t end)
{
	return !lease_held(f->c, f->inode) && (end > f->d->size || inode_is_unsure(f->inode));
}

static int write_large(struct ll_file *f, uint64_t off, uint64_t len, const struct slot_vec *vec,
		       uint32_t n, unsigned how)
{
	struct stripe_part parts[WRITE_PARTS];
	struct wreq *waits[WRITE_PARTS];
	uint32_t n_parts, n_waits = 0;
	uint64_t covered;
	int rc = 0, rc2;

	n_parts = stripe_cut(f->inode->attr.layout.chunk_size, off, len, parts, WRITE_PARTS,
			     &covered);
	if (covered != len)
		return -LE_INVAL;
	gather_submit(f->d);
	if (n_parts == 1 && !(how & WB_BEHIND))
		return wb_write_now(f->d, &parts[0], vec, n, how);
	for (uint32_t i = 0; i < n_parts && rc >= 0; i++) {
		struct wreq *w;

		rc = wb_submit(f->d, &parts[i], vec, n, how, &w);
		if (rc >= 0 && w != NULL)
			waits[n_waits++] = w;
		if (rc >= 0 && i + 1 < n_parts && grows_in_sight(f, off + len))
			rc = w != NULL ? wb_await_shown(w)
				       : wb_show_range(f->d, off + parts[i].at, parts[i].len);
	}
	rc2 = wait_all(waits, n_waits);
	return rc < 0 ? rc : rc2;
}

static uint32_t gather_unit(const struct ll_file *f)
{
	uint32_t chunk_size = f->inode->attr.layout.chunk_size;

	return chunk_size < LL_IO_MAX ? chunk_size : LL_IO_MAX;
}

/* What of it lies in the first unit. Units divide chunks, so that is in one chunk. */
static struct stripe_part unit_part(const struct ll_file *f, uint64_t off, uint64_t len)
{
	uint32_t chunk_size = f->inode->attr.layout.chunk_size;
	struct stripe_part part = stripe_first(gather_unit(f), off, len);

	part.idx = off / chunk_size;
	part.off = (uint32_t)(off % chunk_size);
	part.at = 0;
	return part;
}

static int write_small(struct ll_file *f, uint64_t off, uint64_t len, const struct slot_vec *vec,
		       uint32_t n)
{
	for (uint64_t at = 0; at < len;) {
		struct stripe_part part = unit_part(f, off + at, len - at);
		bool taken;

		part.at = at;
		TRY(gather_write(f->d, &part, vec, n, &taken));
		if (!taken) {
			gather_submit(f->d);
			TRY(wb_write_now(f->d, &part, vec, n, 0));
		}
		if (at + part.len < len && grows_in_sight(f, off + len))
			TRY(wb_show_range(f->d, off + at, part.len));
		at += part.len;
	}
	return 0;
}

/* Where one append goes. end 0: nowhere yet. lost: not there, others have written there. */
struct place {
	uint64_t off, end;
	uint32_t cuts;
	bool lost;
};

/* What this client has written is with the chains: of a file that was cut the MDS believes them
 * alone. And where somebody else may have cut it since, or a session has ended with what was on its
 * way, it is known again how long it is: once it is open in the new one, so that nobody cuts it
 * behind that unnoticed. */
static int show_end(struct ll_file *f)
{
	int rc;

	do {
		TRY(session_await(f->d));
		rc = wb_show(f->d);
		while (rc >= 0 && inode_is_unsure(f->inode))
			rc = io_settle(f->c, f->inode, &f->inode->attr);
		/* Who may not ask them knows too much rather than too little. */
		if (rc == -LE_ACCES || rc == -LE_PERM)
			rc = 0;
	} while (rc >= 0 && session_misses(f->d));
	return rc;
}

/* Asks for a place as long as a cut has overtaken the answer; see io_cut. p: what it had. What a
 * former process was given is only that: it may have written there, and answered a cut since. */
static int reserve_append(struct ll_file *f, uint64_t len, struct place *p)
{
	struct idata *d = f->d;
	uint64_t until_us = client_deadline(f->c);
	struct mds_append_rep rep;
	struct rpc_call call;
	int rc;

	do {
		struct mds_append_req req = {.ino = f->inode->ino,
					     .len = len,
					     .had_end = p->end,
					     .had_cuts = p->cuts,
					     .had_there = p->end != 0 && d->placed_there,
					     .had_lost = p->lost};

		/* A next process would repeat the first of these, and take its answer for good. */
		if (p->end != 0 && !d->placed_there)
			kept_void(f->c);
		TRY(show_end(f));
		req.size = d->size;
		d->append_req = &req;
		rc = mds_call(f->c, OP_mds_append, &req, &rep, &call);
		d->append_req = NULL;
		rpc_call_fini(&call);
		TRY(rc);
		if (rep.off > LEAT_FILE_SIZE_MAX - len)
			return -LE_FBIG;
		if (p->lost || rep.off + len != p->end)
			d->placed_there = false;
		*p = (struct place){rep.off, rep.off + len, rep.cuts, false};
		if (kept_repeated(f->c))
			d->placed_there = true;
		else if (call.session == f->c->session &&
		    (rep.change > d->placed_void || FAULT(CLIENT_STALE_PLACE)))
			break;
		rc = -LE_IO; /* it is cut again and again */
	} while (loop_now_us() < until_us);
	TRY(rc);
	d->placed = rep.change;
	d->placed_gen = f->c->session_gen;
	return 0;
}

int io_cut(struct client *c, const struct cb_cut_req *req)
{
	struct inode *i = inode_peek(c, req->ino);
	struct idata *d = i != NULL ? i->data : NULL;
	int rc = 0;

	if (d != NULL && req->change > d->placed_void)
		d->placed_void = req->change;
	while (d != NULL && rc >= 0 && d->placed != 0 && d->placed <= req->change &&
	       !FAULT(CLIENT_STALE_PLACE))
		rc = waitq_wait(&d->append_q, NO_DEADLINE);
	/* Of an append that was interrupted the write may be under way still. */
	if (d != NULL && rc >= 0)
		rc = wb_show(d);
	if (i != NULL)
		inode_put(c, i);
	return rc;
}

/* Below a quota, what may need space is asked for before it is accepted: -LE_DQUOT. Overwriting
 * what a file has without holes needs none. */
static int take_space(struct ll_file *f, uint64_t off, uint64_t len)
{
	struct mds_space_req req = {.ino = f->inode->ino};
	struct idata *d = f->d;
	uint64_t end = off + len, need = len;

	if (f->inode->attr.project == 0)
		return 0;
	if (!d->sparse && end - d->size < len)
		need = end - d->size;
	if (!d->sparse && end <= d->size)
		return 0;
	while (d->quota_left < need) {
		struct mds_space_rep rep;
		struct rpc_call call;
		int rc;

		req.bytes = need - d->quota_left;
		rc = mds_call(f->c, OP_mds_space, &req, &rep, &call);
		rpc_call_fini(&call);
		TRY(rc);
		d->quota_left += rep.bytes;
	}
	d->quota_left -= need;
	return 0;
}

/* After all that the file's time accounts for, also by a clock that is behind that of others. */
static int64_t time_of_write(const struct idata *d)
{
	int64_t now = env_wall_ns(d->c->env), past = d->inode->attr.chains_ns;

	return now > past || past == INT64_MAX ? now : past + 1;
}

static int64_t write_at(struct ll_file *f, uint64_t off, const struct slot_vec *vec, uint32_t n,
			unsigned how)
{
	uint64_t len = vec_len(vec, n);
	uint32_t cuts = f->inode->cuts;
	int rc;

	ra_drop_range(f->d, off, len);
	if (how & WB_BEHIND)
		grant_ask(f->d);
	if (how & WB_BEHIND) /* what is told of it from now on; object servers take it over */
		f->d->mtime_guess_ns = time_of_write(f->d);
	rc = len < GATHER_BELOW && how == WB_BEHIND ? write_small(f, off, len, vec, n)
						    : write_large(f, off, len, vec, n, how);
	if (list_empty(&f->d->writes) && f->d->gather.slot == NULL)
		f->d->mtime_guess_ns = 0;
	/* Some of it may be stored all the same, or be under way still. */
	if (rc < 0)
		f->d->doubted = f->d->unsure = true;
	TRY(rc);
	note_written(f, off, len);
	/* It may have been cut off again. */
	f->d->unsure |= f->inode->cuts != cuts;
	/* Fetched while the write was on its way: may be old or new. */
	ra_drop_range(f->d, off, len);
	if (!(how & WB_BEHIND))
		return (int64_t)len;
	TRY(wb_throttle(f->d, len < GATHER_BELOW ? f->c->slots : vec[0].slot->pool));
	/* Others look at it, who have to see it when this returns. */
	if (!lease_held(f->c, f->inode))
		TRY(wb_show_range(f->d, off, len));
	else
		f->d->alone = true;
	return (int64_t)len;
}

/* Can it be gathered in one step? */
static bool gathers_whole(struct ll_file *f, uint64_t off, uint64_t len)
{
	uint32_t unit = gather_unit(f);

	return len < GATHER_BELOW && off % unit + len <= unit;
}

/* At the end that only this client knows. Nothing is sent before the caller has its answer: so a
 * process that is killed leaves nothing of what its successor does again (kept.h). It need not be
 * shown either: a recall waits for it, and shows it then (io_show). *ret_taken false: there is no
 * room, or only in another session, and nothing has been done. */
static int append_behind(struct ll_file *f, uint64_t off, const struct slot_vec *vec, uint32_t n,
			 bool *ret_taken)
{
	struct idata *d = f->d;
	uint64_t len = vec_len(vec, n);
	struct stripe_part part = unit_part(f, off, len);
	uint32_t cuts = f->inode->cuts;
	int rc;

	grant_ask(d);
	d->mtime_guess_ns = time_of_write(d);
	rc = gather_write(d, &part, vec, n, ret_taken);
	if (list_empty(&d->writes) && d->gather.slot == NULL)
		d->mtime_guess_ns = 0;
	if (rc < 0 || !*ret_taken)
		return rc;
	note_written(f, off, len);
	d->unsure |= f->inode->cuts != cuts;
	ra_drop_range(d, off, len);
	d->alone = true;
	return 0;
}

/*
 * The end of the file, for len bytes, if this client alone knows it: then it is `appending` until
 * the bytes are there. A recall waits for that (io_show), and a metadata server that restarts
 * meanwhile is told (RECLAIM_HIDDEN).
 */
static int find_end(struct ll_file *f, uint64_t len, uint64_t *ret_off)
{
	struct inode *i = f->inode;
	struct attr attr = i->attr;

	if (inode_attr_fresh(f->c, i))
		TRY(io_settle(f->c, i, &attr));
	inode_attr(f->c, i, &attr);
	if (!inode_size_fresh(f->c, i) || attr.size > LEAT_FILE_SIZE_MAX - len ||
	    !gathers_whole(f, attr.size, len))
		return 0;
	f->d->appending = true;
	*ret_off = attr.size;
	return 0;
}

static void append_ended(struct idata *d)
{
	d->appending = false;
	d->placed = 0;
	waitq_wake_all(&d->append_q);
}

/* Where the server reserves a place: there is a hole until the bytes are there, so without delay.
 * What was not written when the session ended may have been cut off since, or overwritten; and
 * somebody may have written there before. Over what others have written it does not go: another
 * place is asked for, unless some of it may be there already. */
static int64_t write_placed(struct ll_file *f, const struct slot_vec *vec, uint32_t n)
{
	uint64_t until_us = client_deadline(f->c);
	struct place p = {0};
	int64_t rc;

	do {
		rc = reserve_append(f, vec_len(vec, n), &p);
		if (rc >= 0)
			rc = write_at(f, p.off, vec, n, WB_PLACED);
		append_ended(f->d);
		p.lost = rc == -LE_EXIST;
	} while ((rc == -LE_SESSION_GONE || (p.lost && !f->d->placed_there)) &&
		 loop_now_us() < until_us);
	return rc == -LE_SESSION_GONE || rc == -LE_EXIST ? -LE_IO : rc;
}

static int64_t write_end(struct ll_file *f, const struct slot_vec *vec, uint32_t n, unsigned how)
{
	struct idata *d = f->d;
	uint64_t off = 0, len = vec_len(vec, n);
	bool taken = false;
	int rc;

	TRY(wb_throttle(d, f->c->slots));
	if (how != 0 && !kept_has_former(f->c, OP_mds_append))
		TRY(find_end(f, len, &off));
	if (d->appending) {
		rc = append_behind(f, off, vec, n, &taken);
		append_ended(d);
		TRY(rc);
	}
	return taken ? (int64_t)len : write_placed(f, vec, n);
}

bool io_hides(const struct idata *d)
{
	return !FAULT(CLIENT_UNTOLD) && (d->appending || (d->alone && wb_is_hidden(d)));
}

int io_show(struct idata *d)
{
	while (d->appending)
		TRY(waitq_wait(&d->append_q, NO_DEADLINE));
	TRY(wb_show(d));
	d->alone = d->alone && wb_is_hidden(d);
	return 0;
}

/* Who writes: the kernel, pages of a mapping; or a program, at a place or at the end. */
enum writer {
	PAGES,
	AT_OFFSET,
	AT_END
};

/* May it move the end under those who append? As far as this client knows the end. But pages never
 * lie behind it: and they are locked, so that a recall, for which an append may wait, waits for
 * them. */
static bool may_move_end(const struct ll_file *f, uint64_t end, enum writer by)
{
	return f->d->n_append + f->d->n_both > 0 &&
	       (end > f->d->size || (by == AT_OFFSET && inode_is_unsure(f->inode)));
}

/* fcntl(F_SETFL) has taken O_APPEND away: the MDS is told before anything is written that asks for
 * no place, and asks the chains before it gives one to others. And so it stays when O_APPEND is
 * given back: what was written has been told to nobody. */
static int appends_no_more(struct ll_file *f)
{
	uint32_t plain = f->flags & ~(uint32_t)O_APPEND;
	int rc = 0;

	fmutex_lock(&f->d->append_lock);
	if (f->counted != plain)
		rc = io_reopen(f->d, plain & O_ACCMODE, (plain & O_ACCMODE) | O_APPEND);
	if (rc >= 0 && f->counted != plain) {
		f->counted = plain;
		f->d->n_both++;
	}
	fmutex_unlock(&f->d->append_lock);
	return rc;
}

static int64_t write_vec(struct ll_file *f, uint64_t off, const struct slot_vec *vec, uint32_t n,
			 unsigned how, enum writer by)
{
	struct idata *d = f->d;
	uint64_t len = vec_len(vec, n);
	int64_t rc;

	if (!f->can_write)
		return -LE_BADF;
	if (len > LL_IO_MAX || n > LL_VECS_MAX)
		return -LE_INVAL;
	if (len == 0)
		return 0;
	TRY(write_prepare(f));
	/* Opened to append, to a file that only grows: not by a mapping either, nor once
	 * fcntl(F_SETFL) has taken O_APPEND away. The kernel knows of no such files here. */
	if (by != AT_END && (f->flags & O_APPEND) && (f->inode->attr.flags & ATTR_APPEND))
		return -LE_PERM;
	off = by == AT_END ? d->size : off;
	if (off > LEAT_FILE_SIZE_MAX - len)
		return -LE_FBIG;
	if (f->inode->attr.layout.chunk_size < LEAT_CHUNK_SIZE_MIN)
		return -LE_IO;
	if (by == AT_OFFSET && (f->counted & O_APPEND) != 0)
		TRY(appends_no_more(f));
	TRY(take_space(f, off, len));
	if (by != AT_END && !may_move_end(f, off + len, by))
		return write_at(f, off, vec, n, how);
	fmutex_lock(&d->append_lock);
	rc = by == AT_END ? write_end(f, vec, n, how) : write_at(f, off, vec, n, how);
	fmutex_unlock(&d->append_lock);
	return rc;
}

void ll_set_append(struct ll_file *file, bool append)
{
	CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC)->append = append;
}

int64_t ll_write(struct ll_file *file, uint64_t off, const struct slot_vec *vec, uint32_t n)
{
	struct ll_file *f = CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC);
	bool through = f->sync || f->direct || f->c->params.dirty_max == 0;

	return write_vec(f, off, vec, n, through ? 0 : WB_BEHIND, f->append ? AT_END : AT_OFFSET);
}

int64_t ll_write_pages(struct ll_file *file, uint64_t off, const struct slot_vec *vec, uint32_t n)
{
	struct ll_file *f = CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC);
	unsigned how = f->c->params.dirty_max > 0 ? WB_BEHIND : 0;

	if (!lease_held(f->c, f->inode)) {
		how |= WB_PAGES;
		f->d->n_pages++;
	}
	return write_vec(f, off, vec, n, how, PAGES);
}

static void copy_end(struct client *c)
{
	c->n_copies--;
	waitq_wake_all(&c->copies_q);
}

/* A quarter of the slots is for readers and for requests that come in, however long the servers of
 * those that are written take. */
static int copy_begin(struct client *c, struct slot **ret_slot)
{
	uint32_t max = slot_pool_total(c->slots) / 4 * 3;
	uint64_t until_us = client_deadline(c);
	int rc = 0;

	if (c->n_copies >= max)
		gather_submit_all(c, UINT64_MAX);
	while (rc == 0 && c->n_copies >= max)
		rc = waitq_wait(&c->copies_q, until_us);
	if (rc == 0) {
		c->n_copies++;
		*ret_slot = slot_try_get(c->slots);
		if (*ret_slot != NULL)
			return 0;
		gather_submit_all(c, UINT64_MAX);
		rc = slot_get(c->slots, until_us, ret_slot);
		if (rc == 0)
			return 0;
		copy_end(c);
	}
	return rc == -LE_TIMEDOUT ? -LE_IO : rc;
}

/* One slot's worth of the caller's memory. */
static int64_t write_copy(struct ll_file *f, const uint8_t *buf, uint32_t len, uint64_t off,
			  bool pages)
{
	struct client *c = f->c;
	struct slot_vec vec = {NULL, 0, len};
	int64_t rc;
	bool large;

	if (len <= SMALL_SLOT_SIZE)
		vec.slot = slot_try_get(c->small);
	large = vec.slot == NULL;
	if (large)
		TRY(copy_begin(c, &vec.slot));
	payload_copy(vec.slot->data, buf, len);
	rc = pages ? ll_write_pages(f, off, &vec, 1) : ll_write(f, off, &vec, 1);
	slot_unref(vec.slot);
	if (large)
		copy_end(c);
	return rc;
}

static int64_t write_copies(struct ll_file *f, const void *buf, uint64_t len, uint64_t off,
			    bool pages)
{
	bool at_end = f->append && !pages;
	uint64_t done = 0;

	while (done < len) {
		/* Cut where chunks of the usual size end: each slot is one request. */
		uint64_t room = at_end ? LL_IO_MAX : LL_IO_MAX - (off + done) % LL_IO_MAX;
		uint32_t take = (uint32_t)(len - done < room ? len - done : room);
		int64_t rc = write_copy(f, (const uint8_t *)buf + done, take, off + done, pages);

		if (rc < 0)
			return done > 0 ? (int64_t)done : rc;
		done += (uint64_t)rc;
	}
	return (int64_t)done;
}

int64_t ll_pwrite(struct ll_file *f, const void *buf, uint64_t len, uint64_t off)
{
	return write_copies(f, buf, len, off, false);
}

int64_t ll_pwrite_pages(struct ll_file *f, const void *buf, uint64_t len, uint64_t off)
{
	return write_copies(f, buf, len, off, true);
}
