/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/store/copies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/dataset/manifest.h"
#include "client/dataset/manifest_file.h"
#include "client/stage/store/store_leases.h"
#include "client/stage/store/store_lock.h"
#include "client/stage/store/store_marks.h"
#include "client/stage/store/store_places.h"
#include "client/stage/store/store_ready.h"
#include "client/stage/store/store_remove.h"
#include "client/stage/store/store_sources.h"
#include "common/base/checksum.h"

#define ID_LEN (MANIFEST_ID_SIZE - 1)

static bool is_id(const char *s, size_t min)
{
	size_t len = strlen(s);
	return len >= min && len <= ID_LEN && strspn(s, "0123456789abcdef") == len;
}

struct ids {
	char (*ids)[MANIFEST_ID_SIZE];
	size_t n, cap;
};

static int note_id(void *arg, const struct env_dirent *e)
{
	struct ids *l = arg;
	if (!e->is_dir || !is_id(e->name, ID_LEN))
		return 0;
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 16;
		void *more = realloc(l->ids, cap * sizeof(*l->ids));
		if (!more)
			return -LE_NOMEM;
		l->ids = more;
		l->cap = cap;
	}
	memcpy(l->ids[l->n++], e->name, MANIFEST_ID_SIZE);
	return 0;
}

static void count_files(const struct local_store *s, const struct manifest *m,
			struct leat_stage_copy *c)
{
	for (uint32_t i = 0; i < m->n_files; i++) {
		if (store_has_file(s, i)) {
			c->files++;
			c->bytes += m->files[i].size;
			c->bytes_data += manifest_file_data(m, &m->files[i]);
		}
	}
}

static uint64_t bytes_marked(struct local_store *s, const struct manifest *m)
{
	char path[STORE_PATH_SIZE], *data;
	size_t len;
	uint64_t bytes = 0;
	snprintf(path, sizeof(path), "%.4000s/bitmap", s->dir);
	if (env_read_file(s->env, path, (size_t)1 << 32, &data, &len) < 0)
		return 0;
	if (len == 16 + m->n_chunks / 8 + 1) {
		for (uint32_t i = 0; i < m->n_files; i++) {
			const struct manifest_file *f = &m->files[i];
			for (uint64_t c = 0; store_has_file(s, i) && c < manifest_file_chunks(f);
			     c++) {
				uint64_t bit = f->first_chunk + c;
				if ((uint8_t)data[16 + bit / 8] >> (bit % 8) & 1)
					bytes += manifest_chunk_len(f, c);
			}
		}
	}
	free(data);
	return bytes;
}

/* Sets the state of a copy that is not READY, from its lock and from what its last process
 * noted. */
static void take_note(struct local_store *s, bool locked, struct leat_stage_copy *c)
{
	struct store_note n;
	c->state = locked ? LEAT_COPY_STAGING : LEAT_COPY_PARTIAL;
	if (!store_get_note(s, &n))
		return;
	bool working = n.state == LEAT_COPY_PLANNED || n.state == LEAT_COPY_RESERVED ||
		       n.state == LEAT_COPY_EVICTING;
	bool ended = n.state == LEAT_COPY_FAILED || n.state == LEAT_COPY_CANCELLED ||
		     n.state == LEAT_COPY_EVICTING;
	if (locked ? working : ended)
		c->state = n.state;
	if (!locked && n.state == LEAT_COPY_FAILED) {
		c->fail_code = n.code;
		snprintf(c->fail_path, sizeof(c->fail_path), "%s", n.path);
		snprintf(c->message, sizeof(c->message), "%s", n.message);
	}
	if (c->state == LEAT_COPY_STAGING && store_has_mark(s, "window", NULL))
		c->state = LEAT_COPY_STREAMABLE;
}

/* Which copies a listing returns; wanted NULL: all. */
struct wish {
	bool (*wanted)(void *arg, const struct leat_stage_copy *c);
	void *arg;
};

/* Fills in what the manifest says of the copy. -LE_NOENT: the caller does not want it. */
static int look_at_content(struct stage_io *io, struct local_store *s, bool ready,
			   const struct wish *wish, struct leat_stage_copy *c)
{
	struct manifest *m;
	struct detail ignored = {0};
	/* Without a readable manifest only the id is known, but the copy exists and may be
	 * evicted. */
	int rc = manifest_load(io->local, s->dir, &m, &ignored);
	/* The manifest lists all files, so a user with access to only some of them may not read
	 * it. */
	if (rc == -LE_ACCES && ready)
		c->state = store_has_mark(s, "stale", NULL) ? LEAT_COPY_STALE : LEAT_COPY_READY;
	if (rc < 0)
		return 0;
	memcpy(c->name, m->name, sizeof(m->name));
	memcpy(c->version, m->version, sizeof(m->version));
	memcpy(c->source, m->source, sizeof(c->source));
	if (wish->wanted && !wish->wanted(wish->arg, c)) {
		manifest_destroy(m);
		return -LE_NOENT;
	}
	rc = store_load_places(s, m->n_files);
	if (rc == 0 && !ready)
		rc = store_load_share(s, m->n_files);
	count_files(s, m, c);
	c->bytes_verified = bytes_marked(s, m);
	bool shared = !ready && s->share && store_is_shared(s);
	if (ready || shared)
		c->state = rc < 0 || !store_looks_whole(s, m) || c->bytes_verified != c->bytes
				   ? LEAT_COPY_DEGRADED
			   : shared                           ? LEAT_COPY_SHARED
			   : store_has_mark(s, "stale", NULL) ? LEAT_COPY_STALE
							      : LEAT_COPY_READY;
	manifest_destroy(m);
	return 0;
}

static int take_all(struct stage_io *io, struct local_store *s, const struct wish *wish,
		    struct leat_stage_copy *c)
{
	c->leased = store_is_leased(s);
	c->pinned = store_has_mark(s, "pin", NULL);
	if (!store_has_mark(s, "used", &c->used_s))
		c->used_s = 0;
	bool locked = store_is_locked(s), ready = store_is_ready(s);
	take_note(s, locked, c);
	return look_at_content(io, s, ready, wish, c);
}

/* Examines a folder that holds a part of a copy; the copy's first directory is another one.
 * -LE_NOENT: it is no copy by itself. */
static int look_at_part(struct local_store *s, char *home, struct leat_stage_copy *c)
{
	struct stat st;
	if (env_stat(s->env, home, &st) == 0)
		return -LE_NOENT;
	char *slash = strrchr(home, '/');
	*(slash ? slash : home) = 0;
	/* The first directory is missing too: its disk may be mounted again, with the rest of
	 * the copy. */
	if (!home[0] || env_stat(s->env, home, &st) < 0)
		return -LE_NOENT;
	c->state = LEAT_COPY_EVICTING;
	return 0;
}

/* -LE_NOENT: the folder is no copy, or the caller does not want it. Structs with paths are on
 * the heap, since fibers have small stacks. */
static int look_at(struct stage_io *io, const char *to, const char *id, const struct wish *wish,
		   struct leat_stage_copy *c)
{
	struct local_store *s = malloc(sizeof(*s));
	char *home = malloc(STORE_PATH_SIZE);
	int rc = s && home ? store_init(s, io->env, to, id) : -LE_NOMEM;
	memset(c, 0, sizeof(*c));
	c->size = sizeof(*c);
	if (rc == 0) {
		memcpy(c->id, id, sizeof(c->id));
		snprintf(c->path, sizeof(c->path), "%.4000s/data", s->dir);
		if (store_home(s, home) == 0)
			rc = look_at_part(s, home, c);
		else
			rc = take_all(io, s, wish, c);
		store_fini(s);
	}
	free(home);
	free(s);
	return rc;
}

static int by_id(const void *a, const void *b)
{
	return strcmp(a, b);
}

static int list_ids(struct stage_io *io, const char *to, struct ids *l)
{
	char base[STORE_PATH_SIZE];
	if (snprintf(base, sizeof(base), "%s/.leat", to) >= (int)sizeof(base))
		return -LE_NAMETOOLONG;
	int rc = env_list(io->env, base, note_id, l);
	if (l->n)
		qsort(l->ids, l->n, sizeof(*l->ids), by_id);
	return rc == -LE_NOENT ? 0 : rc;
}

int copies_each_id(struct stage_io *io, const char *to, int (*each)(void *arg, const char *id),
		   void *arg)
{
	struct ids l = {0};
	int rc = list_ids(io, to, &l);
	for (size_t i = 0; i < l.n && rc == 0; i++)
		rc = each(arg, l.ids[i]);
	free(l.ids);
	return rc;
}

int copies_list_those(struct stage_io *io, const char *to, const char *but,
		      bool (*wanted)(void *arg, const struct leat_stage_copy *c),
		      int (*each)(void *arg, const struct leat_stage_copy *c), void *arg)
{
	const struct wish wish = {wanted, arg};
	struct ids l = {0};
	struct leat_stage_copy *c = malloc(sizeof(*c));
	int rc = c ? list_ids(io, to, &l) : -LE_NOMEM;
	for (size_t i = 0; i < l.n && rc == 0; i++) {
		rc = strcmp(l.ids[i], but) == 0 ? -LE_NOENT : look_at(io, to, l.ids[i], &wish, c);
		if (rc == -LE_NOENT)
			rc = 0;
		else if (rc == 0)
			rc = each(arg, c);
	}
	free(l.ids);
	free(c);
	return rc;
}

int copies_list(struct stage_io *io, const char *to,
		int (*each)(void *arg, const struct leat_stage_copy *c), void *arg)
{
	return copies_list_those(io, to, "", NULL, each, arg);
}

struct finding {
	const char *what;
	char name[MANIFEST_NAME_MAX + 1], version[MANIFEST_NAME_MAX + 1];
	bool by_name;
	char noted[MANIFEST_ID_SIZE]; /* the id that `what` stood for when it was staged last; or
				       * "" */
	bool sure;                    /* `what` is a directory, and the copy of that id was found */
	struct leat_stage_copy *copy;
	uint32_t n;
};

static int note_match(void *arg, const struct leat_stage_copy *c)
{
	struct finding *f = arg;
	if (f->sure)
		return 0;
	bool match = is_id(f->what, COPIES_ID_MIN) && strncmp(c->id, f->what, strlen(f->what)) == 0;
	f->sure = f->what[0] == '/' && strcmp(c->id, f->noted) == 0;
	if (f->what[0] == '/')
		match = f->sure || strcmp(c->source, f->what) == 0;
	else if (!match && f->noted[0])
		match = strcmp(c->id, f->noted) == 0;
	else if (!match && f->by_name && c->name[0])
		match = strcmp(c->name, f->name) == 0 &&
			(strcmp(c->version, f->version) == 0 || !strchr(f->what, '@'));
	if (!match)
		return 0;
	/* A source directory that has changed has several copies. Takes the copy that sources/
	 * notes for it, else the READY one, else the last. */
	if (f->sure || f->n == 0 || f->copy->state != LEAT_COPY_READY)
		*f->copy = *c;
	f->n++;
	return 0;
}

void copies_dir_key(const char *dir, char ret_key[COPIES_DIR_KEY_SIZE])
{
	snprintf(ret_key, COPIES_DIR_KEY_SIZE, "dir-%016llx",
		 (unsigned long long)checksum64(dir, strlen(dir)));
}

int copies_find(struct stage_io *io, const char *to, const char *what,
		struct leat_stage_copy *ret_copy)
{
	struct finding f = {.what = what, .copy = ret_copy};
	f.by_name = manifest_parse_alias(what, f.name, f.version) == 0;
	if (!f.by_name && what[0] != '/')
		return -LE_INVAL;
	char alias[2 * MANIFEST_NAME_MAX + 4];
	if (what[0] == '/')
		copies_dir_key(what, alias);
	else
		snprintf(alias, sizeof(alias), "%s@%s", f.name, f.version);
	if (store_recall_source(io->env, to, alias, f.noted) < 0)
		f.noted[0] = 0;
	TRY(copies_list(io, to, note_match, &f));
	if (f.n == 0)
		return -LE_NOENT;
	return f.n == 1 || what[0] == '/' ? 0 : -LE_EXIST;
}

int copies_open(struct stage_io *io, const char *to, const char *what, struct leat_stage_copy *c,
		struct local_store *s)
{
	TRY(copies_find(io, to, what, c));
	TRY(store_init(s, io->env, to, c->id));
	/* Without readable places the further directories are unknown; the copy can still be
	 * removed. */
	int rc = store_load_places(s, (uint32_t)c->files);
	return rc == -LE_CORRUPT ? 0 : rc;
}

int copies_evict_locked(struct local_store *s)
{
	struct store_note n = {.state = LEAT_COPY_EVICTING, .off = UINT64_MAX};
	struct store_note before;
	bool had = store_get_note(s, &before);
	store_set_note(s, &n);
	int rc = store_remove(s);
	if (rc == 0)
		store_event(s, "GONE", "");
	else if (rc == -LE_BUSY && had)
		store_set_note(s, &before);
	return rc;
}

int copies_evict(struct stage_io *io, const char *to, const char *what)
{
	struct leat_stage_copy *c = malloc(sizeof(*c));
	struct local_store s;
	if (!c)
		return -LE_NOMEM;
	int rc = copies_open(io, to, what, c, &s);
	free(c);
	TRY(rc);
	rc = store_try_lock(&s);
	if (rc == 0)
		rc = copies_evict_locked(&s);
	store_fini(&s);
	return rc;
}

/* The lease prevents removal from here on. The copy may have been removed after copies_find. */
static int pin(struct local_store *s, const struct leat_stage_copy *c)
{
	bool whole = c->state == LEAT_COPY_READY || c->state == LEAT_COPY_STALE;
	int fd = store_lease(s);
	if (fd < 0)
		return fd;
	int rc = whole && !store_is_ready(s) ? -LE_NOENT : store_set_mark(s, "pin", true);
	close(fd);
	return rc;
}

int copies_mark(struct stage_io *io, const char *to, const char *what, enum copies_mark_what how,
		const struct copies_mark *mark)
{
	struct leat_stage_copy *c = malloc(sizeof(*c));
	struct local_store s;
	if (!c)
		return -LE_NOMEM;
	int rc = copies_open(io, to, what, c, &s);
	if (rc == 0) {
		switch (how) {
		case MARK_PIN:
			rc = pin(&s, c);
			break;
		case MARK_UNPIN:
			rc = store_set_mark(&s, "pin", false);
			break;
		case MARK_CANCEL:
			rc = store_is_locked(&s) ? store_set_mark(&s, "cancel", true) : -LE_NOENT;
			break;
		case MARK_LEASE:
			rc = store_lease_named(&s, mark->job, mark->ttl_s);
			break;
		case MARK_RELEASE:
			rc = store_release_named(&s, mark->job);
			break;
		}
		store_fini(&s);
	}
	free(c);
	return rc;
}

struct releasing {
	struct stage_io *io;
	const char *to, *job;
	uint32_t n;
};

static int release_one(void *arg, const struct leat_stage_copy *c)
{
	struct releasing *r = arg;
	struct local_store s;
	TRY(store_init(&s, r->io->env, r->to, c->id));
	int rc = store_release_named(&s, r->job);
	r->n += rc == 0;
	return rc == -LE_NOENT ? 0 : rc;
}

int copies_release_all(struct stage_io *io, const char *to, const char *job)
{
	struct releasing r = {io, to, job, 0};
	if (!store_name_ok(job))
		return -LE_INVAL;
	TRY(copies_list(io, to, release_one, &r));
	return r.n ? 0 : -LE_NOENT;
}

int copies_lease(struct stage_io *io, const char *to, const char *what,
		 struct leat_stage_copy *ret_copy, int *ret_fd)
{
	struct local_store s;
	TRY(copies_open(io, to, what, ret_copy, &s));
	int fd = ret_copy->state != LEAT_COPY_READY && ret_copy->state != LEAT_COPY_STALE
			 ? -LE_AGAIN
			 : store_lease(&s);
	/* It may have been evicted between copies_find and the lease. */
	if (fd >= 0 && !store_is_ready(&s)) {
		close(fd);
		fd = -LE_AGAIN;
	}
	if (fd >= 0) {
		int rc = store_set_mark(&s, "used", true);
		(void)rc; /* where this process may not write, no other one can evict */
		*ret_fd = fd;
	}
	store_fini(&s);
	return fd < 0 ? fd : 0;
}

