/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public calls on open files and directories of leat.h, and asynchronous reads and writes.
 */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cache/inode_cache.h"
#include "client/data/open_file.h"
#include "client/include/leat/leat.h"
#include "client/leat_impl.h"
#include "client/ll.h"
#include "common/base/assert.h"
#include "common/base/status.h"
#include "common/proto/mds_proto.h"
#include "common/proto/types.h"
#include "common/proto/wire.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

#define DIR_BATCH 128u

static struct leat_file *check_file(struct leat_file *f)
{
	return CAST_OBJ(f, struct leat_file, LEAT_FILE_MAGIC);
}

static int open_existing(struct api_call *a, bool follow, struct ll_file **ret_ll)
{
	struct attr attr;
	bool changed;

	TRY(path_find(a->fs, a->path, follow, &attr));
	if (S_ISLNK(attr.mode))
		return -LE_LOOP;
	if (S_ISDIR(attr.mode))
		return -LE_ISDIR;
	if (a->flags & O_DIRECTORY)
		return -LE_NOTDIR;
	if (!S_ISREG(attr.mode))
		return -LE_NXIO;
	return ll_open(a->fs->client, &a->fs->cred, attr.ino, a->flags | OPEN_ORPHAN, ret_ll, NULL,
		       &changed);
}

static int open_or_create(struct api_call *a, struct ll_file **ret_ll)
{
	char name[LEAT_NAME_MAX + 1];
	bool follow = !(a->flags & (O_NOFOLLOW | O_EXCL));
	struct ino parent;
	int rc = follow ? path_target(a->fs, a->path, &parent, name)
			: path_parent(a->fs, a->path, &parent, name);

	if (rc == -LE_BUSY)
		return -LE_ISDIR;
	TRY(rc);
	if (!(a->flags & O_EXCL)) {
		/* An existing name may be a link, a directory, or a file that needs other
		 * rights. */
		rc = open_existing(a, follow, ret_ll);
		if (rc != -LE_NOENT)
			return rc;
	}
	return ll_create(a->fs->client, &a->fs->cred, parent, bytes_str(name), a->mode, a->flags,
			 ret_ll, NULL);
}

static int64_t open_fn(struct api_call *a)
{
	if (a->flags & O_CREAT)
		return open_or_create(a, &a->file->ll);
	return open_existing(a, !(a->flags & O_NOFOLLOW), &a->file->ll);
}

int leat_open(struct leat_fs *fs, const char *path, int flags, mode_t mode,
	      struct leat_file **ret_file)
{
	struct leat_file *f = calloc(1, sizeof(*f));
	struct api_call a = {
		.fn = open_fn,
		.path = path,
		.file = f,
		.flags = (uint32_t)flags,
		.mode = mode & 07777 & ~fs->umask,
	};
	int rc;

	if (f == NULL)
		return -LE_NOMEM;
	rc = (int)api_run(fs, &a);
	if (rc < 0) {
		free(f);
		return rc;
	}
	f->magic = LEAT_FILE_MAGIC;
	f->fs = fs;
	f->flags = flags;
	pthread_mutex_init(&f->pos_lock, NULL);
	*ret_file = f;
	return 0;
}

static int64_t close_fn(struct api_call *a)
{
	int rc = ll_flush(a->file->ll);

	ll_release(a->file->ll);
	return rc;
}

int leat_close(struct leat_file *file)
{
	struct leat_file *f = check_file(file);
	struct api_call a = {.fn = close_fn, .file = f};
	int rc = (int)api_run(f->fs, &a);

	pthread_mutex_destroy(&f->pos_lock);
	f->magic = 0;
	free(f);
	return rc;
}

static int64_t pread_fn(struct api_call *a)
{
	return ll_pread(a->file->ll, a->buf, a->a, a->b);
}

int64_t leat_pread(struct leat_file *file, void *buf, size_t len, uint64_t off)
{
	struct leat_file *f = check_file(file);
	struct api_call a = {.fn = pread_fn, .file = f, .buf = buf, .a = len, .b = off};

	return api_run(f->fs, &a);
}

static int64_t pwrite_fn(struct api_call *a)
{
	return ll_pwrite(a->file->ll, a->in, a->a, a->b);
}

int64_t leat_pwrite(struct leat_file *file, const void *buf, size_t len, uint64_t off)
{
	struct leat_file *f = check_file(file);
	struct api_call a = {.fn = pwrite_fn, .file = f, .in = buf, .a = len, .b = off};

	return api_run(f->fs, &a);
}

int64_t leat_read(struct leat_file *file, void *buf, size_t len)
{
	struct leat_file *f = check_file(file);
	int64_t n;

	pthread_mutex_lock(&f->pos_lock);
	n = leat_pread(f, buf, len, f->pos);
	if (n > 0)
		f->pos += (uint64_t)n;
	pthread_mutex_unlock(&f->pos_lock);
	return n;
}

static int64_t fstat_fn(struct api_call *a)
{
	struct attr attr;

	TRY(ll_getattr(a->fs->client, &a->fs->cred, ll_file_ino(a->file->ll), &attr));
	stat_from_attr(&attr, a->buf);
	return 0;
}

int leat_fstat(struct leat_file *file, struct leat_stat *ret_st)
{
	struct leat_file *f = check_file(file);
	struct api_call a = {.fn = fstat_fn, .file = f, .buf = ret_st};

	return (int)api_run(f->fs, &a);
}

int64_t leat_write(struct leat_file *file, const void *buf, size_t len)
{
	struct leat_file *f = check_file(file);
	int64_t n;

	pthread_mutex_lock(&f->pos_lock);
	n = leat_pwrite(f, buf, len, f->pos);
	if (n > 0)
		f->pos += (uint64_t)n;
	if (n > 0 && (f->flags & O_APPEND)) {
		struct leat_stat st;

		if (leat_fstat(f, &st) == 0)
			f->pos = st.size;
	}
	pthread_mutex_unlock(&f->pos_lock);
	return n;
}

static int64_t seek_fn(struct api_call *a)
{
	return ll_seek(a->file->ll, a->a, (int)a->flags);
}

static int64_t seek_to(struct leat_file *f, int64_t off, int whence)
{
	struct leat_stat st;
	int64_t base = 0;

	switch (whence) {
	case SEEK_SET:
		break;
	case SEEK_CUR:
		base = (int64_t)f->pos;
		break;
	case SEEK_END:
		TRY(leat_fstat(f, &st));
		base = (int64_t)st.size;
		break;
	case SEEK_DATA:
	case SEEK_HOLE: {
		struct api_call a = {
			.fn = seek_fn, .file = f, .a = (uint64_t)off, .flags = (uint32_t)whence};

		return off < 0 ? -LE_NXIO : api_run(f->fs, &a);
	}
	default:
		return -LE_INVAL;
	}
	if (off > 0 && base > INT64_MAX - off)
		return -LE_OVERFLOW;
	return base + off < 0 ? -LE_INVAL : base + off;
}

int64_t leat_lseek(struct leat_file *file, int64_t off, int whence)
{
	struct leat_file *f = check_file(file);
	int64_t to;

	pthread_mutex_lock(&f->pos_lock);
	to = seek_to(f, off, whence);
	if (to >= 0)
		f->pos = (uint64_t)to;
	pthread_mutex_unlock(&f->pos_lock);
	return to;
}

static int64_t fsync_fn(struct api_call *a)
{
	return ll_fsync(a->file->ll, a->flags != 0);
}

int leat_fsync(struct leat_file *file)
{
	struct leat_file *f = check_file(file);
	struct api_call a = {.fn = fsync_fn, .file = f};

	return (int)api_run(f->fs, &a);
}

int leat_fdatasync(struct leat_file *file)
{
	struct leat_file *f = check_file(file);
	struct api_call a = {.fn = fsync_fn, .file = f, .flags = 1};

	return (int)api_run(f->fs, &a);
}

static int64_t ftruncate_fn(struct api_call *a)
{
	struct attr attr = {.size = a->a};

	if ((a->file->flags & O_ACCMODE) == O_RDONLY)
		return -LE_INVAL;
	return ll_setattr(a->fs->client, &a->fs->cred, ll_file_ino(a->file->ll), a->file->ll,
			  SET_SIZE, &attr, NULL);
}

int leat_ftruncate(struct leat_file *file, uint64_t size)
{
	struct leat_file *f = check_file(file);
	struct api_call a = {.fn = ftruncate_fn, .file = f, .a = size};

	return (int)api_run(f->fs, &a);
}

static int64_t fallocate_fn(struct api_call *a)
{
	return ll_fallocate(a->file->ll, a->mode, a->a, a->b);
}

int leat_fallocate(struct leat_file *file, int mode, uint64_t off, uint64_t len)
{
	struct leat_file *f = check_file(file);
	struct api_call a = {
		.fn = fallocate_fn, .file = f, .mode = (uint32_t)mode, .a = off, .b = len};

	return (int)api_run(f->fs, &a);
}

/* An open directory. Used by one thread at a time; entries are fetched in batches. */
struct leat_dir {
	uint32_t magic;
	struct leat_fs *fs;
	struct ino ino;
	bool want_stat, eof;
	uint64_t cookie; /* of the last entry fetched */
	uint32_t n, at;
	struct leat_dirent batch[DIR_BATCH];
};

static int64_t opendir_fn(struct api_call *a)
{
	struct leat_dir *d = a->buf;
	struct attr attr;

	TRY(path_find(a->fs, a->path, true, &attr));
	if (!S_ISDIR(attr.mode))
		return -LE_NOTDIR;
	d->ino = attr.ino;
	return 0;
}

int leat_opendir(struct leat_fs *fs, const char *path, int want_stat, struct leat_dir **ret_dir)
{
	struct leat_dir *d = calloc(1, sizeof(*d));
	struct api_call a = {.fn = opendir_fn, .path = path, .buf = d};
	int rc;

	if (d == NULL)
		return -LE_NOMEM;
	rc = (int)api_run(fs, &a);
	if (rc < 0) {
		free(d);
		return rc;
	}
	d->magic = LEAT_DIR_MAGIC;
	d->fs = fs;
	d->want_stat = want_stat != 0;
	*ret_dir = d;
	return 0;
}

static int take_entry(void *arg, const struct ll_dirent *e)
{
	struct leat_dir *d = arg;
	struct leat_dirent *to = &d->batch[d->n];

	if (d->n == DIR_BATCH)
		return 1;
	if (e->name.len >= sizeof(to->name))
		return 0;
	to->cookie = e->cookie;
	memcpy(to->name, e->name.data, e->name.len);
	to->name[e->name.len] = '\0';
	stat_from_attr(&e->attr, &to->st);
	d->cookie = e->cookie;
	d->n++;
	return 0;
}

static int64_t readdir_fn(struct api_call *a)
{
	struct leat_dir *d = a->buf;

	d->n = 0;
	d->at = 0;
	return ll_readdir(a->fs->client, &a->fs->cred, d->ino, d->cookie, d->want_stat, take_entry,
			  d, &d->eof);
}

int leat_readdir(struct leat_dir *dir, struct leat_dirent *ret_entry)
{
	struct leat_dir *d = CAST_OBJ(dir, struct leat_dir, LEAT_DIR_MAGIC);
	struct api_call a = {.fn = readdir_fn, .buf = d};

	ASSERT(d->at <= d->n && d->n <= DIR_BATCH);
	if (d->at == d->n) {
		if (d->eof)
			return 0;
		TRY((int)api_run(d->fs, &a));
		if (d->n == 0)
			return 0;
	}
	*ret_entry = d->batch[d->at++];
	return 1;
}

void leat_seekdir(struct leat_dir *dir, uint64_t cookie)
{
	struct leat_dir *d = CAST_OBJ(dir, struct leat_dir, LEAT_DIR_MAGIC);

	d->cookie = cookie;
	d->n = d->at = 0;
	d->eof = false;
}

int leat_closedir(struct leat_dir *dir)
{
	struct leat_dir *d = CAST_OBJ(dir, struct leat_dir, LEAT_DIR_MAGIC);

	d->magic = 0;
	free(d);
	return 0;
}

/* Stored in leat_io.private_. */
struct io_mail {
	struct mail mail;
	struct leat_io *io;
};
_Static_assert(sizeof(struct io_mail) <= sizeof(((struct leat_io *)0)->private_),
	       "private_ is too small");

static void io_done(struct leat_io *io, int64_t result)
{
	const uint64_t one = 1;
	int fd = io->event_fd;

	io->result = result;
	if (io->done != NULL)
		io->done(io);
	/* A full counter means that the reader has enough events to wake up for. */
	while (fd > 0 && write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
		continue;
}

static void io_fiber(void *arg)
{
	struct leat_io *io = arg;
	struct ll_file *ll = io->file->ll;

	switch (io->op) {
	case LEAT_IO_READ:
		io_done(io, ll_pread(ll, io->buf, io->len, io->off));
		break;
	case LEAT_IO_WRITE:
		io_done(io, ll_pwrite(ll, io->buf, io->len, io->off));
		break;
	case LEAT_IO_FSYNC:
		io_done(io, ll_fsync(ll, false));
		break;
	}
}

static void io_start(struct mail *m)
{
	struct io_mail *im = container_of(m, struct io_mail, mail);
	struct leat_io *io = im->io;
	int rc = fiber_spawn_on(io->file->fs->loop, "leat_aio", io_fiber, io);

	if (rc < 0)
		io_done(io, rc);
}

int leat_aio_submit(struct leat_fs *fs, struct leat_io *const *ios, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (ios[i]->op < LEAT_IO_READ || ios[i]->op > LEAT_IO_FSYNC ||
		    check_file(ios[i]->file)->fs != fs)
			return -LE_INVAL;
	}
	for (unsigned i = 0; i < n; i++) {
		struct io_mail *im = (struct io_mail *)(void *)ios[i]->private_;

		im->io = ios[i];
		im->mail.fn = io_start;
		loop_post(fs->loop, &im->mail);
	}
	return 0;
}
