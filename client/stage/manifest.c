#include "client/stage/manifest.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/checksum.h"
#include "common/base/content_hash.h"

void manifest_destroy(struct manifest *m)
{
	if (!m)
		return;
	for (uint32_t i = 0; i < m->n_files; i++)
		free(m->files[i].path);
	free(m->files);
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

int64_t manifest_find(const struct manifest *m, const char *path)
{
	uint32_t lo = 0, hi = m->n_files;
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		int c = strcmp(m->files[mid].path, path);
		if (c == 0)
			return mid;
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return -1;
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

int manifest_add(struct manifest *m, const char *path, const struct vol_stat *st, uint32_t block)
{
	if (!manifest_path_is_safe(path) || block < MANIFEST_BLOCK_MIN ||
	    MANIFEST_CHUNK % block != 0 || st->size > INT64_MAX - MANIFEST_CHUNK)
		return -LE_INVAL;
	if (m->n_files && strcmp(m->files[m->n_files - 1].path, path) >= 0)
		return -LE_INVAL;
	if (m->n_files == MANIFEST_FILES_MAX)
		return -LE_FBIG;
	if (m->n_files == m->cap_files) {
		uint32_t cap = m->cap_files ? m->cap_files * 2 : 64;
		struct manifest_file *more = realloc(m->files, cap * sizeof(*more));
		if (!more)
			return -LE_NOMEM;
		m->files = more;
		m->cap_files = cap;
	}
	struct manifest_file *f = &m->files[m->n_files];
	*f = (struct manifest_file){.size = st->size,
				    .ino = st->ino,
				    .ver = st->ver,
				    .mtime_ns = st->mtime_ns,
				    .mode = st->mode & 07777,
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

static void content_id(const struct manifest *m, char ret_id[MANIFEST_ID_SIZE])
{
	static const char head[] = "leat manifest 1\n";
	struct content_hash h;
	content_hash_init(&h);
	content_hash_add(&h, head, sizeof(head) - 1);
	for (uint32_t i = 0; i < m->n_files; i++) {
		const struct manifest_file *f = &m->files[i];
		content_hash_add(&h, f->path, strlen(f->path) + 1);
		add_number(&h, f->size);
		add_number(&h, f->block);
		for (uint64_t c = 0; c < manifest_file_chunks(f); c++) {
			uint64_t sum = chunk_sum(m, f, c);
			content_hash_add(&h, &sum, sizeof(sum));
		}
	}
	content_hash_final_text(&h, ret_id);
}

void manifest_finish(struct manifest *m)
{
	content_id(m, m->id);
}

void manifest_scan_key(const char *dir, const struct scan *s, char ret_key[MANIFEST_ID_SIZE])
{
	static const char head[] = "leat source 1\n";
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
		add_number(&h, f->st.ver);
	}
	content_hash_final_text(&h, ret_key);
}
