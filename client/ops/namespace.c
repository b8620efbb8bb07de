/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of ll.h that change names: mknod, mkdir, symlink, link, unlink, rmdir, rename; and
 * readlink and access.
 */

#include <string.h>

#include "client/cache/attr_cache.h"
#include "client/cache/dentry_cache.h"
#include "client/cache/inode_cache.h"
#include "client/cache/kernel_cache.h"
#include "client/cache/lease.h"
#include "client/client.h"
#include "client/data/flush.h"
#include "client/ll.h"
#include "client/ops/lookup.h"
#include "client/ops/name_check.h"
#include "client/ops/own_change.h"
#include "client/servers/mds_call.h"
#include "common/base/status.h"
#include "common/proto/mds_proto.h"
#include "common/proto/types.h"
#include "common/proto/wire.h"
#include "common/rpc/rpc.h"

/* Records the reply of an operation that creates a name. */
static int made(struct client *c, struct bytes name, const struct attr *dir,
		const struct attr *attr, uint64_t sent_us, struct attr *ret_attr)
{
	inode_saw(c, dir, true, sent_us);
	dentry_cache_update(c, dir, name, attr->ino, true, sent_us);
	inode_saw(c, attr, true, sent_us);
	if (ret_attr != NULL)
		*ret_attr = *attr;
	return 0;
}

int ll_mknod(struct client *c, const struct cred *cred, struct ino parent, struct bytes name,
	     uint32_t mode, uint32_t rdev, struct attr *ret_attr)
{
	struct mds_mknod_req req = {
		.cred = *cred, .parent = parent, .name = name, .mode = mode, .rdev = rdev};
	struct mds_mknod_rep rep;
	struct pending_change ch;
	struct rpc_call call;
	int rc;

	if (!name_may_be_used(name, &rc))
		return rc;
	pending_change_begin(c, &ch, parent);
	pending_change_name(&ch, parent, name);
	rc = mds_call(c, OP_mds_mknod, &req, &rep, &call);
	pending_change_end(&ch, rc);
	rpc_call_fini(&call);
	TRY(rc);
	return made(c, name, &rep.dir, &rep.attr, call.sent_us, ret_attr);
}

/* Marks a directory as complete that this client has just created, if no other client can have
 * changed it before the lease. */
static void is_empty(struct client *c, const struct attr *attr, uint64_t sent_us)
{
	struct inode *i = inode_peek(c, attr->ino);

	if (i == NULL)
		return;
	if ((attr->flags & ATTR_LEASED) && attr->nlink == 2 && lease_held_since(c, i, sent_us) &&
	    i->attr.change == attr->change)
		i->complete_us = sent_us;
	inode_put(c, i);
}

int ll_mkdir(struct client *c, const struct cred *cred, struct ino parent, struct bytes name,
	     uint32_t mode, struct attr *ret_attr)
{
	struct mds_mkdir_req req = {.cred = *cred, .parent = parent, .name = name, .mode = mode};
	struct mds_mkdir_rep rep;
	struct pending_change ch;
	struct rpc_call call;
	int rc;

	if (!name_may_be_used(name, &rc))
		return rc;
	pending_change_begin(c, &ch, parent);
	pending_change_name(&ch, parent, name);
	rc = mds_call(c, OP_mds_mkdir, &req, &rep, &call);
	pending_change_end(&ch, rc);
	rpc_call_fini(&call);
	TRY(rc);
	TRY(made(c, name, &rep.dir, &rep.attr, call.sent_us, ret_attr));
	is_empty(c, &rep.attr, call.sent_us);
	return 0;
}

int ll_symlink(struct client *c, const struct cred *cred, struct ino parent, struct bytes name,
	       struct bytes target, struct attr *ret_attr)
{
	struct mds_symlink_req req = {
		.cred = *cred, .parent = parent, .name = name, .target = target};
	struct mds_symlink_rep rep;
	struct pending_change ch;
	struct rpc_call call;
	int rc;

	if (!name_may_be_used(name, &rc))
		return rc;
	if (target.len == 0 || target.len > LEAT_SYMLINK_MAX)
		return target.len == 0 ? -LE_NOENT : -LE_NAMETOOLONG;
	pending_change_begin(c, &ch, parent);
	pending_change_name(&ch, parent, name);
	rc = mds_call(c, OP_mds_symlink, &req, &rep, &call);
	pending_change_end(&ch, rc);
	rpc_call_fini(&call);
	TRY(rc);
	return made(c, name, &rep.dir, &rep.attr, call.sent_us, ret_attr);
}

int ll_readlink(struct client *c, const struct cred *cred, struct ino ino, char *buf, size_t size)
{
	struct mds_readlink_req req = {.cred = *cred, .ino = ino};
	struct mds_readlink_rep rep;
	struct rpc_call call;
	int rc = mds_call(c, OP_mds_readlink, &req, &rep, &call);

	if (rc >= 0 && rep.target.len >= size)
		rc = -LE_RANGE;
	if (rc >= 0) {
		memcpy(buf, rep.target.data, rep.target.len);
		buf[rep.target.len] = '\0';
	}
	rpc_call_fini(&call);
	return rc < 0 ? rc : 0;
}

/* The first name publishes a file, as a rename does, so its data is flushed before. */
static int flush_nameless(struct client *c, struct ino ino)
{
	struct inode *i = inode_peek(c, ino);
	int rc = 0;

	if (i == NULL)
		return 0;
	if (i->data != NULL && i->attr.nlink == 0)
		rc = wb_flush(i->data);
	inode_put(c, i);
	return rc;
}

int ll_link(struct client *c, const struct cred *cred, struct ino ino, struct ino parent,
	    struct bytes name, struct attr *ret_attr)
{
	struct mds_link_req req = {.cred = *cred, .ino = ino, .parent = parent, .name = name};
	struct mds_link_rep rep;
	struct pending_change ch;
	struct rpc_call call;
	int rc;

	if (!name_may_be_used(name, &rc))
		return rc;
	TRY(flush_nameless(c, ino));
	pending_change_begin(c, &ch, parent);
	pending_change_also(&ch, ino);
	pending_change_name(&ch, parent, name);
	rc = mds_call(c, OP_mds_link, &req, &rep, &call);
	pending_change_end(&ch, rc);
	rpc_call_fini(&call);
	TRY(rc);
	inode_dir_changed(c, parent, &rep.dir, call.sent_us);
	dentry_cache_update(c, &rep.dir, name, rep.attr.ino, true, call.sent_us);
	inode_saw(c, &rep.attr, true, call.sent_us);
	return lookup_note(c, cred, &rep.attr, call.sent_us, ret_attr);
}

int ll_unlink(struct client *c, const struct cred *cred, struct ino parent, struct bytes name)
{
	struct mds_unlink_req req = {.cred = *cred, .parent = parent, .name = name};
	struct mds_unlink_rep rep;
	struct pending_change ch;
	struct rpc_call call;
	struct inode *i;
	int rc;

	if (!name_may_be_used(name, &rc))
		return rc;
	pending_change_begin(c, &ch, parent);
	rc = pending_change_report(&ch, pending_change_name(&ch, parent, name), &req.reported_ino);
	if (rc >= 0) {
		rc = mds_call(c, OP_mds_unlink, &req, &rep, &call);
		rpc_call_fini(&call);
	}
	pending_change_end(&ch, rc);
	TRY(rc);
	inode_dir_changed(c, parent, &rep.dir, call.sent_us);
	dentry_cache_update(c, &rep.dir, name, (struct ino){0}, true, call.sent_us);
	i = inode_peek(c, rep.attr.ino);
	if (i != NULL) {
		inode_update(c, i, &rep.attr, true, call.sent_us);
		inode_put(c, i);
	}
	return 0;
}

int ll_rmdir(struct client *c, const struct cred *cred, struct ino parent, struct bytes name)
{
	struct mds_rmdir_req req = {.cred = *cred, .parent = parent, .name = name};
	struct mds_rmdir_rep rep;
	struct pending_change ch;
	struct rpc_call call;
	int rc;

	if (!name_may_be_used(name, &rc))
		return rc;
	pending_change_begin(c, &ch, parent);
	pending_change_name(&ch, parent, name);
	rc = mds_call(c, OP_mds_rmdir, &req, &rep, &call);
	pending_change_end(&ch, rc);
	rpc_call_fini(&call);
	TRY(rc);
	inode_dir_changed(c, parent, &rep.dir, call.sent_us);
	dentry_cache_update(c, &rep.dir, name, (struct ino){0}, true, call.sent_us);
	inode_outdated(c, rep.removed); /* this client may have it open */
	return 0;
}

/* Programs publish a file by a rename, so its data is flushed before. Yields. */
static int flush_renamed(struct client *c, const struct cred *cred, struct ino parent,
			 struct bytes name)
{
	struct mds_lookup_req req = {.cred = *cred, .parent = parent, .name = name};
	struct mds_lookup_rep rep;
	struct rpc_call call;
	struct inode *i;
	int rc = 0;

	/* A lookup pays only if some file has dirty data. */
	if (c->wb.dirty == 0)
		return 0;
	rc = mds_call(c, OP_mds_lookup, &req, &rep, &call);
	rpc_call_fini(&call);
	/* The previous process may have renamed it, and only the reply was lost. */
	if (rc == -LE_NOENT)
		return 0;
	TRY(rc);
	i = inode_peek(c, rep.attr.ino);
	if (i == NULL)
		return 0;
	if (i->data != NULL)
		rc = wb_flush(i->data);
	inode_put(c, i);
	return rc;
}

static void renamed(struct client *c, const struct mds_rename_req *req,
		    const struct mds_rename_rep *rep, uint64_t sent_us)
{
	bool exchange = (req->flags & RENAME_EXCHANGE) != 0;
	bool same = ino_equal(req->parent, req->new_parent);

	inode_dir_changed(c, req->parent, &rep->dir, sent_us);
	if (!same)
		inode_dir_changed(c, req->new_parent, &rep->new_dir, sent_us);
	/* In one directory, the attributes after the second change are the newest. */
	dentry_cache_update(c, same ? &rep->dir : &rep->new_dir, req->new_name, rep->attr.ino, true,
		   sent_us);
	dentry_cache_update(c, &rep->dir, req->name, exchange ? rep->replaced : rep->whiteout, true,
		   sent_us);
	inode_saw(c, &rep->attr, true, sent_us);
}

int ll_rename(struct client *c, const struct cred *cred, struct ino parent, struct bytes name,
	      struct ino new_parent, struct bytes new_name, uint32_t flags)
{
	struct mds_rename_req req = {
		.cred = *cred,
		.parent = parent,
		.name = name,
		.new_parent = new_parent,
		.new_name = new_name,
		.flags = flags,
	};
	struct mds_rename_rep rep;
	struct pending_change ch;
	struct rpc_call call;
	struct inode *i;
	int rc;

	if (!name_may_be_used(name, &rc) || !name_may_be_used(new_name, &rc))
		return rc;
	TRY(flush_renamed(c, cred, parent, name));
	if (flags & RENAME_EXCHANGE)
		TRY(flush_renamed(c, cred, new_parent, new_name));
	pending_change_begin(c, &ch, parent);
	pending_change_also(&ch, new_parent);
	pending_change_name(&ch, parent, name);
	rc = pending_change_report(&ch, pending_change_name(&ch, new_parent, new_name),
				   &req.reported_ino);
	lease_name_moves(c, parent, new_parent);
	if (flags & RENAME_EXCHANGE)
		lease_name_moves(c, new_parent, parent);
	if (rc >= 0) {
		rc = mds_call(c, OP_mds_rename, &req, &rep, &call);
		rpc_call_fini(&call);
	}
	/* Both names were of one file: the MDS changes nothing and reports no directory. */
	pending_change_end(&ch, rc < 0 || rep.dir.ino.v == 0 ? -LE_EXIST : rc);
	TRY(rc);
	renamed(c, &req, &rep, call.sent_us);
	lease_name_moved(c, parent, new_parent);
	if (flags & RENAME_EXCHANGE)
		lease_name_moved(c, new_parent, parent);
	i = rep.replaced.v != 0 ? inode_peek(c, rep.replaced) : NULL;
	if (i != NULL) {
		inode_changed_here(i);
		inode_put(c, i);
	}
	return 0;
}

int ll_access(struct client *c, const struct cred *cred, struct ino ino, uint32_t mask)
{
	struct mds_access_req req = {.cred = *cred, .ino = ino, .mask = mask};
	struct mds_access_rep rep;
	struct rpc_call call;
	int rc = mds_call(c, OP_mds_access, &req, &rep, &call);

	rpc_call_fini(&call);
	return rc < 0 ? rc : 0;
}
