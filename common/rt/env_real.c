/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real env: clocks and randomness of the kernel, files through the loop's io_uring, and worker
 * threads for operations that the ring lacks (directory lists) and for blocking libraries.
 *
 * A worker's job is on the stack of the fiber that waits for it; mail reports its end. The number
 * of fibers bounds the queue. `lock` protects the queue.
 */
#include "common/rt/env_real.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "common/rt/env_backend.h"
#include "common/rt/fiber_impl.h"
#include "common/rt/loop_impl.h"
#include "common/rt/uring.h"

#define REAL_MAGIC 0x5245414cu /* REAL */
#define IO_MAX (1u << 30)      /* bytes per call */

struct env_real {
	struct env env;
	uint32_t magic;
	struct env_real_options opts;
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct list jobs;
	bool stop;
	uint32_t n_workers;
	pthread_t workers[];
};

struct real_file {
	struct env_file file;
	int fd;
};

struct job {
	struct list link;
	struct mail mail;
	void (*fn)(void *arg);
	void *arg;
	struct loop *loop;
	struct fiber *fiber;
	bool done;
};

static struct env_real *real_of(struct env *env)
{
	struct env_real *r = container_of(env, struct env_real, env);

	ASSERT(r->magic == REAL_MAGIC);
	return r;
}

/* ---- clock, randomness ---- */

static uint64_t real_now_us(struct env *env)
{
	struct timespec ts;

	(void)env;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static int64_t real_wall_ns(struct env *env)
{
	struct timespec ts;

	(void)env;
	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void real_random(struct env *env, void *buf, size_t len)
{
	uint8_t *p = buf;

	(void)env;
	while (len > 0) {
		ssize_t n = getrandom(p, len, 0);

		if (n < 0 && errno != EINTR)
			PANIC("getrandom: error %d", errno);
		if (n > 0) {
			p += n;
			len -= (size_t)n;
		}
	}
}

/* ---- workers ---- */

static void *worker(void *arg)
{
	struct env_real *r = arg;

	pthread_setname_np(pthread_self(), "leat-worker");
	pthread_mutex_lock(&r->lock);
	for (;;) {
		struct list *n = list_pop(&r->jobs);
		struct job *j;

		if (n == NULL && r->stop)
			break;
		if (n == NULL) {
			pthread_cond_wait(&r->more, &r->lock);
			continue;
		}
		pthread_mutex_unlock(&r->lock);
		j = container_of(n, struct job, link);
		j->fn(j->arg);
		loop_post(j->loop, &j->mail);
		pthread_mutex_lock(&r->lock);
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

static void job_done(struct mail *m)
{
	struct job *j = container_of(m, struct job, mail);

	j->done = true;
	fiber_unblock(j->fiber);
}

static int real_offload(struct env *env, void (*fn)(void *arg), void *arg)
{
	struct env_real *r = real_of(env);
	struct job j = { .mail = { .fn = job_done }, .fn = fn, .arg = arg };

	if (loop_current == NULL) { /* no loop would be blocked */
		fn(arg);
		return 0;
	}
	j.loop = loop_current;
	j.fiber = fiber_self();
	ASSERT(j.fiber != NULL);
	pthread_mutex_lock(&r->lock);
	list_push(&r->jobs, &j.link);
	pthread_cond_signal(&r->more);
	pthread_mutex_unlock(&r->lock);
	while (!j.done)
		fiber_block_forever();
	return 0;
}

/* ---- files ---- */

static int real_fd(const struct env_file *f)
{
	return container_of(f, const struct real_file, file)->fd;
}

static int ring_open(const char *path, int flags, mode_t mode)
{
	struct uring_op op;
	struct io_uring_sqe *sqe = uring_begin(&op);

	io_uring_prep_openat(sqe, AT_FDCWD, path, flags, mode);
	return uring_end(&op, sqe);
}

static int real_file_take(struct env *env, int fd, struct env_file **ret_file)
{
	struct real_file *f = malloc(sizeof(*f));

	if (f == NULL) {
		close(fd);
		return -LE_NOMEM;
	}
	*f = (struct real_file){
		.file = { .env = env, .direct = (fcntl(fd, F_GETFL) & O_DIRECT) != 0 },
		.fd = fd
	};
	*ret_file = &f->file;
	return 0;
}

static int real_file_open(struct env *env, const char *path, int flags, mode_t mode,
			  struct env_file **ret_file)
{
	/* Set after the open: an open that fails because of O_DIRECT may have created the file. */
	int fd = ring_open(path, flags & ~O_DIRECT, mode);

	if (fd < 0)
		return fd;
	if (flags & O_DIRECT)
		(void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_DIRECT);
	return real_file_take(env, fd, ret_file);
}

static void real_file_close(struct env_file *f)
{
	close(real_fd(f));
	free(container_of(f, struct real_file, file));
}

static unsigned io_len(const struct iovec *iov)
{
	return iov->iov_len < IO_MAX ? (unsigned)iov->iov_len : IO_MAX;
}

static int64_t real_file_preadv(struct env_file *f, const struct iovec *iov, int n_iov,
				uint64_t off)
{
	struct uring_op op;
	struct io_uring_sqe *sqe = uring_begin(&op);
	int n;

	/* No attempt in place first (RWF_NOWAIT): the ring makes one, and is faster in batches. */
	if (n_iov == 1)
		io_uring_prep_read(sqe, real_fd(f), iov->iov_base, io_len(iov), off);
	else
		io_uring_prep_readv(sqe, real_fd(f), iov, (unsigned)n_iov, off);
	n = uring_end(&op, sqe);
	for (int i = 0, left = n; left > 0; i++) {
		rt_mark_defined(iov[i].iov_base, iov[i].iov_len);
		left -= (int)iov[i].iov_len;
	}
	return n;
}

static int64_t real_file_pread_now(struct env_file *f, void *buf, size_t len, uint64_t off)
{
	struct iovec iov = { buf, len < IO_MAX ? len : IO_MAX };
	ssize_t n = preadv2(real_fd(f), &iov, 1, (off_t)off, RWF_NOWAIT);

	if (n >= 0)
		return n;
	/* EOPNOTSUPP: the file system does not support RWF_NOWAIT. */
	return errno == EAGAIN || errno == EOPNOTSUPP || errno == EINTR
		       ? -LE_AGAIN
		       : status_from_errno(errno);
}

static int64_t real_file_pwritev(struct env_file *f, const struct iovec *iov, int n_iov,
				 uint64_t off)
{
	struct uring_op op;
	struct io_uring_sqe *sqe = uring_begin(&op);

	if (n_iov == 1)
		io_uring_prep_write(sqe, real_fd(f), iov->iov_base, io_len(iov), off);
	else
		io_uring_prep_writev(sqe, real_fd(f), iov, (unsigned)n_iov, off);
	return uring_end(&op, sqe);
}

static int real_file_datasync(struct env_file *f)
{
	struct uring_op op;
	struct io_uring_sqe *sqe = uring_begin(&op);

	io_uring_prep_fsync(sqe, real_fd(f), IORING_FSYNC_DATASYNC);
	return uring_end(&op, sqe);
}

static int real_file_fallocate(struct env_file *f, int mode, uint64_t off, uint64_t len)
{
	struct uring_op op;
	struct io_uring_sqe *sqe = uring_begin(&op);

	io_uring_prep_fallocate(sqe, real_fd(f), mode, (off_t)off, (off_t)len);
	return uring_end(&op, sqe);
}

static int real_file_stat(struct env_file *f, struct stat *ret_st)
{
	struct stat st;

	/* In place: the inode of an open file is in memory. */
	if (fstat(real_fd(f), &st) < 0)
		return status_from_errno(errno);
	if (S_ISBLK(st.st_mode)) {
		uint64_t size;

		if (ioctl(real_fd(f), BLKGETSIZE64, &size) < 0)
			return status_from_errno(errno);
		st.st_size = (off_t)size;
	}
	*ret_st = st;
	return 0;
}

/* ---- operations that the ring lacks, on a worker ---- */

struct path_job {
	const char *path;
	int fd;
	uint64_t size;
	struct stat st;
	int rc;
	/* list: NUL-terminated names, each after a byte that is 1 for a directory */
	char *names;
	size_t names_len, names_space;
};

static void truncate_work(void *arg)
{
	struct path_job *p = arg;

	p->rc = ftruncate(p->fd, (off_t)p->size) < 0 ? status_from_errno(errno) : 0;
}

static int real_file_truncate(struct env_file *f, uint64_t size)
{
	struct path_job p = { .fd = real_fd(f), .size = size };

	TRY(real_offload(f->env, truncate_work, &p));
	return p.rc;
}

static void stat_work(void *arg)
{
	struct path_job *p = arg;

	p->rc = lstat(p->path, &p->st) < 0 ? status_from_errno(errno) : 0;
}

static int real_path_stat(struct env *env, const char *path, struct stat *ret_st)
{
	struct path_job p = { .path = path };

	TRY(real_offload(env, stat_work, &p));
	if (p.rc == 0)
		*ret_st = p.st;
	return p.rc;
}

static void syncdir_work(void *arg)
{
	struct path_job *p = arg;
	int fd = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	p->rc = 0;
	if (fd < 0 || fsync(fd) < 0)
		p->rc = status_from_errno(errno);
	if (fd >= 0)
		close(fd);
}

static int real_path_syncdir(struct env *env, const char *path)
{
	struct path_job p = { .path = path };

	TRY(real_offload(env, syncdir_work, &p));
	return p.rc;
}

static int list_add(struct path_job *p, const char *name, bool is_dir)
{
	size_t len = strlen(name) + 1;

	if (p->names_space - p->names_len < len + 1) {
		size_t space = p->names_space * 2 + 4096;
		char *names = realloc(p->names, space);

		if (names == NULL)
			return -LE_NOMEM;
		p->names = names;
		p->names_space = space;
	}
	p->names[p->names_len] = (char)is_dir;
	memcpy(p->names + p->names_len + 1, name, len);
	p->names_len += len + 1;
	return 0;
}

static int list_dir(struct path_job *p, DIR *d)
{
	for (;;) {
		struct dirent *e;
		struct stat st;
		bool is_dir;

		errno = 0;
		e = readdir(d);
		if (e == NULL)
			return errno != 0 ? status_from_errno(errno) : 0;
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		is_dir = e->d_type == DT_DIR;
		if (e->d_type == DT_UNKNOWN &&
		    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			is_dir = S_ISDIR(st.st_mode);
		TRY(list_add(p, e->d_name, is_dir));
	}
}

static void list_work(void *arg)
{
	struct path_job *p = arg;
	DIR *d = opendir(p->path);

	if (d == NULL) {
		p->rc = status_from_errno(errno);
		return;
	}
	p->rc = list_dir(p, d);
	closedir(d);
}

static int real_path_list(struct env *env, const char *path,
			  int (*each)(void *arg, const struct env_dirent *e), void *arg)
{
	struct path_job p = { .path = path };
	int rc;

	TRY(real_offload(env, list_work, &p));
	rc = p.rc;
	for (size_t at = 0; rc == 0 && at < p.names_len; at += strlen(p.names + at + 1) + 2) {
		struct env_dirent e = { .name = p.names + at + 1, .is_dir = p.names[at] };

		rc = each(arg, &e);
	}
	free(p.names);
	return rc;
}

/* ---- paths through the ring ---- */

static int real_path_mkdir(struct env *env, const char *path, mode_t mode)
{
	struct uring_op op;
	struct io_uring_sqe *sqe = uring_begin(&op);

	(void)env;
	io_uring_prep_mkdirat(sqe, AT_FDCWD, path, mode);
	return uring_end(&op, sqe);
}

static int ring_unlink(const char *path, int flags)
{
	struct uring_op op;
	struct io_uring_sqe *sqe = uring_begin(&op);

	io_uring_prep_unlinkat(sqe, AT_FDCWD, path, flags);
	return uring_end(&op, sqe);
}

static int real_path_unlink(struct env *env, const char *path)
{
	(void)env;
	return ring_unlink(path, 0);
}

static int real_path_rmdir(struct env *env, const char *path)
{
	(void)env;
	return ring_unlink(path, AT_REMOVEDIR);
}

static int real_path_rename(struct env *env, const char *from, const char *to)
{
	struct uring_op op;
	struct io_uring_sqe *sqe = uring_begin(&op);

	(void)env;
	io_uring_prep_renameat(sqe, AT_FDCWD, from, AT_FDCWD, to, 0);
	return uring_end(&op, sqe);
}

/* ---- construction ---- */

static int real_loop_create(struct env *env, const struct loop_options *opts,
			    struct loop **ret_loop)
{
	return uring_loop_create(env, opts, ret_loop);
}

static int real_kv_open(struct env *env, const char *path, const struct kv_options *opts,
			struct kv **ret_kv)
{
	struct env_real *r = real_of(env);

	if (r->opts.kv_open == NULL)
		return -LE_NOSYS;
	return r->opts.kv_open(env, path, opts, ret_kv);
}

static const struct env_ops real_ops = {
	.loop_create = real_loop_create,
	.now_us = real_now_us,
	.wall_ns = real_wall_ns,
	.random = real_random,
	.file_open = real_file_open,
	.file_close = real_file_close,
	.file_preadv = real_file_preadv,
	.file_pread_now = real_file_pread_now,
	.file_pwritev = real_file_pwritev,
	.file_datasync = real_file_datasync,
	.file_fallocate = real_file_fallocate,
	.file_truncate = real_file_truncate,
	.file_stat = real_file_stat,
	.file_take = real_file_take,
	.file_fd = real_fd,
	.path_stat = real_path_stat,
	.path_mkdir = real_path_mkdir,
	.path_unlink = real_path_unlink,
	.path_rmdir = real_path_rmdir,
	.path_rename = real_path_rename,
	.path_syncdir = real_path_syncdir,
	.path_list = real_path_list,
	.offload = real_offload,
	.kv_open = real_kv_open,
};

static int workers_start(struct env_real *r, uint32_t n)
{
	sigset_t all, old;
	int err = 0;

	/* Signals are handled by the program's own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (; r->n_workers < n && err == 0; r->n_workers += err == 0)
		err = pthread_create(&r->workers[r->n_workers], NULL, worker, r);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return err != 0 ? status_from_errno(err) : 0;
}

int env_real_create(const struct env_real_options *opts, struct env **ret_env)
{
	uint32_t n = opts != NULL && opts->n_workers ? opts->n_workers : 4;
	struct env_real *r = calloc(1, sizeof(*r) + n * sizeof(r->workers[0]));
	int rc;

	if (r == NULL)
		return -LE_NOMEM;
	r->env.ops = &real_ops;
	r->magic = REAL_MAGIC;
	if (opts != NULL)
		r->opts = *opts;
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->more, NULL);
	list_init(&r->jobs);
	rc = workers_start(r, n);
	if (rc < 0) {
		env_real_destroy(&r->env);
		return rc;
	}
	*ret_env = &r->env;
	return 0;
}

void env_real_destroy(struct env *env)
{
	struct env_real *r;

	if (env == NULL)
		return;
	r = real_of(env);
	pthread_mutex_lock(&r->lock);
	r->stop = true;
	pthread_cond_broadcast(&r->more);
	pthread_mutex_unlock(&r->lock);
	for (uint32_t i = 0; i < r->n_workers; i++)
		pthread_join(r->workers[i], NULL);
	pthread_cond_destroy(&r->more);
	pthread_mutex_destroy(&r->lock);
	r->magic = 0;
	free(r);
}
