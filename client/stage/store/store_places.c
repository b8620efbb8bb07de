/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/store/store_places.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/dataset/beneath.h"
#include "client/stage/store/store_path.h"

#define PLACES_MAGIC "leat places 1\n"
#define SHARE_MAGIC  "leat share 1\n"
#define PLACES_MAX   ((size_t)MANIFEST_FILES_MAX + (STORE_DIRS_MAX + 1) * STORE_PATH_SIZE)

static int add_path(struct local_store *s, const char *dir)
{
	if (s->n_more == STORE_DIRS_MAX)
		return -LE_TOO_BIG;
	s->more[s->n_more] = strdup(dir);
	return s->more[s->n_more] ? (s->n_more++, 0) : -LE_NOMEM;
}

int store_add_dir(struct local_store *s, const char *to)
{
	char path[STORE_PATH_SIZE];
	int n = snprintf(path, sizeof(path), "%s/.leat/%s", to, s->id);
	if (n < 0 || n >= (int)sizeof(path) || strlen(to) + 64 + MANIFEST_ID_SIZE > sizeof(path))
		return -LE_NAMETOOLONG;
	return strcmp(path, s->dir) == 0 ? 0 : add_path(s, path);
}

/* Eviction removes these directories as a whole, so only folders of this copy are accepted. */
static bool is_copy_dir(const struct local_store *s, const char *path)
{
	char end[16 + MANIFEST_ID_SIZE];
	int n = snprintf(end, sizeof(end), "/.leat/%s", s->id);
	size_t len = strlen(path);
	return path[0] == '/' && len < STORE_PATH_SIZE && len > (size_t)n &&
	       strcmp(path + len - (size_t)n, end) == 0;
}

/* Format: "leat places 1\n", the further directories one a line, an empty line, a byte for each
 * file. */
static int take_places(struct local_store *s, char *text, size_t len, uint32_t n_files)
{
	char *end = text + len, *at = text + strlen(PLACES_MAGIC);
	if (len < strlen(PLACES_MAGIC) || memcmp(text, PLACES_MAGIC, strlen(PLACES_MAGIC)) != 0)
		return -LE_CORRUPT;
	for (;;) {
		char *nl = memchr(at, '\n', (size_t)(end - at));
		if (!nl)
			return -LE_CORRUPT;
		*nl = 0;
		if (nl == at)
			break;
		if (!is_copy_dir(s, at))
			return -LE_CORRUPT;
		TRY(add_path(s, at));
		at = nl + 1;
	}
	at++;
	if (n_files == STORE_FILES_ANY && end - at <= (ptrdiff_t)MANIFEST_FILES_MAX)
		n_files = (uint32_t)(end - at);
	if ((size_t)(end - at) != n_files)
		return -LE_CORRUPT;
	for (uint32_t i = 0; i < n_files; i++)
		if ((uint8_t)at[i] > s->n_more)
			return -LE_CORRUPT;
	s->places = malloc(n_files + 1);
	if (!s->places)
		return -LE_NOMEM;
	memcpy(s->places, at, n_files);
	s->n_places = n_files;
	return 0;
}

int store_load_places(struct local_store *s, uint32_t n_files)
{
	char path[STORE_PATH_SIZE], *text;
	size_t len;
	TRY(store_join(path, s->dir, "places"));
	int rc = env_read_file(s->env, path, PLACES_MAX, &text, &len);
	if (rc == -LE_NOENT)
		return 0;
	TRY(rc);
	/* The file replaces the directories that the caller has added. */
	for (uint32_t i = 0; i < s->n_more; i++)
		free(s->more[i]);
	s->n_more = 0;
	rc = take_places(s, text, len, n_files);
	free(text);
	return rc;
}

int store_save_places(struct local_store *s)
{
	char path[STORE_PATH_SIZE];
	size_t len = 0;
	char *text = NULL;
	FILE *f = open_memstream(&text, &len);
	if (!f)
		return -LE_NOMEM;
	fputs(PLACES_MAGIC, f);
	for (uint32_t i = 0; i < s->n_more; i++)
		fprintf(f, "%s\n", s->more[i]);
	fputc('\n', f);
	fwrite(s->places, 1, s->n_places, f);
	int rc = fclose(f) == 0 ? store_join(path, s->dir, "places") : -LE_NOMEM;
	if (rc == 0)
		rc = env_write_file(s->env, path, text, len, 0644);
	free(text);
	return rc;
}

int store_load_share(struct local_store *s, uint32_t n_files)
{
	char path[STORE_PATH_SIZE], *text;
	size_t len, head = strlen(SHARE_MAGIC), bits = n_files / 8 + 1;
	free(s->share);
	s->share = NULL;
	TRY(store_join(path, s->dir, "share"));
	int rc = env_read_file(s->env, path, head + bits, &text, &len);
	if (rc == -LE_NOENT)
		return 0;
	if (rc < 0 && rc != -LE_FBIG)
		return rc;
	/* A damaged file does not say which files are missing, so no file counts as present. */
	s->share = calloc(1, bits);
	s->n_share = n_files;
	if (s->share && rc == 0 && len == head + bits && memcmp(text, SHARE_MAGIC, head) == 0)
		memcpy(s->share, text + head, bits);
	if (rc == 0)
		free(text);
	return s->share ? 0 : -LE_NOMEM;
}

int store_save_share(struct local_store *s)
{
	char path[STORE_PATH_SIZE];
	size_t head = strlen(SHARE_MAGIC), bits = s->n_share / 8 + 1;
	TRY(store_join(path, s->dir, "share"));
	if (!s->share) {
		int rc = env_unlink(s->env, path);
		return rc == -LE_NOENT ? 0 : rc < 0 ? rc : env_syncdir(s->env, s->dir);
	}
	char *text = malloc(head + bits);
	if (!text)
		return -LE_NOMEM;
	memcpy(text, SHARE_MAGIC, head);
	memcpy(text + head, s->share, bits);
	int rc = env_write_file(s->env, path, text, head + bits, 0644);
	free(text);
	return rc;
}

static int make_parents(struct env *env, char path[STORE_PATH_SIZE])
{
	char *slash = strrchr(path, '/');
	*slash = 0;
	int rc = env_mkdirs(env, path, 0755);
	*slash = '/';
	return rc;
}

int store_link_data(struct local_store *s, uint32_t file, const char *path)
{
	char real[STORE_PATH_SIZE], link[STORE_PATH_SIZE];
	if (store_place(s, file) == 0)
		return 0;
	TRY(store_data_path(s, file, path, real));
	int n = snprintf(link, sizeof(link), "%s/data/%s", s->dir, path);
	if (n < 0 || n >= (int)sizeof(link))
		return -LE_NAMETOOLONG;
	TRY(make_parents(s->env, link));
	int rc = beneath_symlink(s->env, real, link);
	if (rc != -LE_EXIST)
		return rc;
	/* A link of an earlier run, or something else with that name. */
	TRY(env_unlink(s->env, link));
	return beneath_symlink(s->env, real, link);
}
