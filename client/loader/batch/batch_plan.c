/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which bytes of which files are placed where in a slot. Members are planned in the order of the
 * samples. Those that lie close together in a file form a run, which has the same layout in the
 * slot as in the file, gaps included, and is read in pieces. With a disk cache a run is also split
 * between samples: the pieces of a sample must not depend on its neighbours in this epoch.
 */
#include "client/loader/batch/batch_plan.h"

#include <stdlib.h>
#include <string.h>

#include "client/loader/batch/batch.h"
#include "client/loader/batch/decode.h"
#include "client/loader/source/dataset_facts.h"
#include "client/loader/source/peer.h"
#include "common/base/assert.h"

#define GAP_MAX  (16u << 10) /* a longer gap splits a run; a shorter one is read too */
#define RUN_MAX  (64u << 20)
#define PREFETCH 8u  /* samples */
#define ALIGN    64u /* memory and file agree modulo this */

/* The run that is being planned. Bytes [lo, hi) of a file are placed in the slot from dst on. */
struct run {
	uint32_t file, sample;
	uint64_t lo, hi, dst;
	uint64_t cut;   /* pieces exist for the bytes before this offset */
	uint64_t first; /* where the present sample begins */
	bool keyed;     /* the disk cache stores its pieces */
};

/* Grows an array to at least n elements. */
static int grow(void *array, uint32_t *cap, uint32_t n, size_t size)
{
	void **p = array;
	if (n <= *cap)
		return 0;
	uint32_t want = n + n / 2 + 64;
	void *more = realloc(*p, want * size);
	if (!more)
		return -LE_NOMEM;
	*p = more;
	*cap = want;
	return 0;
}

static int begin_run(struct leat_batch *b)
{
	TRY(grow(&b->runs, &b->cap_runs, b->n_runs + 2, sizeof(*b->runs)));
	b->runs[b->n_runs++] = (struct batch_run){0, b->n_jobs, b->n_jobs};
	return 0;
}

/* Makes pieces for the bytes before end. Splits them at multiples of PIECE_MAX in the file,
 * which are block boundaries. */
static int cut_run(struct leat_batch *b, struct run *r, uint64_t end)
{
	ASSERT(end <= r->hi && r->dst + (r->hi - r->lo) <= b->need);
	while (r->cut < end) {
		ASSERT(b->n_runs > 0 && r->cut >= r->lo);
		uint64_t stop = (r->cut / PIECE_MAX + 1) * PIECE_MAX;
		if (stop > end)
			stop = end;
		TRY(grow(&b->pieces, &b->cap_pieces, b->n_pieces + 1, sizeof(*b->pieces)));
		b->pieces[b->n_pieces++] = (struct piece_io){.file = r->file,
							     .len = (uint32_t)(stop - r->cut),
							     .off = r->cut,
							     .dst = r->dst + (r->cut - r->lo),
							     .sample = r->sample,
							     .run = b->n_runs - 1};
		b->runs[b->n_runs - 1].left++;
		r->cut = stop;
	}
	return 0;
}

/* Widens a range to whole blocks if one of them is still to be verified: only servers send
 * checksums with which a part of a block can be verified. */
static void widen(const struct leat_batch *b, const struct leat_dataset *ds, uint32_t file,
		  uint64_t *lo, uint64_t *hi)
{
	/* The disk cache stores exactly the bytes that a sample needs. */
	if (!ds->m || (b->cache && !dataset_is_near(ds)) || dataset_is_packed(ds, file))
		return;
	const struct peer_range r = {ds->manifest_file[file], *lo, *hi - *lo};
	if (dataset_has_sums(ds) && !(ds->peers && peer_may_serve(ds->peers, &r)))
		return;
	const struct manifest_file *f = &ds->m->files[r.file];
	uint64_t first = *lo / f->block, last = (*hi - 1) / f->block, i;
	for (i = first; i <= last && dataset_block_verified(ds, f->first_sum + i); i++)
		;
	if (i > last)
		return;
	*lo = first * f->block;
	*hi = (last + 1) * f->block < f->size ? (last + 1) * f->block : f->size;
}

/* True if bytes [lo, hi) of the file, which belong to this sample, may be part of the run. */
static bool belongs(const struct run *r, uint32_t file, uint32_t sample, uint64_t lo, uint64_t hi)
{
	if (r->hi == 0 || r->file != file || lo > r->hi + GAP_MAX)
		return false;
	if (!r->keyed)
		return lo >= r->lo && hi - r->lo <= RUN_MAX;
	/* The pieces of a sample must depend on the sample alone. */
	if (r->sample == sample)
		return lo >= r->first && hi - r->first <= RUN_MAX;
	return lo >= r->hi && hi - r->lo <= RUN_MAX;
}

static int plan_member(struct leat_batch *b, struct run *r, uint32_t sample,
		       const struct index_member *m, uint64_t *ret_off)
{
	uint32_t file = b->ds->x->samples[b->ids[sample]].file, part_file;
	const struct leat_dataset *from = dataset_of_file(b->ds, file, &part_file);
	uint64_t lo = m->off, hi = m->off + m->len;
	*ret_off = 0;
	if (m->len == 0)
		return 0;
	widen(b, from, part_file, &lo, &hi);
	if (!belongs(r, file, sample, lo, hi)) {
		TRY(cut_run(b, r, r->hi));
		TRY(begin_run(b));
		*r = (struct run){.file = file,
				  .sample = sample,
				  .lo = lo,
				  .hi = hi,
				  .dst = (b->need + ALIGN - 1) / ALIGN * ALIGN + lo % ALIGN,
				  .cut = lo,
				  .first = lo,
				  .keyed = b->cache && !dataset_is_near(from)};
	} else if (r->keyed && r->sample != sample) {
		TRY(cut_run(b, r, r->hi));
		r->sample = sample;
		r->cut = r->first = lo;
	}
	if (hi > r->hi)
		r->hi = hi;
	b->need = r->dst + (r->hi - r->lo);
	*ret_off = r->dst + (m->off - r->lo);
	return b->need <= BATCH_BYTES_MAX ? 0 : -LE_2BIG;
}

static int add_job(struct leat_batch *b, const struct index_member *m, uint32_t sample,
		   uint32_t row)
{
	if (m->codec == INDEX_PLAIN && m->check == INDEX_UNCHECKED)
		return 0;
	TRY(grow(&b->jobs, &b->cap_jobs, b->n_jobs + 1, sizeof(*b->jobs)));
	uint64_t src = b->off[batch_at(b, row, sample)];
	b->jobs[b->n_jobs++] =
		(struct member_job){.b = b, .m = m, .src = src, .sample = sample, .row = row};
	return 0;
}

/* ---- rows ---- */

static void clear_row(struct leat_batch *b, uint32_t row)
{
	memset(&b->off[batch_at(b, row, 0)], 0xff, b->n * sizeof(*b->off));
	memset(&b->len[batch_at(b, row, 0)], 0, b->n * sizeof(*b->len));
}

/* Makes space for one more row. */
static int grow_rows(struct leat_batch *b)
{
	uint32_t want = b->cap_rows + b->cap_rows / 2 + 64;
	size_t cells = (size_t)want * (b->cap ? b->cap : 1);
	if (b->n_rows < b->cap_rows)
		return 0;
	if (cells > BATCH_CELLS_MAX)
		return -LE_2BIG;
	void *off = realloc(b->off, cells * sizeof(*b->off));
	b->off = off ? off : b->off;
	void *len = realloc(b->len, cells * sizeof(*b->len));
	b->len = len ? len : b->len;
	void *place_of = realloc(b->place_of, want * sizeof(*b->place_of));
	b->place_of = place_of ? place_of : b->place_of;
	void *decoded = realloc(b->decoded, want * sizeof(*b->decoded));
	b->decoded = decoded ? decoded : b->decoded;
	if (!off || !len || !place_of || !decoded)
		return -LE_NOMEM;
	b->cap_rows = want;
	return 0;
}

/* Returns the row of that field; makes it if necessary. */
static int need_row(struct leat_batch *b, uint32_t place, uint32_t *ret_row)
{
	if (b->row_of[place] == 0) {
		TRY(grow_rows(b));
		clear_row(b, b->n_rows);
		b->place_of[b->n_rows] = place;
		b->decoded[b->n_rows] = false;
		b->row_of[place] = b->n_rows++;
	}
	*ret_row = b->row_of[place];
	return 0;
}

static int begin_rows(struct leat_batch *b)
{
	uint32_t ignored;
	while (b->n_rows > 1)
		b->row_of[b->place_of[--b->n_rows]] = 0;
	clear_row(b, 0);
	for (uint32_t place = 0; b->set->n <= BATCH_ROWS && place < b->set->n; place++)
		TRY(need_row(b, place, &ignored));
	return 0;
}

static int plan_sample(struct leat_batch *b, struct run *r, uint32_t i)
{
	const struct sample_index *x = b->ds->x;
	const struct index_sample *s = &x->samples[b->ids[i]];
	b->labels[i] = s->label;
	for (uint64_t k = s[0].first; k < s[1].first; k++) {
		const struct index_member *m = &x->members[k];
		int32_t place = field_place(b->set, m->field);
		uint32_t row;
		if (place < 0)
			continue;
		TRY(need_row(b, (uint32_t)place, &row));
		TRY(plan_member(b, r, i, m, &b->off[batch_at(b, row, i)]));
		b->len[batch_at(b, row, i)] = m->raw;
		TRY(add_job(b, m, i, row));
	}
	return 0;
}

/* Reserves space for unpacked members after all bytes that are read. */
static int plan_unpacked(struct leat_batch *b)
{
	for (uint32_t i = 0; i < b->n_jobs; i++) {
		const struct member_job *j = &b->jobs[i];
		if (j->m->codec == INDEX_PLAIN)
			continue;
		uint64_t dst = (b->need + ALIGN - 1) / ALIGN * ALIGN;
		if (j->m->raw > BATCH_BYTES_MAX - dst)
			return -LE_2BIG;
		b->off[batch_at(b, j->row, j->sample)] = dst;
		b->need = dst + j->m->raw;
	}
	return 0;
}

/* The index of a large data set does not fit the processor's cache, and samples come in random
 * order, so entries of the next samples are prefetched. */
static void prefetch(const struct leat_batch *b, uint32_t i)
{
	const struct sample_index *x = b->ds->x;
	if (i + 2 * PREFETCH < b->n)
		__builtin_prefetch(&x->samples[b->ids[i + 2 * PREFETCH]]);
	if (i + PREFETCH < b->n)
		__builtin_prefetch(&x->members[x->samples[b->ids[i + PREFETCH]].first]);
}

static int plan(struct leat_batch *b)
{
	struct run r = {0};
	TRY(begin_rows(b));
	for (uint32_t i = 0; i < b->n; i++) {
		prefetch(b, i);
		TRY(plan_sample(b, &r, i));
	}
	TRY(cut_run(b, &r, r.hi));
	TRY(begin_run(b));
	b->n_runs--; /* it only marks the end of the jobs */
	TRY(plan_unpacked(b));
	return decode_plan(b);
}

int batch_plan(struct leat_batch *b)
{
	b->n_pieces = b->n_jobs = b->n_runs = 0;
	b->need = 0;
	b->rc = 0;
	b->d.rc = 0;
	b->d.origin = ORIGIN_NONE;
	b->d.off = UINT64_MAX;
	b->d.path[0] = b->d.what[0] = 0;
	b->n_bad = 0;
	memset(b->lost, 0, b->n);
	b->n_skipped = 0;
	b->direct = false;
	b->bytes_local = b->bytes_server = b->bytes_peer = b->bytes_direct =
		b->bytes_verified = b->bytes_mended = b->blocks_stale = 0;
	b->verified = dataset_is_verified(b->ds);
	int rc = plan(b);
	return rc < 0 ? detail_set(&b->d, rc, NULL, UINT64_MAX,
				   "no batch can be made of these %u samples: %s", b->n,
				   status_text(rc))
		      : 0;
}
