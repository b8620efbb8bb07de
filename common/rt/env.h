/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything from outside: clock, randomness, files, worker threads, key-value stores. Real
 * (env_real_create: io_uring, RocksDB) or simulated (sim.h: virtual clock, seeded faults, a disk
 * that loses what was not synced). The network is abstracted likewise, by a struct transport
 * (rpc/transport/transport.h).
 *
 * File calls yield the fiber and must run in one; deadlines do not apply to them. Paths are
 * absolute or relative to the process. Any number of loops may share an env; a file handle belongs
 * to the loop that opened it.
 */
#ifndef LEAT_COMMON_RT_ENV_H
#define LEAT_COMMON_RT_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "common/base/status.h"
#include "common/rt/loop.h"

struct env_file;
struct kv;
struct kv_options;

struct env_dirent {
	const char *name; /* without . and .. */
	bool is_dir;
};

struct env_ops {
	int (*loop_create)(struct env *env, const struct loop_options *opts,
			   struct loop **ret_loop);
	uint64_t (*now_us)(struct env *env);
	int64_t (*wall_ns)(struct env *env);
	void (*random)(struct env *env, void *buf, size_t len);

	int (*file_open)(struct env *env, const char *path, int flags, mode_t mode,
			 struct env_file **ret_file);
	void (*file_close)(struct env_file *f);
	/* Return bytes moved (0: end of file) or a negative status. */
	int64_t (*file_preadv)(struct env_file *f, const struct iovec *iov, int n_iov,
			       uint64_t off);
	/* May be NULL: reads nothing without waiting. */
	int64_t (*file_pread_now)(struct env_file *f, void *buf, size_t len, uint64_t off);
	int64_t (*file_pwritev)(struct env_file *f, const struct iovec *iov, int n_iov,
				uint64_t off);
	int (*file_datasync)(struct env_file *f);
	int (*file_fallocate)(struct env_file *f, int mode, uint64_t off, uint64_t len);
	int (*file_truncate)(struct env_file *f, uint64_t size);
	int (*file_stat)(struct env_file *f, struct stat *ret_st);
	/* Both NULL if files have no descriptors. */
	int (*file_take)(struct env *env, int fd, struct env_file **ret_file);
	int (*file_fd)(const struct env_file *f);

	int (*path_stat)(struct env *env, const char *path, struct stat *ret_st); /* lstat */
	int (*path_mkdir)(struct env *env, const char *path, mode_t mode);
	int (*path_unlink)(struct env *env, const char *path);
	int (*path_rmdir)(struct env *env, const char *path);
	int (*path_rename)(struct env *env, const char *from, const char *to);
	int (*path_syncdir)(struct env *env, const char *path);
	int (*path_list)(struct env *env, const char *path,
			 int (*each)(void *arg, const struct env_dirent *e), void *arg);

	int (*offload)(struct env *env, void (*fn)(void *arg), void *arg);
	int (*kv_open)(struct env *env, const char *path, const struct kv_options *opts,
		       struct kv **ret_kv);
};

struct env {
	const struct env_ops *ops;
};

/* ---- for callers ---- */
static inline uint64_t env_now_us(struct env *env) { return env->ops->now_us(env); }
/* Unix time in nanoseconds. */
static inline int64_t env_wall_ns(struct env *env) { return env->ops->wall_ns(env); }
static inline void env_random(struct env *env, void *buf, size_t len)
{
	env->ops->random(env, buf, len);
}
uint64_t env_random_u64(struct env *env);

/* flags as for open(2), O_CLOEXEC implied. O_DIRECT is dropped where the file system refuses it;
 * test with env_file_is_direct. */
int env_file_open(struct env *env, const char *path, int flags, mode_t mode,
		  struct env_file **ret_file) CHECK_RESULT;
bool env_file_is_direct(const struct env_file *f);
/* Makes a file of an open descriptor, and takes it over, also on failure. -LE_NOSYS: not
 * supported. */
int env_file_take(struct env *env, int fd, struct env_file **ret_file) CHECK_RESULT;
/* Returns the descriptor, still owned by the file, for calls that the env lacks. -LE_NOSYS:
 * none. */
int env_file_fd(const struct env_file *f);
void env_file_close(struct env_file *f); /* NULL is fine */
/* Transfers all len bytes; else -LE_IO (short read: -LE_NODATA) or the error. */
int env_file_pread(struct env_file *f, void *buf, size_t len, uint64_t off) CHECK_RESULT;
int env_file_pwrite(struct env_file *f, const void *buf, size_t len, uint64_t off) CHECK_RESULT;
int env_file_preadv(struct env_file *f, const struct iovec *iov, int n_iov, uint64_t off)
	CHECK_RESULT;
int env_file_pwritev(struct env_file *f, const struct iovec *iov, int n_iov, uint64_t off)
	CHECK_RESULT;
/* One read call, which may be short: bytes (0 at the end) or a negative status. */
int64_t env_file_pread_some(struct env_file *f, void *buf, size_t len, uint64_t off) CHECK_RESULT;
/* Reads what the page cache holds from off on, without waiting for the disk: bytes (0 at the end),
 * -LE_AGAIN if it holds nothing there, or another status. Does not yield. */
int64_t env_file_pread_now(struct env_file *f, void *buf, size_t len, uint64_t off) CHECK_RESULT;
int env_file_datasync(struct env_file *f) CHECK_RESULT;
int env_file_fallocate(struct env_file *f, int mode, uint64_t off, uint64_t len) CHECK_RESULT;
int env_file_truncate(struct env_file *f, uint64_t size) CHECK_RESULT;
/* st_size of a block device: its size. */
int env_file_stat(struct env_file *f, struct stat *ret_st) CHECK_RESULT;
int env_stat(struct env *env, const char *path, struct stat *ret_st) CHECK_RESULT;
int env_mkdir(struct env *env, const char *path, mode_t mode) CHECK_RESULT;
/* Makes the directory and its parents. New names are durable on return, except in a parent that
 * this process may not read. -LE_NOTDIR: another file has one of the names. */
int env_mkdirs(struct env *env, const char *path, mode_t mode) CHECK_RESULT;
/* Checks that the parent directory of path exists. 0, or a status (-LE_NOENT: missing, -LE_NOTDIR:
 * not a directory) and the parent's name in ret_parent. May yield. */
int env_find_parent(struct env *env, const char *path, char *ret_parent, size_t size) CHECK_RESULT;
int env_unlink(struct env *env, const char *path) CHECK_RESULT;
int env_rmdir(struct env *env, const char *path) CHECK_RESULT;
int env_rename(struct env *env, const char *from, const char *to) CHECK_RESULT;
int env_syncdir(struct env *env, const char *path) CHECK_RESULT; /* makes names durable */
/* Calls each for every entry; a non-zero result ends the walk and is returned. */
int env_list(struct env *env, const char *path, int (*each)(void *arg, const struct env_dirent *e),
	     void *arg) CHECK_RESULT;
/* Reads a whole small file. ret_data is malloc'd, with a NUL after its len bytes; -LE_FBIG above
 * max. */
int env_read_file(struct env *env, const char *path, size_t max, char **ret_data, size_t *ret_len)
	CHECK_RESULT;
/* Replaces a file durably and atomically: temporary file, sync, rename, sync of the directory. */
int env_write_file(struct env *env, const char *path, const void *data, size_t len, mode_t mode)
	CHECK_RESULT;

/* Runs fn(arg) on a worker thread and yields until it returns. The simulator runs it on its only
 * thread, after a random delay. fn must not call into the loop. */
int env_offload(struct env *env, void (*fn)(void *arg), void *arg) CHECK_RESULT;

#endif
