/*
 * One open less. The last writer's close settles the inode: when one session alone wrote and nobody
 * truncated, with the size it reports; otherwise the chains are asked afterwards
 * (data_settle_start), and until then the inode stays unsettled, so that whoever looks at it asks
 * the chains too.
 */
#include "mds/ops/open.h"
#include "mds/ops/export.h"
#include "mds/ops/reach.h"
#include "mds/recall.h"

/* Nobody who writes knows how much of what is prepared is written, nor what a cut that is under way
 * leaves of it: some chains may be cut already, and keep what was written there since. */
static bool chains_are_asked(const struct open_file *f, const struct inode_rec *rec)
{
	return f->ask_chains || (f->dirty && (rec->prepared.len > 0 || f->cutting));
}

struct close_args {
	const struct mds_close_req *in;
	bool ask_chains;
};

/* Who reports does not believe it. */
static bool is_doubted(const struct mds_close_req *in)
{
	return (in->flags & (CLOSE_ASK | CLOSE_CUT)) != 0;
}

static void note_report(struct open_file *f, const struct mds_close_req *in)
{
	uint64_t used = in->used == UINT64_MAX ? in->size : in->used;

	f->dirty = true;
	if (in->mtime_ns > f->mtime_ns)
		f->mtime_ns = in->mtime_ns;
	/* Appends would go behind a size that is older than a cut. */
	if (f->cut || is_doubted(in))
		return;
	if (in->size > f->size)
		f->size = in->size;
	if (used > f->used)
		f->used = used;
}

static struct inode_rec *settle_reported(struct op *op, struct inode *i, const struct open_file *f)
{
	struct inode_rec *rec = inode_edit(op->store, i);

	rec->attr.flags &= ~(uint32_t)ATTR_UNSETTLED;
	if (f->dirty && f->size > rec->attr.size)
		rec->attr.size = f->size;
	inode_places_end(rec);
	if (!f->dirty)
		return rec;
	rec->attr.blocks = (f->used + 511) / 512;
	inode_written(op, rec, f->mtime_ns);
	return rec;
}

/* Who writes no more has no use for a write lease: others need not ask it. */
static void closed_lease(struct op *op, const struct mds_close_req *in)
{
	const struct open *o = open_find(&op->m->opens, op->session, in->ino);
	struct lease *l = lease_find(&op->m->leases, in->ino, op->session);

	if (l != NULL && (o == NULL || o->n_write == 0))
		l->write = false;
}

/* It was read: what others cache of its times goes first. Writes. */
static int was_read(struct op *op, const struct mds_close_req *in, struct inode *i,
		    const struct inode_rec *rec)
{
	int64_t now = op_now(op);

	if ((in->flags & CLOSE_ATIME) == 0 || rec->attr.nlink == 0 ||
	    (rec->attr.flags & ATTR_NOATIME) != 0 ||
	    ((in->flags & CLOSE_STRICT) == 0 && !attr_atime_due(&rec->attr, now)))
		return 0;
	TRY(op_changes(op, in->ino));
	inode_edit(op->store, i)->attr.atime_ns = now;
	return 0;
}

static int close_txn(struct op *op, const void *vin, void *vout)
{
	struct close_args *a = (struct close_args *)vin;
	const struct mds_close_req *in = a->in;
	struct mds_close_rep *out = vout;
	bool counted = (in->flags & CLOSE_UNCOUNTED) == 0;
	struct open *o = counted ? open_find(&op->m->opens, op->session, in->ino) : NULL;
	const struct inode_rec *rec;
	struct open_file *f;
	struct inode *i;
	int rc = inode_get(op->store, in->ino, VIEW_NEWEST, &i, &rec);

	if (rc == -LE_MISS || (rc < 0 && rc != -LE_NOENT))
		return rc;
	if (o == NULL && export_squashes(op) && !reach_knows(op, in->ino))
		return 0;
	if (open_flags_write(in->flags) && o != NULL)
		TRY(op_changes(op, in->ino));
	if (rc == 0)
		TRY(was_read(op, in, i, rec));
	if (o == NULL) { /* a second time, or lost with a former incarnation */
		if (rc == 0 && inode_get(op->store, in->ino, VIEW_NEWEST, &i, &rec) == 0)
			out->attr = rec->attr;
		return 0;
	}
	f = o->file;
	f->refs++;
	if (in->dirty != 0 && open_flags_write(in->flags))
		note_report(f, in);
	if ((in->flags & CLOSE_ASK) != 0)
		f->untracked = true;
	if (is_doubted(in)) {
		f->ask_chains = true;
		open_file_ends_unknown(f); /* it may have written what it does not know of */
	}
	open_drop(&op->m->opens, o, in->flags);
	if (rc == 0 && rec->attr.nlink == 0 && inode_not_open(op, in->ino)) {
		if (linger_wanted(f) && linger_add(op->m, in->ino))
			goto out; /* it goes a little later: linger.h */
		inode_remove(op, i);
		txn_delete(op->store, key_of('O', in->ino.v));
	} else if (rc == 0 && open_flags_write(in->flags) &&
		   (rec->attr.flags & ATTR_UNSETTLED) != 0) {
		a->ask_chains = f->n_writers == 0 && chains_are_asked(f, rec);
		if (f->n_writers == 0 && !a->ask_chains)
			rec = settle_reported(op, i, f);
	}
	if (rc < 0 || (rec->attr.flags & ATTR_UNSETTLED) == 0)
		open_file_counted(&op->m->opens, f);
	if (rc == 0 && rec->attr.nlink > 0 &&
	    inode_get(op->store, in->ino, VIEW_NEWEST, &i, &rec) == 0)
		out->attr = rec->attr; /* with what was changed just now */
	closed_lease(op, in);
out:
	open_file_put(&op->m->opens, f);
	return 0;
}

int close_file(struct op *op, const struct mds_close_req *in, struct mds_close_rep *out)
{
	struct close_args a = {in, false};

	TRY(op_mutate(op, close_txn, &a, out));
	if (a.ask_chains)
		data_settle_start(op->m, in->ino);
	return 0;
}

int mds_close(struct op *op, const void *vin, void *vout)
{
	const struct mds_close_req *in = vin;

	/* Of a counted open no row is kept in the store: whoever repeats the close after a restart
	 * has told of the open before, which has to be ended then anyway (open_state_redo), and
	 * what was settled stays so. */
	op->final = (in->flags & CLOSE_UNCOUNTED) != 0;
	op->lazy = (in->flags & CLOSE_LAZY) != 0;
	/* It has been closed there, whether or not somebody still waits to hear of it. */
	fiber_set_deadline(NO_DEADLINE);
	return close_file(op, in, vout);
}
