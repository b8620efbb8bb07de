/* SPDX-License-Identifier: Apache-2.0 */
#include "client/dataset/vol.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/rt/env.h"
#include "common/rt/loop.h"

#define PATH_SIZE 4096u
#define LINKS_MAX 40 /* like the kernel */

void vol_destroy(struct vol *v)
{
	if (v)
		v->ops->destroy(v);
}

int vol_pread_all(struct vol_file *f, void *buf, uint64_t len, uint64_t off)
{
	int64_t n = vol_pread(f, buf, len, off);
	if (n < 0)
		return (int)n;
	return (uint64_t)n == len ? 0 : -LE_NODATA;
}

void vol_run_at(struct vol_file *f, uint64_t size, uint64_t off, struct vol_run *run)
{
	if (off >= run->from && off < run->hole)
		return;
	*run = (struct vol_run){off, off, size};
	if (!f->vol->ops->data || f->vol->ops->data(f, off, &run->data, &run->hole) < 0)
		*run = (struct vol_run){off, off, size};
}

int vol_read_file(struct vol *v, const char *path, uint64_t max, char **ret_data, size_t *ret_len)
{
	struct vol_stat st;
	struct vol_file *f;
	TRY(vol_stat(v, path, &st));
	if (st.size > max)
		return -LE_FBIG;
	char *data = malloc(st.size + 1);
	if (!data)
		return -LE_NOMEM;
	int rc = vol_open(v, path, &f);
	if (rc == 0) {
		rc = vol_pread_all(f, data, st.size, 0);
		vol_close(f);
	}
	if (rc < 0) {
		free(data);
		return rc;
	}
	data[st.size] = 0;
	*ret_data = data;
	*ret_len = st.size;
	return 0;
}

static int dir_of(const char *path, char ret_dir[PATH_SIZE])
{
	if (snprintf(ret_dir, PATH_SIZE, "%s", path) >= (int)PATH_SIZE)
		return -LE_NAMETOOLONG;
	char *slash = strrchr(ret_dir, '/');
	if (!slash)
		return -LE_INVAL;
	slash[slash == ret_dir] = 0;
	return 0;
}

/* Writes a temporary file with a random name, which no other user can have created in advance,
 * and moves it to path by `publish`. */
static int write_as(struct vol *v, const char *path, const void *data, size_t len,
		    int (*publish)(struct vol *v, const char *from, const char *to))
{
	char tmp[PATH_SIZE], dir[PATH_SIZE];
	struct vol_file *f;
	TRY(dir_of(path, dir));
	TRY(vol_tmp_name(dir, tmp));
	TRY(v->ops->open(v, tmp, O_WRONLY | O_CREAT | O_EXCL, 0644, &f));
	int rc = v->ops->pwrite(f, data, len, 0);
	if (rc == 0)
		rc = v->ops->sync(f);
	vol_close(f);
	if (rc == 0)
		rc = publish(v, tmp, path);
	if (rc == 0)
		return v->ops->syncdir(v, dir);
	int gone = v->ops->unlink(v, tmp);
	(void)gone;
	return rc;
}

int vol_write_file(struct vol *v, const char *path, const void *data, size_t len)
{
	return write_as(v, path, data, len, v->ops->rename);
}

int vol_write_new(struct vol *v, const char *path, const void *data, size_t len)
{
	return write_as(v, path, data, len, v->ops->rename_new);
}

int vol_tmp_name(const char *dir, char ret_path[4096])
{
	int n = snprintf(ret_path, PATH_SIZE, "%s/.new-%016llx", dir,
			 (unsigned long long)env_random_u64(loop_env(loop_self())));
	return n >= (int)PATH_SIZE ? -LE_NAMETOOLONG : 0;
}

struct tmp_names {
	char first[8][24];
	uint32_t n;
};

static int on_tmp(void *arg, const struct vol_entry *e)
{
	static const char begin[] = ".new-";
	struct tmp_names *t = arg;
	const char *key = e->name + sizeof(begin) - 1;
	if (S_ISDIR(e->st.mode) || strncmp(e->name, begin, sizeof(begin) - 1) != 0 ||
	    strlen(key) != 16 || strspn(key, "0123456789abcdef") != 16)
		return 0;
	ASSERT(t->n < ARRAY_SIZE(t->first));
	memcpy(t->first[t->n++], e->name, strlen(e->name) + 1);
	return t->n == ARRAY_SIZE(t->first);
}

int vol_remove_tmp(struct vol *v, const char *dir)
{
	struct tmp_names t;
	char path[PATH_SIZE];
	int rc;
	do {
		t.n = 0;
		rc = v->ops->list(v, dir, on_tmp, &t);
		for (uint32_t i = 0; i < t.n && rc >= 0; i++) {
			int n = snprintf(path, sizeof(path), "%s/%s", dir, t.first[i]);
			rc = n >= (int)PATH_SIZE ? -LE_NAMETOOLONG : v->ops->unlink(v, path);
			rc = rc == -LE_NOENT ? 0 : rc;
		}
	} while (rc >= 0 && t.n == ARRAY_SIZE(t.first));
	return rc == -LE_NOENT ? 0 : rc < 0 ? rc : 0;
}

int vol_mkdirs(struct vol *v, const char *path)
{
	char part[PATH_SIZE];
	struct vol_stat st;
	size_t len = strlen(path);
	if (len >= sizeof(part))
		return -LE_NAMETOOLONG;
	if (vol_stat(v, path, &st) == 0)
		return S_ISDIR(st.mode) ? 0 : -LE_NOTDIR;
	memcpy(part, path, len + 1);
	for (size_t i = 1; i <= len; i++) {
		if (part[i] != '/' && part[i] != 0)
			continue;
		char c = part[i];
		part[i] = 0;
		int rc = v->ops->mkdir(v, part, 0755);
		if (rc < 0 && rc != -LE_EXIST && c == 0)
			return rc;
		part[i] = c;
	}
	return 0;
}

/* ---- real paths, and the rights to reach them ---- */

/* Replaces the first `done` bytes of path, which name a link, by the link's target. */
static int follow(struct vol *v, char path[PATH_SIZE], size_t done)
{
	char target[PATH_SIZE], c = path[done];
	path[done] = 0;
	int rc = v->ops->readlink(v, path, target, sizeof(target));
	if (rc < 0)
		return rc == -LE_INVAL ? -LE_STALE : rc; /* another process has replaced the link */
	size_t at = done, rest; /* the target is relative to the link's directory */
	while (path[at] != '/')
		at--;
	path[done] = c;
	rest = strlen(path + done);
	size_t len = strlen(target), keep = target[0] == '/' ? 0 : at + 1;
	if (keep + len + rest >= PATH_SIZE)
		return -LE_NAMETOOLONG;
	memmove(path + keep + len, path + done, rest + 1);
	memcpy(path + keep, target, len);
	return 0;
}

/* Removes the component that begins at path[at] with a slash, has len bytes with the slash, and
 * is empty, "." or ".."; with ".." also the component before it. Returns where to continue, or
 * at + len if the component stays. */
static size_t tidy(char *path, size_t at, size_t len)
{
	const char *name = path + at + 1;
	size_t from = at;
	if (len == 3 && name[0] == '.' && name[1] == '.') {
		while (from > 0 && path[--from] != '/')
			;
	} else if (!(len == 1 || (len == 2 && name[0] == '.'))) {
		return at + len;
	}
	memmove(path + from, path + at + len, strlen(path + at + len) + 1);
	return from;
}

/* trusted NULL: follows links of all users. */
static int real_path(struct vol *v, const char *path, const uint32_t *trusted,
		     char ret_path[PATH_SIZE])
{
	int links = 0;
	if (path[0] != '/')
		return -LE_INVAL;
	if (snprintf(ret_path, PATH_SIZE, "%s", path) >= (int)PATH_SIZE)
		return -LE_NAMETOOLONG;
	for (size_t at = 0; ret_path[at];) {
		size_t len = 1 + strcspn(ret_path + at + 1, "/");
		size_t next = tidy(ret_path, at, len);
		struct vol_stat st;
		if (next != at + len) {
			at = next;
			continue;
		}
		char c = ret_path[next];
		ret_path[next] = 0;
		int rc = vol_stat(v, ret_path, &st);
		ret_path[next] = c;
		TRY(rc);
		at = next;
		if (!S_ISLNK(st.mode))
			continue;
		if (trusted && st.uid != 0 && st.uid != *trusted)
			return -LE_PERM;
		if (++links > LINKS_MAX)
			return -LE_LOOP;
		TRY(follow(v, ret_path, next));
		at = 0;
	}
	if (!ret_path[0])
		memcpy(ret_path, "/", 2);
	return 0;
}

int vol_real_path(struct vol *v, const char *path, char ret_path[PATH_SIZE])
{
	return real_path(v, path, NULL, ret_path);
}

int vol_trusted_path(struct vol *v, const char *path, uint32_t uid, char ret_path[PATH_SIZE])
{
	return real_path(v, path, &uid, ret_path);
}

int vol_rights(struct vol *v, const char *path, const struct vol_stat *st, struct acl_pool *pool,
	       struct rights *ret_rights)
{
	struct vol_stat now;
	if (!st) {
		TRY(vol_stat(v, path, &now));
		st = &now;
	}
	*ret_rights =
		(struct rights){.mode = st->mode & 07777, .uid = st->uid, .gid = st->gid};
	if (st->plain || S_ISLNK(st->mode))
		return 0;
	uint8_t *acl = malloc(RIGHTS_ACL_MAX);
	if (!acl)
		return -LE_NOMEM;
	int64_t n = v->ops->acl(v, path, st, acl, RIGHTS_ACL_MAX);
	int rc = n < 0 ? (int)n : acl_pool_set(pool, ret_rights, acl, (size_t)n);
	free(acl);
	return rc;
}

int vol_ancestors(struct vol *v, const char *path, struct acl_pool *pool,
		  struct rights **ret_rights, uint32_t *ret_n)
{
	char dir[PATH_SIZE];
	uint32_t n = 0;
	size_t len = strlen(path);
	if (path[0] != '/' || len >= sizeof(dir))
		return path[0] != '/' ? -LE_INVAL : -LE_NAMETOOLONG;
	struct rights *all = calloc(len / 2 + 2, sizeof(*all));
	if (!all)
		return -LE_NOMEM;
	int rc = 0;
	for (size_t at = 0; path[1] && path[at] && rc == 0; at += 1 + strcspn(path + at + 1, "/")) {
		memcpy(dir, path, at + 1);
		dir[at ? at : 1] = 0;
		rc = vol_rights(v, dir, NULL, pool, &all[n]);
		if (rc == 0)
			n++;
	}
	if (rc < 0) {
		free(all);
		return rc;
	}
	*ret_rights = all;
	*ret_n = n;
	return 0;
}
