/*
 * What is noted of a copy beside its data:
 *   state    one line of JSON: what the process that changes it is doing, or why it has ended
 *   window   the first window is durable: a loader may begin
 *   used     its time: when somebody used the copy last
 *   cancel   whoever makes the copy shall stop
 *   pin      it is not to be evicted
 *   unpack   archives that are here only to be unpacked: to be evicted then
 *   leases/NAME   "SECONDS\n": until when (Unix time; 0: until it is given back) job NAME uses it
 * None of them is believed where locks or the bitmap know better; none is needed for reading.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/include/leat/leat_stage.h"
#include "client/stage/beneath.h"
#include "client/stage/local_store.h"
#include "common/base/names.h"

#define EVENTS_MAX (1u << 20)

static int mark_path(const struct local_store *s, const char *mark, char ret[STORE_PATH_SIZE])
{
	int n = snprintf(ret, STORE_PATH_SIZE, "%s/%s", s->dir, mark);
	return n < 0 || n >= (int)STORE_PATH_SIZE ? -LE_NAMETOOLONG : 0;
}

/* As a whole or not at all, but not synced: what a power cut takes with it is only missed by
 * people. Small, into the page cache: it does not block. */
static int write_soft(const struct local_store *s, const char *path, const char *text)
{
	char tmp[STORE_PATH_SIZE + 32];
	snprintf(tmp, sizeof(tmp), "%s.%d.tmp", path, (int)getpid());
	int fd = beneath_open(s->env, tmp, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		return fd;
	ssize_t len = (ssize_t)strlen(text);
	int rc = write(fd, text, (size_t)len) == len ? 0 : -LE_IO;
	close(fd);
	if (rc == 0)
		rc = beneath_rename(s->env, tmp, path);
	if (rc < 0)
		(void)!beneath_unlink(s->env, tmp);
	return rc;
}

/* Where a full disk has no room for another file: in the place of what was said before. */
static int write_over(const struct local_store *s, const char *path, const char *text)
{
	int fd = beneath_open(s->env, path, O_WRONLY, 0);
	if (fd < 0)
		return fd;
	ssize_t len = (ssize_t)strlen(text);
	int rc = pwrite(fd, text, (size_t)len, 0) == len && ftruncate(fd, len) == 0 ? 0 : -LE_IO;
	close(fd);
	return rc;
}

/* ---- state ---- */

void store_set_note(struct local_store *s, const struct store_note *n)
{
	char path[STORE_PATH_SIZE];
	json_t *o = json_pack("{s:s,s:i,s:i,s:o,s:I}", "state", leat_stage_state_text(n->state),
			      "number", n->state, "code", n->code, "message",
			      text_json(n->message), "offset", (json_int_t)n->off);
	bool good = o && name_json_set(o, "path", n->path) == 0;
	char *text = good ? json_dumps(o, JSON_COMPACT) : NULL;
	if (text && mark_path(s, "state", path) == 0) {
		int rc = write_soft(s, path, text);
		if (rc < 0)
			rc = write_over(s, path, text);
		(void)rc; /* nor is a full disk any reason to fail */
	}
	free(text);
	json_decref(o);
}

bool store_get_note(struct local_store *s, struct store_note *ret_note)
{
	char path[STORE_PATH_SIZE], *text;
	const char *message = "";
	json_int_t off = 0;
	size_t len;
	*ret_note = (struct store_note){.off = UINT64_MAX};
	if (mark_path(s, "state", path) < 0 || env_read_file(s->env, path, 65536, &text, &len) < 0)
		return false;
	json_t *o = json_loadb(text, len, 0, NULL);
	bool good = o &&
		    json_unpack(o, "{s:i,s:i,s:s,s:I}", "number", &ret_note->state, "code",
				&ret_note->code, "message", &message, "offset", &off) == 0 &&
		    name_json_get(o, "path", ret_note->path, sizeof(ret_note->path));
	if (good) {
		snprintf(ret_note->message, sizeof(ret_note->message), "%s", message);
		ret_note->off = (uint64_t)off;
	}
	json_decref(o);
	free(text);
	return good;
}

/* ---- marks ---- */

int store_set_mark(struct local_store *s, const char *mark, bool on)
{
	char path[STORE_PATH_SIZE];
	TRY(mark_path(s, mark, path));
	/* A pin is a promise. */
	if (on && strcmp(mark, "pin") == 0)
		return env_write_file(s->env, path, "\n", 1, 0644);
	if (on)
		return write_soft(s, path, "\n");
	int rc = env_unlink(s->env, path);
	return rc == -LE_NOENT ? 0 : rc;
}

bool store_has_mark(const struct local_store *s, const char *mark, int64_t *ret_mtime_s)
{
	char path[STORE_PATH_SIZE];
	struct stat st;
	if (mark_path(s, mark, path) < 0 || beneath_stat(s->env, path, &st) < 0)
		return false;
	if (ret_mtime_s)
		*ret_mtime_s = st.st_mtim.tv_sec;
	return true;
}

int64_t store_mark_ns(const struct local_store *s, const char *mark)
{
	char path[STORE_PATH_SIZE];
	struct stat st;
	if (mark_path(s, mark, path) < 0 || beneath_stat(s->env, path, &st) < 0)
		return 0;
	return (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
}

/* ---- events ---- */

void store_event(const struct local_store *s, const char *what, const char *fields)
{
	char path[STORE_PATH_SIZE], old[STORE_PATH_SIZE], line[2048];
	struct stat st;
	int64_t now = env_wall_ns(s->env);
	int n = snprintf(line, sizeof(line),
			 "{\"at\":%" PRId64 ".%03d,\"event\":\"%s\",\"id\":\"%s\"%s%s}\n",
			 now / 1000000000, (int)(now / 1000000 % 1000), what, s->id,
			 fields[0] ? "," : "", fields);
	if (n < 0 || n >= (int)sizeof(line))
		return;
	snprintf(path, sizeof(path), "%.4000s/events", s->base);
	snprintf(old, sizeof(old), "%.4000s/events.1", s->base);
	if (beneath_stat(s->env, path, &st) == 0 && st.st_size > EVENTS_MAX)
		(void)!beneath_rename(s->env, path, old);
	int fd = beneath_open(s->env, path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (fd < 0)
		return;
	/* One write: lines of several processes do not mix. */
	(void)!write(fd, line, (size_t)n);
	close(fd);
}

/* ---- leases of jobs ---- */

bool store_name_ok(const char *name)
{
	size_t len = strlen(name);
	/* What a crash may have left of one that was being written is none. */
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
	/* While this is held nobody removes the copy. */
	int fd = store_lease(s);
	if (fd < 0)
		return fd;
	int64_t now_s = env_wall_ns(s->env) / 1000000000;
	/* The second that has begun does not count: never shorter than was asked for. */
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
	/* One that cannot be read counts: its copy is not to be taken away by mistake. */
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
		return true; /* not known: not to be taken away */
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
