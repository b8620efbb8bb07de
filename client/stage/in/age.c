/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/in/age.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/dataset/manifest_file.h"
#include "client/leat_impl.h"
#include "client/stage/in/source_rights.h"
#include "client/stage/in/unpack.h"
#include "client/stage/in/unpack_rights.h"
#include "client/stage/store/stamps.h"
#include "client/stage/store/store_lock.h"
#include "client/stage/store/store_marks.h"
#include "client/stage/store/store_places.h"
#include "client/stage/store/store_ready.h"
#include "client/stage/store/store_remove.h"

#define LOOKS_MAX 5
#define FILE_MAX  (16ULL << 30)

struct aging {
	const struct age_options *o;
	struct manifest *m;
	struct manifest *origin; /* manifest of the archives; NULL: the copy is not unpacked */
	struct rows had;
	struct grants grants;
	int64_t noted_ns;
};

/* ---- the copy ---- */

struct reading {
	char *text, *sums;
	size_t len, sums_len;
	struct manifest *m;
	int rc;
};

static void decode_worker(void *arg)
{
	struct reading *r = arg;
	struct detail *ignored = calloc(1, sizeof(*ignored));
	r->rc = ignored ? manifest_decode(r->text, r->len, r->sums, r->sums_len, &r->m, ignored)
			: -LE_NOMEM;
	free(ignored);
}

/* On a worker, since decoding a large manifest would block the loop. */
static int load(struct aging *x, const char *below, struct manifest **ret_manifest)
{
	struct reading r = {0};
	char path[STORE_PATH_SIZE];
	int rc = snprintf(path, sizeof(path), "%s/%smanifest", x->o->s->dir, below) <
				 (int)sizeof(path)
			 ? vol_read_file(x->o->io->local, path, FILE_MAX, &r.text, &r.len)
			 : -LE_NAMETOOLONG;
	if (rc == 0) {
		snprintf(path, sizeof(path), "%.4000s/%ssums", x->o->s->dir, below);
		rc = vol_read_file(x->o->io->local, path, FILE_MAX, &r.sums, &r.sums_len);
	}
	if (rc == 0)
		rc = env_offload(x->o->io->env, decode_worker, &r);
	if (rc == 0)
		rc = r.rc;
	free(r.text);
	free(r.sums);
	if (rc == 0)
		*ret_manifest = r.m;
	return rc;
}

static int load_all(struct aging *x)
{
	x->noted_ns = grant_note_ns(x->o->s);
	TRY(load(x, "", &x->m));
	if (strcmp(x->m->id, x->o->s->id) != 0)
		return -LE_CORRUPT;
	int rc = load(x, "from/", &x->origin);
	if (rc < 0 && rc != -LE_NOENT)
		return rc;
	return rows_take(x->m, &x->had);
}

/* Returns the volume of the source. NULL: it is in a cluster that this process cannot reach. */
static struct vol *source_of(const struct aging *x)
{
	const struct stage_io *io = x->o->io;
	const struct manifest *m = x->origin ? x->origin : x->m;
	if (uuid_is_zero(&m->cluster))
		return io->local;
	const struct uuid here = io->fs ? ll_cluster(io->fs->client) : (struct uuid){{0}};
	return io->fs && uuid_equal(&m->cluster, &here) ? io->remote : NULL;
}

/* ---- the source ---- */

static int look_once(struct aging *x, struct vol *v)
{
	struct manifest *m = x->origin ? x->origin : x->m;
	const struct source_look l = {
		.v = v, .source = m->source, .pace = x->o->pace, .arg = x->o->arg};
	struct rights *above = NULL;
	uint32_t n = 0;
	TRY(source_rights(&l, m, &above, &n));
	int rc = x->origin ? unpack_rights(x->m, x->origin) : 0;
	/* Their access lists are in the pool of the manifest that was looked up. */
	for (uint32_t i = 0; i < n && rc == 0; i++)
		rc = acl_pool_set(&x->m->acls, &above[i], above[i].acl, above[i].acl_len);
	if (rc == 0)
		rc = grants_make(x->m, above, n, &x->grants);
	free(above);
	return rc;
}

/* Returns 1 if the source grants something else than the copy. */
static int look(struct aging *x, struct vol *v)
{
	uint64_t before = 0;
	for (int i = 0; i < LOOKS_MAX; i++) {
		TRY(look_once(x, v));
		if (grant_is_so(x->o->s, x->m, &x->grants))
			return 0;
		uint64_t now = grant_sum(x->m, &x->grants);
		if (i > 0 && now == before)
			return 1;
		before = now;
	}
	return -LE_AGAIN;
}

/* ---- granting ---- */

static int take(struct manifest *m, struct rights *to, const struct rights *from)
{
	struct rights r = *from;
	TRY(acl_pool_set(&m->acls, &r, from->acl, from->acl_len));
	*to = r;
	return 0;
}

/* Gives the new rights to the job, which applies them to the files that it finishes from here
 * on. */
static int update_job(const struct aging *x)
{
	struct manifest *m = x->o->m;
	struct grants g = x->grants;
	if (!m)
		return 0;
	if (m->n_files != x->m->n_files || m->n_dirs != x->m->n_dirs)
		return -LE_CORRUPT;
	for (uint32_t i = 0; i < m->n_files; i++)
		TRY(take(m, &m->files[i].rights, &x->m->files[i].rights));
	for (uint32_t i = 0; i < m->n_dirs; i++)
		TRY(take(m, &m->dirs[i].rights, &x->m->dirs[i].rights));
	TRY(take(m, &g.top, &x->grants.top));
	TRY(take(m, &g.meta, &x->grants.meta));
	g.n_narrowed = x->o->grants->n_narrowed;
	g.stop = x->o->grants->stop;
	*x->o->grants = g;
	return 0;
}

static int grant_locked(struct aging *x)
{
	const struct regrant r = {.s = x->o->s,
				  .m = x->m,
				  .had = &x->had,
				  .origin = x->origin,
				  .coming = x->o->m != NULL};
	x->grants.stop = x->o->stop;
	TRY(update_job(x));
	TRY(grant_again(&r, &x->grants));
	store_event(x->o->s, "RIGHTS", "");
	return 1;
}

static int lock_and_grant(struct aging *x)
{
	struct local_store *s = x->o->s;
	char path[STORE_PATH_SIZE];
	struct stat st;
	if (x->o->m)
		return grant_locked(x);
	TRY(store_try_lock(s));
	if (snprintf(path, sizeof(path), "%s/manifest", s->dir) >= (int)sizeof(path))
		return -LE_NAMETOOLONG;
	/* The copy may have been evicted, or another process may have granted rights meanwhile. */
	int rc = env_stat(s->env, path, &st);
	if (rc == -LE_NOENT && env_stat(s->env, s->dir, &st) == -LE_NOENT) {
		int gone = store_remove(s); /* removes the lock file that store_try_lock has just
					     * made */
		(void)gone;
	}
	if (rc == 0 && grant_note_ns(s) != x->noted_ns)
		rc = -LE_BUSY;
	if (rc == 0)
		rc = store_load_places(s, x->m->n_files);
	if (rc == 0)
		rc = stamps_load(s, x->m->n_files);
	if (rc == 0 && !store_is_ready(s))
		rc = store_load_share(s, x->m->n_files);
	if (rc == 0)
		rc = grant_locked(x);
	store_unlock(s);
	return rc;
}

int age_copy(const struct age_options *o)
{
	struct aging *x = calloc(1, sizeof(*x));
	if (!x)
		return -LE_NOMEM;
	x->o = o;
	int rc = load_all(x);
	struct vol *v = rc == 0 ? source_of(x) : NULL;
	if (v)
		rc = look(x, v);
	if (rc == 1)
		rc = lock_and_grant(x);
	rows_fini(&x->had);
	manifest_destroy(x->m);
	manifest_destroy(x->origin);
	free(x);
	return rc;
}
