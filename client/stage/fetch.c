/*
 * How a file arrives:
 *   1. data/NAME with all its bits: done. part/N with all its bits: rename, done.
 *   2. Otherwise part/N is opened (data/NAME, if it is there but was found wrong, becomes it) and
 * gets its full size allocated.
 *   3. Each chunk without a bit: if the part file existed before, what is there is verified first,
 * and kept if right; else it is read from the source, verified block by block, and written.
 *   4. A checkpoint, at least once a second, syncs all part files with new chunks, then sets their
 * bits and syncs the bitmap, then renames the finished ones. A failure stops all fibers after the
 * chunk at hand; a last checkpoint keeps what was verified.
 */
#include "client/stage/fetch.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/list.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"
#include "common/rt/slot.h"

#define WIDTH            8u /* files at once, and chunks of one file */
#define BUFFERS          16u
#define SMALL_CHUNKS     2u
#define SYNC_AT_ONCE     16u
#define OPEN_MAX         256u /* part files that wait for a checkpoint */
#define CHECKPOINT_US    1000000u
#define CHECKPOINT_BYTES (256u << 20)

/* A part file with chunks that are not yet durable. */
struct part {
	struct list link; /* in fetch.parts */
	struct fetch *fetch;
	uint32_t index;
	const struct manifest_file *f;
	struct env_file *file;
	struct vol_file *source; /* opened with the first missing chunk */
	struct fmutex source_lock;
	bool existed;       /* may hold chunks from before */
	bool complete;      /* every chunk verified: rename at the next checkpoint */
	uint64_t next, end; /* chunks */
	uint8_t *fresh,
		*syncing; /* bits of chunks written since the last checkpoint, and under sync */
	int rc;
};

struct fetch {
	struct fetch_options o;
	struct slot_pool *pool;
	struct fetch_report report;
	struct detail *d;
	int *code;
	int rc; /* the first failure: all stop */
	uint32_t next;
	struct list parts;
	uint32_t n_parts;
	uint64_t fresh_bytes, checkpoint_us;
	struct fmutex checkpoint_lock;
	char last_dir[STORE_PATH_SIZE]; /* made already */
	uint64_t n_bad;
};

/* ---- failures ---- */

static int code_of(int rc, int otherwise)
{
	switch (rc) {
	case -LE_NOSPC:
	case -LE_DQUOT:
		return LEAT_STAGE_NO_CAPACITY;
	case -LE_PERM:
	case -LE_ACCES:
	case -LE_ROFS:
		return LEAT_STAGE_PERMISSION;
	case -LE_CANCELED:
		return LEAT_STAGE_CANCELLED;
	default:
		return otherwise;
	}
}

static void fail(struct fetch *ft, int rc, int code, const char *path, uint64_t off,
		 const char *what)
{
	if (ft->rc)
		return;
	ft->rc = rc;
	*ft->code = code;
	detail_set(ft->d, rc, path, off, "%s: %s", what, status_text(rc));
}

static void fail_local(struct fetch *ft, int rc, const char *path, const char *what)
{
	fail(ft, rc, code_of(rc, LEAT_STAGE_INTERNAL), path, UINT64_MAX, what);
}

static void fail_source(struct fetch *ft, int rc, const struct manifest_file *f, uint64_t off,
			const char *what)
{
	int code = LEAT_STAGE_SOURCE_GONE;
	if (rc == -LE_CORRUPT)
		code = LEAT_STAGE_SOURCE_CORRUPT;
	else if (rc == -LE_IO)
		code = LEAT_STAGE_PARTIAL;
	fail(ft, rc, code_of(rc, code), f->path, off, what);
}

static bool stopped(struct fetch *ft)
{
	if (ft->rc == 0 && ft->o.cancel && *ft->o.cancel)
		fail(ft, -LE_CANCELED, LEAT_STAGE_CANCELLED, NULL, UINT64_MAX, "stopped");
	return ft->rc != 0;
}

static void report(struct fetch *ft)
{
	if (ft->o.report)
		ft->o.report(ft->o.arg, &ft->report);
}

/* ---- checkpoints ---- */

static void sync_part(void *arg)
{
	struct part *p = *(struct part **)arg;
	p->rc = env_file_datasync(p->file);
}

static bool any_bit(const uint8_t *bits, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (bits[i])
			return true;
	}
	return false;
}

static size_t bits_len(const struct part *p)
{
	return manifest_file_chunks(p->f) / 8 + 1;
}

/* data/NAME takes the place of part/N, with the mode and time of the original. */
static int publish(struct fetch *ft, const struct part *p)
{
	char from[STORE_PATH_SIZE], to[STORE_PATH_SIZE];
	store_part_path(ft->o.store, p->index, from);
	TRY(store_data_path(ft->o.store, p->f->path, to));
	struct timespec t = {p->f->mtime_ns / 1000000000, p->f->mtime_ns % 1000000000};
	struct timespec times[2] = {{0, UTIME_OMIT}, t};
	if (t.tv_nsec < 0) {
		times[1].tv_nsec += 1000000000;
		times[1].tv_sec--;
	}
	/* Neither matters for the content: a file system without them is fine. */
	if (chmod(from, (p->f->mode & 0555) | 0400) < 0 || utimensat(AT_FDCWD, from, times, 0) < 0)
		(void)0;
	return env_rename(ft->o.store->env, from, to);
}

static void end_part(struct fetch *ft, struct part *p)
{
	list_remove(&p->link);
	ft->n_parts--;
	env_file_close(p->file);
	vol_close(p->source);
	free(p->fresh);
	free(p->syncing);
	free(p);
}

static void take_bits(struct fetch *ft, struct part *p)
{
	for (uint64_t c = 0; c < manifest_file_chunks(p->f); c++) {
		if (p->syncing[c / 8] >> (c % 8) & 1)
			store_set_chunk(ft->o.store, p->f->first_chunk + c, true);
	}
	memset(p->syncing, 0, bits_len(p));
}

/* Those with fresh chunks; what becomes fresh from here on is the next checkpoint's. */
static uint32_t gather(struct fetch *ft, struct part **ret_parts, bool *ret_complete)
{
	uint32_t n = 0;
	list_for_each (pos, &ft->parts) {
		struct part *p = list_entry(pos, struct part, link);
		if (!any_bit(p->fresh, bits_len(p)) && !p->complete)
			continue;
		memcpy(p->syncing, p->fresh, bits_len(p));
		memset(p->fresh, 0, bits_len(p));
		ret_complete[n] = p->complete;
		ret_parts[n++] = p;
		if (n == OPEN_MAX)
			break;
	}
	return n;
}

static void checkpoint_locked(struct fetch *ft)
{
	struct part **parts = malloc(OPEN_MAX * sizeof(*parts));
	bool *complete = malloc(OPEN_MAX * sizeof(*complete));
	int rc = parts && complete ? 0 : -LE_NOMEM;
	ft->checkpoint_us = loop_now_us() + CHECKPOINT_US;
	ft->fresh_bytes = 0;
	uint32_t n = rc == 0 ? gather(ft, parts, complete) : 0;
	if (n)
		fiber_parallel("sync_part", sync_part, parts, sizeof(*parts), n, SYNC_AT_ONCE);
	for (uint32_t i = 0; i < n; i++) {
		if (parts[i]->rc < 0)
			fail_local(ft, parts[i]->rc, parts[i]->f->path, "cannot sync the copy");
		else
			take_bits(ft, parts[i]);
	}
	if (rc == 0 && n)
		rc = store_save_bitmap(ft->o.store);
	for (uint32_t i = 0; i < n; i++) {
		if (!complete[i] || parts[i]->rc < 0)
			continue;
		if (rc == 0)
			rc = publish(ft, parts[i]);
		if (rc == 0)
			ft->report.files++;
		end_part(ft, parts[i]);
	}
	if (rc < 0)
		fail_local(ft, rc, ft->o.store->dir, "cannot write to the copy");
	free(parts);
	free(complete);
	report(ft);
}

static void checkpoint(struct fetch *ft)
{
	fmutex_lock(&ft->checkpoint_lock);
	checkpoint_locked(ft);
	fmutex_unlock(&ft->checkpoint_lock);
}

static void checkpoint_if_due(struct fetch *ft)
{
	if (!ft->checkpoint_lock.held &&
	    (ft->n_parts >= OPEN_MAX || ft->fresh_bytes >= CHECKPOINT_BYTES ||
	     loop_now_us() >= ft->checkpoint_us))
		checkpoint(ft);
}

/* ---- chunks ---- */

static void chunk_verified(struct part *p, uint64_t chunk, uint32_t len)
{
	struct fetch *ft = p->fetch;
	p->fresh[chunk / 8] |= (uint8_t)(1u << chunk % 8);
	ft->fresh_bytes += len;
	ft->report.bytes_verified += len;
	report(ft);
}

/* The source's file, opened when it is first needed. */
static int source_file(struct part *p, struct vol_file **ret_file)
{
	char path[STORE_PATH_SIZE];
	int rc = 0;
	fmutex_lock(&p->source_lock);
	if (!p->source) {
		int n = snprintf(path, sizeof(path), "%s/%s", p->fetch->o.source_dir, p->f->path);
		rc = n >= (int)sizeof(path) ? -LE_NAMETOOLONG
					    : vol_open(p->fetch->o.source, path, &p->source);
	}
	fmutex_unlock(&p->source_lock);
	*ret_file = p->source;
	return rc;
}

/* Bytes that do not match: damaged, or of another version? */
static void fail_mismatch(struct part *p, uint64_t off)
{
	char path[STORE_PATH_SIZE];
	struct vol_stat st;
	struct fetch *ft = p->fetch;
	snprintf(path, sizeof(path), "%.2000s/%.2000s", ft->o.source_dir, p->f->path);
	int rc = vol_stat(ft->o.source, path, &st);
	if (rc < 0 || st.size != p->f->size || st.mtime_ns != p->f->mtime_ns)
		fail_source(ft, -LE_STALE, p->f, off,
			    "the source has changed since its manifest was made");
	else
		fail_source(ft, -LE_CORRUPT, p->f, off, "the source is damaged");
}

static void fetch_chunk(struct part *p, uint64_t chunk, struct slot *s)
{
	struct fetch *ft = p->fetch;
	struct vol_file *source;
	uint64_t off = chunk * MANIFEST_CHUNK;
	uint32_t len = manifest_chunk_len(p->f, chunk);
	if (p->existed && env_file_pread(p->file, s->data, len, off) == 0 &&
	    manifest_check(ft->o.manifest, p->f, off, s->data, len) < 0) {
		chunk_verified(p, chunk, len);
		return;
	}
	int rc = source_file(p, &source);
	if (rc == 0)
		rc = vol_pread_all(source, s->data, len, off);
	if (rc < 0) {
		fail_source(ft, rc == -LE_NODATA ? -LE_STALE : rc, p->f, off,
			    "cannot read the source");
		return;
	}
	ft->report.bytes_moved += len;
	int64_t bad = manifest_check(ft->o.manifest, p->f, off, s->data, len);
	if (bad >= 0) {
		fail_mismatch(p, (uint64_t)bad * p->f->block);
		return;
	}
	rc = env_file_pwrite(p->file, s->data, len, off);
	if (rc < 0)
		fail_local(ft, rc, p->f->path, "cannot write the copy");
	else
		chunk_verified(p, chunk, len);
}

static void fetch_chunks(void *arg)
{
	struct part *p = *(struct part **)arg;
	struct fetch *ft = p->fetch;
	while (p->next < p->end && !stopped(ft)) {
		uint64_t chunk = p->next++;
		struct slot *s;
		if (store_has_chunk(ft->o.store, p->f->first_chunk + chunk)) {
			ft->report.bytes_verified += manifest_chunk_len(p->f, chunk);
			continue;
		}
		int rc = slot_get(ft->pool, NO_DEADLINE, &s);
		if (rc < 0) {
			fail_local(ft, rc, p->f->path, "no buffer");
			return;
		}
		fetch_chunk(p, chunk, s);
		slot_unref(s);
		checkpoint_if_due(ft);
	}
}

/* ---- files ---- */

static bool has_all(struct fetch *ft, const struct manifest_file *f)
{
	for (uint64_t c = 0; c < manifest_file_chunks(f); c++) {
		if (!store_has_chunk(ft->o.store, f->first_chunk + c))
			return false;
	}
	return true;
}

static bool is_file_of(struct env *env, const char *path, uint64_t size)
{
	struct stat st;
	return env_stat(env, path, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == size;
}

static int make_parent(struct fetch *ft, const char *path)
{
	char dir[STORE_PATH_SIZE];
	memcpy(dir, path, strlen(path) + 1);
	*strrchr(dir, '/') = 0;
	if (strcmp(dir, ft->last_dir) == 0)
		return 0;
	TRY(env_mkdirs(ft->o.store->env, dir, 0755));
	memcpy(ft->last_dir, dir, strlen(dir) + 1);
	return 0;
}

/* Finished earlier? Then nothing remains to be done. Otherwise part/N holds whatever there is. */
static int settle(struct fetch *ft, uint32_t i, bool *ret_done)
{
	const struct manifest_file *f = &ft->o.manifest->files[i];
	struct env *env = ft->o.store->env;
	char part[STORE_PATH_SIZE], data[STORE_PATH_SIZE];
	store_part_path(ft->o.store, i, part);
	TRY(store_data_path(ft->o.store, f->path, data));
	TRY(make_parent(ft, data));
	bool all = has_all(ft, f), have_data = is_file_of(env, data, f->size);
	/* An empty file has no chunk that could have a bit: finished is what has its name. */
	*ret_done = all && have_data;
	if (*ret_done)
		return 0;
	if (!have_data || f->size == 0) {
		struct stat st;
		if (all && !is_file_of(env, part, f->size)) {
			for (uint64_t c = 0; c < manifest_file_chunks(f); c++)
				store_set_chunk(ft->o.store, f->first_chunk + c, false);
		}
		/* Something of the wrong size under its name goes. */
		return env_stat(env, data, &st) == 0 ? env_unlink(env, data) : 0;
	}
	return env_rename(env, data, part);
}

static int open_part(struct fetch *ft, uint32_t i, struct part **ret_part)
{
	char path[STORE_PATH_SIZE];
	struct stat st;
	struct part *p = calloc(1, sizeof(*p));
	if (!p)
		return -LE_NOMEM;
	p->fetch = ft;
	p->index = i;
	p->f = &ft->o.manifest->files[i];
	p->end = manifest_file_chunks(p->f);
	p->fresh = calloc(1, bits_len(p));
	p->syncing = calloc(1, bits_len(p));
	list_init(&p->link);
	fmutex_init(&p->source_lock);
	store_part_path(ft->o.store, i, path);
	/* One that was finished, but is wrong, is read-only by now. */
	(void)!chmod(path, 0644);
	int rc = p->fresh && p->syncing ? 0 : -LE_NOMEM;
	if (rc == 0)
		rc = env_file_open(ft->o.store->env, path, O_RDWR | O_CREAT, 0644, &p->file);
	if (rc == 0)
		rc = env_file_stat(p->file, &st);
	if (rc == 0) {
		p->existed = st.st_size > 0;
		if ((uint64_t)st.st_size != p->f->size)
			rc = env_file_truncate(p->file, p->f->size);
	}
	if (rc == 0 && p->f->size) {
		rc = env_file_fallocate(p->file, 0, 0, p->f->size);
		if (rc == -LE_NOTSUP)
			rc = 0;
	}
	ft->n_parts++;
	list_push(&ft->parts, &p->link);
	if (rc < 0)
		end_part(ft, p);
	else
		*ret_part = p;
	return rc;
}

static void fetch_file(struct fetch *ft, uint32_t i)
{
	const struct manifest_file *f = &ft->o.manifest->files[i];
	struct part *p, *ps[WIDTH];
	bool done;
	int rc = settle(ft, i, &done);
	if (rc == 0 && done) {
		ft->report.bytes_verified += f->size;
		ft->report.files++;
		report(ft);
		return;
	}
	if (rc == 0)
		rc = open_part(ft, i, &p);
	if (rc < 0) {
		fail_local(ft, rc, f->path, "cannot make the copy");
		return;
	}
	for (uint32_t k = 0; k < WIDTH; k++)
		ps[k] = p;
	uint32_t width = p->end <= SMALL_CHUNKS ? 1 : WIDTH;
	fiber_parallel("fetch_chunks", fetch_chunks, ps, sizeof(ps[0]), width, width);
	vol_close(p->source);
	p->source = NULL;
	p->complete = ft->rc == 0;
	checkpoint_if_due(ft);
}

static void fetch_files(void *arg)
{
	struct fetch *ft = *(struct fetch **)arg;
	while (ft->next < ft->o.manifest->n_files && !stopped(ft))
		fetch_file(ft, ft->next++);
}

/* The directories' names, once all files have theirs. */
static int sync_dirs(struct fetch *ft)
{
	char path[STORE_PATH_SIZE], last[STORE_PATH_SIZE] = "";
	struct env *env = ft->o.store->env;
	size_t root = strlen(ft->o.store->dir);
	for (uint32_t i = 0; i < ft->o.manifest->n_files; i++) {
		TRY(store_data_path(ft->o.store, ft->o.manifest->files[i].path, path));
		*strrchr(path, '/') = 0;
		if (strcmp(path, last) == 0)
			continue;
		memcpy(last, path, strlen(path) + 1);
		/* And those above it: each at least once. */
		while (strlen(path) > root) {
			TRY(env_syncdir(env, path));
			*strrchr(path, '/') = 0;
		}
	}
	TRY(env_syncdir(env, ft->o.store->dir));
	return env_syncdir(env, ft->o.store->base);
}

static int fetch_init(struct fetch *ft, const struct fetch_options *opts, int *ret_code,
		      struct detail *d)
{
	*ft = (struct fetch){.o = *opts, .d = d, .code = ret_code};
	*ret_code = LEAT_STAGE_INTERNAL;
	list_init(&ft->parts);
	fmutex_init(&ft->checkpoint_lock);
	ft->checkpoint_us = loop_now_us() + CHECKPOINT_US;
	return slot_pool_create(MANIFEST_CHUNK, BUFFERS, &ft->pool);
}

static void run_wide(struct fetch *ft, const char *name, void (*fn)(void *arg))
{
	struct fetch *fts[WIDTH];
	for (uint32_t i = 0; i < WIDTH; i++)
		fts[i] = ft;
	fiber_parallel(name, fn, fts, sizeof(fts[0]), WIDTH, WIDTH);
}

int fetch_run(const struct fetch_options *opts, struct fetch_report *ret_report, int *ret_code,
	      struct detail *d)
{
	struct fetch *ft = malloc(sizeof(*ft));
	if (!ft)
		return -LE_NOMEM;
	int rc = fetch_init(ft, opts, ret_code, d);
	if (rc < 0) {
		free(ft);
		return rc;
	}
	run_wide(ft, "fetch_files", fetch_files);
	while (!list_empty(&ft->parts)) {
		uint32_t before = ft->n_parts;
		checkpoint(ft);
		if (ft->n_parts == before)
			break;
	}
	while (!list_empty(&ft->parts))
		end_part(ft, list_entry(ft->parts.next, struct part, link));
	if (ft->rc == 0) {
		rc = sync_dirs(ft);
		if (rc < 0)
			fail_local(ft, rc, opts->store->dir, "cannot sync the copy");
	}
	slot_pool_destroy(ft->pool);
	rc = ft->rc;
	if (rc == 0)
		*ret_code = LEAT_STAGE_DONE;
	*ret_report = ft->report;
	free(ft);
	return rc;
}

/* ---- verifying ---- */

static void bad_chunk(struct fetch *ft, const struct manifest_file *f, uint64_t chunk, uint64_t off)
{
	store_set_chunk(ft->o.store, f->first_chunk + chunk, false);
	if (ft->n_bad++ == 0)
		detail_set(ft->d, -LE_CORRUPT, f->path, off, "the local copy is damaged");
}

static void verify_file(struct fetch *ft, uint32_t i)
{
	const struct manifest_file *f = &ft->o.manifest->files[i];
	char path[STORE_PATH_SIZE];
	struct env_file *file = NULL;
	struct slot *s;
	int rc = store_data_path(ft->o.store, f->path, path);
	if (rc == 0)
		rc = env_file_open(ft->o.store->env, path, O_RDONLY, 0, &file);
	if (rc == 0)
		rc = slot_get(ft->pool, NO_DEADLINE, &s);
	if (rc < 0 && rc != -LE_NOENT)
		fail_local(ft, rc, f->path, "cannot read the copy");
	for (uint64_t c = 0; c < manifest_file_chunks(f) && !stopped(ft); c++) {
		uint64_t off = c * MANIFEST_CHUNK;
		uint32_t len = manifest_chunk_len(f, c);
		int64_t bad = 0;
		if (rc == 0 && env_file_pread(file, s->data, len, off) == 0)
			bad = manifest_check(ft->o.manifest, f, off, s->data, len);
		else
			bad = (int64_t)(off / f->block);
		if (bad >= 0)
			bad_chunk(ft, f, c, (uint64_t)bad * f->block);
		else
			ft->report.bytes_verified += len;
		report(ft);
	}
	if (rc == -LE_NOENT && f->size == 0)
		ft->n_bad++;
	if (rc == 0)
		slot_unref(s);
	env_file_close(file);
	ft->report.files++;
}

static void verify_files(void *arg)
{
	struct fetch *ft = *(struct fetch **)arg;
	while (ft->next < ft->o.manifest->n_files && !stopped(ft))
		verify_file(ft, ft->next++);
}

int fetch_verify(const struct fetch_options *opts, struct fetch_report *ret_report,
		 uint64_t *ret_n_bad, int *ret_code, struct detail *d)
{
	struct fetch *ft = malloc(sizeof(*ft));
	if (!ft)
		return -LE_NOMEM;
	int rc = fetch_init(ft, opts, ret_code, d);
	if (rc < 0) {
		free(ft);
		return rc;
	}
	run_wide(ft, "verify_files", verify_files);
	slot_pool_destroy(ft->pool);
	rc = ft->rc;
	if (rc == 0)
		*ret_code = ft->n_bad ? LEAT_STAGE_LOCAL_CORRUPT : LEAT_STAGE_DONE;
	*ret_report = ft->report;
	*ret_n_bad = ft->n_bad;
	free(ft);
	return rc;
}
