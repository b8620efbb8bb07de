/*
 * A side: a file system that a tree lies in, the local one or a Leat namespace, so that walking,
 * removing and copying are written once. Unlike a volume (stage/vol.h) it works from open
 * directories, never from paths, so that no link leads out of the tree.
 *
 * Everything here yields and runs in fibers of one loop. Names have been checked by the caller
 * (walk.c): no slash, not "..". Errors are statuses.
 */
#ifndef LEAT_TREE_SIDE_H
#define LEAT_TREE_SIDE_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/proto/types.h"

struct env;
struct leat_fs;
struct ll_file;
struct side;

#define SIDE_LIST_MAX 512u

struct tattr {
	uint64_t ino, dev, size, blocks; /* blocks of 512 bytes */
	uint32_t mode, nlink, uid, gid;
	uint64_t rdev;
	int64_t atime_ns, mtime_ns;
	bool plain; /* known to have no extended attributes */
};

struct tent {
	struct tattr a; /* without attributes asked for: ino and the type in mode */
	int rc;         /* why its attributes could not be had, and 0 */
	char name[LEAT_NAME_MAX + 1];
};

/* An open directory. side NULL: not open. */
struct tdir {
	struct side *side;
	struct ino ino; /* Leat */
	int fd;         /* local: O_PATH */
	DIR *stream;    /* local: while it is listed */
	uint64_t cookie;
};

struct tfile {
	struct side *side; /* NULL: not open */
	struct ll_file *ll;
	int fd;
	uint64_t ino;
	bool plain; /* it had no extended attributes when it was made */
};

/* What a copy keeps of its source. */
struct tmeta {
	struct tattr a;
	unsigned keep; /* LEAT_KEEP_... */
	char *xattrs;  /* name, NUL, u32 length, value, ... */
	size_t len, cap;
};

/* Another name for what was made before. */
struct tlink {
	uint64_t ino;
	const struct tdir *top; /* local: path below it */
	const char *path;
};

struct side_ops {
	/* The directory of the path's last component, and its name; "." for the root. Links before
	 * it are followed. */
	int (*at)(struct side *s, const char *path, struct tdir *ret_dir, char *ret_name);
	/* "." is the directory itself. Does not follow links. */
	int (*look)(struct tdir *d, const char *name, struct tattr *ret_attr);
	/* a: as look or list gave it */
	int (*open)(struct tdir *d, const char *name, const struct tattr *a, struct tdir *ret_dir);
	void (*close)(struct tdir *d);
	/* The next entries, at most SIDE_LIST_MAX. */
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

	/* Opens a file for reading; what lies at its beginning into buf (cap 0: nothing); its
	 * attributes, which may be others than those of the list, into m->a; its extended
	 * attributes into m, if m->keep asks for them. */
	int (*load)(struct tdir *d, const struct tent *e, struct tfile *ret_file, void *buf,
		    size_t *len, struct tmeta *m);
	int64_t (*pread)(struct tfile *f, void *buf, size_t len, uint64_t off);
	int64_t (*seek)(struct tfile *f, uint64_t off, int whence);
	/* A new file (-LE_EXIST), with so much in it. Nothing is left behind after a failure. */
	int (*store)(struct tdir *d, const char *name, uint32_t mode, const void *buf, size_t len,
		     struct tfile *ret_file);
	int (*pwrite)(struct tfile *f, const void *buf, size_t len, uint64_t off);
	/* Between two files of this side, by its servers: bytes, -LE_NOTSUP. May be NULL. */
	int64_t (*copy)(struct tfile *from, uint64_t off, struct tfile *to, uint64_t len);
	/* size (UINT64_MAX: as it is), what is to be kept; and closes, whatever is returned. */
	int (*finish)(struct tfile *f, uint64_t size, const struct tmeta *m);
	void (*drop)(struct tfile *f); /* closes */

	/* Of what is no file: name, or "." for the directory itself. apply: made is what was made
	 * there, NULL for "."; to what has come there since nothing happens (-LE_STALE). */
	int (*xattrs)(struct tdir *d, const char *name, const struct tattr *a, struct tmeta *m);
	int (*apply)(struct tdir *d, const char *name, const struct tattr *made,
		     const struct tmeta *m);
	void (*destroy)(struct side *s);
};

struct side {
	const struct side_ops *ops;
	uint32_t umask;
	bool root;  /* the caller is root here */
	bool local; /* in threads of env */
};

/* fs is borrowed; on its own loop. */
int side_leat_create(struct leat_fs *fs, struct side **ret_side) CHECK_RESULT;
/* System calls run on the workers of env, which is borrowed. */
int side_local_create(struct env *env, uint32_t umask, struct side **ret_side) CHECK_RESULT;
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
/* value of len bytes. -LE_2BIG beyond what an inode may have. */
int tmeta_add(struct tmeta *m, const char *name, const void *value, uint32_t len) CHECK_RESULT;
/* at: where to read on, 0 first. False at the end. */
bool tmeta_next(const struct tmeta *m, size_t *at, const char **ret_name, struct bytes *ret_value);
/* An access list: to be set after the mode. */
bool tmeta_is_acl(const char *name);
/* The i-th access list that the source does not have, so that the copy is not to have it either,
 * from the directory that it was made in: to be removed before the mode is set, which says then
 * what others may. NULL behind the last. */
const char *tmeta_no_acl(const struct tmeta *m, size_t i);
/* A failure to keep something, of which nobody need hear: the other side has no such thing. */
bool tmeta_cannot(int rc);

#endif
