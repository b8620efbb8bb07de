/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of opens; see open_file.h. */
#include "mds/session/open_file.h"

#include <fcntl.h>
#include <stdlib.h>

#include "common/base/planted_bug.h"
#include "common/base/state_machine.h"
#include "common/proto/cred.h"

#define TO(state) (1u << SIZE_##state)
/* From a state without present writers to SHARED: an unsettled file is opened for writing again. */
STATE_MACHINE(size_moves, "size", N_SIZE_STATES,
	   .states = {"settled", "exclusive", "reported", "truncated", "shared",
		      "shared-truncated"},
	   .allowed = {
		   [SIZE_SETTLED] = TO(EXCLUSIVE) | TO(SHARED),
		   [SIZE_EXCLUSIVE] = TO(SETTLED) | TO(REPORTED) | TO(TRUNCATED) | TO(SHARED) |
				      TO(SHARED_TRUNCATED),
		   [SIZE_REPORTED] = TO(SETTLED) | TO(TRUNCATED) | TO(SHARED) |
				     TO(SHARED_TRUNCATED),
		   [SIZE_TRUNCATED] = TO(SETTLED) | TO(SHARED) | TO(SHARED_TRUNCATED),
		   [SIZE_SHARED] = TO(SETTLED) | TO(SHARED_TRUNCATED),
		   [SIZE_SHARED_TRUNCATED] = TO(SETTLED) | TO(SHARED),
	   })

static void size_move(struct open_file *f, enum size_state to)
{
	ASSERT(to != SIZE_SETTLED || f->n_writers == 0);
	if (f->size_state != to)
		f->size_state = (enum size_state)state_machine_move(&size_moves, (int)f->size_state,
								    (int)to);
}

void size_is_settled(struct open_file *f)
{
	size_move(f, SIZE_SETTLED);
}

void size_is_reported(struct open_file *f)
{
	ASSERT(f->n_writers > 0);
	if (f->size_state == SIZE_EXCLUSIVE)
		size_move(f, SIZE_REPORTED);
}

void size_is_shared(struct open_file *f)
{
	if (f->size_state != SIZE_SETTLED)
		size_move(f, size_reports_are_old(f) ? SIZE_SHARED_TRUNCATED : SIZE_SHARED);
}

void size_is_truncated(struct open_file *f, bool own)
{
	ASSERT(f->n_writers > 0);
	size_move(f, own && size_is_exclusive(f) ? SIZE_TRUNCATED : SIZE_SHARED_TRUNCATED);
}

/* The counts of the file include those of each of its opens. */
static void check_counts(const struct open_files *of, const struct open *o)
{
	const struct open_file *f = o->file;

	ASSERT(o->n_read >= o->assumed && o->n_write >= o->n_append);
	ASSERT(f->n_readers >= o->n_read && f->n_writers >= o->n_write);
	ASSERT(f->n_append >= o->n_append && f->n_writers >= f->n_append);
	ASSERT(of->n_opens >= (uint64_t)f->n_readers + f->n_writers);
	ASSERT(f->n_writers == 0 || f->size_state != SIZE_SETTLED);
}

void open_files_init(struct open_files *of, uint32_t n_max)
{
	*of = (struct open_files){.n_max = n_max};
	hmap_init(&of->map, 256);
	hmap_init(&of->opens, 256);
	list_init(&of->owed);
}

void open_files_fini(struct open_files *of)
{
	struct hmap_node *n = hmap_next(&of->map, NULL);

	while (n != NULL) {
		struct hmap_node *next = hmap_next(&of->map, n);
		struct open_file *f = container_of(n, struct open_file, node);

		list_for_each_safe (l, &f->opens) {
			struct open *o = list_entry(l, struct open, by_file);

			f->n_readers -= o->n_read;
			f->n_writers -= o->n_write;
			f->n_append -= o->n_append;
			of->n_opens -= o->n_read + o->n_write;
			list_remove(&o->by_session);
			free(o);
		}
		ASSERT(f->n_readers == 0 && f->n_writers == 0 && f->n_append == 0);
		of->n--;
		free(f);
		n = next;
	}
	ASSERT(of->n == 0 && of->n_opens == 0);
	hmap_fini(&of->map);
	hmap_fini(&of->opens);
}

struct open_file *open_file_find(struct open_files *of, struct ino ino)
{
	struct hmap_node *n = hmap_find(&of->map, hash_u64(ino.v));

	for (; n != NULL; n = hmap_find_next(n)) {
		struct open_file *f = container_of(n, struct open_file, node);

		if (f->ino.v == ino.v)
			return f;
	}
	return NULL;
}

int open_file_get(struct open_files *of, struct ino ino, struct open_file **ret_f)
{
	struct open_file *f = open_file_find(of, ino);

	if (f == NULL) {
		if (of->n >= of->n_max)
			return -LE_NFILE;
		f = calloc(1, sizeof(*f));
		if (f == NULL)
			return -LE_NOMEM;
		f->ino = ino;
		list_init(&f->opens);
		list_init(&f->owed);
		fmutex_init(&f->busy);
		hmap_insert(&of->map, &f->node, hash_u64(ino.v));
		of->n++;
	}
	f->refs++;
	*ret_f = f;
	return 0;
}

void open_file_put(struct open_files *of, struct open_file *f)
{
	ASSERT(f->refs > 0);
	if (--f->refs > 0 || !list_empty(&f->opens) || !list_empty(&f->owed))
		return;
	ASSERT(of->n > 0 && f->n_readers == 0 && f->n_writers == 0 && f->n_append == 0);
	ASSERT(!f->settling && !f->busy.held && f->truncation == TRUNCATION_NONE);
	ASSERT(f->quota == NULL);
	hmap_remove(&of->map, &f->node);
	of->n--;
	free(f);
}

static uint64_t open_hash(const struct session *se, struct ino ino)
{
	return hash_u64_2(se->id, ino.v);
}

struct open *open_find(struct open_files *of, const struct session *se, struct ino ino)
{
	struct hmap_node *n = hmap_find(&of->opens, open_hash(se, ino));

	for (; n != NULL; n = hmap_find_next(n)) {
		struct open *o = container_of(n, struct open, node);

		if (o->session == se && o->file->ino.v == ino.v)
			return o;
	}
	return NULL;
}

int open_prepare(struct open_files *of, struct session *se, struct ino ino, struct open **ret_open)
{
	struct open *o = open_find(of, se, ino);
	struct open_file *f;

	if (o == NULL) {
		TRY(open_file_get(of, ino, &f));
		o = calloc(1, sizeof(*o));
		if (o == NULL) {
			open_file_put(of, f);
			return -LE_NOMEM;
		}
		o->session = se;
		o->file = f;
		list_init(&o->by_assumed_open);
		hmap_insert(&of->opens, &o->node, open_hash(se, ino));
		list_push(&f->opens, &o->by_file);
		list_push(&se->opens, &o->by_session);
		ASSERT(f->refs > 0);
		f->refs--; /* now f->opens holds the file */
	}
	*ret_open = o;
	return 0;
}

void open_trim(struct open_files *of, struct open *o)
{
	struct open_file *f = o->file;

	check_counts(of, o);
	if (o->n_read + o->n_write > 0)
		return;
	ASSERT(!o->assumed);
	hmap_remove(&of->opens, &o->node);
	list_remove(&o->by_file);
	list_remove(&o->by_session);
	free(o);
	f->refs++;
	open_file_put(of, f);
}

void open_add(struct open_files *of, struct open *o, uint32_t flags, uint32_t n, bool settled)
{
	struct open_file *f = o->file;

	of->n_opens += n;
	if (!open_flags_write(flags)) {
		o->n_read += n;
		f->n_readers += n;
		check_counts(of, o);
		return;
	}
	if (f->n_writers == 0) {
		f->size = f->used = 0;
		f->mtime_ns = 0;
		f->append_end = settled ? APPEND_END_KNOWN : APPEND_END_UNKNOWN;
		f->had_writers = !settled;
		size_move(f, settled ? SIZE_EXCLUSIVE : SIZE_SHARED);
	}
	f->write_opens++;
	o->n_write += n;
	f->n_writers += n;
	if ((flags & O_APPEND) != 0) {
		o->n_append += n;
		f->n_append += n;
	}
	if (f->n_writers > o->n_write && !PLANTED_BUG(MDS_UNSHARED))
		size_is_shared(f);
	check_counts(of, o);
}

void open_grant(struct open *o, uint32_t flags)
{
	/* A writer reads too, to fill up a block that it writes in part. */
	o->granted |= open_flags_write(flags) ? PERM_R | PERM_W : PERM_R;
}

int open_assume(struct open_files *of, struct session *se, struct ino ino)
{
	struct open *o;

	TRY(open_prepare(of, se, ino, &o));
	if (o->assumed)
		return 0;
	o->assumed = true;
	list_push(&se->assumed, &o->by_assumed_open);
	open_add(of, o, 0, 1, true);
	open_grant(o, 0);
	return 0;
}

static void assumed_open_end(struct open *o)
{
	o->assumed = false;
	list_remove(&o->by_assumed_open);
}

void open_assumed_end(struct open_files *of, struct open *o)
{
	struct open_file *f = o->file;

	assumed_open_end(o);
	f->refs++;
	open_drop(of, o, 0);
	open_file_put(of, f);
}

void open_file_reserve(struct open_file *f, struct quota *q, uint64_t bytes)
{
	ASSERT(f->n_writers > 0);
	if (f->quota != NULL && f->quota != q)
		bytes += f->reserved; /* the file has moved to another project */
	if (f->quota != q) {
		if (f->quota != NULL)
			f->quota->reserved -= f->reserved;
		f->quota = q;
		f->reserved = 0;
	}
	f->reserved += bytes;
	q->reserved += bytes;
}

/* After the last close for writing, keeps the reservation until the file is settled, and queues
 * the file for that. */
static void owe(struct open_files *of, struct open_file *f)
{
	if (f->n_writers == 0 && f->quota != NULL && list_empty(&f->owed))
		list_push(&of->owed, &f->owed);
}

void open_file_counted(struct open_files *of, struct open_file *f)
{
	if (f == NULL || f->n_writers > 0 || f->quota == NULL)
		return;
	f->quota->reserved -= f->reserved;
	f->quota = NULL;
	f->reserved = 0;
	list_remove(&f->owed);
	f->refs++;
	open_file_put(of, f);
}

/* The right to write ends with the last open for writing. */
static void ungrant(struct open *o)
{
	if (o->n_write == 0)
		o->granted &= PERM_R;
}

void open_drop(struct open_files *of, struct open *o, uint32_t flags)
{
	struct open_file *f = o->file;

	if (open_flags_write(flags) && o->n_write > 0) {
		o->n_write--;
		f->n_writers--;
		of->n_opens--;
		if (((flags & O_APPEND) != 0 && o->n_append > 0) || o->n_append > o->n_write) {
			o->n_append--;
			f->n_append--;
		}
	} else if (!open_flags_write(flags) && o->n_read > o->assumed) {
		/* Not the assumed open: that ends when the client has reported its opens. */
		o->n_read--;
		f->n_readers--;
		of->n_opens--;
	}
	ungrant(o);
	owe(of, f);
	open_trim(of, o);
}

/* Drops that many opens without a report of what was written under them. */
static void drop_silent(struct open_files *of, struct open *o, uint32_t n_read, uint32_t n_write,
			uint32_t n_append)
{
	struct open_file *f = o->file;

	ASSERT(n_read <= o->n_read && n_write <= o->n_write && n_append <= o->n_append);
	f->n_readers -= n_read;
	f->n_writers -= n_write;
	f->n_append -= n_append;
	of->n_opens -= n_read + n_write;
	if (n_write > 0) {
		size_is_shared(f);
		f->append_end = APPEND_END_UNKNOWN;
	}
	o->n_read -= n_read;
	o->n_write -= n_write;
	o->n_append -= n_append;
	if (o->assumed && o->n_read == 0)
		assumed_open_end(o);
	ungrant(o);
	owe(of, f);
	open_trim(of, o);
}

void open_drop_all(struct open_files *of, struct open *o)
{
	drop_silent(of, o, o->n_read, o->n_write, o->n_append);
}

void open_set_old(struct open *o)
{
	o->old_read = o->n_read - o->assumed; /* the assumed one is queried separately */
	o->old_write = o->n_write;
	o->old_append = o->n_append;
	if (o->n_write > 0)
		o->file->append_end = APPEND_END_UNKNOWN;
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

void open_drop_old(struct open_files *of, struct open *o)
{
	uint32_t n_read = least(o->old_read, o->n_read), n_write = least(o->old_write, o->n_write);
	uint32_t n_append = least(o->old_append, o->n_append);

	/* n_append counts among n_write, also in what is left. */
	if (o->n_append - n_append > o->n_write - n_write)
		n_append = o->n_append - (o->n_write - n_write);
	o->old_read = o->old_write = o->old_append = 0;
	drop_silent(of, o, n_read, n_write, n_append);
}

bool open_file_other_writers(struct open_files *of, const struct open_file *f,
			     const struct session *se, bool but_append)
{
	const struct open *own = f == NULL || se == NULL ? NULL : open_find(of, se, f->ino);
	uint32_t n, n_own;

	if (f == NULL)
		return false;
	n = f->n_writers - (but_append ? f->n_append : 0);
	n_own = own == NULL ? 0 : own->n_write - (but_append ? own->n_append : 0);
	return n > n_own;
}
