/*
 * Open files: open and create, flush, close behind, truncation, allocation, holes and checksums.
 *
 * Closing waits only until every client sees the data. Behind it a fiber waits until the data is
 * durable, then sends the size, which so never is durable before its data; a later open of the same
 * inode by this client waits for that.
 */
#include "client/io.h"

#include <stdlib.h>

#include "client/delegation.h"
#include "client/kept.h"
#include "client/lock.h"
#include "client/removed_dir.h"
#include "client/retry.h"
#include "client/session.h"
#include "common/base/fault.h"
#include "common/base/log.h"

#define OPEN_FLAGS     (O_ACCMODE | O_TRUNC | O_APPEND | O_EXCL)
#define FREE_FILES_MAX 256u
/* A lookup belongs to the open that comes within this time: if the name was replaced in between,
 * the open is as good as one that came before. Short, and good for one open, so that an open by a
 * name that the kernel has cached is never taken for one. */
#define FOUND_US   20000u
#define SUMS_WIDTH 8u
#define COMPANY_US 2000u /* that a close waits for a request to go with */
/* A whole chunk's pieces: at most so many. */
#define SUMS_MAX LEAT_BLOCKS_PER_CHUNK_MAX
#define SECTOR   512u

/* ---- opening ---- */

struct ll_file *file_make(struct client *c, struct inode *i, struct idata *d,
			  const struct cred *cred, uint32_t flags)
{
	struct list *l = list_pop(&c->free_files);
	struct ll_file *f;

	if (l != NULL) {
		c->n_free_files--;
		f = list_entry(l, struct ll_file, link);
	} else {
		f = malloc(sizeof(*f));
		if (f == NULL)
			return NULL;
	}
	*f = (struct ll_file){
		.magic = LL_FILE_MAGIC,
		.c = c,
		.inode = i,
		.d = d,
		.flags = flags,
		.counted = flags,
		.can_read = (flags & O_ACCMODE) != O_WRONLY,
		.can_write = (flags & O_ACCMODE) != O_RDONLY,
		.sync = (flags & (O_SYNC | O_DSYNC)) != 0,
		.append = (flags & O_APPEND) != 0,
		.direct = (flags & O_DIRECT) != 0,
		.err_seen = d->err_gen,
		.kills_suid = cred->uid != 0 && (cred->flags & CRED_CHECKED) == 0,
	};
	list_init(&f->link);
	d->renew_uid = cred->uid;
	d->renew_gid = cred->gid;
	c->n_files++;
	d->n_files++;
	return f;
}

void file_free(struct ll_file *f)
{
	struct client *c = f->c;

	f->magic = 0;
	c->n_files--;
	if (c->n_free_files < FREE_FILES_MAX) {
		c->n_free_files++;
		list_push_front(&c->free_files, &f->link);
	} else {
		free(f);
	}
}

static bool for_writing(uint32_t flags)
{
	return (flags & O_ACCMODE) != O_RDONLY;
}

static void count_open(struct idata *d, uint32_t flags, int by)
{
	uint32_t *n = for_writing(flags) ? &d->n_write : &d->n_read;

	*n += (uint32_t)by;
	if (for_writing(flags) && (flags & O_APPEND))
		d->n_append += (uint32_t)by;
}

/* The MDS has opened it: our side. Takes a reference of the caller's over on success. */
static int opened(struct client *c, struct inode *i, const struct cred *cred, uint32_t flags,
		  const struct cap *cap, struct ll_file **ret_file)
{
	struct idata *d;
	struct ll_file *f;

	TRY(inode_data(c, i, &d));
	f = file_make(c, i, d, cred, flags);
	if (f == NULL)
		return -LE_NOMEM;
	session_opened(d, flags, cap->session);
	count_open(d, flags, 1);
	io_take_cap(d, cap);
	if (for_writing(flags)) {
		if (d->n_write == 1) {
			d->quota_left = 0;  /* given back with the last close */
			d->durable_end = 0; /* told by it; others may have cut some off since */
		}
		/* Unless it is empty or full, nobody knows what it occupies. */
		if (i->attr.blocks * SECTOR < i->attr.size)
			d->sparse = true;
		if (i->attr.size == 0 && list_empty(&d->writes))
			d->sparse = false;
		if (!(flags & (O_SYNC | O_DSYNC | O_DIRECT)))
			grant_ask(d);
	}
	*ret_file = f;
	return 0;
}

int file_resume(struct client *c, struct inode *i, const struct cred *cred, uint32_t flags,
		struct ll_file **ret_file)
{
	struct idata *d;

	TRY(inode_data(c, i, &d));
	*ret_file = file_make(c, i, d, cred, flags);
	if (*ret_file == NULL)
		return -LE_NOMEM;
	count_open(d, flags, 1);
	/* What the former process wrote by it is not known: the chains are. */
	d->sparse = d->unsure = true;
	d->n_pages++;
	i->opened = true; /* the kernel may have pages of it, of which version is not known */
	i->open_change = UINT64_MAX;
	return 0;
}

/* An open that the client could not take: the MDS must not count it. */
static void undo_open(struct client *c, struct ino ino, uint32_t flags)
{
	struct mds_close_req req = {.ino = ino, .flags = flags & (O_ACCMODE | O_APPEND)};
	struct mds_close_rep rep;
	struct rpc_call call;
	int rc = mds_call(c, OP_mds_close, &req, &rep, &call);

	rpc_call_fini(&call);
	if (rc < 0)
		log_debug("close of ino %llu: %s", (unsigned long long)ino.v, status_name(rc));
}

/* It was cut, with this answer, which has been taken if nothing newer is known: of what we knew of
 * its end nothing holds. */
static void truncated(struct inode *i, const struct attr *attr)
{
	struct idata *d = i->data;

	i->cuts++;
	i->settled_us = 0;
	if (attr->change == i->attr.change)
		i->attr.size = attr->size;
	if (d == NULL)
		return;
	ra_drop_all(d);
	d->size = i->attr.size;
	/* What was written meanwhile is behind the cut, or went with it. (Others of this mount may
	 * have opened it and written before this answer came.) */
	d->unsure |= d->n_write > 0;
	d->was_cut |= d->n_write > 0;
	d->durable_end = 0;
	if (d->size == 0)
		d->sparse = d->packed = false;
}

/* A cut, or a hole, that was given up, or failed half way. What was refused is none: nobody who may
 * not change a file makes others lose what they have of it. */
static bool may_come_yet(int rc)
{
	return rc == -LE_IO || rc == -LE_INTR || rc == -LE_CORRUPT;
}

/* Before the answer to an open is taken: may the file have had writers before? */
static bool was_unsettled(const struct inode *i, bool created)
{
	return i->attr.ino.v == 0 ? !created : (i->attr.flags & ATTR_UNSETTLED) != 0;
}

/* The MDS may have counted this open before the close of another one that is forgotten here, with
 * all that was written by it: then the file has never been settled, and its record does not tell.
 */
static void opened_again(struct ll_file *f, bool unsettled)
{
	if (f->can_write && (f->flags & O_TRUNC) == 0 && f->d->n_write == 1 && unsettled)
		f->d->unsure = true;
}

static bool take_change(struct inode *i)
{
	bool changed = !i->opened || i->open_change != i->attr.change;

	i->opened = true;
	i->open_change = i->attr.change;
	return changed;
}

/* Behind changing_begin, before it is cut: nobody appends any more at an end that only this client
 * knows, and what was written there is with the servers. */
static int settle_end(struct inode *i)
{
	if (i->data == NULL)
		return 0;
	TRY(io_show(i->data));
	return wb_flush(i->data);
}

static int open_inode(struct client *c, const struct cred *cred, struct inode *i, uint32_t flags,
		      struct ll_file **ret_file)
{
	struct mds_open_req req = {
		.cred = *cred, .ino = i->ino, .flags = flags & OPEN_FLAGS & ~(uint32_t)O_EXCL};
	struct mds_open_rep rep;
	bool just_found = (flags & LL_FOUND) != 0 ||
			  (i->found_us != 0 && loop_now_us() < i->found_us + FOUND_US);
	bool unsettled;
	struct changing ch;
	struct rpc_call call;
	int rc;

	i->found_us = 0;
	flags &= ~(uint32_t)LL_FOUND;
	if (delegation_allows(c, cred, i, flags))
		return delegation_open(c, cred, i, flags, ret_file);
	TRY(io_wait_closing(i));
	if (flags & O_TRUNC)
		TRY(delegation_tell(c, i));
	changing_begin(c, &ch, i->ino);
	rc = flags & O_TRUNC ? settle_end(i) : 0;
	if (rc < 0) {
		changing_end(&ch, rc);
		return rc;
	}
	rc = mds_call(c, OP_mds_open, &req, &rep, &call);
	if (rc == -LE_STALE && just_found) {
		rpc_call_fini(&call);
		kept_void(c);
		req.flags |= OPEN_ORPHAN;
		rc = mds_call(c, OP_mds_open, &req, &rep, &call);
	}
	if (may_come_yet(rc) && (flags & O_TRUNC))
		lease_data_doubted(c, i);
	changing_end(&ch, rc);
	if (rc >= 0) {
		unsettled = was_unsettled(i, false);
		inode_update(c, i, &rep.attr, for_writing(flags), call.sent_us);
		inode_opened(i, flags);
		if (flags & O_TRUNC)
			truncated(i, &rep.attr);
		rc = opened(c, i, cred, flags, &rep.cap, ret_file);
		if (rc < 0)
			undo_open(c, i->ino, flags);
	}
	if (rc >= 0) {
		opened_again(*ret_file, unsettled);
		/* It has writers: what the last one who closed it has written is with the chains.
		 */
		if ((flags & O_ACCMODE) != O_WRONLY && !(flags & O_TRUNC))
			rc = io_settle(c, i, &rep.attr);
		if (rc < 0) {
			rpc_call_fini(&call);
			inode_ref(i);
			ll_release(*ret_file);
			return rc;
		}
	}
	rpc_call_fini(&call);
	return rc;
}

int ll_open(struct client *c, const struct cred *cred, struct ino ino, uint32_t flags,
	    struct ll_file **ret_file, struct attr *ret_attr, bool *ret_changed)
{
	struct inode *i = inode_get(c, ino);
	struct ll_file *f;
	int rc;

	if (i == NULL)
		return -LE_NOMEM;
	rc = open_inode(c, cred, i, flags, &f);
	if (rc < 0) {
		inode_put(c, i);
		return rc;
	}
	/* With other writers the change counter does not tell: it moves when their closes arrive.
	 */
	*ret_changed = take_change(i) || !lease_held(c, i);
	if (*ret_changed)
		ra_drop_all(f->d);
	if (ret_attr != NULL)
		inode_attr(c, i, ret_attr);
	*ret_file = f;
	return 0;
}

/* An O_TRUNC that may come yet, of what has the name. */
static void cut_doubted(struct client *c, struct ino victim)
{
	struct inode *i = victim.v != 0 ? inode_peek(c, victim) : NULL;

	if (i == NULL)
		return;
	lease_data_doubted(c, i);
	inode_put(c, i);
}

/* The same of what has the name; what is not known has no lease when it is cut. */
static int before_cut(struct client *c, struct changing *ch, struct ino victim,
		      struct ino *ret_told)
{
	struct inode *i;
	int rc;

	TRY(changing_tell(ch, victim, ret_told));
	i = victim.v != 0 ? inode_peek(c, victim) : NULL;
	if (i == NULL)
		return 0;
	rc = settle_end(i);
	inode_put(c, i);
	return rc;
}

int ll_create(struct client *c, const struct cred *cred, struct ino parent, struct bytes name,
	      uint32_t mode, uint32_t flags, struct ll_file **ret_file, struct attr *ret_attr)
{
	struct mds_create_req req = {
		.cred = *cred,
		.parent = parent,
		.name = name,
		.mode = mode,
		.flags = flags & OPEN_FLAGS,
	};
	struct mds_create_rep rep;
	struct rpc_call call;
	struct inode *i;
	struct ino victim;
	struct changing ch;
	bool unsettled;
	int rc;

	changing_begin(c, &ch, parent);
	victim = changing_name(&ch, parent, name);
	rc = flags & O_TRUNC ? before_cut(c, &ch, victim, &req.told) : 0;
	/* A file that is not known by that name, if there is one: a lease on it has to go. */
	if (victim.v == 0)
		req.told = victim;
	if (rc >= 0) {
		rc = mds_call(c, OP_mds_create, &req, &rep, &call);
		rpc_call_fini(&call);
	}
	if (may_come_yet(rc) && (flags & O_TRUNC))
		cut_doubted(c, victim);
	/* What was found is not told. */
	changing_end(&ch, rc >= 0 && rep.created ? rc : -LE_EXIST);
	TRY(rc);
	i = inode_get(c, rep.attr.ino);
	if (i == NULL) {
		undo_open(c, rep.attr.ino, flags);
		return -LE_NOMEM;
	}
	unsettled = was_unsettled(i, rep.created);
	inode_update(c, i, &rep.attr, true, call.sent_us);
	inode_opened(i, flags);
	if (rep.created) {
		inode_dir_changed(c, parent, &rep.dir, call.sent_us);
		names_told(c, &rep.dir, name, rep.attr.ino, true, call.sent_us);
	}
	/* Who created it may have been overtaken by another one who opened it, and has written. */
	if (!rep.created && (flags & O_TRUNC))
		truncated(i, &rep.attr);
	rc = opened(c, i, cred, flags, &rep.cap, ret_file);
	if (rc < 0) {
		undo_open(c, i->ino, flags);
		inode_put(c, i);
		return rc;
	}
	opened_again(*ret_file, unsettled);
	if (!rep.created && (flags & O_ACCMODE) != O_WRONLY && !(flags & O_TRUNC))
		rc = io_settle(c, i, &rep.attr);
	if (rc < 0) {
		ll_release(*ret_file);
		return rc;
	}
	(void)take_change(i);
	if (ret_attr != NULL)
		inode_attr(c, i, ret_attr);
	return 0;
}

int ll_tmpfile(struct client *c, const struct cred *cred, struct ino parent, uint32_t mode,
	       uint32_t flags, struct ll_file **ret_file, struct attr *ret_attr)
{
	struct mds_tmpfile_req req = {
		.cred = *cred, .parent = parent, .mode = mode, .flags = flags & OPEN_FLAGS};
	struct mds_tmpfile_rep rep;
	struct rpc_call call;
	struct inode *i;
	int rc = mds_call(c, OP_mds_tmpfile, &req, &rep, &call);

	rpc_call_fini(&call);
	TRY(rc);
	i = inode_get(c, rep.attr.ino);
	if (i == NULL) {
		undo_open(c, rep.attr.ino, flags);
		return -LE_NOMEM;
	}
	inode_update(c, i, &rep.attr, true, call.sent_us);
	rc = opened(c, i, cred, flags, &rep.cap, ret_file);
	if (rc < 0) {
		undo_open(c, i->ino, flags);
		inode_put(c, i);
		return rc;
	}
	(void)take_change(i);
	if (ret_attr != NULL)
		inode_attr(c, i, ret_attr);
	return 0;
}

struct ino ll_file_ino(const struct ll_file *f)
{
	return f->inode->ino;
}

/* ---- flushing and closing ---- */

/* What was written of mappings was accepted while others showed what was there before. */
static int await_readers(struct idata *d)
{
	uint64_t n = d->n_pages;

	if (d->n_pages_seen >= n || FAULT(CLIENT_PAGES_UNSEEN))
		return 0;
	TRY(io_sync(d, true, NULL));
	if (d->n_pages_seen < n)
		d->n_pages_seen = n;
	return 0;
}

int ll_flush(struct ll_file *file)
{
	struct ll_file *f = CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC);

	TRY(wb_show(f->d));
	TRY(await_readers(f->d));
	return io_take_error(f);
}

int ll_fsync(struct ll_file *file, bool data_only)
{
	struct ll_file *f = CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC);

	/* Acknowledged data is durable, and so is every reply of the MDS; an unsettled size is
	 * found by the chunks. So there is nothing else to sync. */
	(void)data_only;
	TRY(wb_flush(f->d));
	TRY(await_readers(f->d));
	return io_take_error(f);
}

/* Bytes that the file occupies, for its record: by asking, where they are not simply its size. */
static uint64_t used_space(struct idata *d)
{
	struct io_stored st;

	/* The MDS asks itself how much is written of what is prepared. */
	if ((!d->sparse && !d->packed) || (d->inode->attr.flags & ATTR_PREPARED) != 0 ||
	    io_stat(d, bytes_of(NULL, 0), &st) < 0)
		return UINT64_MAX;
	return st.used;
}

static bool atime_due(const struct ll_file *f)
{
	const struct attr *a = &f->inode->attr;

	if (f->c->atime == LL_ATIME_NONE || (f->flags & O_NOATIME) != 0 ||
	    (a->flags & ATTR_NOATIME) != 0 || !f->was_read)
		return false;
	return f->c->atime == LL_ATIME_STRICT || attr_atime_due(a, env_wall_ns(f->c->env));
}

static int send_close(struct ll_file *f)
{
	struct client *c = f->c;
	struct inode *i = f->inode;
	struct idata *d = f->d;
	struct mds_close_req req = {
		.ino = i->ino,
		.flags = f->counted & (O_ACCMODE | O_APPEND),
		.dirty = f->wrote && d->durable_end > 0,
		.used = UINT64_MAX,
	};
	int rc;

	if (req.dirty) {
		req.size = i->attr.size > d->durable_end ? i->attr.size : d->durable_end;
		req.mtime_ns = d->mtime_ns;
		req.used = used_space(d);
	}
	if (f->new_atime)
		req.flags |= CLOSE_ATIME | (c->atime == LL_ATIME_STRICT ? CLOSE_STRICT : 0);
	if (f->delegated)
		req.flags |= CLOSE_UNCOUNTED;
	if ((d->err_gen != 0 || d->doubted) && for_writing(f->flags))
		req.flags |= CLOSE_ASK;
	if (d->was_cut && for_writing(f->flags))
		req.flags |= CLOSE_CUT;
	if (d->n_close_waiters == 0)
		req.flags |= CLOSE_LAZY;
	d->n_lazy++;
	f->close_req = &req;
	list_push(&d->closes, &f->link);
	rc = io_close(d, &req);
	list_remove(&f->link);
	d->n_lazy--;
	if (f->new_atime)
		i->n_changing--;
	return rc;
}

/* Nobody waits for a close. Alone it would wake the server, and its answer us; with the next
 * request it costs neither. */
static void wait_company(struct client *c, const struct idata *d)
{
	if (d->n_close_waiters == 0 && !c->stopping)
		(void)!waitq_wait(&c->company, loop_now_us() + COMPANY_US);
}

static void close_fiber(void *arg)
{
	struct ll_file *f = CAST_OBJ(arg, struct ll_file, LL_FILE_MAGIC);
	struct client *c = f->c;
	struct inode *i = f->inode;
	struct idata *d = f->d;
	int rc;

	if (f->can_write)
		while (wb_drain(d) == -LE_INTR)
			continue;
	wait_company(c, d);
	rc = send_close(f);
	if (rc < 0)
		log_warn("client %s: close of ino %llu: %s", c->name, (unsigned long long)i->ino.v,
			 status_name(rc));
	if (!f->delegated)
		count_open(d, f->counted, -1);
	d->was_cut &= d->n_write > 0;
	d->doubted &= d->n_write > 0;
	d->n_closing--;
	if (d->n_read + d->n_write == 0)
		lease_shared_end(c, i);
	if (d->n_closing == 0)
		waitq_wake_all(&d->closing_q);
	file_free(f);
	inode_put(c, i);
	client_bg_end(c);
}

void ll_release(struct ll_file *file)
{
	struct ll_file *f = CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC);

	(void)io_error_heard(f);
	f->d->n_files--;
	f->d->n_both -= f->counted != f->flags;
	ll_unlock_all(f);
	if (f->expected)
		ra_closed(f->c, f->was_read);
	f->new_atime = atime_due(f);
	if (f->delegated && delegation_close(f))
		return;
	f->d->n_closing++;
	if (f->new_atime) {
		/* Nobody, nor the kernel, answers with the old one from now on. */
		f->inode->n_changing++;
		if (f->c->invalidate != NULL)
			f->c->invalidate(f->c->arg, f->inode->ino, false);
	}
	if (client_bg_spawn(f->c, "close", close_fiber, f) < 0) {
		latch_add(&f->c->bg, 1);
		close_fiber(f);
	}
}

/* ---- size and space ---- */

/* Flushes what a change of size or times must come after. */
static int settle_before(struct inode *i, uint32_t mask)
{
	if (i->data == NULL || !(mask & (SET_SIZE | SET_MTIME | SET_MTIME_NOW)))
		return 0;
	return wb_flush(i->data);
}

/* When it was written last, as far as this client knows of all that it has written itself. */
static int64_t last_written(const struct inode *i)
{
	const struct idata *d = i->data;

	if (d == NULL || d->unsure || d->err_gen != 0)
		return 0;
	return d->mtime_ns > i->attr.chains_ns ? d->mtime_ns : i->attr.chains_ns;
}

int ll_setattr(struct client *c, const struct cred *cred, struct ino ino, struct ll_file *file,
	       uint32_t mask, const struct attr *attr, struct attr *ret_attr)
{
	struct mds_setattr_req req = {.cred = *cred, .ino = ino, .mask = mask, .attr = *attr};
	struct mds_setattr_rep rep;
	struct changing ch;
	struct rpc_call call = {0};
	struct inode *i = inode_get(c, ino);
	int rc;

	if (i == NULL)
		return -LE_NOMEM;
	/* The right to truncate came with the open. */
	if (file != NULL && file->can_write && (mask & SET_SIZE))
		req.cred.flags |= CRED_CHECKED;
	/* A close that arrives later would tell the time of the last write. */
	rc = mask & (SET_MTIME | SET_MTIME_NOW) ? io_wait_closing(i) : 0;
	if (rc >= 0)
		rc = settle_before(i, mask);
	if (rc >= 0 && i->data != NULL && (mask & SET_SIZE)) {
		ra_drop_all(i->data);
		rc = delegation_tell(c, i);
	}
	if (rc >= 0) {
		changing_begin(c, &ch, ino);
		rc = mask & SET_SIZE ? settle_end(i) : 0;
		req.attr.chains_ns = last_written(i);
		if (rc >= 0)
			rc = mds_call(c, OP_mds_setattr, &req, &rep, &call);
		if (may_come_yet(rc) && (mask & SET_SIZE))
			lease_data_doubted(c, i);
		else if (rc < 0 && (mask & SET_SIZE))
			lease_doubted(i);
		changing_end(&ch, rc);
		rpc_call_fini(&call);
	}
	if (rc >= 0) {
		inode_update(c, i, &rep.attr, true, call.sent_us);
		if (mask & SET_SIZE) {
			if (i->data != NULL && attr->size > i->data->size)
				i->data->sparse = true;
			truncated(i, &rep.attr);
			if (i->data != NULL && attr->size > 0)
				i->data->sparse = true;
		}
		rc = io_settle(c, i, &rep.attr);
		if (rc == -LE_ACCES || rc == -LE_PERM)
			rc = 0;
	}
	if (rc >= 0 && ret_attr != NULL)
		inode_attr(c, i, ret_attr);
	else if (rc == -LE_STALE)
		rc = removed_dir_set(c, &req, i, ret_attr);
	inode_put(c, i);
	return rc;
}

/* In whose name data is changed: the MDS takes set-id bits away unless it is root's, and those who
 * see to that themselves know better than who opened the file last. */
static struct cred change_cred(const struct ll_file *f)
{
	struct cred cred = io_renew_cred(f->d);

	if (!f->kills_suid)
		cred.uid = 0;
	return cred;
}

int ll_fallocate(struct ll_file *file, uint32_t mode, uint64_t off, uint64_t len)
{
	struct ll_file *f = CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC);
	struct mds_fallocate_req req = {
		.cred = change_cred(f),
		.ino = f->inode->ino,
		.mode = mode,
		.off = off,
		.len = len,
	};
	struct mds_fallocate_rep rep;
	struct changing ch;
	struct rpc_call call;
	int rc;

	if (!f->can_write)
		return -LE_BADF;
	TRY(wb_flush(f->d));
	/* Data that servers have but the MDS has not heard of must not be taken for beyond the end.
	 */
	changing_begin(f->c, &ch, f->inode->ino);
	rc = mds_call(f->c, OP_mds_fallocate, &req, &rep, &call);
	if (may_come_yet(rc))
		lease_data_doubted(f->c, f->inode);
	changing_end(&ch, rc);
	rpc_call_fini(&call);
	TRY(rc);
	f->d->sparse = true;
	ra_drop_all(f->d);
	f->inode->cuts++; /* who asks for its size just now has asked before */
	inode_update(f->c, f->inode, &rep.attr, true, call.sent_us);
	f->inode->settled_us = 0;
	return 0;
}

static bool may_copy(const struct ll_file *f, uint64_t off, const struct ll_file *to,
		     uint64_t to_off)
{
	uint32_t chunk = f->inode->attr.layout.chunk_size;

	return chunk != 0 && to->inode->attr.layout.chunk_size == chunk && off % chunk == 0 &&
	       to_off % chunk == 0 && f->inode != to->inode && f->d->n_write == 0 && !to->append &&
	       to->d->n_write == 1; /* what failed is cut off, and nothing of others with it */
}

int64_t ll_copy(struct ll_file *file, uint64_t off, struct ll_file *to_file, uint64_t to_off,
		uint64_t len)
{
	struct ll_file *f = CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC);
	struct ll_file *to = CAST_OBJ(to_file, struct ll_file, LL_FILE_MAGIC);
	struct idata *d = to->d;
	struct mds_copy_req req = {
		.cred = change_cred(to),
		.ino = f->inode->ino,
		.off = off,
		.to = to->inode->ino,
		.to_off = to_off,
		.len = len,
	};
	struct mds_copy_rep rep;
	struct changing ch;
	struct rpc_call call;
	int rc;

	if (!f->can_read || !to->can_write)
		return -LE_BADF;
	if (!may_copy(f, off, to, to_off))
		return -LE_NOTSUP;
	TRY(wb_flush(d));
	req.to_size = d->size;
	if (d->size > to_off)
		return -LE_NOTSUP;
	changing_begin(f->c, &ch, to->inode->ino);
	rc = delegation_tell(f->c, f->inode);
	if (rc >= 0) {
		rc = mds_call(f->c, OP_mds_copy, &req, &rep, &call);
		rpc_call_fini(&call);
		if (rc >= 0 && rep.len > req.len)
			rc = -LE_BAD_MESSAGE;
	}
	changing_end(&ch, rc);
	TRY(rc);
	to->wrote = true;
	d->sparse = true;
	if (d->durable_end < to_off + rep.len)
		d->durable_end = to_off + rep.len;
	ra_drop_all(d);
	to->inode->cuts++; /* as with fallocate */
	inode_update(f->c, to->inode, &rep.attr, true, call.sent_us);
	to->inode->settled_us = 0;
	if (d->size < to_off + rep.len)
		d->size = to_off + rep.len;
	return (int64_t)rep.len;
}

/* ---- holes and checksums ---- */

struct sums_part {
	struct ll_file *f;
	uint64_t idx;
	int status;
	uint32_t n;
	struct piece pieces[SUMS_MAX];
};

static int sums_decode(struct sums_part *p, struct bytes in)
{
	uint32_t at = 0;

	if (in.len % PIECE_WIRE_SIZE != 0 || in.len / PIECE_WIRE_SIZE > SUMS_MAX)
		return -LE_BAD_MESSAGE;
	p->n = in.len / PIECE_WIRE_SIZE;
	for (uint32_t i = 0; i < p->n; i++) {
		piece_decode((const uint8_t *)in.data + (size_t)i * PIECE_WIRE_SIZE, &p->pieces[i]);
		if (p->pieces[i].off != at || p->pieces[i].len == 0)
			return -LE_BAD_MESSAGE;
		at += p->pieces[i].len;
	}
	return 0;
}

static void sums_part(void *arg)
{
	struct sums_part *p = arg;
	struct oss_sums_req req = {.chunk = {.ino = p->f->inode->ino, .idx = p->idx}};
	struct oss_sums_rep rep;
	struct rpc_call call = {.op = OP_oss_sums, .req = &req, .rep = &rep};
	struct io_auth auth = {.right = IO_READ, .cap = &req.cap, .gen = &req.chunk.gen};
	struct route route = {.spread = io_spread(p->f->c, p->f->inode->ino, p->idx)};

	p->n = 0;
	p->status = io_call(p->f->d, p->idx, &call, &auth, &route);
	if (p->status >= 0)
		p->status = sums_decode(p, rep.pieces);
	rpc_call_fini(&call);
}

/* Calls each piece of the file from chunk first on, in order; the part of a chunk without data is
 * one hole. */
static int each_piece(struct ll_file *f, uint64_t from, uint64_t size,
		      int (*each)(void *arg, uint64_t off, uint32_t len, uint64_t sum, bool hole),
		      void *arg)
{
	uint64_t chunk_size = f->inode->attr.layout.chunk_size;
	uint64_t idx = from / chunk_size, n_chunks = (size + chunk_size - 1) / chunk_size;
	struct sums_part *parts = calloc(SUMS_WIDTH, sizeof(*parts));
	int rc = 0;

	if (parts == NULL)
		return -LE_NOMEM;
	while (rc == 0 && idx < n_chunks) {
		uint32_t n = n_chunks - idx < SUMS_WIDTH ? (uint32_t)(n_chunks - idx) : SUMS_WIDTH;

		for (uint32_t i = 0; i < n; i++) {
			parts[i].f = f;
			parts[i].idx = idx + i;
		}
		fiber_parallel("oss_sums", sums_part, parts, sizeof(*parts), n, n);
		for (uint32_t i = 0; i < n && rc == 0; i++) {
			uint64_t at = parts[i].idx * chunk_size;
			uint64_t end = at + chunk_size < size ? at + chunk_size : size;

			rc = parts[i].status;
			for (uint32_t j = 0; j < parts[i].n && rc == 0 && at < end; j++) {
				const struct piece *p = &parts[i].pieces[j];

				rc = each(arg, at, p->len, p->sum, (p->flags & PIECE_HOLE) != 0);
				at += p->len;
			}
			if (rc == 0 && at < end)
				rc = each(arg, at, (uint32_t)(end - at), 0, true);
		}
		idx += n;
	}
	free(parts);
	return rc < 0 ? rc : 0;
}

#define SEEK_PAGE 4096u
struct seek {
	uint64_t off, found;
	bool want_hole, done;
};

static int seek_range(struct seek *s, uint64_t off, uint64_t end, bool hole)
{
	if (end <= s->off || off == end || hole != s->want_hole)
		return 0;
	s->found = off > s->off ? off : s->off;
	s->done = true;
	return 1;
}

/* What a piece lacks of a page is no hole: nothing would be saved by leaving it out, and programs
 * take the end of the last block for the end of the data. */
static int seek_piece(void *arg, uint64_t off, uint32_t len, uint64_t sum, bool hole)
{
	struct seek *s = arg;
	uint64_t end = off + len, from = off;

	(void)sum;
	if (hole) {
		from = (off + SEEK_PAGE - 1) / SEEK_PAGE * SEEK_PAGE;
		from = from < end ? from : end;
		if (seek_range(s, off, from, false))
			return 1;
	}
	return seek_range(s, from, end, hole);
}

/* Everything written is with the servers, and the size is the true one. */
static int flushed_size(struct ll_file *f, uint64_t *ret_size)
{
	struct cred cred = io_renew_cred(f->d);
	struct attr attr;

	TRY(wb_flush(f->d));
	TRY(io_attr(f->c, &cred, f->inode, &attr));
	if (attr.layout.chunk_size < LEAT_CHUNK_SIZE_MIN)
		return -LE_IO;
	*ret_size = attr.size;
	return 0;
}

/* 1: what seemed to be a hole may be what was being cut off, so it is to be looked for again (as a
 * read does: io_read.c). */
static int seek_once(struct ll_file *f, struct seek *s, struct io_patience *p)
{
	uint32_t cuts = f->inode->attr.cuts;
	uint64_t size;
	enum io_cut cut;

	s->done = false;
	TRY(flushed_size(f, &size));
	if (s->off >= size)
		return -LE_NXIO;
	TRY(each_piece(f, s->off, size, seek_piece, s));
	TRY(io_cut_since(f->c, f->inode, cuts, &cut));
	if (cut == CUT_NOW)
		TRY(io_wait_uncut(f->c, p));
	if (cut != CUT_NOT)
		return 1;
	if (s->done && s->found < size)
		return 0;
	/* There is a hole at the end of every file. */
	s->found = size;
	return s->want_hole ? 0 : -LE_NXIO;
}

int64_t ll_seek(struct ll_file *file, uint64_t off, int whence)
{
	struct ll_file *f = CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC);
	struct seek s = {.off = off, .want_hole = whence == SEEK_HOLE};
	struct io_patience patience = {0};
	int rc;

	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return -LE_INVAL;
	do
		rc = seek_once(f, &s, &patience);
	while (rc > 0);
	return rc < 0 ? rc : (int64_t)s.found;
}

int ll_sums(struct ll_file *file,
	    int (*each)(void *arg, uint64_t off, uint32_t len, uint64_t sum, bool hole), void *arg)
{
	struct ll_file *f = CAST_OBJ(file, struct ll_file, LL_FILE_MAGIC);
	uint64_t size;

	TRY(flushed_size(f, &size));
	return each_piece(f, 0, size, each, arg);
}
