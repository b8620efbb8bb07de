/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/store/store_marks.h"

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/dataset/beneath.h"
#include "client/include/leat/leat_stage.h"
#include "common/base/names.h"

#define EVENTS_MAX (1u << 20)

static int mark_path(const struct local_store *s, const char *mark, char ret[STORE_PATH_SIZE])
{
	int n = snprintf(ret, STORE_PATH_SIZE, "%s/%s", s->dir, mark);
	return n < 0 || n >= (int)STORE_PATH_SIZE ? -LE_NAMETOOLONG : 0;
}

/* Replaces a file as a whole, without syncing it: after a power cut only people miss it. The
 * write is small and goes to the page cache, so it does not block. */
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

/* Overwrites the file in place, for a full disk that has no space for a second one. */
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
			      "number", n->state, "code", n->code, "message", text_json(n->message),
			      "offset", (json_int_t)n->off);
	bool good = o && name_json_set(o, "path", n->path) == 0;
	char *text = good ? json_dumps(o, JSON_COMPACT) : NULL;
	if (text && mark_path(s, "state", path) == 0) {
		int rc = write_soft(s, path, text);
		if (rc < 0)
			rc = write_over(s, path, text);
		(void)rc; /* a full disk is no reason to fail */
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
	/* A pin is a promise to the user, so it is durable. */
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
	/* A single write, so that lines of several processes do not mix. */
	(void)!write(fd, line, (size_t)n);
	close(fd);
}

