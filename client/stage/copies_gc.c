/*
 * Makes room: candidates by how little they are missed (what a crash has left of a removal,
 * failures and partial ones, stale ones, then the least recently used), removed until there is
 * enough. Never one that is leased, pinned, being made, or whose source is not there as it was:
 * that would be the last copy of it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/stage/copies.h"
#include "client/stage/manifest.h"

struct candidate {
	char id[MANIFEST_ID_SIZE];
	int state;
	int64_t used_s;
	uint64_t bytes;
};

struct candidates {
	struct candidate *c;
	size_t n, cap;
	const char *keep;
	uint64_t total;
};

static bool is_being_made(int state)
{
	return state == LEAT_COPY_PLANNED || state == LEAT_COPY_RESERVED ||
	       state == LEAT_COPY_STAGING || state == LEAT_COPY_STREAMABLE;
}

static int note_candidate(void *arg, const struct leat_stage_copy *c)
{
	struct candidates *l = arg;
	l->total += c->bytes_verified;
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
	*x = (struct candidate){.state = c->state, .used_s = c->used_s, .bytes = c->bytes_verified};
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
	char path[8192];
	for (uint32_t i = 0; i < m->n_files; i++) {
		struct vol_stat st;
		const struct manifest_file *f = &m->files[i];
		snprintf(path, sizeof(path), "%s/%s", m->source, f->path);
		if (strlen(path) >= 4096 || vol_stat(v, path, &st) < 0 || st.size != f->size ||
		    st.mtime_ns != f->mtime_ns)
			return false;
	}
	return true;
}

/* Could it be made again? */
static bool is_recoverable(struct stage_io *io, const char *to, const struct candidate *c)
{
	struct local_store s;
	struct manifest *m;
	struct detail ignored = {0};
	/* What is not whole holds nothing that anybody could have used. */
	if (c->state == LEAT_COPY_EVICTING)
		return true;
	if (store_init(&s, io->env, to, c->id) < 0)
		return false;
	if (manifest_load(io->local, s.dir, &m, &ignored) < 0)
		return false;
	bool there = source_is_in(io->local, m) || (io->remote && source_is_in(io->remote, m));
	manifest_destroy(m);
	return there;
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
		if (g->each)
			g->each(g->arg, copy);
	}
	free(copy);
	/* Taken into use, or gone, meanwhile. */
	return rc == -LE_BUSY || rc == -LE_NOENT ? 0 : rc;
}

int copies_gc(struct stage_io *io, const char *to, struct gc_options *g)
{
	struct candidates l = {.keep = g->keep};
	g->bytes_removed = 0;
	int rc = copies_list(io, to, note_candidate, &l);
	if (l.n)
		qsort(l.c, l.n, sizeof(*l.c), by_use);
	uint64_t over = g->capacity && l.total > g->capacity ? l.total - g->capacity : 0;
	uint64_t want = over > g->bytes_missing ? over : g->bytes_missing;
	for (size_t i = 0; i < l.n && rc == 0; i++) {
		bool rest = l.c[i].state == LEAT_COPY_EVICTING;
		if ((rest || g->bytes_removed < want) && is_recoverable(io, to, &l.c[i]))
			rc = remove_one(io, to, &l.c[i], g);
	}
	free(l.c);
	return rc;
}
