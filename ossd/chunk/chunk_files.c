/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes and queries of all chunks of a file: trim, punch, remove, stat, list. They walk the
 * index in bounded steps. The changes of a step share a group commit.
 */
#include "ossd/chunk/chunk_files.h"

#include <stdlib.h>

#include "ossd/chunk/chunk_names.h"
#include "ossd/chunk/chunk_tx.h"
#include "ossd/chunk/chunk_write.h"
#include "ossd/chunk/store_block.h"
#include "ossd/chunk/store_record.h"

#define STEP      CHUNK_EDITS_MAX
#define SCAN_STEP 1024u /* rows read in one scan */

/* ---- walking the index ---- */

struct walk {
	struct chunk_store *s;
	uint8_t key[CHUNK_KEY_SIZE + 1]; /* the next key */
	size_t key_len;
	uint8_t end[CHUNK_KEY_SIZE + 1]; /* exclusive */
	bool more;
	struct chunk_names seen;
	/* called for each row */
	int (*row)(struct walk *w, const struct chunk_key *id, const void *value, size_t len);
	void *arg;
};

/* Walks chunks [first, last] of one inode generation, or everything between two keys of a chain. */
static void walk_init(struct walk *w, struct chunk_store *s, const struct chunk_key *first,
		      const struct chunk_key *last)
{
	w->s = s;
	w->more = true;
	w->seen = (struct chunk_names){0};
	chunk_key_encode(ROW_CHUNK, first, w->key);
	w->key_len = CHUNK_KEY_SIZE;
	chunk_key_encode(ROW_CHUNK, last, w->end);
	w->end[CHUNK_KEY_SIZE] = 0;
}

static int walk_row(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct walk *w = arg;
	struct chunk_key id;

	TRY(chunk_key_decode(ROW_CHUNK, key, key_len, &id));
	memcpy(w->key, key, key_len);
	w->key[key_len] = 0;
	w->key_len = key_len + 1;
	chunk_names_add(&w->seen, &id);
	return w->row(w, &id, value, len);
}

static int walk_step(struct walk *w, uint32_t max)
{
	struct kv_range range = {w->key, w->key_len, w->end, sizeof(w->end), max};

	return kv_scan(w->s->kv, NULL, &range, walk_row, w, &w->more);
}

/* ---- changes ---- */

struct ids {
	struct chunk_key id[STEP];
	uint32_t n;
};

static int collect(struct walk *w, const struct chunk_key *id, const void *value, size_t len)
{
	struct ids *ids = w->arg;

	(void)value, (void)len;
	if (ids->n < STEP)
		ids->id[ids->n++] = *id;
	return 0;
}

struct edit {
	/* The change of one chunk; calls a function chunk_tx_*. */
	int (*change)(const struct edit *e, struct chunk_tx *tx);
	/* True if nothing of the chunk remains. */
	bool (*whole)(const struct edit *e, const struct chunk_key *id);
	const struct chunk_edits *how;
	uint32_t chunk_size;
	uint64_t off, end; /* range of the file */
};

/* The store's default: one group commit for all changes of a step. */
struct own {
	struct chunk_store *s;
	const struct chunk_edits *may; /* NULL: always permitted */
	struct chunk_tx tx[STEP];
	uint32_t n;
};

/* A chunk that is removed as a whole need not be read. No other member can have a lost one. */
static int own_begin(void *arg, const struct chunk_key *id, bool whole, struct chunk_tx *tx)
{
	struct chunk_store *s = ((struct own *)arg)->s;

	return whole ? chunk_tx_begin_over(s, id, tx) : chunk_tx_begin(s, id, tx);
}

static int own_join(void *arg, struct chunk_tx *tx)
{
	struct own *o = arg;
	int rc = o->may ? o->may->may(o->may->arg) : 0;

	/* The chain was replicated until now: versions it holds pending must be committed first. */
	if (rc == 0 && !list_empty(&tx->ent->held))
		rc = -LE_STALE_EPOCH;
	if (rc < 0) {
		chunk_tx_abort(tx);
		return rc;
	}
	ASSERT(o->n < STEP);
	o->tx[o->n] = *tx;
	chunk_tx_join(&o->tx[o->n++]);
	return 0;
}

static int own_wait(void *arg)
{
	struct own *o = arg;
	int rc = 0;

	for (uint32_t i = 0; i < o->n; i++) {
		int wait = chunk_tx_wait(&o->tx[i]);

		rc = rc < 0 ? rc : wait;
	}
	o->n = 0;
	return rc;
}

static int edit_step(const struct edit *e, const struct ids *ids, uint64_t *n_changed)
{
	void *arg = e->how->arg;
	int rc = 0, wait;

	for (uint32_t i = 0; i < ids->n && rc == 0; i++) {
		struct chunk_tx tx;

		rc = e->how->begin(arg, &ids->id[i], e->whole(e, &ids->id[i]), &tx);
		if (rc == 1) {
			rc = 0;
			continue;
		}
		if (rc == 0)
			rc = e->change(e, &tx);
		if (rc == 0 && tx.changes) {
			(*n_changed)++;
			rc = e->how->join(arg, &tx);
		}
	}
	wait = e->how->wait(arg);
	return rc < 0 ? rc : wait;
}

static bool always_whole(const struct edit *e, const struct chunk_key *id)
{
	(void)e, (void)id;
	return true;
}

static int change_remove(const struct edit *e, struct chunk_tx *tx)
{
	(void)e;
	return chunk_tx_remove(tx);
}

/* On the heap: too large for the stack of a fiber. */
struct work {
	struct ids ids;
	struct own own;
	struct chunk_edits own_edits;
	uint64_t n; /* chunks changed */
};

static int edit_begin(struct chunk_store *s, struct edit *e, struct work **ret_work)
{
	struct work *w = malloc(sizeof(*w));

	if (!w)
		return -LE_NOMEM;
	w->own.s = s;
	w->own.n = 0;
	w->own.may = e->how && e->how->may ? e->how : NULL;
	w->own_edits = (struct chunk_edits){&w->own, NULL, own_begin, own_join, own_wait};
	w->n = 0;
	if (!e->how || !e->how->begin)
		e->how = &w->own_edits;
	*ret_work = w;
	return 0;
}

static int edit_rows(struct chunk_store *s, const struct edit *e, const struct chunk_key *first,
		     const struct chunk_key *last, struct work *work)
{
	struct walk w = {.row = collect, .arg = &work->ids};

	walk_init(&w, s, first, last);
	while (w.more) {
		work->ids.n = 0;
		TRY(walk_step(&w, STEP));
		TRY(edit_step(e, &work->ids, &work->n));
	}
	return 0;
}

/* Changes the chunks that are lost, which fails like that of a chunk with an unreadable record.
 * Uncertain chunks (chunk_inventory.h) are skipped where no other member can have them: they do
 * not block the removal of a file. */
static int edit_lost(struct chunk_store *s, const struct edit *e, const struct chunk_key *first,
		     const struct chunk_key *last, struct work *work)
{
	for (;;) {
		uint64_t before = work->n;

		switch (inventory_range(&s->inventory, first, last, &work->ids.id[0])) {
		case INVENTORY_NONE:
			return 0;
		case INVENTORY_UNSURE:
			return inventory_whole(&s->inventory, first->chain) ? 0 : -LE_NOT_READY;
		case INVENTORY_LOST:
			break;
		}
		work->ids.n = 1;
		TRY(edit_step(e, &work->ids, &work->n));
		/* Another member reported that there is no such chunk, before the inventory showed
		 * the loss. */
		if (work->n == before) {
			chunk_cache_forget_none(&s->cache, first->chain);
			return -LE_CORRUPT;
		}
	}
}

static int edit_range(struct chunk_store *s, struct edit *e, const struct chunk_key *first,
		      const struct chunk_key *last, uint64_t *ret_n)
{
	struct work *work;
	bool found;
	int rc = edit_begin(s, e, &work);

	if (rc < 0)
		return rc;
	/* The index has committed changes only. */
	rc = group_commit_barrier(&s->gc);
	if (rc == 0)
		rc = edit_lost(s, e, first, last, work);
	/* The edit reads the records of these chunks anyway. */
	if (rc == 0)
		rc = chunk_find_lost_rows(s, first, last, NULL, &found);
	if (rc == 0)
		rc = edit_rows(s, e, first, last, work);
	*ret_n = work->n;
	free(work);
	return rc;
}

/* ---- removal of many files ---- */

#define SWEEP_MIN   8u /* rows read in one scan where few are expected */
#define FOREIGN_MAX 8u /* rows of other files that are read before the scan skips to the next
                        * file */

/* The rows of one kind of several files, in key order. Files that are adjacent, mostly those of
 * one directory, are read together. */
struct sweep {
	struct chunk_store *s;
	enum row_kind kind;
	const struct chunk_key *files;
	uint32_t n, at; /* all files before files[at] are done */
	bool inside;    /* the last row was one of files[at] */
	bool more;
	uint32_t step, n_foreign;
	uint8_t key[CHUNK_KEY_SIZE + 1]; /* the next key */
	size_t key_len;
	uint8_t end[CHUNK_KEY_SIZE + 1]; /* exclusive */
	struct ids *ids;
};

static void sweep_init(struct sweep *w, enum row_kind kind)
{
	struct chunk_key last = w->files[w->n - 1];

	last.idx = UINT64_MAX;
	w->kind = kind;
	w->at = 0;
	w->inside = false;
	w->more = true;
	/* Rows N have no value, so more of them are read. */
	w->step = kind == ROW_NAME ? STEP / 2 : SWEEP_MIN;
	chunk_key_encode(kind, &last, w->end);
	w->end[CHUNK_KEY_SIZE] = 0;
}

static bool same_file(const struct chunk_key *a, const struct chunk_key *b)
{
	return a->ino.v == b->ino.v && a->gen == b->gen;
}

static int sweep_row(void *arg, const void *key, size_t key_len, const void *value, size_t len)
{
	struct sweep *w = arg;
	struct ids *ids = w->ids;
	struct chunk_key id;

	(void)value, (void)len;
	TRY(chunk_key_decode(w->kind, key, key_len, &id));
	memcpy(w->key, key, key_len);
	w->key[key_len] = 0;
	w->key_len = key_len + 1;
	/* at stays below n: the range ends with the last file. */
	while (!same_file(&w->files[w->at], &id) &&
	       chunk_key_compare(&w->files[w->at], &id) < 0)
		w->at++;
	w->inside = same_file(&w->files[w->at], &id);
	if (!w->inside)
		return ++w->n_foreign == FOREIGN_MAX;
	ids->id[ids->n++] = id;
	return ids->n == STEP;
}

static int sweep_step(struct sweep *w)
{
	struct kv_range range = {w->key, 0, w->end, sizeof(w->end), w->step};

	if (!w->inside) {
		struct chunk_key first = w->files[w->at];

		first.idx = 0;
		chunk_key_encode(w->kind, &first, w->key);
		w->key_len = CHUNK_KEY_SIZE;
	}
	range.begin_len = w->key_len;
	w->n_foreign = 0;
	TRY(kv_scan(w->s->kv, NULL, &range, sweep_row, w, &w->more));
	w->step = w->n_foreign ? SWEEP_MIN : w->step * 2 < STEP ? w->step * 2 : STEP;
	return 0;
}

static int sweep_edit(struct sweep *w, const struct edit *e, enum row_kind kind,
		      struct work *work)
{
	work->ids.n = 0;
	for (sweep_init(w, kind); w->more;) {
		TRY(sweep_step(w));
		if (work->ids.n < STEP && w->more)
			continue;
		TRY(edit_step(e, &work->ids, &work->n));
		work->ids.n = 0;
	}
	return 0;
}

/* Removes chunks by their rows N first, which includes chunks without a row K. Rows K without a
 * row N follow. */
static int remove_files(struct chunk_store *s, const struct edit *e,
			const struct chunk_key *files, uint32_t n, struct work *work)
{
	struct sweep w = {.s = s, .files = files, .n = n, .ids = &work->ids};

	TRY(group_commit_barrier(&s->gc));
	for (uint32_t i = 0; i < n; i++) {
		struct chunk_key first = files[i], last = files[i];

		ASSERT(i == 0 || chunk_key_compare(&files[i - 1], &files[i]) < 0);
		first.idx = 0;
		last.idx = UINT64_MAX;
		TRY(edit_lost(s, e, &first, &last, work));
	}
	TRY(sweep_edit(&w, e, ROW_NAME, work));
	return sweep_edit(&w, e, ROW_CHUNK, work);
}

int chunk_remove_files(struct chunk_store *s, const struct chunk_edits *edits,
		       const struct chunk_key *files, uint32_t n, uint64_t *ret_n)
{
	struct edit e = {.change = change_remove, .whole = always_whole, .how = edits};
	struct work *work;
	int rc;

	if (n == 0) {
		*ret_n = 0;
		return 0;
	}
	TRY(edit_begin(s, &e, &work));
	rc = remove_files(s, &e, files, n, work);
	if (rc == 0)
		*ret_n = work->n;
	free(work);
	return rc;
}

int chunk_remove_file(struct chunk_store *s, const struct chunk_edits *edits,
		      const struct chunk_key *file, uint64_t *ret_n)
{
	return chunk_remove_files(s, edits, file, 1, ret_n);
}

/* ---- trim and punch ---- */

static bool trims_whole(const struct edit *e, const struct chunk_key *id)
{
	return id->idx * e->chunk_size >= e->off;
}

static int change_trim(const struct edit *e, struct chunk_tx *tx)
{
	uint64_t start = tx->ent->id.idx * e->chunk_size;

	return chunk_tx_trim(tx, start >= e->off ? 0 : (uint32_t)(e->off - start));
}

int chunk_trim_file(struct chunk_store *s, const struct chunk_edits *edits,
		    const struct chunk_key *file, uint32_t chunk_size, uint64_t size,
		    uint64_t *ret_n)
{
	struct edit e = {.change = change_trim,
			 .whole = trims_whole,
			 .how = edits,
			 .chunk_size = chunk_size,
			 .off = size};
	struct chunk_key first = *file, last = *file;

	if (!chunk_size_valid(chunk_size) || size > LEAT_FILE_SIZE_MAX)
		return -LE_INVAL;
	first.idx = size / chunk_size;
	last.idx = UINT64_MAX;
	return edit_range(s, &e, &first, &last, ret_n);
}

static bool punches_whole(const struct edit *e, const struct chunk_key *id)
{
	uint64_t start = id->idx * e->chunk_size;

	return e->off <= start && e->end - start >= e->chunk_size;
}

static int change_punch(const struct edit *e, struct chunk_tx *tx)
{
	uint64_t start = tx->ent->id.idx * e->chunk_size;
	uint64_t from = e->off > start ? e->off - start : 0, to = e->end - start;

	if (to > e->chunk_size)
		to = e->chunk_size;
	return chunk_tx_punch(tx, (uint32_t)from, (uint32_t)(to - from));
}

int chunk_punch_file(struct chunk_store *s, const struct chunk_edits *edits,
		     const struct chunk_punch *p, uint64_t *ret_n)
{
	struct edit e = {.change = change_punch,
			 .whole = punches_whole,
			 .how = edits,
			 .chunk_size = p->chunk_size,
			 .off = p->off};
	struct chunk_key first = p->file, last = p->file;

	if (!chunk_size_valid(p->chunk_size) || p->off > LEAT_FILE_SIZE_MAX || p->len == 0)
		return -LE_INVAL;
	e.end = p->len > LEAT_FILE_SIZE_MAX - p->off ? LEAT_FILE_SIZE_MAX : p->off + p->len;
	if (e.end <= p->off)
		return -LE_INVAL;
	first.idx = p->off / p->chunk_size;
	last.idx = (e.end - 1) / p->chunk_size;
	return edit_range(s, &e, &first, &last, ret_n);
}

/* ---- queries ---- */

struct stat_walk {
	struct chunk_stat st;
	uint32_t chunk_size;
	const struct ranges *preallocated; /* preallocated ranges; NULL: none */
};

/* Returns the summary of a chunk. A row that the chain has not committed is replaced by the
 * committed record. False: no such chunk. */
static bool row_info(struct chunk_store *s, const struct chunk_key *id, const void *value,
		     size_t len, struct chunk_summary_info *ret_info, int *ret_status)
{
	struct chunk_ent *e = chunk_ent_find(&s->cache, id);
	bool held = e && !list_empty(&e->held), exists = true;

	*ret_status = 0;
	if (held && e->rec)
		chunk_record_info(e->rec, ret_info);
	else if (held && store_ent_readable(e))
		exists = false;
	else if (held)
		*ret_status = -LE_CORRUPT_STORE;
	else
		*ret_status = chunk_record_summary(id, value, len, ret_info);
	if (e)
		chunk_ent_put(&s->cache, e);
	return exists;
}

/* Stored bytes of the ranges, in the chunk that begins at file offset start. */
static uint64_t covered_by(const struct chunk_record *rec, const struct ranges *preallocated,
			   uint64_t start)
{
	uint64_t covered = 0;

	for (uint32_t i = 0; i < rec->n_blocks; i++) {
		uint64_t at = start + (uint64_t)i * rec->block_size;
		uint64_t len = (uint64_t)round_units(rec->blocks[i].len) * UNIT_SIZE;

		covered += ranges_within(preallocated, at, at + len);
	}
	return covered;
}

/* info: of the row, which is intact. */
static int stat_preallocated(struct walk *w, const struct chunk_key *id, struct bytes value,
			 const struct chunk_summary_info *info)
{
	struct stat_walk *sw = w->arg;
	uint32_t size = sw->chunk_size ? sw->chunk_size : info->chunk_size;
	uint64_t start = id->idx * size;
	struct chunk_ent *e;
	struct chunk_record *rec;
	int rc = 0;

	if (!sw->preallocated || ranges_within(sw->preallocated, start, start + size) == 0)
		return 0;
	e = chunk_ent_find(&w->s->cache, id);
	if (e && !list_empty(&e->held)) { /* like row_info() */
		sw->st.covered += covered_by(e->rec, sw->preallocated, start);
	} else if ((rec = malloc(chunk_record_size(info->n_blocks, info->n_gaps))) == NULL) {
		rc = -LE_NOMEM;
	} else {
		rc = chunk_record_decode(id, value.data, value.len, rec, info->n_blocks);
		if (rc == 0)
			sw->st.covered += covered_by(rec, sw->preallocated, start);
		free(rec);
	}
	if (e)
		chunk_ent_put(&w->s->cache, e);
	return rc;
}

static int stat_row(struct walk *w, const struct chunk_key *id, const void *value, size_t len)
{
	struct stat_walk *sw = w->arg;
	struct chunk_summary_info info;
	uint64_t end;
	int rc;

	if (!row_info(w->s, id, value, len, &info, &rc))
		return 0;
	if (rc == 0)
		rc = stat_preallocated(w, id, bytes_of(value, (uint32_t)len), &info);
	if (rc == -LE_NOMEM)
		return rc;
	if (rc < 0) {
		sw->st.damaged = *id;
		return -LE_CORRUPT;
	}
	end = id->idx * (sw->chunk_size ? sw->chunk_size : info.chunk_size) + info.end;
	if (end > sw->st.size)
		sw->st.size = end;
	if (info.mtime_ns > sw->st.mtime_ns || sw->st.n_chunks == 0)
		sw->st.mtime_ns = info.mtime_ns;
	sw->st.used += info.used;
	sw->st.n_chunks++;
	return 0;
}

int chunk_stat(struct chunk_store *s, const struct chunk_key *file, uint32_t chunk_size,
	       const struct ranges *preallocated, struct chunk_stat *ret_stat)
{
	struct stat_walk sw;
	struct walk w = {.row = stat_row, .arg = &sw};
	struct chunk_key first = *file, last = *file;
	enum inventory_answer lost;
	bool again = true;
	int rc = 0;

	first.idx = 0;
	last.idx = UINT64_MAX;
	/* A size that was returned must not shrink after a crash. */
	TRY(group_commit_barrier(&s->gc));
	while (again && rc == 0) {
		sw = (struct stat_walk){.chunk_size = chunk_size, .preallocated = preallocated};
		lost = inventory_range(&s->inventory, &first, &last, &sw.st.damaged);
		/* While the last chunk may be lost, the size is not certain. */
		sw.st.uncertain = lost == INVENTORY_UNSURE;
		if (lost != INVENTORY_NONE)
			rc = lost == INVENTORY_LOST || inventory_whole(&s->inventory, first.chain)
				     ? -LE_CORRUPT
				     : -LE_NOT_READY;
		walk_init(&w, s, &first, &last);
		while (w.more && rc == 0)
			rc = walk_step(&w, SCAN_STEP);
		if (rc == 0)
			rc = chunk_find_lost_rows(s, &first, &last, &w.seen, &again);
	}
	if (rc == 0 || rc == -LE_CORRUPT)
		*ret_stat = sw.st;
	return rc;
}

struct list_walk {
	struct chunk_summary *c;
	uint32_t n;
};

static int list_row(struct walk *w, const struct chunk_key *id, const void *value, size_t len)
{
	struct list_walk *lw = w->arg;
	struct chunk_summary_info info;
	struct chunk_summary c = {.chunk = chunk_key_id(id)};
	int rc;

	if (!row_info(w->s, id, value, len, &info, &rc))
		return 0;
	if (rc == 0) {
		c.version = info.version;
		c.end = info.end;
		c.used = info.used;
		c.sum = info.sum;
		c.mtime_ns = info.mtime_ns;
	} /* else version 0: the chunk exists, but is damaged */
	lw->c[lw->n++] = c;
	return 0;
}

/* Reads a step of rows, starting at *from, and repeats it until no lost row was restored. */
static int list_step(struct walk *w, const struct chunk_key *from, uint32_t max)
{
	struct list_walk *lw = w->arg;
	struct chunk_key end = {from->chain, {UINT64_MAX}, UINT32_MAX, UINT64_MAX};
	struct chunk_key last = end;
	bool again = true;

	while (again) {
		lw->n = 0;
		walk_init(w, w->s, from, &end);
		TRY(walk_step(w, max));
		if (w->more)
			TRY(chunk_key_decode(ROW_CHUNK, w->key, CHUNK_KEY_SIZE, &last));
		else
			last = end;
		TRY(chunk_find_lost_rows(w->s, from, &last, &w->seen, &again));
	}
	return 0;
}

int chunk_list(struct chunk_store *s, const struct chunk_key *from, uint32_t max,
	       int (*each)(void *arg, const struct chunk_summary *c), void *arg, bool *ret_more)
{
	uint32_t step = max < SCAN_STEP ? max : SCAN_STEP;
	struct list_walk lw = {.c = calloc(step, sizeof(*lw.c))};
	struct walk w = {.s = s, .row = list_row, .arg = &lw};
	int rc = lw.c ? group_commit_barrier(&s->gc) : -LE_NOMEM;

	if (rc == 0)
		rc = list_step(&w, from, step);
	for (uint32_t i = 0; rc == 0 && i < lw.n; i++)
		rc = each(arg, &lw.c[i]);
	*ret_more = rc == 0 && w.more;
	free(lw.c);
	return rc;
}
