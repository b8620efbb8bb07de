/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/heal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/dataset/beneath.h"
#include "client/stage/store/local_store.h"
#include "client/stage/store/store_lock.h"
#include "client/stage/store/store_marks.h"
#include "client/stage/store/store_places.h"
#include "client/stage/store/store_ready.h"
#include "common/rt/env.h"

struct healing {
	const struct heal_options *o;
	struct local_store store;
	uint8_t *buf;  /* a chunk */
	uint32_t file; /* the present file */
	int fd;        /* of the present file; -1: none */
	struct stat st;
	char why[160]; /* why the file that was tried last must not be written; "": it may */
	/* Arguments and result of the functions that run on a worker. */
	bool write, punch;
	uint64_t off, len;
	uint8_t *at;
	int rc;
};

/* ---- on a worker thread ---- */

__attribute__((format(printf, 2, 3))) static int refuse(struct healing *h, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(h->why, sizeof(h->why), fmt, ap);
	va_end(ap);
	return -LE_FOREIGN;
}

/* Opens a file below the copy's folder without following links, since folders on the way may
 * belong to other users. */
static int open_below(struct healing *h, const char *dir, const char *path)
{
	char data[STORE_PATH_SIZE];
	if (snprintf(data, sizeof(data), "data/%s", path) >= (int)sizeof(data))
		return -LE_NAMETOOLONG;
	int at = beneath_open_dir(NULL, dir);
	if (at < 0)
		return at;
	int fd = beneath_openat(at, data, O_RDONLY | O_NONBLOCK, RESOLVE_NO_XDEV);
	close(at);
	if (fd == -LE_XDEV)
		return refuse(h, "something is mounted there, or on a folder above it: unmount it");
	if (fd == -LE_LOOP)
		return refuse(h, "it, or a folder above it, is a symbolic link: remove it");
	return fd;
}

/* Refuses a file that another user may have moved there: the owner of a folder of the copy can. */
static int may_write(struct healing *h, const struct manifest_file *f)
{
	/* Root gives each file to its owner, other users cannot. */
	uid_t uid = geteuid() == 0 ? f->rights.uid : geteuid();
	if (!S_ISREG(h->st.st_mode))
		return refuse(h, "it is no regular file: remove it");
	if (h->st.st_nlink != 1)
		return refuse(h, "it has another name as well (a hard link), which may be "
				 "anybody's: remove it");
	if (h->st.st_uid != uid)
		return refuse(h, "it belongs to user %u, not to user %u: remove it", h->st.st_uid,
			      uid);
	return 0;
}

/* Reopens the very file that fd refers to, for writing. Finished files are read-only, so the
 * owner adds the right to write until the open is done. */
static int reopen_to_write(int fd, const struct stat *st)
{
	char self[64];
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	int out = open(self, O_RDWR | O_CLOEXEC);
	if (out < 0 && errno == EACCES && st->st_uid == geteuid()) {
		mode_t mode = st->st_mode & 07777;
		if (fchmod(fd, mode | 0200) < 0)
			return status_from_errno(errno);
		out = open(self, O_RDWR | O_CLOEXEC);
		int rc = out < 0 ? status_from_errno(errno) : 0;
		if (fchmod(fd, mode) < 0 && rc == 0)
			rc = status_from_errno(errno);
		if (rc < 0 && out >= 0)
			close(out);
		return rc < 0 ? rc : out;
	}
	return out < 0 ? status_from_errno(errno) : out;
}

static void open_fn(void *arg)
{
	struct healing *h = arg;
	const struct manifest_file *f = &h->o->m->files[h->file];
	const char *dir = store_dir_of(&h->store, store_place(&h->store, h->file));
	h->why[0] = 0;
	int fd = open_below(h, dir, f->path);
	h->rc = fd < 0                    ? fd
		: fstat(fd, &h->st) < 0   ? status_from_errno(errno)
		: h->write                ? may_write(h, f)
		: !S_ISREG(h->st.st_mode) ? -LE_FOREIGN
					  : 0;
	/* A file of another length is damaged as a whole: only `stage in` can make it again. */
	if (h->rc == 0 && (uint64_t)h->st.st_size != f->size)
		h->rc = -LE_CORRUPT;
	if (h->rc == 0 && h->write) {
		h->rc = reopen_to_write(fd, &h->st);
		close(fd);
		fd = h->rc;
	}
	if (h->rc < 0 && fd >= 0)
		close(fd);
	else if (h->rc >= 0)
		h->fd = fd;
	h->rc = h->rc < 0 ? h->rc : 0;
}

static void move_fn(void *arg)
{
	const int how = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	struct healing *h = arg;
	h->rc = 0;
	/* Where the file system has no holes, the zeros are written. */
	if (h->punch && fallocate(h->fd, how, (off_t)h->off, (off_t)h->len) == 0)
		return;
	if (h->punch && errno != EOPNOTSUPP) {
		h->rc = status_from_errno(errno);
		return;
	}
	for (uint64_t done = 0; done < h->len && h->rc == 0;) {
		ssize_t n =
			h->write
				? pwrite(h->fd, h->at + done, h->len - done, (off_t)(h->off + done))
				: pread(h->fd, h->at + done, h->len - done, (off_t)(h->off + done));
		if (n < 0 && errno != EINTR)
			h->rc = status_from_errno(errno);
		else if (n == 0)
			h->rc = -LE_NODATA;
		else if (n > 0)
			done += (uint64_t)n;
	}
}

static void sync_fn(void *arg)
{
	struct healing *h = arg;
	const struct timespec times[2] = {{0, UTIME_OMIT}, h->st.st_mtim};
	h->rc = fdatasync(h->fd) < 0 ? status_from_errno(errno) : 0;
	(void)!futimens(h->fd, times); /* the content does not depend on the time */
}

static int on_worker(struct healing *h, void (*fn)(void *arg))
{
	TRY(env_offload(h->o->env, fn, h));
	return h->rc;
}

/* ---- chunks ---- */

static void close_file(struct healing *h)
{
	if (h->fd >= 0)
		close(h->fd);
	h->fd = -1;
}

/* Opens the file of a chunk, unless it is open already, and closes the previous one. */
static int open_for(struct healing *h, uint64_t chunk, bool to_write)
{
	uint32_t file = manifest_file_of_chunk(h->o->m, chunk);
	if (h->fd >= 0 && file == h->file)
		return 0;
	close_file(h);
	h->file = file;
	h->write = to_write;
	return on_worker(h, open_fn);
}

static int move(struct healing *h, bool to_write, uint64_t off, uint64_t len, uint8_t *at)
{
	h->write = to_write;
	h->off = off;
	h->len = len;
	h->at = at;
	return on_worker(h, move_fn);
}

/* Reads the chunk into the buffer. Returns 1 if it is right, 0 if not. */
static int look(struct healing *h, uint64_t chunk)
{
	const struct manifest *m = h->o->m;
	const struct manifest_file *f = &m->files[h->file];
	uint64_t i = chunk - f->first_chunk, off = i * MANIFEST_CHUNK;
	uint32_t len = manifest_chunk_len(f, i);
	TRY(move(h, false, off, len, h->buf));
	return manifest_check(m, f, off, h->buf, len) < 0;
}

/* Replaces the wrong blocks of the chunk in the buffer, there and on the disk. */
static int mend(struct healing *h, uint64_t chunk)
{
	const struct manifest *m = h->o->m;
	const struct manifest_file *f = &m->files[h->file];
	uint64_t base = (chunk - f->first_chunk) * MANIFEST_CHUNK;
	uint32_t len = manifest_chunk_len(f, chunk - f->first_chunk);
	int64_t bad;
	while ((bad = manifest_check(m, f, base, h->buf, len)) >= 0) {
		uint64_t off = (uint64_t)bad * f->block, left = base + len - off;
		uint64_t n = left < f->block ? left : f->block;
		uint8_t *at = h->buf + (off - base);
		bool zeros;
		manifest_run(m, f, off, off + n, &zeros);
		/* Zeros become a hole again. */
		if (zeros)
			memset(at, 0, n);
		else
			TRY(h->o->read(h->o->arg, h->file, off, n, at));
		if (manifest_check(m, f, off, at, n) >= 0)
			return -LE_CORRUPT;
		h->punch = zeros;
		int rc = move(h, true, off, n, at);
		h->punch = false;
		TRY(rc);
	}
	return 0;
}

/* Sets `bad` to the chunks that are wrong, unreadable or without their bit. */
static int find_bad(struct healing *h, const uint64_t *chunks, uint32_t n, uint64_t *bad,
		    uint32_t *ret_n)
{
	*ret_n = 0;
	for (uint32_t i = 0; i < n; i++) {
		/* A wrong number in a report must not prevent the repair of the other chunks. */
		if (chunks[i] >= h->o->m->n_chunks)
			continue;
		int rc = open_for(h, chunks[i], false);
		rc = rc < 0 ? rc : look(h, chunks[i]);
		if (rc <= 0 || !store_has_chunk(&h->store, chunks[i]))
			bad[(*ret_n)++] = chunks[i];
	}
	close_file(h);
	return 0;
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

/* Repairs the chunks of one file, from bad[0] on, and sets the bits of those that are right and
 * durable. Returns how many chunks it has handled. */
static uint32_t heal_file(struct healing *h, const uint64_t *bad, uint32_t n, struct heal_report *r)
{
	uint32_t file = manifest_file_of_chunk(h->o->m, bad[0]), k = 0, right = 0;
	uint64_t done[64];
	int rc = open_for(h, bad[0], true);
	if (rc == -LE_FOREIGN)
		snprintf(r->why, sizeof(r->why), "%.200s: %s", h->o->m->files[file].path, h->why);
	for (; k < n && k < 64 && manifest_file_of_chunk(h->o->m, bad[k]) == file; k++) {
		int one = rc < 0 ? rc : look(h, bad[k]);
		if (one == 0)
			one = mend(h, bad[k]);
		if (one >= 0)
			done[right++] = bad[k];
	}
	if (right && on_worker(h, sync_fn) < 0)
		right = 0;
	for (uint32_t i = 0; i < right; i++)
		store_set_chunk(&h->store, done[i], true);
	close_file(h);
	r->healed += right;
	return k;
}

static int heal_bad(struct healing *h, uint64_t *bad, uint32_t n, struct heal_report *r)
{
	qsort(bad, n, sizeof(*bad), by_number);
	int rc = -LE_FOREIGN;
	/* If this process may not write, leave the copy unchanged for the agent, which may. */
	for (uint32_t i = 0; i < n && rc == -LE_FOREIGN; i++)
		rc = open_for(h, bad[i], true);
	if (rc == -LE_ACCES || rc == -LE_PERM || rc == -LE_ROFS)
		return rc;
	close_file(h);
	for (uint32_t i = 0; i < n; i++)
		store_set_chunk(&h->store, bad[i], false);
	TRY(store_save_bitmap(&h->store));
	for (uint32_t i = 0; i < n;)
		i += heal_file(h, bad + i, n - i, r);
	r->left = n - r->healed;
	return r->healed ? store_save_bitmap(&h->store) : 0;
}

static int heal_locked(struct healing *h, const uint64_t *chunks, uint32_t n, uint64_t *bad,
		       struct heal_report *r)
{
	uint32_t n_bad;
	if (!store_is_ready(&h->store))
		return -LE_NOENT;
	TRY(store_load_places(&h->store, h->o->m->n_files));
	TRY(store_load_bitmap(&h->store, h->o->m));
	TRY(find_bad(h, chunks, n, bad, &n_bad));
	if (n_bad == 0)
		return 0;
	store_event(&h->store, "DEGRADED", "");
	int rc = heal_bad(h, bad, n_bad, r);
	if (r->healed && !r->left)
		store_event(&h->store, "READY", "");
	return rc;
}

int copy_heal(const struct heal_options *o, const uint64_t *chunks, uint32_t n,
	      struct heal_report *ret_report)
{
	struct healing *h = calloc(1, sizeof(*h));
	uint64_t *bad = calloc((size_t)n + 1, sizeof(*bad));
	int rc = h && bad ? 0 : -LE_NOMEM;
	*ret_report = (struct heal_report){0};
	if (rc == 0) {
		h->o = o;
		h->fd = -1;
		h->buf = malloc(MANIFEST_CHUNK);
		rc = h->buf ? store_init(&h->store, o->env, o->to, o->id) : -LE_NOMEM;
		h->store.lock_fd = -1;
	}
	if (rc == 0)
		rc = store_try_lock(&h->store);
	if (rc == 0) {
		rc = heal_locked(h, chunks, n, bad, ret_report);
		close_file(h);
		store_fini(&h->store);
	}
	if (h)
		free(h->buf);
	free(h);
	free(bad);
	return rc;
}
