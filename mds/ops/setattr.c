/*
 * Attributes, and the size among them. A new size is: nothing but a record when nothing is cut off;
 * another data generation when the file becomes empty and nobody has it open; otherwise an intent,
 * a trim on all targets, and the record (data.c).
 */
#include "mds/ops/open.h"
#include "mds/prepared.h"
#include "mds/recall.h"

void attr_apply(struct op *op, struct inode_rec *rec, uint32_t mask, const struct attr *new)
{
	const struct open_file *f = open_file_find(&op->m->opens, rec->attr.ino);
	int64_t now = op_now(op);

	if ((mask & SET_MODE) != 0)
		rec->attr.mode = (rec->attr.mode & S_IFMT) | (new->mode & 07777);
	if ((mask & SET_UID) != 0)
		rec->attr.uid = new->uid;
	if ((mask & SET_GID) != 0)
		rec->attr.gid = new->gid;
	if ((mask & (SET_UID | SET_GID | SET_KILL_SUID)) != 0 && (mask & SET_MODE) == 0 &&
	    !S_ISDIR(rec->attr.mode))
		rec->attr.mode = perm_kill_suid(rec->attr.mode);
	if ((mask & (SET_UID | SET_GID | SET_KILL_SUID | SET_KILL_CAPS)) != 0 &&
	    !S_ISDIR(rec->attr.mode))
		inode_drop_caps(op, rec);
	if ((mask & SET_ATIME) != 0)
		rec->attr.atime_ns = new->atime_ns;
	if ((mask & SET_ATIME_NOW) != 0)
		rec->attr.atime_ns = now;
	if ((mask & SET_MTIME) != 0)
		rec->attr.mtime_ns = new->mtime_ns;
	if ((mask & SET_MTIME_NOW) != 0)
		rec->attr.mtime_ns = now;
	if ((mask & SET_FLAGS) != 0)
		rec->attr.flags =
			(rec->attr.flags & ~(uint32_t)ATTR_SETTABLE) | (new->flags &ATTR_SETTABLE);
	if ((mask & SET_PROJECT) != 0)
		rec->attr.project = new->project;
	if ((mask & SET_SEALED) != 0)
		rec->attr.flags |= new->flags &ATTR_SEALED;
	if ((mask & SET_MTIME_NOW) != 0)
		inode_accounts_for(rec, now);
	/* As whoever set it says, or the chains did: it is set after that. */
	if ((mask & SET_MTIME) != 0)
		inode_accounts_for(rec, new->chains_ns);
	if ((mask & SET_MTIME) != 0 && f != NULL)
		inode_accounts_for(rec, f->mtime_ns);
}

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
	/* Clients cache a sealed file's attributes for ever. Sealing it once more is fine, and none
	 * of them has to know whose quota it counts to: nobody writes it. */
	if ((rec->attr.flags & ATTR_SEALED) != 0 && in->mask != SET_PROJECT)
		return in->mask == SET_SEALED && (in->attr.flags & ATTR_SEALED) != 0 ? 0 : -LE_PERM;
	if ((in->mask & SET_SEALED) == 0)
		return 0;
	/* Alone: a data set knows the file by the attributes that it had. */
	if (!S_ISREG(rec->attr.mode) || in->mask != SET_SEALED ||
	    (in->attr.flags & ATTR_SEALED) == 0)
		return -LE_INVAL;
	return (rec->attr.flags & ATTR_UNSETTLED) != 0 || (f != NULL && f->n_writers > 0) ? -LE_BUSY
											  : 0;
}

/* Without the right to it the kernel would not set S_ISGID either. */
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

/* When a file was written last, its only writer says when it sets the time (0: it cannot tell); of
 * others' writes the chains do. */
static bool chains_are_asked(struct op *op, const struct mds_setattr_req *in,
			     const struct inode_rec *rec)
{
	const struct open_file *f = open_file_find(&op->m->opens, in->ino);
	const struct open *o =
		op->session != NULL ? open_find(&op->m->opens, op->session, in->ino) : NULL;

	if ((in->mask & SET_MTIME) == 0 || (rec->attr.flags & ATTR_UNSETTLED) == 0)
		return false;
	return in->attr.chains_ns == 0 || o == NULL || o->n_write != f->n_writers ||
	       o->old_write > 0 || f->ask_chains || f->untracked;
}

struct setting {
	struct mds_setattr_req req;
	bool ask, asked; /* the chains */
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
	/* Only now: what others had not written yet, they have. */
	s->ask = !s->asked && chains_are_asked(op, in, old);
	s->layout = old->attr.layout;
	op->final = !s->ask;
	if (s->ask)
		return 0;

	new = without_sgid(in, old);
	rec = inode_edit(op->store, i);
	attr_apply(op, rec, in->mask, &new);
	/* A file is sealed, and stays, as it was known: what was made of it stays true. */
	if ((rec->attr.flags & ATTR_SEALED) == 0)
		inode_changed(op, rec);
	out->attr = rec->attr;
	return 0;
}

struct truncate {
	const struct mds_setattr_req *req;
	struct open_file *file;
	struct intent_rec intent;
	uint64_t intent_no; /* 0: it is done without */
	struct ino told;
	bool final;
};

/* What lies behind the end has no data. */
static void cut_prepared(struct op *op, struct inode_rec *rec)
{
	struct ranges left;

	if (rec->prepared.len == 0)
		return;
	prepared_get(rec, &left);
	prepared_remove(&left, rec->attr.size, UINT64_MAX);
	prepared_change(op, rec, &left);
}

/* All in one critical section where that is possible, else the intent. */
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
	TRY(op_asks_own(op, in->ino, t->told));
	if (in->cred.uid != 0 && (mask & SET_MODE) == 0)
		mask |= SET_KILL_SUID;
	new = without_sgid(in, old);
	bool settled = (old->attr.flags & ATTR_UNSETTLED) == 0 && old->append_end <= old->attr.size;
	bool drop = size == 0 && !inode_has_no_data(old) && inode_not_open(op, in->ino);
	if (!drop && !inode_has_no_data(old) && !(settled && size >= old->attr.size)) {
		op->final = false;
		t->intent = (struct intent_rec){
			.kind = INTENT_TRIM, .off = size, .mask = mask, .attr = new};
		TRY(data_begin(op, &t->intent, old, t->final, &t->intent_no));
		t->file->cutting = true; /* from here on nobody reserves where it has ended */
		return 0;
	}

	op->final = t->final;
	if (!t->final)
		op_cuts(op, in->ino);
	rec = inode_edit(op->store, i);
	if (drop)
		data_drop(op, rec);
	else if (size == rec->attr.size)
		cut_prepared(op, rec);
	else if (size < rec->attr.size)
		inode_cut(rec);
	rec->attr.size = size;
	inode_data_changed(op, rec);
	attr_apply(op, rec, mask, &new);
	*ret_attr = rec->attr;
	return 0;
}

int truncate_file(struct op *op, const struct mds_setattr_req *req, struct ino told, bool final,
		  struct attr *ret_attr)
{
	struct truncate t = {.req = req, .told = told, .final = final};
	int rc;

	TRY(open_file_get(&op->m->opens, req->ino, &t.file));
	fmutex_lock(&t.file->busy);
	rc = op_mutate(op, truncate_txn, &t, ret_attr);
	if (rc == 0 && t.intent_no != 0)
		rc = data_carry_out(op, t.file, t.intent_no, &t.intent, ret_attr);
	t.file->cutting = false;
	fmutex_unlock(&t.file->busy);
	open_file_put(&op->m->opens, t.file);
	return rc;
}

/* What is under way on its data ends before. */
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
