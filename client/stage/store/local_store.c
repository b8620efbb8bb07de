/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/store/local_store.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/stage/store/store_lock.h"
#include "client/stage/store/store_path.h"
#include "client/stage/store/store_space.h"
#include "common/base/assert.h"

#define BITMAP_MAGIC 0x31504d425441454cULL /* "LEATBMP1" */

struct bitmap_head {
	uint64_t magic, n_chunks;
};

int store_init(struct local_store *s, struct env *env, const char *to, const char *id)
{
	memset(s, 0, sizeof(*s));
	s->env = env;
	s->lock_fd = -1;
	/* Leave space for the longest name below it. */
	if (strlen(to) + 64 + MANIFEST_ID_SIZE > STORE_PATH_SIZE)
		return -LE_NAMETOOLONG;
	TRY(store_join(s->base, to, ".leat"));
	TRY(store_join(s->dir, s->base, id));
	snprintf(s->id, sizeof(s->id), "%s", id);
	return 0;
}

void store_fini(struct local_store *s)
{
	store_reserve_end(s);
	for (uint32_t i = 0; i < s->n_more; i++)
		free(s->more[i]);
	s->n_more = 0;
	free(s->places);
	s->places = NULL;
	free(s->share);
	s->share = NULL;
	free(s->folders);
	s->folders = NULL;
	free(s->stamps);
	s->stamps = NULL;
	env_file_close(s->stamps_file);
	s->stamps_file = NULL;
	env_file_close(s->bitmap_file);
	s->bitmap_file = NULL;
	free(s->bitmap);
	s->bitmap = NULL;
	store_unlock(s);
}

/* Written before anything else in the further directory, so that what is found there without the
 * first directory is not taken for a separate copy. */
static int note_home(struct local_store *s, const char *dir)
{
	char path[STORE_PATH_SIZE], *text;
	size_t len;
	TRY(store_join(path, dir, "home"));
	if (env_read_file(s->env, path, STORE_PATH_SIZE, &text, &len) == 0) {
		bool same = strcmp(text, s->dir) == 0;
		free(text);
		if (same)
			return 0;
	}
	return env_write_file(s->env, path, s->dir, strlen(s->dir), 0644);
}

int store_home(struct local_store *s, char ret_home[STORE_PATH_SIZE])
{
	char *text;
	size_t len;
	TRY(store_join(ret_home, s->dir, "home"));
	TRY(env_read_file(s->env, ret_home, STORE_PATH_SIZE, &text, &len));
	bool good = len > 0 && len < STORE_PATH_SIZE && strlen(text) == len && text[0] == '/';
	if (good)
		memcpy(ret_home, text, len + 1);
	free(text);
	return good ? 0 : -LE_NOENT;
}

int store_make_dirs(struct local_store *s)
{
	static const char *const below[] = {"part", "data"}; /* only their maker may enter them */
	char path[STORE_PATH_SIZE];
	for (uint32_t k = 0; k <= s->n_more; k++) {
		const char *dir = store_dir_of(s, k);
		/* Checkpoints sync part/ and data/, and the names in the first directory. */
		TRY(k == 0 ? store_make_folder(s, dir) : env_mkdirs(s->env, dir, 0755));
		if (k > 0)
			TRY(note_home(s, dir));
		for (size_t i = 0; i < ARRAY_SIZE(below); i++) {
			TRY(store_join(path, dir, below[i]));
			int rc = env_mkdir(s->env, path, 0700);
			if (rc < 0 && rc != -LE_EXIST)
				return rc;
		}
	}
	return 0;
}

int store_make_folder(struct local_store *s, const char *path)
{
	int rc = env_mkdir(s->env, path, 0755);
	if (rc == -LE_EXIST)
		return 0;
	if (rc != -LE_NOENT)
		return rc;
	char *part = strdup(path);
	rc = part ? 0 : -LE_NOMEM;
	for (size_t i = 1; rc == 0 && part[i]; i++) {
		if (part[i] != '/')
			continue;
		part[i] = 0;
		rc = env_mkdir(s->env, part, 0755);
		if (rc == -LE_EXIST)
			rc = 0;
		part[i] = '/';
	}
	free(part);
	if (rc == 0)
		rc = env_mkdir(s->env, path, 0755);
	return rc == -LE_EXIST ? 0 : rc; /* another fiber has just made it */
}

static int sync_file(struct local_store *s, const char *name)
{
	char path[STORE_PATH_SIZE];
	struct env_file *f;
	TRY(store_join(path, s->dir, name));
	TRY(env_file_open(s->env, path, O_RDONLY, 0, &f));
	int rc = env_file_datasync(f);
	env_file_close(f);
	return rc;
}

int store_sync_manifest(struct local_store *s)
{
	TRY(sync_file(s, "sums"));
	return sync_file(s, "manifest");
}

/* ---- bitmap ---- */

void store_set_chunk(struct local_store *s, uint64_t chunk, bool on)
{
	uint8_t bit = (uint8_t)(1u << chunk % 8);
	ASSERT(chunk < s->n_chunks);
	if (on)
		s->bitmap[chunk / 8] |= bit;
	else
		s->bitmap[chunk / 8] &= (uint8_t)~bit;
}

bool store_clear_file(struct local_store *s, const struct manifest_file *f)
{
	bool any = false;
	for (uint64_t c = 0; c < manifest_file_chunks(f); c++) {
		any |= store_has_chunk(s, f->first_chunk + c);
		store_set_chunk(s, f->first_chunk + c, false);
	}
	return any;
}

static int write_bitmap(struct local_store *s)
{
	struct bitmap_head head = {BITMAP_MAGIC, s->n_chunks};
	TRY(env_file_pwrite(s->bitmap_file, &head, sizeof(head), 0));
	return env_file_pwrite(s->bitmap_file, s->bitmap, s->n_chunks / 8 + 1, sizeof(head));
}

int store_load_bitmap(struct local_store *s, const struct manifest *m)
{
	char path[STORE_PATH_SIZE];
	struct bitmap_head head = {0};
	struct stat st;
	size_t len = m->n_chunks / 8 + 1;
	ASSERT(!s->bitmap);
	s->n_chunks = m->n_chunks;
	s->bitmap = calloc(1, len);
	if (!s->bitmap)
		return -LE_NOMEM;
	TRY(store_join(path, s->dir, "bitmap"));
	TRY(env_file_open(s->env, path, O_RDWR | O_CREAT, 0644, &s->bitmap_file));
	TRY(env_file_stat(s->bitmap_file, &st));
	if ((uint64_t)st.st_size == sizeof(head) + len) {
		TRY(env_file_pread(s->bitmap_file, &head, sizeof(head), 0));
		if (head.magic == BITMAP_MAGIC && head.n_chunks == s->n_chunks)
			return env_file_pread(s->bitmap_file, s->bitmap, len, sizeof(head));
	}
	/* An empty bitmap need not survive a power cut: the first checkpoint syncs it. */
	s->fresh = st.st_size == 0;
	TRY(env_file_truncate(s->bitmap_file, 0));
	return write_bitmap(s);
}

int store_save_bitmap(struct local_store *s)
{
	TRY(write_bitmap(s));
	return env_file_datasync(s->bitmap_file);
}

/* ---- files ---- */

int store_read_part(struct local_store *s, const struct manifest *m, uint64_t chunk,
		    const struct store_part *part, void *buf)
{
	uint32_t file_index = manifest_file_of_chunk(m, chunk);
	char path[STORE_PATH_SIZE];
	struct env_file *file;
	const struct manifest_file *f = &m->files[file_index];
	uint64_t index = chunk - f->first_chunk;
	if (chunk >= m->n_chunks || index >= manifest_file_chunks(f))
		return -LE_INVAL;
	uint32_t size = manifest_chunk_len(f, index);
	if (part->off >= size || part->len > size - part->off)
		return -LE_INVAL;
	uint32_t len = part->len ? part->len : size - part->off;
	TRY(store_data_path(s, file_index, f->path, path));
	int rc = env_file_open(s->env, path, O_RDONLY, 0, &file);
	if (rc == -LE_NOENT) {
		store_part_path(s, file_index, path);
		rc = env_file_open(s->env, path, O_RDONLY, 0, &file);
	}
	/* The file got its final name between the two attempts. */
	if (rc == -LE_NOENT && store_data_path(s, file_index, f->path, path) == 0)
		rc = env_file_open(s->env, path, O_RDONLY, 0, &file);
	TRY(rc);
	rc = env_file_pread(file, buf, len, index * MANIFEST_CHUNK + part->off);
	env_file_close(file);
	return rc;
}

int store_read_chunk(struct local_store *s, const struct manifest *m, uint64_t chunk, void *buf)
{
	static const struct store_part all;
	return store_read_part(s, m, chunk, &all, buf);
}
