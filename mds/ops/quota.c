/* Quotas of directory trees (store/quota.h): limits, what is used, space for writers. */
#include "mds/op.h"
#include "mds/recall.h"

/* What one answer may reserve beyond what is needed now: fewer questions, but what is reserved and
 * not written others cannot have until the file is closed. */
#define AHEAD_MAX   (16u << 20)
#define AHEAD_SHARE 16u

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
	*out = (struct mds_quota_get_rep){
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
		.grace_s = (uint32_t)(op->store->quotas.grace_ns / 1000000000),
	};
	return 0;
}

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
	/* Nobody has it open for writing (any more): nobody would give it back. */
	if (f == NULL || f->n_writers == 0)
		return 0;
	open_file_reserve(f, q, out->bytes);
	return 0;
}

int mds_space(struct op *op, const void *vin, void *vout)
{
	return op_read(op, space, vin, vout);
}
