/* SPDX-License-Identifier: Apache-2.0 */
/* The two files of a manifest: JSON Lines, written with jansson, and the blocks' checksums. */
#include "client/dataset/manifest_file.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/dataset/manifest.h"
#include "common/base/checksum.h"
#include "common/base/names.h"

#define SUMS_MAGIC    0x314d55535441454cULL /* "LEATSUM1" */
#define FILE_SIZE_MAX ((uint64_t)16 << 30)
#define DEPTH_MAX     8 /* of JSON; a manifest is 3 deep */

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

/* Takes over line. line NULL or rc < 0: making it has failed. */
static int put_line(struct text *t, json_t *line, int rc)
{
	if (!line)
		return -LE_NOMEM;
	if (rc == 0 && json_dump_callback(line, append, t, JSON_COMPACT) != 0)
		rc = -LE_NOMEM;
	json_decref(line);
	if (rc == 0 && append("\n", 1, t) != 0)
		rc = -LE_NOMEM;
	return rc;
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

static int set_new(json_t *o, const char *key, json_t *value)
{
	return json_object_set_new(o, key, value) ? -LE_NOMEM : 0;
}

static int put_head(struct text *t, const struct manifest *m)
{
	char cluster[UUID_TEXT_SIZE];
	json_t *o = json_pack("{s:s, s:i, s:s, s:i, s:s, s:s}", "leat", "dataset", "v",
			      MANIFEST_VERSION, "hash", "xxh3-64", "chunk", MANIFEST_CHUNK, "name",
			      m->name, "version", m->version);
	int rc = o ? name_json_set(o, "source", m->source) : 0;
	uuid_format(&m->cluster, cluster);
	if (o && rc == 0 && !uuid_is_zero(&m->cluster))
		rc = set_new(o, "cluster", json_string(cluster));
	if (o && rc == 0 && m->host[0])
		rc = name_json_set(o, "host", m->host);
	return put_line(t, o, rc);
}

static int set_rights(json_t *o, const struct rights *r)
{
	return r->acl_len ? set_new(o, "acl", bytes_json(r->acl, r->acl_len)) : 0;
}

static int set_born(json_t *o, int64_t born_ns)
{
	return born_ns ? set_new(o, "born", json_integer((json_int_t)born_ns)) : 0;
}

static int put_file(struct text *t, const struct manifest *m, const struct manifest_file *f)
{
	json_t *o = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "size",
			      (json_int_t)f->size, "block", (json_int_t)f->block, "mode",
			      (json_int_t)f->rights.mode, "uid", (json_int_t)f->rights.uid, "gid",
			      (json_int_t)f->rights.gid, "mtime", (json_int_t)f->mtime_ns, "ino",
			      (json_int_t)f->ino, "ver", (json_int_t)f->ver, "chunks",
			      chunk_sums(m, f));
	int rc = o ? name_json_set(o, "path", f->path) : 0;
	if (o && rc == 0 && f->from)
		rc = name_json_set(o, "from", f->from);
	if (o && rc == 0)
		rc = set_rights(o, &f->rights);
	if (o && rc == 0)
		rc = set_born(o, f->born_ns);
	return put_line(t, o, rc);
}

static int put_dir(struct text *t, const struct manifest_dir *d)
{
	json_t *o = json_pack("{s:I, s:I, s:I, s:I, s:I}", "mode", (json_int_t)d->rights.mode,
			      "uid", (json_int_t)d->rights.uid, "gid", (json_int_t)d->rights.gid,
			      "mtime", (json_int_t)d->mtime_ns, "ino", (json_int_t)d->ino);
	int rc = o ? name_json_set(o, "dir", d->path) : 0;
	if (o && rc == 0)
		rc = set_rights(o, &d->rights);
	if (o && rc == 0)
		rc = set_born(o, d->born_ns);
	return put_line(t, o, rc);
}

static int put_link(struct text *t, const struct manifest_link *l)
{
	json_t *o = json_pack("{s:I, s:I, s:I}", "uid", (json_int_t)l->uid, "gid",
			      (json_int_t)l->gid, "mtime", (json_int_t)l->mtime_ns);
	int rc = o ? name_json_set(o, "link", l->path) : 0;
	if (o && rc == 0)
		rc = name_json_set(o, "target", l->target);
	return put_line(t, o, rc);
}

/* Writes all rows, in the order of their paths. */
static int put_rows(struct text *t, const struct manifest *m)
{
	uint32_t f = 0, d = 0, l = 0;
	int rc = 0;
	while (rc == 0) {
		const char *file = f < m->n_files ? m->files[f].path : NULL;
		const char *dir = d < m->n_dirs ? m->dirs[d].path : NULL;
		const char *link = l < m->n_links ? m->links[l].path : NULL;
		if (dir && (!file || strcmp(dir, file) < 0) && (!link || strcmp(dir, link) < 0))
			rc = put_dir(t, &m->dirs[d++]);
		else if (file && (!link || strcmp(file, link) < 0))
			rc = put_file(t, m, &m->files[f++]);
		else if (link)
			rc = put_link(t, &m->links[l++]);
		else
			break;
	}
	return rc;
}

int manifest_encode(const struct manifest *m, char **ret_text, size_t *ret_len)
{
	struct text t = {0};
	int rc = put_head(&t, m);
	if (rc == 0)
		rc = put_rows(&t, m);
	if (rc == 0)
		rc = put_line(&t,
			      json_pack("{s:b, s:I, s:I, s:I, s:I, s:s}", "end", 1, "files",
					(json_int_t)m->n_files, "dirs", (json_int_t)m->n_dirs,
					"links", (json_int_t)m->n_links, "bytes",
					(json_int_t)m->bytes, "id", m->id),
			      0);
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
	const uint8_t *sums; /* after the magic */
	uint64_t n_sums;
	uint64_t line;
	struct detail *d;
	char path[4096], last[4096]; /* of the present row, and of the previous one */
	char other[4096];            /* `from` of a file, target of a link */
	uint8_t acl[RIGHTS_ACL_MAX];
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

/* Reads a string without NUL, shorter than size. */
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
	if (get_u64(o, "v", &v) && v != MANIFEST_VERSION)
		return detail_set(p->d, -LE_NOTSUP, "manifest", 1,
				  "another release of Leat has made this data set (manifest %llu, "
				  "this one knows %d): make it anew with leat dataset create",
				  (unsigned long long)v, MANIFEST_VERSION);
	if (!get_u64(o, "v", &v) || !get_string(o, "hash", hash, sizeof(hash)) ||
	    strcmp(hash, "xxh3-64") != 0 || !get_u64(o, "chunk", &chunk) || chunk != MANIFEST_CHUNK)
		return bad(p, "a kind of manifest that this version does not support");
	if (!get_string(o, "name", m->name, sizeof(m->name)) ||
	    !get_string(o, "version", m->version, sizeof(m->version)) ||
	    !name_json_get(o, "source", m->source, sizeof(m->source)))
		return bad(p, "bad header");
	if (json_object_get(o, "cluster") &&
	    (!get_string(o, "cluster", cluster, sizeof(cluster)) ||
	     uuid_parse(cluster, &m->cluster) < 0))
		return bad(p, "bad name of a cluster");
	if (json_object_get(o, "host") && !name_json_get(o, "host", m->host, sizeof(m->host)))
		return bad(p, "bad name of a host");
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

/* Copies the file's block checksums from sums, verified by its chunks' checksums. */
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

/* Converts the status of adding a row. */
static int added(const struct parse *p, int rc, const char *what)
{
	return rc == 0 || rc == -LE_NOMEM ? rc : bad(p, what);
}

/* Reads the row's path, which must sort after the last one and be in a directory that has a row. */
static int take_path(struct parse *p, const json_t *o, const char *key)
{
	if (!name_json_get(o, key, p->path, sizeof(p->path)))
		return bad(p, "bad path");
	bool first = p->m->n_dirs == 0;
	if (first != (p->path[0] == 0 && strcmp(key, "dir") == 0))
		return bad(p, "the source itself is not its first row");
	if (first)
		return 0;
	if (!manifest_path_is_safe(p->path))
		return bad(p, "bad path");
	if (strcmp(p->path, p->last) <= 0)
		return bad(p, "not in order of the paths");
	memcpy(p->last, p->path, strlen(p->path) + 1);
	char *slash = strrchr(p->path, '/');
	if (!slash)
		return 0;
	*slash = 0;
	bool there = manifest_find_dir(p->m, p->path) >= 0;
	*slash = '/';
	return there ? 0 : bad(p, "its directory is missing");
}

static bool get_u32(const json_t *o, const char *key, uint32_t *ret_value)
{
	uint64_t v;
	if (!get_u64(o, key, &v) || v > UINT32_MAX)
		return false;
	*ret_value = (uint32_t)v;
	return true;
}

static bool get_time(const json_t *o, const char *key, int64_t *ret_ns)
{
	const json_t *time = json_object_get(o, key);
	*ret_ns = json_integer_value(time);
	return json_is_integer(time);
}

/* Reads the identity of a file or directory at the source. */
static bool get_identity(const json_t *o, struct vol_stat *st)
{
	return get_u64(o, "ino", &st->ino) &&
	       (!json_object_get(o, "born") || get_time(o, "born", &st->born_ns));
}

/* Reads rights; p owns the access list. */
static bool get_rights(struct parse *p, const json_t *o, struct rights *ret_rights)
{
	const json_t *acl = json_object_get(o, "acl");
	struct rights r = {0};
	size_t len = 0;
	if (!get_u32(o, "mode", &r.mode) || r.mode > 07777 || !get_u32(o, "uid", &r.uid) ||
	    !get_u32(o, "gid", &r.gid))
		return false;
	if (acl && (!bytes_json_get(acl, p->acl, sizeof(p->acl), &len) ||
		    !rights_acl_is_valid(p->acl, len)))
		return false;
	r.acl = len ? p->acl : NULL;
	r.acl_len = (uint32_t)len;
	*ret_rights = r;
	return true;
}

static int take_file(struct parse *p, const json_t *o)
{
	uint64_t block;
	struct vol_stat st = {0};
	struct rights r;
	bool from = json_object_get(o, "from") != NULL;
	TRY(take_path(p, o, "path"));
	if (!get_u64(o, "size", &st.size) || !get_u64(o, "block", &block) ||
	    !get_identity(o, &st) || !get_u64(o, "ver", &st.ver) ||
	    !get_time(o, "mtime", &st.mtime_ns) || !get_rights(p, o, &r) ||
	    block < MANIFEST_BLOCK_MIN || block > MANIFEST_CHUNK || (block & (block - 1)))
		return bad(p, "bad file");
	if (from && !name_json_get(o, "from", p->other, sizeof(p->other)))
		return bad(p, "bad path of the file itself");
	/* Checked before memory of that size is allocated. */
	if (st.size / block > p->n_sums - p->m->n_sums ||
	    (st.size + block - 1) / block > p->n_sums - p->m->n_sums)
		return bad(p, "more blocks than checksums");
	int rc = manifest_add(p->m, p->path, &st, (uint32_t)block);
	if (rc == 0)
		rc = manifest_add_rights(p->m, &r, from ? p->other : NULL);
	TRY(added(p, rc, "bad file"));
	return take_sums(p, &p->m->files[p->m->n_files - 1], json_object_get(o, "chunks"));
}

static int take_dir(struct parse *p, const json_t *o)
{
	struct vol_stat st = {0};
	struct rights r;
	TRY(take_path(p, o, "dir"));
	if (!get_identity(o, &st) || !get_time(o, "mtime", &st.mtime_ns) || !get_rights(p, o, &r))
		return bad(p, "bad directory");
	return added(p, manifest_add_dir(p->m, p->path, &st, &r), "bad directory");
}

static int take_link(struct parse *p, const json_t *o)
{
	struct manifest_link l = {.path = p->path, .target = p->other};
	TRY(take_path(p, o, "link"));
	if (!name_json_get(o, "target", p->other, sizeof(p->other)) ||
	    !get_time(o, "mtime", &l.mtime_ns) || !get_u32(o, "uid", &l.uid) ||
	    !get_u32(o, "gid", &l.gid))
		return bad(p, "bad link");
	return added(p, manifest_add_link(p->m, &l), "bad link");
}

static int take_end(struct parse *p, const json_t *o)
{
	char id[MANIFEST_ID_SIZE];
	uint64_t files, dirs, links, bytes;
	if (!get_u64(o, "files", &files) || !get_u64(o, "dirs", &dirs) ||
	    !get_u64(o, "links", &links) || !get_u64(o, "bytes", &bytes) ||
	    !get_string(o, "id", id, sizeof(id)))
		return bad(p, "bad end");
	if (files != p->m->n_files || dirs != p->m->n_dirs || dirs == 0 ||
	    links != p->m->n_links || bytes != p->m->bytes || p->n_sums != p->m->n_sums)
		return bad(p, "files are missing");
	manifest_finish(p->m);
	return strcmp(id, p->m->id) == 0 ? 0 : bad(p, "the id does not match the content");
}

/* The parser recurses for each level, up to 2048, and a fiber's stack is small. */
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
	} else if (json_object_get(o, "dir")) {
		rc = take_dir(p, o);
	} else if (json_object_get(o, "link")) {
		rc = take_link(p, o);
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
	uint64_t magic;
	if (sums_len < 8 || sums_len % 8 != 0 || (memcpy(&magic, sums, 8), magic != SUMS_MAGIC))
		return detail_set(d, -LE_CORRUPT, "sums", 0, "not a file of checksums");
	struct parse *p = calloc(1, sizeof(*p));
	if (!p)
		return -LE_NOMEM;
	p->d = d;
	p->sums = (const uint8_t *)sums + 8;
	p->n_sums = sums_len / 8 - 1;
	int rc = manifest_create(&p->m);
	if (rc == 0)
		rc = take_lines(p, text, len);
	if (rc < 0)
		manifest_destroy(p->m);
	else
		*ret_manifest = p->m;
	free(p);
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
