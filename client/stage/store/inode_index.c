/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/store/inode_index.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "client/stage/store/local_store.h"
#include "common/base/checksum.h"

#define MAGIC 0x324f4e495441454cULL /* "LEATINO2" */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "entries are used as they lie");
_Static_assert(sizeof(struct inode_entry) == 56, "no padding: entries are used as they lie");

struct head {
	uint64_t magic;
	struct uuid cluster;
	uint64_t n, paths_len, said_by, sum;
};

static int by_ino(const void *a, const void *b)
{
	const struct inode_entry *x = a, *y = b;
	return x->ino < y->ino ? -1 : x->ino > y->ino;
}

int inode_index_encode(const struct manifest *m, const struct file_stamp *stamps,
		       const struct uuid *cluster, uint32_t said_by, void **ret_data,
		       size_t *ret_len)
{
	size_t paths_len = 0, at = 0, n = 0;
	for (uint32_t i = 0; i < m->n_files; i++)
		paths_len += strlen(m->files[i].path) + 1;
	size_t len = sizeof(struct head) + m->n_files * sizeof(struct inode_entry) + paths_len;
	uint8_t *data = calloc(1, len);
	if (!data)
		return -LE_NOMEM;
	struct inode_entry *entries = (struct inode_entry *)(data + sizeof(struct head));
	char *paths = (char *)(entries + m->n_files);
	for (uint32_t i = 0; i < m->n_files; i++) {
		const struct manifest_file *f = &m->files[i];
		size_t l = strlen(f->path) + 1;
		entries[n] = (struct inode_entry){f->ino, f->ver, f->size, at, {0}};
		if (stamps)
			entries[n].stamp = stamps[i];
		n++;
		memcpy(paths + at, f->path, l);
		at += l;
	}
	if (n > 1)
		qsort(entries, n, sizeof(*entries), by_ino);
	struct head h = {MAGIC,     *cluster, n,
			 paths_len, said_by,  checksum64(data + sizeof(h), len - sizeof(h))};
	memcpy(data, &h, sizeof(h));
	*ret_data = data;
	*ret_len = len;
	return 0;
}

static int check_entries(const struct inode_index *x, uint64_t paths_len)
{
	if (paths_len ? x->paths[paths_len - 1] != 0 : x->n != 0)
		return -LE_CORRUPT;
	for (uint64_t i = 0; i < x->n; i++) {
		const struct inode_entry *e = &x->entries[i];
		/* Two files of a data set may be names of one inode. */
		if (e->path >= paths_len || (i && e->ino < e[-1].ino) ||
		    (e->path && x->paths[e->path - 1] != 0) ||
		    !manifest_path_is_safe(x->paths + e->path))
			return -LE_CORRUPT;
	}
	return 0;
}

int inode_index_decode(const void *data, size_t len, struct inode_index *ret_index)
{
	struct head h;
	if (len < sizeof(h))
		return -LE_CORRUPT;
	memcpy(&h, data, sizeof(h));
	size_t rest = len - sizeof(h);
	if (h.magic != MAGIC || h.n > rest / sizeof(struct inode_entry) ||
	    h.paths_len != rest - h.n * sizeof(struct inode_entry) ||
	    h.sum != checksum64((const uint8_t *)data + sizeof(h), rest))
		return -LE_CORRUPT;
	const struct inode_entry *entries = (const void *)((const uint8_t *)data + sizeof(h));
	struct inode_index x = {.cluster = h.cluster,
				.said_by = h.said_by,
				.entries = h.n ? entries : NULL,
				.n = h.n,
				.paths = (const char *)(entries + h.n)};
	TRY(check_entries(&x, h.paths_len));
	*ret_index = x;
	return 0;
}

int inode_index_map(int fd, struct inode_index *ret_index)
{
	struct stat st;
	if (fstat(fd, &st) < 0)
		return status_from_errno(errno);
	if (st.st_size <= 0)
		return -LE_CORRUPT;
	size_t len = (size_t)st.st_size;
	void *map = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return status_from_errno(errno);
	int rc = inode_index_decode(map, len, ret_index);
	if (rc < 0) {
		munmap(map, len);
		return rc;
	}
	ret_index->map = map;
	ret_index->map_len = len;
	return 0;
}

void inode_index_unmap(struct inode_index *x)
{
	if (x->map)
		munmap(x->map, x->map_len);
	memset(x, 0, sizeof(*x));
}

const struct inode_entry *inode_index_find(const struct inode_index *x, uint64_t ino)
{
	uint64_t lo = 0, hi = x->n;
	while (lo < hi) {
		uint64_t mid = lo + (hi - lo) / 2;
		if (x->entries[mid].ino < ino)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < x->n && x->entries[lo].ino == ino ? &x->entries[lo] : NULL;
}

/* ---- beside the copies ---- */

static int index_path(const struct local_store *s, const char *name, char ret_path[STORE_PATH_SIZE])
{
	int n = snprintf(ret_path, STORE_PATH_SIZE, "%s/inodes%s%s", s->base, *name ? "/" : "",
			 name);
	return n < 0 || n >= (int)STORE_PATH_SIZE ? -LE_NAMETOOLONG : 0;
}

static bool is_there(struct local_store *s, const char *path, const void *data, size_t len)
{
	char *have;
	size_t have_len;
	struct stat st;
	if (env_stat(s->env, path, &st) < 0 || (uint64_t)st.st_size != len ||
	    env_read_file(s->env, path, len, &have, &have_len) < 0)
		return false;
	bool same = have_len == len && memcmp(have, data, len) == 0;
	free(have);
	return same;
}

/* Encodes the files that belong to the copy. */
static int encode_own(const struct local_store *s, const struct manifest *m,
		      const struct uuid *cluster, uint32_t said_by, void **ret_data,
		      size_t *ret_len)
{
	struct manifest own = *m;
	const struct file_stamp *all = s->n_stamps == m->n_files ? s->stamps : NULL;
	if (!s->share)
		return inode_index_encode(m, all, cluster, said_by, ret_data, ret_len);
	own.n_files = 0;
	own.files = calloc((size_t)m->n_files + 1, sizeof(*own.files));
	struct file_stamp *stamps = calloc((size_t)m->n_files + 1, sizeof(*stamps));
	int rc = own.files && stamps ? 0 : -LE_NOMEM;
	for (uint32_t i = 0; rc == 0 && i < m->n_files; i++) {
		if (!store_has_file(s, i))
			continue;
		stamps[own.n_files] = all ? all[i] : (struct file_stamp){0};
		own.files[own.n_files++] = m->files[i];
	}
	if (rc == 0)
		rc = inode_index_encode(&own, stamps, cluster, said_by, ret_data, ret_len);
	free(own.files);
	free(stamps);
	return rc;
}

int inode_index_publish(struct local_store *s, const struct manifest *m, const struct uuid *cluster,
			uint32_t said_by)
{
	char path[STORE_PATH_SIZE], dir[STORE_PATH_SIZE];
	void *data;
	size_t len;
	TRY(index_path(s, s->id, path));
	TRY(index_path(s, "", dir));
	TRY(encode_own(s, m, cluster, said_by, &data, &len));
	int rc = 0;
	if (!is_there(s, path, data, len)) {
		rc = env_mkdirs(s->env, dir, 0755);
		if (rc == 0)
			rc = env_write_file(s->env, path, data, len, 0644);
	}
	free(data);
	return rc;
}

int inode_index_withdraw(struct local_store *s)
{
	char path[STORE_PATH_SIZE], dir[STORE_PATH_SIZE];
	TRY(index_path(s, s->id, path));
	TRY(index_path(s, "", dir));
	int rc = env_unlink(s->env, path);
	if (rc == -LE_NOENT)
		return 0;
	return rc < 0 ? rc : env_syncdir(s->env, dir);
}
