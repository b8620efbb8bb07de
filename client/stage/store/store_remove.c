/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/store/store_remove.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "client/stage/store/store_leases.h"
#include "client/stage/store/store_lock.h"
#include "client/stage/store/store_marks.h"
#include "client/stage/store/store_path.h"
#include "client/stage/store/store_ready.h"
#include "common/base/assert.h"

struct removal {
	struct env *env;
	char **names;
	bool *is_dir;
	size_t n, cap;
};

static int note_entry(void *arg, const struct env_dirent *e)
{
	struct removal *r = arg;
	if (r->n == r->cap) {
		size_t cap = r->cap ? r->cap * 2 : 64;
		char **names = realloc(r->names, cap * sizeof(*names));
		if (names)
			r->names = names;
		bool *is_dir = names ? realloc(r->is_dir, cap * sizeof(*is_dir)) : NULL;
		if (!is_dir)
			return -LE_NOMEM;
		r->is_dir = is_dir;
		r->cap = cap;
	}
	r->names[r->n] = strdup(e->name);
	if (!r->names[r->n])
		return -LE_NOMEM;
	r->is_dir[r->n++] = e->is_dir;
	return 0;
}

/* Paths are on the heap, since fibers have small stacks, and the depth is bounded. */
static int remove_tree(struct env *env, const char *path, int depth)
{
	if (depth > MANIFEST_DEPTH_MAX + 4)
		return -LE_NOTEMPTY;
	struct removal r = {.env = env};
	int rc = env_list(env, path, note_entry, &r);
	for (size_t i = 0; i < r.n; i++) {
		char *child = NULL;
		if (rc == 0 && asprintf(&child, "%s/%s", path, r.names[i]) < 0)
			rc = -LE_NOMEM;
		if (rc == 0)
			rc = r.is_dir[i] ? remove_tree(env, child, depth + 1)
					 : env_unlink(env, child);
		free(child);
		free(r.names[i]);
	}
	free(r.names);
	free(r.is_dir);
	if (rc == -LE_NOENT)
		return 0;
	return rc < 0 ? rc : env_rmdir(env, path);
}

int store_remove(struct local_store *s)
{
	char path[STORE_PATH_SIZE], lock[STORE_PATH_SIZE];
	ASSERT(s->lock_fd >= 0);
	TRY(store_join(path, s->dir, "lease"));
	/* Held until the lease file itself is removed, so that no process can take a lease
	 * meanwhile. */
	int fd = store_flock(s, path, LOCK_EX);
	if (fd < 0 && fd != -LE_NOENT)
		return fd;
	bool busy = store_has_mark(s, "pin", NULL) || store_is_leased_named(s, true);
	int rc = busy ? -LE_BUSY : store_clear_ready(s);
	if (rc == -LE_NOENT)
		rc = 0;
	/* Remove the bitmap before the data that it describes. */
	if (rc == 0 && store_join(path, s->dir, "bitmap") == 0)
		rc = env_unlink(s->env, path);
	if (rc == -LE_NOENT)
		rc = 0;
	for (uint32_t k = s->n_more + 1; k-- > 0 && rc == 0;)
		rc = remove_tree(s->env, store_dir_of(s, k), 0);
	if (fd >= 0)
		close(fd);
	TRY(rc);
	store_lock_path(s, lock);
	rc = env_unlink(s->env, lock);
	return rc == -LE_NOENT ? 0 : rc;
}
