/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/store/store_space.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "client/stage/store/store_path.h"

int store_reserve(struct local_store *s, uint32_t place, uint64_t bytes)
{
	char path[STORE_PATH_SIZE];
	ASSERT(!s->reserve[place] && s->reserved[place] == 0);
	TRY(store_join(path, store_dir_of(s, place), "reserve"));
	if (bytes == 0) {
		int rc = env_unlink(s->env, path);
		return rc == -LE_NOENT ? 0 : rc;
	}
	TRY(env_file_open(s->env, path, O_RDWR | O_CREAT | O_TRUNC, 0600, &s->reserve[place]));
	int rc = env_file_fallocate(s->reserve[place], 0, 0, bytes);
	s->reserved[place] = rc == 0 ? bytes : 0;
	if (rc == -LE_NOTSUP)
		rc = 0;
	if (rc < 0)
		store_reserve_end(s);
	return rc;
}

void store_reserve_use(struct local_store *s, uint32_t file, uint64_t bytes)
{
	uint32_t k = store_place(s, file);
	if (!s->reserve[k] || s->reserved[k] == 0)
		return;
	s->reserved[k] -= bytes < s->reserved[k] ? bytes : s->reserved[k];
	/* On failure the allocation of the file itself reports the lack of space. */
	int rc = env_file_truncate(s->reserve[k], s->reserved[k]);
	(void)rc;
}

void store_reserve_end(struct local_store *s)
{
	char path[STORE_PATH_SIZE];
	for (uint32_t k = 0; k <= s->n_more; k++) {
		if (!s->reserve[k])
			continue;
		env_file_close(s->reserve[k]);
		s->reserve[k] = NULL;
		s->reserved[k] = 0;
		int rc = store_join(path, store_dir_of(s, k), "reserve");
		if (rc == 0)
			rc = env_unlink(s->env, path);
		(void)rc; /* the next run truncates it */
	}
}

static uint64_t blocks_at(struct local_store *s, const char *path)
{
	struct stat st;
	return env_stat(s->env, path, &st) == 0 && S_ISREG(st.st_mode)
		       ? (uint64_t)st.st_blocks * 512
		       : 0;
}

uint64_t store_occupied(struct local_store *s, const struct manifest *m)
{
	char path[STORE_PATH_SIZE];
	uint64_t bytes = 0;
	for (uint32_t k = 0; k <= s->n_more; k++)
		if (store_join(path, store_dir_of(s, k), "reserve") == 0)
			bytes += blocks_at(s, path);
	for (uint32_t i = 0; m && i < m->n_files; i++) {
		store_part_path(s, i, path);
		bytes += blocks_at(s, path);
		if (store_data_path(s, i, m->files[i].path, path) == 0)
			bytes += blocks_at(s, path);
	}
	return bytes;
}
