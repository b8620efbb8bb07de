#include "client/stage/catalog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"

#define INDEX_SIZE_MAX ((uint64_t)64 << 30)

static int alias_path(const char *catalog, const char *alias, char ret_path[4096])
{
	char name[MANIFEST_NAME_MAX + 1], version[MANIFEST_NAME_MAX + 1];
	TRY(manifest_parse_alias(alias, name, version));
	int n = snprintf(ret_path, 4096, "%s/%s@%s", catalog, name, version);
	return n >= 4096 ? -LE_NAMETOOLONG : 0;
}

int catalog_dir(const char *catalog, const char *id, char ret_dir[4096])
{
	int n = snprintf(ret_dir, 4096, "%s/by-id/%s", catalog, id);
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

int catalog_add(struct vol *v, const char *catalog, const struct manifest *m,
		const struct sample_index *index)
{
	char alias[2 * MANIFEST_NAME_MAX + 4], path[4096], dir[4096], line[MANIFEST_ID_SIZE + 1];
	struct vol_stat st;
	snprintf(alias, sizeof(alias), "%s@%s", m->name, m->version);
	TRY(alias_path(catalog, alias, path));
	TRY(catalog_dir(catalog, m->id, dir));
	if (vol_stat(v, path, &st) == 0)
		return -LE_EXIST;
	TRY(vol_mkdirs(v, dir));
	TRY(manifest_store(v, dir, m));
	if (index)
		TRY(samples_store(v, dir, index));
	snprintf(line, sizeof(line), "%s\n", m->id);
	return vol_write_file(v, path, line, strlen(line));
}

int catalog_mark_sealed(struct vol *v, const char *catalog, const char *id)
{
	char dir[4096], path[4200];
	TRY(catalog_dir(catalog, id, dir));
	snprintf(path, sizeof(path), "%s/sealed", dir);
	if (strlen(path) >= 4096)
		return -LE_NAMETOOLONG;
	return vol_write_file(v, path, "sealed\n", 7);
}

bool catalog_is_sealed(struct vol *v, const char *catalog, const char *id)
{
	char dir[4096], path[4200];
	struct vol_stat st;
	if (catalog_dir(catalog, id, dir) < 0)
		return false;
	snprintf(path, sizeof(path), "%s/sealed", dir);
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
		/* ".tmp" is what a crash may have left of a name that was being written. */
		const char *end = strrchr(l.names[i], '.');
		if (rc == 0 && !(end && strcmp(end, ".tmp") == 0))
			rc = each(arg, l.names[i]);
		free(l.names[i]);
	}
	free(l.names);
	return rc == -LE_NOENT ? 0 : rc;
}

struct use {
	struct vol *v;
	const char *catalog, *id;
	bool used;
};

static int note_use(void *arg, const char *alias)
{
	struct use *u = arg;
	char id[MANIFEST_ID_SIZE];
	u->used |= catalog_lookup(u->v, u->catalog, alias, id) == 0 && strcmp(id, u->id) == 0;
	return 0;
}

int catalog_remove(struct vol *v, const char *catalog, const char *alias)
{
	static const char *const parts[] = {"manifest", "sums", "samples", "sealed"};
	char path[4096], dir[4096], part[4096], id[MANIFEST_ID_SIZE];
	TRY(alias_path(catalog, alias, path));
	TRY(catalog_lookup(v, catalog, alias, id));
	TRY(catalog_dir(catalog, id, dir));
	TRY(v->ops->unlink(v, path));
	struct use u = {v, catalog, id, false};
	TRY(catalog_list(v, catalog, note_use, &u));
	if (u.used)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		snprintf(part, sizeof(part), "%.4000s/%s", dir, parts[i]);
		int rc = v->ops->unlink(v, part);
		if (rc < 0 && rc != -LE_NOENT)
			return rc;
	}
	return v->ops->rmdir(v, dir);
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
