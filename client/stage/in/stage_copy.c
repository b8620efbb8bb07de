/* SPDX-License-Identifier: Apache-2.0 */
#include "client/stage/in/stage_copy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/dataset/manifest_file.h"
#include "client/leat_impl.h"
#include "client/stage/fetch/fetch.h"
#include "client/stage/fetch/fetch_verify.h"
#include "client/stage/in/admission.h"
#include "client/stage/in/stage_alias.h"
#include "client/stage/in/stage_order.h"
#include "client/stage/in/stage_rights.h"
#include "client/stage/in/stage_samples.h"
#include "client/stage/job/job.h"
#include "client/stage/store/inode_index.h"
#include "client/stage/store/stamps.h"
#include "client/stage/store/store_leases.h"
#include "client/stage/store/store_lock.h"
#include "client/stage/store/store_marks.h"
#include "client/stage/store/store_places.h"
#include "client/stage/store/store_ready.h"
#include "client/stage/store/store_tree.h"
#include "common/rt/fiber.h"

#define WAIT_US 50000u /* poll interval of a lock that another process holds */

/* ---- the lock ---- */

/* The bytes that the process making the copy has verified so far. */
static uint64_t bytes_of_others(struct stage_job *job)
{
	char path[STORE_PATH_SIZE], *data;
	size_t len;
	uint64_t chunks = 0;
	snprintf(path, sizeof(path), "%.4000s/bitmap", job->store.dir);
	if (env_read_file(job->io.env, path, 1u << 30, &data, &len) < 0)
		return 0;
	for (size_t i = 16; i < len; i++)
		chunks += (uint64_t)__builtin_popcount((uint8_t)data[i]);
	free(data);
	uint64_t bytes = chunks * MANIFEST_CHUNK;
	return bytes < job->r->bytes ? bytes : job->r->bytes;
}

static int lock_store(struct stage_job *job)
{
	for (uint32_t tries = 0;; tries++) {
		int rc = store_try_lock(&job->store);
		if (rc == 0)
			return 0;
		if (rc != -LE_BUSY) {
			stage_fail(job,
				   detail_set(&job->d, rc, job->store.base, UINT64_MAX,
					      "cannot keep copies here: %s", status_text(rc)),
				   rc == -LE_ACCES || rc == -LE_ROFS ? LEAT_STAGE_PERMISSION
								     : LEAT_STAGE_INTERNAL);
			return rc;
		}
		if (tries % 4 == 0)
			stage_report(job, "wait", bytes_of_others(job), job->r->bytes, 0);
		if (store_has_mark(&job->store, "window", NULL))
			stage_reached(job, LEAT_STAGE_STREAMABLE);
		if (stage_cancelled(job)) {
			detail_set(&job->d, job->rc, job->store.dir, UINT64_MAX,
				   "another process is still making this copy");
			return job->rc;
		}
		rc = fiber_sleep_us(WAIT_US);
		if (rc < 0)
			return rc;
	}
}

static void note(struct stage_job *job, int state)
{
	struct store_note n = {.state = state, .off = UINT64_MAX};
	store_set_note(&job->store, &n);
}

static void note_end(struct stage_job *job)
{
	struct store_note n = {.state = LEAT_COPY_PARTIAL, .off = job->d.off, .code = job->r->code};
	char fields[128];
	if (job->rc == 0)
		return;
	if (job->r->code == LEAT_STAGE_CANCELLED && job->marked)
		n.state = LEAT_COPY_CANCELLED;
	else if (job->r->code != LEAT_STAGE_CANCELLED && job->r->code != LEAT_STAGE_TIMEOUT)
		n.state = LEAT_COPY_FAILED;
	snprintf(n.path, sizeof(n.path), "%.1000s", job->d.path);
	snprintf(n.message, sizeof(n.message), "%s",
		 job->d.what[0] ? job->d.what : status_text(job->rc));
	store_set_note(&job->store, &n);
	snprintf(fields, sizeof(fields), "\"code\":%d", job->r->code);
	store_event(&job->store, leat_stage_state_text(n.state), fields);
}

/* ---- the copy ---- */

static void on_fetch(void *arg, const struct fetch_report *f)
{
	struct stage_job *job = stage_job_of(arg);
	job->r->bytes_verified = f->bytes_verified;
	/* Unpacked bytes were counted when the archives were moved. */
	job->r->bytes_source = job->source_vol ? 0 : f->bytes_source;
	job->r->bytes_peers = f->bytes_peers;
	job->r->bytes_moved = job->r->bytes_source + f->bytes_peers;
	job->source_us = f->source_us;
	stage_report(job, job->copying ? job->copying : "copy", f->bytes_verified, job->r->bytes,
		     f->files);
}

static void on_window(void *arg)
{
	struct stage_job *job = stage_job_of(arg);
	int rc = store_set_mark(&job->store, "window", true);
	if (rc == 0)
		store_event(&job->store, "STREAMABLE", "");
	stage_reached(job, LEAT_STAGE_STREAMABLE);
}

static int from_peer(void *arg, uint64_t chunk, struct slot *s, enum fetch_ask ask)
{
	struct stage_job *job = stage_job_of(arg);
	return job->from_peer(job->peer_arg, chunk, s, ask);
}

static void on_verify(void *arg, const struct fetch_report *f)
{
	struct stage_job *job = stage_job_of(arg);
	stage_report(job, "verify", f->bytes_verified, job->r->bytes, f->files);
}

static int read_back(struct stage_job *job)
{
	struct fetch_options fo = {.store = &job->store,
				   .manifest = job->m,
				   .report = on_verify,
				   .arg = job,
				   .cancel = &job->stop};
	struct fetch_report report;
	uint64_t n_bad;
	int code, rc = fetch_verify(&fo, &report, &n_bad, &code, &job->d);
	if (rc == 0 && n_bad)
		rc = -LE_CORRUPT;
	if (rc < 0) {
		int saved = store_save_bitmap(&job->store);
		(void)saved;
		stage_fail(job, rc, code);
	}
	return rc;
}

/* Lets mounts of this node find the copy. Errors are ignored: mounts can read from the servers. */
static void publish_inodes(struct stage_job *job)
{
	if (!job->io.fs || !job->inodes_known)
		return;
	struct uuid cluster = ll_cluster(job->io.fs->client);
	int rc = inode_index_publish(&job->store, job->m, &cluster, job->said_by);
	(void)rc;
}

static void is_used(struct stage_job *job)
{
	int rc = store_set_mark(&job->store, "used", true);
	if (rc == 0 && job->o.lease)
		rc = store_lease_named(&job->store, job->o.lease, job->o.ttl_s);
	if (rc < 0)
		stage_fail(job,
			   detail_set(&job->d, rc, job->store.dir, UINT64_MAX,
				      "cannot lease the copy: %s", status_text(rc)),
			   rc == -LE_INVAL ? LEAT_STAGE_USAGE : LEAT_STAGE_INTERNAL);
}

static int run_fetch(struct stage_job *job, int *ret_code)
{
	struct fetch_options fo = {.store = &job->store,
				   .manifest = job->m,
				   .had = job->had.files ? &job->had : NULL,
				   .source =
					   job->source_vol ? job->source_vol : io_source(&job->io),
				   .source_dir = job->source_vol           ? job->source_root
						 : job->o.source[0] == '/' ? job->o.source
									   : job->m->source,
				   .report = on_fetch,
				   .arg = job,
				   .cancel = &job->stop,
				   .plan = job->plan,
				   .n_plan = job->n_plan,
				   .n_window = job->n_window,
				   .window = on_window,
				   .throttle = job->throttle,
				   .turn = job->turn,
				   .pool = job->pool,
				   .transport = job->io.fs ? job->io.fs->transport : NULL,
				   .from_peer = job->from_peer ? from_peer : NULL};
	struct fetch_report report = {0};
	TRY(fetch_create(&fo, &job->d, &job->fetch));
	int rc = fetch_run(job->fetch, &report, ret_code);
	struct fetch *ft = job->fetch;
	job->fetch = NULL;
	fetch_destroy(ft);
	on_fetch(job, &report);
	job->r->narrowed += report.narrowed;
	return rc;
}

static int make_copy(struct stage_job *job)
{
	int code = LEAT_STAGE_INTERNAL, rc = store_clear_ready(&job->store);
	note(job, LEAT_COPY_STAGING);
	store_event(&job->store, "STAGING", "");
	if (rc == 0) {
		stage_age_begin(job);
		rc = run_fetch(job, &code);
		stage_age_end(job);
	}
	if (rc < 0) {
		if (job->stop)
			stage_cancelled(job);
		stage_fail(job, rc, rc == -LE_NOSPC ? LEAT_STAGE_NO_CAPACITY : code);
		return rc;
	}
	TRY(store_tree_make(&job->store, job->m, &job->d));
	if (job->o.readback)
		TRY(read_back(job));
	stage_make_samples(job);
	TRY(store_sync_manifest(&job->store));
	job->r->narrowed += job->grants.n_narrowed;
	TRY(grant_meta(&job->store, &job->grants));
	TRY(grant_note(&job->store, job->m, &job->grants));
	TRY(store_set_ready(&job->store, job->m));
	publish_inodes(job);
	TRY(store_set_mark(&job->store, "window", false));
	/* The mark may remain from a time when the name had another content. */
	TRY(store_set_mark(&job->store, "stale", false));
	note(job, job->store.share ? LEAT_COPY_SHARED : LEAT_COPY_READY);
	stage_supersede(job);
	char fields[160];
	snprintf(fields, sizeof(fields),
		 "\"bytes\":%" PRIu64 ",\"source\":%" PRIu64 ",\"peers\":%" PRIu64, job->r->bytes,
		 job->r->bytes_source, job->r->bytes_peers);
	store_event(&job->store, job->store.share ? "SHARED" : "READY", fields);
	stage_reached(job, LEAT_STAGE_STREAMABLE);
	return 0;
}

/* Returns whether dir has a separate copy of the same id, which keeps its files. */
static bool has_own_copy(struct stage_job *job, const char *dir)
{
	char path[STORE_PATH_SIZE];
	struct stat st;
	int n = snprintf(path, sizeof(path), "%s/.leat/%s/manifest", dir, job->m->id);
	return strcmp(dir, job->o.to) != 0 && n < (int)sizeof(path) &&
	       env_stat(job->io.env, path, &st) == 0;
}

static int open_store(struct stage_job *job)
{
	TRY(store_init(&job->store, job->io.env, job->o.to, job->m->id));
	job->old_mark_ns = store_mark_ns(&job->store, "cancel");
	job->store_open = true;
	snprintf(job->r->path, sizeof(job->r->path), "%.4000s/data", job->store.dir);
	for (uint32_t i = 0; job->o.more_dirs && job->o.more_dirs[i]; i++) {
		const char *dir = job->o.more_dirs[i];
		TRY(env_mkdirs(job->io.env, dir, 0755));
		if (!has_own_copy(job, dir))
			TRY(store_add_dir(&job->store, dir));
	}
	return 0;
}

/* Refuses a folder that holds a part of another copy: this job would take the files away from
 * it. */
static int refuse_part(struct stage_job *job)
{
	char *home = malloc(STORE_PATH_SIZE);
	struct stat st;
	int rc = home ? store_home(&job->store, home) : -LE_NOMEM;
	if (rc == 0 && env_stat(job->io.env, home, &st) == 0) {
		rc = detail_set(&job->d, -LE_EXIST, job->o.to, UINT64_MAX,
				"it holds a part of the copy in %.200s", home);
		stage_fail(job, rc, LEAT_STAGE_USAGE);
	} else if (rc == 0) {
		/* The other copy is removed: its files become part of this one, and are
		 * verified. */
		rc = snprintf(home, STORE_PATH_SIZE, "%.4000s/home", job->store.dir) < 0
			     ? -LE_INVAL
			     : env_unlink(job->io.env, home);
	} else if (rc == -LE_NOENT) {
		rc = 0;
	}
	free(home);
	return rc;
}

/* Marks a copy of archives that was made only for unpacking; it is removed afterwards. */
static int note_purpose(struct stage_job *job, bool ready)
{
	if (!job->o.unpack)
		return store_set_mark(&job->store, "unpack", false);
	return ready ? 0 : store_set_mark(&job->store, "unpack", true);
}

static int is_done(struct stage_job *job)
{
	TRY(note_purpose(job, true));
	job->r->bytes_verified = job->r->bytes;
	stage_make_samples(job);
	TRY(grant_meta(&job->store, &job->grants));
	job->r->narrowed = job->grants.n_narrowed;
	bool news = stage_alias_is_new(job) || store_has_mark(&job->store, "stale", NULL);
	publish_inodes(job);
	/* Search for previous copies only if this copy has just taken over the name. */
	if (news && store_set_mark(&job->store, "stale", false) == 0)
		stage_supersede(job);
	is_used(job);
	stage_report(job, "copy", job->r->bytes, job->r->bytes, job->r->files);
	stage_reached(job, LEAT_STAGE_STREAMABLE);
	return job->rc;
}

/* Sets the share of this node: its own files, and those of a previous share that it holds. */
static int take_share(struct stage_job *job)
{
	struct local_store *s = &job->store;
	uint32_t n = job->m->n_files, missing = 0;
	TRY(store_load_share(s, n));
	uint8_t *before = s->share;
	s->share = NULL;
	if (job->share) {
		s->share = calloc(1, n / 8 + 1);
		s->n_share = n;
	}
	for (uint32_t i = 0; s->share && i < n; i++) {
		bool had = before && (before[i / 8] >> (i % 8) & 1);
		bool has = share_has(job->share, i, job->node);
		s->share[i / 8] |= (uint8_t)((had || has) << (i % 8));
		missing += has && !had;
	}
	bool news = job->share ? !before || missing : before != NULL;
	free(before);
	if (job->share && !s->share)
		return -LE_NOMEM;
	stage_count(job);
	if (!news)
		return 0;
	/* Remove the marks first: the copy is not complete by the new share. */
	TRY(store_clear_ready(s));
	return store_save_share(s);
}

/* Stores the manifest of the archives, by which eviction checks that the source still exists. */
static int store_origin(struct stage_job *job)
{
	char path[STORE_PATH_SIZE];
	if (!job->made_of)
		return 0;
	snprintf(path, sizeof(path), "%.4000s/from", job->store.dir);
	TRY(env_mkdirs(job->io.env, path, 0755));
	return manifest_store(job->io.local, path, job->made_of);
}

/* *ret_whole stays true if nothing is to be fetched and the rights are those of the source. */
static int is_whole(struct stage_job *job, bool *ret_whole)
{
	int rc = *ret_whole ? stage_grant_ready(job) : 0;
	*ret_whole = *ret_whole && rc == 0;
	return rc == -LE_STALE ? 0 : rc;
}

/* Removes temporary files of killed processes. The lock excludes other writers. */
static void remove_leftovers(struct stage_job *job)
{
	static const char *const folders[] = {"", "/from", "/named"};
	char path[STORE_PATH_SIZE];
	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		snprintf(path, sizeof(path), "%.4000s%s", job->store.dir, folders[i]);
		int rc = vol_remove_tmp(job->io.local, path);
		(void)rc; /* they disturb no process */
	}
}

static int stage_locked(struct stage_job *job)
{
	remove_leftovers(job);
	TRY(refuse_part(job));
	TRY(store_load_places(&job->store, job->m->n_files));
	TRY(stamps_load(&job->store, job->m->n_files));
	TRY(stage_take_rights(job));
	bool whole = store_is_ready(&job->store) && store_looks_whole(&job->store, job->m);
	TRY(is_whole(job, &whole));
	if (whole)
		return is_done(job);
	TRY(store_make_dirs(&job->store));
	TRY(take_share(job));
	whole = job->store.share && store_is_shared(&job->store) &&
		store_looks_whole(&job->store, job->m);
	TRY(is_whole(job, &whole));
	if (whole)
		return is_done(job);
	TRY(store_set_mark(&job->store, "cancel", false));
	/* The order may have changed since the last run. */
	TRY(store_set_mark(&job->store, "window", false));
	TRY(note_purpose(job, false));
	note(job, LEAT_COPY_PLANNED);
	is_used(job);
	if (job->rc)
		return job->rc;
	TRY(store_load_bitmap(&job->store, job->m));
	/* Stored early, so that a listing of copies can name it; durable before READY. */
	TRY(manifest_store(job->io.soft, job->store.dir, job->m));
	TRY(store_origin(job));
	TRY(grant_note_drop(&job->store));
	job->grants.had = job->had.files ? &job->had : NULL;
	TRY(grant_tree(&job->store, job->m, &job->grants));
	if (!job->grants.n_wrong)
		TRY(grant_note(&job->store, job->m, &job->grants));
	TRY(stage_order(job));
	TRY(stage_admit(job));
	note(job, LEAT_COPY_RESERVED);
	store_event(&job->store, "RESERVED", "");
	stage_reached(job, LEAT_STAGE_RESERVED);
	return make_copy(job);
}

int stage_lock(struct stage_job *job)
{
	TRY(open_store(job));
	return lock_store(job);
}

int stage_copy_locked(struct stage_job *job)
{
	TRY(share_make(job->m, job->placement, job->copies, job->n_nodes, job->place_capacity,
		       &job->share));
	if (job->began)
		TRY(job->began(job->peer_arg, job));
	return stage_locked(job);
}

int stage_copy(struct stage_job *job)
{
	TRY(stage_lock(job));
	return stage_copy_locked(job);
}

void stage_finish(struct stage_job *job, int rc)
{
	if (rc < 0) {
		int code =
			rc == -LE_NOSPC ? LEAT_STAGE_NO_CAPACITY
			: rc == -LE_ACCES || rc == -LE_PERM || rc == -LE_FOREIGN || rc == -LE_ROFS
				? LEAT_STAGE_PERMISSION
				: LEAT_STAGE_INTERNAL;
		if (job->stop)
			stage_cancelled(job);
		detail_set(&job->d, rc, job->o.to, UINT64_MAX, "%s", status_text(rc));
		stage_fail(job, rc, code);
	}
	stage_refused(job);
	if (job->store_open && job->store.lock_fd >= 0)
		note_end(job);
	if (job->store_open)
		store_fini(&job->store);
	job->store_open = false;
}
