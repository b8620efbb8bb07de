/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/store/staged.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "client/dataset/beneath.h"
#include "client/stage/store/inode_index.h"
#include "client/stage/store/stamps.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/rt/fiber.h"

/* If a folder was changed less than this before it was read, a later change may leave its ctime the
 * same: on some file systems time stamps are as coarse as the kernel's tick. It is read again. */
#define RACY_NS 50000000

/* Immutable once it is in the list, except refs, lease_fd and seen. */
struct staged_copy {
	struct list link;
	struct staged *s;
	uint32_t dir; /* index in s->dirs */
	char id[MANIFEST_ID_SIZE];
	struct stat index_st; /* of the index file */
	struct inode_index index;
	int fd; /* DIR/.leat/ID */
	int lease_fd;
	uint32_t refs; /* one for each user, and one for the list */
	bool refused;
	bool seen; /* found by the present scan */
};

struct staged_dir {
	char path[4096];       /* DIR/.leat/inodes */
	struct timespec ctime; /* changes with every name in the folder, and with the folder's
				* rights */
	ino_t ino;
	bool known, racy;
};

struct staged {
	struct env *env;
	struct uuid cluster;
	struct list copies;
	uint32_t n_copies, n_refused;
	uint64_t generation;
	struct fmutex scan_lock;
	uint32_t n_dirs;
	struct staged_dir dirs[STAGED_DIRS_MAX];
};

/* ---- trusted folders ---- */

/* Unlike beneath_is_ours(), which also accepts folders of root: only what this user has made is
 * served. */
static bool is_ours(const struct stat *st)
{
	return st->st_uid == geteuid() && beneath_is_ours(st);
}

/* Opens a folder that no other user may change. */
static int open_own_dir(int dirfd, const char *path)
{
	struct stat st;
	int fd = dirfd == AT_FDCWD
			 ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
			 : openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return status_from_errno(errno);
	int rc = fstat(fd, &st) < 0 ? status_from_errno(errno) : is_ours(&st) ? 0 : -LE_PERM;
	if (rc < 0) {
		close(fd);
		return rc;
	}
	return fd;
}

static int64_t ns_of(const struct timespec *t)
{
	return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

/* ---- finding copies, on a worker ---- */

struct found {
	char id[MANIFEST_ID_SIZE];
	struct stat st;
};

struct look {
	const char *path; /* DIR/.leat/inodes */
	struct stat st;
	struct found *found;
	uint32_t n;
	bool too_many;
	int rc;
};

static int add_found(struct look *l, int dirfd, const char *name)
{
	struct stat st;
	if (!manifest_is_id(name) || fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	if (l->n == STAGED_COPIES_MAX) {
		l->too_many = true;
		return 0;
	}
	if ((l->n & (l->n - 1)) == 0) {
		struct found *more = realloc(l->found, (l->n ? l->n * 2 : 1) * sizeof(*more));
		if (!more)
			return -LE_NOMEM;
		l->found = more;
	}
	memcpy(l->found[l->n].id, name, MANIFEST_ID_SIZE);
	l->found[l->n++].st = st;
	return 0;
}

static void look_worker(void *arg)
{
	struct look *l = arg;
	struct dirent *e;
	int fd = open_own_dir(AT_FDCWD, l->path);
	if (fd < 0) {
		l->rc = fd;
		if (lstat(l->path, &l->st) < 0)
			l->rc = -LE_NOENT;
		return;
	}
	/* Take the ctime before reading the names: a change meanwhile leads to another scan. */
	DIR *d = fstat(fd, &l->st) == 0 ? fdopendir(fd) : NULL;
	if (!d) {
		l->rc = status_from_errno(errno);
		close(fd);
		return;
	}
	while (l->rc == 0 && (e = readdir(d)) != NULL)
		l->rc = add_found(l, dirfd(d), e->d_name);
	closedir(d);
}

struct load {
	const char *inodes; /* DIR/.leat/inodes */
	struct staged_copy *c;
	int rc;
};

static void load_worker(void *arg)
{
	struct load *l = arg;
	struct staged_copy *c = l->c;
	char base[4096];
	snprintf(base, sizeof(base), "%s", l->inodes);
	*strrchr(base, '/') = 0;
	int base_fd = open_own_dir(AT_FDCWD, base);
	if (base_fd < 0) {
		l->rc = base_fd;
		return;
	}
	c->fd = open_own_dir(base_fd, c->id);
	int fd = c->fd < 0 ? c->fd : -1;
	if (c->fd >= 0) {
		char name[80];
		snprintf(name, sizeof(name), "inodes/%s", c->id);
		fd = beneath_openat(base_fd, name, O_RDONLY, 0);
	}
	close(base_fd);
	if (fd < 0) {
		l->rc = fd;
		return;
	}
	struct stat st;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || !is_ours(&st))
		l->rc = -LE_PERM;
	else
		l->rc = inode_index_map(fd, &c->index);
	close(fd);
}

/* ---- copies ---- */

static void copy_free(struct staged_copy *c)
{
	inode_index_unmap(&c->index);
	if (c->fd >= 0)
		close(c->fd);
	free(c);
}

static void copy_unref(struct staged_copy *c)
{
	ASSERT(c->refs > 0);
	if (--c->refs == 0)
		copy_free(c);
}

void staged_put(struct staged_copy *c)
{
	/* The list holds one reference while the copy is in it. */
	bool listed = !list_empty(&c->link);
	if (c->refs == 1u + listed && c->lease_fd >= 0) {
		close(c->lease_fd);
		c->lease_fd = -1;
	}
	copy_unref(c);
}

static void copy_drop(struct staged_copy *c)
{
	struct staged *s = c->s;
	list_remove(&c->link);
	list_init(&c->link);
	if (c->refused)
		s->n_refused--;
	else
		s->n_copies--;
	copy_unref(c);
}

static void copy_load(struct staged *s, uint32_t dir, const struct found *f)
{
	struct staged_copy *c = calloc(1, sizeof(*c));
	if (!c)
		return;
	*c = (struct staged_copy){.s = s,
				  .dir = dir,
				  .index_st = f->st,
				  .fd = -1,
				  .lease_fd = -1,
				  .refs = 1,
				  .seen = true};
	memcpy(c->id, f->id, sizeof(c->id));
	struct load l = {s->dirs[dir].path, c, 0};
	int rc = env_offload(s->env, load_worker, &l);
	if (rc == 0)
		rc = l.rc;
	if (rc == 0 && !uuid_equal(&c->index.cluster, &s->cluster))
		rc = -LE_WRONG_CLUSTER;
	c->refused = rc < 0;
	if (rc < 0)
		log_warn("the staged copy %.12s below %s is not served: %s", c->id,
			 s->dirs[dir].path,
			 rc == -LE_PERM            ? "another user could change it"
			 : rc == -LE_WRONG_CLUSTER ? "it is of another cluster"
						   : status_text(rc));
	list_push(&s->copies, &c->link);
	if (c->refused)
		s->n_refused++;
	else
		s->n_copies++;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
	       ns_of(&a->st_mtim) == ns_of(&b->st_mtim) && ns_of(&a->st_ctim) == ns_of(&b->st_ctim);
}

static struct staged_copy *copy_of(struct staged *s, uint32_t dir, const struct found *f)
{
	list_for_each (n, &s->copies) {
		struct staged_copy *c = list_entry(n, struct staged_copy, link);
		if (c->dir == dir && strcmp(c->id, f->id) == 0 && same_file(&c->index_st, &f->st))
			return c;
	}
	return NULL;
}

static void drop_unseen(struct staged *s, uint32_t dir)
{
	struct list *next;
	for (struct list *n = s->copies.next; n != &s->copies; n = next) {
		struct staged_copy *c = list_entry(n, struct staged_copy, link);
		next = n->next;
		if (c->dir == dir && !c->seen)
			copy_drop(c);
	}
}

/* Brings the list up to date for one directory. Yields; the caller holds scan_lock. */
static void scan(struct staged *s, uint32_t dir)
{
	struct staged_dir *d = &s->dirs[dir];
	struct look l = {.path = d->path};
	int64_t now = env_wall_ns(s->env);
	int rc = env_offload(s->env, look_worker, &l);
	if (rc == 0)
		rc = l.rc;
	if (rc < 0 && rc != -LE_NOENT)
		log_warn("%s is not searched for staged copies: %s", d->path,
			 rc == -LE_PERM ? "another user could change it" : status_text(rc));
	list_for_each (n, &s->copies) {
		struct staged_copy *c = list_entry(n, struct staged_copy, link);
		if (c->dir == dir)
			c->seen = false;
	}
	for (uint32_t i = 0; i < l.n; i++) {
		struct staged_copy *c = copy_of(s, dir, &l.found[i]);
		if (c)
			c->seen = true;
		else
			copy_load(s, dir, &l.found[i]);
	}
	drop_unseen(s, dir);
	if (l.too_many)
		log_warn("%s: more than %u copies, the others are not served", d->path,
			 STAGED_COPIES_MAX);
	free(l.found);
	d->known = rc != -LE_NOENT;
	d->ctime = l.st.st_ctim;
	d->ino = l.st.st_ino;
	d->racy = now - ns_of(&l.st.st_ctim) < RACY_NS;
}

static bool is_stale(const struct staged_dir *d)
{
	struct stat st;
	/* The kernel has just looked this name up, so lstat does not wait for a disk. */
	if (lstat(d->path, &st) < 0)
		return d->known;
	return !d->known || d->racy || st.st_ino != d->ino ||
	       ns_of(&st.st_ctim) != ns_of(&d->ctime);
}

static void refresh(struct staged *s)
{
	for (uint32_t i = 0; i < s->n_dirs; i++) {
		if (!is_stale(&s->dirs[i]))
			continue;
		fmutex_lock(&s->scan_lock);
		if (is_stale(&s->dirs[i]))
			scan(s, i);
		fmutex_unlock(&s->scan_lock);
		s->generation++;
	}
}

uint64_t staged_generation(struct staged *s)
{
	for (uint32_t i = 0; i < s->n_dirs; i++)
		if (is_stale(&s->dirs[i]))
			return s->generation + 1;
	return s->generation;
}

/* ---- files ---- */

struct opening {
	struct staged_copy *c;
	const char *path;
	const struct file_stamp *stamp;
	uint64_t size;
	uint32_t uid; /* owner of the file at the source */
	bool wait;    /* may wait for the disk */
	int lease_fd, rc;
};

static int take_lease(const struct opening *o, uint64_t resolve)
{
	int fd = beneath_openat(o->c->fd, "lease", O_RDWR | O_CREAT, resolve);
	if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0) {
		int rc = errno == EWOULDBLOCK ? -LE_NOENT : status_from_errno(errno);
		close(fd); /* a process is just removing the copy */
		return rc;
	}
	return fd;
}

/* A copy of several directories has links to its files in the others. Follows such a link only
 * to the same file of the same copy, in a directory that this mount has been given too. */
static int open_elsewhere(const struct opening *o, const char *path)
{
	const struct staged *s = o->c->s;
	char target[4096 + 256], want[4096 + 256];
	ssize_t len = readlinkat(o->c->fd, path, target, sizeof(target) - 1);
	if (len < 0)
		return -LE_NOENT;
	target[len] = 0;
	for (uint32_t i = 0; i < s->n_dirs; i++) {
		int base_len = (int)(strrchr(s->dirs[i].path, '/') - s->dirs[i].path);
		char base[4096];
		snprintf(base, sizeof(base), "%.*s", base_len, s->dirs[i].path);
		int n = snprintf(want, sizeof(want), "%s/%s/%s", base, o->c->id, path);
		if (n >= (int)sizeof(want) || strcmp(want, target) != 0)
			continue;
		int base_fd = open_own_dir(AT_FDCWD, base);
		int dir_fd = base_fd < 0 ? base_fd : open_own_dir(base_fd, o->c->id);
		int fd = dir_fd;
		if (fd >= 0)
			fd = beneath_openat(dir_fd, path, O_RDONLY | O_NONBLOCK, RESOLVE_NO_XDEV);
		if (dir_fd >= 0)
			close(dir_fd);
		if (base_fd >= 0)
			close(base_fd);
		return fd;
	}
	return -LE_NOENT;
}

/* Returns whether the file is as it was when it was verified last. The owner of the file, or of
 * a folder on the way to it, could have changed it; then its stamp no longer fits. path: below
 * the copy. */
static bool is_unchanged(const struct opening *o, const char *path, const struct stat *st)
{
	bool ours = st->st_uid == geteuid();
	char folder[4096 + 8];
	struct stat on_way;
	if (!S_ISREG(st->st_mode) || (!ours && st->st_uid != o->uid) || (st->st_mode & 022) ||
	    (uint64_t)st->st_size != o->size)
		return false;
	for (const char *end = path; (end = strchr(end, '/')) != NULL; end++) {
		snprintf(folder, sizeof(folder), "%.*s", (int)(end - path), path);
		if (fstatat(o->c->fd, folder, &on_way, AT_SYMLINK_NOFOLLOW) < 0)
			return false;
		ours = ours && on_way.st_uid == geteuid() && !(on_way.st_mode & 022);
	}
	return ours || stamp_fits(o->stamp, st);
}

static void open_worker(void *arg)
{
	struct opening *o = arg;
	/* A file system that a user has mounted below the copy may claim any content and owner. */
	uint64_t resolve = RESOLVE_NO_XDEV | (o->wait ? 0 : RESOLVE_CACHED);
	char path[4096 + 8];
	struct stat st;
	o->lease_fd = -1;
	if (o->c->lease_fd < 0) {
		o->lease_fd = take_lease(o, resolve);
		if (o->lease_fd < 0) {
			o->rc = o->lease_fd;
			return;
		}
	}
	snprintf(path, sizeof(path), "data/%s", o->path);
	int fd = beneath_openat(o->c->fd, path, O_RDONLY | O_NONBLOCK, resolve);
	if (fd == -LE_LOOP)
		fd = o->wait ? open_elsewhere(o, path) : -LE_AGAIN;
	if (fd >= 0 && (fstat(fd, &st) < 0 || !is_unchanged(o, path, &st))) {
		close(fd);
		fd = -LE_NOENT;
	}
	/* Checked under the lease, which prevents removal. The index of a share lists only its
	 * files. */
	if (fd >= 0 && faccessat(o->c->fd, "READY", F_OK, AT_SYMLINK_NOFOLLOW) < 0 &&
	    faccessat(o->c->fd, "SHARE", F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
		close(fd);
		fd = -LE_NOENT;
	}
	if (fd < 0 && o->lease_fd >= 0)
		close(o->lease_fd);
	o->rc = fd;
}

static int open_file(struct staged *s, struct staged_copy *c, const struct inode_entry *e,
		     uint32_t uid)
{
	struct opening o = {.c = c,
			    .path = inode_index_path(&c->index, e),
			    .stamp = &e->stamp,
			    .size = e->size,
			    .uid = uid};
	int rc = 0;
	/* First try without a worker thread: succeeds if the kernel has the names cached. */
	open_worker(&o);
	if (o.rc == -LE_AGAIN || o.rc == -LE_INVAL) {
		o.wait = true;
		rc = env_offload(s->env, open_worker, &o);
	}
	if (rc < 0)
		return rc;
	if (o.rc >= 0 && o.lease_fd >= 0) {
		if (c->lease_fd < 0)
			c->lease_fd = o.lease_fd;
		else
			close(o.lease_fd);
	}
	return o.rc;
}

static bool fits(const struct staged_copy *c, const struct inode_entry *e,
		 const struct staged_want *w)
{
	return e->ver == w->ver && e->size == w->size &&
	       (c->index.said_by == 0 || c->index.said_by == w->uid);
}

int staged_open(struct staged *s, const struct staged_want *want, struct staged_copy **ret_copy)
{
	refresh(s);
	struct list *next;
	for (struct list *n = s->copies.next; n != &s->copies; n = next) {
		struct staged_copy *c = list_entry(n, struct staged_copy, link);
		const struct inode_entry *e;
		next = n->next;
		if (c->refused || !(e = inode_index_find(&c->index, want->ino)) ||
		    !fits(c, e, want))
			continue;
		c->refs++;
		int fd = open_file(s, c, e, want->uid);
		if (fd >= 0) {
			*ret_copy = c;
			return fd;
		}
		/* open_file has yielded and the list may have changed, so the search does not
		 * continue. */
		staged_put(c);
		return fd == -LE_NOENT ? fd : -LE_NOENT;
	}
	return -LE_NOENT;
}

/* ---- creation and destruction ---- */

int staged_create(struct env *env, const char *dirs, const struct uuid *cluster,
		  struct staged **ret_staged)
{
	struct staged *s = calloc(1, sizeof(*s));
	char *copy = strdup(dirs), *save = NULL;
	int rc = s && copy ? 0 : -LE_NOMEM;
	if (rc == 0) {
		s->env = env;
		s->cluster = *cluster;
		list_init(&s->copies);
		fmutex_init(&s->scan_lock);
	}
	for (char *word = rc == 0 ? strtok_r(copy, " ,:", &save) : NULL; word && rc == 0;
	     word = strtok_r(NULL, " ,:", &save)) {
		if (word[0] != '/' || s->n_dirs == STAGED_DIRS_MAX || strlen(word) > 3900)
			rc = -LE_INVAL;
		else
			snprintf(s->dirs[s->n_dirs++].path, sizeof(s->dirs[0].path),
				 "%s/.leat/inodes", word);
	}
	free(copy);
	if (rc < 0)
		staged_destroy(s);
	else
		*ret_staged = s;
	return rc;
}

void staged_destroy(struct staged *s)
{
	if (!s)
		return;
	while (!list_empty(&s->copies))
		copy_drop(list_entry(s->copies.next, struct staged_copy, link));
	free(s);
}

void staged_stats(const struct staged *s, struct staged_stats *ret_stats)
{
	*ret_stats = (struct staged_stats){s->n_copies, s->n_refused};
}
