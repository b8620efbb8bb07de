/* SPDX-License-Identifier: Apache-2.0 */
#include "client/dataset/manifest.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/dataset/scan_list.h"
#include "common/base/assert.h"
#include "common/base/checksum.h"
#include "common/base/content_hash.h"

void manifest_destroy(struct manifest *m)
{
	if (!m)
		return;
	for (uint32_t i = 0; i < m->n_files; i++) {
		free(m->files[i].path);
		free(m->files[i].from);
	}
	for (uint32_t i = 0; i < m->n_dirs; i++)
		free(m->dirs[i].path);
	for (uint32_t i = 0; i < m->n_links; i++) {
		free(m->links[i].path);
		free(m->links[i].target);
	}
	free(m->files);
	free(m->dirs);
	free(m->links);
	acl_pool_fini(&m->acls);
	free(m->sums);
	free(m);
}

int manifest_create(struct manifest **ret_manifest)
{
	struct manifest *m = calloc(1, sizeof(*m));
	if (!m)
		return -LE_NOMEM;
	*ret_manifest = m;
	return 0;
}

bool manifest_path_is_safe(const char *path)
{
	int depth = 0;
	if (strlen(path) > 4095)
		return false;
	for (const char *c = path;;) {
		if (++depth > MANIFEST_DEPTH_MAX)
			return false;
		size_t len = strcspn(c, "/");
		if (len == 0 || len > 255 || (len == 1 && c[0] == '.') ||
		    (len == 2 && c[0] == '.' && c[1] == '.'))
			return false;
		if (c[len] == 0)
			return true;
		c += len + 1;
	}
}

static bool take_name(const char *s, size_t len, char *ret_name)
{
	if (len == 0 || len > MANIFEST_NAME_MAX || s[0] == '.')
		return false;
	for (size_t i = 0; i < len; i++) {
		if (!isalnum((unsigned char)s[i]) && !strchr("._-", s[i]))
			return false;
	}
	memcpy(ret_name, s, len);
	ret_name[len] = 0;
	return true;
}

int manifest_parse_alias(const char *alias, char ret_name[MANIFEST_NAME_MAX + 1],
			 char ret_version[MANIFEST_NAME_MAX + 1])
{
	const char *at = strchr(alias, '@');
	size_t len = at ? (size_t)(at - alias) : strlen(alias);
	const char *version = at ? at + 1 : "latest";
	if (!take_name(alias, len, ret_name) || !take_name(version, strlen(version), ret_version))
		return -LE_INVAL;
	return 0;
}

/* Finds path in an array of structs that begin with their path, sorted by it; -1: none. */
int64_t manifest_find_in(const void *array, uint32_t n, size_t size, const char *path)
{
	uint32_t lo = 0, hi = n;
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		char *name;
		memcpy(&name, (const char *)array + mid * size, sizeof(name));
		int c = strcmp(name, path);
		if (c == 0)
			return mid;
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return -1;
}

int64_t manifest_find(const struct manifest *m, const char *path)
{
	return manifest_find_in(m->files, m->n_files, sizeof(*m->files), path);
}

int64_t manifest_find_dir(const struct manifest *m, const char *path)
{
	return manifest_find_in(m->dirs, m->n_dirs, sizeof(*m->dirs), path);
}

bool manifest_is_id(const char *text)
{
	return strlen(text) == MANIFEST_ID_SIZE - 1 &&
	       strspn(text, "0123456789abcdef") == MANIFEST_ID_SIZE - 1;
}

int manifest_source_path(const struct manifest *m, const struct manifest_file *f,
			 char ret_path[4096])
{
	int n = f->from ? snprintf(ret_path, 4096, "%s", f->from)
			: snprintf(ret_path, 4096, "%s/%s", m->source, f->path);
	return n >= 4096 ? -LE_NAMETOOLONG : 0;
}

uint32_t manifest_file_of_chunk(const struct manifest *m, uint64_t chunk)
{
	uint32_t lo = 0, hi = m->n_files;
	/* The last file that begins at or before the chunk. Files without chunks come before it. */
	while (hi - lo > 1) {
		uint32_t mid = lo + (hi - lo) / 2;
		if (m->files[mid].first_chunk <= chunk)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

int64_t manifest_check(const struct manifest *m, const struct manifest_file *f, uint64_t off,
		       const void *data, uint64_t len)
{
	ASSERT(off % f->block == 0 && (len % f->block == 0 || off + len == f->size));
	uint64_t b = off / f->block;
	for (uint64_t at = 0; at < len; at += f->block, b++) {
		size_t n = len - at < f->block ? len - at : f->block;
		if (checksum64((const char *)data + at, n) != m->sums[f->first_sum + b])
			return (int64_t)b;
	}
	return -1;
}

uint64_t manifest_zeros_sum(uint32_t block)
{
	static uint8_t zeros[MANIFEST_CHUNK];
	/* One for each power of two from the smallest block on; 0: not computed yet. */
	static _Atomic uint64_t sums[16];
	uint32_t k = 0;
	while (MANIFEST_BLOCK_MIN << k < block)
		k++;
	ASSERT(MANIFEST_BLOCK_MIN << k == block && block <= sizeof(zeros));
	uint64_t sum = sums[k];
	if (sum == 0)
		sums[k] = sum = checksum64(zeros, block);
	return sum;
}

uint64_t manifest_run(const struct manifest *m, const struct manifest_file *f, uint64_t off,
		      uint64_t end, bool *ret_zeros)
{
	ASSERT(off % f->block == 0 && off < end && end <= f->size);
	uint64_t zeros = manifest_zeros_sum(f->block), n = (end - off + f->block - 1) / f->block;
	uint64_t whole = f->size / f->block, b = off / f->block, done = 0;
	const uint64_t *sums = m->sums + f->first_sum;
	*ret_zeros = b < whole && sums[b] == zeros;
	while (done < n && (b + done < whole && sums[b + done] == zeros) == *ret_zeros)
		done++;
	return done < n ? done * f->block : end - off;
}

uint64_t manifest_file_data(const struct manifest *m, const struct manifest_file *f)
{
	uint64_t data = 0;
	bool zeros;
	for (uint64_t off = 0, n; off < f->size; off += n) {
		n = manifest_run(m, f, off, f->size, &zeros);
		data += zeros ? 0 : n;
	}
	return data;
}

uint64_t manifest_data(const struct manifest *m)
{
	uint64_t data = 0;
	for (uint32_t i = 0; i < m->n_files; i++)
		data += manifest_file_data(m, &m->files[i]);
	return data;
}

/* Grows an array of structs that begin with their path, for one more. -LE_INVAL unless path
 * sorts after the last one. */
static int make_space(void *array, uint32_t n, uint32_t *cap, size_t size, const char *path)
{
	char *all, *last;
	memcpy(&all, array, sizeof(all));
	if (n) {
		memcpy(&last, all + (n - 1) * size, sizeof(last));
		if (strcmp(last, path) >= 0)
			return -LE_INVAL;
	}
	if (n == MANIFEST_FILES_MAX)
		return -LE_FBIG;
	if (n < *cap)
		return 0;
	uint32_t more = *cap ? *cap * 2 : 64;
	all = realloc(all, more * size);
	if (!all)
		return -LE_NOMEM;
	memcpy(array, &all, sizeof(all));
	*cap = more;
	return 0;
}

int manifest_add(struct manifest *m, const char *path, const struct vol_stat *st, uint32_t block)
{
	if (!manifest_path_is_safe(path) || block < MANIFEST_BLOCK_MIN ||
	    MANIFEST_CHUNK % block != 0 || st->size > INT64_MAX - MANIFEST_CHUNK)
		return -LE_INVAL;
	TRY(make_space(&m->files, m->n_files, &m->cap_files, sizeof(*m->files), path));
	struct manifest_file *f = &m->files[m->n_files];
	*f = (struct manifest_file){.size = st->size,
				    .ino = st->ino,
				    .ver = st->ver,
				    .mtime_ns = st->mtime_ns,
				    .born_ns = st->born_ns,
				    .rights = {.mode = st->mode & 07777,
					       .uid = st->uid,
					       .gid = st->gid},
				    .block = block,
				    .first_sum = m->n_sums,
				    .first_chunk = m->n_chunks};
	uint64_t n = m->n_sums + manifest_file_blocks(f);
	if (n > m->cap_sums) {
		uint64_t cap = n + m->cap_sums / 2 + 64;
		uint64_t *more =
			cap < (uint64_t)1 << 40 ? realloc(m->sums, cap * sizeof(*more)) : NULL;
		if (!more)
			return -LE_NOMEM;
		m->sums = more;
		m->cap_sums = cap;
	}
	f->path = strdup(path);
	if (!f->path)
		return -LE_NOMEM;
	m->n_sums = n;
	m->n_chunks += manifest_file_chunks(f);
	m->bytes += f->size;
	m->n_files++;
	return 0;
}

/* True for an absolute path without empty, "." or ".." components. */
static bool from_is_safe(const char *from)
{
	size_t len = strlen(from);
	if (from[0] != '/' || len > 4095)
		return false;
	for (const char *c = from + 1;; c++) {
		len = strcspn(c, "/");
		if (len == 0 || (len == 1 && c[0] == '.') ||
		    (len == 2 && c[0] == '.' && c[1] == '.'))
			return false;
		c += len;
		if (!*c)
			return true;
	}
}

static int take_rights(struct manifest *m, const struct rights *r, struct rights *ret_rights)
{
	*ret_rights = (struct rights){.mode = r->mode & 07777, .uid = r->uid, .gid = r->gid};
	return acl_pool_set(&m->acls, ret_rights, r->acl, r->acl_len);
}

int manifest_add_rights(struct manifest *m, const struct rights *r, const char *from)
{
	struct manifest_file *f = &m->files[m->n_files - 1];
	if (from && !from_is_safe(from))
		return -LE_INVAL;
	if (from) {
		f->from = strdup(from);
		if (!f->from)
			return -LE_NOMEM;
	}
	return take_rights(m, r, &f->rights);
}

int manifest_add_dir(struct manifest *m, const char *path, const struct vol_stat *st,
		     const struct rights *r)
{
	struct manifest_dir d = {.ino = st->ino, .mtime_ns = st->mtime_ns, .born_ns = st->born_ns};
	if (*path && !manifest_path_is_safe(path))
		return -LE_INVAL;
	TRY(make_space(&m->dirs, m->n_dirs, &m->cap_dirs, sizeof(*m->dirs), path));
	TRY(take_rights(m, r, &d.rights));
	d.path = strdup(path);
	if (!d.path)
		return -LE_NOMEM;
	m->dirs[m->n_dirs++] = d;
	return 0;
}

int manifest_add_link(struct manifest *m, const struct manifest_link *l)
{
	struct manifest_link link = *l;
	if (!manifest_path_is_safe(l->path) || !*l->target || strlen(l->target) > 4095)
		return -LE_INVAL;
	TRY(make_space(&m->links, m->n_links, &m->cap_links, sizeof(*m->links), l->path));
	link.path = strdup(l->path);
	link.target = strdup(l->target);
	if (!link.path || !link.target) {
		free(link.path);
		free(link.target);
		return -LE_NOMEM;
	}
	m->links[m->n_links++] = link;
	return 0;
}

static uint64_t chunk_sum(const struct manifest *m, const struct manifest_file *f, uint64_t chunk)
{
	uint64_t per = MANIFEST_CHUNK / f->block, n = manifest_file_blocks(f) - chunk * per;
	return checksum64(m->sums + f->first_sum + chunk * per,
			  (n < per ? n : per) * sizeof(uint64_t));
}

static void add_number(struct content_hash *h, uint64_t v)
{
	char text[24];
	int n = snprintf(text, sizeof(text), "%llu", (unsigned long long)v);
	content_hash_add(h, text, (size_t)n + 1);
}

/* Computes the directory of path, "" at the top. Returns ret_dir. */
static char *parent_of(const char *path, char ret_dir[4096])
{
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;
	memcpy(ret_dir, path, len);
	ret_dir[len] = 0;
	return ret_dir;
}

static void mark_parents(struct manifest *m, const void *array, uint32_t n, size_t size)
{
	char dir[4096], last[4096] = "/";
	for (uint32_t i = 0; i < n; i++) {
		char *path;
		memcpy(&path, (const char *)array + i * size, sizeof(path));
		/* The source itself has no parent. */
		if (!*path || strcmp(parent_of(path, dir), last) == 0)
			continue;
		memcpy(last, dir, strlen(dir) + 1);
		int64_t k = manifest_find_dir(m, dir);
		if (k >= 0)
			m->dirs[k].filled = true;
	}
}

static void add_text(struct content_hash *h, const char *text)
{
	content_hash_add(h, text, strlen(text) + 1);
}

static void content_id(const struct manifest *m, char ret_id[MANIFEST_ID_SIZE])
{
	static const char head[] = "leat manifest 3\n";
	struct content_hash h;
	content_hash_init(&h);
	content_hash_add(&h, head, sizeof(head) - 1);
	for (uint32_t i = 0; i < m->n_files; i++) {
		const struct manifest_file *f = &m->files[i];
		add_text(&h, f->path);
		add_number(&h, f->size);
		add_number(&h, f->block);
		for (uint64_t c = 0; c < manifest_file_chunks(f); c++) {
			uint64_t sum = chunk_sum(m, f, c);
			content_hash_add(&h, &sum, sizeof(sum));
		}
	}
	add_text(&h, "");
	for (uint32_t i = 0; i < m->n_links; i++) {
		add_text(&h, m->links[i].path);
		add_text(&h, m->links[i].target);
	}
	add_text(&h, "");
	for (uint32_t i = 0; i < m->n_dirs; i++)
		if (*m->dirs[i].path && !m->dirs[i].filled)
			add_text(&h, m->dirs[i].path);
	content_hash_final_text(&h, ret_id);
}

void manifest_finish(struct manifest *m)
{
	for (uint32_t i = 0; i < m->n_dirs; i++)
		m->dirs[i].filled = false;
	mark_parents(m, m->files, m->n_files, sizeof(*m->files));
	mark_parents(m, m->links, m->n_links, sizeof(*m->links));
	mark_parents(m, m->dirs, m->n_dirs, sizeof(*m->dirs));
	content_id(m, m->id);
}

/* ---- missing directories ---- */

/* Appends a directory, not in order. */
static int append_dir(struct manifest *m, const char *path, size_t len)
{
	if (m->n_dirs == MANIFEST_FILES_MAX)
		return -LE_FBIG;
	if (m->n_dirs == m->cap_dirs) {
		uint32_t cap = m->cap_dirs ? m->cap_dirs * 2 : 64;
		struct manifest_dir *more = realloc(m->dirs, cap * sizeof(*more));
		if (!more)
			return -LE_NOMEM;
		m->dirs = more;
		m->cap_dirs = cap;
	}
	char *copy = strndup(path, len);
	if (!copy)
		return -LE_NOMEM;
	m->dirs[m->n_dirs++] = (struct manifest_dir){.path = copy};
	return 0;
}

/* Appends the directories above each path, some of them twice. In the sorted array all paths
 * below a directory follow each other, so a directory is new unless the previous path is below
 * it. */
static int append_parents(struct manifest *m, const void *array, uint32_t n, size_t size)
{
	const char *before = "";
	for (uint32_t i = 0; i < n; i++) {
		char *path;
		memcpy(&path, (const char *)array + i * size, sizeof(path));
		for (const char *c = strchr(path, '/'); c; c = strchr(c + 1, '/')) {
			size_t len = (size_t)(c - path);
			if (strncmp(path, before, len + 1) != 0)
				TRY(append_dir(m, path, len));
		}
		before = path;
	}
	return 0;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct manifest_dir *)a)->path,
		      ((const struct manifest_dir *)b)->path);
}

static struct manifest_dir *find_told(const struct manifest_dir *told, uint32_t n,
				      const char *path)
{
	int64_t i = manifest_find_in(told, n, sizeof(*told), path);
	return i < 0 ? NULL : (struct manifest_dir *)(uintptr_t)&told[i];
}

/* Sorts the directories and removes duplicates. Those in `told` keep their attributes; others
 * get those of the nearest directory above. */
static void merge_dirs(struct manifest *m, const struct manifest_dir *told, uint32_t n_told,
		       const struct manifest_dir *root)
{
	char up[4096];
	uint32_t n = 0;
	qsort(m->dirs, m->n_dirs, sizeof(*m->dirs), by_path);
	for (uint32_t i = 0; i < m->n_dirs; i++) {
		struct manifest_dir d = m->dirs[i];
		if (n && strcmp(m->dirs[n - 1].path, d.path) == 0) {
			free(d.path);
			continue;
		}
		const struct manifest_dir *like = find_told(told, n_told, d.path);
		if (like) {
			d.ino = like->ino;
			d.born_ns = like->born_ns;
		}
		if (!like && *d.path)
			like = find_told(m->dirs, n, parent_of(d.path, up));
		if (!like)
			like = root;
		d.rights = like->rights;
		d.mtime_ns = like->mtime_ns;
		m->dirs[n++] = d;
	}
	m->n_dirs = n;
}

int manifest_fill_dirs(struct manifest *m, const struct manifest_dir *root)
{
	struct manifest_dir *told = m->dirs, r = *root;
	uint32_t n_told = m->n_dirs;
	m->dirs = NULL;
	m->n_dirs = m->cap_dirs = 0;
	int rc = take_rights(m, &root->rights, &r.rights);
	if (rc == 0)
		rc = append_dir(m, "", 0);
	for (uint32_t i = 0; i < n_told && rc == 0; i++)
		rc = append_dir(m, told[i].path, strlen(told[i].path));
	if (rc == 0)
		rc = append_parents(m, m->files, m->n_files, sizeof(*m->files));
	if (rc == 0)
		rc = append_parents(m, m->links, m->n_links, sizeof(*m->links));
	if (rc == 0)
		rc = append_parents(m, told, n_told, sizeof(*told));
	merge_dirs(m, told, n_told, &r);
	for (uint32_t i = 0; i < n_told; i++)
		free(told[i].path);
	free(told);
	return rc;
}

static void add_rights(struct content_hash *h, const struct rights *r)
{
	add_number(h, r->mode);
	add_number(h, r->uid);
	add_number(h, r->gid);
	add_number(h, r->acl_len);
	if (r->acl_len)
		content_hash_add(h, r->acl, r->acl_len);
}

void manifest_scan_key(const char *dir, const struct scan *s, char ret_key[MANIFEST_ID_SIZE])
{
	static const char head[] = "leat source 3\n";
	struct content_hash h;
	content_hash_init(&h);
	content_hash_add(&h, head, sizeof(head) - 1);
	content_hash_add(&h, dir, strlen(dir) + 1);
	for (uint32_t i = 0; i < s->n; i++) {
		const struct scan_file *f = &s->files[i];
		content_hash_add(&h, f->path, strlen(f->path) + 1);
		add_number(&h, f->st.size);
		add_number(&h, (uint64_t)f->st.mtime_ns);
		add_number(&h, f->st.ino);
		add_number(&h, (uint64_t)f->st.born_ns);
		add_number(&h, f->st.ver);
		add_text(&h, f->from ? f->from : "");
		add_rights(&h, &f->rights);
	}
	for (uint32_t i = 0; i < s->n_dirs; i++) {
		add_text(&h, s->dirs[i].path);
		add_number(&h, s->dirs[i].st.ino);
		add_number(&h, (uint64_t)s->dirs[i].st.born_ns);
		add_number(&h, (uint64_t)s->dirs[i].st.mtime_ns);
		add_rights(&h, &s->dirs[i].rights);
	}
	for (uint32_t i = 0; i < s->n_links; i++) {
		add_text(&h, s->links[i].path);
		add_text(&h, s->links[i].target);
	}
	content_hash_final_text(&h, ret_key);
}
