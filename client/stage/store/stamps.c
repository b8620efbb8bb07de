/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/store/stamps.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/rt/fiber.h"

#define MAGIC      0x315054535441454cULL /* "LEATSTP1" */
#define CLOCK_US   500u
#define CLOCK_LOOK 200u /* polls of CLOCK_US: 100 ms in all, and a tick is at most 10 ms */
#define RUN_GAP    64u  /* unchanged stamps between two changed ones that are rewritten, to save
			 * a write */

_Static_assert(sizeof(struct file_stamp) == 24, "no padding: stamps lie in the file as they are");

struct stamps_head {
	uint64_t magic, n;
};

/* ---- beside the copy ---- */

static int open_stamps(const struct local_store *s, int flags, struct env_file **ret_file)
{
	char path[STORE_PATH_SIZE];
	int n = snprintf(path, sizeof(path), "%s/stamps", s->dir);
	if (n < 0 || n >= (int)sizeof(path))
		return -LE_NAMETOOLONG;
	return env_file_open(s->env, path, flags, 0600, ret_file);
}

int stamps_load(struct local_store *s, uint32_t n_files)
{
	struct stamps_head head;
	struct stat st;
	size_t len = (size_t)n_files * sizeof(*s->stamps);
	free(s->stamps);
	s->n_stamps = n_files;
	s->stamps = calloc((size_t)n_files + 1, sizeof(*s->stamps));
	if (!s->stamps)
		return -LE_NOMEM;
	int rc = s->stamps_file ? 0 : open_stamps(s, O_RDWR, &s->stamps_file);
	if (rc == -LE_NOENT)
		return 0;
	TRY(rc);
	TRY(env_file_stat(s->stamps_file, &st));
	if ((uint64_t)st.st_size == sizeof(head) + len) {
		TRY(env_file_pread(s->stamps_file, &head, sizeof(head), 0));
		if (head.magic == MAGIC && head.n == n_files)
			return len ? env_file_pread(s->stamps_file, s->stamps, len, sizeof(head))
				   : 0;
	}
	/* The file belongs to another manifest: the first stamp writes a new one. */
	env_file_close(s->stamps_file);
	s->stamps_file = NULL;
	return 0;
}

static int write_all(struct local_store *s)
{
	const struct stamps_head head = {MAGIC, s->n_stamps};
	struct env_file *f;
	TRY(open_stamps(s, O_RDWR | O_CREAT, &f));
	/* A private copy: this fiber yields, and another one may change the stamps or write the
	 * file meanwhile. */
	struct file_stamp *copy = malloc(s->n_stamps * sizeof(*copy));
	int rc = copy ? env_file_truncate(f, 0) : -LE_NOMEM;
	if (rc == 0) {
		memcpy(copy, s->stamps, s->n_stamps * sizeof(*copy));
		rc = env_file_pwrite(f, copy, s->n_stamps * sizeof(*copy), sizeof(head));
	}
	free(copy);
	if (rc == 0)
		rc = env_file_pwrite(f, &head, sizeof(head), 0);
	if (rc < 0 || s->stamps_file)
		env_file_close(f);
	else
		s->stamps_file = f;
	return rc;
}

/* Writes the stamps of files lo to hi in one write. If another fiber's newer stamps are
 * overwritten, no harm is done: an old stamp fits only the file state that it was taken of. */
static int write_run(struct local_store *s, uint32_t lo, uint32_t hi)
{
	size_t len = (size_t)(hi - lo + 1) * sizeof(*s->stamps);
	struct file_stamp *copy = malloc(len);
	if (!copy)
		return -LE_NOMEM;
	memcpy(copy, s->stamps + lo, len);
	int rc = env_file_pwrite(s->stamps_file, copy, len,
				 sizeof(struct stamps_head) + (uint64_t)lo * sizeof(*copy));
	free(copy);
	return rc;
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return (x > y) - (x < y);
}

/* Writes the stamps of `files`, with one write for those that lie close together. Sorts files. */
static int write_some(struct local_store *s, uint32_t *files, uint32_t n)
{
	if (!s->stamps_file)
		return write_all(s);
	qsort(files, n, sizeof(*files), by_number);
	for (uint32_t i = 0, k = 0; i < n; i = k) {
		for (k = i + 1; k < n && files[k] - files[k - 1] <= RUN_GAP; k++)
			;
		TRY(write_run(s, files[i], files[k - 1]));
	}
	return 0;
}

/* ---- one file ---- */

static struct file_stamp stamp_of(const struct stat *st)
{
	return (struct file_stamp){st->st_ino, st->st_ctim.tv_sec, (uint64_t)st->st_ctim.tv_nsec};
}

bool stamp_fits(const struct file_stamp *t, const struct stat *st)
{
	const struct file_stamp now = stamp_of(st);
	return t->ino != 0 && memcmp(t, &now, sizeof(now)) == 0;
}

bool stamps_believe(const struct local_store *s, uint32_t file, const struct stat *st)
{
	/* The store is simulated, or all of the copy belongs to this user. */
	if (!s->folders || geteuid() != 0)
		return true;
	/* A file on a mount below the copy's folder does not count as a file of the copy. */
	return s->stamps && file < s->n_stamps && stamp_fits(&s->stamps[file], st) &&
	       st->st_dev == s->folders[(size_t)store_place(s, file) * s->n_folders].dev;
}

bool stamp_watch(int fd)
{
	/* The kernel signals this process when another one opens the file for writing. Not by
	 * SIGIO, which ends a process without a handler; SIGURG is ignored by default. */
	return fcntl(fd, F_SETSIG, SIGURG) == 0 && fcntl(fd, F_SETLEASE, F_RDLCK) == 0;
}

/* ---- several ---- */

static bool is_past(const struct file_stamp *t)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	return now.tv_sec > t->ctime_s ||
	       (now.tv_sec == t->ctime_s && (uint64_t)now.tv_nsec > t->ctime_ns);
}

void stamping_add(struct stamping *x, uint32_t file, int fd, bool watched)
{
	struct stat st;
	ASSERT(x->n < STAMPS_AT_ONCE);
	/* With times in whole seconds, a change within the same second would be invisible. */
	bool counts = watched && fstat(fd, &st) == 0 && st.st_ctim.tv_nsec != 0;
	if (!counts)
		close(fd);
	x->rows[x->n].file = file;
	x->rows[x->n].fd = counts ? fd : -1;
	x->rows[x->n++].stamp = counts ? stamp_of(&st) : (struct file_stamp){0};
	if (x->n == STAMPS_AT_ONCE)
		stamping_end(x);
}

/* Waits until the clock has moved past t. Returns whether no process has opened the file for
 * writing or changed it until then. Closes fd. */
static bool still_so(const struct file_stamp *t, int fd)
{
	struct stat st;
	for (uint32_t k = 0; k < CLOCK_LOOK && !is_past(t); k++) {
		int rc = fiber_sleep_us(CLOCK_US);
		(void)rc;
	}
	bool counts = is_past(t) && fcntl(fd, F_GETLEASE) == F_RDLCK && fstat(fd, &st) == 0 &&
		      stamp_fits(t, &st);
	close(fd);
	return counts;
}

void stamping_end(struct stamping *x)
{
	static const struct file_stamp none;
	struct local_store *s = x->s;
	uint32_t files[STAMPS_AT_ONCE], n = 0;
	for (uint32_t i = 0; i < x->n; i++) {
		const struct file_stamp *t = &x->rows[i].stamp;
		const uint32_t file = x->rows[i].file;
		bool counts = x->rows[i].fd >= 0 && still_so(t, x->rows[i].fd);
		if (!s->stamps || file >= s->n_stamps ||
		    memcmp(&s->stamps[file], counts ? t : &none, sizeof(*t)) == 0)
			continue;
		s->stamps[file] = counts ? *t : none;
		files[n++] = file;
	}
	x->n = 0;
	/* A stamp that cannot be written only costs another verification. */
	int rc = n > 0 ? write_some(s, files, n) : 0;
	(void)rc;
}
