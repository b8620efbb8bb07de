/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A side: the local file system or a Leat namespace, as one end of walking, removing and copying.
 * Unlike a volume (dataset/vol.h) it starts from open directories, never from paths, so that no
 * link leads out of the tree.
 *
 * All calls but close may yield, and run in fibers of one loop. The caller has checked names
 * (walk.c): no slash, not "..". Errors are statuses.
 */
#ifndef LEAT_CLIENT_TREE_SIDE_H
#define LEAT_CLIENT_TREE_SIDE_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/proto/types.h"

struct ll_file;
struct side;

#define SIDE_LIST_MAX 512u

struct tattr {
	uint64_t ino, dev, size, blocks; /* blocks of 512 bytes */
	uint32_t mode, nlink, uid, gid;
	uint64_t rdev;
	int64_t atime_ns, mtime_ns;
	bool plain; /* has certainly no extended attributes */
};

struct tent {
	struct tattr a; /* listed without attributes: only ino and the type in mode */
	int rc;         /* 0, or why the attributes could not be read */
	char name[LEAT_NAME_MAX + 1];
};

/* An open directory. side NULL: not open. */
struct tdir {
	struct side *side;
	struct ino ino; /* Leat */
	int fd;         /* local: O_PATH */
	DIR *stream;    /* local: set while it is listed */
	uint64_t cookie;
};

struct tfile {
	struct side *side; /* NULL: not open */
	struct ll_file *ll;
	int fd;
	uint64_t ino, dev; /* dev: local */
	bool plain; /* it had no extended attributes when it was created */
};

/* What a copy gets from its source. */
struct tmeta {
	struct tattr a;
	unsigned keep; /* LEAT_KEEP_... */
	char *xattrs;  /* name, NUL, u32 length, value, ... */
	size_t len, cap;
};

/* An inode that was made before, which gets another name. */
struct tlink {
	uint64_t ino, dev; /* dev: local */
	const struct tdir *top; /* local: `path` starts there */
	const char *path;
};

struct side_ops {
	/* Opens the directory of the path's last component and returns that component; "." for
	 * the root. Follows links before it. */
	int (*at)(struct side *s, const char *path, struct tdir *ret_dir, char *ret_name);
	/* Returns the attributes of name, or of the directory itself for ".". Does not follow
	 * links. */
	int (*look)(struct tdir *d, const char *name, struct tattr *ret_attr);
	/* Opens a directory. a: from look or list. */
	int (*open)(struct tdir *d, const char *name, const struct tattr *a, struct tdir *ret_dir);
	void (*close)(struct tdir *d);
	/* Returns the next entries, at most SIDE_LIST_MAX. */
	int (*list)(struct tdir *d, bool attrs, struct tent *ents, uint32_t *ret_n, bool *ret_eof);
	int (*remove)(struct tdir *d, const char *name, bool dir);
	int (*mkdir)(struct tdir *d, const char *name, uint32_t mode);
	int (*symlink)(struct tdir *d, const char *name, const char *target,
		       struct tattr *ret_made);
	int (*readlink)(struct tdir *d, const char *name, const struct tattr *a, char *buf,
			size_t size);
	int (*mknod)(struct tdir *d, const char *name, uint32_t mode, uint64_t rdev,
		     struct tattr *ret_made);
	int (*link)(struct tdir *d, const char *name, const struct tlink *l);
	/* flags: 0, or RENAME_NOREPLACE (-LE_EXIST) */
	int (*rename)(struct tdir *d, const char *from, const char *to, unsigned flags);

	/* Opens a file for reading. Reads its first *len bytes into buf and sets *len. Sets m->a
	 * to its attributes, which may differ from the listed ones, and adds its extended
	 * attributes to m if m->keep includes them. */
	int (*load)(struct tdir *d, const struct tent *e, struct tfile *ret_file, void *buf,
		    size_t *len, struct tmeta *m);
	int64_t (*pread)(struct tfile *f, void *buf, size_t len, uint64_t off);
	int64_t (*seek)(struct tfile *f, uint64_t off, int whence);
	/* Makes a file (-LE_EXIST) with these bytes. Leaves no file after a failure. */
	int (*store)(struct tdir *d, const char *name, uint32_t mode, const void *buf, size_t len,
		     struct tfile *ret_file);
	int (*pwrite)(struct tfile *f, const void *buf, size_t len, uint64_t off);
	/* Copies between two files of this side by its servers; returns the bytes or -LE_NOTSUP.
	 * May be NULL. */
	int64_t (*copy)(struct tfile *from, uint64_t off, struct tfile *to, uint64_t len);
	/* Sets the size (UINT64_MAX: unchanged) and what m keeps. Closes in any case. */
	int (*finish)(struct tfile *f, uint64_t size, const struct tmeta *m);
	void (*drop)(struct tfile *f); /* closes */

	/* Read and set attributes of entries that are no files: name, or "." for the directory
	 * itself. apply: `made` is the inode that was made there, NULL for "."; -LE_STALE
	 * without a change if the name has another inode. */
	int (*xattrs)(struct tdir *d, const char *name, const struct tattr *a, struct tmeta *m);
	int (*apply)(struct tdir *d, const char *name, const struct tattr *made,
		     const struct tmeta *m);
	void (*destroy)(struct side *s);
};

struct side {
	const struct side_ops *ops;
	uint32_t umask;
	bool root;  /* the caller has uid 0 */
	bool local; /* calls run in worker threads of env */
};

void side_destroy(struct side *s); /* NULL is fine */

static inline void tdir_close(struct tdir *d)
{
	if (d->side)
		d->side->ops->close(d);
	d->side = NULL;
}
static inline void tfile_drop(struct tfile *f)
{
	if (f->side)
		f->side->ops->drop(f);
	f->side = NULL;
}

/* ---- extended attributes in a tmeta ---- */
/* Adds an attribute with a value of len bytes. -LE_2BIG beyond the limit of an inode. */
int tmeta_add(struct tmeta *m, const char *name, const void *value, uint32_t len) CHECK_RESULT;
/* Returns the next attribute; *at is 0 first. False at the end. */
bool tmeta_next(const struct tmeta *m, size_t *at, const char **ret_name, struct bytes *ret_value);
/* True for an access list, which must be set after the mode. */
bool tmeta_is_acl(const char *name);
/* Returns the i-th access list that the source lacks; NULL after the last. The copy may have
 * inherited it from its directory. It must be removed before the mode is set, which then decides
 * the rights of other users. */
const char *tmeta_no_acl(const struct tmeta *m, size_t i);
/* True for a failure to keep an attribute that is not reported: the other side lacks such
 * attributes or does not permit them. */
bool tmeta_cannot(int rc);

#endif
