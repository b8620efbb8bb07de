/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removes copies until enough space is free, the most dispensable ones first: removals that a
 * crash interrupted, then failed and partial copies, then stale ones, then the least recently
 * used.
 *
 * A copy that is leased, pinned or being made stays. So does a copy if its source is missing or
 * has changed, since it may be the last one of that data. The exception is a stale copy if its
 * name has a new content that is READY here and present at the source: the user has replaced the
 * old content.
 */
#include "client/stage/store/copies_gc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/dataset/manifest.h"
#include "client/dataset/manifest_file.h"
#include "client/stage/store/store_places.h"
#include "client/stage/store/store_space.h"

struct candidate {
	char id[MANIFEST_ID_SIZE];
	uint32_t dir; /* index of its directory: 0 is `to`, k is more_dirs[k - 1] */
	int state;
	int64_t used_s;
	uint64_t bytes;
};

struct candidates {
	struct stage_io *io;
	const char *to; /* the directory that is being listed */
	struct candidate *c;
	size_t n, cap;
	const char *keep;
	uint32_t dir; /* the index of `to` */
	uint64_t total;
};

static const char *dir_at(const char *to, const char *const *more, uint32_t i)
{
	return i == 0 ? to : more ? more[i - 1] : NULL;
}

static bool is_being_made(int state)
{
	return state == LEAT_COPY_PLANNED || state == LEAT_COPY_RESERVED ||
	       state == LEAT_COPY_STAGING || state == LEAT_COPY_STREAMABLE;
}

/* Loads a manifest of a copy: that of the copy itself ("") or that of the archives it was
 * unpacked from ("/from"). NULL: there is none that can be read. */
static struct manifest *manifest_of(struct stage_io *io, const char *to, const char *id,
				    const char *which)
{
	struct local_store *s = malloc(sizeof(*s));
	struct detail *ignored = calloc(1, sizeof(*ignored));
	struct manifest *m = NULL;
	if (s && ignored && store_init(s, io->env, to, id) == 0) {
		size_t len = strlen(s->dir);
		snprintf(s->dir + len, sizeof(s->dir) - len, "%s", which);
		if (manifest_load(io->local, s->dir, &m, ignored) < 0)
			m = NULL;
	}
	free(ignored);
	free(s);
	return m;
}

uint64_t copies_gc_bytes(struct stage_io *io, const char *to, const struct leat_stage_copy *c)
{
	if (c->state == LEAT_COPY_READY || c->state == LEAT_COPY_STALE ||
	    c->state == LEAT_COPY_SHARED)
		return c->bytes_data;
	struct local_store *s = malloc(sizeof(*s));
	struct manifest *m = manifest_of(io, to, c->id, "");
	uint64_t bytes = c->bytes_verified;
	if (s && store_init(s, io->env, to, c->id) == 0) {
		int rc = store_load_places(s, STORE_FILES_ANY);
		(void)rc; /* without readable places the further directories are not counted */
		bytes = store_occupied(s, m);
		store_fini(s);
	}
	manifest_destroy(m);
	free(s);
	return bytes;
}

static int note_candidate(void *arg, const struct leat_stage_copy *c)
{
	struct candidates *l = arg;
	uint64_t bytes = copies_gc_bytes(l->io, l->to, c);
	l->total += bytes;
	if (c->leased || c->pinned || is_being_made(c->state) ||
	    (l->keep && strcmp(l->keep, c->id) == 0))
		return 0;
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 16;
		struct candidate *more = realloc(l->c, cap * sizeof(*more));
		if (!more)
			return -LE_NOMEM;
		l->c = more;
		l->cap = cap;
	}
	struct candidate *x = &l->c[l->n++];
	*x = (struct candidate){
		.dir = l->dir, .state = c->state, .used_s = c->used_s, .bytes = bytes};
	memcpy(x->id, c->id, sizeof(x->id));
	return 0;
}

static int rank_of(int state)
{
	switch (state) {
	case LEAT_COPY_EVICTING:
		return 0;
	case LEAT_COPY_FAILED:
	case LEAT_COPY_CANCELLED:
	case LEAT_COPY_DEGRADED:
	case LEAT_COPY_PARTIAL:
		return 1;
	case LEAT_COPY_STALE:
		return 2;
	default:
		return 3;
	}
}

static int by_use(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;
	int d = rank_of(x->state) - rank_of(y->state);
	if (d)
		return d;
	if (x->used_s != y->used_s)
		return x->used_s < y->used_s ? -1 : 1;
	return strcmp(x->id, y->id);
}

static bool source_is_in(struct vol *v, const struct manifest *m)
{
	char path[4096];
	for (uint32_t i = 0; i < m->n_files; i++) {
		struct vol_stat st;
		const struct manifest_file *f = &m->files[i];
		if (manifest_source_path(m, f, path) < 0 || vol_stat(v, path, &st) < 0 ||
		    st.size != f->size || st.mtime_ns != f->mtime_ns)
			return false;
	}
	return true;
}

static bool source_is_there(struct stage_io *io, const char *to, const char *id)
{
	struct manifest *m = manifest_of(io, to, id, "/from");
	if (!m)
		m = manifest_of(io, to, id, "");
	bool there =
		m && (source_is_in(io->local, m) || (io->remote && source_is_in(io->remote, m)));
	manifest_destroy(m);
	return there;
}

struct successor {
	const struct manifest *m; /* of the stale copy */
	char id[MANIFEST_ID_SIZE];
};

static int note_successor(void *arg, const struct leat_stage_copy *c)
{
	struct successor *x = arg;
	const struct manifest *m = x->m;
	if (c->state != LEAT_COPY_READY || strcmp(c->id, m->id) == 0)
		return 0;
	bool same = m->name[0]
			    ? strcmp(c->name, m->name) == 0 && strcmp(c->version, m->version) == 0
			    : !c->name[0] && strcmp(c->source, m->source) == 0;
	if (same)
		memcpy(x->id, c->id, sizeof(x->id));
	return same;
}

/* Returns whether the present content of the copy's name is READY here and present at the
 * source. */
static bool is_superseded(struct stage_io *io, const char *to, const char *id)
{
	struct manifest *m = manifest_of(io, to, id, "");
	struct successor x = {.m = m};
	bool found = m && copies_list(io, to, note_successor, &x) > 0;
	manifest_destroy(m);
	return found && source_is_there(io, to, x.id);
}

/* Returns whether the copy can be made again from its source, or has been superseded. */
static bool may_go(struct stage_io *io, const char *to, const struct candidate *c)
{
	/* What an interrupted removal has left is incomplete: no process can use it. */
	if (c->state == LEAT_COPY_EVICTING)
		return true;
	return source_is_there(io, to, c->id) ||
	       (c->state == LEAT_COPY_STALE && is_superseded(io, to, c->id));
}

/* Returns whether the copy has files in one of the directories that lack space. */
static bool helps(struct stage_io *io, const char *to, const struct candidate *c,
		  const struct gc_options *g)
{
	struct local_store *s = malloc(sizeof(*s));
	char want[STORE_PATH_SIZE];
	bool found = g->lack == 0 || (g->lack >> c->dir & 1);
	if (!found && s && store_init(s, io->env, dir_at(to, g->more_dirs, c->dir), c->id) == 0) {
		/* Without readable places it is unknown whether removing it helps: assume not. */
		int rc = store_load_places(s, STORE_FILES_ANY);
		for (uint32_t k = 0; rc == 0 && k < s->n_more && !found; k++) {
			for (uint32_t i = 0; i < 32 && dir_at(to, g->more_dirs, i); i++) {
				snprintf(want, sizeof(want), "%.3900s/.leat/%s",
					 dir_at(to, g->more_dirs, i), c->id);
				found |= (g->lack >> i & 1) && strcmp(want, s->more[k]) == 0;
			}
		}
		store_fini(s);
	}
	free(s);
	return found;
}

static int remove_one(struct stage_io *io, const char *to, const struct candidate *c,
		      struct gc_options *g)
{
	struct leat_stage_copy *copy = malloc(sizeof(*copy));
	if (!copy)
		return -LE_NOMEM;
	int rc = copies_find(io, to, c->id, copy);
	if (rc == 0 && !g->dry_run)
		rc = copies_evict(io, to, c->id);
	if (rc == 0) {
		g->bytes_removed += c->bytes;
		g->n_removed++;
		if (g->each)
			g->each(g->arg, copy);
	}
	free(copy);
	/* It was leased, pinned or removed since it was listed. */
	return rc == -LE_BUSY || rc == -LE_NOENT ? 0 : rc;
}

int copies_gc(struct stage_io *io, const char *to, struct gc_options *g)
{
	struct candidates l = {.io = io, .keep = g->keep};
	int rc = 0, foreign = 0;
	g->bytes_removed = 0;
	g->n_removed = 0;
	for (; rc == 0 && (l.to = dir_at(to, g->more_dirs, l.dir)) != NULL; l.dir++)
		rc = copies_list(io, l.to, note_candidate, &l);
	if (l.n)
		qsort(l.c, l.n, sizeof(*l.c), by_use);
	uint64_t over = g->capacity && l.total > g->capacity ? l.total - g->capacity : 0;
	uint64_t want = over > g->bytes_missing ? over : g->bytes_missing;
	for (size_t i = 0; i < l.n && rc == 0; i++) {
		const char *dir = dir_at(to, g->more_dirs, l.c[i].dir);
		bool rest = l.c[i].state == LEAT_COPY_EVICTING;
		if ((rest || (g->bytes_removed < want && helps(io, to, &l.c[i], g))) &&
		    may_go(io, dir, &l.c[i]))
			rc = remove_one(io, dir, &l.c[i], g);
		/* A copy that cannot be removed because of a foreign mount or file does not stop
		 * the others. */
		foreign = rc == -LE_FOREIGN ? rc : foreign;
		rc = rc == -LE_FOREIGN ? 0 : rc;
	}
	free(l.c);
	return rc == 0 && (want == 0 || g->bytes_removed < want) ? foreign : rc;
}
