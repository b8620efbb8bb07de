/*
 * Admission: before the first byte, each file gets its directory and all space is set aside. Under
 * one lock per directory of copies, so that two jobs are never promised the same space:
 *   what is still to be allocated → which directory has room for which file → within the capacity?
 *   → set aside. Too little: evict, if that was asked for, and once more; else how much is missing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/stage/beneath.h"
#include "client/stage/copies.h"
#include "client/stage/stage.h"

#define SPARE_BYTES (16u << 20) /* bitmap, manifest, the file system's own */
#define POLL_US     20000u

struct room {
	uint64_t free[STORE_DIRS_MAX + 1], size[STORE_DIRS_MAX + 1];
	uint64_t want[STORE_DIRS_MAX + 1];
	uint64_t missing;
	uint32_t lack; /* bit k: in directory k, and the files cannot go elsewhere */
};

static void look_at_space(struct stage_job *job, struct room *r)
{
	struct local_store *s = &job->store;
	memset(r, 0, sizeof(*r));
	for (uint32_t k = 0; k <= s->n_more; k++) {
		uint64_t room;
		dev_t dev;
		if (beneath_free(s->env, store_dir_of(s, k), &room, &dev) < 0)
			continue;
		r->free[k] = room > SPARE_BYTES ? room - SPARE_BYTES : 0;
		r->size[k] = r->free[k];
	}
}

/* Bytes that the file will need beyond what it has. */
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

/* The directory in which most of what it had is still free, among those with room. */
static uint32_t choose(const struct room *r, uint32_t n, uint64_t need)
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

static int place_files(struct stage_job *job, struct room *r)
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
	for (uint32_t k = 0; k <= s->n_more; k++)
		left += r->free[k];
	r->missing += job->extra_bytes > left ? job->extra_bytes - left : 0;
	/* What did not fit is placed anew when there is more room. */
	if (placing && r->missing) {
		free(s->places);
		s->places = NULL;
		s->n_places = 0;
	}
	return 0;
}

/* What keeps a copy from being admitted; lack: as in struct gc_options. */
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

/* What the copy takes when it is whole. */
static uint64_t data_bytes(struct stage_job *job)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < job->m->n_files; i++)
		if (store_has_file(&job->store, i))
			bytes += manifest_file_data(job->m, &job->m->files[i]);
	return bytes;
}

/* Within what all copies together may have? */
static uint64_t over_capacity(struct stage_job *job)
{
	struct usage u = {job->m->id, 0};
	if (!job->o.capacity)
		return 0;
	/* What cannot be read does not count. */
	int rc = copies_list(&job->io, job->o.to, add_usage, &u);
	for (uint32_t k = 0; job->o.more_dirs && job->o.more_dirs[k]; k++)
		rc = copies_list(&job->io, job->o.more_dirs[k], add_usage, &u);
	(void)rc;
	uint64_t all = u.others + data_bytes(job) + job->extra_bytes;
	return all > job->o.capacity ? all - job->o.capacity : 0;
}

static int set_aside(struct stage_job *job, const struct room *r, struct shortage *ret_short)
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

/* No bytes short: admitted. */
static int try_admit(struct stage_job *job, struct shortage *ret_short)
{
	struct room r;
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
	/* A file needs room in one directory, so that enough in all may be too little. */
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

/* ---- looking only ---- */

static int add_evictable(void *arg, const struct leat_stage_copy *c)
{
	struct stage_job *job = arg;
	bool mine = strcmp(c->id, job->m->id) == 0;
	if (mine)
		job->r->bytes_verified = c->bytes_verified;
	else if (!c->leased && !c->pinned && c->state != LEAT_COPY_STAGING &&
		 c->state != LEAT_COPY_STREAMABLE && c->state != LEAT_COPY_RESERVED &&
		 c->state != LEAT_COPY_PLANNED)
		job->r->bytes_evictable += c->bytes_verified;
	return 0;
}

uint64_t stage_free_bytes(const char *to, const char *const *more_dirs)
{
	dev_t seen[STORE_DIRS_MAX + 1];
	uint64_t bytes = 0;
	uint32_t n = 0;
	for (int k = -1; k < (int)STORE_DIRS_MAX; k++) {
		const char *dir = k < 0 ? to : more_dirs ? more_dirs[k] : NULL;
		uint64_t room;
		bool again = false;
		if (!dir)
			break;
		if (beneath_free(NULL, dir, &room, &seen[n]) < 0)
			continue;
		for (uint32_t i = 0; i < n; i++)
			again |= seen[i] == seen[n];
		n++;
		bytes += again ? 0 : room;
	}
	return bytes;
}

static int plan(struct stage_job *job)
{
	TRY(stage_find_manifest(job));
	TRY(copies_list(&job->io, job->o.to, add_evictable, job));
	for (uint32_t k = 0; job->o.more_dirs && job->o.more_dirs[k]; k++)
		TRY(copies_list(&job->io, job->o.more_dirs[k], add_evictable, job));
	/* Which of the holes are verified is not known: at most all that is no hole. */
	uint64_t left = job->m->bytes - job->r->bytes_verified, data = manifest_data(job->m);
	job->r->bytes_needed = left < data ? left : data;
	uint64_t room = job->r->bytes_free = stage_free_bytes(job->o.to, job->o.more_dirs);
	uint64_t over = over_capacity(job);
	uint64_t want = job->r->bytes_needed ? job->r->bytes_needed + SPARE_BYTES : 0;
	job->r->bytes_missing = want > room ? want - room : 0;
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
	struct stage_job *job = arg;
	int rc = plan(job);
	if (rc < 0) {
		detail_set(&job->d, rc, job->o.to, UINT64_MAX, "%s", status_text(rc));
		stage_fail(job, rc, rc == -LE_NOSPC ? LEAT_STAGE_NO_CAPACITY : LEAT_STAGE_INTERNAL);
	}
}
