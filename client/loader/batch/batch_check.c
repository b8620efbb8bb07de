/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares bytes that were read with the manifest, block by block. Wrong bytes are replaced by
 * right ones from elsewhere (mend.h), or noted as a failure.
 */
#include "client/loader/batch/batch_check.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/layout/block_sums.h"
#include "client/loader/batch/batch.h"
#include "client/loader/source/mend.h"
#include "common/base/checksum.h"
#include "common/base/status.h"

void batch_add_bad(struct leat_batch *b, uint64_t dst, uint64_t len)
{
	if (len == 0)
		return;
	if (b->n_bad == b->cap_bad) {
		uint32_t cap = b->cap_bad ? b->cap_bad * 2 : 16;
		struct bad_range *more = realloc(b->bad, cap * sizeof(*more));
		if (!more) {
			b->skip_bad = false; /* without memory the whole batch fails */
			return;
		}
		b->bad = more;
		b->cap_bad = cap;
	}
	b->bad[b->n_bad++] = (struct bad_range){dst, len};
}

void batch_fail(struct leat_batch *b, const struct piece_io *p, int rc, uint64_t off, uint64_t len,
		const char *what)
{
	struct leat_dataset *ds = b->ds;
	uint32_t unused;
	uint64_t from = off > p->off ? off : p->off;
	batch_add_bad(b, p->dst + (from - p->off), off + len > from ? off + len - from : 0);
	if (b->d.rc == 0) {
		b->d.origin = dataset_of_file(ds, p->file, &unused)->vol->origin;
		b->d.what[0] = 0;
		detail_set(&b->d, rc, index_string(ds->x, ds->x->files[p->file].path), off, "%s",
			   what);
	}
}

bool batch_is_bad(const struct leat_batch *b, uint64_t off, uint64_t len)
{
	for (uint32_t i = 0; i < b->n_bad; i++) {
		if (off < b->bad[i].dst + b->bad[i].len && off + len > b->bad[i].dst)
			return true;
	}
	return false;
}

/* ---- messages ---- */

static void fail_stale(struct leat_batch *b, const struct leat_dataset *from,
		       const struct piece_io *p, uint64_t off, uint64_t len, const char *what)
{
	char text[200];
	snprintf(text, sizeof(text),
		 "the file %s since %.48s@%.32s was made: restore it, or make a new version "
		 "(leat dataset create)",
		 what, from->m->name, from->m->version);
	b->blocks_stale++;
	/* The file may have been restored as another inode. */
	reader_drop(b->reader, p->file);
	batch_fail(b, p, -LE_STALE, off, len, text);
}

static void fail_copy(struct leat_batch *b, const struct piece_io *p, int rc, uint64_t off,
		      uint64_t len)
{
	char text[200];
	snprintf(text, sizeof(text),
		 "the copy is damaged (%s), and no other source has these bytes now: run `leat "
		 "stage in` to fetch them again",
		 status_text(rc));
	batch_fail(b, p, rc, off, len, text);
}

void batch_fail_read(struct leat_batch *b, const struct piece_io *p, int rc, uint64_t off,
		     uint64_t len)
{
	char text[200];
	uint32_t unused;
	const struct leat_dataset *from = dataset_of_file(b->ds, p->file, &unused);
	bool gone = rc == -LE_NOENT || rc == -LE_NOTDIR || rc == -LE_ISDIR || rc == -LE_STALE ||
		    rc == -LE_LOOP;
	if (from->is_copy && from->m) {
		fail_copy(b, p, rc, off, len);
	} else if (from->m && (gone || rc == -LE_NODATA)) {
		fail_stale(b, from, p, off, len, gone ? "has gone" : "has become shorter");
	} else {
		snprintf(text, sizeof(text), "cannot read it: %s",
			 rc == -LE_NODATA ? "the file is shorter than it was" : status_text(rc));
		batch_fail(b, p, rc, off, len, text);
	}
}

/* ---- blocks ---- */

static const struct manifest_file *file_of(const struct leat_dataset *ds, uint32_t file)
{
	return &ds->m->files[ds->manifest_file[file]];
}

bool batch_mend(struct leat_batch *b, const struct piece_io *p, uint64_t off, uint64_t len,
		uint8_t *to)
{
	uint32_t file;
	struct leat_dataset *ds = dataset_of_file(b->ds, p->file, &file);
	if (!ds->m)
		return false;
	const struct mend_range r = {ds->manifest_file[file], off, len};
	enum detail_origin from = mend_read(ds, b->ds, &r, to);
	b->bytes_mended += from == ORIGIN_NONE ? 0 : len;
	return from != ORIGIN_NONE;
}

/* Replaces a wrong block, or notes the failure. */
static bool replace(struct leat_batch *b, const struct batch_bytes *c, uint64_t at, uint64_t len)
{
	uint32_t file;
	const struct leat_dataset *ds = dataset_of_file(b->ds, c->p->file, &file);
	if (batch_mend(b, c->p, at, len, c->mem + (at - c->base)))
		return true;
	if (at + len > c->end)
		len = c->end - at;
	if (ds->is_copy)
		fail_copy(b, c->p, -LE_CORRUPT, at, len);
	else
		fail_stale(b, ds, c->p, at, len, "has changed");
	return false;
}

bool batch_check(struct leat_batch *b, const struct batch_bytes *c, uint64_t from, uint64_t to)
{
	uint32_t file;
	bool right = true;
	struct leat_dataset *ds = dataset_of_file(b->ds, c->p->file, &file);
	const struct manifest_file *f = file_of(ds, file);
	for (uint64_t i = from / f->block; i * f->block < to; i++) {
		uint64_t at = i * f->block,
			 stop = at + f->block < f->size ? at + f->block : f->size;
		if (at < c->base)
			continue;
		if (stop > to)
			break;
		if (dataset_block_verified(ds, f->first_sum + i))
			continue;
		if (checksum64(c->mem + (at - c->base), stop - at) ==
		    ds->m->sums[f->first_sum + i]) {
			dataset_set_verified(ds, f->first_sum + i);
		} else if (!replace(b, c, at, stop - at)) {
			right = false;
			if (!b->skip_bad)
				return false;
			continue;
		}
		b->bytes_verified += stop - at;
	}
	return right;
}

const struct manifest_file *batch_manifest_file(const struct leat_batch *b,
						const struct piece_io *p)
{
	uint32_t file;
	const struct leat_dataset *ds = dataset_of_file(b->ds, p->file, &file);
	return file_of(ds, file);
}

bool batch_sum_is_right(const struct leat_batch *b, const struct piece_io *p,
			const struct block_sums *sums, uint64_t block)
{
	uint32_t file;
	const struct leat_dataset *ds = dataset_of_file(b->ds, p->file, &file);
	const struct manifest_file *f = file_of(ds, file);
	return block < manifest_file_blocks(f) &&
	       block_sums_match(sums, block, ds->m->sums[f->first_sum + block]);
}

bool batch_sums_are_right(const struct leat_batch *b, const struct piece_io *p,
			  const struct block_sums *sums)
{
	uint32_t block = batch_manifest_file(b, p)->block;
	for (uint64_t i = p->off / block; i * block < p->off + p->len; i++) {
		if (!batch_sum_is_right(b, p, sums, i))
			return false;
	}
	return true;
}
