/*
 * A volume: a tree of files to read data sets from and to keep manifests in, either the local file
 * system or a Leat namespace, so that staging and the loader are written once and can be tested
 * without servers.
 *
 * Everything here yields and must run in a fiber, for a Leat volume of the client's own loop. A
 * file belongs to the loop that opened it. Paths are absolute. Errors are statuses.
 */
#ifndef LEAT_STAGE_VOL_H
#define LEAT_STAGE_VOL_H

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "client/stage/detail.h"
#include "client/stage/rights.h"
#include "common/base/status.h"

struct block_sums;
struct env;
struct leat_fs;
struct vol;

struct vol_stat {
	uint64_t size;
	int64_t mtime_ns;
	uint64_t ino,
		ver; /* ver moves whenever the content does: ctime, or Leat's change counter */
	uint32_t mode, uid, gid;
	uint32_t block; /* of the checksums that sums() knows; 0: none */
	uint32_t nlink; /* names of a file; 0: not told */
	uint64_t dev;   /* which file system; 0: the volume's only one */
	int64_t born_ns; /* when it was made: no other one has ino and that; 0: not told */
	bool plain;      /* known to have no access list */
};

struct vol_entry {
	const char *name;
	bool has_stat; /* else only the type bits of st.mode are known, or 0 */
	struct vol_stat st;
};

struct vol_file {
	struct vol *vol;
};

/* One of many reads. done: as vol_pread returns it. sums: what the volume knows of the checksums of
 * the blocks that it touches; NULL: not wanted. */
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
	/* What a symbolic link says, NUL-terminated: -LE_NAMETOOLONG if it does not fit. */
	int (*readlink)(struct vol *v, const char *path, char *buf, size_t size);
	/* The bytes of system.posix_acl_access, of what is no link: how many, 0 for no list.
	 * -LE_STALE: path leads to something else by now than what stat has told of. */
	int64_t (*acl)(struct vol *v, const char *path, const struct vol_stat *of, void *buf,
		       size_t size);
	/* each must not yield; non-zero ends the walk and is returned. */
	int (*list)(struct vol *v, const char *path,
		    int (*each)(void *arg, const struct vol_entry *e), void *arg);
	int (*open)(struct vol *v, const char *path, int flags, uint32_t mode,
		    struct vol_file **ret_file);
	void (*close)(struct vol_file *f);
	/* Of the file itself, whatever its name means by now. */
	int (*file_stat)(struct vol_file *f, struct vol_stat *ret_st);
	int64_t (*pread)(struct vol_file *f, void *buf, uint64_t len, uint64_t off);
	int64_t (*pread_now)(struct vol_file *f, void *buf, uint64_t len,
			     uint64_t off);                                    /* NULL: never */
	void (*pread_many)(struct vol *v, struct vol_read *reads, uint32_t n); /* NULL: no gain */
	/* The next bytes from off on that are in no hole, [*ret_data, *ret_hole), both the file's
	 * size if there are none; NULL, or -LE_NOTSUP: holes are not known. */
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
	/* -LE_EXIST where something has that name. */
	int (*rename_new)(struct vol *v, const char *from, const char *to);
	int (*exchange)(struct vol *v, const char *a, const char *b); /* of names, in one step */
	int (*syncdir)(struct vol *v, const char *path);
	int (*seal)(struct vol *v, const char *path); /* a file's content: for ever */
	int (*symlink)(struct vol *v, const char *target, const char *path);
	/* Owner, mode, access list (none: it has none) and time of what has that name itself; of a
	 * link but owner and time. An owner that this user may not give: the mode grants the group
	 * nothing then, and has no special bits. */
	int (*set_rights)(struct vol *v, const char *path, const struct rights *r,
			  int64_t mtime_ns);
	/* vol_beneath; NULL: it is not for such trees. */
	int (*beneath)(struct vol *v, const char *dir, struct vol **ret_vol);
	void (*destroy)(struct vol *v);
};

struct vol {
	const struct vol_ops *ops;
	enum detail_origin origin;
};

/* The local file system. env is borrowed; files are opened on the loop that asks. */
int vol_local_create(struct env *env, struct vol **ret_vol) CHECK_RESULT;
/* The same, but what it writes is durable only once somebody else syncs it. */
int vol_local_create_soft(struct env *env, struct vol **ret_vol) CHECK_RESULT;
/* A Leat namespace, with the rights of the instance, which is borrowed. */
int vol_leat_create(struct leat_fs *fs, struct vol **ret_vol) CHECK_RESULT;
void vol_destroy(struct vol *v); /* NULL is fine */
/* The same for reading what lies below dir (as vol_real_path returns it) only: paths have to begin
 * with it, and no link is followed on the way, nor at the end: -LE_LOOP, or -LE_STALE where open
 * finds what is no file. It alone tells born_ns. v outlives it. */
static inline int vol_beneath(struct vol *v, const char *dir, struct vol **ret_vol)
{
	return v->ops->beneath ? v->ops->beneath(v, dir, ret_vol) : -LE_NOTSUP;
}
int vol_local_beneath(struct env *env, const char *dir, struct vol **ret_vol) CHECK_RESULT;
/* A local directory, made with its parents where it is not there: a descriptor (O_PATH). By links
 * of root and of `uid` alone: -LE_PERM for another's, who could lead it elsewhere. v: a local
 * volume. Yields. */
int vol_open_made(struct vol *v, const char *dir, uint32_t uid) CHECK_RESULT;
/* vol_ops.data of a local descriptor, in a call that may block. */
int vol_seek_data(int fd, uint64_t off, uint64_t *ret_data, uint64_t *ret_hole) CHECK_RESULT;
/* vol_ops.acl of a local descriptor (O_PATH is enough), in a call that may block. */
int64_t vol_acl_of(int fd, const struct vol_stat *of, void *buf, size_t size) CHECK_RESULT;
void vol_take_stat(const struct stat *from, struct vol_stat *to);
/* A descriptor, close-on-exec, of the regular file that a local path leads to, in a call that may
 * block: -LE_ISDIR, -LE_STALE for what is none either. No pipe is waited for, and no device is
 * opened. */
int vol_open_regular(const char *path, int flags, mode_t mode) CHECK_RESULT;

static inline int vol_stat(struct vol *v, const char *path, struct vol_stat *ret_st)
{
	return v->ops->stat(v, path, ret_st);
}
static inline int vol_open(struct vol *v, const char *path, struct vol_file **ret_file)
{
	return v->ops->open(v, path, 0 /* O_RDONLY */, 0, ret_file);
}
/* To be read in large parts, many at once and in any order: nothing is read ahead, which would move
 * over the net what others ask for themselves. */
static inline int vol_open_for_parts(struct vol *v, const char *path, struct vol_file **ret_file)
{
	return v->ops->open(v, path, v->origin == ORIGIN_SERVER ? O_DIRECT : 0, 0, ret_file);
}
static inline void vol_close(struct vol_file *f)
{
	if (f)
		f->vol->ops->close(f);
}
/* How many bytes; short only at the end of the file. */
static inline int64_t vol_pread(struct vol_file *f, void *buf, uint64_t len, uint64_t off)
{
	return f->vol->ops->pread(f, buf, len, off);
}
/* What is in this machine's memory, without yielding: bytes from off on, -LE_AGAIN for none. */
static inline int64_t vol_pread_now(struct vol_file *f, void *buf, uint64_t len, uint64_t off)
{
	return f->vol->ops->pread_now ? f->vol->ops->pread_now(f, buf, len, off) : -LE_AGAIN;
}
/* Of a file: the bytes [from, data) are a hole, what begins at data ends at hole. */
struct vol_run {
	uint64_t from, data, hole;
};
/* The run that off is in, unless run is it already. Where holes are not known all is data. Yields.
 */
void vol_run_at(struct vol_file *f, uint64_t size, uint64_t off, struct vol_run *run);
/* Are many small reads quicker when they are asked for together? Then by vol_pread_many. */
static inline bool vol_reads_many(const struct vol *v)
{
	return v->ops->pread_many != NULL;
}
/* Of files of this volume. */
static inline void vol_pread_many(struct vol *v, struct vol_read *reads, uint32_t n)
{
	v->ops->pread_many(v, reads, n);
}
/* All of them; -LE_NODATA when the file is shorter. */
int vol_pread_all(struct vol_file *f, void *buf, uint64_t len, uint64_t off) CHECK_RESULT;
/* A whole file of at most max bytes, malloc'd, NUL-terminated behind len. -LE_FBIG if it is larger.
 */
int vol_read_file(struct vol *v, const char *path, uint64_t max, char **ret_data,
		  size_t *ret_len) CHECK_RESULT;
/* Durable and atomic: a temporary file beside it, sync, rename, sync of the folder. */
int vol_write_file(struct vol *v, const char *path, const void *data, size_t len) CHECK_RESULT;
/* The same where there is nothing of that name, else -LE_EXIST. Of several that write it one does.
 */
int vol_write_new(struct vol *v, const char *path, const void *data, size_t len) CHECK_RESULT;
/* A name in dir that nobody else chooses. */
int vol_tmp_name(const char *dir, char ret_path[4096]) CHECK_RESULT;
/* Removes files of such names, which calls that did not end have left. Only where nobody writes
 * there just now. Fine if dir is not there. Yields. */
int vol_remove_tmp(struct vol *v, const char *dir) CHECK_RESULT;
/* With its parents; fine if it is there. */
int vol_mkdirs(struct vol *v, const char *path) CHECK_RESULT;
/* Where path is, without a link on the way or at its end, "/" alone with a slash at its end.
 * -LE_LOOP after 40 links. */
int vol_real_path(struct vol *v, const char *path, char ret_path[4096]) CHECK_RESULT;
/* The same by links of these users alone, root's and `uid`'s: -LE_PERM for another's. */
int vol_trusted_path(struct vol *v, const char *path, uint32_t uid,
		     char ret_path[4096]) CHECK_RESULT;
/* What path, which is no link, grants now; its access list goes to the pool. st: what vol_stat has
 * said; NULL: it is asked. */
int vol_rights(struct vol *v, const char *path, const struct vol_stat *st, struct acl_pool *pool,
	       struct rights *ret_rights) CHECK_RESULT;
/* The same of all directories that lie above a path (as vol_real_path returns it), "/" first:
 * malloc'd, *ret_n of them. */
int vol_ancestors(struct vol *v, const char *path, struct acl_pool *pool,
		  struct rights **ret_rights, uint32_t *ret_n) CHECK_RESULT;

/* ---- all that is below a directory ---- */
struct scan_file {
	char *path; /* below the directory, no leading slash */
	char *from; /* a link named it, which is elsewhere: where it is. NULL: at its path */
	struct vol_stat st;
	struct rights rights; /* its access list is the scan's */
};
struct scan_dir {
	char *path; /* "": the directory itself */
	struct vol_stat st;
	struct rights rights;
};
struct scan_link {
	char *path, *target;
	struct vol_stat st;
};

/* Why something is left out: a symbolic link, and what is no file, directory or link. */
enum left_why {
	LEFT_DANGLING,  /* it names nothing, or what is left out itself */
	LEFT_DIRECTORY, /* it names a directory outside of the tree */
	LEFT_OUTSIDE,   /* it names something on another file system, or what is no file */
	LEFT_LOOP,      /* it leads back to itself */
	LEFT_DENIED,    /* what it names may not be looked at */
	LEFT_DEVICE,
	LEFT_SOCKET,
	LEFT_PIPE,
	LEFT_MEMBER, /* of an archive, neither file nor hard link */
	LEFT_KINDS
};
#define LEFT_NAMES 3u
struct left_out {
	uint64_t n;
	char *names[LEFT_NAMES]; /* the first ones, NULL behind the last */
};

struct scan {
	struct scan_file *files; /* regular ones, sorted by the bytes of path */
	struct scan_dir *dirs;   /* the same way */
	struct scan_link *links; /* the same way: those that stay in the tree */
	uint32_t n, cap, n_dirs, cap_dirs, n_links, cap_links;
	struct left_out left[LEFT_KINDS];
	uint64_t bytes, n_hard_links; /* files that have other names, too */
	struct acl_pool acls;
	bool within; /* no link is followed out of the tree */
	/* Where it lies; vol_beneath of that, and of all of the volume. NULL: it is no tree. */
	char *real;
	struct vol *in, *top;
};
#define SCAN_FILES_MAX (1u << 26)
/*
 * Symbolic links. One stays a link if each step from it, by relative links, stays below dir and
 * comes to something that is there. Another one becomes the file that it names, if that is a
 * regular file of the same file system: then nobody may read the file that could not read it where
 * it lies (its rights, and those to search the directories that lead only there). All others are
 * left out, and told.
 *
 * Nothing is found through a link: what others exchange meanwhile is an error, never another tree.
 *
 * What is ours is no part of a tree: the name ".leat" in dir itself, and names ".leat-out-" with 16
 * hexadecimal digits. The walk is bounded: path 4095 bytes, SCAN_FILES_MAX files, directories,
 * links. Yields.
 */
int scan_tree(struct vol *v, const char *dir, struct scan *ret_scan, struct detail *d) CHECK_RESULT;
/* The same, but links that lead out are left out, whatever they name. */
int scan_tree_within(struct vol *v, const char *dir, struct scan *ret_scan,
		     struct detail *d) CHECK_RESULT;
void scan_fini(struct scan *s);
/* dirs by their paths. Of two with one path and different rights one stays that is root's alone. */
void scan_sort_dirs(struct scan *s);
/* scan_links.c: links that do not stay in the tree become files, or are left out. All arrays are
 * sorted, and are again. dev: of the tree's directory. Yields. */
int scan_settle_links(struct scan *s, uint64_t dev) CHECK_RESULT;
/* What a file outside of a tree grants to who comes by a link of it: its rights, and those to
 * search the directories that lead to it and not to the tree. Both paths as vol_real_path returns
 * them; st: of the file. Yields. */
int scan_rights_of_other(struct vol *top, const char *tree, const char *path,
			 const struct vol_stat *st, struct acl_pool *pool,
			 struct rights *ret_rights) CHECK_RESULT;
int scan_add_file(struct scan *s, const struct scan_file *f) CHECK_RESULT;
int scan_leave_out(struct scan *s, enum left_why why, const char *path) CHECK_RESULT;
/* Where to read file f of the scan, and in which volume. */
int scan_source_path(const struct scan *s, const struct scan_file *f, struct vol **ret_vol,
		     char ret_path[4096]) CHECK_RESULT;

#endif
