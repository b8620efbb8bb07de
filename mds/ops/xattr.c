/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extended attributes are not cached. An inode counts its attributes, so that no read of the store
 * is needed for the many inodes that have none. Changes of one inode are serialised (the file's
 * busy lock, held until they are durable), so the store always has the latest state. There are two
 * exceptions. Access lists are part of the inode's record, because each permission check reads
 * them. security.capability, which writes remove without that lock, has a flag in the record.
 */
#include "mds/ops/xattr.h"

#include "mds/inode_ops.h"
#include "mds/lease/lease_check.h"

#include <linux/capability.h>
#include <sys/xattr.h>

#include "mds/access/acl.h"
#include "mds/op_execute.h"
#include "mds/ops/ops.h"
#include "mds/store/scan.h"
#include "mds/xattr_rows.h"

static bool has_prefix(struct bytes name, const char *prefix)
{
	size_t n = strlen(prefix);

	return name.len >= n && memcmp(name.data, prefix, n) == 0;
}

/* A kernel that sets CRED_CHECKED has checked the capabilities of the user. */
bool xattr_visible(const struct cred *c, struct bytes name)
{
	return !has_prefix(name, "trusted.") || c->uid == 0 || (c->flags & CRED_CHECKED) != 0;
}

static int check_space(const struct cred *c, const struct inode_rec *rec, struct bytes name,
		       bool write)
{
	const struct attr *a = &rec->attr;
	bool trusted = c->uid == 0 || (c->flags & CRED_CHECKED) != 0;

	if (acl_which(name) != ACL_NONE) {
		if (S_ISLNK(a->mode))
			return -LE_NOTSUP;
		return write ? perm_owner(c, a) : 0;
	}
	if (has_prefix(name, "trusted.")) {
		if (trusted)
			return 0;
		return write ? -LE_PERM : -LE_NODATA;
	}
	if (has_prefix(name, "security.")) /* any user may read it, as the kernel itself does */
		return write && !trusted ? -LE_PERM : 0;
	if (!has_prefix(name, "user."))
		return -LE_NOTSUP;
	if (!S_ISREG(a->mode) && !S_ISDIR(a->mode))
		return write ? -LE_PERM : -LE_NODATA;
	if (write && S_ISDIR(a->mode) && (a->mode & S_ISVTX) != 0)
		TRY(perm_owner(c, a));
	return perm_access(c, rec, write ? PERM_W : PERM_R);
}

int xattr_check(const struct cred *c, const struct inode_rec *rec, struct bytes name, bool write)
{
	if (name.len == 0 || name.len > LEAT_XATTR_NAME_MAX ||
	    memchr(name.data, 0, name.len) != NULL)
		return -LE_RANGE;
	TRY(cred_check(c));
	TRY(check_space(c, rec, name, write));
	return ((const char *)name.data)[name.len - 1] == '.' &&
			       memchr(name.data, '.', name.len - 1) == NULL
		       ? -LE_INVAL
		       : 0;
}

/* Checks space and quota for the new record. *ret_more: the growth that counts toward the quota. */
static int check_quota(struct op *op, const struct inode_rec *old, const struct inode_rec *then,
		       uint64_t *ret_more)
{
	uint64_t before = quota_attrs(old), after = quota_attrs(then);

	*ret_more = after > before ? after - before : 0;
	if (*ret_more > 0)
		TRY(store_space(op->store));
	return quota_check(op->store, old->attr.project, *ret_more, 0);
}

/* ---- access lists ---- */

struct acl_change {
	const struct cred *cred;
	struct ino ino;
	enum acl_which which;
	uint32_t flags;
	bool none; /* the list is removed */
	struct acl_base base;
	uint32_t len;
	struct bytes acl; /* interned */
};

static struct bytes list_then(const struct acl_change *ch)
{
	bool goes = ch->none || (ch->which == ACL_ACCESS && acl_is_mode(&ch->base, ch->len));

	return goes ? bytes_of(NULL, 0) : ch->acl;
}

static void set_access(struct op *op, struct inode_rec *rec, const struct acl_change *ch)
{
	const struct cred *c = ch->cred;
	bool keeps_sgid =
		c->uid == 0 || (c->flags & CRED_CHECKED) != 0 || cred_in_group(c, rec->attr.gid);

	if (!ch->none) {
		rec->attr.mode = acl_mode(&ch->base, rec->attr.mode);
		if (!keeps_sgid || (ch->flags & XATTR_KILL_SGID) != 0)
			rec->attr.mode &= ~(uint32_t)S_ISGID;
	}
	acl_replace(op->store, &rec->acl, list_then(ch));
}

static int acl_txn(struct op *op, const void *vin, void *vout)
{
	const struct acl_change *ch = vin;
	const char *name =
		ch->which == ACL_ACCESS ? "system.posix_acl_access" : "system.posix_acl_default";
	const struct inode_rec *old;
	struct inode_rec *rec, then;
	struct inode *i;
	uint64_t more;
	bool there;

	(void)vout;
	TRY(file_get(op, ch->ino, VIEW_NEWEST, &i, &old));
	TRY(xattr_check(ch->cred, old, bytes_str(name), true));
	TRY(perm_fixed(&old->attr));
	/* The list changes the mode, by which a data set identifies the file. */
	if ((old->attr.flags & ATTR_SEALED) != 0)
		return -LE_PERM;
	if (ch->which == ACL_DEFAULT && !S_ISDIR(old->attr.mode))
		return ch->none ? 0 : -LE_ACCES;
	there = (ch->which == ACL_ACCESS ? old->acl : old->acl_default).len > 0;
	if ((ch->flags & XATTR_CREATE) != 0 && there)
		return -LE_EXIST;
	if ((ch->flags & XATTR_REPLACE) != 0 && !there)
		return -LE_NODATA;
	if (ch->none && !there)
		return 0;
	then = *old;
	*(ch->which == ACL_ACCESS ? &then.acl : &then.acl_default) = list_then(ch);
	TRY(check_quota(op, old, &then, &more));
	TRY(op_changes(op, ch->ino));

	rec = inode_edit(op->store, i);
	if (ch->which == ACL_ACCESS)
		set_access(op, rec, ch);
	else
		acl_replace(op->store, &rec->acl_default, list_then(ch));
	quota_ahead(op->store, rec->attr.project, more, 0);
	inode_set_plain(rec);
	inode_changed(op, rec);
	return 0;
}

static int acl_set(struct op *op, struct acl_change *ch, struct bytes value, void *out)
{
	uint8_t buf[ACL_LEN_MAX];
	int rc;

	TRY(acl_from_xattr(value, buf, &ch->len, &ch->base));
	ch->none = ch->len == 0;
	ch->acl = acl_intern(op->store, bytes_of(buf, ch->len));
	if (ch->len > 0 && ch->acl.data == NULL)
		return -LE_NOMEM;
	op->final = true;
	rc = op_mutate(op, acl_txn, ch, out);
	acl_unref(op->store, ch->acl);
	return rc;
}

static int acl_get(struct op *op, const struct inode_rec *rec, enum acl_which which,
		   struct bytes *ret_value)
{
	struct bytes acl = which == ACL_ACCESS ? rec->acl : rec->acl_default;
	uint8_t *buf;

	if (acl.len == 0)
		return -LE_NODATA;
	buf = op_alloc(op, ACL_XATTR_MAX);
	if (buf == NULL)
		return -LE_NOMEM;
	*ret_value = bytes_of(buf, acl_to_xattr(acl, which, rec->attr.mode, buf));
	return 0;
}

/* ---- all others ---- */

static int check_room(struct op *op, const struct inode_rec *old, const struct xattr_change *ch,
		      uint64_t *ret_more)
{
	struct inode_rec then = *old;

	xattr_count(&then, ch);
	if (then.xattr_names > LEAT_XATTR_NAMES_MAX || then.xattr_bytes > LEAT_XATTR_TOTAL_MAX)
		return -LE_NOSPC;
	return check_quota(op, old, &then, ret_more);
}

static int change_txn(struct op *op, const void *vin, void *vout)
{
	struct xattr_change *ch = (struct xattr_change *)vin;
	const struct inode_rec *old;
	struct inode_rec *rec;
	struct inode *i;
	uint64_t more = 0;

	(void)vout;
	TRY(file_get(op, ch->ino, VIEW_NEWEST, &i, &old));
	TRY(xattr_check(ch->cred, old, ch->name, true));
	TRY(perm_fixed(&old->attr));
	if ((old->attr.flags & ATTR_SEALED) != 0)
		return -LE_PERM;
	if (xattr_is_caps(ch->name)) {
		ch->exists = (old->attr.flags & ATTR_FILE_CAPS) != 0;
		ch->old_len = 0;
	}
	if (!ch->exists && (ch->remove || (ch->flags & XATTR_REPLACE) != 0))
		return -LE_NODATA;
	if (ch->exists && !ch->remove && (ch->flags & XATTR_CREATE) != 0)
		return -LE_EXIST;
	if (!ch->remove)
		TRY(check_room(op, old, ch, &more));
	TRY(op_changes(op, ch->ino));

	rec = inode_edit(op->store, i);
	if (ch->remove)
		xattr_drop(op, rec, ch);
	else
		xattr_put(op, rec, ch);
	quota_ahead(op->store, rec->attr.project, more, 0);
	inode_set_plain(rec);
	inode_changed(op, rec);
	return 0;
}

static int exists(struct op *op, struct xattr_change *ch)
{
	struct kv_value v;
	int rc = store_get_record(op->store, key_xattr(ch->ino, ch->name), &v);

	if (rc < 0 && rc != -LE_NOENT)
		return rc;
	ch->exists = rc == 0;
	ch->old_len = rc == 0 ? (uint32_t)v.len : 0;
	if (rc == 0)
		kv_value_fini(&v);
	return 0;
}

static int change(struct op *op, struct xattr_change *ch, void *out)
{
	struct open_file *f;
	int rc;

	if (ch->name.len == 0 || ch->name.len > LEAT_XATTR_NAME_MAX)
		return -LE_RANGE;
	TRY(open_file_get(&op->m->opens, ch->ino, &f));
	fmutex_lock(&f->busy);
	op->final = true;
	rc = exists(op, ch);
	if (rc == 0)
		rc = op_mutate(op, change_txn, ch, out);
	fmutex_unlock(&f->busy);
	open_file_put(&op->m->opens, f);
	return rc;
}

/* ---- the operations ---- */

int mds_setxattr(struct op *op, const void *vin, void *vout)
{
	const struct mds_setxattr_req *in = vin;
	struct xattr_change ch = {.cred = &in->cred,
				  .ino = in->ino,
				  .name = in->name,
				  .value = in->value,
				  .flags = in->flags};
	struct acl_change acl = {.cred = &in->cred,
				 .ino = in->ino,
				 .which = acl_which(in->name),
				 .flags = in->flags};

	if ((in->flags & ~(uint32_t)(XATTR_CREATE | XATTR_REPLACE | XATTR_KILL_SGID)) != 0)
		return -LE_INVAL;
	if (in->value.len > LEAT_XATTR_VALUE_MAX)
		return -LE_2BIG;
	/* Kernels accept no longer ones, and they count toward no quota. */
	if (xattr_is_caps(in->name) && in->value.len > XATTR_CAPS_SZ)
		return -LE_INVAL;
	return acl.which != ACL_NONE ? acl_set(op, &acl, in->value, vout) : change(op, &ch, vout);
}

int mds_removexattr(struct op *op, const void *vin, void *vout)
{
	const struct mds_removexattr_req *in = vin;
	struct xattr_change ch = {&in->cred, in->ino, in->name, {NULL, 0}, 0, true, false, 0};
	struct acl_change acl = {.cred = &in->cred, .ino = in->ino, .which = acl_which(in->name)};

	return acl.which != ACL_NONE ? acl_set(op, &acl, bytes_of(NULL, 0), vout)
				     : change(op, &ch, vout);
}

int mds_getxattr(struct op *op, const void *vin, void *vout)
{
	const struct mds_getxattr_req *in = vin;
	struct mds_getxattr_rep *out = vout;
	const struct inode_rec *rec;
	struct kv_value v;
	void *copy;
	int rc;

	TRY(file_get(op, in->ino, VIEW_DURABLE, NULL, &rec));
	TRY(xattr_check(&in->cred, rec, in->name, false));
	if (acl_which(in->name) != ACL_NONE)
		return acl_get(op, rec, acl_which(in->name), &out->value);
	if (rec->n_xattrs == 0)
		return -LE_NODATA;
	rc = store_get_record(op->store, key_xattr(in->ino, in->name), &v);
	if (rc < 0)
		return rc == -LE_NOENT ? -LE_NODATA : rc;
	copy = op_alloc(op, v.len + 1);
	if (copy != NULL)
		memcpy(copy, v.data, v.len);
	out->value = bytes_of(copy, (uint32_t)v.len);
	kv_value_fini(&v);
	if (copy == NULL)
		return -LE_NOMEM;
	return store_settle(op->store);
}
