/* SPDX-License-Identifier: Apache-2.0 */
#include "client/ops/open.h"

#include <fcntl.h>
#include <stddef.h>

#include "client/cache/attr_cache.h"
#include "client/cache/dentry_cache.h"
#include "client/cache/inode_cache.h"
#include "client/cache/lease.h"
#include "client/cache/lease_grant.h"
#include "client/cache/prefetch_cache.h"
#include "client/client.h"
#include "client/data/capability.h"
#include "client/data/open_file.h"
#include "client/data/size.h"
#include "client/data/space_grant.h"
#include "client/data/sync.h"
#include "client/ll.h"
#include "client/ops/delegated_open.h"
#include "client/ops/own_change.h"
#include "client/ops/truncation.h"
#include "client/servers/mds_call.h"
#include "client/servers/open_count.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/proto/mds_proto.h"
#include "common/proto/types.h"
#include "common/proto/wire.h"
#include "common/rpc/rpc.h"

#define OPEN_FLAGS     (O_ACCMODE | O_TRUNC | O_APPEND | O_EXCL)
#define SECTOR   512u

/* Creates the open file after the MDS has opened it. Takes over a reference of the caller on
 * success. Returns 0 or -LE_NOMEM. */
static int opened(struct client *c, struct inode *i, const struct cred *cred, uint32_t flags,
		  const struct cap *cap, struct ll_file **ret_file)
{
	struct inode_io *d;
	struct ll_file *f;

	TRY(inode_data(c, i, &d));
	f = file_make(c, i, d, cred, flags);
	if (f == NULL)
		return -LE_NOMEM;
	session_opened(d, flags, cap->session);
	open_count_add(d, flags, 1);
	cap_set(d, cap);
	if (open_flags_write(flags)) {
		if (d->n_write == 1) {
			d->quota_left = 0;  /* returned with the last close */
			d->durable_end = 0; /* reported by the last close; may be truncated since */
		}
		/* Unless the file is empty or full, the space it occupies is unknown. */
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
	struct inode_io *d;

	TRY(inode_data(c, i, &d));
	*ret_file = file_make(c, i, d, cred, flags);
	if (*ret_file == NULL)
		return -LE_NOMEM;
	open_count_add(d, flags, 1);
	/* Only the chains have a record of what the previous process wrote. */
	d->sparse = d->size_unverified = true;
	d->n_pages++;
	i->opened = true; /* the kernel may have pages of an unknown version */
	i->open_change = UINT64_MAX;
	return 0;
}

/* Closes, at the MDS, an open for which the client has no memory. Yields. */
static void undo_open(struct client *c, struct ino ino, uint32_t flags)
{
	struct mds_close_req req = {.ino = ino, .flags = flags & (O_ACCMODE | O_APPEND)};
	struct mds_close_rep rep;
	struct rpc_call call;
	int rc = mds_call(c, OP_mds_close, &req, &rep, &call);

	rpc_call_fini(&call);
	if (rc < 0)
		log_debug("cannot undo open of ino %llu: %s", (unsigned long long)ino.v,
			  status_name(rc));
}

/* Called before the reply to an open is merged. Returns true if the file may have had writers
 * before. */
static bool was_unsettled(const struct inode *i, bool created)
{
	return i->attr.ino.v == 0 ? !created : (i->attr.flags & ATTR_UNSETTLED) != 0;
}

/* The MDS may have counted this open before an earlier close arrived, with the size that was
 * written before it. Then the file was never settled, and its record may have an old size. */
static void opened_again(struct ll_file *f, bool unsettled)
{
	if (f->can_write && (f->flags & O_TRUNC) == 0 && f->d->n_write == 1 && unsettled)
		f->d->size_unverified = true;
}

static bool take_change(struct inode *i)
{
	bool changed = !i->opened || i->open_change != i->attr.change;

	i->opened = true;
	i->open_change = i->attr.change;
	return changed;
}

static int open_inode(struct client *c, const struct cred *cred, struct inode *i, uint32_t flags,
		      struct ll_file **ret_file)
{
	struct mds_open_req req = {
		.cred = *cred,
		.ino = i->ino,
		.flags = flags & (O_ACCMODE | O_TRUNC | O_APPEND | OPEN_ORPHAN),
	};
	struct mds_open_rep rep;
	bool unsettled;
	struct pending_change ch;
	struct rpc_call call;
	int rc;

	flags &= ~(uint32_t)OPEN_ORPHAN;
	if (delegation_allows(c, cred, i, flags))
		return delegation_open(c, cred, i, flags, ret_file);
	TRY(sync_wait_closing(i));
	if (flags & O_TRUNC)
		TRY(delegation_report(c, i));
	pending_change_begin(c, &ch, i->ino);
	rc = flags & O_TRUNC ? truncate_flush(i) : 0;
	if (rc < 0) {
		pending_change_end(&ch, rc);
		return rc;
	}
	rc = mds_call(c, OP_mds_open, &req, &rep, &call);
	if (change_outcome_unknown(rc) && (flags & O_TRUNC))
		lease_invalidate_data(c, i);
	pending_change_end(&ch, rc);
	if (rc >= 0) {
		unsettled = was_unsettled(i, false);
		inode_update(c, i, &rep.attr, open_flags_write(flags), call.sent_us);
		inode_opened(i, flags);
		if (flags & O_TRUNC)
			inode_truncated(i, &rep.attr);
		rc = opened(c, i, cred, flags, &rep.cap, ret_file);
		if (rc < 0)
			undo_open(c, i->ino, flags);
	}
	if (rc >= 0) {
		opened_again(*ret_file, unsettled);
		/* The file has writers: the size after an earlier close may be only with the
		 * chains. */
		if ((flags & O_ACCMODE) != O_WRONLY && !(flags & O_TRUNC))
			rc = size_settle(c, i, &rep.attr);
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
	/* With other writers the change counter moves only when their closes arrive. */
	*ret_changed = take_change(i) || !lease_held(c, i);
	if (*ret_changed)
		ra_drop_all(f->d);
	if (ret_attr != NULL)
		inode_attr(c, i, ret_attr);
	*ret_file = f;
	return 0;
}

/* Called when an O_TRUNC of the named file may still take effect. */
static void truncation_is_unknown(struct client *c, struct ino victim)
{
	struct inode *i = victim.v != 0 ? inode_peek(c, victim) : NULL;

	if (i == NULL)
		return;
	lease_invalidate_data(c, i);
	inode_put(c, i);
}

/* Prepares an O_TRUNC of the named file. If the dentry cache lacks the name, the MDS recalls the
 * file's lease before it truncates. Yields. */
static int before_truncation(struct client *c, struct pending_change *ch, struct ino victim,
		      struct ino *ret_reported)
{
	struct inode *i;
	int rc;

	TRY(pending_change_report(ch, victim, ret_reported));
	i = victim.v != 0 ? inode_peek(c, victim) : NULL;
	if (i == NULL)
		return 0;
	rc = truncate_flush(i);
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
	struct pending_change ch;
	bool unsettled;
	int rc;

	pending_change_begin(c, &ch, parent);
	victim = pending_change_name(&ch, parent, name);
	rc = flags & O_TRUNC ? before_truncation(c, &ch, victim, &req.reported_ino) : 0;
	/* If the dentry cache lacks the name, the MDS must recall the file's lease. */
	if (victim.v == 0)
		req.reported_ino = victim;
	if (rc >= 0) {
		rc = mds_call(c, OP_mds_create, &req, &rep, &call);
		rpc_call_fini(&call);
	}
	if (change_outcome_unknown(rc) && (flags & O_TRUNC))
		truncation_is_unknown(c, victim);
	/* An existing file does not change the directory. */
	pending_change_end(&ch, rc >= 0 && rep.created ? rc : -LE_EXIST);
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
		dentry_cache_update(c, &rep.dir, name, rep.attr.ino, true, call.sent_us);
	}
	/* Between creation and reply, another client may have opened the file and written to it. */
	if (!rep.created && (flags & O_TRUNC))
		inode_truncated(i, &rep.attr);
	rc = opened(c, i, cred, flags, &rep.cap, ret_file);
	if (rc < 0) {
		undo_open(c, i->ino, flags);
		inode_put(c, i);
		return rc;
	}
	opened_again(*ret_file, unsettled);
	if (!rep.created && (flags & O_ACCMODE) != O_WRONLY && !(flags & O_TRUNC))
		rc = size_settle(c, i, &rep.attr);
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
