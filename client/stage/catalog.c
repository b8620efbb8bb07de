#include "client/stage/catalog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"

#define INDEX_SIZE_MAX ((uint64_t)64 << 30)
#define MKDIR_TRIES    3

static int alias_path(const char *catalog, const char *alias, char ret_path[4096])
{
	char name[MANIFEST_NAME_MAX + 1], version[MANIFEST_NAME_MAX + 1];
	TRY(manifest_parse_alias(alias, name, version));
	int n = snprintf(ret_path, 4096, "%s/%s@%s", catalog, name, version);
	return n >= 4096 ? -LE_NAMETOOLONG : 0;
}

/* alias NULL: of all that have this content. */
static int folder_of(const char *catalog, const char *id, const char *alias, char ret_dir[4096])
{
	char name[MANIFEST_NAME_MAX + 1], version[MANIFEST_NAME_MAX + 1];
	int n = snprintf(ret_dir, 4096, "%s/by-id/%s", catalog, id);
	if (alias && n < 4096) {
		TRY(manifest_parse_alias(alias, name, version));
		n += snprintf(ret_dir + n, (size_t)(4096 - n), "/%s@%s", name, version);
	}
	return n >= 4096 ? -LE_NAMETOOLONG : 0;
}

int catalog_lookup(struct vol *v, const char *catalog, const char *alias,
		   char ret_id[MANIFEST_ID_SIZE])
{
	char path[4096], *text;
	size_t len;
	TRY(alias_path(catalog, alias, path));
	TRY(vol_read_file(v, path, 4096, &text, &len));
	bool good = len == MANIFEST_ID_SIZE && text[len - 1] == '\n' &&
		    strspn(text, "0123456789abcdef") == MANIFEST_ID_SIZE - 1;
	if (good) {
		memcpy(ret_id, text, MANIFEST_ID_SIZE - 1);
		ret_id[MANIFEST_ID_SIZE - 1] = 0;
	}
	free(text);
	return good ? 0 : -LE_CORRUPT;
}

int catalog_find(struct vol *v, const char *catalog, const char *alias,
		 char ret_id[MANIFEST_ID_SIZE], char ret_dir[4096])
{
	TRY(catalog_lookup(v, catalog, alias, ret_id));
	return folder_of(catalog, ret_id, alias, ret_dir);
}

/* One that nobody finds any more. */
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
	return v->ops->rmdir(v, dir);
}

/* As a whole; nothing if it is not there. */
static int take_folder(struct vol *v, const char *catalog, const char *id, const char *alias)
{
	char dir[4096], all[4096], gone[4096];
	TRY(folder_of(catalog, id, alias, dir));
	TRY(folder_of(catalog, id, NULL, all));
	TRY(vol_tmp_name(all, gone));
	int rc = v->ops->rename(v, dir, gone);
	if (rc == 0)
		rc = remove_folder(v, gone);
	if (rc < 0)
		return rc == -LE_NOENT ? 0 : rc;
	rc = v->ops->rmdir(v, all);
	(void)rc; /* others have this content too */
	return 0;
}

/* Nobody has given the name yet: what has its folder is what a crash has left, or somebody is about
 * to give it, and then what is in there is the same. */
static int put_folder(struct vol *v, const char *tmp, const char *dir)
{
	int rc = v->ops->rename_new(v, tmp, dir);
	if (rc != -LE_EXIST)
		return rc;
	TRY(v->ops->exchange(v, tmp, dir));
	return remove_folder(v, tmp);
}

int catalog_add(struct vol *v, const char *catalog, const struct manifest *m,
		const struct sample_index *index)
{
	char alias[2 * MANIFEST_NAME_MAX + 4], path[4096], dir[4096], all[4096], tmp[4096];
	char line[MANIFEST_ID_SIZE + 1];
	struct vol_stat st;
	snprintf(alias, sizeof(alias), "%s@%s", m->name, m->version);
	TRY(alias_path(catalog, alias, path));
	TRY(folder_of(catalog, m->id, alias, dir));
	TRY(folder_of(catalog, m->id, NULL, all));
	TRY(vol_tmp_name(all, tmp));
	if (vol_stat(v, path, &st) == 0)
		return -LE_EXIST;
	int rc = vol_mkdirs(v, tmp);
	/* The last other one of this content has just been removed. */
	for (int i = 0; rc == -LE_NOENT && i < MKDIR_TRIES; i++)
		rc = vol_mkdirs(v, tmp);
	TRY(rc);
	rc = manifest_store(v, tmp, m);
	if (rc == 0 && index)
		rc = samples_store(v, tmp, index);
	if (rc == 0)
		rc = put_folder(v, tmp, dir);
	if (rc == 0)
		rc = v->ops->syncdir(v, all);
	snprintf(line, sizeof(line), "%s\n", m->id);
	if (rc == 0)
		rc = vol_write_new(v, path, line, strlen(line));
	/* A folder that has got no name stays: somebody may be about to give it one. */
	if (rc < 0) {
		int gone = remove_folder(v, tmp);
		(void)gone;
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
		/* ".tmp" is what a crash of an earlier release has left of a name. */
		const char *end = strrchr(l.names[i], '.');
		if (rc == 0 && !(end && strcmp(end, ".tmp") == 0))
			rc = each(arg, l.names[i]);
		free(l.names[i]);
	}
	free(l.names);
	return rc == -LE_NOENT ? 0 : rc;
}

int catalog_remove(struct vol *v, const char *catalog, const char *alias)
{
	char path[4096], id[MANIFEST_ID_SIZE];
	TRY(alias_path(catalog, alias, path));
	TRY(catalog_lookup(v, catalog, alias, id));
	TRY(take_folder(v, catalog, id, alias));
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

bool samples_are_same(struct vol *a, const char *dir_a, struct vol *b, const char *dir_b)
{
	struct vol *v[2] = {a, b};
	const char *dirs[2] = {dir_a, dir_b};
	uint8_t heads[2][INDEX_HEAD_SIZE];
	for (int i = 0; i < 2; i++) {
		char path[4096];
		struct vol_file *f;
		snprintf(path, sizeof(path), "%.4000s/samples", dirs[i]);
		if (vol_open(v[i], path, &f) < 0)
			return false;
		int rc = vol_pread_all(f, heads[i], INDEX_HEAD_SIZE, 0);
		vol_close(f);
		if (rc < 0)
			return false;
	}
	return memcmp(heads[0], heads[1], INDEX_HEAD_SIZE) == 0;
}
