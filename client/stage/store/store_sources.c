/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/store/store_sources.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/dataset/beneath.h"
#include "common/base/content_hash.h"

/* The file name is a hash of the key: keys contain names of data sets, which may be private. */
static int source_path(const char *to, const char *key, char ret_path[STORE_PATH_SIZE])
{
	struct content_hash h;
	char name[CONTENT_HASH_TEXT_SIZE];
	content_hash_init(&h);
	content_hash_add(&h, key, strlen(key));
	content_hash_final_text(&h, name);
	int n = snprintf(ret_path, STORE_PATH_SIZE, "%s/.leat/sources/%s", to, name);
	return n < 0 || n >= (int)STORE_PATH_SIZE ? -LE_NAMETOOLONG : 0;
}

int store_recall_source(struct env *env, const char *to, const char *key,
			char ret_id[MANIFEST_ID_SIZE])
{
	char path[STORE_PATH_SIZE], *text;
	size_t len;
	TRY(source_path(to, key, path));
	TRY(env_read_file(env, path, 4096, &text, &len));
	bool good = len == MANIFEST_ID_SIZE - 1 && strspn(text, "0123456789abcdef") == len;
	if (good)
		memcpy(ret_id, text, len + 1);
	free(text);
	return good ? 0 : -LE_NOENT;
}

static void remove_named(struct env *env, const char *dir, const char *name)
{
	char path[STORE_PATH_SIZE];
	int n = snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (n >= 0 && n < (int)sizeof(path))
		(void)!beneath_unlink(env, path);
}

/* A folder that an earlier version has made can be listed, and its file names reveal names of
 * data sets. Removes those files, then changes the mode; in this order, so that an interrupted
 * call is repeated by the next. Blocks. */
static int hide_sources(struct env *env, const char *dir)
{
	struct dirent *e;
	struct stat st;
	int fd = beneath_open_dir(env, dir);
	/* In simulation the folder does not exist here. */
	if (fd < 0)
		return fd == -LE_NOENT ? 0 : fd;
	if (fstat(fd, &st) < 0 || st.st_uid != geteuid() || !(st.st_mode & 044)) {
		close(fd);
		return 0;
	}
	DIR *d = fdopendir(fd);
	if (!d) {
		close(fd);
		return -LE_NOMEM;
	}
	while ((e = readdir(d))) {
		if (strlen(e->d_name) != CONTENT_HASH_TEXT_SIZE - 1 ||
		    strspn(e->d_name, "0123456789abcdef") != CONTENT_HASH_TEXT_SIZE - 1)
			remove_named(env, dir, e->d_name);
	}
	int rc = fchmod(fd, 0711) < 0 ? status_from_errno(errno) : 0;
	closedir(d);
	return rc;
}

int store_note_source(struct env *env, const char *to, const char *key, const char *id)
{
	char path[STORE_PATH_SIZE], dir[STORE_PATH_SIZE], now[MANIFEST_ID_SIZE];
	if (store_recall_source(env, to, key, now) == 0 && strcmp(now, id) == 0)
		return 0;
	TRY(source_path(to, key, path));
	snprintf(dir, sizeof(dir), "%.3900s/.leat", to);
	TRY(env_mkdirs(env, dir, 0755));
	snprintf(dir, sizeof(dir), "%.3900s/.leat/sources", to);
	/* A process that has the key can open its file; only the owner can list the folder. */
	TRY(env_mkdirs(env, dir, 0711));
	TRY(hide_sources(env, dir));
	return env_write_file(env, path, id, MANIFEST_ID_SIZE - 1, 0644);
}
