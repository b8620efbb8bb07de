/* SPDX-License-Identifier: Apache-2.0 */
#include "client/dataset/catalog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/dataset/manifest_file.h"
#include "common/base/assert.h"
#include "common/rt/env.h"
#include "common/rt/loop.h"

#define INDEX_SIZE_MAX ((uint64_t)64 << 30)
#define MKDIR_TRIES    3
/* The line in a name's file: "ID WORD\n". */
#define WORD_SIZE 17
#define LINE_LEN  (MANIFEST_ID_SIZE + WORD_SIZE)

static int alias_path(const char *catalog, const char *alias, char ret_path[4096])
{
	char name[MANIFEST_NAME_MAX + 1], version[MANIFEST_NAME_MAX + 1];
	TRY(manifest_parse_alias(alias, name, version));
	int n = snprintf(ret_path, 4096, "%s/%s@%s", catalog, name, version);
	return n >= 4096 ? -LE_NAMETOOLONG : 0;
}

/* word NULL: the parent of all folders with this content. */
static int folder_of(const char *catalog, const char *id, const char *word, char ret_dir[4096])
{
	int n = snprintf(ret_dir, 4096, "%s/by-id/%s%s%s", catalog, id, word ? "/" : "",
			 word ? word : "");
	return n >= 4096 ? -LE_NAMETOOLONG : 0;
}

static bool is_hex(const char *text, size_t len)
{
	return strspn(text, "0123456789abcdef") == len;
}

static int read_name(struct vol *v, const char *catalog, const char *alias,
		     char ret_id[MANIFEST_ID_SIZE], char ret_word[WORD_SIZE])
{
	char path[4096], *text;
	size_t len;
	TRY(alias_path(catalog, alias, path));
	TRY(vol_read_file(v, path, 4096, &text, &len));
	bool good = len == LINE_LEN && is_hex(text, MANIFEST_ID_SIZE - 1) &&
		    text[MANIFEST_ID_SIZE - 1] == ' ' &&
		    is_hex(text + MANIFEST_ID_SIZE, WORD_SIZE - 1) && text[len - 1] == '\n';
	if (good) {
		snprintf(ret_id, MANIFEST_ID_SIZE, "%s", text);
		snprintf(ret_word, WORD_SIZE, "%s", text + MANIFEST_ID_SIZE);
	}
	free(text);
	return good ? 0 : -LE_CORRUPT;
}

int catalog_lookup(struct vol *v, const char *catalog, const char *alias,
		   char ret_id[MANIFEST_ID_SIZE])
{
	char word[WORD_SIZE];
	return read_name(v, catalog, alias, ret_id, word);
}

int catalog_find(struct vol *v, const char *catalog, const char *alias,
		 char ret_id[MANIFEST_ID_SIZE], char ret_dir[4096])
{
	char word[WORD_SIZE];
	TRY(read_name(v, catalog, alias, ret_id, word));
	return folder_of(catalog, ret_id, word, ret_dir);
}

int catalog_made(struct vol *v, const char *catalog, const char *alias, int64_t *ret_ns,
		 uint32_t *ret_uid)
{
	char path[4096];
	struct vol_stat st;
	TRY(alias_path(catalog, alias, path));
	TRY(vol_stat(v, path, &st));
	*ret_ns = st.mtime_ns; /* the file is written once */
	*ret_uid = st.uid;
	return 0;
}

/* Removes a folder that no name leads to. */
static int remove_folder(struct vol *v, const char *dir)
{
	static const char *const parts[] = {"manifest", "sums", "samples", "sealed"};
	char part[4096];
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		if (snprintf(part, sizeof(part), "%s/%s", dir, parts[i]) >= (int)sizeof(part))
			return -LE_NAMETOOLONG;
		int rc = v->ops->unlink(v, part);
		if (rc < 0 && rc != -LE_NOENT)
			return rc;
	}
	TRY(vol_remove_tmp(v, dir));
	return v->ops->rmdir(v, dir);
}

/* Removes a folder as a whole; 0 if it does not exist. */
static int take_folder(struct vol *v, const char *catalog, const char *id, const char *word)
{
	char dir[4096], all[4096], gone[4096];
	TRY(folder_of(catalog, id, word, dir));
	TRY(folder_of(catalog, id, NULL, all));
	TRY(vol_tmp_name(all, gone));
	int rc = v->ops->rename(v, dir, gone);
	if (rc == 0)
		rc = remove_folder(v, gone);
	if (rc < 0)
		return rc == -LE_NOENT ? 0 : rc;
	rc = v->ops->rmdir(v, all);
	(void)rc; /* other data sets may have this content */
	return 0;
}

/* Sets mode and access list and keeps the owner; for mode 0700 also the group. */
static int set_rights(struct vol *v, const char *path, const struct rights *r)
{
	struct rights now = *r;
	struct vol_stat st;
	TRY(vol_stat(v, path, &st));
	now.uid = st.uid;
	if (r->mode == 0700)
		now.gid = st.gid;
	return v->ops->set_rights(v, path, &now, st.mtime_ns);
}

/* Finds which users may read every file, list every directory and reach them: they may read the
 * manifest. Considered are owner and group of the source, and all users. */
static int find_readers(struct vol *v, const struct manifest *m, struct audience *ret_readers)
{
	struct acl_pool pool = {0};
	struct rights *above;
	char real[4096];
	uint32_t n = 0;
	*ret_readers = audience_of(m->dirs[0].rights.uid, m->dirs[0].rights.gid);
	TRY(vol_real_path(v, m->source, real));
	int rc = vol_ancestors(v, real, &pool, &above, &n);
	for (uint32_t i = 0; i < n; i++)
		audience_add(ret_readers, &above[i], 1);
	if (rc == 0)
		free(above);
	acl_pool_fini(&pool);
	for (uint32_t i = 0; i < m->n_dirs; i++)
		audience_add(ret_readers, &m->dirs[i].rights, 5);
	for (uint32_t i = 0; i < m->n_files; i++)
		audience_add(ret_readers, &m->files[i].rights, 4);
	return rc;
}

/* Sets the rights of the folder last; until then only its owner has access. */
static int open_to_readers(struct vol *v, const char *dir, const struct manifest *m)
{
	static const char *const parts[] = {"manifest", "sums", "samples"};
	struct acl_pool pool = {0};
	struct audience readers;
	struct rights r;
	char path[4096];
	struct vol_stat st;
	TRY(vol_stat(v, dir, &st));
	TRY(find_readers(v, m, &readers));
	int rc = audience_rights(&readers, st.uid, 4, &pool, &r);
	for (size_t i = 0; i < ARRAY_SIZE(parts) && rc == 0; i++) {
		if (snprintf(path, sizeof(path), "%s/%s", dir, parts[i]) >= (int)sizeof(path))
			rc = -LE_NAMETOOLONG;
		if (rc == 0)
			rc = set_rights(v, path, &r);
		if (rc == -LE_NOENT)
			rc = 0; /* there is no sample index */
	}
	if (rc == 0)
		rc = audience_rights(&readers, st.uid, 5, &pool, &r);
	if (rc == 0)
		rc = set_rights(v, dir, &r);
	acl_pool_fini(&pool);
	return rc;
}

static int make_folder(struct vol *v, const char *dir, const struct manifest *m,
		       const struct sample_index *index)
{
	int rc = vol_mkdirs(v, dir);
	/* Another process has just removed the parent, with the last other folder of this
	 * content. */
	for (int i = 0; rc == -LE_NOENT && i < MKDIR_TRIES; i++)
		rc = vol_mkdirs(v, dir);
	TRY(rc);
	TRY(set_rights(v, dir, &(struct rights){.mode = 0700}));
	TRY(manifest_store(v, dir, m));
	if (index)
		TRY(samples_store(v, dir, index));
	return open_to_readers(v, dir, m);
}

int catalog_add(struct vol *v, const char *catalog, const struct manifest *m,
		const struct sample_index *index)
{
	char alias[2 * MANIFEST_NAME_MAX + 4], path[4096], dir[4096], all[4096];
	char word[WORD_SIZE], line[LINE_LEN + 1];
	struct vol_stat st;
	snprintf(alias, sizeof(alias), "%s@%s", m->name, m->version);
	snprintf(word, sizeof(word), "%016llx",
		 (unsigned long long)env_random_u64(loop_env(loop_self())));
	TRY(alias_path(catalog, alias, path));
	TRY(folder_of(catalog, m->id, word, dir));
	TRY(folder_of(catalog, m->id, NULL, all));
	if (vol_stat(v, path, &st) == 0)
		return -LE_EXIST;
	int rc = make_folder(v, dir, m, index);
	if (rc == 0)
		rc = v->ops->syncdir(v, all);
	snprintf(line, sizeof(line), "%s %s\n", m->id, word);
	if (rc == 0) {
		rc = vol_write_new(v, path, line, LINE_LEN);
		/* After any other failure the name may exist without being durable, so its
		 * folder must stay. */
		if (rc != -LE_EXIST)
			return rc;
	}
	if (rc < 0) {
		int gone = take_folder(v, catalog, m->id, word);
		(void)gone; /* no name leads to the folder */
	}
	return rc;
}

int catalog_mark_sealed(struct vol *v, const char *dir)
{
	char path[4200];
	snprintf(path, sizeof(path), "%.4096s/sealed", dir);
	if (strlen(path) >= 4096)
		return -LE_NAMETOOLONG;
	int rc = vol_write_new(v, path, "sealed\n", 7);
	return rc == -LE_EXIST ? 0 : rc;
}

bool catalog_is_sealed(struct vol *v, const char *dir)
{
	char path[4200];
	struct vol_stat st;
	snprintf(path, sizeof(path), "%.4096s/sealed", dir);
	return strlen(path) < 4096 && vol_stat(v, path, &st) == 0;
}

struct names {
	char **names;
	size_t n, cap;
};

static int note_name(void *arg, const struct vol_entry *e)
{
	struct names *l = arg;
	char name[MANIFEST_NAME_MAX + 1], version[MANIFEST_NAME_MAX + 1];
	if (!strchr(e->name, '@') || manifest_parse_alias(e->name, name, version) < 0)
		return 0;
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 64;
		char **more = realloc(l->names, cap * sizeof(*more));
		if (!more)
			return -LE_NOMEM;
		l->names = more;
		l->cap = cap;
	}
	l->names[l->n] = strdup(e->name);
	return l->names[l->n] ? (l->n++, 0) : -LE_NOMEM;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int catalog_list(struct vol *v, const char *catalog, int (*each)(void *arg, const char *alias),
		 void *arg)
{
	struct names l = {0};
	int rc = v->ops->list(v, catalog, note_name, &l);
	if (l.n)
		qsort(l.names, l.n, sizeof(*l.names), by_name);
	for (size_t i = 0; i < l.n; i++) {
		if (rc == 0)
			rc = each(arg, l.names[i]);
		free(l.names[i]);
	}
	free(l.names);
	return rc == -LE_NOENT ? 0 : rc;
}

int catalog_remove(struct vol *v, const char *catalog, const char *alias)
{
	char path[4096], id[MANIFEST_ID_SIZE], word[WORD_SIZE];
	TRY(alias_path(catalog, alias, path));
	int rc = read_name(v, catalog, alias, id, word);
	/* A damaged name leads to no folder. */
	if (rc != -LE_CORRUPT) {
		TRY(rc);
		TRY(take_folder(v, catalog, id, word));
	}
	return v->ops->unlink(v, path);
}

int samples_load(struct vol *v, const char *dir, struct sample_index **ret_index)
{
	char path[4096], *data;
	size_t len;
	snprintf(path, sizeof(path), "%.4000s/samples", dir);
	TRY(vol_read_file(v, path, INDEX_SIZE_MAX, &data, &len));
	int rc = index_decode(data, len, ret_index);
	free(data);
	return rc;
}

int samples_store(struct vol *v, const char *dir, const struct sample_index *x)
{
	char path[4096];
	void *data;
	size_t len;
	snprintf(path, sizeof(path), "%.4000s/samples", dir);
	TRY(index_encode(x, &data, &len));
	int rc = vol_write_file(v, path, data, len);
	free(data);
	return rc;
}

static int read_head(struct vol *v, const char *dir, uint8_t ret_head[INDEX_HEAD_SIZE])
{
	char path[4096];
	struct vol_file *f;
	snprintf(path, sizeof(path), "%.4000s/samples", dir);
	TRY(vol_open(v, path, &f));
	int rc = vol_pread_all(f, ret_head, INDEX_HEAD_SIZE, 0);
	vol_close(f);
	return rc;
}

int samples_compare(struct vol *v, const char *dir, struct vol *local, const char *copy)
{
	uint8_t head[INDEX_HEAD_SIZE], ours[INDEX_HEAD_SIZE];
	if (read_head(local, copy, ours) < 0)
		return 0;
	int rc = read_head(v, dir, head);
	/* samples_load reports the damage better. */
	if (rc == -LE_NOENT || rc == -LE_NODATA || rc == -LE_CORRUPT)
		return 0;
	return rc < 0 ? rc : memcmp(head, ours, INDEX_HEAD_SIZE) == 0;
}

/* The file beside a copy that records the head of a name's samples, and the catalog that has the
 * name. */
static int note_path(const char *copy, const char *alias, char ret_path[4096])
{
	char named[4096];
	snprintf(named, sizeof(named), "%.4000s/named", copy);
	return alias_path(named, alias, ret_path);
}

int samples_named(struct vol *local, const char *copy, const char *catalog, const char *alias)
{
	uint8_t ours[INDEX_HEAD_SIZE];
	char path[4096], *note;
	size_t len, n = strlen(catalog);
	TRY(note_path(copy, alias, path));
	TRY(vol_read_file(local, path, INDEX_HEAD_SIZE + 4096, &note, &len));
	int rc = -LE_NOENT;
	if (len == INDEX_HEAD_SIZE + n && memcmp(note + INDEX_HEAD_SIZE, catalog, n) == 0)
		rc = read_head(local, copy, ours) == 0 && memcmp(note, ours, sizeof(ours)) == 0;
	free(note);
	return rc;
}

int samples_note_name(struct vol *local, const char *copy, const char *catalog, const char *alias)
{
	char path[4096], note[INDEX_HEAD_SIZE + 4096];
	size_t n = strlen(catalog);
	if (samples_named(local, copy, catalog, alias) > 0)
		return 0;
	TRY(note_path(copy, alias, path));
	if (n > sizeof(note) - INDEX_HEAD_SIZE)
		return -LE_NAMETOOLONG;
	TRY(read_head(local, copy, (uint8_t *)note));
	memcpy(note + INDEX_HEAD_SIZE, catalog, n);
	*strrchr(path, '/') = 0;
	TRY(vol_mkdirs(local, path));
	TRY(note_path(copy, alias, path));
	return vol_write_file(local, path, note, INDEX_HEAD_SIZE + n);
}
