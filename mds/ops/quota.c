/* SPDX-License-Identifier: Apache-2.0 */
/* Quotas of directory trees (store/quota.h): limits, usage, space for writers. */
#include "mds/inode_ops.h"
#include "mds/lease/lease_check.h"
#include "mds/op_execute.h"
#include "mds/ops/ops.h"
#include "mds/path.h"

/* The most that one reply reserves beyond the present need. More would save requests, but other
 * writers cannot use reserved space until the file is closed. */
#define AHEAD_MAX   (16u << 20)
#define AHEAD_SHARE 16u

/* Of a page of mds_quota_list: */
#define LIST_IDS      128u
#define LIST_BYTES    (192u << 10)
#define LIST_ROW_ROOM 160u /* bytes of a row without its path */

static void take_limits(struct quota_rec *rec, const struct mds_quota_set_req *in)
{
	if ((in->mask & QUOTA_BYTES_SOFT) != 0)
		rec->bytes_soft = in->bytes_soft;
	if ((in->mask & QUOTA_BYTES_HARD) != 0)
		rec->bytes_hard = in->bytes_hard;
	if ((in->mask & QUOTA_INODES_SOFT) != 0)
		rec->inodes_soft = in->inodes_soft;
	if ((in->mask & QUOTA_INODES_HARD) != 0)
		rec->inodes_hard = in->inodes_hard;
}

int mds_quota_set(struct op *op, const void *vin, void *vout)
{
	const struct mds_quota_set_req *in = vin;
	struct mds_quota_set_rep *out = vout;
	const struct inode_rec *old;
	struct inode_rec *rec;
	struct quota *q;
	struct inode *i;
	bool own;

	TRY(cred_check(&in->cred));
	if (in->cred.uid != 0)
		return -LE_PERM;
	TRY(file_get(op, in->ino, VIEW_NEWEST, &i, &old));
	if (!S_ISDIR(old->attr.mode))
		return -LE_NOTDIR;
	q = quota_find(op->store, old->attr.project);
	own = q != NULL && ino_equal(q->rec.root, in->ino);
	if ((in->mask & QUOTA_REMOVE) != 0 && !own)
		return -LE_NODATA;
	if (!own) {
		TRY(perm_fixed(&old->attr));
		TRY(op_changes(op, in->ino));
		q = quota_create(op->store, in->ino);
		if (q == NULL)
			return -LE_NOMEM;
		rec = inode_edit(op->store, i);
		rec->attr.project = q->project;
		inode_changed(op, rec);
		old = rec;
	}
	if ((in->mask & QUOTA_REMOVE) != 0)
		quota_end(op->store, q);
	take_limits(&q->rec, in);
	quota_changed(op->store, q);
	out->attr = old->attr;
	out->made = !own;
	return 0;
}

static struct quota_state state_of(const struct quota *q)
{
	return (struct quota_state){
		.project = q->project,
		.root = q->rec.root,
		.bytes = q->rec.bytes,
		.inodes = q->rec.inodes,
		.bytes_soft = q->rec.bytes_soft,
		.bytes_hard = q->rec.bytes_hard,
		.inodes_soft = q->rec.inodes_soft,
		.inodes_hard = q->rec.inodes_hard,
		.bytes_over_ns = q->rec.bytes_over_ns,
		.inodes_over_ns = q->rec.inodes_over_ns,
		.reserved = q->reserved,
	};
}

static uint32_t grace_s(const struct op *op)
{
	return (uint32_t)(op->store->quotas.grace_ns / 1000000000);
}

int mds_quota_get(struct op *op, const void *vin, void *vout)
{
	const struct mds_quota_get_req *in = vin;
	struct mds_quota_get_rep *out = vout;
	const struct inode_rec *rec;
	const struct quota *q;

	TRY(file_get(op, in->ino, VIEW_DURABLE, NULL, &rec));
	q = quota_find(op->store, rec->attr.project);
	if (q == NULL)
		return -LE_NODATA;
	out->quota = state_of(q);
	out->grace_s = grace_s(op);
	return 0;
}

/* ---- the list ---- */

struct list_ids {
	uint32_t ids[LIST_IDS];
	uint32_t n;
	int status;
};

static int take_id(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct list_ids *l = arg;
	uint64_t id = key_len == 9 ? get_be((const uint8_t *)key + 1, 8) : 0;

	(void)value, (void)len;
	if (id == 0 || id > UINT32_MAX || l->n == LIST_IDS) {
		l->status = -LE_CORRUPT_STORE;
		return 1;
	}
	l->ids[l->n++] = (uint32_t)id;
	return 0;
}

/* The next durable project numbers after `after`. */
static int next_ids(struct op *op, uint32_t after, struct list_ids *l, bool *ret_more)
{
	struct key begin = key_of('U', after), end = key_after(key_kind('U'));
	struct kv_range range = {begin.b, 0, end.b, end.len, LIST_IDS};

	begin.b[begin.len++] = 0; /* the smallest key after it */
	range.begin_len = begin.len;
	TRY(kv_scan(op->store->kv, NULL, &range, take_id, l, ret_more));
	return l->status;
}

/* Adds one quota, unless it has ended or c may not see it. Returns 0, -LE_NOSPC if the page is
 * full, or an error. */
static int list_one(struct op *op, const struct cred *c, uint32_t project, char *path,
		    struct wire_w *w)
{
	const struct quota *q = quota_find(op->store, project);
	const struct ino root = q != NULL ? q->rec.root : (struct ino){0};
	struct quota_row row;
	uint32_t at;
	int rc;

	if (root.v == 0)
		return 0;
	rc = path_find(op->m, c, root, path, PATH_FIND_SIZE, &at);
	/* Only for root: quotas of directories without a reachable path. */
	if (rc == -LE_ACCES || (c->uid != 0 && (rc == -LE_NOENT || rc == -LE_NAMETOOLONG)))
		return 0;
	if (rc < 0 && rc != -LE_NOENT && rc != -LE_NAMETOOLONG)
		return rc;
	if (!ino_equal(q->rec.root, root))
		return 0; /* it has ended meanwhile */
	row.quota = state_of(q);
	row.path = rc == 0 ? bytes_of(path + at, PATH_FIND_SIZE - at) : bytes_of("", 0);
	if (LIST_BYTES - w->len < LIST_ROW_ROOM + row.path.len)
		return -LE_NOSPC;
	wire_put_quota_row(w, &row);
	return w->status;
}

/* Finding paths yields, so this operation is not run again after a miss. */
int mds_quota_list(struct op *op, const void *vin, void *vout)
{
	const struct mds_quota_list_req *in = vin;
	struct mds_quota_list_rep *out = vout;
	struct cred cred = in->cred;
	struct list_ids l = {.n = 0};
	uint32_t last = in->after, i = 0;
	uint8_t *buf;
	struct wire_w w;
	bool more;
	int rc = 0;

	TRY(cred_check(&cred));
	cred.flags = 0; /* no kernel has checked the directories above */
	buf = op_alloc(op, LIST_BYTES + PATH_FIND_SIZE);
	if (buf == NULL)
		return -LE_NOMEM;
	wire_w_init(&w, buf, LIST_BYTES);
	TRY(next_ids(op, in->after, &l, &more));
	for (; i < l.n; i++) {
		rc = list_one(op, &cred, l.ids[i], (char *)buf + LIST_BYTES, &w);
		if (rc < 0)
			break;
		last = l.ids[i];
	}
	if (rc < 0 && (rc != -LE_NOSPC || w.len == 0))
		return rc;
	out->rows = bytes_of(buf, (uint32_t)w.len);
	out->next = more || i < l.n ? last : 0;
	out->grace_s = grace_s(op);
	out->now_ns = env_wall_ns(op->store->env);
	return 0;
}

/* ---- space for writers ---- */

static int space(struct op *op, const void *vin, void *vout)
{
	const struct mds_space_req *in = vin;
	struct mds_space_rep *out = vout;
	const struct inode_rec *rec;
	struct open_file *f;
	struct quota *q;
	uint64_t ahead, room;

	TRY(file_get(op, in->ino, VIEW_NEWEST, NULL, &rec));
	q = quota_find(op->store, rec->attr.project);
	f = open_file_find(&op->m->opens, in->ino);
	out->bytes = in->bytes;
	if (q == NULL)
		return 0;
	room = quota_bytes_left(op->store, q);
	if (room < in->bytes)
		return -LE_DQUOT;
	ahead = (room - in->bytes) / AHEAD_SHARE;
	out->bytes += ahead < AHEAD_MAX ? ahead : AHEAD_MAX;
	/* No session has it open for writing, so none would release the reservation. */
	if (f == NULL || f->n_writers == 0)
		return 0;
	open_file_reserve(f, q, out->bytes);
	return 0;
}

int mds_space(struct op *op, const void *vin, void *vout)
{
	return op_read(op, space, vin, vout);
}
