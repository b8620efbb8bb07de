/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Admission: before the first byte, each file gets its directory and all space is reserved, under
 * one lock per directory of copies, so that two jobs never get the same space:
 *
 *   compute the bytes still to be allocated → choose a directory for each file → compare with
 *   the capacity → reserve
 *
 * If space is lacking: evict, if the user allows it, and try again; else report how much is
 * missing.
 */
#include "client/stage/in/admission.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/dataset/beneath.h"
#include "client/stage/in/stage_manifest.h"
#include "client/stage/job/job.h"
#include "client/stage/store/copies.h"
#include "client/stage/store/copies_gc.h"
#include "client/stage/store/store_lock.h"
#include "client/stage/store/store_path.h"
#include "client/stage/store/store_places.h"
#include "client/stage/store/store_space.h"

#define SPARE_BYTES (16u << 20) /* for bitmap, manifest and the file system itself */
#define POLL_US     20000u

struct space {
	uint64_t free[STORE_DIRS_MAX + 1], size[STORE_DIRS_MAX + 1];
	uint64_t want[STORE_DIRS_MAX + 1];
	uint64_t spare_missing[STORE_DIRS_MAX + 1]; /* what is lacking of SPARE_BYTES */
	uint64_t missing;
	uint32_t lack; /* bit k: space is lacking in directory k, and the files cannot move
			* elsewhere */
};

/* Returns whether an earlier directory lies on the file system of directory n. */
static bool is_again(const dev_t *seen, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (seen[i] == seen[n])
			return true;
	return false;
}

static void look_at_space(struct stage_job *job, struct space *r)
{
	struct local_store *s = &job->store;
	dev_t seen[STORE_DIRS_MAX + 1] = {0};
	memset(r, 0, sizeof(*r));
	for (uint32_t k = 0; k <= s->n_more; k++) {
		uint64_t space;
		if (beneath_free(s->env, store_dir_of(s, k), &space, &seen[k]) < 0)
			continue;
		r->free[k] = space > SPARE_BYTES ? space - SPARE_BYTES : 0;
		r->size[k] = r->free[k];
		r->spare_missing[k] =
			space < SPARE_BYTES && !is_again(seen, k) ? SPARE_BYTES - space : 0;
	}
}

/* The bytes that the file needs beyond those that it has allocated. */
static uint64_t still_to_allocate(struct stage_job *job, uint32_t i)
{
	const struct manifest_file *f = &job->m->files[i];
	struct local_store *s = &job->store;
	char path[STORE_PATH_SIZE];
	struct stat st;
	if (!store_has_file(s, i))
		return 0;
	uint64_t data = manifest_file_data(job->m, f);
	if (s->fresh)
		return data;
	store_part_path(s, i, path);
	if (beneath_stat(s->env, path, &st) < 0 &&
	    (store_data_path(s, i, f->path, path) < 0 || beneath_stat(s->env, path, &st) < 0))
		return data;
	uint64_t has = (uint64_t)st.st_blocks * 512;
	return has < data ? data - has : 0;
}

/* Among the directories with enough space, chooses the one with the largest free part left. */
static uint32_t choose(const struct space *r, uint32_t n, uint64_t need)
{
	uint32_t best = 0;
	double best_part = -1;
	for (uint32_t k = 0; k < n; k++) {
		if (r->free[k] < need || r->size[k] == 0)
			continue;
		double part = (double)(r->free[k] - need) / (double)r->size[k];
		if (part > best_part) {
			best_part = part;
			best = k;
		}
	}
	return best;
}

static int place_files(struct stage_job *job, struct space *r)
{
	struct local_store *s = &job->store;
	bool placing = s->n_more > 0 && !s->places;
	if (placing) {
		s->places = calloc(1, (size_t)job->m->n_files + 1);
		if (!s->places)
			return -LE_NOMEM;
		s->n_places = job->m->n_files;
	}
	for (uint32_t i = 0; i < job->m->n_files; i++) {
		uint64_t need = still_to_allocate(job, i);
		if (placing)
			s->places[i] = (uint8_t)choose(r, s->n_more + 1, need);
		uint32_t k = store_place(s, i);
		r->want[k] += need;
		if (need <= r->free[k]) {
			r->free[k] -= need;
		} else {
			r->missing += need - r->free[k];
			r->free[k] = 0;
			r->lack |= placing ? 0 : 1u << k;
		}
	}
	uint64_t left = 0;
	for (uint32_t k = 0; k <= s->n_more; k++) {
		left += r->free[k];
		r->missing += r->want[k] > 0 || job->extra_bytes > 0 ? r->spare_missing[k] : 0;
	}
	r->missing += job->extra_bytes > left ? job->extra_bytes - left : 0;
	/* Files that did not fit are placed again when more space is free. */
	if (placing && r->missing) {
		free(s->places);
		s->places = NULL;
		s->n_places = 0;
	}
	return 0;
}

/* Why a copy is not admitted; lack: as in struct gc_options. */
struct shortage {
	uint64_t bytes;
	uint32_t lack;
};

struct usage {
	const char *id;
	uint64_t others;
};

static int add_usage(void *arg, const struct leat_stage_copy *c)
{
	struct usage *u = arg;
	if (strcmp(c->id, u->id) != 0)
		u->others += c->bytes_data;
	return 0;
}

/* The disk space of the complete copy. */
static uint64_t data_bytes(struct stage_job *job)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < job->m->n_files; i++)
		if (store_has_file(&job->store, i))
			bytes += manifest_file_data(job->m, &job->m->files[i]);
	return bytes;
}

/* Returns the bytes by which all copies together exceed the capacity. */
static uint64_t over_capacity(struct stage_job *job)
{
	struct usage u = {job->m->id, 0};
	if (!job->o.capacity)
		return 0;
	/* Copies that cannot be read do not count. */
	int rc = copies_list(&job->io, job->o.to, add_usage, &u);
	for (uint32_t k = 0; job->o.more_dirs && job->o.more_dirs[k]; k++)
		rc = copies_list(&job->io, job->o.more_dirs[k], add_usage, &u);
	(void)rc;
	uint64_t all = u.others + data_bytes(job) + job->extra_bytes;
	return all > job->o.capacity ? all - job->o.capacity : 0;
}

static int set_aside(struct stage_job *job, const struct space *r, struct shortage *ret_short)
{
	struct local_store *s = &job->store;
	if (s->places)
		TRY(store_save_places(s));
	for (uint32_t k = 0; k <= s->n_more; k++) {
		int rc = store_reserve(s, k, r->want[k]);
		if (rc == -LE_NOSPC || rc == -LE_DQUOT || rc == -LE_FBIG) {
			ret_short->bytes = r->want[k] > r->size[k] ? r->want[k] - r->size[k] : 1;
			ret_short->lack = 1u << k;
			store_reserve_end(s);
			return 0;
		}
		TRY(rc);
	}
	return 0;
}

/* Reserves the space. ret_short->bytes 0: the copy is admitted. */
static int try_admit(struct stage_job *job, struct shortage *ret_short)
{
	struct space r;
	look_at_space(job, &r);
	TRY(place_files(job, &r));
	uint64_t over = over_capacity(job);
	*ret_short = (struct shortage){r.missing > over ? r.missing : over, over ? 0 : r.lack};
	return ret_short->bytes ? 0 : set_aside(job, &r, ret_short);
}

static int lock_admission(struct stage_job *job)
{
	for (;;) {
		int fd = store_lock_admission(&job->store);
		if (fd != -LE_BUSY)
			return fd;
		if (stage_cancelled(job))
			return job->rc;
		int rc = fiber_sleep_us(POLL_US);
		(void)rc;
	}
}

static int admit_locked(struct stage_job *job)
{
	struct shortage s;
	TRY(try_admit(job, &s));
	/* Repeat: each file needs its space in one directory, so enough in total may be too
	 * little. */
	for (bool gone = true; s.bytes && job->o.evict && gone;) {
		struct gc_options g = {.more_dirs = job->o.more_dirs,
				       .bytes_missing = s.bytes,
				       .lack = s.lack,
				       .keep = job->m->id};
		TRY(copies_gc(&job->io, job->o.to, &g));
		gone = g.n_removed > 0;
		if (gone)
			TRY(try_admit(job, &s));
	}
	if (!s.bytes)
		return 0;
	job->r->bytes_missing = s.bytes;
	stage_fail(job,
		   detail_set(&job->d, -LE_NOSPC, job->o.to, UINT64_MAX,
			      "%llu bytes more are needed: free some, or evict a copy",
			      (unsigned long long)s.bytes),
		   LEAT_STAGE_NO_CAPACITY);
	return job->rc;
}

int stage_admit(struct stage_job *job)
{
	int fd = lock_admission(job);
	if (fd < 0)
		return fd;
	int rc = admit_locked(job);
	close(fd);
	return rc;
}

/* ---- stage plan ---- */

struct evictable {
	struct stage_job *job;
	const char *to; /* the directory that is being listed */
};

static int add_evictable(void *arg, const struct leat_stage_copy *c)
{
	const struct evictable *e = arg;
	struct stage_job *job = e->job;
	bool mine = strcmp(c->id, job->m->id) == 0;
	if (mine)
		job->r->bytes_verified = c->bytes_verified;
	else if (!c->leased && !c->pinned && c->state != LEAT_COPY_STAGING &&
		 c->state != LEAT_COPY_STREAMABLE && c->state != LEAT_COPY_RESERVED &&
		 c->state != LEAT_COPY_PLANNED)
		job->r->bytes_evictable += copies_gc_bytes(&job->io, e->to, c);
	return 0;
}

uint64_t stage_free_bytes(const char *to, const char *const *more_dirs)
{
	dev_t seen[STORE_DIRS_MAX + 1];
	uint64_t bytes = 0;
	uint32_t n = 0;
	for (int k = -1; k < (int)STORE_DIRS_MAX; k++) {
		const char *dir = k < 0 ? to : more_dirs ? more_dirs[k] : NULL;
		uint64_t space;
		if (!dir)
			break;
		if (beneath_free(NULL, dir, &space, &seen[n]) < 0)
			continue;
		bytes += is_again(seen, n) ? 0 : space;
		n++;
	}
	return bytes;
}

static int plan(struct stage_job *job)
{
	struct evictable e = {job, job->o.to};
	TRY(stage_find_manifest(job));
	TRY(copies_list(&job->io, e.to, add_evictable, &e));
	for (uint32_t k = 0; job->o.more_dirs && job->o.more_dirs[k]; k++) {
		e.to = job->o.more_dirs[k];
		TRY(copies_list(&job->io, e.to, add_evictable, &e));
	}
	/* It is unknown which of the verified blocks are holes, so this is an upper bound. */
	uint64_t left = job->m->bytes - job->r->bytes_verified, data = manifest_data(job->m);
	job->r->bytes_needed = left < data ? left : data;
	uint64_t space = job->r->bytes_free = stage_free_bytes(job->o.to, job->o.more_dirs);
	uint64_t over = over_capacity(job);
	uint64_t want = job->r->bytes_needed ? job->r->bytes_needed + SPARE_BYTES : 0;
	job->r->bytes_missing = want > space ? want - space : 0;
	if (over > job->r->bytes_missing)
		job->r->bytes_missing = over;
	if (job->r->bytes_missing)
		return detail_set(&job->d, -LE_NOSPC, job->o.to, UINT64_MAX,
				  "it would not fit: %llu bytes more are needed",
				  (unsigned long long)job->r->bytes_missing);
	return 0;
}

void stage_plan_fiber(void *arg)
{
	struct stage_job *job = stage_job_of(arg);
	int rc = plan(job);
	if (rc < 0) {
		detail_set(&job->d, rc, job->o.to, UINT64_MAX, "%s", status_text(rc));
		stage_fail(job, rc, rc == -LE_NOSPC ? LEAT_STAGE_NO_CAPACITY : LEAT_STAGE_INTERNAL);
	}
}
