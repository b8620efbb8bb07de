/* SPDX-License-Identifier: Apache-2.0 */
#include "client/loader/source/checked.h"

#include <stdlib.h>
#include <string.h>

#include "client/loader/source/mend.h"
#include "common/base/assert.h"

/* Size of the window, rounded to blocks: neighbouring headers need one read. */
#define WINDOW (64u << 10)

struct checked {
	struct vol vol;
	struct leat_dataset *ds;
	struct detail *d;
};

struct checked_file {
	struct vol_file file;
	struct vol_file *under;
	uint32_t index; /* in the manifest */
	uint8_t *window;
	uint64_t lo, hi, size; /* the window holds [lo, hi) of the file and has this size */
};

static struct checked *checked_of(struct vol *v)
{
	return container_of(v, struct checked, vol);
}

static struct checked_file *file_of(struct vol_file *f)
{
	return container_of(f, struct checked_file, file);
}

static int checked_stat(struct vol *v, const char *path, struct vol_stat *ret_st)
{
	return vol_stat(checked_of(v)->ds->vol, path, ret_st);
}

static int checked_open(struct vol *v, const char *path, int flags, uint32_t mode,
			struct vol_file **ret_file)
{
	struct leat_dataset *ds = checked_of(v)->ds;
	size_t root = strlen(ds->root);
	(void)mode;
	if (flags || strncmp(path, ds->root, root) != 0 || path[root] != '/')
		return -LE_INVAL;
	int64_t index = manifest_find(ds->m, path + root + 1);
	if (index < 0)
		return -LE_NOENT;
	const struct manifest_file *m = &ds->m->files[index];
	struct checked_file *f = calloc(1, sizeof(*f));
	if (!f)
		return -LE_NOMEM;
	f->file.vol = v;
	f->index = (uint32_t)index;
	f->size = m->block > WINDOW ? m->block : WINDOW / m->block * m->block;
	f->window = malloc(f->size);
	int rc = f->window ? vol_open(ds->vol, path, &f->under) : -LE_NOMEM;
	/* A missing file may exist elsewhere; checked_pread finds out. */
	if (rc == -LE_NOMEM) {
		free(f->window);
		free(f);
		return rc;
	}
	*ret_file = &f->file;
	return 0;
}

static void checked_close(struct vol_file *file)
{
	struct checked_file *f = file_of(file);
	vol_close(f->under);
	free(f->window);
	free(f);
}

static int fail(struct checked *c, const struct manifest_file *m, uint64_t off)
{
	if (c->ds->is_copy)
		return detail_set(c->d, -LE_CORRUPT, m->path, off,
				  "the copy is damaged, and no other source has these bytes now: "
				  "run `leat stage in` to fetch them again");
	return detail_set(c->d, -LE_STALE, m->path, off,
			  "the file has changed or disappeared since %.48s@%.32s was made: restore "
			  "it, or make a new version (leat dataset create)",
			  c->ds->m->name, c->ds->m->version);
}

/* Fills the window from the block of off on, with at least `want` bytes if they fit. */
static int fill(struct checked_file *f, uint64_t off, uint64_t want)
{
	struct checked *c = checked_of(f->file.vol);
	struct leat_dataset *ds = c->ds;
	const struct manifest_file *m = &ds->m->files[f->index];
	uint64_t lo = off / m->block * m->block;
	uint64_t hi = (off + want + m->block - 1) / m->block * m->block;
	hi = hi < lo + f->size ? hi : lo + f->size;
	hi = hi < m->size ? hi : m->size;
	f->lo = f->hi = 0;
	int rc = f->under ? vol_pread_all(f->under, f->window, hi - lo, lo) : -LE_NOENT;
	int64_t bad = rc == 0 ? manifest_check(ds->m, m, lo, f->window, hi - lo) : 0;
	if (bad >= 0) {
		const struct mend_range r = {f->index, lo, hi - lo};
		bool gone = rc == 0 || rc == -LE_NOENT || rc == -LE_NODATA || rc == -LE_STALE ||
			    rc == -LE_NOTDIR || rc == -LE_ISDIR;
		if (mend_read(ds, ds, &r, f->window) == ORIGIN_NONE)
			return gone ? fail(c, m, rc == 0 ? (uint64_t)bad * m->block : lo)
				    : detail_set(c->d, rc, m->path, lo, "cannot read it: %s",
						 status_text(rc));
	}
	f->lo = lo;
	f->hi = hi;
	return 0;
}

static int64_t checked_pread(struct vol_file *file, void *buf, uint64_t len, uint64_t off)
{
	struct checked_file *f = file_of(file);
	uint64_t size = checked_of(file->vol)->ds->m->files[f->index].size, done = 0;
	if (off >= size)
		return 0;
	if (len > size - off)
		len = size - off;
	while (done < len) {
		uint64_t at = off + done;
		if (at < f->lo || at >= f->hi)
			TRY(fill(f, at, len - done));
		uint64_t n = f->hi - at < len - done ? f->hi - at : len - done;
		memcpy((uint8_t *)buf + done, f->window + (at - f->lo), n);
		done += n;
	}
	return (int64_t)done;
}

static void checked_destroy(struct vol *v)
{
	free(checked_of(v));
}

static const struct vol_ops checked_ops = {
	.stat = checked_stat,
	.open = checked_open,
	.close = checked_close,
	.pread = checked_pread,
	.destroy = checked_destroy,
};

int checked_vol_create(struct leat_dataset *ds, struct detail *d, struct vol **ret_vol)
{
	struct checked *c = calloc(1, sizeof(*c));
	if (!c)
		return -LE_NOMEM;
	c->vol = (struct vol){&checked_ops, ds->vol->origin};
	c->ds = ds;
	c->d = d;
	*ret_vol = &c->vol;
	return 0;
}
