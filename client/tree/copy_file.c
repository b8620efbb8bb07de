/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copy of one file.
 *
 * load (opens the source, reads its beginning) → store (makes a file with that) → the rest in
 * pieces without holes, or by the servers → finish (sets the size and what is to be kept, closes).
 *
 * A file that fits into one piece is made under its final name, and removed if the copy fails.
 * Larger files, and those that replace a file, are made under another name in the same directory
 * and renamed at the end, so that not even kill -9 leaves half of a file under its final name.
 */
#include "client/tree/copy_file.h"

#include <stdio.h>
#include <unistd.h>

#include "client/tree/copy.h"
#include "common/rt/env.h"
#include "common/rt/loop.h"

#define SECTOR    512u
#define NAME_PART 220

struct file_copy {
	struct wfiber *f;
	struct copying *cp;
	struct tdir *to;
	const struct tattr *a; /* of the source: as listed, and since load as opened */
	struct tfile in, out;
	uint64_t off; /* bytes before it are copied */
};

void copy_temp_name(const char *name, char buf[TEMP_NAME_MAX])
{
	uint64_t r = env_random_u64(loop_env(loop_self()));

	snprintf(buf, TEMP_NAME_MAX, ".%.*s.leat-%08x", NAME_PART, name, (unsigned)r);
}

int copy_may_replace(const struct copying *cp, struct tdir *d, const char *name,
		     const struct tattr *a)
{
	struct tattr there;
	int rc = d->side->ops->look(d, name, &there);

	if (rc < 0)
		return rc == -LE_NOENT ? 0 : rc;
	if (cp->c->keep & LEAT_TREE_NEW_ONLY)
		return 1;
	if (cp->same && there.ino == a->ino && there.dev == a->dev)
		return -LE_INVAL;
	return (there.mode & S_IFMT) == S_IFDIR ? -LE_ISDIR : 0;
}

int copy_rename(const struct copying *cp, struct tdir *d, const char *temp, const char *name)
{
	bool new_only = cp->c->keep & LEAT_TREE_NEW_ONLY;
	int rc = d->side->ops->rename(d, temp, name, new_only ? RENAME_NOREPLACE : 0);

	return rc == -LE_EXIST && new_only ? 1 : rc;
}

/* Copies the bytes from off to `end`, or to the end of the file. */
static int stream(struct file_copy *fc, uint64_t end)
{
	uint8_t *buf = wfiber_buf(fc->f);

	while (fc->off < end) {
		uint64_t want = end - fc->off;
		int64_t n;

		if (walk_cancelled(fc->f->w))
			return -LE_INTR;
		n = fc->in.side->ops->pread(&fc->in, buf, want < WALK_BUF ? want : WALK_BUF,
					    fc->off);
		TRY((int)n);
		if (n == 0)
			break;
		TRY(fc->out.side->ops->pwrite(&fc->out, buf, (size_t)n, fc->off));
		fc->off += (uint64_t)n;
		walk_did(fc->f->w, 0, 0, (uint64_t)n);
	}
	return 0;
}

static int stream_data_only(struct file_copy *fc)
{
	const struct side_ops *ops = fc->in.side->ops;

	for (;;) {
		int64_t data = ops->seek(&fc->in, fc->off, SEEK_DATA), hole;

		if (data == -LE_NXIO)
			return 0;
		if (data < 0)
			return stream(fc, UINT64_MAX); /* the source does not report holes */
		hole = ops->seek(&fc->in, (uint64_t)data, SEEK_HOLE);
		TRY((int)(hole < 0 ? hole : 0));
		fc->off = (uint64_t)data;
		TRY(stream(fc, (uint64_t)hole));
		if (fc->off < (uint64_t)hole)
			return 0; /* the source was truncated */
	}
}

/* Lets the servers copy as much as they can. */
static int by_servers(struct file_copy *fc)
{
	while (fc->off < fc->a->size) {
		int64_t n;

		if (walk_cancelled(fc->f->w))
			return -LE_INTR;
		n = fc->out.side->ops->copy(&fc->in, fc->off, &fc->out, fc->a->size - fc->off);
		if (n == -LE_NOTSUP || n == 0)
			break;
		TRY((int)(n < 0 ? n : 0));
		fc->off += (uint64_t)n;
		walk_did(fc->f->w, 0, 0, (uint64_t)n);
	}
	return 0;
}

static bool is_sparse(const struct tattr *a)
{
	return a->blocks * SECTOR < a->size && a->size > 4096;
}

static bool servers_can(const struct file_copy *fc)
{
	return fc->cp->c->from == fc->cp->c->to && fc->cp->c->to->ops->copy &&
	       fc->a->size > WALK_BUF && !is_sparse(fc->a);
}

static int rest(struct file_copy *fc)
{
	if (is_sparse(fc->a))
		return stream_data_only(fc);
	if (servers_can(fc))
		TRY(by_servers(fc));
	return stream(fc, UINT64_MAX);
}

/* Makes the copy with its first bytes: at `name`, or at `temp` if `name` exists or bytes are
 * missing. *ret_made is the name that was used. Returns 1 if the existing file is to stay. */
static int store(struct file_copy *fc, const char *name, char *temp, size_t len, bool whole,
		 const char **ret_made)
{
	const struct side_ops *ops = fc->to->side->ops;
	uint32_t mode = fc->cp->c->keep & LEAT_KEEP_MODE ? 0600 : fc->a->mode & 0777;
	int rc = -LE_EXIST;

	*ret_made = name;
	if (whole) {
		rc = ops->store(fc->to, name, mode, fc->f->buf, len, &fc->out);
		if (rc != -LE_EXIST)
			return rc;
	}
	rc = copy_may_replace(fc->cp, fc->to, name, fc->a);
	if (rc != 0)
		return rc;
	*ret_made = temp;
	copy_temp_name(name, temp);
	return ops->store(fc->to, temp, mode, fc->f->buf, len, &fc->out);
}

/* Returns the final size if a hole at the end must be added, else UINT64_MAX. The source may
 * have grown beyond its size when it was opened. */
static uint64_t size_of(const struct file_copy *fc, bool whole)
{
	if (whole || !is_sparse(fc->a))
		return UINT64_MAX;
	return fc->a->size > fc->off ? fc->a->size : fc->off;
}

/* Makes the copy of the open source; the fiber's buffer has its first len bytes. */
static int make(struct file_copy *fc, const char *name, size_t len, bool whole)
{
	const struct side_ops *ops = fc->to->side->ops;
	char temp[TEMP_NAME_MAX];
	const char *made;
	int rc = store(fc, name, temp, len, whole, &made);

	if (rc != 0)
		return rc;
	fc->off = len;
	walk_did(fc->f->w, 0, 0, len);
	if (!whole)
		rc = rest(fc);
	if (rc == 0)
		rc = ops->finish(&fc->out, size_of(fc, whole), &fc->f->m);
	else
		tfile_drop(&fc->out);
	if (rc == 0 && made == temp)
		rc = walk_cancelled(fc->f->w) ? -LE_INTR
					      : copy_rename(fc->cp, fc->to, temp, name);
	if (rc == 0)
		return 0;
	/* A half file that could not be removed matters more than the reason of the failure. */
	int gone = ops->remove(fc->to, made, false);
	return gone < 0 && gone != -LE_NOENT ? gone : rc;
}

int copy_file(struct wfiber *f, struct wnode *dir, const struct tent *e, const char *name,
	      struct tlink *ret_link)
{
	struct file_copy fc = {.f = f, .cp = f->w->arg, .to = &dir->dst, .a = &f->m.a};
	/* Reads one byte more than the size, to detect a file that has grown. */
	size_t want = e->a.size < WALK_BUF ? (size_t)e->a.size + 1 : WALK_BUF, len = want;
	bool read;
	int rc;

	f->m.a = e->a;
	if (is_sparse(&e->a) || servers_can(&fc))
		len = 0;
	read = len > 0;
	if (!wfiber_buf(f))
		return -LE_NOMEM;
	f->m.keep = fc.cp->c->keep;
	f->m.len = 0;
	TRY(dir->src.side->ops->load(&dir->src, e, &fc.in, f->buf, &len, &f->m));
	rc = make(&fc, name, len, read && len < want);
	ret_link->ino = fc.out.ino;
	ret_link->dev = fc.out.dev;
	tfile_drop(&fc.in);
	return rc;
}
