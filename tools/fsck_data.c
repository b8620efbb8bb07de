/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks against inodes. Both are read in the order of inode numbers and merged. Chunks are listed
 * after the snapshot was taken, so chunks of a number or generation that is newer than the snapshot
 * are ignored. Numbers are not used again: a chunk that at the snapshot belonged to no inode, and
 * was not queued for removal, will never belong to one. Any other error is checked a second time,
 * and the size of a file in use is not checked.
 */
#include "tools/fsck_data.h"

#include <inttypes.h>
#include <stdlib.h>
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
	bool too_many; /* removals: orphans are not checked */
	bool has_inode, has_chunk;
	struct fsck_inode inode;
	struct fsck_chunk chunk;
};

/* Chunks of one number on one chain that no inode owns. */
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
			  "more than %u removals are queued: data without a file is not searched "
			  "for",
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
			  "chain %u, inode %" PRIu64 " generation %u: %" PRIu64 " chunks (%s) "
			  "without a file",
			  o->chain, ino, o->gen, n, format_size(o->used, size));
}

static bool is_owned(const struct fsck_inode *i, const struct chunk_id *id)
{
	/* A generation newer than that of the snapshot is ignored. */
	return i->damaged || (S_ISREG(i->mode) && id->gen >= i->layout.gen);
}

/* Takes all chunks of a number. inode: NULL: there is none. */
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

/* *ret_same: the inode is still as in the snapshot, after its chunks have been listed. */
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

/* Gets the path for the report; "" if there is none. */
static int name_of(struct data *d, struct ino ino, char *buf, size_t size)
{
	struct mds_target_lose_req req = {.what = LOSE_NAME, .from = ino.v, .max = 1};
	struct mds_target_lose_rep rep = {0};
	struct lost_file f = {0};
	struct rpc_call call;
	struct wire_r r;
	int rc = fsck_call(d->f, OP_mds_target_lose, &req, &rep, &call);

	wire_r_init(&r, rep.files.data, rep.files.len);
	wire_get_lost_file(&r, &f);
	rc = rc == 0 ? r.status : rc;
	if (rc == 0 && f.path.len > 0)
		snprintf(buf, size, ": %.*s", (int)f.path.len, (const char *)f.path.data);
	else
		buf[0] = '\0';
	rpc_call_fini(&call);
	return rc;
}

static int found_lost(struct data *d, const struct fsck_inode *i)
{
	char name[400];

	TRY(name_of(d, i->ino, name, sizeof(name)));
	return fsck_found(d->f, FSCK_missing, NULL,
			  "inode %" PRIu64 ": data was on targets that were given up%s", i->ino.v,
			  name);
}

static int judge(struct data *d, const struct fsck_inode *i, const struct sums *s)
{
	struct mds_fsck_repair_req fix = {
		.what = FSCK_REPAIR_SIZE, .ino = i->ino, .change = i->change};
	bool too_small = s->end > i->size, same;
	bool gone = s->n == 0 && i->size > 0 && i->blocks >= (i->size + 511) / 512 && !i->cut;

	if (i->lost)
		return found_lost(d, i);
	if (i->damaged || !S_ISREG(i->mode) || (!too_small && !gone))
		return 0;
	if (i->busy || (i->flags & ATTR_UNSETTLED)) {
		d->f->busy++;
		return 0;
	}
	if (gone && d->f->unread)
		return 0; /* they may be on a copy that could not be read */
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
