/*
 * Chunks against inodes. Both come in the order of inode numbers and are merged. Chunks are listed
 * after the snapshot was taken: what belongs to a number or a generation that is newer than it is
 * none of ours; a chunk that no inode had, and that was not queued for removal, then, will never
 * have one, for numbers are not used again. Whatever else looks wrong is asked for once more, and
 * a file that anybody works with is not judged.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/fsck_chains.h"

#define REMOVALS_MAX (4u << 20)

struct removal {
	uint64_t ino;
	uint32_t gen;
};

struct data {
	struct fsck *f;
	struct fsck_chains *chains;
	struct fsck_cursor inodes;
	struct removal *removals; /* sorted */
	uint64_t n_removals, cap;
	bool too_many; /* removals: orphans are not judged */
	bool has_inode, has_chunk;
	struct fsck_inode inode;
	struct fsck_chunk chunk;
};

/* Data of one number on one chain that no inode owns. */
struct ownerless {
	uint32_t chain, gen;
	uint64_t n, used;
};

static int compare_removal(const void *pa, const void *pb)
{
	const struct removal *a = pa, *b = pb;

	if (a->ino != b->ino)
		return a->ino < b->ino ? -1 : 1;
	return a->gen < b->gen ? -1 : a->gen > b->gen;
}

static int add_removal(struct data *d, const struct removal *r)
{
	if (d->n_removals == d->cap) {
		uint64_t cap = d->cap ? d->cap * 2 : 1024;
		struct removal *v = realloc(d->removals, cap * sizeof(*v));

		if (!v)
			return -LE_NOMEM;
		d->removals = v;
		d->cap = cap;
	}
	d->removals[d->n_removals++] = *r;
	return 0;
}

static int read_removals(struct data *d)
{
	struct fsck_cursor cur = {.kind = FSCK_REMOVALS};
	int rc;

	while ((rc = fsck_row(d->f, &cur)) == 1) {
		struct removal r = {0};

		wire_get_u64(&cur.r, &r.ino);
		wire_get_u32(&cur.r, &r.gen);
		rc = cur.r.status < 0 ? cur.r.status : add_removal(d, &r);
		if (rc < 0 || d->n_removals == REMOVALS_MAX)
			break;
	}
	fsck_cursor_fini(&cur);
	if (rc < 0)
		return rc;
	d->too_many = rc == 1 || d->n_removals == REMOVALS_MAX;
	if (d->too_many)
		fsck_note(d->f,
			  "more than %u removals are queued: data that belongs to nothing is "
			  "not looked for",
			  REMOVALS_MAX);
	if (d->n_removals)
		qsort(d->removals, d->n_removals, sizeof(*d->removals), compare_removal);
	return 0;
}

static bool is_queued(const struct data *d, uint64_t ino, uint32_t gen)
{
	struct removal key = {ino, gen};

	return d->n_removals &&
	       bsearch(&key, d->removals, d->n_removals, sizeof(key), compare_removal);
}

/* ---- both streams ---- */

static int next_inode(struct data *d)
{
	int rc = fsck_row(d->f, &d->inodes);

	d->has_inode = rc == 1;
	if (rc == 1) {
		wire_get_fsck_inode(&d->inodes.r, &d->inode);
		rc = d->inodes.r.status;
	}
	return rc < 0 ? rc : 0;
}

static int next_chunk(struct data *d)
{
	int rc = fsck_chains_next(d->chains, &d->chunk);

	d->has_chunk = rc == 1;
	return rc < 0 ? rc : 0;
}

/* ---- one number ---- */

struct sums {
	uint64_t n, end, used;
};

static int found_ownerless(struct data *d, uint64_t ino, struct ownerless *o)
{
	struct mds_fsck_repair_req fix = {
		.what = FSCK_REPAIR_CHUNKS, .ino = {ino}, .gen = o->gen, .chain = o->chain};
	uint64_t n = o->n;
	char size[SIZE_TEXT];

	o->n = 0;
	if (n == 0 || d->too_many || is_queued(d, ino, o->gen))
		return 0;
	return fsck_found(d->f, FSCK_orphans, &fix,
			  "chain %u, inode %" PRIu64 " generation %u: %" PRIu64
			  " chunks (%s) that no file has",
			  o->chain, ino, o->gen, n, format_size(o->used, size));
}

static bool is_owned(const struct fsck_inode *i, const struct chunk_id *id)
{
	/* A newer generation than the snapshot's is left alone. */
	return i->damaged || (S_ISREG(i->mode) && id->gen >= i->layout.gen);
}

/* All chunks of a number go by. inode: NULL: there is none. */
static int take_chunks(struct data *d, uint64_t ino, const struct fsck_inode *inode,
		       struct sums *ret)
{
	struct ownerless o = {0};

	while (d->has_chunk && d->chunk.s.chunk.ino.v == ino) {
		const struct chunk_summary *s = &d->chunk.s;

		if (inode ? is_owned(inode, &s->chunk) : ino >= d->f->next_ino) {
			if (inode && s->chunk.gen == inode->layout.gen) {
				uint64_t end = s->chunk.idx * inode->layout.chunk_size + s->end;

				ret->n++;
				ret->used += s->used;
				ret->end = end > ret->end ? end : ret->end;
			}
		} else {
			if (o.chain != d->chunk.chain || o.gen != s->chunk.gen)
				TRY(found_ownerless(d, ino, &o));
			o.chain = d->chunk.chain;
			o.gen = s->chunk.gen;
			o.used = (o.n++ ? o.used : 0) + s->used;
		}
		TRY(next_chunk(d));
	}
	return found_ownerless(d, ino, &o);
}

/* Is it still as the snapshot had it, now that its chunks have been listed? */
static int is_unchanged(struct data *d, const struct fsck_inode *i, bool *ret_same)
{
	struct mds_getattr_req req = {.ino = i->ino};
	struct mds_getattr_rep rep = {0};
	struct rpc_call call;
	int rc = fsck_call(d->f, OP_mds_getattr, &req, &rep, &call);

	*ret_same = rc == 0 && rep.attr.change == i->change && rep.attr.size == i->size &&
		    (rep.attr.flags & ATTR_UNSETTLED) == 0;
	rpc_call_fini(&call);
	return rc == -LE_NOENT || rc == -LE_STALE || rc == -LE_TARGET_DOWN ? 0 : rc;
}

static int judge(struct data *d, const struct fsck_inode *i, const struct sums *s)
{
	struct mds_fsck_repair_req fix = {
		.what = FSCK_REPAIR_SIZE, .ino = i->ino, .change = i->change};
	bool too_small = s->end > i->size, same;
	bool gone = s->n == 0 && i->size > 0 && i->blocks >= (i->size + 511) / 512 && !i->cut;

	if (i->damaged || !S_ISREG(i->mode) || (!too_small && !gone))
		return 0;
	if (i->busy || (i->flags & ATTR_UNSETTLED)) {
		d->f->busy++;
		return 0;
	}
	if (gone && d->f->unread)
		return 0; /* it may be there */
	TRY(is_unchanged(d, i, &same));
	if (!same)
		d->f->busy++;
	else if (too_small)
		return fsck_found(d->f, FSCK_sizes, &fix,
				  "inode %" PRIu64 ": size %" PRIu64 ", but data up to %" PRIu64,
				  i->ino.v, i->size, s->end);
	else
		return fsck_found(d->f, FSCK_missing, NULL,
				  "inode %" PRIu64 ": %" PRIu64
				  " bytes were written, and no chunk of them is stored",
				  i->ino.v, i->size);
	return 0;
}

static int one_number(struct data *d)
{
	uint64_t ino = d->has_inode ? d->inode.ino.v : d->chunk.s.chunk.ino.v;
	struct sums sums = {0};
	bool exists;

	if (d->has_chunk && d->chunk.s.chunk.ino.v < ino)
		ino = d->chunk.s.chunk.ino.v;
	exists = d->has_inode && d->inode.ino.v == ino;
	TRY(take_chunks(d, ino, exists ? &d->inode : NULL, &sums));
	if (!exists)
		return 0;
	TRY(judge(d, &d->inode, &sums));
	return next_inode(d);
}

static int merge(struct data *d)
{
	uint64_t n = 0;

	TRY(read_removals(d));
	TRY(next_inode(d));
	TRY(next_chunk(d));
	while (d->has_inode || d->has_chunk) {
		if (n++ % 256 == 0)
			TRY(fsck_going(d->f, "data", n, d->f->n_inodes));
		TRY(one_number(d));
	}
	return 0;
}

int fsck_data(struct fsck *f)
{
	struct data d = {.f = f, .inodes.kind = FSCK_INODES};
	int rc = fsck_chains_open(f, &d.chains);

	if (rc < 0)
		return rc;
	rc = merge(&d);
	fsck_cursor_fini(&d.inodes);
	fsck_chains_close(d.chains);
	free(d.removals);
	return rc;
}
