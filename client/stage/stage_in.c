/*
 * Staging in, step by step: the manifest; the lock (or wait for whoever has it); READY already?
 * done, nothing moved; is there room; fetch; sample index; READY.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/leat_impl.h"
#include "client/loader/build.h"
#include "client/stage/beneath.h"
#include "client/stage/catalog.h"
#include "client/stage/copies.h"
#include "client/stage/fetch.h"
#include "client/stage/inode_index.h"
#include "client/stage/stage.h"
#include "client/stage/stamps.h"
#include "client/stage/store_tree.h"
#include "common/rt/fiber.h"

#define WAIT_US    50000u /* between looks at a lock that another process holds */
#define SAID_TRIES 4
#define WATCH_US   100000u /* between looks at who wants the job to stop */
#define ALIAS_SIZE (2 * MANIFEST_NAME_MAX + 4)

void stage_fail(struct stage_job *job, int rc, int code)
{
	if (job->rc == 0) {
		job->rc = rc;
		job->r->code = code;
	}
}

static void look_at_callers(struct stage_job *job)
{
	const struct stage_job *outer = job->outer;
	if (outer && outer->stop) {
		job->stop = outer->stop;
		job->marked = outer->marked;
	} else if (job->o.cancel && *job->o.cancel) {
		job->stop = LEAT_STAGE_CANCELLED;
	}
}

void stage_report(struct stage_job *job, const char *phase, uint64_t bytes, uint64_t total,
		  uint64_t files)
{
	uint64_t now = env_now_us(job->io.env);
	/* Sooner than the watch would see it. */
	if (!job->stop)
		look_at_callers(job);
	if (!job->o.progress || (phase == job->phase && now < job->next_report_us && bytes < total))
		return;
	job->phase = phase;
	job->next_report_us = now + 100000;
	struct leat_stage_progress p = {.size = sizeof(p),
					.phase = phase,
					.bytes = bytes,
					.bytes_total = total,
					.bytes_moved = job->r->bytes_moved,
					.files = files,
					.files_total = job->r->files,
					.elapsed_us = now - job->start_us,
					.bytes_source = job->r->bytes_source,
					.bytes_peers = job->r->bytes_peers};
	job->o.progress(job->o.arg, &p);
}

bool stage_cancelled(struct stage_job *job)
{
	if (job->stop)
		stage_fail(job, job->stop == LEAT_STAGE_TIMEOUT ? -LE_TIMEDOUT : -LE_CANCELED,
			   job->stop);
	return job->rc != 0;
}

void stage_reached(struct stage_job *job, enum leat_stage_milestone m)
{
	/* Archives are nothing that a loader of their members could begin with. */
	if (job->o.unpack && m > LEAT_STAGE_RESERVED)
		m = LEAT_STAGE_RESERVED;
	for (uint32_t i = job->reached + 1; i <= (uint32_t)m; i++)
		if (job->o.reached)
			job->o.reached(job->o.arg, (enum leat_stage_milestone)i);
	if ((uint32_t)m > job->reached)
		job->reached = m;
}

/* ---- who wants it to stop ---- */

/* One that has been there for longer was for others, and goes when the copy is begun. */
static bool marked_anew(const struct stage_job *job)
{
	int64_t ns = job->store_open ? store_mark_ns(&job->store, "cancel") : 0;
	return ns != 0 && ns != job->old_mark_ns;
}

static void watch_fiber(void *arg)
{
	struct stage_job *job = arg;
	while (!job->ending) {
		look_at_callers(job);
		if (job->stop)
			break;
		if (marked_anew(job)) {
			job->stop = LEAT_STAGE_CANCELLED;
			job->marked = true;
		} else if (job->o.timeout_ms && env_now_us(job->io.env) - job->start_us >=
							(uint64_t)job->o.timeout_ms * 1000) {
			job->stop = LEAT_STAGE_TIMEOUT;
		}
		if (job->stop)
			break;
		int rc = fiber_sleep_us(WATCH_US);
		(void)rc;
	}
	job->watch = NULL;
	latch_done(&job->watches);
}

void stage_watch_begin(struct stage_job *job)
{
	latch_init(&job->watches, 0);
	latch_add(&job->watches, 1);
	/* Without it only the deadline of waiting is missed. */
	if (fiber_spawn("stage_watch", watch_fiber, job) < 0)
		latch_done(&job->watches);
}

void stage_watch_end(struct stage_job *job)
{
	job->ending = true;
	latch_wait(&job->watches);
}

static void on_sums(void *arg, uint64_t bytes)
{
	struct stage_job *job = arg;
	stage_report(job, "checksum", bytes, job->r->bytes, 0);
}

void stage_code_of_source(struct stage_job *job, int rc)
{
	int code = LEAT_STAGE_INTERNAL;
	if (rc == -LE_NOENT || rc == -LE_STALE || rc == -LE_NOTDIR || rc == -LE_WRONG_CLUSTER)
		code = LEAT_STAGE_SOURCE_GONE;
	else if (rc == -LE_CORRUPT)
		code = LEAT_STAGE_SOURCE_CORRUPT;
	else if (rc == -LE_ACCES || rc == -LE_PERM || rc == -LE_FOREIGN || rc == -LE_ROFS)
		code = LEAT_STAGE_PERMISSION;
	else if (rc == -LE_NOSPC || rc == -LE_DQUOT)
		code = LEAT_STAGE_NO_CAPACITY;
	else if (rc == -LE_CANCELED)
		code = LEAT_STAGE_CANCELLED;
	else if (rc == -LE_INVAL || rc == -LE_NAMETOOLONG)
		code = LEAT_STAGE_USAGE;
	stage_fail(job, rc, code);
}

/* ---- the manifest ---- */

static struct uuid cluster_of(const struct stage_job *job)
{
	return job->io.fs ? ll_cluster(job->io.fs->client) : (struct uuid){{0}};
}

/* Paths and inode numbers of another cluster mean other files here. */
static int refuse_foreign(struct stage_job *job, const char *dir)
{
	char theirs[UUID_TEXT_SIZE], ours[UUID_TEXT_SIZE] = "no cluster";
	struct uuid here = cluster_of(job);
	if (uuid_is_zero(&job->m->cluster) || uuid_equal(&job->m->cluster, &here))
		return 0;
	uuid_format(&job->m->cluster, theirs);
	if (!uuid_is_zero(&here))
		uuid_format(&here, ours);
	return detail_set(&job->d, -LE_WRONG_CLUSTER, dir, UINT64_MAX,
			  "the manifest is of another cluster, %s, and this is %s: make one here "
			  "with `leat dataset create`",
			  theirs, ours);
}

static int stat_manifest(struct vol *v, const char *dir, struct vol_stat *ret_st)
{
	char path[4096];
	if (snprintf(path, sizeof(path), "%s/manifest", dir) >= (int)sizeof(path))
		return -LE_NAMETOOLONG;
	return vol_stat(v, path, ret_st);
}

/* What it says of inodes is as good as who wrote it: one that gets the name of another while it is
 * read is not to pass for that one's. */
static int load_said(struct stage_job *job, struct vol *v, const char *dir)
{
	struct vol_stat before, after;
	for (int tries = 0; tries < SAID_TRIES; tries++) {
		int rc = stat_manifest(v, dir, &before);
		manifest_destroy(job->m);
		job->m = NULL;
		/* What is wrong with it says better who reads it. */
		TRY(manifest_load(v, dir, &job->m, &job->d));
		if (rc == 0)
			rc = stat_manifest(v, dir, &after);
		TRY(rc);
		if (before.ino == after.ino && before.ver == after.ver && before.uid == after.uid) {
			job->said_by = before.uid;
			job->inodes_known = true;
			return 0;
		}
		/* One that has just been written may be of another version once more. */
	}
	return detail_set(&job->d, -LE_STALE, dir, UINT64_MAX,
			  "its manifest was exchanged while it was read");
}

static int manifest_of_alias(struct stage_job *job)
{
	char id[MANIFEST_ID_SIZE], dir[4096];
	const char *catalog = job->o.catalog ? job->o.catalog : CATALOG_DEFAULT;
	struct vol *v = io_source(&job->io);
	int rc = catalog_find(v, catalog, job->o.source, id, dir);
	if (rc < 0)
		return detail_set(&job->d, rc, job->o.source, UINT64_MAX,
				  "there is no such data set");
	TRY(load_said(job, v, dir));
	return refuse_foreign(job, dir);
}

/* Beside a copy, or beside what was made of it by unpacking (`which` is "/from" then). */
static bool manifest_beside(struct stage_job *job, const char *key, const char *which,
			    char ret_id[MANIFEST_ID_SIZE])
{
	struct detail *ignored = calloc(1, sizeof(*ignored));
	char dir[STORE_PATH_SIZE];
	bool found = ignored && store_recall_source(job->io.env, job->o.to, key, ret_id) == 0;
	int n = found ? snprintf(dir, sizeof(dir), "%s/.leat/%s%s", job->o.to, ret_id, which) : 0;
	found = found && n < (int)sizeof(dir) &&
		manifest_load(job->io.local, dir, &job->m, ignored) == 0;
	free(ignored);
	return found;
}

/* One that was made of a directory that looked exactly like this one. */
static bool manifest_of_before(struct stage_job *job, const char *key)
{
	char id[MANIFEST_ID_SIZE] = "", unpacked[16 + MANIFEST_ID_SIZE];
	if (!job->o.to)
		return false;
	if (manifest_beside(job, key, "", id))
		return true;
	snprintf(unpacked, sizeof(unpacked), "unpacked-%s", id);
	return job->o.unpack && id[0] && manifest_beside(job, unpacked, "/from", id);
}

/* What was made before may be of other inodes with the same content. */
static void take_inodes(struct stage_job *job, const struct scan *s)
{
	bool same = job->m->n_files == s->n;
	for (uint32_t i = 0; same && i < s->n; i++) {
		struct manifest_file *f = &job->m->files[i];
		same = strcmp(f->path, s->files[i].path) == 0 && f->size == s->files[i].st.size;
		if (same) {
			f->ino = s->files[i].st.ino;
			f->born_ns = s->files[i].st.born_ns;
			f->ver = s->files[i].st.ver;
		}
	}
	job->inodes_known = same;
	for (uint32_t i = 0; i < s->n_dirs; i++) {
		int64_t k = manifest_find_dir(job->m, s->dirs[i].path);
		if (k >= 0) {
			job->m->dirs[k].ino = s->dirs[i].st.ino;
			job->m->dirs[k].born_ns = s->dirs[i].st.born_ns;
		}
	}
	/* Another directory with the same content may be the one that was staged before. */
	snprintf(job->m->source, sizeof(job->m->source), "%s", job->o.source);
	job->m->cluster = cluster_of(job);
	job->said_by = job->io.fs ? job->io.fs->cred.uid : 0;
}

static int manifest_of_dir(struct stage_job *job)
{
	struct vol *v = io_source(&job->io);
	struct scan scan;
	char key[MANIFEST_ID_SIZE];
	stage_report(job, "scan", 0, 0, 0);
	TRY(scan_tree(v, job->o.source, &scan, &job->d));
	stage_tell_left(job, &scan);
	job->r->bytes = scan.bytes;
	job->r->files = scan.n;
	manifest_scan_key(job->o.source, &scan, key);
	int rc = 0;
	if (!manifest_of_before(job, key)) {
		struct progress p = {on_sums, job, &job->stop};
		rc = manifest_make_from(v, job->o.source, &scan, &job->m, &p, &job->d);
		if (rc == 0 && job->o.to)
			rc = store_note_source(job->io.env, job->o.to, key, job->m->id);
	}
	if (rc == 0)
		take_inodes(job, &scan);
	if (rc == 0)
		rc = stage_rights_of_scan(job->m, &scan);
	job->rights_known = rc == 0;
	scan_fini(&scan);
	return rc;
}

int stage_find_manifest(struct stage_job *job)
{
	int rc = job->o.source[0] == '/' ? manifest_of_dir(job) : manifest_of_alias(job);
	if (rc < 0) {
		stage_code_of_source(job, rc);
		return rc;
	}
	memcpy(job->r->id, job->m->id, sizeof(job->r->id));
	job->r->files = job->m->n_files;
	job->r->bytes = job->m->bytes;
	return 0;
}

/* ---- single flight ---- */

/* What the process that makes the copy has got so far. */
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
	struct stage_job *job = arg;
	job->r->bytes_verified = f->bytes_verified;
	/* What is unpacked has been moved before. */
	job->r->bytes_source = job->source_vol ? 0 : f->bytes_source;
	job->r->bytes_peers = f->bytes_peers;
	job->r->bytes_moved = job->r->bytes_source + f->bytes_peers;
	job->source_us = f->source_us;
	stage_report(job, job->copying ? job->copying : "copy", f->bytes_verified, job->r->bytes,
		     f->files);
}

static void on_window(void *arg)
{
	struct stage_job *job = arg;
	int rc = store_set_mark(&job->store, "window", true);
	if (rc == 0)
		store_event(&job->store, "STREAMABLE", "");
	stage_reached(job, LEAT_STAGE_STREAMABLE);
}

static int from_peer(void *arg, uint64_t chunk, struct slot *s, enum fetch_ask ask)
{
	struct stage_job *job = arg;
	return job->from_peer(job->peer_arg, chunk, s, ask);
}

static void on_verify(void *arg, const struct fetch_report *f)
{
	struct stage_job *job = arg;
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

/* Where the samples of what is staged by its name are; not of what was unpacked of it, which is
 * other files. -LE_NOENT: it has no name, or that means something else by now. */
static int samples_of_alias(struct stage_job *job, char ret_dir[4096])
{
	char id[MANIFEST_ID_SIZE];
	const char *catalog = job->o.catalog ? job->o.catalog : CATALOG_DEFAULT;
	if (job->o.source[0] == '/' || job->made_of)
		return -LE_NOENT;
	TRY(catalog_find(io_source(&job->io), catalog, job->o.source, id, ret_dir));
	return strcmp(id, job->m->id) == 0 ? 0 : -LE_NOENT;
}

static void build_samples(struct stage_job *job)
{
	struct sample_index *x;
	struct detail ignored = {0};
	char dir[STORE_PATH_SIZE];
	struct files_entry *entries = calloc((size_t)job->m->n_files + 1, sizeof(*entries));
	if (!entries)
		return;
	for (uint32_t i = 0; i < job->m->n_files; i++)
		entries[i] = (struct files_entry){job->m->files[i].path, job->m->files[i].size};
	snprintf(dir, sizeof(dir), "%.4000s/data", job->store.dir);
	struct index_source from = {entries, job->m->n_files, job->o.format};
	if (index_build(job->io.local, dir, &from, &x, &ignored) == 0) {
		int rc = samples_store(job->io.local, job->store.dir, x);
		(void)rc;
		index_destroy(x);
	}
	free(entries);
}

/* Those that the name has in the catalogue. sound: there are some beside the copy already. */
static int take_samples(struct stage_job *job, const char *named, bool sound)
{
	struct sample_index *x;
	struct vol *v = io_source(&job->io);
	int same = sound ? samples_compare(v, named, job->io.local, job->store.dir) : 0;
	if (same != 0)
		return same < 0 ? same : 0;
	int rc = samples_load(v, named, &x);
	if (rc == -LE_NOENT)
		build_samples(job);
	TRY(rc);
	rc = samples_store(job->io.local, job->store.dir, x);
	index_destroy(x);
	return rc;
}

/* Only a help for the loader, which can do without; but what a name's samples are, only the
 * catalogue knows: where it cannot be read, nothing is made up. */
static void make_samples(struct stage_job *job)
{
	const char *catalog = job->o.catalog ? job->o.catalog : CATALOG_DEFAULT;
	struct sample_index *x;
	char named[4096];
	/* Files that are not here cannot be looked into. */
	if (job->store.share)
		return;
	int rc = samples_of_alias(job, named);
	/* Damaged ones are the reason for which somebody stages what is there already. */
	bool sound = samples_load(job->io.local, job->store.dir, &x) == 0;
	if (sound)
		index_destroy(x);
	if (rc == -LE_NOENT && !sound)
		build_samples(job);
	if (rc == 0)
		rc = take_samples(job, named, sound);
	else if (job->made_of)
		rc = 0; /* its name is in no catalogue */
	if (rc == 0)
		rc = samples_note_name(job->io.local, job->store.dir, catalog, job->o.source);
	(void)rc; /* who opens it asks the catalogue */
}

/* What the copy is found by, other than its id and what its manifest says. False: nothing. */
static bool alias_of(const struct stage_job *job, char ret_alias[ALIAS_SIZE])
{
	if (job->o.source[0] == '/')
		copies_dir_key(job->o.source, ret_alias);
	else if (strchr(job->o.source, '/'))
		return false;
	else
		snprintf(ret_alias, ALIAS_SIZE, "%s%s", job->o.source,
			 strchr(job->o.source, '@') ? "" : "@latest");
	return true;
}

/* Was that another copy until now? */
static bool is_news(const struct stage_job *job)
{
	char alias[ALIAS_SIZE], before[MANIFEST_ID_SIZE];
	return alias_of(job, alias) &&
	       (store_recall_source(job->io.env, job->o.to, alias, before) < 0 ||
		strcmp(before, job->m->id) != 0);
}

/* So that a copy made under another name, or of another directory, is found by this one too; and
 * of several that were made of one directory the one that is what it holds now. Comes after what it
 * was before has been marked: it says that this has been done. */
static void note_alias(const struct stage_job *job)
{
	char alias[ALIAS_SIZE];
	if (!alias_of(job, alias))
		return;
	int rc = store_note_source(job->io.env, job->o.to, alias, job->m->id);
	(void)rc; /* it can still be found by its id */
}

/* So that mounts of this node find it. Only a help: they can read from the servers. */
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

/* Made of the same source, or under the same name, when it was another. */
static bool was_same(void *arg, const struct leat_stage_copy *c)
{
	struct stage_job *job = arg;
	const char *source = job->o.source[0] == '/' ? job->o.source : job->m->source;
	return job->o.source[0] == '/' || !job->m->name[0]
		       ? !c->name[0] && strcmp(c->source, source) == 0
		       : c->name[0] && strcmp(c->name, job->m->name) == 0 &&
				 strcmp(c->version, job->m->version) == 0;
}

/* It is not what its name means any more. */
static int mark_stale(void *arg, const struct leat_stage_copy *c)
{
	struct stage_job *job = arg;
	if (c->state != LEAT_COPY_READY)
		return 0;
	struct local_store *s = malloc(sizeof(*s));
	int rc = s ? store_init(s, job->io.env, job->o.to, c->id) : -LE_NOMEM;
	if (rc == 0)
		rc = store_set_mark(s, "stale", true);
	if (rc == 0)
		store_event(s, "STALE", "");
	free(s);
	return rc;
}

/* This copy is of use all the same where the others cannot be marked. Who stages it next does that:
 * the name is not noted before. */
static void supersede(struct stage_job *job)
{
	int rc = copies_list_those(&job->io, job->o.to, job->m->id, was_same, mark_stale, job);
	if (rc == 0)
		note_alias(job);
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
	make_samples(job);
	TRY(store_sync_manifest(&job->store));
	job->r->narrowed += job->grants.n_narrowed;
	TRY(grant_meta(&job->store, &job->grants));
	TRY(grant_note(&job->store, job->m, &job->grants));
	TRY(store_set_ready(&job->store, job->m));
	publish_inodes(job);
	TRY(store_set_mark(&job->store, "window", false));
	/* From a time when its name meant another one. */
	TRY(store_set_mark(&job->store, "stale", false));
	note(job, job->store.share ? LEAT_COPY_SHARED : LEAT_COPY_READY);
	supersede(job);
	char fields[160];
	snprintf(fields, sizeof(fields),
		 "\"bytes\":%" PRIu64 ",\"source\":%" PRIu64 ",\"peers\":%" PRIu64, job->r->bytes,
		 job->r->bytes_source, job->r->bytes_peers);
	store_event(&job->store, job->store.share ? "SHARED" : "READY", fields);
	stage_reached(job, LEAT_STAGE_STREAMABLE);
	return 0;
}

/* A copy of its own there keeps its files. */
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

/* The folder of a copy is not that of a part of another one, whose files it would take away. */
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
		/* What is left of a copy that is gone: verified, and made a part of this one. */
		rc = snprintf(home, STORE_PATH_SIZE, "%.4000s/home", job->store.dir) < 0
			     ? -LE_INVAL
			     : env_unlink(job->io.env, home);
	} else if (rc == -LE_NOENT) {
		rc = 0;
	}
	free(home);
	return rc;
}

/* A copy of archives that is there only to be unpacked goes afterwards. */
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
	make_samples(job);
	TRY(grant_meta(&job->store, &job->grants));
	job->r->narrowed = job->grants.n_narrowed;
	bool news = is_news(job) || store_has_mark(&job->store, "stale", NULL);
	publish_inodes(job);
	/* Others are looked at only where they may have been what this one is now. */
	if (news && store_set_mark(&job->store, "stale", false) == 0)
		supersede(job);
	is_used(job);
	stage_report(job, "copy", job->r->bytes, job->r->bytes, job->r->files);
	stage_reached(job, LEAT_STAGE_STREAMABLE);
	return job->rc;
}

void stage_count(struct stage_job *job)
{
	job->r->files = job->r->bytes = 0;
	for (uint32_t i = 0; i < job->m->n_files; i++) {
		if (store_has_file(&job->store, i)) {
			job->r->files++;
			job->r->bytes += job->m->files[i].size;
		}
	}
}

/* What this node is to hold, and what it holds already of another share. */
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
	/* What was whole is not any more, before it is said what it shall be. */
	TRY(store_clear_ready(s));
	return store_save_share(s);
}

/* Where to look whether the source is still there, of a copy that is not made of files of it. */
static int store_origin(struct stage_job *job)
{
	char path[STORE_PATH_SIZE];
	if (!job->made_of)
		return 0;
	snprintf(path, sizeof(path), "%.4000s/from", job->store.dir);
	TRY(env_mkdirs(job->io.env, path, 0755));
	return manifest_store(job->io.local, path, job->made_of);
}

/* Nothing is to be fetched, and the rights are those of the source. */
static int is_whole(struct stage_job *job, bool *ret_whole)
{
	int rc = *ret_whole ? stage_grant_ready(job) : 0;
	*ret_whole = *ret_whole && rc == 0;
	return rc == -LE_STALE ? 0 : rc;
}

/* Of processes that were killed: whoever writes there holds the lock. */
static void remove_leftovers(struct stage_job *job)
{
	static const char *const folders[] = {"", "/from", "/named"};
	char path[STORE_PATH_SIZE];
	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		snprintf(path, sizeof(path), "%.4000s%s", job->store.dir, folders[i]);
		int rc = vol_remove_tmp(job->io.local, path);
		(void)rc; /* they are in nobody's way */
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
	/* The order may be another one now. */
	TRY(store_set_mark(&job->store, "window", false));
	TRY(note_purpose(job, false));
	note(job, LEAT_COPY_PLANNED);
	is_used(job);
	if (job->rc)
		return job->rc;
	TRY(store_load_bitmap(&job->store, job->m));
	/* So that whoever lists copies knows what this one will be: durable before READY. */
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

/* Where the folders of a copy are is told by the first ".leat" of their paths. */
static int refuse_below(struct stage_job *job, const char *to)
{
	if (!beneath_is_below(to))
		return 0;
	stage_fail(job,
		   detail_set(&job->d, -LE_INVAL, to, UINT64_MAX,
			      "copies are not kept in or below a folder .leat: name the directory "
			      "that it lies in, or another"),
		   LEAT_STAGE_USAGE);
	return job->rc;
}

static int run(struct stage_job *job)
{
	TRY(refuse_below(job, job->o.to));
	for (uint32_t i = 0; job->o.more_dirs && job->o.more_dirs[i]; i++)
		TRY(refuse_below(job, job->o.more_dirs[i]));
	TRY(env_mkdirs(job->io.env, job->o.to, 0755));
	job->own_throttle.rate = job->o.max_rate;
	if (!job->throttle)
		job->throttle = &job->own_throttle;
	TRY(stage_find_manifest(job));
	return job->o.unpack ? stage_unpack(job) : stage_copy(job);
}

void stage_refused(struct stage_job *job)
{
	struct beneath_why *why = job->rc == -LE_FOREIGN ? malloc(sizeof(*why)) : NULL;
	if (why && beneath_why(job->io.env, why)) {
		job->d.rc = 0;
		detail_set(&job->d, -LE_FOREIGN, why->path, UINT64_MAX, "%s", why->what);
		job->r->code = LEAT_STAGE_PERMISSION;
	}
	free(why);
}

void stage_finish(struct stage_job *job, int rc)
{
	if (rc < 0) {
		int code = rc == -LE_NOSPC ? LEAT_STAGE_NO_CAPACITY
			   : rc == -LE_ACCES || rc == -LE_PERM || rc == -LE_FOREIGN ||
					     rc == -LE_ROFS
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

void stage_in_fiber(void *arg)
{
	struct stage_job *job = arg;
	job->start_us = env_now_us(job->io.env);
	stage_watch_begin(job);
	int rc = run(job);
	stage_watch_end(job);
	stage_finish(job, rc);
	job->r->elapsed_us = env_now_us(job->io.env) - job->start_us;
}
