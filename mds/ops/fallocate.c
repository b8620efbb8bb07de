/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fallocate(2). Punch and zero range are intents (file/truncate.h). Allocation sets no blocks
 * aside, since data is never written in place: it extends the size, checks the free space of the
 * moment, and counts the range from then on (file/preallocated.h). For that the chains are queried
 * how much of the range is already written.
 */
#include <linux/falloc.h>

#include "mds/file/chain_stat.h"
#include "mds/file/preallocated.h"
#include "mds/file/truncate.h"
#include "mds/inode_ops.h"
#include "mds/lease/lease_check.h"
#include "mds/op_execute.h"
#include "mds/ops/ops.h"
#include "mds/xattr_rows.h"

struct falloc {
	const struct mds_fallocate_req *in;
	struct open_file *file;
	struct intent_rec intent;
	uint64_t intent_no;
	struct layout layout;
	struct ranges preallocated; /* ranges after the call */
	struct data_ends ends;  /* what the chains store in them */
};

static bool makes_holes(const struct mds_fallocate_req *in)
{
	return (in->mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) != 0;
}

static bool prepares(const struct mds_fallocate_req *in)
{
	return (in->mode & FALLOC_FL_PUNCH_HOLE) == 0;
}

static int check(struct op *op, const struct mds_fallocate_req *in, struct inode **ret_i,
		 const struct inode_rec **ret_rec)
{
	const struct inode_rec *rec;

	TRY(cred_check(&in->cred));
	TRY(file_get(op, in->ino, VIEW_NEWEST, ret_i, &rec));
	if (!S_ISREG(rec->attr.mode))
		return S_ISDIR(rec->attr.mode) ? -LE_ISDIR : -LE_NODEV;
	TRY(perm_write(&in->cred, rec, op_writes(op, in->ino)));
	if ((rec->attr.flags & ATTR_SEALED) != 0)
		return -LE_PERM;
	if ((in->mode & ~(uint32_t)FALLOC_FL_KEEP_SIZE) != 0)
		TRY(perm_fixed(&rec->attr));
	*ret_rec = rec;
	return 0;
}

static int look_txn(struct op *op, const void *vin, void *vout)
{
	struct falloc *a = vout;
	const struct inode_rec *rec;
	struct inode *i;

	(void)vin;
	TRY(check(op, a->in, &i, &rec));
	a->layout = rec->attr.layout;
	preallocated_get(rec, &a->preallocated);
	preallocated_add(&a->preallocated, &a->layout, a->in->off, a->in->len);
	return inode_has_no_data(rec);
}

/* Queries the chains how much of the ranges is written, before they are counted. */
static int ask_written(struct op *op, struct falloc *a)
{
	int rc = op_read(op, look_txn, NULL, a);

	if (rc != 0)
		return rc < 0 ? rc : 0;
	return data_stat(op->m, a->in->ino, &a->layout, &a->preallocated,
			 loop_deadline_ms(op->m->params.oss_timeout_ms), &a->ends);
}

/* Computes the ranges after the call, and checks space and quota for them. */
static int check_room(struct op *op, const struct falloc *a, const struct inode_rec *old,
		      struct ranges *ret_after)
{
	uint64_t bytes, more;

	preallocated_get(old, ret_after);
	preallocated_add(ret_after, &old->attr.layout, a->in->off, a->in->len);
	bytes = ranges_bytes(ret_after);
	more = old->unwritten + a->ends.covered;
	more = bytes > more ? bytes - more : 0;
	if (more > preallocated_space(op))
		return -LE_NOSPC;
	return quota_check(op->store, old->attr.project, more, 0);
}

static int falloc_txn(struct op *op, const void *vin, void *vout)
{
	struct falloc *a = (struct falloc *)vin;
	const struct mds_fallocate_req *in = a->in;
	struct attr *ret_attr = vout;
	uint64_t end = in->off + in->len;
	uint64_t extend = (in->mode & FALLOC_FL_KEEP_SIZE) != 0 ? 0 : end;
	const struct inode_rec *old;
	struct inode_rec *rec;
	struct ranges after;
	struct inode *i;

	TRY(check(op, in, &i, &old));
	TRY(op_changes(op, in->ino));
	if (prepares(in))
		TRY(check_room(op, a, old, &after));
	if (makes_holes(in) && !inode_has_no_data(old)) {
		op->final = false;
		a->intent = (struct intent_rec){.kind = INTENT_PUNCH,
						.off = in->off,
						.len = in->len,
						.extend = extend,
						.prepares = prepares(in),
						.mask = SET_KILL_CAPS |
							(in->cred.uid != 0 ? SET_KILL_SUID : 0)};
		return data_begin(op, &a->intent, old, true, &a->intent_no);
	}
	op->final = true;
	rec = inode_edit(op->store, i);
	if (prepares(in))
		preallocated_take(op, rec, &after, &a->ends);
	if (extend > rec->attr.size)
		rec->attr.size = extend;
	inode_data_changed(op, rec);
	inode_drop_caps(op, rec);
	if (in->cred.uid != 0)
		rec->attr.mode = perm_kill_suid(rec->attr.mode);
	*ret_attr = rec->attr;
	return 0;
}

int mds_fallocate(struct op *op, const void *vin, void *vout)
{
	struct falloc a = {.in = vin};
	struct mds_fallocate_rep *out = vout;
	uint32_t mode = a.in->mode;
	int rc;

	if (mode != 0 && mode != FALLOC_FL_KEEP_SIZE &&
	    mode != (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE) && mode != FALLOC_FL_ZERO_RANGE &&
	    mode != (FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE))
		return -LE_NOTSUP;
	if (a.in->len == 0 || a.in->off > LEAT_FILE_SIZE_MAX)
		return -LE_INVAL;
	if (a.in->len > LEAT_FILE_SIZE_MAX - a.in->off)
		return -LE_FBIG;
	TRY(open_file_get(&op->m->opens, a.in->ino, &a.file));
	fmutex_lock(&a.file->busy);
	rc = prepares(a.in) ? ask_written(op, &a) : 0;
	if (rc == 0)
		rc = op_mutate(op, falloc_txn, &a, &out->attr);
	if (rc == 0 && a.intent_no != 0)
		rc = data_carry_out(op, a.file, a.intent_no, &a.intent, &out->attr);
	fmutex_unlock(&a.file->busy);
	open_file_put(&op->m->opens, a.file);
	return rc;
}
