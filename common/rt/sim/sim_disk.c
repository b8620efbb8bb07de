/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated disk of one process: a tree of files in memory. Every file and every name has a
 * current state (which calls return) and a durable one, with a log of the changes between them. A
 * sync applies changes of the log to the durable state. A crash applies some of them and drops the
 * current state:
 *
 * Data: per sector a prefix of the writes to it (a sector is written as a whole, in some state that
 * the cache had), sometimes ending in garbage. Names: each change separately, a rename as one. How
 * much is kept is drawn per crash, so that all and nothing occur too.
 *
 * fsync of a file does not make its name durable: POSIX does not promise it.
 */
#include "common/rt/sim/sim_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/rt/sim/sim_blob.h"
#include "common/rt/sim/sim_impl.h"

#define SECTOR        512u
#define GARBAGE_PPM   3000
#define FILE_SIZE_MAX (1ULL << 40)
#define DIRECT_ALIGN  512u

enum change_kind {
	CHANGE_WRITE,
	CHANGE_ZERO,
	CHANGE_RESIZE
};

struct change {
	struct list link;
	enum change_kind kind;
	uint64_t seq, off, len; /* RESIZE: len is the new size */
	uint8_t data[];
};

struct inode {
	struct list link; /* in disk.inodes: freed with the disk */
	uint64_t ino;
	bool is_dir;
	mode_t mode;
	uint64_t mtime_us;
	uint64_t allocated; /* end of the range that fallocate reserved */
	struct sim_blob cur, durable;
	struct list changes;
	uint64_t seq;
	struct list names; /* struct name; of a directory */
};

/* A name that exists or existed; inode NULL: absent. */
struct name {
	struct list link;
	struct inode *cur, *durable;
	char text[NAME_MAX + 1];
};

/* One name, or two (rename) that change together. */
struct name_change {
	struct list link;
	int n;
	bool chosen;
	struct {
		struct inode *dir;
		struct name *name;
		struct inode *to;
	} set[2];
};

struct sim_disk {
	struct sim *sim;
	struct inode *root;
	uint64_t next_ino;
	bool full;
	struct list inodes, name_changes;
};

struct sim_file {
	struct env_file base;
	struct list link; /* of sim_env.files */
	struct sim_disk *disk;
	struct inode *inode;
	int flags;
};

/* ---- tree ---- */

static struct inode *inode_create(struct sim_disk *d, bool is_dir, mode_t mode)
{
	struct inode *i = calloc(1, sizeof(*i));
	if (i == NULL)
		return NULL;
	i->ino = d->next_ino++;
	i->is_dir = is_dir;
	i->mode = (mode & 07777) | (is_dir ? S_IFDIR : S_IFREG);
	i->mtime_us = sim_now_us(d->sim);
	list_init(&i->changes);
	list_init(&i->names);
	list_push(&d->inodes, &i->link);
	return i;
}

static struct name *name_find(struct inode *dir, const char *text)
{
	list_for_each (n, &dir->names) {
		struct name *name = list_entry(n, struct name, link);
		if (strcmp(name->text, text) == 0)
			return name;
	}
	return NULL;
}

static struct name *name_get(struct inode *dir, const char *text)
{
	struct name *name = name_find(dir, text);
	if (name != NULL)
		return name;
	name = calloc(1, sizeof(*name));
	if (name != NULL) {
		memcpy(name->text, text, strlen(text) + 1);
		list_push(&dir->names, &name->link);
	}
	return name;
}

static bool dir_empty(const struct inode *dir)
{
	list_for_each (n, &dir->names) {
		if (list_entry(n, struct name, link)->cur != NULL)
			return false;
	}
	return true;
}

/* Copies the next component into text. 1, 0 at the end, or a status. */
static int next_component(const char **path, char text[NAME_MAX + 1])
{
	for (;;) {
		*path += strspn(*path, "/");
		size_t len = strcspn(*path, "/");
		if (len == 0)
			return 0;
		if (len > NAME_MAX)
			return -LE_NAMETOOLONG;
		memcpy(text, *path, len);
		text[len] = '\0';
		*path += len;
		if (strcmp(text, "..") == 0)
			return -LE_INVAL; /* not needed here */
		if (strcmp(text, ".") != 0)
			return 1;
	}
}

/* Finds the directory of the last component, and copies that component into text ("" for the
 * root). */
static int walk(struct sim_disk *d, const char *path, struct inode **ret_dir,
		char text[NAME_MAX + 1])
{
	struct inode *dir = d->root;
	char next[NAME_MAX + 1];
	int rc = next_component(&path, text);
	TRY(rc);
	if (rc == 0)
		text[0] = '\0';
	while (rc == 1 && (rc = next_component(&path, next)) == 1) {
		struct name *name = name_find(dir, text);
		if (name == NULL || name->cur == NULL)
			return -LE_NOENT;
		if (!name->cur->is_dir)
			return -LE_NOTDIR;
		dir = name->cur;
		memcpy(text, next, sizeof(next));
	}
	TRY(rc);
	*ret_dir = dir;
	return 0;
}

static int lookup(struct sim_disk *d, const char *path, struct inode **ret_inode)
{
	struct inode *dir;
	char text[NAME_MAX + 1];
	TRY(walk(d, path, &dir, text));
	if (text[0] == '\0') {
		*ret_inode = d->root;
		return 0;
	}
	struct name *name = name_find(dir, text);
	if (name == NULL || name->cur == NULL)
		return -LE_NOENT;
	*ret_inode = name->cur;
	return 0;
}

/* ---- changes of names ---- */

static void name_change_apply(struct name_change *c)
{
	for (int i = 0; i < c->n; i++)
		c->set[i].name->durable = c->set[i].to;
}

static int name_change_add(struct sim_disk *d, struct name_change change)
{
	struct name_change *c = malloc(sizeof(*c));
	if (c == NULL)
		return -LE_NOMEM;
	*c = change;
	list_push(&d->name_changes, &c->link);
	for (int i = 0; i < c->n; i++) {
		c->set[i].name->cur = c->set[i].to;
		c->set[i].dir->mtime_us = sim_now_us(d->sim);
	}
	return 0;
}

static bool share_name(const struct name_change *a, const struct name_change *b)
{
	for (int i = 0; i < a->n; i++) {
		for (int k = 0; k < b->n; k++) {
			if (a->set[i].name == b->set[k].name)
				return true;
		}
	}
	return false;
}

/* A sync also applies all earlier changes of the same names. */
static bool choose_earlier(struct sim_disk *d, const struct name_change *of)
{
	bool more = false;
	list_for_each (n, &d->name_changes) {
		struct name_change *c = list_entry(n, struct name_change, link);
		if (c == of)
			break;
		if (!c->chosen && share_name(c, of)) {
			c->chosen = true;
			more = true;
		}
	}
	return more;
}

static void sync_names(struct sim_disk *d, struct inode *dir)
{
	list_for_each (n, &d->name_changes) {
		struct name_change *c = list_entry(n, struct name_change, link);
		c->chosen = c->set[0].dir == dir || (c->n > 1 && c->set[1].dir == dir);
	}
	for (bool more = true; more;) {
		more = false;
		list_for_each (n, &d->name_changes) {
			struct name_change *c = list_entry(n, struct name_change, link);
			more = (c->chosen && choose_earlier(d, c)) || more;
		}
	}
	list_for_each_safe (n, &d->name_changes) {
		struct name_change *c = list_entry(n, struct name_change, link);
		if (c->chosen) {
			name_change_apply(c);
			list_remove(&c->link);
			free(c);
		}
	}
}

/* ---- changes of data ---- */

static int apply(struct sim_blob *b, const struct change *c)
{
	switch (c->kind) {
	case CHANGE_WRITE:
		return sim_blob_write(b, c->data, c->len, c->off);
	case CHANGE_ZERO:
		return sim_blob_write(b, NULL, c->len, c->off);
	default:
		return sim_blob_resize(b, c->len);
	}
}

static bool all_zero(const uint8_t *p, size_t len)
{
	return len == 0 || (p[0] == 0 && memcmp(p, p + 1, len - 1) == 0);
}

/* Changes the current state and logs the change for the durable one. iov NULL: no data. */
static int change_add(struct sim_disk *d, struct inode *i, const struct change *head,
		      const struct iovec *iov, int n_iov)
{
	struct change *c = malloc(sizeof(*c) + (iov != NULL ? head->len : 0));
	if (c == NULL)
		return -LE_NOMEM;
	*c = *head;
	size_t at = 0;
	for (int k = 0; k < n_iov && at < head->len; k++) {
		size_t n = iov[k].iov_len < head->len - at ? iov[k].iov_len : head->len - at;
		memcpy(c->data + at, iov[k].iov_base, n);
		at += n;
	}
	/* Data areas are zeroed in advance: store zeros without memory. */
	if (c->kind == CHANGE_WRITE && all_zero(c->data, c->len)) {
		struct change *small = realloc(c, sizeof(*c));
		c = small != NULL ? small : c;
		c->kind = CHANGE_ZERO;
	}
	int rc = apply(&i->cur, c);
	if (rc < 0) {
		free(c);
		return rc;
	}
	c->seq = ++i->seq;
	i->mtime_us = sim_now_us(d->sim);
	list_push(&i->changes, &c->link);
	return 0;
}

static int sync_data(struct inode *i, uint64_t up_to_seq)
{
	list_for_each_safe (n, &i->changes) {
		struct change *c = list_entry(n, struct change, link);
		if (c->seq > up_to_seq)
			break;
		TRY(apply(&i->durable, c));
		list_remove(&c->link);
		free(c);
	}
	return 0;
}

/* ---- crash ---- */

/* Applies the part of a change within one sector. */
static void crash_sector(struct sim_disk *d, struct inode *i, const struct change *c, uint64_t off,
			 size_t len)
{
	uint8_t garbage[SECTOR];
	const void *data = c->kind == CHANGE_WRITE ? c->data + (off - c->off) : NULL;
	if (sim_chance_ppm(d->sim, GARBAGE_PPM)) {
		for (size_t k = 0; k < len; k++)
			garbage[k] = (uint8_t)sim_random(d->sim);
		data = garbage;
	}
	ASSERT(sim_blob_write(&i->durable, data, len, off) == 0);
}

static void crash_change(struct sim_disk *d, struct inode *i, const struct change *c,
			 uint32_t keep_ppm, uint8_t *stopped)
{
	if (c->kind == CHANGE_RESIZE) {
		if (sim_chance_ppm(d->sim, keep_ppm))
			ASSERT(apply(&i->durable, c) == 0);
		return;
	}
	for (uint64_t off = c->off; off < c->off + c->len;) {
		uint64_t sector = off / SECTOR, end = (sector + 1) * SECTOR;
		end = end < c->off + c->len ? end : c->off + c->len;
		uint8_t bit = (uint8_t)(1u << (sector % 8));
		if ((stopped[sector / 8] & bit) == 0) {
			if (sim_chance_ppm(d->sim, keep_ppm))
				crash_sector(d, i, c, off, end - off);
			else
				stopped[sector / 8] |= bit;
		}
		off = end;
	}
}

static void crash_data(struct sim_disk *d, struct inode *i, uint32_t keep_ppm)
{
	uint64_t end = 0;
	if (list_empty(&i->changes))
		return;
	list_for_each (n, &i->changes) {
		struct change *c = list_entry(n, struct change, link);
		uint64_t e = c->kind == CHANGE_RESIZE ? 0 : c->off + c->len;
		end = e > end ? e : end;
	}
	uint8_t *stopped = calloc(1, end / SECTOR / 8 + 1);
	ASSERT(stopped != NULL);
	for (struct list *n = list_pop(&i->changes); n != NULL; n = list_pop(&i->changes)) {
		struct change *c = list_entry(n, struct change, link);
		crash_change(d, i, c, keep_ppm, stopped);
		free(c);
	}
	free(stopped);
	ASSERT(sim_blob_copy(&i->cur, &i->durable) == 0);
	i->allocated = 0;
}

void sim_disk_crash(struct sim_disk *d)
{
	static const uint32_t keeps[] = {0, 500000, 900000, 1000000};
	uint32_t keep_ppm = keeps[sim_random_below(d->sim, ARRAY_SIZE(keeps))];
	for (struct list *n = list_pop(&d->name_changes); n != NULL;
	     n = list_pop(&d->name_changes)) {
		struct name_change *c = list_entry(n, struct name_change, link);
		if (sim_chance_ppm(d->sim, keep_ppm))
			name_change_apply(c);
		free(c);
	}
	list_for_each (n, &d->inodes) {
		struct inode *i = list_entry(n, struct inode, link);
		crash_data(d, i, keep_ppm);
		list_for_each (m, &i->names) {
			struct name *name = list_entry(m, struct name, link);
			name->cur = name->durable;
		}
	}
}

/* ---- creation, and functions for the harness ---- */

struct sim_disk *sim_disk_create(struct sim *s)
{
	struct sim_disk *d = calloc(1, sizeof(*d));
	if (d == NULL)
		return NULL;
	d->sim = s;
	d->next_ino = 1;
	list_init(&d->inodes);
	list_init(&d->name_changes);
	d->root = inode_create(d, true, 0755);
	if (d->root == NULL) {
		free(d);
		return NULL;
	}
	return d;
}

void sim_disk_destroy(struct sim_disk *d)
{
	struct list *n;
	while ((n = list_pop(&d->name_changes)) != NULL)
		free(list_entry(n, struct name_change, link));
	while ((n = list_pop(&d->inodes)) != NULL) {
		struct inode *i = list_entry(n, struct inode, link);
		while ((n = list_pop(&i->changes)) != NULL)
			free(list_entry(n, struct change, link));
		while ((n = list_pop(&i->names)) != NULL)
			free(list_entry(n, struct name, link));
		sim_blob_fini(&i->cur);
		sim_blob_fini(&i->durable);
		free(i);
	}
	free(d);
}

void sim_disk_set_full(struct sim_disk *d, bool full)
{
	d->full = full;
}

int sim_disk_corrupt(struct sim_disk *d, const char *path, uint64_t off, uint64_t len)
{
	struct inode *i;
	TRY(lookup(d, path, &i));
	if (len == 0 || off + len > i->cur.size)
		return -LE_INVAL;
	uint64_t at = off + sim_random_below(d->sim, len);
	uint8_t flip = (uint8_t)(1u << sim_random_below(d->sim, 8)), byte = 0;
	sim_blob_read(&i->cur, &byte, 1, at);
	byte ^= flip;
	TRY(sim_blob_write(&i->cur, &byte, 1, at));
	return at < i->durable.size ? sim_blob_write(&i->durable, &byte, 1, at) : 0;
}

void sim_disk_free_files(struct sim_env *e)
{
	for (struct list *n = list_pop(&e->files); n != NULL; n = list_pop(&e->files))
		free(list_entry(n, struct sim_file, link));
}

/* ---- calls on files ---- */

static struct sim_file *file_of(struct env_file *f)
{
	return container_of(f, struct sim_file, base);
}

static struct sim_disk *disk_of(struct env *env)
{
	return sim_env_of(env)->proc->disk;
}

static int disk_wait(struct env *env)
{
	return sim_disk_wait(env, sim_disk_us_max(disk_of(env)->sim));
}

static int open_or_create(struct sim_disk *d, const char *path, int flags, mode_t mode,
			  struct inode **ret_inode)
{
	struct inode *i, *dir;
	char text[NAME_MAX + 1];
	int rc = lookup(d, path, &i);
	if (rc == 0 && (flags & O_CREAT) != 0 && (flags & O_EXCL) != 0)
		return -LE_EXIST;
	if (rc == -LE_NOENT && (flags & O_CREAT) != 0) {
		TRY(walk(d, path, &dir, text));
		if (d->full)
			return -LE_NOSPC;
		struct name *name = name_get(dir, text);
		i = name != NULL ? inode_create(d, false, mode) : NULL;
		if (i == NULL)
			return -LE_NOMEM;
		struct name_change c = {.n = 1, .set = {{dir, name, i}}};
		rc = name_change_add(d, c);
	}
	TRY(rc);
	if (i->is_dir && (flags & O_ACCMODE) != O_RDONLY)
		return -LE_ISDIR;
	if (!i->is_dir && (flags & O_DIRECTORY) != 0)
		return -LE_NOTDIR;
	if ((flags & O_TRUNC) != 0 && i->cur.size > 0)
		TRY(change_add(d, i, &(struct change){.kind = CHANGE_RESIZE}, NULL, 0));
	*ret_inode = i;
	return 0;
}

static int file_open(struct env *env, const char *path, int flags, mode_t mode,
		     struct env_file **ret_file)
{
	struct inode *i;
	TRY(disk_wait(env));
	TRY(open_or_create(disk_of(env), path, flags, mode, &i));
	struct sim_file *f = calloc(1, sizeof(*f));
	if (f == NULL)
		return -LE_NOMEM;
	f->base.env = env;
	f->base.direct = (flags & O_DIRECT) != 0;
	f->disk = disk_of(env);
	f->inode = i;
	f->flags = flags;
	list_push(&sim_env_of(env)->files, &f->link);
	*ret_file = &f->base;
	return 0;
}

static void file_close(struct env_file *f)
{
	list_remove(&file_of(f)->link);
	free(file_of(f));
}

/* Returns the total length; checks the alignment of addresses, lengths and offsets for O_DIRECT. */
static int64_t iov_length(const struct sim_file *f, const struct iovec *iov, int n_iov,
			  uint64_t off)
{
	uint64_t len = 0, bits = off;
	for (int i = 0; i < n_iov; i++) {
		len += iov[i].iov_len;
		bits |= (uintptr_t)iov[i].iov_base | iov[i].iov_len;
	}
	if (f->base.direct && bits % DIRECT_ALIGN != 0)
		return -LE_INVAL;
	if (off > FILE_SIZE_MAX || len > FILE_SIZE_MAX - off)
		return -LE_FBIG;
	return (int64_t)len;
}

/* Sometimes transfers less than requested. */
static uint64_t maybe_short(struct sim_disk *d, uint64_t len)
{
	if (len <= 4096 || !sim_chance_ppm(d->sim, 10000))
		return len;
	return 4096 * (1 + sim_random_below(d->sim, len / 4096));
}

static int64_t file_preadv(struct env_file *ef, const struct iovec *iov, int n_iov, uint64_t off)
{
	struct sim_file *f = file_of(ef);
	int64_t len = iov_length(f, iov, n_iov, off);
	TRY((int)(len < 0 ? len : 0));
	if ((f->flags & O_ACCMODE) == O_WRONLY || f->inode->is_dir)
		return -LE_BADF;
	TRY(disk_wait(ef->env));
	uint64_t left = maybe_short(f->disk, (uint64_t)len), done = 0;
	for (int i = 0; i < n_iov && left > 0; i++) {
		size_t want = iov[i].iov_len < left ? iov[i].iov_len : left;
		size_t n = sim_blob_read(&f->inode->cur, iov[i].iov_base, want, off + done);
		done += n;
		left -= n;
		if (n < want)
			break;
	}
	return (int64_t)done;
}

static int64_t write_now(struct sim_file *f, const struct iovec *iov, int n_iov, uint64_t off,
			 uint64_t len)
{
	struct inode *i = f->inode;
	uint64_t space = i->cur.size > i->allocated ? i->cur.size : i->allocated;
	if (f->disk->full && off + len > space)
		return -LE_NOSPC;
	len = maybe_short(f->disk, len);
	struct change c = {.kind = CHANGE_WRITE, .off = off, .len = len};
	TRY(change_add(f->disk, i, &c, iov, n_iov));
	return (int64_t)len;
}

static int64_t file_pwritev(struct env_file *ef, const struct iovec *iov, int n_iov, uint64_t off)
{
	struct sim_file *f = file_of(ef);
	int64_t len = iov_length(f, iov, n_iov, off);
	if (len <= 0)
		return len;
	if ((f->flags & O_ACCMODE) == O_RDONLY)
		return -LE_BADF;
	/* Randomly before or after the wait: a crash in between finds the write applied or not. */
	bool early = sim_random_below(f->disk->sim, 2) == 0;
	int64_t rc = early ? write_now(f, iov, n_iov, off, (uint64_t)len) : 0;
	if (rc < 0)
		return rc;
	TRY(disk_wait(ef->env));
	return early ? rc : write_now(f, iov, n_iov, off, (uint64_t)len);
}

static int file_datasync(struct env_file *ef)
{
	struct sim_file *f = file_of(ef);
	/* Writes that arrive during the sync are not covered. */
	uint64_t seq = f->inode->seq;
	TRY(disk_wait(ef->env));
	return sync_data(f->inode, seq);
}

static int file_fallocate(struct env_file *ef, int mode, uint64_t off, uint64_t len)
{
	struct sim_file *f = file_of(ef);
	struct inode *i = f->inode;
	TRY(disk_wait(ef->env));
	if (len == 0 || off + len > FILE_SIZE_MAX || off + len < off)
		return -LE_INVAL;
	if ((mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) != 0)
		return -LE_NOTSUP;
	bool punch = (mode & FALLOC_FL_PUNCH_HOLE) != 0;
	bool grow = (mode & FALLOC_FL_KEEP_SIZE) == 0 && off + len > i->cur.size;
	if (punch && grow)
		return -LE_NOTSUP;
	if (f->disk->full && !punch && off + len > i->cur.size && off + len > i->allocated)
		return -LE_NOSPC;
	if (punch || (mode & FALLOC_FL_ZERO_RANGE) != 0) {
		uint64_t end = off + len < i->cur.size ? off + len : i->cur.size;
		struct change c = {.kind = CHANGE_ZERO, .off = off, .len = end - off};
		if (end > off)
			TRY(change_add(f->disk, i, &c, NULL, 0));
	}
	if (!punch && off + len > i->allocated)
		i->allocated = off + len;
	if (grow) {
		struct change c = {.kind = CHANGE_RESIZE, .len = off + len};
		return change_add(f->disk, i, &c, NULL, 0);
	}
	return 0;
}

static int file_truncate(struct env_file *ef, uint64_t size)
{
	struct sim_file *f = file_of(ef);
	TRY(disk_wait(ef->env));
	if (size > FILE_SIZE_MAX)
		return -LE_FBIG;
	if (size < f->inode->allocated)
		f->inode->allocated = size;
	return change_add(f->disk, f->inode, &(struct change){.kind = CHANGE_RESIZE, .len = size},
			  NULL, 0);
}

static void fill_stat(const struct inode *i, struct stat *ret_st)
{
	*ret_st = (struct stat){.st_ino = i->ino,
				.st_mode = i->mode,
				.st_nlink = 1,
				.st_size = (off_t)i->cur.size,
				.st_blksize = 4096};
	ret_st->st_blocks = (blkcnt_t)(sim_blob_used(&i->cur) / 512);
	ret_st->st_mtim.tv_sec = (time_t)(i->mtime_us / 1000000);
	ret_st->st_mtim.tv_nsec = (long)(i->mtime_us % 1000000) * 1000;
}

static int file_stat(struct env_file *ef, struct stat *ret_st)
{
	TRY(disk_wait(ef->env));
	fill_stat(file_of(ef)->inode, ret_st);
	return 0;
}

/* ---- calls on names ---- */

static int path_stat(struct env *env, const char *path, struct stat *ret_st)
{
	struct inode *i;
	TRY(disk_wait(env));
	TRY(lookup(disk_of(env), path, &i));
	fill_stat(i, ret_st);
	return 0;
}

static int path_mkdir(struct env *env, const char *path, mode_t mode)
{
	struct sim_disk *d = disk_of(env);
	struct inode *dir;
	char text[NAME_MAX + 1];
	TRY(disk_wait(env));
	TRY(walk(d, path, &dir, text));
	if (text[0] == '\0')
		return -LE_EXIST;
	struct name *name = name_get(dir, text);
	if (name == NULL)
		return -LE_NOMEM;
	if (name->cur != NULL)
		return -LE_EXIST;
	if (d->full)
		return -LE_NOSPC;
	struct inode *i = inode_create(d, true, mode);
	if (i == NULL)
		return -LE_NOMEM;
	return name_change_add(d, (struct name_change){.n = 1, .set = {{dir, name, i}}});
}

static int remove_name(struct env *env, const char *path, bool is_dir)
{
	struct sim_disk *d = disk_of(env);
	struct inode *dir;
	char text[NAME_MAX + 1];
	TRY(disk_wait(env));
	TRY(walk(d, path, &dir, text));
	struct name *name = name_find(dir, text);
	if (name == NULL || name->cur == NULL)
		return text[0] == '\0' ? -LE_BUSY : -LE_NOENT;
	if (name->cur->is_dir != is_dir)
		return is_dir ? -LE_NOTDIR : -LE_ISDIR;
	if (is_dir && !dir_empty(name->cur))
		return -LE_NOTEMPTY;
	return name_change_add(d, (struct name_change){.n = 1, .set = {{dir, name, NULL}}});
}

static int path_unlink(struct env *env, const char *path)
{
	return remove_name(env, path, false);
}

static int path_rmdir(struct env *env, const char *path)
{
	return remove_name(env, path, true);
}

static int path_rename(struct env *env, const char *from, const char *to)
{
	struct sim_disk *d = disk_of(env);
	struct inode *from_dir, *to_dir;
	char from_text[NAME_MAX + 1], to_text[NAME_MAX + 1];
	TRY(disk_wait(env));
	TRY(walk(d, from, &from_dir, from_text));
	TRY(walk(d, to, &to_dir, to_text));
	struct name *a = name_find(from_dir, from_text);
	if (a == NULL || a->cur == NULL)
		return -LE_NOENT;
	struct name *b = to_text[0] != '\0' ? name_get(to_dir, to_text) : NULL;
	if (b == NULL)
		return to_text[0] == '\0' ? -LE_BUSY : -LE_NOMEM;
	struct inode *i = a->cur;
	if (b->cur == i)
		return 0;
	if (b->cur != NULL && b->cur->is_dir != i->is_dir)
		return i->is_dir ? -LE_NOTDIR : -LE_ISDIR;
	if (b->cur != NULL && i->is_dir && !dir_empty(b->cur))
		return -LE_NOTEMPTY;
	struct name_change c = {.n = 2, .set = {{from_dir, a, NULL}, {to_dir, b, i}}};
	return name_change_add(d, c);
}

static int path_syncdir(struct env *env, const char *path)
{
	struct inode *i;
	TRY(disk_wait(env));
	TRY(lookup(disk_of(env), path, &i));
	if (!i->is_dir)
		return -LE_NOTDIR;
	sync_names(disk_of(env), i);
	return 0;
}

struct listed {
	bool is_dir;
	char text[NAME_MAX + 1];
};

static int path_list(struct env *env, const char *path,
		     int (*each)(void *arg, const struct env_dirent *e), void *arg)
{
	struct inode *dir;
	TRY(disk_wait(env));
	TRY(lookup(disk_of(env), path, &dir));
	if (!dir->is_dir)
		return -LE_NOTDIR;
	uint32_t n = 0, max = 0;
	list_for_each (l, &dir->names)
		max++;
	/* A copy: each() may yield or change the directory. */
	struct listed *all = calloc(max + 1, sizeof(*all));
	if (all == NULL)
		return -LE_NOMEM;
	list_for_each (l, &dir->names) {
		struct name *name = list_entry(l, struct name, link);
		if (name->cur != NULL) {
			all[n].is_dir = name->cur->is_dir;
			memcpy(all[n++].text, name->text, sizeof(name->text));
		}
	}
	int rc = 0;
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		struct env_dirent e = {.name = all[i].text, .is_dir = all[i].is_dir};
		rc = each(arg, &e);
	}
	free(all);
	return rc;
}

void sim_disk_ops(struct env_ops *ops)
{
	ops->file_open = file_open;
	ops->file_close = file_close;
	ops->file_preadv = file_preadv;
	ops->file_pwritev = file_pwritev;
	ops->file_datasync = file_datasync;
	ops->file_fallocate = file_fallocate;
	ops->file_truncate = file_truncate;
	ops->file_stat = file_stat;
	ops->path_stat = path_stat;
	ops->path_mkdir = path_mkdir;
	ops->path_unlink = path_unlink;
	ops->path_rmdir = path_rmdir;
	ops->path_rename = path_rename;
	ops->path_syncdir = path_syncdir;
	ops->path_list = path_list;
}
