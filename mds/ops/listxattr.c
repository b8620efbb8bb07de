/* SPDX-License-Identifier: Apache-2.0 */
/* listxattr(2). */
#include "mds/inode_ops.h"
#include "mds/ops/ops.h"
#include "mds/ops/xattr.h"
#include "mds/store/scan.h"

#define NAMES_MAX 65536u

struct names {
	const struct cred *cred;
	char *buf;
	uint32_t len, cap;
	int status;
};

static int add_name(struct names *n, struct bytes name)
{
	if (n->len + name.len + 1 > n->cap) {
		n->status = -LE_2BIG;
		return 1;
	}
	memcpy(n->buf + n->len, name.data, name.len);
	n->len += name.len;
	n->buf[n->len++] = '\0';
	return 0;
}

static int each_name(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct names *n = arg;
	struct bytes name = bytes_of((const char *)key + 9, (uint32_t)key_len - 9);

	(void)value, (void)len;
	if (!xattr_visible(n->cred, name))
		return 0;
	return add_name(n, name);
}

int mds_listxattr(struct op *op, const void *vin, void *vout)
{
	const struct mds_listxattr_req *in = vin;
	struct mds_listxattr_rep *out = vout;
	struct names n = {.cred = &in->cred};
	const struct inode_rec *rec;

	TRY(cred_check(&in->cred));
	TRY(file_get(op, in->ino, VIEW_DURABLE, NULL, &rec));
	if ((rec->attr.flags & ATTR_PLAIN) != 0)
		return 0;
	n.cap = rec->n_xattrs > NAMES_MAX / 256 ? NAMES_MAX : (rec->n_xattrs + 16) * 256;
	n.buf = op_alloc(op, n.cap);
	if (n.buf == NULL)
		return -LE_NOMEM;
	if (rec->acl.len > 0)
		add_name(&n, bytes_str("system.posix_acl_access"));
	if (rec->acl_default.len > 0)
		add_name(&n, bytes_str("system.posix_acl_default"));
	if (rec->n_xattrs > 0)
		TRY(store_scan_prefix(op->store, key_of('X', in->ino.v), each_name, &n));
	TRY(n.status);
	out->names = bytes_of(n.buf, n.len);
	return store_settle(op->store);
}
