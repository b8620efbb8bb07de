#include "client/stage/grant.h"

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

#include "client/stage/beneath.h"
#include "client/stage/inode_index.h"
#include "common/base/assert.h"
#include "common/base/checksum.h"

#define ACCESS_LIST "system.posix_acl_access"

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

/* What this process can give: as r, or to fewer. */
static struct rights fit(const struct rights *r, gid_t group, bool dir, bool *ret_narrowed)
{
	uid_t me = geteuid();
	struct rights f = *r;
	f.mode &= 0555;
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
			.mode = bits << 6 | members << 3 | all, .uid = me, .gid = group};
		*ret_narrowed = true;
	}
	/* It makes names in its own folders, and takes them away. */
	f.mode |= dir ? 0700 : 0400;
	return f;
}

/* The list without writing. -LE_NOTSUP: this file system has none. */
static int set_list(int fd, const struct rights *r)
{
	uint8_t *acl = malloc(r->acl_len);
	size_t at = sizeof(struct posix_acl_xattr_header);
	struct posix_acl_xattr_entry e;
	if (!acl)
		return -LE_NOMEM;
	memcpy(acl, r->acl, r->acl_len);
	for (; at + sizeof(e) <= r->acl_len; at += sizeof(e)) {
		memcpy(&e, acl + at, sizeof(e));
		bool owner = le16toh(e.e_tag) == ACL_USER_OBJ;
		e.e_perm = htole16((uint16_t)(owner ? r->mode >> 6 & 7 : le16toh(e.e_perm) & 5));
		memcpy(acl + at, &e, sizeof(e));
	}
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

/* From nobody but its owner, so that no step grants what the last one does not. */
int grant_fd(int fd, const struct rights *r, bool *ret_narrowed)
{
	struct stat st;
	if (fstat(fd, &st) < 0)
		return status_from_errno(errno);
	bool dir = S_ISDIR(st.st_mode);
	struct rights f = fit(r, geteuid() == 0 ? r->gid : getegid(), dir, ret_narrowed);
	uint32_t owner = geteuid() == 0 ? 0500 : 0700;
	TRY(drop_list(fd, ACCESS_LIST));
	if (dir)
		TRY(drop_list(fd, "system.posix_acl_default"));
	if (fchmod(fd, (st.st_mode & 0777 & f.mode) | (f.mode & owner)) < 0)
		return status_from_errno(errno);
	if (st.st_uid != f.uid || st.st_gid != f.gid) {
		if (fchmod(fd, f.mode & 0700) < 0 || fchown(fd, f.uid, f.gid) < 0)
			return status_from_errno(errno);
	}
	int rc = f.acl_len ? set_list(fd, &f) : -LE_NOTSUP;
	if (rc == 0 || rc != -LE_NOTSUP)
		return rc;
	struct rights bare = f.acl_len ? rights_without_acl(&f) : f;
	*ret_narrowed |= f.acl_len != 0;
	return fchmod(fd, bare.mode & 0777) < 0 ? status_from_errno(errno) : 0;
}

/* ---- a copy ---- */

int grants_make(struct manifest *m, const struct rights *above, uint32_t n,
		struct grants *ret_grants)
{
	const struct rights alone = {.mode = 0700, .uid = geteuid(), .gid = getegid()};
	const struct rights *root = m->n_dirs ? &m->dirs[0].rights : &alone;
	struct grants g = {.top = alone};
	struct audience a = audience_of(root->uid, root->gid);
	if (above)
		TRY(rights_conjunction(root, above, n, &m->acls, &g.top));
	else
		audience_add(&a, &alone, 5);
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

static int grant_dir(struct local_store *s, const char *path, const struct rights *r,
		     struct grants *g)
{
	struct stat st;
	bool narrowed = false;
	int fd = beneath_open_dir(s->env, path);
	if (fd < 0)
		return fd;
	int rc = fstat(fd, &st) < 0 ? status_from_errno(errno) : 0;
	if (rc == 0 && st.st_uid != geteuid() && st.st_uid != 0 && st.st_uid != r->uid)
		rc = beneath_refuse(s->env, path, st.st_uid);
	if (rc == 0)
		rc = grant_fd(fd, r, &narrowed);
	g->n_narrowed += narrowed;
	close(fd);
	return rc;
}

static int data_path(const struct local_store *s, uint32_t k, const char *path,
		     char ret_path[STORE_PATH_SIZE])
{
	int n = snprintf(ret_path, STORE_PATH_SIZE, "%s/data%s%s", store_dir_of(s, k),
			 path[0] ? "/" : "", path);
	return n < 0 || n >= (int)STORE_PATH_SIZE ? -LE_NAMETOOLONG : 0;
}

int grant_folders(struct local_store *s, const struct manifest *m, struct grants *g)
{
	char path[STORE_PATH_SIZE];
	for (uint32_t k = 0; k <= s->n_more; k++) {
		/* A folder comes before what is in it. */
		for (uint32_t i = 0; i < m->n_dirs; i++) {
			TRY(data_path(s, k, m->dirs[i].path, path));
			int rc = env_mkdir(s->env, path, 0700);
			if (rc < 0 && rc != -LE_EXIST)
				return rc;
			TRY(grant_dir(s, path, i == 0 ? &g->top : &m->dirs[i].rights, g));
		}
	}
	return 0;
}

/* change: its owner may still write to it. */
static int grant_file(struct local_store *s, const char *path, const struct rights *r, bool change,
		      uint32_t *n_narrowed)
{
	struct stat st;
	bool narrowed = false;
	int fd = beneath_open(s->env, path, O_RDONLY, 0);
	if (fd < 0)
		return fd;
	int rc = grant_fd(fd, r, &narrowed);
	if (rc == 0 && change && (fstat(fd, &st) < 0 || fchmod(fd, (st.st_mode & 0777) | 0600) < 0))
		rc = status_from_errno(errno);
	*n_narrowed += narrowed;
	close(fd);
	return rc;
}

int grant_meta(struct local_store *s, struct grants *g)
{
	static const char *const names[] = {"manifest", "sums",          "samples",
					    "bitmap",   "state",         "share",
					    "places",   "from/manifest", "from/sums"};
	char path[STORE_PATH_SIZE];
	uint32_t n = 0;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (snprintf(path, sizeof(path), "%s/%s", s->dir, names[i]) >= (int)sizeof(path))
			return -LE_NAMETOOLONG;
		int rc = grant_file(s, path, &g->meta, true, &n);
		if (rc < 0 && rc != -LE_NOENT)
			return rc;
	}
	return 0;
}

/* ---- again ---- */

static uint64_t sum_of(uint64_t sum, const struct rights *r)
{
	uint64_t words[5] = {sum, r->mode, r->uid, r->gid,
			     r->acl_len ? checksum64(r->acl, r->acl_len) : 0};
	return checksum64(words, sizeof(words));
}

static void granted_text(const struct manifest *m, const struct grants *g, char ret_text[32])
{
	uint64_t sum = sum_of(sum_of(geteuid(), &g->top), &g->meta);
	for (uint32_t i = 0; i < m->n_dirs; i++)
		sum = sum_of(sum, &m->dirs[i].rights);
	for (uint32_t i = 0; i < m->n_files; i++)
		sum = sum_of(sum, &m->files[i].rights);
	snprintf(ret_text, 32, "%016llx\n", (unsigned long long)sum);
}

static int granted_path(const struct local_store *s, char ret_path[STORE_PATH_SIZE])
{
	int n = snprintf(ret_path, STORE_PATH_SIZE, "%s/granted", s->dir);
	return n < 0 || n >= (int)STORE_PATH_SIZE ? -LE_NAMETOOLONG : 0;
}

int grant_note(struct local_store *s, const struct manifest *m, const struct grants *g)
{
	char path[STORE_PATH_SIZE], text[32];
	granted_text(m, g, text);
	TRY(granted_path(s, path));
	return env_write_file(s->env, path, text, strlen(text), 0600);
}

int grant_again(struct local_store *s, const struct manifest *m, struct grants *g)
{
	char path[STORE_PATH_SIZE], text[32], *had;
	size_t len;
	granted_text(m, g, text);
	TRY(granted_path(s, path));
	if (env_read_file(s->env, path, sizeof(text), &had, &len) == 0) {
		bool same = strcmp(had, text) == 0;
		free(had);
		if (same)
			return 0;
	}
	/* Mounts believe what has not changed since the index was written. */
	TRY(inode_index_withdraw(s));
	TRY(grant_meta(s, g));
	TRY(grant_folders(s, m, g));
	for (uint32_t i = 0; i < m->n_files; i++) {
		if (!store_has_file(s, i))
			continue;
		TRY(store_data_path(s, i, m->files[i].path, path));
		int rc = grant_file(s, path, &m->files[i].rights, false, &g->n_narrowed);
		if (rc < 0 && rc != -LE_NOENT)
			return rc;
	}
	return grant_note(s, m, g);
}
