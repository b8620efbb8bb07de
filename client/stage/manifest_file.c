/* The two files of a manifest: JSON Lines by jansson, and the blocks' checksums. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/stage/manifest.h"
#include "common/base/checksum.h"

#define SUMS_MAGIC    0x314d55535441454cULL /* "LEATSUM1" */
#define FILE_SIZE_MAX ((uint64_t)16 << 30)
#define DEPTH_MAX     8 /* of JSON; ours is 3 deep */

/* ---- writing ---- */

struct text {
	char *data;
	size_t len, cap;
};

static int append(const char *buffer, size_t size, void *arg)
{
	struct text *t = arg;
	if (t->len + size + 1 > t->cap) {
		size_t cap = (t->len + size + 1) * 3 / 2 + 4096;
		char *more = realloc(t->data, cap);
		if (!more)
			return -1;
		t->data = more;
		t->cap = cap;
	}
	memcpy(t->data + t->len, buffer, size);
	t->len += size;
	t->data[t->len] = 0;
	return 0;
}

/* Takes over line; NULL stands for a failed json_pack. */
static int put_line(struct text *t, json_t *line)
{
	if (!line)
		return -LE_INVAL; /* a name that is not UTF-8 */
	int rc = json_dump_callback(line, append, t, JSON_COMPACT);
	json_decref(line);
	if (rc == 0)
		rc = append("\n", 1, t);
	return rc ? -LE_NOMEM : 0;
}

static json_t *chunk_sums(const struct manifest *m, const struct manifest_file *f)
{
	json_t *list = json_array();
	uint64_t per = MANIFEST_CHUNK / f->block, blocks = manifest_file_blocks(f);
	for (uint64_t b = 0; b < blocks; b += per) {
		uint64_t n = blocks - b < per ? blocks - b : per;
		char hex[17];
		snprintf(hex, sizeof(hex), "%016llx",
			 (unsigned long long)checksum64(m->sums + f->first_sum + b,
							n * sizeof(uint64_t)));
		if (json_array_append_new(list, json_string(hex)) < 0) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

static json_t *head_line(const struct manifest *m)
{
	char cluster[UUID_TEXT_SIZE];
	json_t *o = json_pack("{s:s, s:i, s:s, s:i, s:s, s:s, s:s}", "leat", "dataset", "v", 1,
			      "hash", "xxh3-64", "chunk", MANIFEST_CHUNK, "name", m->name,
			      "version", m->version, "source", m->source);
	uuid_format(&m->cluster, cluster);
	if (o && !uuid_is_zero(&m->cluster) &&
	    json_object_set_new(o, "cluster", json_string(cluster)) < 0) {
		json_decref(o);
		return NULL;
	}
	return o;
}

int manifest_encode(const struct manifest *m, char **ret_text, size_t *ret_len)
{
	struct text t = {0};
	int rc = put_line(&t, head_line(m));
	for (uint32_t i = 0; i < m->n_files && rc == 0; i++) {
		const struct manifest_file *f = &m->files[i];
		rc = put_line(&t,
			      json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "path", f->path,
					"size", (json_int_t)f->size, "block", (json_int_t)f->block,
					"mode", (json_int_t)f->mode, "mtime",
					(json_int_t)f->mtime_ns, "ino", (json_int_t)f->ino, "ver",
					(json_int_t)f->ver, "chunks", chunk_sums(m, f)));
	}
	if (rc == 0)
		rc = put_line(&t, json_pack("{s:b, s:I, s:I, s:s}", "end", 1, "files",
					    (json_int_t)m->n_files, "bytes", (json_int_t)m->bytes,
					    "id", m->id));
	if (rc < 0) {
		free(t.data);
		return rc;
	}
	*ret_text = t.data;
	*ret_len = t.len;
	return 0;
}

int manifest_encode_sums(const struct manifest *m, void **ret_data, size_t *ret_len)
{
	uint64_t magic = SUMS_MAGIC;
	size_t len = sizeof(magic) + m->n_sums * sizeof(uint64_t);
	char *data = malloc(len);
	if (!data)
		return -LE_NOMEM;
	memcpy(data, &magic, sizeof(magic));
	if (m->n_sums)
		memcpy(data + sizeof(magic), m->sums, m->n_sums * sizeof(uint64_t));
	*ret_data = data;
	*ret_len = len;
	return 0;
}

/* ---- reading ---- */

struct parse {
	struct manifest *m;
	const uint8_t *sums; /* behind the magic */
	uint64_t n_sums;
	uint64_t line;
	struct detail *d;
};

static int bad(const struct parse *p, const char *what)
{
	return detail_set(p->d, -LE_CORRUPT, "manifest", p->line, "line %llu: %s",
			  (unsigned long long)p->line, what);
}

static bool get_u64(const json_t *o, const char *key, uint64_t *ret_value)
{
	const json_t *v = json_object_get(o, key);
	if (!json_is_integer(v) || json_integer_value(v) < 0)
		return false;
	*ret_value = (uint64_t)json_integer_value(v);
	return true;
}

/* A string without NUL, shorter than size. */
static bool get_string(const json_t *o, const char *key, char *ret_s, size_t size)
{
	const json_t *v = json_object_get(o, key);
	if (!json_is_string(v) || json_string_length(v) >= size ||
	    strlen(json_string_value(v)) != json_string_length(v))
		return false;
	memcpy(ret_s, json_string_value(v), json_string_length(v) + 1);
	return true;
}

static int take_head(struct parse *p, const json_t *o)
{
	char leat[16], hash[16], cluster[UUID_TEXT_SIZE];
	uint64_t v, chunk;
	struct manifest *m = p->m;
	if (!get_string(o, "leat", leat, sizeof(leat)) || strcmp(leat, "dataset") != 0)
		return bad(p, "not a Leat data set");
	if (!get_u64(o, "v", &v) || v != 1 || !get_string(o, "hash", hash, sizeof(hash)) ||
	    strcmp(hash, "xxh3-64") != 0 || !get_u64(o, "chunk", &chunk) || chunk != MANIFEST_CHUNK)
		return bad(p, "a kind of manifest that this version does not know");
	if (!get_string(o, "name", m->name, sizeof(m->name)) ||
	    !get_string(o, "version", m->version, sizeof(m->version)) ||
	    !get_string(o, "source", m->source, sizeof(m->source)))
		return bad(p, "bad header");
	/* Manifests of former versions do not say it. */
	if (json_object_get(o, "cluster") &&
	    (!get_string(o, "cluster", cluster, sizeof(cluster)) ||
	     uuid_parse(cluster, &m->cluster) < 0))
		return bad(p, "bad name of a cluster");
	return 0;
}

static bool parse_hex(const json_t *v, uint64_t *ret_value)
{
	const char *s = json_string_value(v);
	if (!s || json_string_length(v) != 16 || strspn(s, "0123456789abcdef") != 16)
		return false;
	*ret_value = strtoull(s, NULL, 16);
	return true;
}

/* The file's block checksums out of sums, confirmed by its chunks' checksums. */
static int take_sums(struct parse *p, const struct manifest_file *f, const json_t *chunks)
{
	uint64_t blocks = manifest_file_blocks(f), per = MANIFEST_CHUNK / f->block;
	if (!json_is_array(chunks) || json_array_size(chunks) != manifest_file_chunks(f))
		return bad(p, "wrong number of chunks");
	if (blocks)
		memcpy(p->m->sums + f->first_sum, p->sums + f->first_sum * 8, blocks * 8);
	for (uint64_t b = 0; b < blocks; b += per) {
		uint64_t want, n = blocks - b < per ? blocks - b : per;
		if (!parse_hex(json_array_get(chunks, b / per), &want))
			return bad(p, "bad checksum");
		if (checksum64(p->m->sums + f->first_sum + b, n * 8) != want)
			return bad(p, "the block checksums do not match");
	}
	return 0;
}

static int take_file(struct parse *p, const json_t *o)
{
	char path[4096];
	uint64_t block, mode;
	struct vol_stat st = {0};
	const json_t *mtime = json_object_get(o, "mtime");
	if (!get_string(o, "path", path, sizeof(path)) || !manifest_path_is_safe(path))
		return bad(p, "bad path");
	if (!get_u64(o, "size", &st.size) || !get_u64(o, "block", &block) ||
	    !get_u64(o, "mode", &mode) || !get_u64(o, "ino", &st.ino) ||
	    !get_u64(o, "ver", &st.ver) || !json_is_integer(mtime) || block < MANIFEST_BLOCK_MIN ||
	    block > MANIFEST_CHUNK || (block & (block - 1)) || mode > 07777)
		return bad(p, "bad file");
	st.mtime_ns = json_integer_value(mtime);
	st.mode = (uint32_t)mode;
	/* Before anything of that size is allocated. */
	if (st.size / block > p->n_sums - p->m->n_sums ||
	    (st.size + block - 1) / block > p->n_sums - p->m->n_sums)
		return bad(p, "more blocks than checksums");
	int rc = manifest_add(p->m, path, &st, (uint32_t)block);
	if (rc == -LE_NOMEM)
		return rc;
	if (rc < 0)
		return bad(p, "not in order of the paths");
	return take_sums(p, &p->m->files[p->m->n_files - 1], json_object_get(o, "chunks"));
}

static int take_end(struct parse *p, const json_t *o)
{
	char id[MANIFEST_ID_SIZE];
	uint64_t files, bytes;
	if (!get_u64(o, "files", &files) || !get_u64(o, "bytes", &bytes) ||
	    !get_string(o, "id", id, sizeof(id)))
		return bad(p, "bad end");
	if (files != p->m->n_files || bytes != p->m->bytes || p->n_sums != p->m->n_sums)
		return bad(p, "files are missing");
	manifest_finish(p->m);
	return strcmp(id, p->m->id) == 0 ? 0 : bad(p, "the id does not match the content");
}

/* The parser calls itself for each level, up to 2048 of them, and a fiber's stack is small. */
static bool too_deep(const char *line, size_t len)
{
	int depth = 0;
	bool in_string = false;
	for (size_t i = 0; i < len; i++) {
		if (in_string && line[i] == '\\')
			i++;
		else if (line[i] == '"')
			in_string = !in_string;
		else if (!in_string && (line[i] == '[' || line[i] == '{') && ++depth > DEPTH_MAX)
			return true;
		else if (!in_string && (line[i] == ']' || line[i] == '}'))
			depth--;
	}
	return false;
}

static int take_line(struct parse *p, const char *line, size_t len, bool *ret_end)
{
	if (too_deep(line, len))
		return bad(p, "nested too deep");
	json_t *o = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
	int rc;
	if (!json_is_object(o))
		rc = bad(p, "not a JSON object");
	else if (p->line == 1)
		rc = take_head(p, o);
	else if (json_object_get(o, "end")) {
		rc = take_end(p, o);
		*ret_end = true;
	} else
		rc = take_file(p, o);
	json_decref(o);
	return rc;
}

static int take_lines(struct parse *p, const char *text, size_t len)
{
	bool end = false;
	for (size_t at = 0; at < len;) {
		const char *nl = memchr(text + at, '\n', len - at);
		p->line++;
		if (!nl || end)
			return bad(p, end ? "something behind the end" : "cut off");
		size_t n = (size_t)(nl - text) - at;
		if (n > MANIFEST_LINE_MAX)
			return bad(p, "line too long");
		TRY(take_line(p, text + at, n, &end));
		at += n + 1;
	}
	return end ? 0 : bad(p, "no end");
}

int manifest_decode(const char *text, size_t len, const void *sums, size_t sums_len,
		    struct manifest **ret_manifest, struct detail *d)
{
	struct parse p = {.d = d};
	uint64_t magic;
	if (sums_len < 8 || sums_len % 8 != 0 || (memcpy(&magic, sums, 8), magic != SUMS_MAGIC))
		return detail_set(d, -LE_CORRUPT, "sums", 0, "not a file of checksums");
	p.sums = (const uint8_t *)sums + 8;
	p.n_sums = sums_len / 8 - 1;
	TRY(manifest_create(&p.m));
	int rc = take_lines(&p, text, len);
	if (rc < 0)
		manifest_destroy(p.m);
	else
		*ret_manifest = p.m;
	return rc;
}

static int read_part(struct vol *v, const char *dir, const char *name, char **ret_data,
		     size_t *ret_len, struct detail *d)
{
	char path[4096];
	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
		return -LE_NAMETOOLONG;
	int rc = vol_read_file(v, path, FILE_SIZE_MAX, ret_data, ret_len);
	return rc < 0 ? detail_set(d, rc, path, UINT64_MAX, "cannot read it: %s", status_text(rc))
		      : 0;
}

int manifest_load(struct vol *v, const char *dir, struct manifest **ret_manifest, struct detail *d)
{
	char *text = NULL, *sums = NULL;
	size_t len, sums_len;
	int rc = read_part(v, dir, "manifest", &text, &len, d);
	if (rc == 0)
		rc = read_part(v, dir, "sums", &sums, &sums_len, d);
	if (rc == 0)
		rc = manifest_decode(text, len, sums, sums_len, ret_manifest, d);
	free(text);
	free(sums);
	return rc;
}

static int write_part(struct vol *v, const char *dir, const char *name, const void *data,
		      size_t len)
{
	char path[4096];
	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
		return -LE_NAMETOOLONG;
	return vol_write_file(v, path, data, len);
}

int manifest_store(struct vol *v, const char *dir, const struct manifest *m)
{
	char *text;
	void *sums;
	size_t len, sums_len;
	TRY(manifest_encode(m, &text, &len));
	int rc = manifest_encode_sums(m, &sums, &sums_len);
	if (rc == 0) {
		rc = write_part(v, dir, "sums", sums, sums_len);
		free(sums);
	}
	if (rc == 0)
		rc = write_part(v, dir, "manifest", text, len);
	free(text);
	return rc;
}
