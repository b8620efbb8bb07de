/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A volume: a tree of files, from which data sets are read and in which manifests are stored. It is
 * the local file system or a Leat namespace, so that staging and the loader need only one interface
 * and can be tested without servers.
 *
 * All calls yield, unless their comment says otherwise, and must run in a fiber; for a Leat volume
 * on the client's loop. A file belongs to the loop that opened it. Paths are absolute. Errors are
 * statuses.
 */
#ifndef LEAT_CLIENT_DATASET_VOL_H
#define LEAT_CLIENT_DATASET_VOL_H

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "client/dataset/error_detail.h"
#include "client/dataset/rights.h"
#include "common/base/status.h"

struct block_sums;
struct vol;

struct vol_stat {
	uint64_t size;
	int64_t mtime_ns;
	uint64_t ino, ver; /* changes with the content: ctime, or Leat's change counter */
	uint32_t mode, uid, gid;
	uint32_t block;  /* block size of the checksums from sums(); 0: none */
	uint32_t nlink;  /* names of a file; 0: unknown */
	uint64_t dev;    /* the file system; 0: the volume has only one */
	int64_t born_ns; /* creation time, unique together with ino; 0: unknown */
	bool plain;      /* has certainly no access list */
};

struct vol_entry {
	const char *name;
	bool has_stat; /* false: st.mode has the type bits or is 0, the rest is not set */
	struct vol_stat st;
};

struct vol_file {
	struct vol *vol;
};

/* One of several reads. done: the result, like that of vol_pread. sums: receives the checksums
 * that the volume has of the touched blocks; NULL: not needed. */
struct vol_read {
	struct vol_file *file;
	void *buf;
	uint64_t off;
	uint32_t len;
	int64_t done;
	struct block_sums *sums;
};

struct vol_ops {
	int (*stat)(struct vol *v, const char *path,
		    struct vol_stat *ret_st); /* does not follow links */
	/* Returns the target of a symbolic link, NUL-terminated. -LE_NAMETOOLONG: it does not
	 * fit. */
	int (*readlink)(struct vol *v, const char *path, char *buf, size_t size);
	/* Reads system.posix_acl_access of a path that is no link. Returns the bytes; 0: no
	 * list. -LE_STALE: path no longer leads to the file `of`. */
	int64_t (*acl)(struct vol *v, const char *path, const struct vol_stat *of, void *buf,
		       size_t size);
	/* `each` must not yield; non-zero ends the list and is returned. */
	int (*list)(struct vol *v, const char *path,
		    int (*each)(void *arg, const struct vol_entry *e), void *arg);
	int (*open)(struct vol *v, const char *path, int flags, uint32_t mode,
		    struct vol_file **ret_file);
	void (*close)(struct vol_file *f);
	/* Attributes of the open file, whatever its name leads to now. */
	int (*file_stat)(struct vol_file *f, struct vol_stat *ret_st);
	int64_t (*pread)(struct vol_file *f, void *buf, uint64_t len, uint64_t off);
	int64_t (*pread_now)(struct vol_file *f, void *buf, uint64_t len,
			     /* NULL: none is ever possible */
			     uint64_t off);
	/* NULL: no advantage */
	void (*pread_batch)(struct vol *v, struct vol_read *reads, uint32_t n);
	/* Finds the next bytes from off on that are not in a hole, [*ret_data, *ret_hole); both
	 * are the file's size if there are none. NULL, or -LE_NOTSUP: holes are unknown. */
	int (*data)(struct vol_file *f, uint64_t off, uint64_t *ret_data, uint64_t *ret_hole);
	int (*pwrite)(struct vol_file *f, const void *buf, uint64_t len, uint64_t off);
	int (*sync)(struct vol_file *f);
	int (*sums)(struct vol_file *f,
		    int (*each)(void *arg, uint64_t off, uint32_t len, uint64_t sum, bool hole),
		    void *arg);
	int (*mkdir)(struct vol *v, const char *path, uint32_t mode);
	int (*unlink)(struct vol *v, const char *path);
	int (*rmdir)(struct vol *v, const char *path);
	int (*rename)(struct vol *v, const char *from, const char *to);
	/* -LE_EXIST if the new name exists. */
	int (*rename_new)(struct vol *v, const char *from, const char *to);
	/* exchanges two names atomically */
	int (*exchange)(struct vol *v, const char *a, const char *b);
	int (*syncdir)(struct vol *v, const char *path);
	int (*seal)(struct vol *v, const char *path); /* makes a file's content immutable for
						       * ever */
	int (*symlink)(struct vol *v, const char *target, const char *path);
	/* Sets owner, mode, access list (or removes it) and time of path, without following a
	 * link; of a link only owner and time. If this user may not set the owner, the mode
	 * grants the group nothing and has no special bits. */
	int (*set_rights)(struct vol *v, const char *path, const struct rights *r,
			  int64_t mtime_ns);
	/* See vol_beneath. NULL: not supported. */
	int (*beneath)(struct vol *v, const char *dir, struct vol **ret_vol);
	void (*destroy)(struct vol *v);
};

struct vol {
	const struct vol_ops *ops;
	enum detail_origin origin;
};

void vol_destroy(struct vol *v); /* NULL is fine */
/* Makes a read-only volume of the tree below dir (as vol_real_path returns it). Paths must begin
 * with dir. No link is followed: -LE_LOOP; open returns -LE_STALE if path is no regular file.
 * Only such a volume sets born_ns. v must outlive it. -LE_NOTSUP. Yields. */
static inline int vol_beneath(struct vol *v, const char *dir, struct vol **ret_vol)
{
	return v->ops->beneath ? v->ops->beneath(v, dir, ret_vol) : -LE_NOTSUP;
}

static inline int vol_stat(struct vol *v, const char *path, struct vol_stat *ret_st)
{
	return v->ops->stat(v, path, ret_st);
}
static inline int vol_open(struct vol *v, const char *path, struct vol_file **ret_file)
{
	return v->ops->open(v, path, 0 /* O_RDONLY */, 0, ret_file);
}
/* Opens a file that is read in large parts, concurrently and in any order. Disables read-ahead,
 * which would fetch from the servers what other nodes fetch for themselves. */
static inline int vol_open_for_parts(struct vol *v, const char *path, struct vol_file **ret_file)
{
	return v->ops->open(v, path, v->origin == ORIGIN_SERVER ? O_DIRECT : 0, 0, ret_file);
}
static inline void vol_close(struct vol_file *f)
{
	if (f)
		f->vol->ops->close(f);
}
/* Returns the bytes that were read; fewer than len only at the end of the file. */
static inline int64_t vol_pread(struct vol_file *f, void *buf, uint64_t len, uint64_t off)
{
	return f->vol->ops->pread(f, buf, len, off);
}
/* Reads bytes from off on that are in this machine's memory. Returns how many; -LE_AGAIN: none.
 * Does not yield. */
static inline int64_t vol_pread_now(struct vol_file *f, void *buf, uint64_t len, uint64_t off)
{
	return f->vol->ops->pread_now ? f->vol->ops->pread_now(f, buf, len, off) : -LE_AGAIN;
}
/* A run of a file: the bytes [from, data) are a hole, [data, hole) are data. */
struct vol_run {
	uint64_t from, data, hole;
};
/* Sets *run to the run that contains off, unless it does already. If holes are unknown, all
 * bytes are data. Yields. */
void vol_run_at(struct vol_file *f, uint64_t size, uint64_t off, struct vol_run *run);
/* True if many small reads are faster with vol_pread_batch. */
static inline bool vol_reads_batches(const struct vol *v)
{
	return v->ops->pread_batch != NULL;
}
/* Reads from several files of this volume concurrently. Yields. */
static inline void vol_pread_batch(struct vol *v, struct vol_read *reads, uint32_t n)
{
	v->ops->pread_batch(v, reads, n);
}
/* Reads all len bytes. -LE_NODATA: the file is shorter. Yields. */
int vol_pread_all(struct vol_file *f, void *buf, uint64_t len, uint64_t off) CHECK_RESULT;
/* Reads a whole file of at most max bytes: malloc'd, with a NUL after its end. -LE_FBIG: it is
 * larger. Yields. */
int vol_read_file(struct vol *v, const char *path, uint64_t max, char **ret_data,
		  size_t *ret_len) CHECK_RESULT;
/* Writes a file atomically and durably: writes a temporary file beside it, syncs, renames, syncs
 * the folder. Yields. */
int vol_write_file(struct vol *v, const char *path, const void *data, size_t len) CHECK_RESULT;
/* Like vol_write_file, but -LE_EXIST if the name exists. Of several concurrent writers one
 * succeeds. Yields. */
int vol_write_new(struct vol *v, const char *path, const void *data, size_t len) CHECK_RESULT;
/* Returns a path in dir for a temporary file that no other process chooses. -LE_NAMETOOLONG */
int vol_tmp_name(const char *dir, char ret_path[4096]) CHECK_RESULT;
/* Removes temporary files that interrupted calls have left in dir. No process may be writing
 * there. Returns 0 if dir does not exist. Yields. */
int vol_remove_tmp(struct vol *v, const char *dir) CHECK_RESULT;
/* Makes a directory and its parents; 0 if it exists. Yields. */
int vol_mkdirs(struct vol *v, const char *path) CHECK_RESULT;
/* Resolves all links of path, also at its end. Only the result "/" ends with a slash. -LE_LOOP
 * after 40 links. Yields. */
int vol_real_path(struct vol *v, const char *path, char ret_path[4096]) CHECK_RESULT;
/* Like vol_real_path, but follows only links of root and of `uid`: -LE_PERM for another user's
 * link. Yields. */
int vol_trusted_path(struct vol *v, const char *path, uint32_t uid,
		     char ret_path[4096]) CHECK_RESULT;
/* Returns the rights of path, which is no link; the pool owns the access list. st: the result of
 * vol_stat, or NULL. Yields. */
int vol_rights(struct vol *v, const char *path, const struct vol_stat *st, struct acl_pool *pool,
	       struct rights *ret_rights) CHECK_RESULT;
/* Returns the rights of all directories above a path (as vol_real_path returns it), "/" first:
 * *ret_n of them, malloc'd. Yields. */
int vol_ancestors(struct vol *v, const char *path, struct acl_pool *pool,
		  struct rights **ret_rights, uint32_t *ret_n) CHECK_RESULT;

#endif
