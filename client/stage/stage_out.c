/*
 * Staging out: a local directory becomes one of the namespace (or a local one), as a whole or not
 * at all.
 *   1. scan the local directory; one at a time per source (a lock on it)
 *   2. every file is written to PARENT/.leat-out-KEY/PATH, synced, and its checksums compared:
 *      those that the servers have, or of what is read back. KEY is a function of both names and of
 *      the host's, so a repeated call finds what an interrupted one has written here, and keeps
 *      what is right; the rest that lies there goes, be it what an exchange has left. Links are
 *      made; files, then directories from below get the rights and times of the source.
 *      Where others may give names in PARENT, one of them could move another directory of this
 *      user to that name, to have it emptied. There KEY is a random number, no other call finds
 *      what lies there, and a call that fails removes it.
 *   3. .leat-out-KEY gets them too and then the name; with `replace` it changes places with what
 *      was there, which is removed then.
 *
 * Others may change the source meanwhile. No link is followed out of it, not even to a file. Each
 * file is opened from the directory's descriptor, by no link, has to be the one that the scan has
 * found, and is looked at again at the end. Until step 3 .leat-out-KEY is this user's alone; one
 * that is somebody else's is removed first. A local one is reached by its descriptor: who may write
 * to a directory on the way can take its name away, but not lead a byte elsewhere.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "client/leat_impl.h"
#include "client/stage/stage.h"
#include "client/tree/tree.h"
#include "common/base/checksum.h"
#include "common/base/log.h"
#include "common/rt/fiber.h"
#include "common/rt/slot.h"

#define WIDTH     8u
#define PATH_SIZE 4096u

struct outgoing {
	struct stage_job *job;
	struct vol *from, *to;
	struct scan scan;
	/* .leat-out-KEY: where it lies, as told, by its name, and itself; and what it becomes. Of a
	 * local one by the descriptors of its parent and of itself. */
	char shown[PATH_SIZE], tmp[PATH_SIZE], work[PATH_SIZE], dest[PATH_SIZE];
	int parent_fd, tmp_fd; /* -1: in the namespace */
	bool shared;           /* others may give names in the directory that tmp lies in */
	bool made, published;
	struct slot_pool *pool;
	uint32_t next;
	uint64_t files;
	int rc, left; /* left: what a removal has failed with */
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

/* Bytes of a block. */
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

/* A whole chunk that need not be read: never the last one, which is to be written. */
static bool is_hole(struct vol_file *f, const struct sums *s, uint64_t off, uint64_t len,
		    struct vol_run *run)
{
	if (len < MANIFEST_CHUNK || off + len == s->size)
		return false;
	vol_run_at(f, s->size, off, run);
	return off + len <= run->data;
}

/* Reads what was written, where nobody keeps checksums of it. */
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

/* Runs of blocks that are not all zeros, and the last one, which makes the file as long as it is:
 * the others are holes. */
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

/* Sums of the local file; with `to` its bytes go there as well. */
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
		throttle_take(o->job->throttle, len, &o->job->stop);
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
	/* A file of its own: what has that name may have others, in a tree that is in use. */
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

/* Is it the one that the scan has found, and as it was then? */
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
	/* Blocks are cut as the place where the file lies cuts them. */
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

/* ---- what lies there otherwise ---- */

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

static bool is_wanted(void *arg, const char *path, uint32_t mode)
{
	const struct outgoing *o = arg;
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
	/* The name of a descriptor is a link: "." is what it leads to. */
	const char *self = o->tmp_fd >= 0 ? "/." : "";
	int n = snprintf(ret_path, PATH_SIZE, "%s%s%s", o->work, name[0] ? "/" : self, name);
	return n >= (int)PATH_SIZE ? -LE_NAMETOOLONG : 0;
}

static bool is_top(void *arg, const char *path, uint32_t mode)
{
	(void)arg;
	(void)mode;
	return !path[0];
}

/* What is below tmp, but for what stays; NULL: nothing does, nor tmp itself. From open directories:
 * who can write there leads nowhere else. */
static int clear(struct outgoing *o, bool (*stays)(void *arg, const char *path, uint32_t mode))
{
	const struct tree_keep keep = {stays, o};
	const struct stage_io *io = &o->job->io;
	struct side *side = NULL;
	char top[PATH_SIZE];
	o->left = 0;
	TRY(stays ? out_path(o, "", top) : copy_path(o->tmp, top));
	struct walk *w = calloc(1, sizeof(*w));
	int rc = w ? 0 : -LE_NOMEM;
	if (rc == 0)
		rc = io->fs ? side_leat_create(io->fs, &side)
			    : side_local_create(io->env, process_umask(), &side);
	if (rc == 0) {
		w->path = o->shown;
		w->o.failed = on_failed;
		w->o.arg = o;
		rc = tree_remove(w, side, top, stays ? &keep : NULL);
	}
	if (rc == 0)
		rc = w->enomem ? -LE_NOMEM : o->left;
	side_destroy(side);
	free(w);
	return rc;
}

/* ---- the name ---- */

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

/* A former call may have given it the rights of the source, which may not let us write there. */
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

/* What has lain there of former links is gone: they are not wanted. */
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

/* Those that lie in others first: the directory itself, last of all, keeps everybody out until all
 * else is done. */
static int finish_dirs(struct outgoing *o)
{
	char path[PATH_SIZE];
	for (uint32_t i = o->scan.n_dirs; i-- > 0;) {
		const struct scan_dir *d = &o->scan.dirs[i];
		int rc = out_path(o, d->path, path);
		if (rc == 0)
			rc = o->to->ops->syncdir(o->to, path);
		if (rc == 0)
			rc = o->to->ops->set_rights(o->to, path, &d->rights, d->st.mtime_ns);
		TRY(out_told(o, rc, d->path, "cannot give it its rights"));
	}
	return 0;
}

static int swapped(struct outgoing *o)
{
	return detail_set(&o->job->d, -LE_STALE, o->job->o.source, UINT64_MAX,
			  "who may write to the directory that it lies in has put another in its "
			  "place: see what is there, and try again");
}

/* Who may write to the directory that tmp lies in can have given its name to another. */
static int check_published(struct outgoing *o)
{
	struct vol_stat st;
	struct stat own;
	if (o->tmp_fd < 0)
		return 0;
	TRY(vol_stat(o->to, o->dest, &st));
	if (fstat(o->tmp_fd, &own) < 0)
		return status_from_errno(errno);
	return own.st_dev == st.dev && own.st_ino == st.ino ? 0 : swapped(o);
}

/* Holds what has the name tmp now, whatever it is: what is done below it is done there. */
static int hold_tmp(struct outgoing *o, struct stat *ret)
{
	if (o->tmp_fd >= 0)
		close(o->tmp_fd);
	o->tmp_fd = openat(o->parent_fd, strrchr(o->shown, '/') + 1,
			   O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (o->tmp_fd < 0)
		return errno == ENOTDIR || errno == ENOENT ? swapped(o) : status_from_errno(errno);
	snprintf(o->work, sizeof(o->work), "/proc/self/fd/%d", o->tmp_fd);
	return fstat(o->tmp_fd, ret) < 0 ? status_from_errno(errno) : 0;
}

/* All that is held, and its name; who has given the name to another meanwhile loses an empty
 * directory at most. */
static int remove_held(struct outgoing *o)
{
	TRY(clear(o, is_top));
	if (unlinkat(o->parent_fd, strrchr(o->shown, '/') + 1, AT_REMOVEDIR) == 0)
		return 0;
	return errno == ENOTDIR || errno == ENOENT || errno == ENOTEMPTY ? swapped(o)
									 : status_from_errno(errno);
}

/* The directory that was at the destination has the name tmp now. Nothing goes but that. */
static int remove_old(struct outgoing *o, const struct vol_stat *was)
{
	struct vol_stat old;
	struct stat st;
	if (o->parent_fd < 0) {
		TRY(vol_stat(o->to, o->tmp, &old));
		return old.dev == was->dev && old.ino == was->ino ? clear(o, NULL) : swapped(o);
	}
	TRY(hold_tmp(o, &st));
	return st.st_dev == was->dev && st.st_ino == was->ino ? remove_held(o) : swapped(o);
}

static int publish(struct outgoing *o)
{
	char dir[PATH_SIZE];
	struct vol_stat st;
	bool there = o->job->o.replace && vol_stat(o->to, o->dest, &st) == 0;
	parent_of(o->dest, dir);
	/* What somebody has put there since it was looked at is theirs. */
	int rc = there ? (S_ISDIR(st.mode) ? o->to->ops->exchange(o->to, o->tmp, o->dest)
					   : -LE_NOTDIR)
		       : o->to->ops->rename_new(o->to, o->tmp, o->dest);
	if (rc == -LE_EXIST || rc == -LE_NOTDIR)
		out_fail(o, rc, LEAT_STAGE_USAGE, o->job->o.source, "it cannot become that");
	TRY(rc);
	o->published = true;
	TRY(o->to->ops->syncdir(o->to, dir));
	TRY(check_published(o));
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
		out_fail(o, rc, LEAT_STAGE_USAGE, job->o.source, "it cannot become that");
	return rc;
}

/* Others may exchange what has a name in this directory. In a sticky one they may not. */
static bool is_shared(uint32_t mode, uint32_t uid, uint32_t me)
{
	return (uid != me && uid != 0) || ((mode & 022) && !(mode & S_ISVTX));
}

/* Makes the directory that the destination lies in, and looks whether it is shared. A local one is
 * held from here on, and a name in it is told of by its descriptor: who may write to a directory on
 * the way leads what is written nowhere else. */
static int open_parent(struct outgoing *o, const char *dir)
{
	const struct leat_fs *fs = o->job->io.fs;
	const uint32_t me = fs ? fs->cred.uid : (uint32_t)geteuid();
	struct vol_stat vst;
	struct stat st;
	if (fs) {
		TRY(vol_mkdirs(o->to, dir));
		TRY(vol_stat(o->to, dir, &vst));
		o->shared = is_shared(vst.mode, vst.uid, me);
		return 0;
	}
	o->parent_fd = vol_open_made(o->to, dir, me);
	if (o->parent_fd == -LE_PERM)
		return detail_set(&o->job->d, -LE_PERM, o->job->o.source, UINT64_MAX, "%s",
				  others_link);
	TRY(o->parent_fd);
	if (fstat(o->parent_fd, &st) < 0)
		return status_from_errno(errno);
	o->shared = is_shared(st.st_mode, st.st_uid, me);
	return 0;
}

static int name_tmp(struct outgoing *o)
{
	struct stage_job *job = o->job;
	char dir[PATH_SIZE], host[HOST_NAME_MAX + 1] = "";
	if (gethostname(host, sizeof(host) - 1) < 0)
		return status_from_errno(errno);
	uint64_t key = checksum64(job->o.to, strlen(job->o.to)) ^
		       (checksum64(job->o.source, strlen(job->o.source)) << 1) ^
		       (checksum64(host, strlen(host)) << 2);
	parent_of(job->o.source, dir);
	TRY(open_parent(o, dir));
	if (o->shared)
		key = env_random_u64(job->io.env);
	int n = snprintf(o->shown, sizeof(o->shown), "%.4000s%s.leat-out-%016llx", dir,
			 dir[1] ? "/" : "", (unsigned long long)key);
	if (n >= 4000)
		return -LE_NAMETOOLONG;
	if (job->io.fs) {
		TRY(copy_path(o->shown, o->tmp));
		TRY(copy_path(o->shown, o->work));
		return copy_path(job->o.source, o->dest);
	}
	snprintf(o->tmp, sizeof(o->tmp), "/proc/self/fd/%d%.4000s", o->parent_fd,
		 strrchr(o->shown, '/'));
	snprintf(o->dest, sizeof(o->dest), "/proc/self/fd/%d%.4000s", o->parent_fd,
		 strrchr(job->o.source, '/'));
	return 0;
}

/* What was made, or found, and no other that has its name by now: all is written below it. */
static int open_tmp(struct outgoing *o)
{
	struct stat st;
	if (o->parent_fd < 0)
		return 0;
	TRY(hold_tmp(o, &st));
	return st.st_uid == geteuid() && !(st.st_mode & 077) ? 0 : swapped(o);
}

/* This user's alone, from before anything lies there: what somebody else has put there, or was
 * exchanged for what is published, goes. */
static int make_tmp(struct outgoing *o)
{
	const uint32_t me = o->job->io.fs ? o->job->io.fs->cred.uid : (uint32_t)geteuid();
	struct vol_stat st;
	TRY(name_tmp(o));
	int rc = o->shared ? -LE_NOENT : vol_stat(o->to, o->tmp, &st);
	if (rc == 0 && (!S_ISDIR(st.mode) || st.uid != me || (st.mode & 077))) {
		TRY(clear(o, NULL));
		rc = -LE_NOENT;
	}
	if (rc == -LE_NOENT) {
		rc = o->to->ops->mkdir(o->to, o->tmp, 0700);
		o->made = rc == 0;
	}
	return rc < 0 ? rc : open_tmp(o);
}

/* Of a call that has failed with rc: no other one finds what it has written. */
static void remove_unpublished(struct outgoing *o, int rc)
{
	if (!o->shared || !o->made || o->published)
		return;
	/* The first error is the one that is told. */
	o->rc = o->rc ? o->rc : rc;
	detail_set(&o->job->d, rc, o->job->o.to, UINT64_MAX, "%s", status_text(rc));
	rc = o->parent_fd < 0 ? clear(o, NULL) : o->tmp_fd >= 0 ? remove_held(o) : 0;
	if (rc < 0)
		log_info("%s was not removed: %s", o->shown, status_text(rc));
}

/* Where the directory is. A link of another user on the way could have been made to lead root to
 * what that user may not read; judged in the step that follows it, so that none comes between. */
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
	stage_tell_left(job, &o->scan);
	return 0;
}

static int stage_out(struct outgoing *o)
{
	struct outgoing *all[WIDTH];
	TRY(check_dest(o));
	TRY(look_at_source(o));
	TRY(make_tmp(o));
	/* What is not there any more must not come back with its directory. */
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
	return publish(o);
}

static int run(struct outgoing *o)
{
	struct stage_job *job = o->job;
	int fd = open(job->o.to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return status_from_errno(errno);
	/* Two that write the same files at once would undo each other's. */
	int rc = flock(fd, LOCK_EX | LOCK_NB) < 0 ? -LE_BUSY : stage_out(o);
	if (rc < 0)
		remove_unpublished(o, rc);
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
	struct stage_job *job = arg;
	struct outgoing *o = calloc(1, sizeof(*o));
	job->start_us = env_now_us(job->io.env);
	job->own_throttle.rate = job->o.max_rate;
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
