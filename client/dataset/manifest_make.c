/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a manifest of a directory. Checksums are imported if the volume has them (no data is read),
 * else computed from the data: several files, and several chunks of a large file, concurrently. If
 * a file changes meanwhile, the call fails with -LE_STALE.
 */
#include "client/dataset/manifest_make.h"

#include <stdio.h>

#include "client/dataset/manifest.h"
#include "client/dataset/scan_list.h"
#include "common/base/checksum.h"
#include "common/rt/fiber.h"
#include "common/rt/slot.h"

#define WIDTH        8u /* files, and chunks of one file, in flight */
#define BUFFERS      16u
#define SMALL_CHUNKS 4u /* one fiber reads a file of up to this many */

struct making {
	struct vol *v;
	const char *dir;
	const struct scan *scan;
	struct manifest *m;
	struct slot_pool *pool;
	const struct progress *progress;
	struct detail *d;
	uint64_t bytes;
	uint32_t next; /* next file to be claimed by a fiber */
	int rc;        /* the first failure */
};

struct chunk_job {
	struct making *mk;
	struct vol_file *file;
	struct manifest_file *f;
	uint64_t next, n; /* chunks, shared by the fibers of one file */
	struct vol_run run;
};

static void fail(struct making *mk, int rc, const char *path, const char *what)
{
	detail_set(mk->d, rc, path, UINT64_MAX, "%s: %s", what, status_text(rc));
	if (mk->rc == 0)
		mk->rc = rc;
}

static bool stopped(struct making *mk)
{
	if (mk->rc == 0 && mk->progress && mk->progress->cancel && *mk->progress->cancel)
		mk->rc = -LE_CANCELED;
	return mk->rc != 0;
}

/* True if the whole chunk is a hole. Not queried for smaller files: the call costs more than the
 * read. */
static bool is_hole(struct chunk_job *job, uint64_t off, uint32_t len)
{
	struct vol_run run = job->run;
	if (len < MANIFEST_CHUNK)
		return false;
	vol_run_at(job->file, job->f->size, off, &run);
	if (run.hole > job->run.hole)
		job->run = run;
	return off + len <= run.data;
}

static int sum_chunk(struct chunk_job *job, uint64_t chunk)
{
	struct making *mk = job->mk;
	const struct manifest_file *f = job->f;
	struct slot *s = NULL;
	uint64_t off = chunk * MANIFEST_CHUNK;
	uint32_t len = manifest_chunk_len(f, chunk);
	uint64_t *sum = mk->m->sums + f->first_sum + off / f->block;
	bool hole = is_hole(job, off, len);
	int rc = hole ? 0 : slot_get(mk->pool, NO_DEADLINE, &s);
	if (rc == 0 && !hole)
		rc = vol_pread_all(job->file, s->data, len, off);
	for (uint32_t at = 0; rc == 0 && at < len; at += f->block)
		*sum++ = hole ? manifest_zeros_sum(f->block)
			      : checksum64(s->data + at, len - at < f->block ? len - at : f->block);
	if (rc == 0)
		mk->bytes += len;
	if (rc == 0 && mk->progress && mk->progress->report)
		mk->progress->report(mk->progress->arg, mk->bytes);
	slot_unref(s);
	return rc;
}

static void sum_chunks(void *arg)
{
	struct chunk_job *job = *(struct chunk_job **)arg;
	while (job->next < job->n && !stopped(job->mk)) {
		uint64_t chunk = job->next++;
		int rc = sum_chunk(job, chunk);
		if (rc < 0)
			fail(job->mk, rc == -LE_NODATA ? -LE_STALE : rc, job->f->path,
			     "cannot read it");
	}
}

static void read_sums(struct making *mk, struct vol_file *file, struct manifest_file *f)
{
	struct chunk_job job = {mk, file, f, 0, manifest_file_chunks(f), {0}}, *jobs[WIDTH];
	for (uint32_t i = 0; i < WIDTH; i++)
		jobs[i] = &job;
	uint32_t width = job.n <= SMALL_CHUNKS ? 1 : WIDTH;
	fiber_parallel("sum_chunks", sum_chunks, jobs, sizeof(jobs[0]), width, width);
}

struct import {
	struct manifest *m;
	struct manifest_file *f;
	uint64_t at; /* blocks before it are complete */
};

/* Takes one block of the file, or a hole of whole blocks. Non-zero: the boundaries differ, so
 * the file must be read. */
static int on_sum(void *arg, uint64_t off, uint32_t len, uint64_t sum, bool hole)
{
	static const uint8_t zeros[256u << 10];
	struct import *im = arg;
	if (off != im->at || len > im->f->size - im->at)
		return 1;
	for (uint32_t done = 0; done < len;) {
		uint64_t left = im->f->size - im->at;
		uint32_t want = left < im->f->block ? (uint32_t)left : im->f->block;
		if (len - done < want || (!hole && len != want) || want > sizeof(zeros))
			return 1;
		im->m->sums[im->f->first_sum + im->at / im->f->block] =
			!hole                  ? sum
			: want == im->f->block ? manifest_zeros_sum(want)
					       : checksum64(zeros, want);
		im->at += want;
		done += want;
	}
	return 0;
}

static bool import_sums(struct making *mk, struct vol_file *file, struct manifest_file *f)
{
	struct import im = {mk->m, f, 0};
	if (mk->v->ops->sums(file, on_sum, &im) != 0 || im.at != f->size)
		return false;
	mk->bytes += f->size;
	if (mk->progress && mk->progress->report)
		mk->progress->report(mk->progress->arg, mk->bytes);
	return true;
}

/* Fails with -LE_STALE unless the file is the one that the scan has found, unchanged. */
static int check_file(struct vol_file *file, const struct vol_stat *before)
{
	struct vol_stat now;
	TRY(file->vol->ops->file_stat(file, &now));
	return now.size == before->size && now.mtime_ns == before->mtime_ns &&
			       now.ino == before->ino && now.dev == before->dev
		       ? 0
		       : -LE_STALE;
}

static int open_source(struct making *mk, const struct scan_file *sf, char path[4096],
		       struct vol_file **ret_file)
{
	struct vol *v = mk->v;
	if (mk->scan->in)
		TRY(scan_source_path(mk->scan, sf, &v, path));
	else if (snprintf(path, 4096, "%s%s%s", sf->from ? "" : mk->dir, sf->from ? "" : "/",
			  sf->from ? sf->from : sf->path) >= 4096)
		return -LE_NAMETOOLONG;
	TRY(vol_open(v, path, ret_file));
	int rc = check_file(*ret_file, &sf->st);
	if (rc < 0)
		vol_close(*ret_file);
	return rc;
}

static void make_file(struct making *mk, uint32_t i)
{
	char path[4096] = "";
	struct vol_file *file;
	const struct scan_file *sf = &mk->scan->files[i];
	struct manifest_file *f = &mk->m->files[i];
	int rc = open_source(mk, sf, path, &file);
	if (rc < 0) {
		fail(mk, rc, path[0] ? path : f->path,
		     rc == -LE_STALE ? "it changed while it was read" : "cannot open it");
		return;
	}
	if (f->size > 0 && !import_sums(mk, file, f))
		read_sums(mk, file, f);
	rc = mk->rc ? 0 : check_file(file, &sf->st);
	vol_close(file);
	if (rc < 0)
		fail(mk, rc, path, "it changed while it was read");
}

static void make_files(void *arg)
{
	struct making *mk = *(struct making **)arg;
	while (mk->next < mk->m->n_files && !stopped(mk))
		make_file(mk, mk->next++);
}

static int add_files(struct making *mk)
{
	int rc = 0;
	for (uint32_t i = 0; i < mk->scan->n && rc == 0; i++) {
		const struct scan_file *f = &mk->scan->files[i];
		uint32_t block = f->st.block;
		bool known = block >= MANIFEST_BLOCK_MIN && MANIFEST_CHUNK % block == 0;
		rc = manifest_add(mk->m, f->path, &f->st, known ? block : MANIFEST_BLOCK_DEFAULT);
		if (rc == 0)
			rc = manifest_add_rights(mk->m, &f->rights, f->from);
		if (rc < 0)
			detail_set(mk->d, rc, f->path, UINT64_MAX, "cannot be in a data set: %s",
				   status_text(rc));
	}
	return rc;
}

static int add_dirs_and_links(struct making *mk)
{
	int rc = 0;
	const char *path = "";
	for (uint32_t i = 0; i < mk->scan->n_dirs && rc == 0; i++) {
		const struct scan_dir *dir = &mk->scan->dirs[i];
		path = dir->path;
		rc = manifest_add_dir(mk->m, path, &dir->st, &dir->rights);
	}
	for (uint32_t i = 0; i < mk->scan->n_links && rc == 0; i++) {
		const struct scan_link *l = &mk->scan->links[i];
		const struct manifest_link ml = {l->path, l->target, l->st.mtime_ns, l->st.uid,
						 l->st.gid};
		path = l->path;
		rc = manifest_add_link(mk->m, &ml);
	}
	if (rc < 0)
		detail_set(mk->d, rc, path, UINT64_MAX, "cannot be in a data set: %s",
			   status_text(rc));
	return rc;
}

int manifest_make_from(struct vol *v, const char *dir, const struct scan *s,
		       struct manifest **ret_manifest, const struct progress *p, struct detail *d)
{
	struct making mk = {.v = v, .dir = dir, .scan = s, .progress = p, .d = d}, *mks[WIDTH];
	TRY(manifest_create(&mk.m));
	int rc = add_files(&mk);
	if (rc == 0)
		rc = add_dirs_and_links(&mk);
	if (rc == 0)
		rc = slot_pool_create(MANIFEST_CHUNK, BUFFERS, &mk.pool);
	if (rc == 0) {
		for (uint32_t i = 0; i < WIDTH; i++)
			mks[i] = &mk;
		if (mk.m->n_files)
			fiber_parallel("make_files", make_files, mks, sizeof(mks[0]), WIDTH, WIDTH);
		slot_pool_destroy(mk.pool);
		rc = mk.rc;
	}
	if (rc < 0) {
		manifest_destroy(mk.m);
		return rc;
	}
	snprintf(mk.m->source, sizeof(mk.m->source), "%s", dir);
	manifest_finish(mk.m);
	*ret_manifest = mk.m;
	return 0;
}
