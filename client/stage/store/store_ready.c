/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/store/store_ready.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/stage/store/inode_index.h"
#include "client/stage/store/store_lock.h"
#include "client/stage/store/store_path.h"
#include "client/stage/store/store_tree.h"

static bool is_marked(struct local_store *s, const char *mark)
{
	char path[STORE_PATH_SIZE], *text;
	size_t len;
	if (store_join(path, s->dir, mark) < 0 ||
	    env_read_file(s->env, path, 4096, &text, &len) < 0)
		return false;
	bool ready = strncmp(text, s->id, strlen(s->id)) == 0;
	free(text);
	return ready;
}

bool store_is_ready(struct local_store *s)
{
	return is_marked(s, "READY");
}

bool store_is_shared(struct local_store *s)
{
	return is_marked(s, "SHARE");
}

int store_set_ready(struct local_store *s, const struct manifest *m)
{
	char path[STORE_PATH_SIZE], text[256];
	int n = snprintf(text, sizeof(text), "%s %u files %llu bytes\n", s->id, m->n_files,
			 (unsigned long long)m->bytes);
	TRY(store_join(path, s->dir, s->share ? "SHARE" : "READY"));
	/* Make the file that leases lock, for users who may not write here. */
	int lease = store_lease(s);
	if (lease >= 0)
		close(lease);
	return env_write_file(s->env, path, text, (size_t)n, 0644);
}

int store_clear_ready(struct local_store *s)
{
	char path[STORE_PATH_SIZE];
	TRY(inode_index_withdraw(s));
	static const char *const marks[] = {"READY", "SHARE"};
	bool any = false;
	for (size_t i = 0; i < ARRAY_SIZE(marks); i++) {
		TRY(store_join(path, s->dir, marks[i]));
		int rc = env_unlink(s->env, path);
		if (rc < 0 && rc != -LE_NOENT)
			return rc;
		any |= rc == 0;
	}
	return any ? env_syncdir(s->env, s->dir) : 0;
}

bool store_looks_whole(struct local_store *s, const struct manifest *m)
{
	char path[STORE_PATH_SIZE];
	struct stat st;
	for (uint32_t i = 0; i < m->n_files; i++) {
		if (!store_has_file(s, i))
			continue;
		if (store_data_path(s, i, m->files[i].path, path) < 0 ||
		    env_stat(s->env, path, &st) < 0 || !S_ISREG(st.st_mode) ||
		    (uint64_t)st.st_size != m->files[i].size)
			return false;
	}
	return store_tree_is_whole(s, m);
}
