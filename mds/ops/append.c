/*
 * Reserves the place of an O_APPEND write: behind everything that is reserved, known, reported,
 * and, where somebody else may write without reserving, stored. append_end is kept apart from the
 * size, so that nobody reads reserved bytes before they are written.
 */
#include "common/rt/loop.h"
#include "mds/op.h"

struct append {
	const struct mds_append_req *in;
	struct open_file *file;
	struct layout layout;
	uint64_t ends;
	bool asked; /* ends is what the chains say */
};

static uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* What it was given is its own still, if nothing was cut since. */
static bool had_place(const struct append *a, const struct inode_rec *rec)
{
	return a->in->had_end != 0 && a->in->had_end >= a->in->len &&
	       a->in->had_end <= max_u64(rec->append_end, rec->attr.size) &&
	       a->in->had_cuts == rec->attr.cuts;
}

/* Others wrote there before it did. The next place is where their bytes end, which the chains know,
 * unless somebody has one behind it. */
static bool gives_back(const struct append *a, const struct inode_rec *rec)
{
	return a->in->had_lost && had_place(a, rec) && a->in->had_end == rec->append_end;
}

/* Is what is known here, or told by who appends, perhaps not where the file ends? */
static bool must_ask(const struct op *op, const struct append *a, const struct inode_rec *rec)
{
	return (rec->attr.flags & ATTR_UNSETTLED) != 0 && !a->asked &&
	       (!a->file->ends_known || a->file->cut || a->file->cutting || a->in->had_lost ||
		open_file_other_writers(&op->m->opens, a->file, op->session, true));
}

static int append_txn(struct op *op, const void *vin, void *vout)
{
	struct append *a = (struct append *)vin;
	struct mds_append_rep *out = vout;
	const struct inode_rec *old;
	struct inode_rec *rec;
	struct inode *i;
	struct open *o = open_find(&op->m->opens, op->session, a->in->ino);
	uint64_t off, reserved;

	TRY(file_get(op, a->in->ino, VIEW_NEWEST, &i, &old));
	if (!S_ISREG(old->attr.mode))
		return -LE_INVAL;
	if ((old->attr.flags & ATTR_SEALED) != 0)
		return -LE_PERM;
	/* Who cuts the file asks those who have it open whether they still write at a place.
	 * Clients open it again in a new session before they ask for one, if they may. */
	if (o == NULL || o->n_write == 0)
		return -LE_BADF;
	if (a->in->had_there && !had_place(a, old))
		return -LE_EXIST;
	if (must_ask(op, a, old)) {
		a->layout = old->attr.layout;
		return -LE_BUSY;
	}
	reserved = gives_back(a, old) ? 0 : old->append_end;
	off = max_u64(max_u64(reserved, old->attr.size), max_u64(a->file->size, a->ends));
	/* After a truncation a client may know only how long the file was before. The chains have
	 * all that it has written: it shows that before it asks. */
	if (!a->file->cut)
		off = max_u64(off, a->in->size);
	if (had_place(a, old) && !a->in->had_lost)
		off = a->in->had_end - a->in->len;
	if (off > LEAT_FILE_SIZE_MAX || a->in->len > LEAT_FILE_SIZE_MAX - off)
		return -LE_FBIG;
	rec = inode_edit(op->store, i);
	rec->append_end = max_u64(reserved, off + a->in->len);
	out->off = off;
	out->change = rec->attr.change;
	out->cuts = rec->attr.cuts;
	open_placed(o, out->change);
	/* Who writes without reserving is still open (and asked about again), reports when closing,
	 * or has a write lease, which is recalled before another one appends. Of who ends without a
	 * word, be it while the chains are asked, nobody knows what it has written since. */
	if (a->asked && a->file->ends_asked)
		a->file->ends_known = !lease_foreign(&op->m->leases, a->in->ino, NULL, false);
	return 0;
}

static int append_locked(struct op *op, struct append *a, void *out)
{
	struct data_ends ends;
	int rc = op_mutate(op, append_txn, a, out);

	if (rc != -LE_BUSY)
		return rc;
	fmutex_lock(&a->file->busy);
	a->file->ends_asked = true;
	rc = data_stat(op->m, a->in->ino, &a->layout, NULL,
		       loop_deadline_ms(op->m->params.oss_timeout_ms), &ends);
	if (rc == 0) {
		a->ends = ends.size;
		a->asked = true;
		rc = op_mutate(op, append_txn, a, out);
	}
	fmutex_unlock(&a->file->busy);
	return rc;
}

int mds_append(struct op *op, const void *vin, void *vout)
{
	struct append a = {.in = vin};
	int rc;

	TRY(open_file_get(&op->m->opens, a.in->ino, &a.file));
	op->final = true;
	rc = append_locked(op, &a, vout);
	open_file_put(&op->m->opens, a.file);
	return rc;
}
