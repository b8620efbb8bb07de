/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/fetch/fetch_part.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/dataset/beneath.h"
#include "client/stage/fetch/fetch_impl.h"
#include "client/stage/store/grant.h"
#include "client/stage/store/stamps.h"
#include "client/stage/store/store_path.h"
#include "client/stage/store/store_places.h"
#include "client/stage/store/store_space.h"
#include "common/base/assert.h"

#define SYNC_AT_ONCE     16u
#define READERS_US       200u /* poll interval: does a fiber still read a finished file? */
#define READERS_POLLS    5000u
#define DIRECT_UNIT      4096u /* alignment of writes with O_DIRECT: offset, length and memory */
#define CHECKPOINT_US    1000000u
#define CHECKPOINT_BYTES (64u << 20) /* more chunks arrive while these are synced */

/* ---- files of earlier runs ---- */

static bool has_all(struct fetch *ft, const struct manifest_file *f)
{
	for (uint64_t c = 0; c < manifest_file_chunks(f); c++) {
		if (!store_has_chunk(ft->o.store, f->first_chunk + c))
			return false;
	}
	return true;
}

static bool is_file_of(struct env *env, const char *path, uint64_t size, struct stat *ret_st)
{
	/* A file with a second name may be changed through that name. */
	return env_stat(env, path, ret_st) == 0 && S_ISREG(ret_st->st_mode) &&
	       ret_st->st_nlink <= 1 && (uint64_t)ret_st->st_size == size;
}

/* Returns whether the file belongs to its maker, or to the user that the manifest gives it to,
 * now or at the last run. A file of any other user is not used. */
static bool is_owned(const struct fetch *ft, uint32_t i, const struct stat *st)
{
	return st->st_uid == geteuid() || st->st_uid == ft->o.manifest->files[i].rights.uid ||
	       (ft->o.had && st->st_uid == ft->o.had->files[i].uid);
}

static int make_parent(struct fetch *ft, const char *path)
{
	char dir[STORE_PATH_SIZE];
	memcpy(dir, path, strlen(path) + 1);
	*strrchr(dir, '/') = 0;
	if (strcmp(dir, ft->last_dir) == 0)
		return 0;
	TRY(store_make_folder(ft->o.store, dir));
	memcpy(ft->last_dir, dir, strlen(dir) + 1);
	return 0;
}

/* Takes a finished file back, so that only its maker has access. -LE_BUSY: a process still has
 * it open for writing, and could change it after it was verified. */
static int take_back(struct env *env, const char *path)
{
	const struct rights alone = {.mode = 0600, .uid = geteuid(), .gid = getegid()};
	bool narrowed;
	int fd = beneath_open(env, path, O_RDONLY, 0);
	/* In simulation the file does not exist here. */
	if (fd < 0)
		return fd == -LE_NOENT ? 0 : fd;
	int rc = grant_fd(fd, &alone, &narrowed);
	if (rc == 0 && fchmod(fd, 0600) < 0)
		rc = status_from_errno(errno);
	if (rc == 0 && geteuid() == 0 && !stamp_watch(fd))
		rc = -LE_BUSY;
	close(fd);
	return rc;
}

/* Finds out whether an earlier run has finished the file. Otherwise leaves its data in part/N. */
static int settle(struct fetch *ft, uint32_t i, bool *ret_done)
{
	const struct manifest_file *f = &ft->o.manifest->files[i];
	struct env *env = ft->o.store->env;
	char part[STORE_PATH_SIZE], data[STORE_PATH_SIZE];
	store_part_path(ft->o.store, i, part);
	TRY(store_data_path(ft->o.store, i, f->path, data));
	/* Only in simulation; otherwise grant_tree has made the folders, with their rights. */
	if (!ft->o.store->folders)
		TRY(make_parent(ft, data));
	struct stat st;
	bool all = has_all(ft, f);
	bool have_data = is_file_of(env, data, f->size, &st) && is_owned(ft, i, &st);
	/* An empty file has no chunk and so no bit: it is finished once it has its name. */
	*ret_done = all && have_data && stamps_believe(ft->o.store, i, &st);
	if (*ret_done)
		return 0;
	if (!have_data || f->size == 0) {
		/* The data that the bits describe is missing, so the bits are wrong. */
		if (!is_file_of(env, part, f->size, &st))
			store_clear_file(ft->o.store, f);
		/* Remove a file of the wrong size or owner that has the final name. */
		return env_stat(env, data, &st) == 0 ? env_unlink(env, data) : 0;
	}
	/* The owner of a folder may have changed the file: every chunk is verified again. */
	if (store_clear_file(ft->o.store, f))
		TRY(store_save_bitmap(ft->o.store));
	int rc = take_back(env, data);
	if (rc == -LE_BUSY)
		return env_unlink(env, data);
	return rc < 0 ? rc : env_rename(env, data, part);
}

static void end_part(struct fetch *ft, struct part *p)
{
	if (!p->ended) {
		ASSERT(ft->n_parts > 0 && ft->work[p->index].part == p);
		list_remove(&p->link);
		ft->n_parts--;
		ft->work[p->index].part = NULL;
		p->ended = true;
	}
	if (p->refs > 0)
		return;
	env_file_close(p->file);
	env_file_close(p->direct);
	vol_close(p->source);
	free(p->fresh);
	free(p->syncing);
	free(p);
}

static size_t bits_len(const struct part *p)
{
	return manifest_file_chunks(p->f) / 8 + 1;
}

/* ---- open parts ---- */

static int open_to_write(struct env *env, const char *path, struct env_file **ret_file)
{
	int rc = env_file_open(env, path, O_RDWR | O_CREAT, 0600, ret_file);
	if (rc != -LE_ACCES)
		return rc;
	/* A finished file that turned out wrong is read-only. */
	int fd = beneath_open(env, path, O_RDONLY, 0);
	if (fd < 0)
		return fd;
	rc = fchmod(fd, 0600) < 0 ? status_from_errno(errno) : 0;
	close(fd);
	return rc < 0 ? rc : env_file_open(env, path, O_RDWR, 0, ret_file);
}

/* Releases the space that admission reserved for this file, and allocates it in the file. */
static int allocate(struct fetch *ft, struct part *p)
{
	const struct manifest *m = ft->o.manifest;
	bool zeros;
	store_reserve_use(ft->o.store, p->index, manifest_file_data(m, p->f));
	for (uint64_t off = 0, n; off < p->f->size; off += n) {
		n = manifest_run(m, p->f, off, p->f->size, &zeros);
		int rc = zeros ? 0 : env_file_fallocate(p->file, 0, off, n);
		if (rc == -LE_NOTSUP)
			return 0;
		TRY(rc);
	}
	return 0;
}

static int open_file(struct fetch *ft, struct part *p)
{
	struct work *w = &ft->work[p->index];
	char path[STORE_PATH_SIZE];
	struct stat st;
	store_part_path(ft->o.store, p->index, path);
	TRY(open_to_write(ft->o.store->env, path, &p->file));
	TRY(env_file_stat(p->file, &st));
	if (!ft->o.from_peer && p->f->size >= DIRECT_UNIT) {
		TRY(env_file_open(ft->o.store->env, path, O_WRONLY | O_DIRECT, 0, &p->direct));
		if (!env_file_is_direct(p->direct)) {
			env_file_close(p->direct);
			p->direct = NULL;
		}
	}
	if (w->opened)
		return 0;
	w->opened = true;
	w->existed = st.st_size > 0;
	ft->new_parts |= 1u << store_place(ft->o.store, p->index);
	if ((uint64_t)st.st_size != p->f->size)
		TRY(env_file_truncate(p->file, p->f->size));
	return allocate(ft, p);
}

static struct part *part_create(struct fetch *ft, uint32_t file)
{
	struct part *p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->fetch = ft;
	p->index = file;
	p->f = &ft->o.manifest->files[file];
	p->fresh = calloc(1, bits_len(p));
	p->syncing = calloc(1, bits_len(p));
	list_init(&p->link);
	fmutex_init(&p->lock);
	if (!p->fresh || !p->syncing) {
		free(p->fresh);
		free(p->syncing);
		free(p);
		return NULL;
	}
	ft->n_parts++;
	list_push(&ft->parts, &p->link);
	ft->work[file].part = p;
	return p;
}

struct part *part_get(struct fetch *ft, uint32_t file)
{
	struct part *p = ft->work[file].part;
	if (!p)
		p = part_create(ft, file);
	if (!p) {
		fetch_fail_local(ft, -LE_NOMEM, ft->o.manifest->files[file].path, "no memory");
		return NULL;
	}
	p->refs++;
	fmutex_lock(&p->lock);
	int rc = p->file ? 0 : open_file(ft, p);
	fmutex_unlock(&p->lock);
	if (rc == 0)
		return p;
	fetch_fail_local(ft, rc, p->f->path, "cannot make the copy");
	part_put(p);
	return NULL;
}

/* Writes whole units with O_DIRECT: bytes that are only moved through are not worth the page cache.
 * The end of a file, which is no whole unit, goes through the page cache. One sync covers both. */
static int write_run(struct part *p, const void *buf, uint32_t len, uint64_t off)
{
	uint32_t whole = p->direct ? len / DIRECT_UNIT * DIRECT_UNIT : 0;
	if (whole) {
		int rc = env_file_pwrite(p->direct, buf, whole, off);
		/* Some file systems reject O_DIRECT only at the write. */
		if (rc == -LE_INVAL)
			whole = 0;
		else if (rc < 0)
			return rc;
	}
	if (whole == len)
		return 0;
	return env_file_pwrite(p->file, (const char *)buf + whole, len - whole, off + whole);
}

static int write_zeros(struct part *p, const void *buf, uint32_t len, uint64_t off)
{
	const int how = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	if (!p->fetch->work[p->index].existed)
		return 0;
	int rc = env_file_fallocate(p->file, how, off, len);
	return rc == -LE_NOTSUP ? write_run(p, buf, len, off) : rc;
}

int part_write(struct part *p, const void *buf, uint32_t len, uint64_t off)
{
	for (uint32_t at = 0, n; at < len; at += n) {
		const char *from = (const char *)buf + at;
		bool zeros;
		n = (uint32_t)manifest_run(p->fetch->o.manifest, p->f, off + at, off + len, &zeros);
		TRY(zeros ? write_zeros(p, from, n, off + at) : write_run(p, from, n, off + at));
	}
	return 0;
}

void part_put(struct part *p)
{
	ASSERT(p->refs > 0);
	if (--p->refs == 0 && p->ended)
		end_part(p->fetch, p);
}

void part_settle(struct fetch *ft, uint32_t file)
{
	const struct manifest_file *f = &ft->o.manifest->files[file];
	struct work *w = &ft->work[file];
	bool done;
	w->left_out = !store_has_file(ft->o.store, file);
	if (w->left_out)
		return;
	int rc = settle(ft, file, &done);
	if (rc < 0) {
		fetch_fail_local(ft, rc, f->path, "cannot make the copy");
		return;
	}
	for (uint64_t c = 0; c < manifest_file_chunks(f); c++) {
		if (!store_has_chunk(ft->o.store, f->first_chunk + c)) {
			w->missing++;
			continue;
		}
		bit_set(ft->done, f->first_chunk + c);
		ft->report.bytes_verified += manifest_chunk_len(f, c);
	}
	if (done) {
		ft->report.files++;
		fetch_tell(ft);
	} else if (w->missing == 0) {
		struct part *p = part_get(ft, file);
		if (p) {
			p->complete = true;
			part_put(p);
		}
		checkpoint_if_due(ft);
	}
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

/* Waits until no fiber reads or writes the part, then closes its file. Returns a descriptor for
 * reading only. */
static int open_finished(struct part *p, const char *path)
{
	for (uint32_t i = 0; i < READERS_POLLS && p->refs > 1; i++) {
		int rc = fiber_sleep_us(READERS_US);
		(void)rc;
	}
	int fd = beneath_open(p->fetch->o.store->env, path, O_RDONLY, 0);
	if (fd < 0 || p->refs > 1)
		return fd;
	env_file_close(p->file);
	env_file_close(p->direct);
	p->file = p->direct = NULL;
	return fd;
}

/* Renames part/N to its final name, with the rights and time of the original. fd: the file; -1:
 * it is simulated. */
static int give_name(struct fetch *ft, const struct part *p, int fd)
{
	char from[STORE_PATH_SIZE], to[STORE_PATH_SIZE];
	store_part_path(ft->o.store, p->index, from);
	TRY(store_data_path(ft->o.store, p->index, p->f->path, to));
	struct timespec t = {p->f->mtime_ns / 1000000000, p->f->mtime_ns % 1000000000};
	struct timespec times[2] = {{0, UTIME_OMIT}, t};
	if (t.tv_nsec < 0) {
		times[1].tv_nsec += 1000000000;
		times[1].tv_sec--;
	}
	bool narrowed = false;
	const struct rights given = p->f->rights;
	/* The file gets its rights before its name, by which readers find it. */
	if (fd >= 0)
		TRY(grant_fd(fd, &given, &narrowed));
	/* The content does not depend on it, so a file system may lack it. */
	if (fd >= 0 && futimens(fd, times) < 0)
		(void)0;
	ft->report.narrowed += narrowed;
	TRY(ft->o.store->folders ? grant_name(ft->o.store, ft->o.manifest, p->index, from)
				 : env_rename(ft->o.store->env, from, to));
	/* age_copy may have narrowed the rights in the meantime and not found the file yet. */
	if (fd >= 0 && !rights_equal(&given, &p->f->rights))
		TRY(grant_fd(fd, &p->f->rights, &narrowed));
	return store_link_data(ft->o.store, p->index, p->f->path);
}

static int publish(struct part *p, struct stamping *x)
{
	struct fetch *ft = p->fetch;
	char from[STORE_PATH_SIZE];
	/* Simulated files have no descriptor. */
	if (env_file_fd(p->file) < 0)
		return give_name(ft, p, -1);
	store_part_path(ft->o.store, p->index, from);
	int fd = open_finished(p, from);
	if (fd < 0)
		return fd;
	/* Without root all files belong to this user, and need no stamp. */
	bool watched = geteuid() == 0 && stamp_watch(fd);
	int rc = give_name(ft, p, fd);
	if (geteuid() == 0)
		stamping_add(x, p->index, fd, watched && rc == 0);
	else
		close(fd);
	return rc;
}

static void take_bits(struct fetch *ft, struct part *p)
{
	for (uint64_t c = 0; c < manifest_file_chunks(p->f); c++) {
		uint64_t chunk = p->f->first_chunk + c;
		if (!bit_get(p->syncing, c) || store_has_chunk(ft->o.store, chunk))
			continue;
		ASSERT(p->rc == 0 && bit_get(ft->done, chunk));
		store_set_chunk(ft->o.store, chunk, true);
		if (ft->in_window && bit_get(ft->in_window, chunk)) {
			ASSERT(ft->window_left > 0);
			ft->window_left--;
		}
	}
	memset(p->syncing, 0, bits_len(p));
}

/* Collects the parts with fresh chunks. Chunks that arrive later belong to the next checkpoint. */
static uint32_t gather(struct fetch *ft, struct part **ret_parts, bool *ret_complete)
{
	uint32_t n = 0;
	list_for_each (pos, &ft->parts) {
		struct part *p = list_entry(pos, struct part, link);
		if (!p->file || (!any_bit(p->fresh, bits_len(p)) && !p->complete))
			continue;
		memcpy(p->syncing, p->fresh, bits_len(p));
		memset(p->fresh, 0, bits_len(p));
		ret_complete[n] = p->complete;
		p->refs++;
		ret_parts[n++] = p;
		if (n == OPEN_MAX)
			break;
	}
	return n;
}

/* Closes parts without fresh chunks, if many are open. A later chunk opens its part again. */
static void close_idle(struct fetch *ft)
{
	for (struct list *pos = ft->parts.next; pos != &ft->parts && ft->n_parts > OPEN_MAX / 2;) {
		struct part *p = list_entry(pos, struct part, link);
		pos = pos->next;
		if (p->refs == 0 && !p->complete && !any_bit(p->fresh, bits_len(p)))
			end_part(ft, p);
	}
}

static int name_files(struct fetch *ft, struct part **parts, const bool *complete, uint32_t n,
		      int rc)
{
	struct stamping *x = calloc(1, sizeof(*x));
	if (x)
		x->s = ft->o.store;
	else if (rc == 0)
		rc = -LE_NOMEM;
	for (uint32_t i = 0; i < n; i++) {
		struct part *p = parts[i];
		bool finished = complete[i] && p->rc == 0;
		/* Readers that come later open the file by its final name. */
		if (complete[i])
			end_part(ft, p);
		if (finished && rc == 0)
			rc = publish(p, x);
		if (finished && rc == 0)
			ft->report.files++;
		part_put(p);
	}
	if (x)
		stamping_end(x);
	free(x);
	return rc;
}

/* Syncs the names of new part files, before the bits of their chunks become durable. */
static int sync_names(struct fetch *ft)
{
	struct local_store *s = ft->o.store;
	uint32_t fresh = ft->new_parts;
	char path[STORE_PATH_SIZE];
	ft->new_parts = 0;
	for (uint32_t k = 0; k <= s->n_more; k++) {
		if (!(fresh >> k & 1))
			continue;
		snprintf(path, sizeof(path), "%.4000s/part", store_dir_of(s, k));
		TRY(env_syncdir(s->env, path));
	}
	if (!fresh || ft->named)
		return 0;
	/* Only once: the folders above, and the name of the bitmap. */
	ft->named = true;
	for (uint32_t k = 0; k <= s->n_more; k++)
		TRY(env_syncdir(s->env, store_dir_of(s, k)));
	return env_syncdir(s->env, s->base);
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
	uint64_t window_left = ft->window_left;
	for (uint32_t i = 0; i < n; i++) {
		if (parts[i]->rc < 0)
			fetch_fail_local(ft, parts[i]->rc, parts[i]->f->path,
					 "cannot sync the copy");
		else
			take_bits(ft, parts[i]);
	}
	if (rc == 0 && n)
		rc = sync_names(ft);
	if (rc == 0 && n)
		rc = store_save_bitmap(ft->o.store);
	rc = name_files(ft, parts, complete, n, rc);
	if (rc < 0)
		fetch_fail_local(ft, rc, ft->o.store->dir, "cannot write to the copy");
	else if (window_left && ft->window_left == 0 && ft->o.window)
		ft->o.window(ft->o.arg);
	close_idle(ft);
	free(parts);
	free(complete);
	fetch_tell(ft);
}

static void checkpoint(struct fetch *ft)
{
	fmutex_lock(&ft->checkpoint_lock);
	checkpoint_locked(ft);
	fmutex_unlock(&ft->checkpoint_lock);
}

void checkpoint_if_due(struct fetch *ft)
{
	bool due = ft->n_parts >= OPEN_MAX || ft->fresh_bytes >= CHECKPOINT_BYTES ||
		   loop_now_us() >= ft->checkpoint_us;
	/* While a checkpoint is slow, other fibers wait for it rather than open ever more files. */
	if (due && (!ft->checkpoint_lock.held || ft->n_parts >= 2 * OPEN_MAX))
		checkpoint(ft);
}

void checkpoint_rest(struct fetch *ft)
{
	while (!list_empty(&ft->parts)) {
		uint32_t before = ft->n_parts;
		checkpoint(ft);
		if (ft->n_parts == before)
			break;
	}
	for (struct list *pos = ft->parts.next; pos != &ft->parts;) {
		struct part *p = list_entry(pos, struct part, link);
		pos = pos->next;
		end_part(ft, p);
	}
}

/* Syncs the folders of `last` that do not contain `next`, deepest first, and none above root. */
static int sync_left(struct env *env, char *last, const char *next, size_t root)
{
	for (size_t len = strlen(last); len > root; len = strlen(last)) {
		if (strncmp(last, next, len) == 0 && next[len] == '/')
			return 0;
		TRY(env_syncdir(env, last));
		*strrchr(last, '/') = 0;
	}
	return 0;
}

/* Syncs the folders of directory k. Files are in the order of their paths, so each folder is
 * synced only once. */
static int sync_folders(struct fetch *ft, uint32_t k, char *path, char *last)
{
	struct env *env = ft->o.store->env;
	const char *dir = store_dir_of(ft->o.store, k);
	size_t root = strlen(dir);
	last[0] = 0;
	for (uint32_t i = 0; i < ft->o.manifest->n_files; i++) {
		/* The first directory has the name of every file, as a file or as a link. */
		if ((k > 0 && store_place(ft->o.store, i) != k) || !store_has_file(ft->o.store, i))
			continue;
		int n = snprintf(path, STORE_PATH_SIZE, "%s/data/%s", dir,
				 ft->o.manifest->files[i].path);
		if (n >= (int)STORE_PATH_SIZE)
			return -LE_NAMETOOLONG;
		TRY(sync_left(env, last, path, root));
		*strrchr(path, '/') = 0;
		memcpy(last, path, strlen(path) + 1);
	}
	TRY(sync_left(env, last, "", root));
	return env_syncdir(env, dir);
}

int parts_sync_dirs(struct fetch *ft)
{
	char *path = malloc(STORE_PATH_SIZE), *last = malloc(STORE_PATH_SIZE);
	int rc = path && last ? 0 : -LE_NOMEM;
	for (uint32_t k = 0; rc == 0 && k <= ft->o.store->n_more; k++)
		rc = sync_folders(ft, k, path, last);
	free(path);
	free(last);
	return rc < 0 ? rc : env_syncdir(ft->o.store->env, ft->o.store->base);
}
