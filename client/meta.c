/* Names and attributes: one request to the MDS each, and what its answer tells about inodes. */
#include <linux/fs.h>

#include "client/delegation.h"
#include "client/io.h"
#include "client/removed_dir.h"
#include "client/retry.h"
#include "common/proto/cred.h"

static bool is_dots(struct bytes name)
{
	return name.len <= 2 && memcmp(name.data, "..", name.len) == 0;
}

static bool name_ok(struct bytes name, int *ret_status)
{
	if (name.len == 0 || name.len > LEAT_NAME_MAX) {
		*ret_status = name.len == 0 ? -LE_NOENT : -LE_NAMETOOLONG;
		return false;
	}
	return true;
}

/* The answer is about an inode that this client may have open, be closing, or share with others. */
static int seen(struct client *c, const struct cred *cred, const struct attr *attr,
		uint64_t sent_us, struct attr *ret_attr)
{
	struct inode *i;
	int rc;

	i = inode_get(c, attr->ino);
	if (i == NULL)
		return -LE_NOMEM;
	inode_update(c, i, attr, false, sent_us);
	rc = io_wait_times(i);
	if (rc >= 0 && (attr->flags & ATTR_UNSETTLED) && S_ISREG(attr->mode)) {
		if (i->data != NULL && i->data->n_closing > 0) {
			/* Our own close is on its way and settles it. */
			rc = io_attr(c, cred, i, ret_attr != NULL ? ret_attr : &(struct attr){0});
		} else {
			rc = io_settle(c, i, attr);
		}
		if (rc == -LE_ACCES || rc == -LE_PERM || rc == -LE_STALE)
			rc = 0;
	}
	if (rc >= 0 && ret_attr != NULL)
		io_settled_attr(c, i, ret_attr);
	i->found_us = loop_now_us();
	inode_put(c, i);
	return rc;
}

static bool may_search(const struct client *c, const struct cred *cred, const struct inode *dir)
{
	if (cred->uid == 0 || (cred->flags & CRED_CHECKED) != 0)
		return true;
	return inode_attr_fresh(c, dir) && (dir->attr.flags & ATTR_PLAIN) != 0 &&
	       cred_mode_allows(cred, &dir->attr, PERM_X);
}

/* Where the caller's rights are known to suffice, from what is known. */
static bool lookup_known(struct client *c, const struct cred *cred, struct ino parent,
			 struct bytes name, struct attr *ret_attr, int *ret_rc)
{
	struct inode *dir = inode_peek(c, parent), *i;
	struct ino ino;
	bool known = false;

	if (dir == NULL)
		return false;
	if (may_search(c, cred, dir) && names_find(c, dir, name, &ino)) {
		i = ino.v != 0 ? inode_peek(c, ino) : NULL;
		known = ino.v == 0 || (i != NULL && inode_size_fresh(c, i) && !io_times_open(i));
		*ret_rc = ino.v == 0 ? -LE_NOENT : 0;
		if (i != NULL && known) {
			inode_attr(c, i, ret_attr);
			ret_attr->flags &= ~(uint32_t)ATTR_UNSETTLED;
			i->found_us = loop_now_us();
		}
		if (i != NULL)
			inode_put(c, i);
	}
	inode_put(c, dir);
	return known;
}

static void may_be_read(struct client *c, const struct cap *cap)
{
	struct inode *i = inode_peek(c, cap->ino);

	if (i == NULL)
		return;
	if (cap->gen == i->attr.layout.gen) {
		i->cap = *cap;
		i->cap_gen = c->session_gen;
	}
	inode_put(c, i);
}

int ll_lookup(struct client *c, const struct cred *cred, struct ino parent, struct bytes name,
	      struct attr *ret_attr)
{
	struct mds_lookup_req req = {.cred = *cred, .parent = parent, .name = name};
	struct mds_lookup_rep rep;
	struct rpc_call call;
	struct attr unused;
	int rc;

	if (!name_ok(name, &rc))
		return rc;
	/* The dots are not among the names of a directory, known or not. */
	if (!is_dots(name) && lookup_known(c, cred, parent, name,
					   ret_attr != NULL ? ret_attr : &unused, &rc))
		return rc;
	rc = mds_call(c, OP_mds_lookup, &req, &rep, &call);
	rpc_call_fini(&call);
	TRY(rc);
	if (rep.dir.ino.v != 0) {
		inode_saw(c, &rep.dir, false, call.sent_us);
		names_told(c, &rep.dir, name, rep.attr.ino, false, call.sent_us);
	}
	if (rep.attr.ino.v == 0)
		return -LE_NOENT;
	rc = seen(c, cred, &rep.attr, call.sent_us, ret_attr);
	if (rep.cap.ino.v != 0)
		may_be_read(c, &rep.cap);
	return rc;
}

int ll_getattr(struct client *c, const struct cred *cred, struct ino ino, struct attr *ret_attr)
{
	struct inode *i = inode_get(c, ino);
	struct attr attr;
	int rc;

	if (i == NULL)
		return -LE_NOMEM;
	rc = io_attr(c, cred, i, &attr);
	if (rc == -LE_STALE && removed_dir(i, &attr))
		rc = 0;
	if (rc >= 0 && ret_attr != NULL)
		*ret_attr = attr;
	inode_put(c, i);
	return rc;
}

int ll_getattr_rights(struct client *c, const struct cred *cred, struct ino ino,
		      struct attr *ret_attr)
{
	struct inode *i = inode_get(c, ino);
	int rc;

	if (i == NULL)
		return -LE_NOMEM;
	rc = io_know_rights(c, cred, i);
	if (rc >= 0)
		inode_attr(c, i, ret_attr);
	inode_put(c, i);
	return rc;
}

bool ll_hold(struct client *c, struct ino ino)
{
	struct inode *i = inode_get(c, ino);

	if (i == NULL)
		return false;
	i->n_held++;
	return true;
}

void ll_unhold(struct client *c, struct ino ino)
{
	struct inode *i = inode_peek(c, ino);

	ASSERT(i != NULL && i->n_held > 0 && i->refs > 1);
	i->n_held--;
	i->refs--;
	inode_put(c, i);
}

/* What the operations that make a name have in common: the answer's attributes. */
static int made(struct client *c, struct bytes name, const struct attr *dir,
		const struct attr *attr, uint64_t sent_us, struct attr *ret_attr)
{
	inode_saw(c, dir, true, sent_us);
	names_told(c, dir, name, attr->ino, true, sent_us);
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
	struct changing ch;
	struct rpc_call call;
	int rc;

	if (!name_ok(name, &rc))
		return rc;
	changing_begin(c, &ch, parent);
	changing_name(&ch, parent, name);
	rc = mds_call(c, OP_mds_mknod, &req, &rep, &call);
	changing_end(&ch, rc);
	rpc_call_fini(&call);
	TRY(rc);
	return made(c, name, &rep.dir, &rep.attr, call.sent_us, ret_attr);
}

/* A directory that this client has just made, and nobody else can have found before the lease. */
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
	struct changing ch;
	struct rpc_call call;
	int rc;

	if (!name_ok(name, &rc))
		return rc;
	changing_begin(c, &ch, parent);
	changing_name(&ch, parent, name);
	rc = mds_call(c, OP_mds_mkdir, &req, &rep, &call);
	changing_end(&ch, rc);
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
	struct changing ch;
	struct rpc_call call;
	int rc;

	if (!name_ok(name, &rc))
		return rc;
	if (target.len == 0 || target.len > LEAT_SYMLINK_MAX)
		return target.len == 0 ? -LE_NOENT : -LE_NAMETOOLONG;
	changing_begin(c, &ch, parent);
	changing_name(&ch, parent, name);
	rc = mds_call(c, OP_mds_symlink, &req, &rep, &call);
	changing_end(&ch, rc);
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

/* The first name of a file publishes it, as a rename does. */
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
	struct changing ch;
	struct rpc_call call;
	int rc;

	if (!name_ok(name, &rc))
		return rc;
	TRY(flush_nameless(c, ino));
	changing_begin(c, &ch, parent);
	changing_also(&ch, ino);
	changing_name(&ch, parent, name);
	rc = mds_call(c, OP_mds_link, &req, &rep, &call);
	changing_end(&ch, rc);
	rpc_call_fini(&call);
	TRY(rc);
	inode_dir_changed(c, parent, &rep.dir, call.sent_us);
	names_told(c, &rep.dir, name, rep.attr.ino, true, call.sent_us);
	inode_saw(c, &rep.attr, true, call.sent_us);
	return seen(c, cred, &rep.attr, call.sent_us, ret_attr);
}

int ll_unlink(struct client *c, const struct cred *cred, struct ino parent, struct bytes name)
{
	struct mds_unlink_req req = {.cred = *cred, .parent = parent, .name = name};
	struct mds_unlink_rep rep;
	struct changing ch;
	struct rpc_call call;
	struct inode *i;
	int rc;

	if (!name_ok(name, &rc))
		return rc;
	changing_begin(c, &ch, parent);
	rc = changing_tell(&ch, changing_name(&ch, parent, name), &req.told);
	if (rc >= 0) {
		rc = mds_call(c, OP_mds_unlink, &req, &rep, &call);
		rpc_call_fini(&call);
	}
	changing_end(&ch, rc);
	TRY(rc);
	inode_dir_changed(c, parent, &rep.dir, call.sent_us);
	names_told(c, &rep.dir, name, (struct ino){0}, true, call.sent_us);
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
	struct changing ch;
	struct rpc_call call;
	int rc;

	if (!name_ok(name, &rc))
		return rc;
	changing_begin(c, &ch, parent);
	changing_name(&ch, parent, name);
	rc = mds_call(c, OP_mds_rmdir, &req, &rep, &call);
	changing_end(&ch, rc);
	rpc_call_fini(&call);
	TRY(rc);
	inode_dir_changed(c, parent, &rep.dir, call.sent_us);
	names_told(c, &rep.dir, name, (struct ino){0}, true, call.sent_us);
	inode_outdated(c, rep.removed); /* whoever has it open */
	return 0;
}

/* A rename is how programs publish a file: its data goes ahead. */
static int flush_renamed(struct client *c, const struct cred *cred, struct ino parent,
			 struct bytes name)
{
	struct mds_lookup_req req = {.cred = *cred, .parent = parent, .name = name};
	struct mds_lookup_rep rep;
	struct rpc_call call;
	struct inode *i;
	int rc = 0;

	/* Only files that are written to right now are worth the question. */
	if (c->wb.dirty == 0)
		return 0;
	rc = mds_call(c, OP_mds_lookup, &req, &rep, &call);
	rpc_call_fini(&call);
	/* Perhaps a former process has renamed it, and only the answer was lost. */
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
	/* In one directory the second change is the newest. */
	names_told(c, same ? &rep->dir : &rep->new_dir, req->new_name, rep->attr.ino, true,
		   sent_us);
	names_told(c, &rep->dir, req->name, exchange ? rep->replaced : rep->whiteout, true,
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
	struct changing ch;
	struct rpc_call call;
	struct inode *i;
	int rc;

	if (!name_ok(name, &rc) || !name_ok(new_name, &rc))
		return rc;
	TRY(flush_renamed(c, cred, parent, name));
	if (flags & RENAME_EXCHANGE)
		TRY(flush_renamed(c, cred, new_parent, new_name));
	changing_begin(c, &ch, parent);
	changing_also(&ch, new_parent);
	changing_name(&ch, parent, name);
	rc = changing_tell(&ch, changing_name(&ch, new_parent, new_name), &req.told);
	lease_name_moves(c, parent, new_parent);
	if (flags & RENAME_EXCHANGE)
		lease_name_moves(c, new_parent, parent);
	if (rc >= 0) {
		rc = mds_call(c, OP_mds_rename, &req, &rep, &call);
		rpc_call_fini(&call);
	}
	/* The same file under both names: nothing is told. */
	changing_end(&ch, rc < 0 || rep.dir.ino.v == 0 ? -LE_EXIST : rc);
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

/* A value for a caller's buffer: its length, or the need for a larger one. */
static int64_t value_out(struct bytes value, int rc, struct rpc_call *call, void *buf, size_t size)
{
	int64_t ret = rc;

	if (rc >= 0) {
		ret = value.len;
		if (size > 0 && value.len > size)
			ret = -LE_RANGE;
		else if (size > 0 && value.len > 0)
			memcpy(buf, value.data, value.len);
	}
	rpc_call_fini(call);
	return ret;
}

/* The inode is known to have none of the kinds that there are, so the MDS need not be asked: the
 * kernel asks for access lists and security.capability of every file in use. */
static bool known_plain(struct client *c, const struct cred *cred, struct ino ino,
			struct bytes name)
{
	static const char *const kinds[] = {"user.", "trusted.", "security.", "system.posix_acl_"};
	struct inode *i;
	bool plain;

	if ((cred->flags & CRED_CHECKED) == 0)
		return false;
	for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
		size_t n = strlen(kinds[k]);

		if (name.len > n && memcmp(name.data, kinds[k], n) == 0)
			goto look;
	}
	return false;
look:
	i = inode_peek(c, ino);
	if (i == NULL)
		return false;
	plain = (i->attr.flags & ATTR_PLAIN) != 0 && inode_attr_fresh(c, i);
	inode_put(c, i);
	return plain;
}

/* The kernel asks for the access list of a directory before it looks for a name there: a
 * program that removes what another one has removed is told ENOENT, not ESTALE. */
static int64_t of_removed_dir(struct client *c, struct ino ino, int64_t rc, int64_t instead)
{
	struct inode *i = rc == -LE_STALE ? inode_peek(c, ino) : NULL;
	struct attr attr;

	if (i == NULL)
		return rc;
	if (removed_dir(i, &attr))
		rc = instead;
	inode_put(c, i);
	return rc;
}

int64_t ll_getxattr(struct client *c, const struct cred *cred, struct ino ino, struct bytes name,
		    void *buf, size_t size)
{
	struct mds_getxattr_req req = {.cred = *cred, .ino = ino, .name = name};
	struct mds_getxattr_rep rep;
	struct rpc_call call;
	int rc;

	if (known_plain(c, cred, ino, name))
		return -LE_NODATA;
	rc = mds_call(c, OP_mds_getxattr, &req, &rep, &call);
	return of_removed_dir(c, ino, value_out(rep.value, rc, &call, buf, size), -LE_NODATA);
}

int64_t ll_listxattr(struct client *c, const struct cred *cred, struct ino ino, void *buf,
		     size_t size)
{
	struct mds_listxattr_req req = {.cred = *cred, .ino = ino};
	struct mds_listxattr_rep rep;
	struct rpc_call call;
	int rc;

	if (known_plain(c, cred, ino, bytes_str("user.any")))
		return 0;
	rc = mds_call(c, OP_mds_listxattr, &req, &rep, &call);
	const char *names = rc >= 0 ? rep.names.data : NULL;
	if (names != NULL && rep.names.len > 0 && names[rep.names.len - 1] != '\0') {
		rpc_call_fini(&call);
		return -LE_BAD_MESSAGE;
	}
	return of_removed_dir(c, ino, value_out(rep.names, rc, &call, buf, size), 0);
}

int ll_setxattr(struct client *c, const struct cred *cred, struct ino ino, struct bytes name,
		struct bytes value, uint32_t flags)
{
	struct mds_setxattr_req req = {
		.cred = *cred,
		.ino = ino,
		.name = name,
		.value = value,
		.flags = flags,
	};
	struct mds_setxattr_rep rep;
	struct changing ch;
	struct rpc_call call;
	int rc;

	if (name.len > LEAT_XATTR_NAME_MAX)
		return -LE_RANGE;
	if (value.len > LEAT_XATTR_VALUE_MAX)
		return -LE_2BIG;
	changing_begin(c, &ch, ino);
	rc = mds_call(c, OP_mds_setxattr, &req, &rep, &call);
	changing_end(&ch, rc);
	rpc_call_fini(&call);
	TRY(rc);
	inode_outdated(c, ino);
	return 0;
}

int ll_removexattr(struct client *c, const struct cred *cred, struct ino ino, struct bytes name)
{
	struct mds_removexattr_req req = {.cred = *cred, .ino = ino, .name = name};
	struct mds_removexattr_rep rep;
	struct rpc_call call;
	struct changing ch;
	int rc;

	changing_begin(c, &ch, ino);
	rc = mds_call(c, OP_mds_removexattr, &req, &rep, &call);
	changing_end(&ch, rc);
	rpc_call_fini(&call);
	TRY(rc);
	inode_outdated(c, ino);
	return 0;
}

int ll_quota_set(struct client *c, const struct mds_quota_set_req *req, struct attr *ret_attr,
		 bool *ret_made)
{
	struct mds_quota_set_rep rep;
	struct rpc_call call;
	int rc = mds_call(c, OP_mds_quota_set, req, &rep, &call);

	rpc_call_fini(&call);
	TRY(rc);
	*ret_made = rep.made != 0;
	return seen(c, &req->cred, &rep.attr, true, ret_attr);
}

int ll_quota_get(struct client *c, struct ino ino, struct mds_quota_get_rep *ret_q)
{
	struct mds_quota_get_req req = {.ino = ino};
	struct rpc_call call;
	int rc = mds_call(c, OP_mds_quota_get, &req, ret_q, &call);

	rpc_call_fini(&call);
	return rc < 0 ? rc : 0;
}

int ll_statfs(struct client *c, struct ino ino, struct ll_statfs *ret_st)
{
	struct mds_statfs_req req = {.ino = ino};
	struct mds_statfs_rep rep;
	struct rpc_call call;
	int rc;

	rc = mds_call(c, OP_mds_statfs, &req, &rep, &call);
	rpc_call_fini(&call);
	TRY(rc);
	*ret_st = (struct ll_statfs){rep.total, rep.free, rep.avail, rep.inodes, rep.inodes_free};
	return 0;
}

int ll_layout_set(struct client *c, const struct cred *cred, struct ino ino,
		  const struct layout *layout, struct attr *ret_attr)
{
	struct mds_layout_set_req req = {.cred = *cred, .ino = ino, .layout = *layout};
	struct mds_layout_set_rep rep;
	struct rpc_call call;
	struct changing ch;
	struct ino told;
	int rc;

	changing_begin(c, &ch, ino);
	rc = changing_tell(&ch, ino, &told);
	if (rc >= 0) {
		rc = mds_call(c, OP_mds_layout_set, &req, &rep, &call);
		rpc_call_fini(&call);
	}
	changing_end(&ch, rc);
	TRY(rc);
	inode_saw(c, &rep.attr, true, call.sent_us);
	return seen(c, cred, &rep.attr, call.sent_us, ret_attr);
}
