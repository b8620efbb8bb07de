/*
 * Extended attributes are not cached: an inode counts those it has, so that the many that have none
 * need no look into the store. Changes of one inode follow one another (the file's busy lock, held
 * until they are durable), so the store always has their latest state.
 */
#include "mds/ops/xattr.h"

#include <sys/xattr.h>

static bool has_prefix(struct bytes name, const char *prefix)
{
	size_t n = strlen(prefix);

	return name.len > n && memcmp(name.data, prefix, n) == 0;
}

bool xattr_visible(const struct cred *c, struct bytes name)
{
	return !has_prefix(name, "trusted.") || c->uid == 0;
}

int xattr_check(const struct cred *c, const struct attr *a, struct bytes name, bool write)
{
	if (name.len == 0 || name.len > LEAT_XATTR_NAME_MAX ||
	    memchr(name.data, 0, name.len) != NULL)
		return -LE_RANGE;
	TRY(cred_check(c));
	if (has_prefix(name, "trusted.")) {
		if (c->uid == 0)
			return 0;
		return write ? -LE_PERM : -LE_NODATA;
	}
	if (has_prefix(name, "security.")) /* the kernel asks about these on its own */
		return write ? perm_owner(c, a) : 0;
	if (!has_prefix(name, "user."))
		return -LE_NOTSUP;
	if (!S_ISREG(a->mode) && !S_ISDIR(a->mode))
		return write ? -LE_PERM : -LE_NODATA;
	if (write && S_ISDIR(a->mode) && (a->mode & S_ISVTX) != 0)
		TRY(perm_owner(c, a));
	return perm_access(c, a, write ? PERM_W : PERM_R);
}

struct change {
	const struct cred *cred;
	struct ino ino;
	struct bytes name, value;
	uint32_t flags;
	bool remove;
	bool exists; /* as the store says */
};

static int change_txn(struct op *op, const void *vin, void *vout)
{
	const struct change *ch = vin;
	const struct inode_rec *old;
	struct inode_rec *rec;
	struct inode *i;
	struct key k;

	(void)vout;
	TRY(file_get(op, ch->ino, VIEW_NEWEST, &i, &old));
	TRY(xattr_check(ch->cred, &old->attr, ch->name, true));
	if ((old->attr.flags & ATTR_SEALED) != 0 && has_prefix(ch->name, "user."))
		return -LE_PERM;
	if (!ch->exists && (ch->remove || (ch->flags & XATTR_REPLACE) != 0))
		return -LE_NODATA;
	if (ch->exists && !ch->remove && (ch->flags & XATTR_CREATE) != 0)
		return -LE_EXIST;

	rec = inode_edit(op->store, i);
	inode_changed(op, rec);
	k = key_xattr(ch->ino, ch->name);
	if (ch->remove) {
		txn_delete(op->store, k);
		rec->n_xattrs--;
	} else {
		txn_put(op->store, k, ch->value.data, ch->value.len);
		rec->n_xattrs += !ch->exists;
	}
	return 0;
}

static int exists(struct op *op, struct change *ch)
{
	struct kv_value v;
	int rc = store_get_record(op->store, key_xattr(ch->ino, ch->name), &v);

	if (rc < 0 && rc != -LE_NOENT)
		return rc;
	ch->exists = rc == 0;
	if (rc == 0)
		kv_value_fini(&v);
	return 0;
}

static int change(struct op *op, struct change *ch, void *out)
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

int mds_setxattr(struct op *op, const void *vin, void *vout)
{
	const struct mds_setxattr_req *in = vin;
	struct change ch = {&in->cred, in->ino, in->name, in->value, in->flags, false, false};

	if ((in->flags & ~(uint32_t)(XATTR_CREATE | XATTR_REPLACE)) != 0)
		return -LE_INVAL;
	if (in->value.len > LEAT_XATTR_VALUE_MAX)
		return -LE_2BIG;
	return change(op, &ch, vout);
}

int mds_removexattr(struct op *op, const void *vin, void *vout)
{
	const struct mds_removexattr_req *in = vin;
	struct change ch = {&in->cred, in->ino, in->name, {NULL, 0}, 0, true, false};

	return change(op, &ch, vout);
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
	TRY(xattr_check(&in->cred, &rec->attr, in->name, false));
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
