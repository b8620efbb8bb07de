/* SPDX-License-Identifier: Apache-2.0 */
/*
 * readdir: entries in the order of their cookies, directly from the store. A scan reads durable
 * rows. It may read a batch that is not published yet, so that batch is waited for; otherwise a
 * later read of the cache could return older state. Cookies are stable while entries are added and
 * removed (docs/decisions/0001-dentry-cookies.md).
 */
#include "common/base/assert.h"
#include "mds/inode_ops.h"
#include "mds/lease/lease_check.h"
#include "mds/ops/ops.h"
#include "mds/ops/reach.h"

#define REPLY_MAX      (200u << 10)
#define ENTRY_OVERHEAD 200u /* lower bound of an encoded entry without its name */

struct entry {
	uint64_t cookie;
	struct ino ino;
	uint8_t type, name_len;
};

struct listing {
	uint8_t *buf; /* struct entry and name, packed */
	uint32_t len, cap;
	uint32_t space; /* bytes left in the reply */
	bool full;
	int status;
};

static int each_entry(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct listing *l = arg;
	struct dentry_rec rec;
	struct entry e;
	struct wire_r r;

	wire_r_init(&r, value, len);
	wire_get_dentry_rec(&r, &rec);
	if (key_len != 17 || r.status < 0 || rec.name.len > LEAT_NAME_MAX) {
		l->status = -LE_CORRUPT_STORE;
		return 1;
	}
	if (rec.ino.v == 0)
		return 0;
	if (l->space < ENTRY_OVERHEAD + rec.name.len ||
	    l->len + sizeof(e) + rec.name.len > l->cap) {
		l->full = true;
		return 1;
	}
	l->space -= ENTRY_OVERHEAD + rec.name.len;
	e = (struct entry){get_be((const uint8_t *)key + 9, 8), rec.ino, rec.type,
			   (uint8_t)rec.name.len};
	memcpy(l->buf + l->len, &e, sizeof(e));
	memcpy(l->buf + l->len + sizeof(e), rec.name.data, rec.name.len);
	l->len += (uint32_t)(sizeof(e) + rec.name.len);
	return 0;
}

static int entry_attr(struct op *op, struct ino dir, const struct entry *e, bool plus,
		      struct attr *ret_attr)
{
	const struct inode_rec *rec;
	int rc;

	*ret_attr = (struct attr){.ino = e->ino, .mode = (uint32_t)e->type << 12};
	if (!plus)
		return 0;
	while ((rc = inode_get(op->store, e->ino, VIEW_DURABLE, NULL, &rec)) == -LE_MISS)
		TRY(store_load(op->store));
	if (rc == 0) {
		*ret_attr = rec->attr;
		reach_note(op, rec, dir, e->cookie);
		if ((rec->attr.flags & ATTR_UNSETTLED) == 0)
			op_lease(op, ret_attr);
	}
	return rc == -LE_NOENT ? 0 : rc; /* removed since the scan: return the type alone */
}

static int encode(struct op *op, struct ino dir, const struct listing *l, bool plus,
		  struct mds_readdir_rep *out)
{
	size_t size = l->len + l->len / sizeof(struct entry) * (ENTRY_OVERHEAD + 64) + 64;
	struct wire_w w;
	void *buf;

	if (size > REPLY_MAX + REPLY_MAX / 4)
		size = REPLY_MAX + REPLY_MAX / 4;
	buf = op_alloc(op, size);
	if (buf == NULL)
		return -LE_NOMEM;
	wire_w_init(&w, buf, size);
	ASSERT(l->len <= l->cap);
	for (uint32_t at = 0; at < l->len;) {
		struct dirent_wire d;
		struct entry e;
		size_t before = w.len;

		memcpy(&e, l->buf + at, sizeof(e));
		d.cookie = e.cookie;
		d.name = bytes_of(l->buf + at + sizeof(e), e.name_len);
		TRY(entry_attr(op, dir, &e, plus, &d.attr));
		wire_put_dirent_wire(&w, &d);
		if (w.status < 0) { /* it does not fit after all */
			w.len = before;
			out->eof = 0;
			break;
		}
		out->last = e.cookie;
		at += (uint32_t)sizeof(e) + e.name_len;
	}
	out->entries = bytes_of(buf, (uint32_t)w.len);
	return 0;
}

int mds_readdir(struct op *op, const void *vin, void *vout)
{
	const struct mds_readdir_req *in = vin;
	struct mds_readdir_rep *out = vout;
	struct key begin = key_dentry(in->ino, in->cookie + 1),
		   end = key_after(key_of('D', in->ino.v));
	struct listing l = {.space = in->max_bytes < REPLY_MAX ? in->max_bytes : REPLY_MAX};
	const struct inode_rec *rec;
	struct kv_range range;
	bool more, plus;

	TRY(cred_check(&in->cred));
	TRY(parent_get(op, in->ino, VIEW_DURABLE, NULL, &rec));
	TRY(perm_access(&in->cred, rec, PERM_R));
	/* Names need permission to read the directory, attributes also permission to search it. */
	plus = (in->flags & READDIR_PLUS) != 0 && perm_access(&in->cred, rec, PERM_X) == 0;
	if (in->cookie >= UINT64_MAX / 2) {
		out->eof = 1;
		return 0;
	}
	if (l.space < 512)
		l.space = 512;
	out->change = rec->attr.change;
	l.cap = l.space;
	l.buf = op_alloc(op, l.cap);
	if (l.buf == NULL)
		return -LE_NOMEM;
	range = (struct kv_range){begin.b, begin.len, end.b, end.len, l.space / ENTRY_OVERHEAD + 1};
	TRY(kv_scan(op->store->kv, NULL, &range, each_entry, &l, &more));
	TRY(l.status);
	out->eof = !l.full && !more;
	TRY(store_settle(op->store));
	return encode(op, in->ino, &l, plus, out);
}
