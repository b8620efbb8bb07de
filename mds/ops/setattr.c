/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets attributes, including the size. A new size changes only the record if nothing is cut off. It
 * takes a new data generation if the file becomes empty and no session has it open. Otherwise it
 * needs an intent, a trim on all targets, and then the record (file/truncate.h).
 */
#include "mds/ops/setattr.h"

#include "mds/attr_apply.h"
#include "mds/file/chain_stat.h"
#include "mds/file/preallocated.h"
#include "mds/file/truncate.h"
#include "mds/inode_ops.h"
#include "mds/lease/lease_check.h"
#include "mds/lease/owner_notify.h"
#include "mds/op_execute.h"
#include "mds/ops/ops.h"

static int check(struct op *op, const struct mds_setattr_req *in, const struct inode_rec *rec)
{
	const struct open_file *f = open_file_find(&op->m->opens, in->ino);

	TRY(cred_check(&in->cred));
	TRY(perm_setattr(&in->cred, rec, in->mask, &in->attr, op_writes(op, in->ino)));
	if ((in->mask & SET_PROJECT) != 0 && in->cred.uid != 0)
		return -LE_PERM;
	if ((in->mask & SET_PROJECT) != 0 && in->attr.project != 0 &&
	    quota_find(op->store, in->attr.project) == NULL)
		return -LE_INVAL;
	/* Clients cache the attributes of a sealed file for ever. Sealing again is allowed. So is a
	 * new project: no client needs it, because a sealed file is not written. */
	if ((rec->attr.flags & ATTR_SEALED) != 0 && in->mask != SET_PROJECT)
		return in->mask == SET_SEALED && (in->attr.flags & ATTR_SEALED) != 0 ? 0 : -LE_PERM;
	if ((in->mask & SET_SEALED) == 0)
		return 0;
	/* Alone: a data set identifies the file by the attributes that it had. */
	if (!S_ISREG(rec->attr.mode) || in->mask != SET_SEALED ||
	    (in->attr.flags & ATTR_SEALED) == 0)
		return -LE_INVAL;
	return (rec->attr.flags & ATTR_UNSETTLED) != 0 || (f != NULL && f->n_writers > 0) ? -LE_BUSY
											  : 0;
}

/* Like the kernel: drops S_ISGID for a caller that may not set it. */
static struct attr without_sgid(const struct mds_setattr_req *in, const struct inode_rec *rec)
{
	const struct cred *c = &in->cred;
	struct attr a = in->attr;
	uint32_t gid = (in->mask & SET_GID) != 0 ? a.gid : rec->attr.gid;

	if (c->uid != 0 && (c->flags & CRED_CHECKED) == 0 && !S_ISDIR(rec->attr.mode) &&
	    !cred_in_group(c, gid))
		a.mode &= ~(uint32_t)S_ISGID;
	return a;
}

/* True if the chains must be queried for the time of the last write. If the session is the only
 * writer, the client sends it with the new time (0: unknown). */
static bool size_is_queried(struct op *op, const struct mds_setattr_req *in,
			     const struct inode_rec *rec)
{
	const struct open_file *f = open_file_find(&op->m->opens, in->ino);
	const struct open *o =
		op->session != NULL ? open_find(&op->m->opens, op->session, in->ino) : NULL;

	if ((in->mask & SET_MTIME) == 0 || (rec->attr.flags & ATTR_UNSETTLED) == 0)
		return false;
	return in->attr.chains_ns == 0 || o == NULL || o->n_write != f->n_writers ||
	       o->old_write > 0 || size_must_be_queried(f);
}

struct setting {
	struct mds_setattr_req req;
	bool ask, asked; /* a query to the chains: is needed, has been made */
	bool gives;      /* to another owner or group */
	struct layout layout;
};

static bool is_given(const struct mds_setattr_req *in, const struct attr *old)
{
	return ((in->mask & SET_UID) != 0 && in->attr.uid != old->uid) ||
	       ((in->mask & SET_GID) != 0 && in->attr.gid != old->gid);
}

static int setattr_txn(struct op *op, const void *vin, void *vout)
{
	struct setting *s = (struct setting *)vin;
	const struct mds_setattr_req *in = &s->req;
	struct mds_setattr_rep *out = vout;
	const struct inode_rec *old;
	struct inode_rec *rec;
	struct attr new;
	struct inode *i;

	TRY(file_get(op, in->ino, VIEW_NEWEST, &i, &old));
	TRY(check(op, in, old));
	s->gives = is_given(in, &old->attr);
	if (s->gives && S_ISDIR(old->attr.mode))
		TRY(op_gives(op, in->ino));
	TRY(op_changes(op, in->ino));
	/* Only now: other clients have flushed what they had not written. */
	s->ask = !s->asked && size_is_queried(op, in, old);
	s->layout = old->attr.layout;
	op->final = !s->ask;
	if (s->ask)
		return 0;

	new = without_sgid(in, old);
	rec = inode_edit(op->store, i);
	attr_apply(op, rec, in->mask, &new);
	/* A sealed file keeps its change counter, so that data sets made of it stay valid. */
	if ((rec->attr.flags & ATTR_SEALED) == 0)
		inode_changed(op, rec);
	out->attr = rec->attr;
	return 0;
}

struct truncate {
	const struct mds_setattr_req *req;
	struct open_file *file;
	struct intent_rec intent;
	uint64_t intent_no; /* 0: no intent was needed */
	struct ino reported_ino;
	bool final;
};

/* Removes preallocated ranges after the end. */
static void truncate_preallocated(struct op *op, struct inode_rec *rec)
{
	struct ranges left;

	if (rec->preallocated.len == 0)
		return;
	preallocated_get(rec, &left);
	preallocated_remove(&left, rec->attr.size, UINT64_MAX);
	preallocated_change(op, rec, &left);
}

/* Truncates in this critical section if possible, else begins the intent. */
static int truncate_txn(struct op *op, const void *vin, void *vout)
{
	struct truncate *t = (struct truncate *)vin;
	struct attr *ret_attr = vout;
	const struct mds_setattr_req *in = t->req;
	uint64_t size = in->attr.size;
	uint32_t mask = in->mask & ~(uint32_t)SET_SIZE;
	const struct inode_rec *old;
	struct inode_rec *rec;
	struct attr new;
	struct inode *i;

	TRY(file_get(op, in->ino, VIEW_NEWEST, &i, &old));
	if (!S_ISREG(old->attr.mode))
		return S_ISDIR(old->attr.mode) ? -LE_ISDIR : -LE_INVAL;
	TRY(check(op, in, old));
	if ((old->attr.flags & ATTR_SEALED) != 0)
		return -LE_PERM;
	if (size > LEAT_FILE_SIZE_MAX)
		return -LE_FBIG;
	mask |= SET_KILL_CAPS;
	TRY(op_changes(op, in->ino));
	TRY(op_asks_own(op, in->ino, t->reported_ino));
	if (in->cred.uid != 0 && (mask & SET_MODE) == 0)
		mask |= SET_KILL_SUID;
	new = without_sgid(in, old);
	bool settled = (old->attr.flags & ATTR_UNSETTLED) == 0 && old->append_end <= old->attr.size;
	bool lost = cluster_layout_lost(&op->m->cluster, &old->attr.layout);
	bool drop = size == 0 && (lost || !inode_has_no_data(old)) && inode_not_open(op, in->ino);
	if (lost && !drop)
		return -LE_GIVEN_UP;
	if (!drop && !inode_has_no_data(old) && !(settled && size >= old->attr.size)) {
		op->final = false;
		t->intent = (struct intent_rec){
			.kind = INTENT_TRIM, .off = size, .mask = mask, .attr = new};
		TRY(data_begin(op, &t->intent, old, t->final, &t->intent_no));
		/* From here on no append is reserved at the old end. */
		t->file->truncation = TRUNCATION_BEGUN;
		return 0;
	}

	op->final = t->final;
	if (!t->final)
		op_truncates(op, in->ino);
	rec = inode_edit(op->store, i);
	if (drop)
		data_drop(op, rec);
	else if (size == rec->attr.size)
		truncate_preallocated(op, rec);
	else if (size < rec->attr.size)
		inode_was_truncated(rec);
	rec->attr.size = size;
	inode_data_changed(op, rec);
	attr_apply(op, rec, mask, &new);
	*ret_attr = rec->attr;
	return 0;
}

int truncate_file(struct op *op, const struct mds_setattr_req *req, struct ino reported_ino,
		  bool final, struct attr *ret_attr)
{
	struct truncate t = {.req = req, .reported_ino = reported_ino, .final = final};
	int rc;

	TRY(open_file_get(&op->m->opens, req->ino, &t.file));
	fmutex_lock(&t.file->busy);
	rc = op_mutate(op, truncate_txn, &t, ret_attr);
	if (rc == 0 && t.intent_no != 0)
		rc = data_carry_out(op, t.file, t.intent_no, &t.intent, ret_attr);
	t.file->truncation = TRUNCATION_NONE;
	fmutex_unlock(&t.file->busy);
	open_file_put(&op->m->opens, t.file);
	return rc;
}

/* Waits first for operations in progress on its data. */
static int seal(struct op *op, struct setting *s, struct mds_setattr_rep *out)
{
	struct open_file *f;
	int rc;

	TRY(open_file_get(&op->m->opens, s->req.ino, &f));
	fmutex_lock(&f->busy);
	rc = op_mutate(op, setattr_txn, s, out);
	fmutex_unlock(&f->busy);
	open_file_put(&op->m->opens, f);
	return rc;
}

int mds_setattr(struct op *op, const void *vin, void *vout)
{
	const struct mds_setattr_req *in = vin;
	struct mds_setattr_rep *out = vout;
	struct setting s = {.req = *in};
	struct data_ends ends;

	if ((in->mask & SET_SIZE) != 0)
		return truncate_file(op, in, in->ino, true, &out->attr);
	if ((in->mask & SET_SEALED) != 0)
		return seal(op, &s, out);
	TRY(op_mutate(op, setattr_txn, &s, out));
	if (s.ask) {
		TRY(data_stat(op->m, in->ino, &s.layout, NULL,
			      loop_deadline_ms(op->m->params.oss_timeout_ms), &ends));
		s.req.attr.chains_ns = ends.mtime_ns;
		s.asked = true;
		TRY(op_mutate(op, setattr_txn, &s, out));
	}
	if (s.gives)
		op_given(op, in->ino);
	return 0;
}
