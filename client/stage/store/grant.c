/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/store/grant.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "client/dataset/beneath.h"
#include "client/dataset/manifest_file.h"
#include "client/stage/store/stamps.h"
#include "client/stage/store/store_path.h"
#include "common/base/assert.h"
#include "common/base/checksum.h"

#define ACCESS_LIST  "system.posix_acl_access"
#define DEFAULT_LIST "system.posix_acl_default"
#define AT_ONCE      64u /* files between two yields of the fiber */

/* ---- one file ---- */

static bool is_group_of_mine(gid_t gid)
{
	gid_t all[1024];
	int n = getgroups((int)ARRAY_SIZE(all), all);
	if (gid == getegid())
		return true;
	for (int i = 0; i < n; i++)
		if (all[i] == gid)
			return true;
	return false;
}

/* Returns the rights closest to r that this process can set, never wider than r. more: further
 * bits for the owner, beyond reading. */
static struct rights fit(const struct rights *r, uint32_t more, bool dir, bool *ret_narrowed)
{
	uid_t me = geteuid();
	gid_t group = getegid();
	struct rights f = *r;
	f.mode = (f.mode & 0555) | more;
	*ret_narrowed = false;
	if (me == 0)
		return f;
	if (r->uid != me || !is_group_of_mine(r->gid)) {
		uint32_t bits = dir ? 5 : (r->mode | r->mode >> 3 | r->mode >> 6) & 5;
		uint32_t members = 0, all = 0;
		for (uint32_t bit = 1; bit <= 4; bit += 3) {
			if (rights_surely(r, RIGHTS_GROUP, group, bit))
				members |= bit;
			if (rights_surely(r, RIGHTS_ALL, 0, bit))
				all |= bit;
		}
		f = (struct rights){
			.mode = bits << 6 | members << 3 | all | more, .uid = me, .gid = group};
		*ret_narrowed = true;
	}
	/* The process must be able to make and remove names in its folders. */
	f.mode |= dir ? 0700 : 0400;
	return f;
}

/* Copies r's access list without the rights to write; the caller frees it. NULL: no memory. */
static uint8_t *list_of(const struct rights *r)
{
	uint8_t *acl = malloc(r->acl_len);
	size_t at = sizeof(struct posix_acl_xattr_header);
	struct posix_acl_xattr_entry e;
	if (!acl)
		return NULL;
	memcpy(acl, r->acl, r->acl_len);
	for (; at + sizeof(e) <= r->acl_len; at += sizeof(e)) {
		memcpy(&e, acl + at, sizeof(e));
		bool owner = le16toh(e.e_tag) == ACL_USER_OBJ;
		e.e_perm = htole16((uint16_t)(owner ? r->mode >> 6 & 7 : le16toh(e.e_perm) & 5));
		memcpy(acl + at, &e, sizeof(e));
	}
	return acl;
}

/* -LE_NOTSUP: the file system has no access lists. */
static int set_list(int fd, const struct rights *r)
{
	uint8_t *acl = list_of(r);
	if (!acl)
		return -LE_NOMEM;
	int rc = fsetxattr(fd, ACCESS_LIST, acl, r->acl_len, 0) < 0 ? status_from_errno(errno) : 0;
	free(acl);
	return rc;
}

static int drop_list(int fd, const char *name)
{
	if (fremovexattr(fd, name) == 0 || errno == ENODATA || errno == ENOTSUP)
		return 0;
	return status_from_errno(errno);
}

static bool has_list(int fd, const struct rights *r)
{
	uint8_t *want = list_of(r), *now = malloc(r->acl_len);
	ssize_t n = want && now ? fgetxattr(fd, ACCESS_LIST, now, r->acl_len) : -1;
	bool same = n == (ssize_t)r->acl_len && memcmp(now, want, r->acl_len) == 0;
	free(want);
	free(now);
	return same;
}

/* Returns whether the file has exactly the rights f. *ret_listed: it has an access list of any
 * kind. */
static bool has_rights(int fd, const struct stat *st, const struct rights *f, bool *ret_listed)
{
	ssize_t n = fgetxattr(fd, ACCESS_LIST, NULL, 0);
	*ret_listed = n > 0;
	if ((st->st_mode & 07777) != f->mode || st->st_uid != f->uid || st->st_gid != f->gid ||
	    (S_ISDIR(st->st_mode) && fgetxattr(fd, DEFAULT_LIST, NULL, 0) > 0))
		return false;
	return f->acl_len ? has_list(fd, f) : n <= 0;
}

/* Sets the rights r. First removes all access except the owner's, so that no intermediate step
 * grants more than r. */
static int give(int fd, const struct rights *r, uint32_t more, bool *ret_narrowed)
{
	struct stat st;
	bool listed;
	if (fstat(fd, &st) < 0)
		return status_from_errno(errno);
	bool dir = S_ISDIR(st.st_mode);
	struct rights f = fit(r, more, dir, ret_narrowed);
	if (has_rights(fd, &st, &f, &listed))
		return 0;
	/* This also sets the mask of an access list, so its entries grant nothing from here on. */
	if (fchmod(fd, st.st_mode & f.mode & 0700) < 0)
		return status_from_errno(errno);
	TRY(drop_list(fd, ACCESS_LIST));
	if (dir)
		TRY(drop_list(fd, DEFAULT_LIST));
	if ((st.st_uid != f.uid || st.st_gid != f.gid) && fchown(fd, f.uid, f.gid) < 0)
		return status_from_errno(errno);
	int rc = f.acl_len ? set_list(fd, &f) : -LE_NOTSUP;
	if (rc != -LE_NOTSUP)
		return rc;
	struct rights bare = f.acl_len ? rights_without_acl(&f) : f;
	*ret_narrowed |= f.acl_len != 0;
	return fchmod(fd, bare.mode & 0777) < 0 ? status_from_errno(errno) : 0;
}

int grant_fd(int fd, const struct rights *r, bool *ret_narrowed)
{
	return give(fd, r, 0, ret_narrowed);
}

/* Removes the rights that r does not grant. Grants nothing, and does not change the owner. */
static int narrow(int fd, const struct rights *r, bool *ret_differs)
{
	struct stat st;
	bool listed, ignored;
	if (fstat(fd, &st) < 0)
		return status_from_errno(errno);
	struct rights f = fit(r, 0, S_ISDIR(st.st_mode), &ignored);
	*ret_differs = !has_rights(fd, &st, &f, &listed);
	if (!*ret_differs)
		return 0;
	uint32_t mask = st.st_uid != f.uid                          ? 0
			: st.st_gid != f.gid || f.acl_len || listed ? 0700
								    : 0777;
	uint32_t mode = st.st_mode & f.mode & mask;
	return mode != (st.st_mode & 07777) && fchmod(fd, mode) < 0 ? status_from_errno(errno) : 0;
}

/* ---- a copy ---- */

int grants_make(struct manifest *m, const struct rights *above, uint32_t n,
		struct grants *ret_grants)
{
	const struct rights alone = {.mode = 0700, .uid = geteuid(), .gid = getegid()};
	const struct rights *root = m->n_dirs ? &m->dirs[0].rights : &alone;
	/* If the source is missing, or this user may not examine it, the rows have the rights to
	 * use. */
	struct grants g = {.top = *root};
	struct audience a = audience_of(root->uid, root->gid);
	if (above)
		TRY(rights_conjunction(root, above, n, &m->acls, &g.top));
	for (uint32_t i = 0; i < n && above; i++)
		audience_add(&a, &above[i], 1);
	for (uint32_t i = 0; i < m->n_dirs; i++)
		audience_add(&a, &m->dirs[i].rights, 5);
	for (uint32_t i = 0; i < m->n_files; i++)
		audience_add(&a, &m->files[i].rights, 4);
	TRY(audience_rights(&a, geteuid(), 4, &m->acls, &g.meta));
	*ret_grants = g;
	return 0;
}

static int data_path(const struct local_store *s, uint32_t k, const char *path,
		     char ret_path[STORE_PATH_SIZE])
{
	int n = snprintf(ret_path, STORE_PATH_SIZE, "%s/data%s%s", store_dir_of(s, k),
			 path[0] ? "/" : "", path);
	return n < 0 || n >= (int)STORE_PATH_SIZE ? -LE_NAMETOOLONG : 0;
}

static struct store_folder *known_folder(const struct local_store *s, uint32_t k, uint32_t i)
{
	return &s->folders[(size_t)k * s->n_folders + i];
}

static int refuse_swapped(struct local_store *s, const char *path)
{
	return beneath_refuse(
		s->env, path,
		"it is not the folder that was made here: somebody has put another in "
		"its place while the copy is being made; remove that, and stage again");
}

/* Opens the i-th folder of m in the k-th directory. Refuses a folder that is not the inode to
 * which grant_folder gave the rights. */
static int open_known(struct local_store *s, uint32_t k, const char *folder, uint32_t i)
{
	char path[STORE_PATH_SIZE];
	struct stat st;
	const struct store_folder *f = known_folder(s, k, i);
	TRY(data_path(s, k, folder, path));
	int fd = beneath_open_dir(s->env, path);
	if (fd == -LE_NOENT)
		return refuse_swapped(s, path);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) == 0 && st.st_dev == f->dev && st.st_ino == f->ino)
		return fd;
	close(fd);
	return refuse_swapped(s, path);
}

/* Opens the folder that holds path; *ret_name is the name of path in it. */
static int open_above(struct local_store *s, const struct manifest *m, uint32_t k, const char *path,
		      const char **ret_name)
{
	char above[STORE_PATH_SIZE];
	const char *slash = strrchr(path, '/');
	int n = snprintf(above, sizeof(above), "%.*s", slash ? (int)(slash - path) : 0, path);
	if (n >= (int)sizeof(above))
		return -LE_NAMETOOLONG;
	int64_t i = manifest_find_dir(m, above);
	if (i < 0 || i >= s->n_folders)
		return -LE_CORRUPT;
	*ret_name = slash ? slash + 1 : path;
	return open_known(s, k, above, (uint32_t)i);
}

int grant_name(struct local_store *s, const struct manifest *m, uint32_t file, const char *from)
{
	const char *name;
	int dir = open_above(s, m, store_place(s, file), m->files[file].path, &name);
	if (dir < 0)
		return dir;
	int rc = beneath_rename_into(s->env, from, dir, name);
	close(dir);
	return rc;
}

/* Opens folder i, and makes it in its verified parent if it is missing. Returns a descriptor. */
static int make_folder(struct local_store *s, const struct manifest *m, uint32_t k, uint32_t i,
		       const char *path)
{
	const char *name;
	if (i == 0) {
		int rc = env_mkdir(s->env, path, 0700);
		return rc < 0 && rc != -LE_EXIST ? rc : beneath_open_dir(s->env, path);
	}
	int above = open_above(s, m, k, m->dirs[i].path, &name);
	if (above < 0)
		return above;
	int rc = mkdirat(above, name, 0700) < 0 && errno != EEXIST ? status_from_errno(errno) : 0;
	close(above);
	return rc < 0 ? rc : beneath_open_dir(s->env, path);
}

static int grant_folder(struct local_store *s, const struct manifest *m, uint32_t k, uint32_t i,
			struct grants *g)
{
	const struct rights *r = i == 0 ? &g->top : &m->dirs[i].rights;
	char path[STORE_PATH_SIZE], why[160];
	struct stat st;
	bool narrowed = false;
	TRY(data_path(s, k, m->dirs[i].path, path));
	int fd = make_folder(s, m, k, i, path);
	if (fd < 0)
		return fd;
	int rc = fstat(fd, &st) < 0 ? status_from_errno(errno) : 0;
	struct store_folder *known = known_folder(s, k, i);
	/* The owner by what was granted before. Folder 0 is data/: if the copy has a manifest of
	 * ours, data/ is ours too. */
	uid_t was = g->had && i > 0 ? g->had->dirs[i].uid : g->had && rc == 0 ? st.st_uid : r->uid;
	if (rc == 0 && known->ino && (known->dev != st.st_dev || known->ino != st.st_ino))
		rc = refuse_swapped(s, path);
	if (rc == 0 && st.st_uid != geteuid() && st.st_uid != 0 && st.st_uid != r->uid &&
	    st.st_uid != was) {
		snprintf(why, sizeof(why),
			 "it belongs to user %u and is not believed: remove it, or name a "
			 "directory where only user %u can make one",
			 st.st_uid, geteuid());
		rc = beneath_refuse(s->env, path, why);
	}
	if (rc == 0)
		rc = grant_fd(fd, r, &narrowed);
	if (rc == 0)
		*known = (struct store_folder){st.st_dev, st.st_ino};
	g->n_narrowed += narrowed;
	close(fd);
	return rc;
}

static int grant_folders(struct local_store *s, const struct manifest *m, struct grants *g)
{
	/* While a job gives files their names, the folders that it has verified stay the same. */
	if (!g->coming || !s->folders) {
		free(s->folders);
		s->n_folders = m->n_dirs;
		s->folders = calloc((size_t)m->n_dirs * (s->n_more + 1) + 1, sizeof(*s->folders));
	}
	if (!s->folders)
		return -LE_NOMEM;
	/* m lists a folder before its content. */
	for (uint32_t k = 0; k <= s->n_more; k++)
		for (uint32_t i = 0; i < m->n_dirs; i++)
			TRY(grant_folder(s, m, k, i, g));
	return 0;
}

/* ---- files that have their names already ---- */

struct again {
	struct local_store *s;
	const struct manifest *m;
	struct grants *g;
	uint8_t *differ; /* a bit for each file that needs other rights */
	uint8_t *buf;    /* a chunk */
	struct stamping *stamping;
	/* arguments and result of read_fn */
	int fd;
	uint64_t off;
	uint32_t len;
	int rc;
};

/* Opens file i by its final name. -LE_NOENT: it has none yet, or something else had that name
 * and was removed. */
static int open_named(struct again *a, uint32_t i)
{
	char path[STORE_PATH_SIZE];
	if (i % AT_ONCE == 0)
		fiber_yield();
	if (!store_has_file(a->s, i))
		return -LE_NOENT;
	TRY(store_data_path(a->s, i, a->m->files[i].path, path));
	int fd = beneath_open(a->s->env, path, O_RDONLY, 0);
	if (fd != -LE_FOREIGN)
		return fd;
	a->g->n_wrong++;
	TRY(env_unlink(a->s->env, path));
	return -LE_NOENT;
}

static int narrow_files(struct again *a)
{
	for (uint32_t i = 0; i < a->m->n_files; i++) {
		bool differs = false;
		int fd = open_named(a, i), rc = fd;
		if (fd == -LE_NOENT)
			continue;
		if (fd >= 0) {
			rc = narrow(fd, &a->m->files[i].rights, &differs);
			close(fd);
		}
		TRY(rc);
		a->differ[i / 8] |= (uint8_t)(differs << i % 8);
	}
	return 0;
}

static int narrow_folders(struct again *a)
{
	char path[STORE_PATH_SIZE];
	bool ignored;
	for (uint32_t k = 0; k <= a->s->n_more; k++) {
		for (uint32_t i = 0; i < a->m->n_dirs; i++) {
			TRY(data_path(a->s, k, a->m->dirs[i].path, path));
			int fd = beneath_open_dir(a->s->env, path), rc = fd;
			if (fd == -LE_NOENT)
				continue;
			if (fd >= 0) {
				rc = narrow(fd, i == 0 ? &a->g->top : &a->m->dirs[i].rights,
					    &ignored);
				close(fd);
			}
			TRY(rc);
		}
	}
	return 0;
}

static void read_fn(void *arg)
{
	struct again *a = arg;
	uint32_t done = 0;
	a->rc = 0;
	while (done < a->len && a->rc == 0) {
		ssize_t n = pread(a->fd, a->buf + done, a->len - done, (off_t)(a->off + done));
		if (n < 0 && errno != EINTR)
			a->rc = status_from_errno(errno);
		else if (n == 0)
			a->rc = -LE_NODATA;
		else if (n > 0)
			done += (uint32_t)n;
	}
}

/* Compares the file's content with the manifest. The owner of a folder of the copy could have moved
 * any file there, and this process must not make that file readable to other users. Yields. */
static int check_content(struct again *a, int fd, const struct manifest_file *f)
{
	struct stat st;
	if (fstat(fd, &st) < 0)
		return status_from_errno(errno);
	if ((uint64_t)st.st_size != f->size)
		return -LE_CORRUPT;
	a->fd = fd;
	for (uint64_t c = 0; c < manifest_file_chunks(f); c++) {
		if (a->g->stop && *a->g->stop)
			return -LE_CANCELED;
		a->off = c * MANIFEST_CHUNK;
		a->len = manifest_chunk_len(f, c);
		TRY(env_offload(a->s->env, read_fn, a));
		TRY(a->rc);
		if (manifest_check(a->m, f, a->off, a->buf, a->len) >= 0)
			return -LE_CORRUPT;
	}
	return 0;
}

static int grant_named(struct again *a, uint32_t i)
{
	const struct manifest_file *f = &a->m->files[i];
	bool narrowed = false;
	int fd = open_named(a, i);
	if (fd < 0)
		return fd == -LE_NOENT ? 0 : fd;
	/* Without root, all files belong to this user, and no other user can have replaced one. */
	bool watched = geteuid() == 0 && stamp_watch(fd);
	int rc = geteuid() == 0 ? check_content(a, fd, f) : 0;
	if (rc == 0)
		rc = grant_fd(fd, &f->rights, &narrowed);
	/* Closes fd. */
	stamping_add(a->stamping, i, fd, watched && rc == 0);
	a->g->n_narrowed += narrowed;
	a->g->n_wrong += rc == -LE_CORRUPT || rc == -LE_NODATA;
	return rc == -LE_CORRUPT || rc == -LE_NODATA ? 0 : rc;
}

/* Gives their rights to the files that need others. A file that a fetch will handle loses its
 * bits instead: the fetch takes it back into part/, verifies and repairs it, and gives it rights
 * and name. */
static int grant_files(struct again *a)
{
	struct local_store *s = a->s;
	bool cleared = false;
	for (uint32_t i = 0; i < a->m->n_files; i++) {
		const struct manifest_file *f = &a->m->files[i];
		if (!(a->differ[i / 8] >> i % 8 & 1))
			continue;
		if (s->bitmap && f->size > 0 && !a->g->coming) {
			store_clear_file(s, f);
			cleared = true;
		} else {
			TRY(grant_named(a, i));
		}
	}
	/* Must be durable now: after a crash no bit may vouch for a file that was not verified. */
	return cleared ? store_save_bitmap(s) : 0;
}

static int narrow_all(struct again *a)
{
	a->differ = calloc(1, (size_t)a->m->n_files / 8 + 1);
	a->buf = malloc(MANIFEST_CHUNK);
	if (!a->differ || !a->buf)
		return -LE_NOMEM;
	TRY(narrow_files(a));
	return narrow_folders(a);
}

int grant_tree(struct local_store *s, const struct manifest *m, struct grants *g)
{
	struct stamping *x = calloc(1, sizeof(*x));
	struct again a = {.s = s, .m = m, .g = g, .stamping = x};
	if (!x)
		return -LE_NOMEM;
	x->s = s;
	const bool files = !s->fresh || g->coming;
	g->n_narrowed = g->n_wrong = 0;
	/* First narrow everything: nothing is widened while something else is still too wide. */
	int rc = files ? narrow_all(&a) : 0;
	if (rc == 0)
		rc = grant_meta(s, g);
	if (rc == 0)
		rc = grant_folders(s, m, g);
	if (rc == 0 && files)
		rc = grant_files(&a);
	stamping_end(x);
	free(x);
	free(a.differ);
	free(a.buf);
	return rc;
}

/* The owner of such a file may still write to it. */
static int grant_file(struct local_store *s, const char *path, const struct rights *r,
		      uint32_t *n_narrowed)
{
	bool narrowed = false;
	int fd = beneath_open(s->env, path, O_RDONLY, 0);
	if (fd < 0)
		return fd;
	int rc = give(fd, r, 0600, &narrowed);
	*n_narrowed += narrowed;
	close(fd);
	return rc;
}

struct naming {
	struct local_store *s;
	const struct grants *g;
};

/* Grants a file of named/, which says what samples a name has. */
static int grant_note_of_name(void *arg, const struct env_dirent *e)
{
	const struct naming *x = arg;
	char path[STORE_PATH_SIZE];
	uint32_t n = 0;
	if (e->is_dir ||
	    snprintf(path, sizeof(path), "%s/named/%s", x->s->dir, e->name) >= (int)sizeof(path))
		return 0;
	int rc = grant_file(x->s, path, &x->g->meta, &n);
	return rc == -LE_NOENT ? 0 : rc;
}

int grant_meta(struct local_store *s, struct grants *g)
{
	struct naming x = {s, g};
	static const char *const names[] = {"manifest", "sums",          "samples",
					    "bitmap",   "state",         "share",
					    "places",   "from/manifest", "from/sums"};
	char path[STORE_PATH_SIZE];
	uint32_t n = 0;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (snprintf(path, sizeof(path), "%s/%s", s->dir, names[i]) >= (int)sizeof(path))
			return -LE_NAMETOOLONG;
		int rc = grant_file(s, path, &g->meta, &n);
		if (rc < 0 && rc != -LE_NOENT)
			return rc;
	}
	if (snprintf(path, sizeof(path), "%s/named", s->dir) >= (int)sizeof(path))
		return -LE_NAMETOOLONG;
	int rc = env_list(s->env, path, grant_note_of_name, &x);
	return rc == -LE_NOENT ? 0 : rc;
}

/* ---- what has been granted ---- */

int rows_take(const struct manifest *m, struct rows *ret_rows)
{
	struct rows r = {calloc((size_t)m->n_files + 1, sizeof(*r.files)),
			 calloc((size_t)m->n_dirs + 1, sizeof(*r.dirs))};
	if (!r.files || !r.dirs) {
		rows_fini(&r);
		return -LE_NOMEM;
	}
	for (uint32_t i = 0; i < m->n_files; i++)
		r.files[i] = m->files[i].rights;
	for (uint32_t i = 0; i < m->n_dirs; i++)
		r.dirs[i] = m->dirs[i].rights;
	*ret_rows = r;
	return 0;
}

void rows_fini(struct rows *r)
{
	free(r->files);
	free(r->dirs);
	*r = (struct rows){0};
}

static uint64_t sum_of(uint64_t sum, const struct rights *r)
{
	uint64_t words[5] = {sum, r->mode, r->uid, r->gid,
			     r->acl_len ? checksum64(r->acl, r->acl_len) : 0};
	return checksum64(words, sizeof(words));
}

static uint64_t sum_of_row(uint64_t sum, const struct rights *r, uint64_t ino, int64_t born_ns)
{
	uint64_t words[3] = {sum_of(sum, r), ino, (uint64_t)born_ns};
	return checksum64(words, sizeof(words));
}

uint64_t grant_sum(const struct manifest *m, const struct grants *g)
{
	uint64_t sum = sum_of(sum_of(geteuid(), &g->top), &g->meta);
	for (uint32_t i = 0; i < m->n_dirs; i++)
		sum = sum_of_row(sum, &m->dirs[i].rights, m->dirs[i].ino, m->dirs[i].born_ns);
	for (uint32_t i = 0; i < m->n_files; i++)
		sum = sum_of_row(sum, &m->files[i].rights, m->files[i].ino, m->files[i].born_ns);
	return sum ^ checksum64(m->source, strlen(m->source));
}

#define NOTE_LEN 17

static void note_text(const struct manifest *m, const struct grants *g, char ret_text[NOTE_LEN + 1])
{
	snprintf(ret_text, NOTE_LEN + 1, "%016llx\n", (unsigned long long)grant_sum(m, g));
}

static int note_path(const struct local_store *s, char ret_path[STORE_PATH_SIZE])
{
	int n = snprintf(ret_path, STORE_PATH_SIZE, "%s/granted", s->dir);
	return n < 0 || n >= (int)STORE_PATH_SIZE ? -LE_NAMETOOLONG : 0;
}

/* Returns "" if there is no note. */
static void read_note(struct local_store *s, char ret_text[NOTE_LEN + 1])
{
	char path[STORE_PATH_SIZE], *had;
	size_t len;
	ret_text[0] = 0;
	if (note_path(s, path) < 0 || env_read_file(s->env, path, NOTE_LEN, &had, &len) < 0)
		return;
	if (len == NOTE_LEN)
		memcpy(ret_text, had, NOTE_LEN + 1);
	free(had);
}

bool grant_is_so(struct local_store *s, const struct manifest *m, const struct grants *g)
{
	char text[NOTE_LEN + 1], had[NOTE_LEN + 1];
	note_text(m, g, text);
	read_note(s, had);
	return strcmp(had, text) == 0;
}

int64_t grant_note_ns(struct local_store *s)
{
	char path[STORE_PATH_SIZE];
	struct stat st;
	if (note_path(s, path) < 0 || env_stat(s->env, path, &st) < 0)
		return 0;
	return (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
}

/* Durable before the first change: after a crash an old note must not describe new rights. */
int grant_note_drop(struct local_store *s)
{
	char path[STORE_PATH_SIZE];
	TRY(note_path(s, path));
	int rc = env_unlink(s->env, path);
	if (rc == -LE_NOENT)
		return 0;
	return rc < 0 ? rc : env_syncdir(s->env, s->dir);
}

/* Syncs the file systems of the folders first: the note must not be durable before the rights. */
int grant_note(struct local_store *s, const struct manifest *m, const struct grants *g)
{
	char path[STORE_PATH_SIZE], text[NOTE_LEN + 1];
	for (uint32_t k = 0; k <= s->n_more; k++) {
		TRY(data_path(s, k, "", path));
		TRY(env_syncdir(s->env, path));
	}
	note_text(m, g, text);
	TRY(note_path(s, path));
	return env_write_file(s->env, path, text, NOTE_LEN, 0600);
}

/* The file gets its rights before its name. */
static int write_manifest(struct local_store *s, const char *name, const struct manifest *m,
			  const struct grants *g)
{
	char path[STORE_PATH_SIZE], fresh[STORE_PATH_SIZE], *text;
	uint32_t n = 0;
	size_t len;
	if (snprintf(path, sizeof(path), "%s/%s", s->dir, name) >= (int)sizeof(path) ||
	    snprintf(fresh, sizeof(fresh), "%s/granting", s->dir) >= (int)sizeof(fresh))
		return -LE_NAMETOOLONG;
	TRY(manifest_encode(m, &text, &len));
	int rc = env_write_file(s->env, fresh, text, len, 0600);
	free(text);
	if (rc == 0)
		rc = grant_file(s, fresh, &g->meta, &n);
	if (rc == 0)
		rc = env_rename(s->env, fresh, path);
	return rc < 0 ? rc : env_syncdir(s->env, s->dir);
}

int grant_again(const struct regrant *o, struct grants *g)
{
	g->had = o->had;
	g->coming = o->coming;
	TRY(grant_note_drop(o->s));
	TRY(grant_tree(o->s, o->m, g));
	if (o->origin)
		TRY(write_manifest(o->s, "from/manifest", o->origin, g));
	TRY(write_manifest(o->s, "manifest", o->m, g));
	return g->n_wrong ? -LE_STALE : grant_note(o->s, o->m, g);
}
