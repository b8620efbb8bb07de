/* SPDX-License-Identifier: Apache-2.0 */
#include "mds/inode_ops.h"

#include "common/base/planted_bug.h"
#include "mds/access/acl.h"
#include "mds/access/perm.h"
#include "mds/mds.h"

int name_check(struct bytes name)
{
	if (name.len > LEAT_NAME_MAX)
		return -LE_NAMETOOLONG;
	if (name.len == 0 || memchr(name.data, '/', name.len) != NULL ||
	    memchr(name.data, 0, name.len) != NULL)
		return -LE_INVAL;
	if (name.len <= 2 && memcmp(name.data, "..", name.len) == 0)
		return -LE_EXIST;
	return 0;
}

int parent_get(struct op *op, struct ino ino, enum view view, struct inode **ret_dir,
	       const struct inode_rec **ret_rec)
{
	/* Removed: there is no name in it, and none can be made. */
	TRY(inode_get(op->store, ino, view, ret_dir, ret_rec));
	return S_ISDIR((*ret_rec)->attr.mode) ? 0 : -LE_NOTDIR;
}

int dir_get(struct op *op, struct ino ino, struct inode **ret_dir, const struct inode_rec **ret_rec)
{
	const struct inode_rec *rec;

	TRY(parent_get(op, ino, VIEW_NEWEST, ret_dir, &rec));
	if (rec->attr.nlink == 0)
		return -LE_NOENT;
	*ret_rec = rec;
	return 0;
}

int dir_get_for_change(struct op *op, const struct cred *c, struct ino ino, struct inode **ret_dir,
		       const struct inode_rec **ret_rec)
{
	TRY(cred_check(c));
	TRY(dir_get(op, ino, ret_dir, ret_rec));
	return perm_access(c, *ret_rec, PERM_W | PERM_X);
}

int file_get(struct op *op, struct ino ino, enum view view, struct inode **ret_i,
	     const struct inode_rec **ret_rec)
{
	int rc = inode_get(op->store, ino, view, ret_i, ret_rec);

	return rc == -LE_NOENT ? -LE_STALE : rc;
}

void inode_changed(struct op *op, struct inode_rec *rec)
{
	ASSERT(PLANTED_BUG(MDS_NO_RECALL) ||
	       !lease_foreign(&op->m->leases, rec->attr.ino, op->session, LEASE_CACHING));
	rec->attr.ctime_ns = op_now(op);
	rec->attr.change++;
}

void inode_data_changed(struct op *op, struct inode_rec *rec)
{
	inode_changed(op, rec);
	rec->attr.mtime_ns = rec->attr.ctime_ns;
	inode_accounts_for(rec, rec->attr.mtime_ns);
}

void inode_written(struct op *op, struct inode_rec *rec, int64_t at_ns)
{
	int64_t before = rec->attr.ctime_ns;

	inode_changed(op, rec);
	rec->attr.ctime_ns = before;
	if (attr_chains_time(&rec->attr, at_ns))
		attr_take_written(&rec->attr, at_ns);
}

void dir_changed(struct op *op, struct inode *dir, int delta, int links, struct attr *ret_attr)
{
	struct inode_rec *rec = inode_edit(op->store, dir);

	inode_changed(op, rec);
	rec->attr.mtime_ns = rec->attr.ctime_ns;
	rec->entries = (uint64_t)((int64_t)rec->entries + delta);
	rec->attr.nlink = (uint32_t)((int64_t)rec->attr.nlink + links);
	*ret_attr = rec->attr;
}

/* The bytes that a new inode counts: the block of a directory, and inherited access lists. */
static uint64_t bytes_at_birth(const struct inode_rec *dir, uint32_t mode)
{
	struct bytes list = dir->acl_default, none = bytes_of(NULL, 0);
	bool inherits = !S_ISLNK(mode) && list.len > 0;
	bool same_list = inherits && acl_base(list).has_mask;
	struct inode_rec rec = {
		.attr.blocks = S_ISDIR(mode) ? DIR_BLOCKS : 0,
		.acl = same_list ? list : none,
		.acl_default = inherits && S_ISDIR(mode) ? list : none,
	};

	return quota_bytes(&rec);
}

int inode_quota(struct op *op, const struct inode_rec *dir, uint32_t mode)
{
	TRY(store_space(op->store));
	return quota_check(op->store, dir->attr.project, bytes_at_birth(dir, mode), 1);
}

struct inode *inode_make(struct op *op, const struct cred *c, const struct inode_rec *dir,
			 uint32_t mode, struct inode_rec **ret_rec)
{
	struct inode_rec *rec;
	struct inode *i;
	int64_t now = op_now(op);
	bool same_list = false;
	uint32_t gid;

	perm_new(c, &dir->attr, &mode, &gid);
	if (!S_ISLNK(mode) && dir->acl_default.len > 0)
		mode = acl_inherit(dir->acl_default, mode, &same_list);
	else if (!S_ISLNK(mode))
		mode &= ~(c->umask & 0777);
	i = inode_create(op->store, &rec);
	if (same_list)
		acl_replace(op->store, &rec->acl, dir->acl_default);
	i->whole = S_ISDIR(mode);
	if (S_ISDIR(mode))
		acl_replace(op->store, &rec->acl_default, dir->acl_default);
	rec->attr.mode = mode;
	rec->attr.nlink = S_ISDIR(mode) ? 2 : 1;
	rec->attr.uid = c->uid;
	rec->attr.gid = gid;
	rec->attr.atime_ns = rec->attr.mtime_ns = rec->attr.ctime_ns = rec->attr.btime_ns = now;
	rec->attr.chains_ns = now;
	rec->attr.change = 1;
	rec->attr.flags |= dir->attr.flags & (ATTR_NODUMP | ATTR_NOATIME);
	rec->attr.project = dir->attr.project;
	quota_ahead(op->store, rec->attr.project, bytes_at_birth(dir, mode), 1);
	inode_set_plain(rec);
	*ret_rec = rec;
	return i;
}

bool inode_has_no_data(const struct inode_rec *rec)
{
	return !S_ISREG(rec->attr.mode) || rec->attr.layout.width == 0 ||
	       (rec->attr.size == 0 && rec->attr.blocks == 0 && rec->append_end == 0 &&
		(rec->attr.flags & ATTR_UNSETTLED) == 0);
}

bool op_writes(const struct op *op, struct ino ino)
{
	const struct open *o =
		op->session != NULL ? open_find(&op->m->opens, op->session, ino) : NULL;

	return o != NULL && o->n_write > 0 && (o->granted & PERM_W) != 0;
}

bool inode_not_open(struct op *op, struct ino ino)
{
	return op->m->recovery.sessions_back &&
	       !open_file_is_open(open_file_find(&op->m->opens, ino));
}

void data_remove(struct op *op, const struct attr *a)
{
	struct removal_rec rec = {a->ino, a->layout};

	TXN_PUT(op->store, key_of('Q', ++op->m->removal_seq), removal_rec, &rec);
	op->removed = true;
}

void inode_remove(struct op *op, struct inode *i)
{
	struct inode_rec *rec = inode_edit(op->store, i);
	struct quota *q = quota_find(op->store, rec->attr.project);

	if (!inode_has_no_data(rec))
		data_remove(op, &rec->attr);
	if (q != NULL && ino_equal(q->rec.root, i->ino))
		quota_end(op->store, q);
	inode_delete(op->store, i);
	leases_drop_inode(&op->m->leases, i->ino);
	open_file_counted(&op->m->opens, open_file_find(&op->m->opens, i->ino));
}
