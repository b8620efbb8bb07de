/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staging archives unpacked. The copy of the archives (A) is made like any other. It is then the
 * source of a second copy (B): an ordinary copy of the volume that unpack.h makes of A, so that
 * resuming, admission, leases and verification work as always. B's id is unknown before that;
 * sources/ notes it for "unpacked-A".
 *   1. If B is READY already, A is not needed.
 *   2. Lock A until B is READY, since the files unpacked beside A belong to one job. A job that has
 *      waited for the lock checks for B again.
 *   3. Make A, and reserve space for B too: members are no larger than their archives.
 *   4. Unpack compressed archives beside A. Make B's manifest from the headers and from data that
 *      is verified against A's manifest.
 *   5. Make B. Store A's manifest beside it (B/from), which says whether B could be made again.
 *   6. Remove A, unless another job has requested it.
 * If the process is killed at any moment, the next call continues A and B.
 */
#include "client/stage/in/stage_unpack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/dataset/manifest_file.h"
#include "client/dataset/manifest_make.h"
#include "client/dataset/scan_list.h"
#include "client/stage/in/admission.h"
#include "client/stage/in/stage_copy.h"
#include "client/stage/in/stage_rights.h"
#include "client/stage/in/unpack.h"
#include "client/stage/job/job.h"
#include "client/stage/job/left_out.h"
#include "client/stage/store/copies.h"
#include "client/stage/store/store_lock.h"
#include "client/stage/store/store_marks.h"
#include "client/stage/store/store_places.h"
#include "client/stage/store/store_ready.h"
#include "client/stage/store/store_remove.h"
#include "client/stage/store/store_sources.h"

#define SUFFIX ".unpacked"

struct unpacking {
	struct stage_job *a, *b;
	struct unpack *u;
	char key[16 + MANIFEST_ID_SIZE];
	char source[4096 + 16]; /* the name of b's source */
	bool whole;             /* a is READY and locked */
};

/* ---- the name of B ---- */

static int name_it(struct unpacking *x)
{
	const struct manifest *m = x->a->m;
	snprintf(x->key, sizeof(x->key), "unpacked-%s", m->id);
	if (x->a->o.source[0] == '/' || !m->name[0]) {
		snprintf(x->source, sizeof(x->source), "unpacked:%s", m->source);
		return 0;
	}
	if (strlen(m->version) + strlen(SUFFIX) > MANIFEST_NAME_MAX) {
		stage_fail(x->a,
			   detail_set(&x->a->d, -LE_INVAL, x->a->o.source, UINT64_MAX,
				      "its version is too long for " SUFFIX " behind it"),
			   LEAT_STAGE_USAGE);
		return x->a->rc;
	}
	snprintf(x->source, sizeof(x->source), "%s@%s" SUFFIX, m->name, m->version);
	return 0;
}

static void name_manifest(struct unpacking *x)
{
	const struct manifest *a = x->a->m;
	struct manifest *m = x->b->m;
	snprintf(m->source, sizeof(m->source), "unpacked:%.4000s", a->source);
	if (strncmp(x->source, "unpacked:", 9) == 0)
		return;
	memcpy(m->name, a->name, sizeof(m->name));
	snprintf(m->version, sizeof(m->version), "%.*s" SUFFIX,
		 (int)(MANIFEST_NAME_MAX - strlen(SUFFIX)), a->version);
}

/* ---- B of an earlier run ---- */

/* Loads the manifest that was made of these archives before, if any. *ret_ready: that copy is
 * READY. */
static void look_before(struct unpacking *x, bool *ret_ready)
{
	char id[MANIFEST_ID_SIZE];
	struct detail ignored = {0};
	struct stage_job *b = x->b;
	struct local_store *s = malloc(sizeof(*s));
	bool found = s && store_recall_source(b->io.env, b->o.to, x->key, id) == 0 &&
		     store_init(s, b->io.env, b->o.to, id) == 0;
	*ret_ready = false;
	manifest_destroy(b->m);
	b->m = NULL;
	if (found)
		found = manifest_load(b->io.local, s->dir, &b->m, &ignored) == 0;
	if (found) {
		*ret_ready = store_is_ready(s) && store_load_places(s, b->m->n_files) == 0 &&
			     store_looks_whole(s, b->m);
		store_fini(s);
	}
	free(s);
}

/* ---- B's manifest ---- */

static void on_bytes(void *arg, uint64_t bytes)
{
	struct unpacking *x = arg;
	stage_report(x->b, "unpack", bytes, unpack_scan(x->u)->bytes, 0);
}

/* Checks the size before all is read: links among members can make it arbitrarily large. */
static int check_size(struct unpacking *x)
{
	struct stage_job *b = x->b;
	uint64_t need = unpack_scan(x->u)->bytes, space = stage_free_bytes(b->o.to, b->o.more_dirs);
	if (b->o.capacity && b->o.capacity < space)
		space = b->o.capacity;
	/* Present and evictable bytes count too, so an uncertain case is left to admission. */
	if (need <= space || need <= x->a->m->bytes)
		return 0;
	b->r->bytes_missing = need - space;
	stage_fail(b,
		   detail_set(&b->d, -LE_NOSPC, b->o.to, UINT64_MAX,
			      "%llu bytes more are needed: free some, or evict a copy",
			      (unsigned long long)(need - space)),
		   LEAT_STAGE_NO_CAPACITY);
	return b->rc;
}

static int make_manifest(struct unpacking *x)
{
	struct stage_job *b = x->b;
	struct progress p = {on_bytes, x, &b->stop};
	TRY(check_size(x));
	TRY(manifest_make_from(unpack_vol(x->u), UNPACK_ROOT, unpack_scan(x->u), &b->m, &p, &b->d));
	/* Archives do not always contain entries for their folders. */
	TRY(manifest_fill_dirs(b->m, &x->a->m->dirs[0]));
	manifest_finish(b->m);
	name_manifest(x);
	return store_note_source(b->io.env, b->o.to, x->key, b->m->id);
}

/* ---- the steps ---- */

static int create_inner(struct unpacking *x)
{
	struct leat_stage_options o = x->a->o;
	o.source = x->source;
	o.unpack = 0;
	o.order = NULL;
	o.format = NULL;
	o.first_window = o.max_rate = 0;
	TRY(stage_job_create(&o, &x->b));
	x->b->io = x->a->io;
	x->b->pool = x->a->pool;
	x->b->throttle = &x->b->own_throttle;
	x->b->start_us = x->a->start_us;
	/* A user cancels the copy of the archives, which is the locked one; this job ends with
	 * it. */
	x->b->outer = x->a;
	x->b->made_of = x->a->m;
	x->b->age_us = x->a->age_us;
	x->b->name_rate = x->a->name_rate;
	x->b->copying = "unpack";
	return 0;
}

static void on_packed(void *arg, uint64_t bytes)
{
	struct unpacking *x = arg;
	stage_report(x->b, "unpack", bytes, x->a->m->bytes, 0);
}

/* Limits the bytes that compressed archives may unpack to. They are on the disk twice until B is
 * made. */
static uint64_t space_for_plain(const struct unpacking *x)
{
	const struct leat_stage_options *o = &x->a->o;
	uint64_t space = stage_free_bytes(o->to, o->more_dirs);
	if (o->capacity && o->capacity < space)
		space = o->capacity;
	/* With eviction, the space for B can be made free. */
	return o->evict ? space : space / 2;
}

static int code_of_unpack(const struct stage_job *a, int rc)
{
	switch (rc) {
	case -LE_NOTSUP:
	case -LE_NOENT:
		return LEAT_STAGE_USAGE;
	case -LE_CORRUPT:
		return strstr(a->d.what, "local copy") ? LEAT_STAGE_LOCAL_CORRUPT
						       : LEAT_STAGE_SOURCE_CORRUPT;
	case -LE_CANCELED:
		return LEAT_STAGE_CANCELLED;
	case -LE_NOSPC:
	case -LE_DQUOT:
		return LEAT_STAGE_NO_CAPACITY;
	default:
		return LEAT_STAGE_INTERNAL;
	}
}

/* Makes A READY and locked, and opens the volume over it. */
static int open_archives(struct unpacking *x)
{
	struct stage_job *a = x->a;
	a->extra_bytes = a->m->bytes;
	TRY(stage_copy_locked(a));
	x->whole = true;
	struct unpack_options uo = {
		.cancel = &a->stop, .space = space_for_plain(x), .report = on_packed, .arg = x};
	int rc = unpack_create(&a->store, a->m, &uo, &x->u, &a->d);
	if (rc < 0)
		stage_fail(a, rc, code_of_unpack(a, rc));
	return rc;
}

/* If blocks of A are damaged, reports the local copy rather than the source. */
static void blame(struct unpacking *x, int *rc)
{
	uint64_t off;
	const char *path = x->u ? unpack_damaged(x->u, &off) : NULL;
	if (!path)
		return;
	x->b->d.rc = 0;
	*rc = detail_set(&x->b->d, -LE_CORRUPT, path, off,
			 "the local copy is damaged: `leat stage verify %.12s`", x->a->m->id);
	x->b->r->code = LEAT_STAGE_LOCAL_CORRUPT;
	x->b->rc = *rc;
}

static int make_unpacked(struct unpacking *x)
{
	struct stage_job *b = x->b;
	int rc = 0;
	b->reached = x->a->reached;
	stage_watch_begin(b);
	if (x->u) {
		b->source_vol = unpack_vol(x->u);
		b->source_root = UNPACK_ROOT;
	}
	b->rights_known = x->a->rights_known;
	if (!b->m)
		rc = make_manifest(x);
	if (rc == 0) {
		memcpy(b->r->id, b->m->id, sizeof(b->r->id));
		b->r->files = b->m->n_files;
		b->r->bytes = b->m->bytes;
		rc = stage_copy(b);
	}
	stage_watch_end(b);
	if (rc < 0)
		blame(x, &rc);
	stage_finish(b, rc);
	return b->rc;
}

/* Opens and locks A as a killed job has left it. -LE_NOENT: there is none. */
static int lock_rest(struct stage_job *a)
{
	TRY(store_init(&a->store, a->io.env, a->o.to, a->m->id));
	a->store_open = true;
	return store_has_mark(&a->store, "unpack", NULL) ? store_try_lock(&a->store) : -LE_NOENT;
}

/* Removes A if it was made only for unpacking; if A is removed already, removes its lock file. */
static void drop_archives(struct unpacking *x)
{
	struct stage_job *a = x->a;
	struct local_store *s = &a->store;
	struct stat st;
	int rc = a->store_open ? 0 : lock_rest(a);
	if (rc == 0 && !x->whole)
		rc = store_load_places(s, a->m->n_files);
	/* Another job may have requested the archives meanwhile. */
	if (rc == 0 && store_has_mark(s, "unpack", NULL))
		rc = copies_evict_locked(s);
	else if (rc == 0 && env_stat(s->env, s->dir, &st) == -LE_NOENT)
		rc = store_remove(s);
	(void)rc; /* A is in use: a later eviction can remove it */
}

static void tell(struct unpacking *x)
{
	struct leat_stage_result *r = x->a->r;
	const struct leat_stage_result *b = x->b->r;
	memcpy(r->id, b->id, sizeof(r->id));
	memcpy(r->path, b->path, sizeof(r->path));
	r->files = b->files;
	r->bytes = b->bytes;
	r->bytes_verified = b->bytes_verified;
	if (b->bytes_missing)
		r->bytes_missing = b->bytes_missing;
	if (x->u)
		stage_add_left(r, unpack_scan(x->u));
	if (x->b->rc < 0) {
		x->a->d = x->b->d;
		stage_fail(x->a, x->b->rc, b->code);
	} else if (x->a->rc == 0) {
		stage_reached(x->b, LEAT_STAGE_STREAMABLE);
	}
}

static int run(struct unpacking *x)
{
	bool ready = false;
	TRY(create_inner(x));
	/* The lease is for B; A is to be removed. */
	x->a->o.lease = NULL;
	TRY(name_it(x));
	look_before(x, &ready);
	if (!ready) {
		TRY(stage_lock(x->a));
		look_before(x, &ready);
	}
	if (!ready)
		TRY(open_archives(x));
	/* A exists all this time, so its rights must follow the source too. */
	if (x->whole)
		stage_age_begin(x->a);
	int rc = make_unpacked(x);
	if (x->whole)
		stage_age_end(x->a);
	if (rc == 0)
		drop_archives(x);
	tell(x);
	return rc;
}

int stage_unpack(struct stage_job *job)
{
	struct unpacking *x = calloc(1, sizeof(*x));
	if (!x)
		return -LE_NOMEM;
	x->a = job;
	int rc = run(x);
	unpack_destroy(x->u);
	/* Unlock first, so that stage_finish does not record B's outcome as A's. */
	if (x->whole)
		store_unlock(&job->store);
	if (x->b)
		stage_job_destroy(x->b);
	free(x);
	return rc;
}
