/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/store/store_leases.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "client/dataset/beneath.h"
#include "client/stage/store/store_lock.h"
#include "client/stage/store/store_path.h"

bool store_name_ok(const char *name)
{
	size_t len = strlen(name);
	/* A crash may have left the temporary file of a lease that was being written. */
	if (len > 4 && strcmp(name + len - 4, ".tmp") == 0)
		return false;
	return len > 0 && len <= LEASE_NAME_MAX && name[0] != '.' &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
		       len;
}

static int lease_path(const struct local_store *s, const char *name, char ret[STORE_PATH_SIZE])
{
	int n = snprintf(ret, STORE_PATH_SIZE, "%s/leases%s%s", s->dir, name[0] ? "/" : "", name);
	return n < 0 || n >= (int)STORE_PATH_SIZE ? -LE_NAMETOOLONG : 0;
}

int store_lease_named(struct local_store *s, const char *name, uint64_t ttl_s)
{
	char path[STORE_PATH_SIZE], text[32];
	if (!store_name_ok(name))
		return -LE_INVAL;
	/* Prevents removal of the copy until it is closed. */
	int fd = store_lease(s);
	if (fd < 0)
		return fd;
	int64_t now_s = env_wall_ns(s->env) / 1000000000;
	/* Add a second, since the present one has partly passed: the lease is never too short. */
	int n = snprintf(text, sizeof(text), "%" PRIu64 "\n",
			 ttl_s ? (uint64_t)now_s + ttl_s + 1 : 0);
	int rc = lease_path(s, "", path);
	if (rc == 0)
		rc = env_mkdirs(s->env, path, 0755);
	if (rc == 0)
		rc = lease_path(s, name, path);
	if (rc == 0)
		rc = env_write_file(s->env, path, text, (size_t)n, 0644);
	close(fd);
	return rc;
}

int store_release_named(struct local_store *s, const char *name)
{
	char path[STORE_PATH_SIZE];
	if (!store_name_ok(name))
		return -LE_INVAL;
	TRY(lease_path(s, name, path));
	return env_unlink(s->env, path);
}

struct leases {
	struct local_store *s;
	bool expire, active;
	char gone[16][LEASE_NAME_MAX + 1];
	uint32_t n_gone;
};

static int look_at_lease(void *arg, const struct env_dirent *e)
{
	struct leases *l = arg;
	char path[STORE_PATH_SIZE], text[32] = "";
	if (e->is_dir || !store_name_ok(e->name) || lease_path(l->s, e->name, path) < 0)
		return 0;
	int fd = beneath_open(l->s->env, path, O_RDONLY, 0);
	if (fd == -LE_NOENT)
		return 0;
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	uint64_t until = strtoull(text, NULL, 10);
	/* A lease that cannot be read counts, so that its copy is not evicted by mistake. */
	if (n <= 0 || until == 0 || until > (uint64_t)(env_wall_ns(l->s->env) / 1000000000))
		l->active = true;
	else if (l->n_gone < 16)
		snprintf(l->gone[l->n_gone++], LEASE_NAME_MAX + 1, "%s", e->name);
	return 0;
}

bool store_is_leased_named(struct local_store *s, bool expire)
{
	char path[STORE_PATH_SIZE];
	struct leases *l = calloc(1, sizeof(*l));
	if (!l || lease_path(s, "", path) < 0) {
		free(l);
		return true; /* unknown, so treat it as leased */
	}
	l->s = s;
	int rc = env_list(s->env, path, look_at_lease, l);
	bool active = l->active || (rc < 0 && rc != -LE_NOENT && rc != -LE_NOTDIR);
	for (uint32_t i = 0; expire && i < l->n_gone; i++) {
		rc = store_release_named(s, l->gone[i]);
		(void)rc;
	}
	free(l);
	return active;
}

bool store_is_leased(struct local_store *s)
{
	char path[STORE_PATH_SIZE];
	if (store_is_leased_named(s, false))
		return true;
	if (store_join(path, s->dir, "lease") < 0)
		return false;
	int fd = beneath_open(s->env, path, O_RDONLY, 0);
	/* A lease file that cannot be opened counts as leased. */
	if (fd < 0)
		return fd != -LE_NOENT;
	bool leased = flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
	close(fd);
	return leased;
}
