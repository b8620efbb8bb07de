/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staging out: a local directory is copied into the namespace (or to a local path), as a whole or
 * not at all.
 *   1. Scan the local directory. A lock on it allows one job per source.
 *   2. Write every file to PARENT/.leat-out-KEY/PATH, sync it, and compare its checksums with those
 *      of the servers, or of what is read back. KEY is a function of both paths and of the host
 *      name, so a repeated call finds what an interrupted one has written, and keeps what is right;
 *      it removes the rest, also what an exchange has left. Make the links; then give files, and
 *      directories from the deepest on, the rights and times of the source.
 *      A user who may write to PARENT could move another directory of this user to that name, to
 *      have it emptied. So each call puts a mark into what it makes: a file with the name of the
 *      directory. A directory without the mark is left alone. KEY is then a random number, no later
 *      call finds the directory, and a call that fails removes it.
 *   3. Remove the mark, set rights and times of .leat-out-KEY, and rename it. With `replace` it
 *      changes places with the destination, which is then marked for removal where possible, and
 *      removed.
 *
 * Other users may change the source meanwhile. No link is followed out of it, not even to a file.
 * Each file is opened from the directory's descriptor without following links, must be the one
 * that the scan has found, and is checked again at the end. Until step 3 .leat-out-KEY is
 * accessible to this user alone. A local one is reached by its descriptor: a user who may write to
 * a directory on the way can move it, but cannot redirect a byte. In a namespace its inode is
 * compared before anything is removed.
 */
#include "client/stage/out.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "client/dataset/scan.h"
#include "client/dataset/scan_list.h"
#include "client/dataset/vol_beneath.h"
#include "client/dataset/vol_fd.h"
#include "client/leat_impl.h"
#include "client/stage/job/job.h"
#include "client/stage/job/left_out.h"
#include "client/tree/remove.h"
#include "client/tree/side_leat.h"
#include "client/tree/side_local.h"
#include "common/base/checksum.h"
#include "common/base/log.h"
#include "common/base/rate_limit.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"
#include "common/rt/slot.h"

#define WIDTH     8u
#define PATH_SIZE 4096u
/* Modes of the mark: a call is writing the directory, or it is to be removed. */
#define MARK_OUT  0600u
#define MARK_REST 0400u

struct outgoing {
	struct stage_job *job;
	struct vol *from, *to;
	struct scan scan;
	/* Paths of .leat-out-KEY: for messages, for renaming, for its content; and that of the
	 * destination. For a local one they begin with descriptors of the parent and of the
	 * directory. */
	char shown[PATH_SIZE], tmp[PATH_SIZE], work[PATH_SIZE], dest[PATH_SIZE];
	int parent_fd, tmp_fd; /* -1: in the namespace */
	struct vol_stat held;  /* the directory that is written to or removed */
	bool unfound;          /* later calls do not find the directory */
	bool ready;            /* `held` is set, and this call may write there */
	bool unmarked, published;
	struct slot_pool *pool;
	uint32_t next;
	uint64_t files;
	int rc, left; /* left: why a removal has failed */
};

static void out_fail(struct outgoing *o, int rc, int code, const char *path, const char *what)
{
	if (o->rc)
		return;
	o->rc = rc;
	detail_set(&o->job->d, rc, path, UINT64_MAX, "%s: %s", what, status_text(rc));
	if (rc == -LE_NOSPC || rc == -LE_DQUOT)
		code = LEAT_STAGE_NO_CAPACITY;
	else if (rc == -LE_ACCES || rc == -LE_PERM || rc == -LE_ROFS)
		code = LEAT_STAGE_PERMISSION;
	stage_fail(o->job, rc, code);
}

static const char others_link[] = "a link of another user is on the way: name the directory itself";

/* ---- one file ---- */

struct sums {
	uint64_t *sums, n;
	uint32_t block;
	uint64_t size, at;
	bool same;
};

static const uint8_t zeros[256u << 10];

/* Returns the bytes of the block at off. */
static uint32_t block_len(const struct sums *s, uint64_t off)
{
	uint64_t left = s->size - off;
	return left < s->block ? (uint32_t)left : s->block;
}

static int on_sum(void *arg, uint64_t off, uint32_t len, uint64_t sum, bool hole)
{
	struct sums *s = arg;
	s->same = off == s->at && off < s->size && len <= s->size - off &&
		  (hole || len == block_len(s, off));
	for (uint64_t end = off + len; s->same && s->at < end; s->at += block_len(s, s->at)) {
		uint32_t n = block_len(s, s->at);
		uint64_t now = !hole           ? sum
			       : n == s->block ? manifest_zeros_sum(n)
					       : checksum64(zeros, n);
		s->same = now == s->sums[s->at / s->block];
	}
	return !s->same;
}

/* Returns whether a whole chunk is a hole and need not be read. Never the last one, which is
 * written. */
static bool is_hole(struct vol_file *f, const struct sums *s, uint64_t off, uint64_t len,
		    struct vol_run *run)
{
	if (len < MANIFEST_CHUNK || off + len == s->size)
		return false;
	vol_run_at(f, s->size, off, run);
	return off + len <= run->data;
}

/* Reads back what was written, for volumes without checksums. */
static bool reads_back(struct outgoing *o, struct vol_file *f, const struct sums *s, uint8_t *buf)
{
	const uint64_t zeros_sum = manifest_zeros_sum(s->block);
	struct vol_run run = {0};
	for (uint64_t off = 0; off < s->size; off += MANIFEST_CHUNK) {
		uint64_t left = s->size - off, len = left < MANIFEST_CHUNK ? left : MANIFEST_CHUNK;
		bool hole = is_hole(f, s, off, len, &run);
		if (o->job->stop || (!hole && vol_pread_all(f, buf, len, off) < 0))
			return false;
		for (uint64_t at = 0; at < len; at += s->block) {
			uint64_t n = len - at < s->block ? len - at : s->block;
			uint64_t sum = hole ? zeros_sum : checksum64(buf + at, n);
			if (sum != s->sums[(off + at) / s->block])
				return false;
		}
	}
	return true;
}

static bool is_right(struct outgoing *o, const char *path, struct sums *s, uint8_t *buf)
{
	struct vol_file *f;
	struct vol_stat st;
	if (vol_stat(o->to, path, &st) < 0 || st.size != s->size || vol_open(o->to, path, &f) < 0)
		return false;
	s->at = 0;
	s->same = true;
	bool right = o->to->ops->sums(f, on_sum, s) == 0 && s->same && s->at == s->size;
	if (!right)
		right = reads_back(o, f, s, buf);
	vol_close(f);
	return right;
}

/* Writes runs of blocks that are not all zeros, and the last block, which sets the length of the
 * file. The others stay holes. */
static int write_blocks(struct outgoing *o, struct vol_file *to, const struct sums *s, uint64_t off,
			const uint8_t *buf)
{
	uint64_t left = s->size - off, len = left < MANIFEST_CHUNK ? left : MANIFEST_CHUNK;
	uint64_t from = 0, at = 0;
	for (; at < len; at += block_len(s, off + at)) {
		uint32_t n = block_len(s, off + at);
		if (off + at + n == s->size || memcmp(buf + at, zeros, n) != 0)
			continue;
		if (at > from)
			TRY(o->to->ops->pwrite(to, buf + from, at - from, off + from));
		from = at + n;
	}
	return at > from ? o->to->ops->pwrite(to, buf + from, at - from, off + from) : 0;
}

/* Computes the sums of the local file; with `to` also copies its bytes there. */
static int copy_bytes(struct outgoing *o, struct vol_file *from, struct vol_file *to,
		      struct sums *s, uint8_t *buf)
{
	struct vol_run run = {0};
	for (uint64_t off = 0; off < s->size; off += MANIFEST_CHUNK) {
		uint64_t left = s->size - off, len = left < MANIFEST_CHUNK ? left : MANIFEST_CHUNK;
		if (o->job->stop)
			return -LE_CANCELED;
		if (is_hole(from, s, off, len, &run)) {
			for (uint64_t at = off; at < off + len; at += s->block)
				s->sums[at / s->block] = manifest_zeros_sum(s->block);
			continue;
		}
		int rc = vol_pread_all(from, buf, len, off);
		if (rc < 0)
			return rc == -LE_NODATA ? -LE_STALE : rc;
		for (uint64_t at = 0; at < len; at += s->block)
			s->sums[(off + at) / s->block] =
				checksum64(buf + at, len - at < s->block ? len - at : s->block);
		if (!to)
			continue;
		uint64_t wait_us = rate_limit_charge(o->job->throttle, len, loop_now_us());
		(void)fiber_sleep_unless(wait_us, &o->job->stop);
		TRY(write_blocks(o, to, s, off, buf));
		o->job->r->bytes_moved += len;
		stage_report(o->job, "copy", o->job->r->bytes_moved, o->job->r->bytes, o->files);
	}
	return 0;
}

static int write_file(struct outgoing *o, struct vol_file *from, const char *path, struct sums *s,
		      uint8_t *buf)
{
	const uint32_t mode = 0600;
	const int flags = O_WRONLY | O_CREAT | O_EXCL;
	struct vol_file *to;
	int rc = o->to->ops->open(o->to, path, flags, mode, &to);
	/* Make a new file: an existing one may have further names, in a tree that is in use. */
	if (rc == -LE_EXIST) {
		rc = o->to->ops->unlink(o->to, path);
		if (rc < 0 && rc != -LE_NOENT)
			return rc;
		rc = o->to->ops->open(o->to, path, flags, mode, &to);
	}
	TRY(rc);
	rc = copy_bytes(o, from, to, s, buf);
	if (rc == 0)
		rc = o->to->ops->sync(to);
	vol_close(to);
	return rc;
}

/* Returns 0 if the file is the one that the scan has found, unchanged; else -LE_STALE. */
static int check_source(struct vol_file *from, const struct vol_stat *found)
{
	struct vol_stat now;
	TRY(from->vol->ops->file_stat(from, &now));
	return now.dev == found->dev && now.ino == found->ino && now.size == found->size &&
			       now.mtime_ns == found->mtime_ns
		       ? 0
		       : -LE_STALE;
}

static int put_bytes(struct outgoing *o, struct vol_file *from, const char *path, struct sums *s,
		     uint8_t *buf)
{
	struct vol_stat st;
	bool there = vol_stat(o->to, path, &st) == 0 && S_ISREG(st.mode) && st.size == s->size;
	if (there && st.block)
		s->block = st.block;
	if (there)
		TRY(copy_bytes(o, from, NULL, s, buf));
	if (there && is_right(o, path, s, buf))
		return 0;
	TRY(write_file(o, from, path, s, buf));
	/* The destination may have blocks of another size. */
	if (vol_stat(o->to, path, &st) == 0 && st.block && st.block != s->block) {
		s->block = st.block;
		TRY(copy_bytes(o, from, NULL, s, buf));
	}
	if (is_right(o, path, s, buf))
		return 0;
	return o->job->stop ? -LE_CANCELED : -LE_CORRUPT;
}

static int put_file(struct outgoing *o, const struct scan_file *f, struct vol_file *from,
		    const char *path, uint8_t *buf)
{
	struct sums s = {.block = MANIFEST_BLOCK_DEFAULT, .size = f->st.size};
	TRY(check_source(from, &f->st));
	s.n = s.size / MANIFEST_BLOCK_MIN + 1;
	s.sums = malloc(s.n * sizeof(*s.sums));
	if (!s.sums)
		return -LE_NOMEM;
	int rc = put_bytes(o, from, path, &s, buf);
	free(s.sums);
	if (rc == 0)
		rc = check_source(from, &f->st);
	return rc < 0 ? rc : o->to->ops->set_rights(o->to, path, &f->rights, f->st.mtime_ns);
}

static void put_failed(struct outgoing *o, int rc, const char *path)
{
	int code = rc == -LE_CANCELED                  ? LEAT_STAGE_CANCELLED
		   : rc == -LE_STALE || rc == -LE_LOOP ? LEAT_STAGE_SOURCE_GONE
		   : rc == -LE_CORRUPT                 ? LEAT_STAGE_PARTIAL
						       : LEAT_STAGE_INTERNAL;
	out_fail(o, rc, code, path,
		 rc == -LE_STALE || rc == -LE_LOOP ? "it changed while it was copied"
		 : rc == -LE_CORRUPT               ? "what was written is not what was sent"
						   : "cannot copy it");
}

static void put_one(struct outgoing *o, uint32_t i, char *from_path, char *path, uint8_t *buf)
{
	const struct scan_file *f = &o->scan.files[i];
	struct vol_file *from;
	struct vol *v;
	int n = snprintf(path, PATH_SIZE, "%s/%s", o->work, f->path);
	int rc = n >= (int)PATH_SIZE ? -LE_NAMETOOLONG
				     : scan_source_path(&o->scan, f, &v, from_path);
	if (rc == 0)
		rc = vol_open(v, from_path, &from);
	if (rc == 0) {
		rc = put_file(o, f, from, path, buf);
		vol_close(from);
	}
	if (rc < 0) {
		put_failed(o, rc, f->path);
		return;
	}
	o->files++;
	o->job->r->bytes_verified += f->st.size;
}

static void put_files(void *arg)
{
	struct outgoing *o = *(struct outgoing **)arg;
	char *paths = malloc(2 * (size_t)PATH_SIZE);
	struct slot *s = NULL;
	int rc = paths ? slot_get(o->pool, NO_DEADLINE, &s) : -LE_NOMEM;
	if (rc < 0)
		out_fail(o, rc, LEAT_STAGE_INTERNAL, o->job->o.to, "no memory");
	while (rc == 0 && o->rc == 0 && o->next < o->scan.n) {
		uint32_t i = o->next++;
		put_one(o, i, paths, paths + PATH_SIZE, s->data);
	}
	slot_unref(s);
	free(paths);
}

/* ---- removing ---- */

static void on_failed(void *arg, const char *what, const char *path, int rc)
{
	struct outgoing *o = arg;
	o->left = rc;
	out_fail(o, rc, LEAT_STAGE_INTERNAL, path, what);
}

static bool is_listed(const struct outgoing *o, const char *path)
{
	uint32_t lo = 0, hi = o->scan.n;
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		if (strcmp(o->scan.files[mid].path, path) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < o->scan.n && strcmp(o->scan.files[lo].path, path) == 0;
}

static bool is_dir_of(const struct outgoing *o, const char *path)
{
	uint32_t lo = 0, hi = o->scan.n_dirs;
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		if (strcmp(o->scan.dirs[mid].path, path) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < o->scan.n_dirs && strcmp(o->scan.dirs[lo].path, path) == 0;
}

static const char *name_of_tmp(const struct outgoing *o)
{
	return strrchr(o->shown, '/') + 1;
}

static bool is_mark(const struct outgoing *o, const char *path, uint32_t mode)
{
	return S_ISREG(mode) && strcmp(path, name_of_tmp(o)) == 0;
}

static bool is_wanted(void *arg, const char *path, uint32_t mode)
{
	const struct outgoing *o = arg;
	if (is_mark(o, path, mode))
		return true;
	if (S_ISDIR(mode))
		return !path[0] || is_dir_of(o, path);
	return S_ISREG(mode) && is_listed(o, path);
}

static int copy_path(const char *path, char ret_path[PATH_SIZE])
{
	int n = snprintf(ret_path, PATH_SIZE, "%s", path);
	return n >= (int)PATH_SIZE ? -LE_NAMETOOLONG : 0;
}

static int out_path(const struct outgoing *o, const char *name, char ret_path[PATH_SIZE])
{
	/* The path of a descriptor is a link: "." is the directory itself. */
	const char *self = o->tmp_fd >= 0 ? "/." : "";
	int n = snprintf(ret_path, PATH_SIZE, "%s%s%s", o->work, name[0] ? "/" : self, name);
	return n >= (int)PATH_SIZE ? -LE_NAMETOOLONG : 0;
}

static bool is_top(void *arg, const char *path, uint32_t mode)
{
	return !path[0] || is_mark(arg, path, mode);
}

static int swapped(struct outgoing *o)
{
	return detail_set(&o->job->d, -LE_STALE, o->job->o.source, UINT64_MAX,
			  "who may write to the directory that it lies in has put another in its "
			  "place, or its file system does not keep modes and owners: see what is "
			  "there, and try again");
}

static bool is_held(const struct outgoing *o, const struct vol_stat *st)
{
	return st->dev == o->held.dev && st->ino == o->held.ino;
}

/* In a namespace the directory is found by its name, which may denote another one by now. */
static int check_held(struct outgoing *o)
{
	struct vol_stat st;
	if (o->parent_fd >= 0)
		return 0;
	int rc = vol_stat(o->to, o->tmp, &st);
	if (rc == -LE_NOENT || (rc == 0 && !is_held(o, &st)))
		return swapped(o);
	return rc;
}

/* Removes everything below tmp except what stays() accepts. Works from open directories, so that
 * another user cannot redirect it. */
static int clear(struct outgoing *o, bool (*stays)(void *arg, const char *path, uint32_t mode))
{
	/* Directories may have the rights of the source already, which may not allow removing. */
	const struct tree_keep keep = {stays, o, .open_up = true};
	const struct stage_io *io = &o->job->io;
	struct side *side = NULL;
	char top[PATH_SIZE];
	o->left = 0;
	TRY(check_held(o));
	TRY(out_path(o, "", top));
	struct walk *w = calloc(1, sizeof(*w));
	int rc = w ? 0 : -LE_NOMEM;
	if (rc == 0)
		rc = io->fs ? side_leat_create(io->fs, &side)
			    : side_local_create(io->env, process_umask(), &side);
	if (rc == 0) {
		w->path = o->shown;
		w->o.failed = on_failed;
		w->o.arg = o;
		rc = tree_remove(w, side, top, &keep);
	}
	if (rc == 0)
		rc = w->enomem ? -LE_NOMEM : o->left;
	side_destroy(side);
	free(w);
	return rc;
}

/* ---- making ---- */

static void parent_of(const char *path, char ret_dir[PATH_SIZE])
{
	snprintf(ret_dir, PATH_SIZE, "%.4000s", path);
	char *slash = strrchr(ret_dir, '/');
	*(slash == ret_dir ? slash + 1 : slash) = 0;
}

static int out_told(struct outgoing *o, int rc, const char *path, const char *what)
{
	if (rc < 0)
		out_fail(o, rc, LEAT_STAGE_INTERNAL, path, what);
	return rc;
}

/* An earlier call may have given it the rights of the source, which may not allow writing. */
static int open_up(struct outgoing *o, const char *path)
{
	struct vol_stat st;
	TRY(vol_stat(o->to, path, &st));
	const struct rights r = {.mode = 0700, .uid = st.uid, .gid = st.gid};
	return o->to->ops->set_rights(o->to, path, &r, st.mtime_ns);
}

static int make_dirs(struct outgoing *o)
{
	char path[PATH_SIZE];
	for (uint32_t i = 0; i < o->scan.n_dirs; i++) {
		const char *name = o->scan.dirs[i].path;
		int rc = out_path(o, name, path);
		if (rc == 0 && name[0])
			rc = o->to->ops->mkdir(o->to, path, 0700);
		if (rc == -LE_EXIST)
			rc = open_up(o, path);
		TRY(out_told(o, rc, name, "cannot make it"));
	}
	return 0;
}

/* Links of earlier calls are removed already: is_wanted does not keep any. */
static int make_links(struct outgoing *o)
{
	char path[PATH_SIZE];
	for (uint32_t i = 0; i < o->scan.n_links; i++) {
		const struct scan_link *l = &o->scan.links[i];
		const struct rights r = {.mode = 0777, .uid = l->st.uid, .gid = l->st.gid};
		int rc = out_path(o, l->path, path);
		if (rc == 0)
			rc = o->to->ops->symlink(o->to, l->target, path);
		if (rc == 0)
			rc = o->to->ops->set_rights(o->to, path, &r, l->st.mtime_ns);
		TRY(out_told(o, rc, l->path, "cannot make it"));
	}
	return 0;
}

static int finish_dir(struct outgoing *o, const struct scan_dir *d)
{
	char path[PATH_SIZE];
	int rc = out_path(o, d->path, path);
	if (rc == 0)
		rc = o->to->ops->syncdir(o->to, path);
	if (rc == 0)
		rc = o->to->ops->set_rights(o->to, path, &d->rights, d->st.mtime_ns);
	return out_told(o, rc, d->path, "cannot give it its rights");
}

/* The deepest first. The top directory stays closed to other users until all else is done. */
static int finish_dirs(struct outgoing *o)
{
	for (uint32_t i = o->scan.n_dirs; i-- > 1;)
		TRY(finish_dir(o, &o->scan.dirs[i]));
	return 0;
}

/* ---- the mark ---- */

static int put_mark(struct outgoing *o, uint32_t mode, struct vol_stat *ret_st)
{
	char path[PATH_SIZE];
	struct vol_file *f;
	TRY(out_path(o, name_of_tmp(o), path));
	TRY(o->to->ops->open(o->to, path, O_WRONLY | O_CREAT | O_EXCL, mode, &f));
	vol_close(f);
	return vol_stat(o->to, path, ret_st);
}

static int remove_mark(struct outgoing *o)
{
	char path[PATH_SIZE];
	TRY(out_path(o, name_of_tmp(o), path));
	int rc = o->to->ops->unlink(o->to, path);
	return rc == -LE_NOENT ? 0 : rc;
}

/* Returns 1 if the destination is the directory that was written. With the right to write to its
 * parent, another user may have given the name to another directory. */
static int is_published(struct outgoing *o)
{
	struct vol_stat st;
	TRY(vol_stat(o->to, o->dest, &st));
	return is_held(o, &st);
}

/* Opens the directory that has the name tmp now, for all further work below it. In a namespace,
 * notes its attributes, to compare them later. -LE_NOTDIR: it is no directory. */
static int hold_tmp(struct outgoing *o)
{
	struct stat st;
	if (o->parent_fd < 0) {
		TRY(vol_stat(o->to, o->tmp, &o->held));
		return S_ISDIR(o->held.mode) ? 0 : -LE_NOTDIR;
	}
	if (o->tmp_fd >= 0)
		close(o->tmp_fd);
	o->tmp_fd = openat(o->parent_fd, name_of_tmp(o),
			   O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (o->tmp_fd < 0)
		return errno == ELOOP ? -LE_NOTDIR : status_from_errno(errno);
	snprintf(o->work, sizeof(o->work), "/proc/self/fd/%d", o->tmp_fd);
	if (fstat(o->tmp_fd, &st) < 0)
		return status_from_errno(errno);
	vol_take_stat(&st, &o->held);
	return 0;
}

/* Removes the content of the held directory, then its mark, then its name. If a user has given
 * the name to another directory meanwhile, that is removed only if it is empty. */
static int remove_held(struct outgoing *o)
{
	TRY(clear(o, is_top));
	TRY(remove_mark(o));
	int rc = o->to->ops->rmdir(o->to, o->tmp);
	return rc == -LE_NOTDIR || rc == -LE_NOENT || rc == -LE_NOTEMPTY ? swapped(o) : rc;
}

/* Closes the directory to other users. uid: this user in the namespace. */
static int close_up(struct outgoing *o, uint32_t uid)
{
	const struct rights r = {.mode = 0700, .uid = uid, .gid = o->held.gid};
	char path[PATH_SIZE];
	TRY(out_path(o, "", path));
	return o->to->ops->set_rights(o->to, path, &r, o->held.mtime_ns);
}

/* The uid that writes, as this side has it. */
static uint32_t me(const struct outgoing *o)
{
	return o->job->io.fs ? o->job->io.fs->cred.uid : (uint32_t)geteuid();
}

/* Removes the previous destination, which has the name tmp now, and nothing else. If it can be
 * marked first, the next call can continue an interrupted removal. */
static int remove_old(struct outgoing *o, const struct vol_stat *was)
{
	struct vol_stat st;
	int rc = hold_tmp(o);
	if (rc == -LE_NOENT || rc == -LE_NOTDIR || (rc == 0 && !is_held(o, was)))
		return swapped(o);
	TRY(rc);
	rc = close_up(o, me(o));
	if (rc == 0)
		rc = put_mark(o, MARK_REST, &st);
	if (rc < 0)
		log_info("%s cannot be marked: %s", o->shown, status_text(rc));
	return remove_held(o);
}

/* ---- publishing ---- */

/* Gives tmp the name of the destination. If the call fails, checks whether the rename has
 * happened. */
static int exchange(struct outgoing *o, bool there)
{
	int rc = there ? o->to->ops->exchange(o->to, o->tmp, o->dest)
		       : o->to->ops->rename_new(o->to, o->tmp, o->dest);
	if (rc == 0) {
		o->published = true;
		return 0;
	}
	int is = is_published(o);
	if (is == 0 || is == -LE_NOENT)
		return rc;
	/* If the outcome is unknown, nothing more is changed. */
	o->published = true;
	if (is > 0)
		return 0;
	return detail_set(&o->job->d, rc, o->shown, UINT64_MAX,
			  "renaming it failed, and the outcome is unknown (%s): check it and the "
			  "destination",
			  status_text(rc));
}

/* Makes the name durable and checks that no user has moved the directory meanwhile. */
static int settle_name(struct outgoing *o, bool there)
{
	char dir[PATH_SIZE];
	parent_of(o->dest, dir);
	int rc = o->to->ops->syncdir(o->to, dir);
	int is = rc < 0 ? rc : is_published(o);
	if (is > 0)
		return 0;
	rc = is < 0 ? is : -LE_STALE;
	return there ? detail_set(&o->job->d, rc, o->shown, UINT64_MAX,
				  "what was at the destination is this now, and stays: what is "
				  "there instead cannot be relied on (%s), see what it is",
				  status_text(rc))
	       : is == 0 ? swapped(o)
			 : rc;
}

static int publish(struct outgoing *o)
{
	struct vol_stat st;
	bool there = o->job->o.replace && vol_stat(o->to, o->dest, &st) == 0;
	int rc = there && !S_ISDIR(st.mode) ? -LE_NOTDIR : 0;
	if (rc == 0) {
		o->unmarked = true;
		TRY(out_told(o, remove_mark(o), o->shown, "cannot remove its mark"));
		TRY(finish_dir(o, &o->scan.dirs[0]));
		/* rename_new keeps what another user has put there since check_dest. */
		rc = exchange(o, there);
	}
	if (rc == -LE_EXIST || rc == -LE_NOTDIR)
		out_fail(o, rc, LEAT_STAGE_USAGE, o->job->o.source, "cannot publish to it");
	TRY(rc);
	TRY(settle_name(o, there));
	return there ? remove_old(o, &st) : 0;
}

static int check_dest(struct outgoing *o)
{
	struct stage_job *job = o->job;
	struct vol_stat st;
	int rc = vol_stat(o->to, job->o.source, &st);
	if (rc == -LE_NOENT)
		return 0;
	if (rc == 0 && !S_ISDIR(st.mode))
		rc = -LE_NOTDIR;
	else if (rc == 0 && !job->o.replace)
		rc = -LE_EXIST;
	if (rc < 0)
		out_fail(o, rc, LEAT_STAGE_USAGE, job->o.source, "cannot publish to it");
	return rc;
}

/* Makes the directory that the destination lies in. A local one is held open from here on, and
 * paths begin with its descriptor, so that users with rights to directories on the way cannot
 * redirect them. */
static int open_parent(struct outgoing *o)
{
	char dir[PATH_SIZE];
	parent_of(o->job->o.source, dir);
	if (o->job->io.fs)
		return vol_mkdirs(o->to, dir);
	o->parent_fd = vol_open_made(o->to, dir, me(o));
	if (o->parent_fd == -LE_PERM)
		return detail_set(&o->job->d, -LE_PERM, o->job->o.source, UINT64_MAX, "%s",
				  others_link);
	return o->parent_fd < 0 ? o->parent_fd : 0;
}

static int name_tmp(struct outgoing *o, uint64_t key)
{
	struct stage_job *job = o->job;
	char dir[PATH_SIZE];
	parent_of(job->o.source, dir);
	int n = snprintf(o->shown, sizeof(o->shown), "%.4000s%s.leat-out-%016llx", dir,
			 dir[1] ? "/" : "", (unsigned long long)key);
	if (n >= 4000)
		return -LE_NAMETOOLONG;
	if (job->io.fs) {
		TRY(copy_path(o->shown, o->tmp));
		TRY(copy_path(o->shown, o->work));
		return copy_path(job->o.source, o->dest);
	}
	snprintf(o->tmp, sizeof(o->tmp), "/proc/self/fd/%d/%.4000s", o->parent_fd, name_of_tmp(o));
	snprintf(o->dest, sizeof(o->dest), "/proc/self/fd/%d%.4000s", o->parent_fd,
		 strrchr(job->o.source, '/'));
	return 0;
}

/* Sets the name by which a repeated call finds what an interrupted one has written. */
static int name_again(struct outgoing *o)
{
	const struct stage_job *job = o->job;
	char host[HOST_NAME_MAX + 1] = "";
	if (gethostname(host, sizeof(host) - 1) < 0)
		return status_from_errno(errno);
	return name_tmp(o, checksum64(job->o.to, strlen(job->o.to)) ^
				   (checksum64(job->o.source, strlen(job->o.source)) << 1) ^
				   (checksum64(host, strlen(host)) << 2));
}

static int on_entry(void *arg, const struct vol_entry *e)
{
	(void)arg;
	return strcmp(e->name, ".") == 0 || strcmp(e->name, "..") == 0 ? 0 : -LE_NOTEMPTY;
}

/* Checks that the held directory is the new one, not one that another user has put in its place.
 * In a namespace the server may map this user to another (leat export); the mark shows to which. */
static int take_made(struct outgoing *o)
{
	char path[PATH_SIZE];
	struct vol_stat mark;
	if ((o->held.mode & 0777) != 0700 || (o->parent_fd >= 0 && o->held.uid != me(o)))
		return swapped(o);
	TRY(out_path(o, "", path));
	int rc = o->to->ops->list(o->to, path, on_entry, NULL);
	if (rc == 0)
		rc = put_mark(o, MARK_OUT, &mark);
	if (rc == -LE_EXIST || rc == -LE_NOTEMPTY)
		return swapped(o);
	TRY(rc);
	if (mark.uid == o->held.uid)
		return 0;
	TRY(remove_mark(o));
	return swapped(o);
}

/* -LE_EXIST: the name is taken. */
static int make_new(struct outgoing *o)
{
	TRY(o->to->ops->mkdir(o->to, o->tmp, 0700));
	int rc = hold_tmp(o);
	if (rc == 0)
		rc = take_made(o);
	else if (rc == -LE_NOENT || rc == -LE_NOTDIR)
		rc = swapped(o);
	if (rc < 0) {
		/* Without a mark it would block the next call. */
		int gone = o->to->ops->rmdir(o->to, o->tmp);
		(void)gone;
	}
	return rc;
}

/* Opens what an earlier call has left. Removes it if it is marked for removal: -LE_NOENT.
 * -LE_EXIST: it was not made by such a call. */
static int find_left(struct outgoing *o)
{
	char path[PATH_SIZE];
	struct vol_stat mark;
	int rc = hold_tmp(o);
	if (rc == -LE_NOTDIR)
		return -LE_EXIST;
	TRY(rc);
	if (o->held.uid != me(o) || (o->held.mode & 0777) != 0700)
		return -LE_EXIST;
	TRY(out_path(o, name_of_tmp(o), path));
	rc = vol_stat(o->to, path, &mark);
	if (rc == -LE_NOENT)
		return -LE_EXIST;
	TRY(rc);
	if (!S_ISREG(mark.mode) || mark.uid != me(o))
		return -LE_EXIST;
	if ((mark.mode & 0777) != MARK_REST)
		return 0;
	TRY(remove_held(o));
	return -LE_NOENT;
}

/* Makes or finds the directory to write to, closed to other users from the beginning. */
static int make_tmp(struct outgoing *o)
{
	TRY(open_parent(o));
	TRY(name_again(o));
	int rc = find_left(o);
	if (rc == -LE_NOENT)
		rc = make_new(o);
	if (rc == -LE_EXIST) {
		log_error("%s: what has this name was not made by stage out, or was published "
			  "halfway: it stays, and may be removed if it is a leftover",
			  o->shown);
		o->unfound = true;
		TRY(name_tmp(o, env_random_u64(o->job->io.env)));
		rc = make_new(o);
	}
	o->ready = rc == 0;
	/* If the server maps this user to another, find_left would not recognize the directory. */
	o->unfound |= o->ready && o->held.uid != me(o);
	return rc;
}

/* After a failure, marks the directory so that the next call finds it, or removes it. */
static int take_back(struct outgoing *o)
{
	struct vol_stat st;
	TRY(check_held(o));
	if (o->unmarked) {
		TRY(close_up(o, o->held.uid));
		int rc = put_mark(o, MARK_OUT, &st);
		if (rc < 0 && rc != -LE_EXIST)
			return rc;
	}
	if (!o->unfound)
		return 0;
	return remove_held(o);
}

static void leave_unpublished(struct outgoing *o, int rc)
{
	if (!o->ready || o->published)
		return;
	/* The first error is the one that is reported. */
	o->rc = o->rc ? o->rc : rc;
	detail_set(&o->job->d, rc, o->job->o.to, UINT64_MAX, "%s", status_text(rc));
	rc = take_back(o);
	if (rc < 0)
		log_error("%s was not %s: %s", o->shown, o->unfound ? "removed" : "kept",
			  status_text(rc));
}

/* Finds the directory's real path. Another user's link on the way could lead root to what that
 * user may not read. Each link is checked in the same step that follows it. */
static int find_source(struct outgoing *o, char real[PATH_SIZE])
{
	int rc = vol_trusted_path(o->from, o->job->o.to, (uint32_t)geteuid(), real);
	if (rc != -LE_PERM)
		return rc;
	return detail_set(&o->job->d, rc, o->job->o.to, UINT64_MAX, "%s", others_link);
}

static int look_at_source(struct outgoing *o)
{
	struct stage_job *job = o->job;
	char real[PATH_SIZE];
	TRY(find_source(o, real));
	TRY(scan_tree_within(o->from, real, &o->scan, &job->d));
	if (strcmp(o->scan.real, real) != 0)
		return detail_set(&job->d, -LE_STALE, job->o.to, UINT64_MAX,
				  "it was exchanged just now: try again");
	job->r->files = o->scan.n;
	job->r->bytes = o->scan.bytes;
	stage_report_left(job, &o->scan);
	return 0;
}

static int stage_out(struct outgoing *o)
{
	struct outgoing *all[WIDTH];
	TRY(check_dest(o));
	TRY(look_at_source(o));
	TRY(make_tmp(o));
	/* A file that was removed from the source must not remain in the destination. */
	TRY(clear(o, is_wanted));
	TRY(make_dirs(o));
	TRY(slot_pool_create(MANIFEST_CHUNK, WIDTH, &o->pool));
	for (uint32_t i = 0; i < WIDTH; i++)
		all[i] = o;
	fiber_parallel("put_files", put_files, all, sizeof(all[0]), WIDTH, WIDTH);
	slot_pool_destroy(o->pool);
	TRY(o->rc);
	TRY(make_links(o));
	TRY(finish_dirs(o));
	return o->job->stop ? -LE_CANCELED : publish(o);
}

static int run(struct outgoing *o)
{
	struct stage_job *job = o->job;
	int fd = open(job->o.to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return status_from_errno(errno);
	/* Two jobs that write the same files concurrently would destroy each other's work. */
	int rc = flock(fd, LOCK_EX | LOCK_NB) < 0 ? -LE_BUSY : stage_out(o);
	if (rc < 0)
		leave_unpublished(o, rc);
	close(fd);
	if (o->tmp_fd >= 0)
		close(o->tmp_fd);
	if (o->parent_fd >= 0)
		close(o->parent_fd);
	scan_fini(&o->scan);
	return rc;
}

void stage_out_fiber(void *arg)
{
	struct stage_job *job = stage_job_of(arg);
	struct outgoing *o = calloc(1, sizeof(*o));
	job->start_us = env_now_us(job->io.env);
	rate_limit_set(&job->own_throttle, job->o.max_rate, RATE_LIMIT_BURST_US);
	job->throttle = &job->own_throttle;
	stage_watch_begin(job);
	int rc = -LE_NOMEM;
	if (o) {
		o->job = job;
		o->from = job->io.local;
		o->to = io_source(&job->io);
		o->parent_fd = o->tmp_fd = -1;
		rc = run(o);
	}
	stage_watch_end(job);
	if (rc < 0) {
		if (job->stop)
			stage_cancelled(job);
		detail_set(&job->d, rc, job->o.to, UINT64_MAX, "%s", status_text(rc));
		stage_code_of_source(job, rc);
	} else {
		snprintf(job->r->path, sizeof(job->r->path), "%s", job->o.source);
	}
	free(o);
	job->r->elapsed_us = env_now_us(job->io.env) - job->start_us;
}
