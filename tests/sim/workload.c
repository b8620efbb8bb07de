/* SPDX-License-Identifier: Apache-2.0 */
/* The random clients and their model. See workload.h. */
#include "tests/sim/workload.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/hmap.h"
#include "common/base/log.h"
#include "tests/sim/cuts.h"
#include "tests/sim/shared.h"
#include "tests/sim/sums.h"

#define FILES       6
#define DIRS        4
#define FILE_MAX    SUMS_FILE_MAX
#define RACES       64
#define RECORD      64
#define RECORDS_MAX 512

struct mfile {
	bool exists, unsure, dirty;
	uint64_t size;
	uint8_t *data;
	struct sums_past past; /* since the file was durable */
};

struct mclient {
	bool made, done;
	struct ino dir;
	struct mfile file[FILES];
	bool subdir[DIRS], subdir_unsure[DIRS];
	uint64_t xattr;
	bool xattr_unsure;
	uint32_t ops_left;
	uint32_t n_records; /* appended, or attempted */
	bool record_acked[RECORDS_MAX];
	uint64_t fill;
};

struct workload {
	struct cluster *c;
	struct mclient client[CLIENTS_MAX];
	uint32_t winners[RACES], unsure[RACES];
	uint64_t used_at_start;
	struct shared *shared;
	struct cuts *cuts;
	bool verified;
};

struct workload *workload_now;

static const struct cred root = {.uid = 0, .gid = 0};

/* The state of a client's operations. */
struct run {
	struct cluster *c;
	struct workload *w;
	struct mclient *m;
	struct client *client;
	uint32_t index;
};

static uint64_t rnd(struct run *r, uint64_t n)
{
	return sim_random_below(r->c->sim, n);
}

/* Returns true if status is the wanted one; else the run has failed. */
static bool expect(struct run *r, const char *what, int64_t status, int64_t want)
{
	if (status == want || r->c->failed)
		return !r->c->failed;
	cluster_fail(r->c, "client %u %s: %s (%lld), expected %lld", r->index, what,
		     status < 0 ? status_name((int)status) : "ok", (long long)status,
		     (long long)want);
	return false;
}

static struct bytes name_of(char buf[16], const char *prefix, uint32_t i)
{
	snprintf(buf, 16, "%s%u", prefix, i);
	return bytes_str(buf);
}

static void trace(struct run *r, const char *what, uint64_t a, uint64_t b)
{
	log_debug("%llu us: client %u %s %llu %llu", (unsigned long long)sim_now_us(r->c->sim),
		  r->index, what, (unsigned long long)a, (unsigned long long)b);
}

/* ---- the content of one file ---- */

/* The file does not exist. */
static void forget_file(struct mfile *f)
{
	sums_forget(&f->past);
	*f = (struct mfile){.data = f->data};
}

static void model_resize(struct mfile *f, uint64_t size)
{
	if (size > f->size)
		memset(f->data + f->size, 0, size - f->size);
	f->size = size;
}

static bool make_durable(struct run *r, struct ll_file *file, struct mfile *f, bool data_only)
{
	if (!expect(r, "fsync", ll_fsync(file, data_only), 0))
		return false;
	sums_forget(&f->past);
	f->dirty = false;
	return true;
}

/* Called before a change: keeps the content. If there are too many copies, makes the file durable
 * first. */
static void keep_past(struct run *r, struct ll_file *file, struct mfile *f)
{
	if (f->past.n < SUMS_PAST_MAX || make_durable(r, file, f, true))
		sums_keep(&f->past, &(struct sums_state){f->data, f->size});
}

#define MANY_BYTES 40000u

static void compare(struct run *r, struct ll_file *file, struct mfile *f, uint32_t i, uint64_t off,
		    uint64_t len)
{
	uint64_t want = off >= f->size ? 0 : f->size - off < len ? f->size - off : len;
	char why[SUMS_WHY_SIZE];
	uint8_t *got = malloc(len ? len : 1);
	/* Not for whole files in small reads: each read that is lost on the network takes a
	 * timeout. */
	bool many = got && len <= MANY_BYTES && rnd(r, 2);
	const struct sums_want read = {r->client, file, got, off, len, many ? r->c->sim : NULL};
	const struct sums_file now = {{f->data, f->size}, &f->past};

	if (expect(r, "read", got ? sums_read(&read, &now, why) : -LE_NOMEM, (int64_t)want) &&
	    why[0] != '\0')
		cluster_fail(r->c, "client %u file %u of size %llu: %s", r->index, i,
			     (unsigned long long)f->size, why);
	free(got);
}

/* Some of what is written compresses, some does not. */
static void fill(struct run *r, uint8_t *p, uint64_t len)
{
	uint64_t seed = ++r->m->fill, run = hash_u64(seed) % 2 ? 100 : 1;

	for (uint64_t i = 0; i < len; i++)
		p[i] = (uint8_t)hash_u64(seed + i / run);
	r->m->fill += len / run;
}

static void write_some(struct run *r, struct ll_file *file, struct mfile *f)
{
	uint64_t off = rnd(r, 3) == 0 ? f->size : rnd(r, f->size + 20000);
	uint64_t len = 1 + rnd(r, rnd(r, 2) ? 3000 : 140000);

	if (off >= FILE_MAX)
		off = FILE_MAX - 1;
	if (off + len > FILE_MAX)
		len = FILE_MAX - off;
	keep_past(r, file, f);
	if (off + len > f->size)
		model_resize(f, off + len);
	fill(r, f->data + off, len);
	f->dirty = true;
	trace(r, "write", off, len);
	expect(r, "write", ll_pwrite(file, f->data + off, len, off), (int64_t)len);
}

/* Writes the same bytes again and again, each time acknowledged: a late request must not undo a
 * later one. */
static void rewrite_some(struct run *r, struct ll_file *file, struct mfile *f)
{
	uint64_t off = rnd(r, f->size + 1), len = 1 + rnd(r, 20000);

	if (off + len > FILE_MAX)
		len = FILE_MAX - off;
	for (uint64_t n = 2 + rnd(r, 4); n > 0 && len > 0 && !r->c->failed; n--) {
		keep_past(r, file, f);
		if (off + len > f->size)
			model_resize(f, off + len);
		fill(r, f->data + off, len);
		f->dirty = true;
		trace(r, "rewrite", off, len);
		expect(r, "rewrite", ll_pwrite(file, f->data + off, len, off), (int64_t)len);
		make_durable(r, file, f, true);
		if (rnd(r, 2))
			fiber_sleep_us(rnd(r, 10000));
	}
}

static void punch_some(struct run *r, struct ll_file *file, struct mfile *f)
{
	uint64_t off, len;

	if (f->size < 2)
		return;
	off = rnd(r, f->size - 1);
	len = 1 + rnd(r, f->size - off);
	keep_past(r, file, f);
	f->unsure = true;
	trace(r, "punch", off, len);
	memset(f->data + off, 0, len);
	expect(r, "punch", ll_fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off, len),
	       0);
	f->unsure = f->dirty;
}

static void truncate_file(struct run *r, struct ll_file *file, struct ino ino, struct mfile *f)
{
	struct attr set = {.size = rnd(r, 2) ? rnd(r, f->size + 1) : rnd(r, FILE_MAX)}, got;

	keep_past(r, file, f);
	f->unsure = true;
	trace(r, "truncate to", set.size, 0);
	if (!expect(r, "truncate", ll_setattr(r->client, &root, ino, file, SET_SIZE, &set, &got),
		    0))
		return;
	model_resize(f, set.size);
	expect(r, "size after truncate", (int64_t)got.size, (int64_t)set.size);
	f->unsure = f->dirty;
}

static void check_size(struct run *r, struct ino ino, struct mfile *f)
{
	struct attr a;

	if (expect(r, "getattr", ll_getattr(r->client, &root, ino, &a), 0))
		expect(r, "size", (int64_t)a.size, (int64_t)f->size);
}

static int open_file(struct run *r, uint32_t i, struct ll_file **ret_file, struct attr *ret_attr)
{
	struct mfile *f = &r->m->file[i];
	char buf[16];
	struct bytes name = name_of(buf, "f", i);
	bool changed;
	int status;

	if (!f->exists) {
		f->unsure = true;
		status = ll_create(r->client, &root, r->m->dir, name, 0644,
				   O_RDWR | O_EXCL | O_CREAT, ret_file, ret_attr);
		if (!expect(r, "create", status, 0))
			return -1;
		f->exists = true;
		f->size = 0;
		f->unsure = f->dirty = false;
		return 0;
	}
	if (!expect(r, "lookup", ll_lookup(r->client, &root, r->m->dir, name, ret_attr), 0))
		return -1;
	bool cut = rnd(r, 6) == 0 && f->past.n < SUMS_PAST_MAX;
	if (cut)
		sums_keep(&f->past, &(struct sums_state){f->data, f->size});
	f->unsure = cut;
	status = ll_open(r->client, &root, ret_attr->ino, O_RDWR | (cut ? O_TRUNC : 0), ret_file,
			 ret_attr, &changed);
	if (!expect(r, "open", status, 0))
		return -1;
	if (cut)
		f->size = 0;
	f->unsure = false;
	return 0;
}

/* Writes and closes through another descriptor: the close is in flight while the first descriptor
 * is in use. */
static void write_by_another(struct run *r, struct ino ino, struct mfile *f)
{
	struct ll_file *file;
	struct attr a;
	bool changed;

	trace(r, "opens again", ino.v, f->size);
	if (!expect(r, "open", ll_open(r->client, &root, ino, O_RDWR, &file, &a, &changed), 0))
		return;
	write_some(r, file, f);
	expect(r, "flush", ll_flush(file), 0);
	ll_release(file);
}

static void use_file(struct run *r)
{
	uint32_t i = (uint32_t)rnd(r, FILES), n = 1 + (uint32_t)rnd(r, 5);
	struct mfile *f = &r->m->file[i];
	struct ll_file *file;
	struct attr a;

	if (open_file(r, i, &file, &a) < 0)
		return;
	trace(r, "has opened", i, a.ino.v);
	while (n-- > 0 && !r->c->failed) {
		switch (rnd(r, 10)) {
		case 0:
		case 1:
		case 2:
		case 3:
			write_some(r, file, f);
			break;
		case 4:
			compare(r, file, f, i, rnd(r, f->size + 1), 1 + rnd(r, 150000));
			break;
		case 5:
			truncate_file(r, file, a.ino, f);
			break;
		case 6:
			if (make_durable(r, file, f, rnd(r, 2)))
				f->unsure = false;
			break;
		case 7:
			rewrite_some(r, file, f);
			break;
		case 8:
			write_by_another(r, a.ino, f);
			break;
		default:
			punch_some(r, file, f);
			check_size(r, a.ino, f);
		}
	}
	trace(r, "flush", i, f->size);
	/* What was closed without fsync survives a crash of the client or of a server, not of
	 * both. */
	if (expect(r, "flush", ll_flush(file), 0))
		f->unsure = f->dirty;
	trace(r, "flushed", i, f->size);
	ll_release(file);
	if (rnd(r, 2))
		check_size(r, a.ino, f);
}

static void read_file(struct run *r, uint32_t i)
{
	struct mfile *f = &r->m->file[i];
	char buf[16];
	struct ll_file *file;
	struct attr a = {0};
	bool changed;
	int status = ll_lookup(r->client, &root, r->m->dir, name_of(buf, "f", i), &a);

	trace(r, "reads", i, a.ino.v);
	if (!expect(r, "lookup", status, f->exists ? 0 : -LE_NOENT) || !f->exists)
		return;
	if (!expect(r, "open", ll_open(r->client, &root, a.ino, O_RDONLY, &file, &a, &changed), 0))
		return;
	expect(r, "size at open", (int64_t)a.size, (int64_t)f->size);
	ll_expect_read(file);
	compare(r, file, f, i, 0, FILE_MAX);
	ll_release(file);
}

/* ---- names ---- */

static void rename_file(struct run *r)
{
	uint32_t i = (uint32_t)rnd(r, FILES), j = (uint32_t)rnd(r, FILES);
	struct mfile *a = &r->m->file[i], *b = &r->m->file[j];
	char from[16], to[16];

	if (i == j || !a->exists)
		return;
	a->unsure = b->unsure = true;
	if (!expect(r, "rename",
		    ll_rename(r->client, &root, r->m->dir, name_of(from, "f", i), r->m->dir,
			      name_of(to, "f", j), 0),
		    0))
		return;
	struct mfile old = *b;
	*b = *a;
	*a = old;
	forget_file(a);
	b->unsure = false;
}

static void unlink_file(struct run *r)
{
	uint32_t i = (uint32_t)rnd(r, FILES);
	struct mfile *f = &r->m->file[i];
	char buf[16];
	int want = f->exists ? 0 : -LE_NOENT;

	f->unsure = true;
	if (!expect(r, "unlink", ll_unlink(r->client, &root, r->m->dir, name_of(buf, "f", i)),
		    want))
		return;
	forget_file(f);
}

static void link_file(struct run *r)
{
	uint32_t i = (uint32_t)rnd(r, FILES);
	char buf[16];
	struct attr a;

	if (!r->m->file[i].exists)
		return;
	if (!expect(r, "lookup", ll_lookup(r->client, &root, r->m->dir, name_of(buf, "f", i), &a),
		    0))
		return;
	struct bytes name = bytes_str("hardlink");
	if (expect(r, "link", ll_link(r->client, &root, a.ino, r->m->dir, name, &a), 0) &&
	    expect(r, "nlink", a.nlink, 2))
		expect(r, "unlink of link", ll_unlink(r->client, &root, r->m->dir, name), 0);
}

static void use_symlink(struct run *r)
{
	char target[LEAT_SYMLINK_MAX + 1];
	struct bytes name = bytes_str("symlink");
	struct attr a;
	int status = ll_symlink(r->client, &root, r->m->dir, name, bytes_str("some/where"), &a);

	if (!expect(r, "symlink", status, 0))
		return;
	if (expect(r, "readlink", ll_readlink(r->client, &root, a.ino, target, sizeof(target)), 0))
		expect(r, "link target", strcmp(target, "some/where"), 0);
	expect(r, "unlink of symlink", ll_unlink(r->client, &root, r->m->dir, name), 0);
}

static void use_subdir(struct run *r)
{
	uint32_t i = (uint32_t)rnd(r, DIRS);
	bool there = r->m->subdir[i];
	char buf[16];
	struct bytes name = name_of(buf, "d", i);
	struct attr a;

	r->m->subdir_unsure[i] = true;
	if (rnd(r, 2)) {
		if (!expect(r, "mkdir", ll_mkdir(r->client, &root, r->m->dir, name, 0755, &a),
			    there ? -LE_EXIST : 0))
			return;
		r->m->subdir[i] = true;
	} else {
		if (!expect(r, "rmdir", ll_rmdir(r->client, &root, r->m->dir, name),
			    there ? 0 : -LE_NOENT))
			return;
		r->m->subdir[i] = false;
	}
	r->m->subdir_unsure[i] = false;
}

struct listing {
	struct run *r;
	uint64_t cookie;
	uint32_t files, dirs, others;
};

static int take_name(void *arg, const struct ll_dirent *e)
{
	struct listing *l = arg;
	char name[LEAT_NAME_MAX + 1];
	uint32_t i;

	memcpy(name, e->name.data, e->name.len);
	name[e->name.len] = '\0';
	l->cookie = e->cookie;
	if (sscanf(name, "f%u", &i) == 1 && i < FILES && l->r->m->file[i].exists)
		l->files++;
	else if (sscanf(name, "d%u", &i) == 1 && i < DIRS && l->r->m->subdir[i])
		l->dirs++;
	else
		l->others++;
	return 0;
}

static void list_dir(struct run *r)
{
	struct listing l = {.r = r};
	uint32_t files = 0, dirs = 0;
	bool eof = false;

	while (!eof && !r->c->failed)
		if (!expect(r, "readdir",
			    ll_readdir(r->client, &root, r->m->dir, l.cookie, rnd(r, 2), take_name,
				       &l, &eof),
			    0))
			return;
	for (int i = 0; i < FILES; i++)
		files += r->m->file[i].exists;
	for (int i = 0; i < DIRS; i++)
		dirs += r->m->subdir[i];
	expect(r, "files listed", l.files, files);
	expect(r, "directories listed", l.dirs, dirs);
	expect(r, "strangers listed", l.others, 0);
}

static void use_xattr(struct run *r)
{
	struct bytes name = bytes_str("user.count");
	uint64_t v;

	if (rnd(r, 2)) {
		v = r->m->xattr + 1;
		r->m->xattr_unsure = true;
		if (expect(r, "setxattr",
			   ll_setxattr(r->client, &root, r->m->dir, name, bytes_of(&v, sizeof(v)),
				       0),
			   0)) {
			r->m->xattr = v;
			r->m->xattr_unsure = false;
		}
	} else if (r->m->xattr) {
		if (expect(r, "getxattr",
			   ll_getxattr(r->client, &root, r->m->dir, name, &v, sizeof(v)),
			   sizeof(v)))
			expect(r, "xattr value", (int64_t)v, (int64_t)r->m->xattr);
	}
}

/* ---- shared: one winner per O_EXCL, every appended record once ---- */

static void race(struct run *r)
{
	uint32_t i = (uint32_t)rnd(r, RACES);
	struct ll_file *file;
	struct attr a;
	char buf[16];

	r->w->unsure[i]++;
	int status = ll_create(r->client, &root, LEAT_ROOT_INO, name_of(buf, "race", i), 0644,
			       O_RDWR | O_CREAT | O_EXCL, &file, &a);
	r->w->unsure[i]--;
	if (status == -LE_EXIST)
		return;
	if (!expect(r, "race", status, 0))
		return;
	ll_release(file);
	if (++r->w->winners[i] > 1)
		cluster_fail(r->c, "race %u has two winners", i);
}

static void record_fill(uint8_t rec[RECORD], uint32_t client, uint32_t seq)
{
	memset(rec, 0x5a, RECORD);
	memcpy(rec, &client, 4);
	memcpy(rec + 4, &seq, 4);
}

/* Until records are visible they may be lost with the client. What a server has only accepted is
 * lost if both crash, the client before it has repeated it. */
static int flush_records(struct run *r, struct ll_file *file)
{
	const struct plan *p = &r->c->plan;

	if (p->crash_servers && (p->crash_clients || p->cut_network))
		return ll_fsync(file, true);
	return ll_flush(file);
}

/* Appends some records at a time, so that they wait for others at this client while the metadata
 * server crashes and other clients append. */
static void append_records(struct run *r)
{
	uint32_t first = r->m->n_records, n = 1 + (uint32_t)rnd(r, 4);
	bool written[4];
	struct ll_file *file;
	uint8_t rec[RECORD];
	struct attr a;

	if (first + n > RECORDS_MAX)
		return;
	if (!expect(r, "open log",
		    ll_create(r->client, &root, LEAT_ROOT_INO, bytes_str("log"), 0644,
			      O_WRONLY | O_CREAT | O_APPEND, &file, &a),
		    0))
		return;
	for (uint32_t k = 0; k < n; k++) {
		uint32_t seq = r->m->n_records++;

		record_fill(rec, r->index, seq);
		written[k] = expect(r, "append", ll_pwrite(file, rec, RECORD, 0), RECORD);
		if (n > 1)
			fiber_sleep_us(rnd(r, rnd(r, 2) == 0 ? 50000 : 2000000));
	}
	if (expect(r, "flush log", flush_records(r, file), 0))
		memcpy(r->m->record_acked + first, written, n);
	ll_release(file);
}

/* ---- shared: every order must be possible ---- */

static void use_shared_data(struct run *r)
{
	shared_data(r->w->shared, r->index);
}

static void use_cuts(struct run *r)
{
	cuts_use(r->w->cuts, r->index);
}

static void use_shared_names(struct run *r)
{
	shared_names(r->w->shared, r->index);
}

/* ---- a client's life ---- */

/* Some directories have compressed files: which ones depends on the seed. */
static bool is_packed(const struct run *r, uint32_t index)
{
	return (r->c->plan.seed + index) % 3 == 1;
}

/* One, two and three replicas, mixed; several where all clients use one file. */
static uint32_t copies_of(const struct run *r, uint32_t index)
{
	const struct plan *p = &r->c->plan;

	return (p->contended && !p->names && !p->cuts && !p->late) || p->damaged
		       ? p->replicas - index % 2
		       : 1 + (uint32_t)((p->seed + index) % p->replicas);
}

/* Files made in the directory from now on have this number of replicas, and may be compressed. */
static void set_layout(struct run *r, struct ino dir, uint32_t replicas, bool packed)
{
	struct layout l = {
		.replicas = (uint8_t)replicas,
		.compression = packed ? COMPRESSION_LZ4 : COMPRESSION_OFF,
	};
	int status = ll_layout_set(r->client, &root, dir, &l, NULL);

	/* The first directory makes the chains, of the targets that are up now. */
	while (status == -LE_NODEV && !r->c->failed) {
		fiber_sleep_us(500000);
		status = ll_layout_set(r->client, &root, dir, &l, NULL);
	}
	expect(r, "layout", status, 0);
}

/* One for each number of replicas: the root's own number depends on the seed. */
static void make_shared_dirs(struct run *r)
{
	struct cluster *c = r->c;
	struct attr a;
	char buf[16];

	c->shared_dir[0] = LEAT_ROOT_INO;
	set_layout(r, LEAT_ROOT_INO, copies_of(r, 0), is_packed(r, 0));
	if (c->plan.replicas == 1) {
		c->n_shared_dirs = 1;
		return;
	}
	for (uint32_t i = 1; i < c->plan.replicas; i++) {
		struct bytes name = name_of(buf, "r", i);
		int status = ll_mkdir(r->client, &root, LEAT_ROOT_INO, name, 0755, &a);

		if (status == -LE_EXIST)
			status = ll_lookup(r->client, &root, LEAT_ROOT_INO, name, &a);
		if (!expect(r, "shared directory", status, 0))
			return;
		c->shared_dir[i] = a.ino;
		set_layout(r, a.ino, copies_of(r, i), is_packed(r, i));
	}
	c->n_shared_dirs = c->plan.replicas;
}

static void make_home(struct run *r)
{
	char buf[16];
	struct bytes name = name_of(buf, "c", r->index);
	struct attr a;
	int status = ll_mkdir(r->client, &root, LEAT_ROOT_INO, name, 0755, &a);

	if (status == -LE_EXIST)
		status = ll_lookup(r->client, &root, LEAT_ROOT_INO, name, &a);
	if (!expect(r, "home", status, 0))
		return;
	set_layout(r, a.ino, copies_of(r, r->index), is_packed(r, r->index));
	r->m->dir = a.ino;
	r->m->made = true;
}

/* A truncation or punch that the dead predecessor requested may be durable as an intent, and still
 * wait for a target that is down: it may take effect at any time until a reply says that it has.
 * Another operation on the file's data as a whole, here one without effect, comes after it. */
static void wait_for_intents(struct run *r, struct ino ino)
{
	const uint32_t mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	struct ll_file *file;
	struct attr a;
	bool changed;

	if (!expect(r, "adopt open", ll_open(r->client, &root, ino, O_RDWR, &file, &a, &changed),
		    0))
		return;
	expect(r, "adopt punch", ll_fallocate(file, mode, 2 * FILE_MAX, 1), 0);
	ll_release(file);
}

/* Takes the file as it is for the model, where the crash left it undefined. */
static void adopt_file(struct run *r, uint32_t i)
{
	struct mfile *f = &r->m->file[i];
	char buf[16];
	struct ll_file *file;
	struct attr a;
	bool changed;
	int status = ll_lookup(r->client, &root, r->m->dir, name_of(buf, "f", i), &a);

	if (status == -LE_NOENT) {
		forget_file(f);
		return;
	}
	if (!expect(r, "adopt", status, 0))
		return;
	wait_for_intents(r, a.ino);
	if (!expect(r, "adopt open",
		    ll_open(r->client, &root, a.ino, O_RDONLY, &file, &a, &changed), 0))
		return;
	int64_t n = ll_pread(file, f->data, FILE_MAX, 0);
	ll_release(file);
	if (!expect(r, "adopt read", n < 0 ? n : 0, 0))
		return;
	expect(r, "adopt size", (int64_t)a.size, n);
	f->exists = true;
	f->size = (uint64_t)n;
	f->unsure = f->dirty = false;
	sums_forget(&f->past);
}

static void adopt(struct run *r)
{
	char buf[16];
	struct attr a;

	/* In contended seeds no client uses its own files. */
	if (!r->m->made || r->c->plan.contended)
		return;
	/* Requests of the dead predecessor may still be in flight: no fencing before leases. */
	fiber_sleep_us(3000000);
	for (uint32_t i = 0; i < FILES && !r->c->failed; i++) {
		struct mfile *f = &r->m->file[i];
		if (f->unsure || f->dirty)
			adopt_file(r, i);
		else
			read_file(r, i);
	}
	for (uint32_t i = 0; i < DIRS; i++)
		if (r->m->subdir_unsure[i]) {
			r->m->subdir[i] = ll_lookup(r->client, &root, r->m->dir,
						    name_of(buf, "d", i), &a) == 0;
			r->m->subdir_unsure[i] = false;
		}
	(void)!ll_unlink(r->client, &root, r->m->dir, bytes_str("hardlink"));
	(void)!ll_unlink(r->client, &root, r->m->dir, bytes_str("symlink"));
	if (r->m->xattr_unsure) {
		uint64_t v = 0;
		if (ll_getxattr(r->client, &root, r->m->dir, bytes_str("user.count"), &v,
				sizeof(v)) == 8)
			r->m->xattr = v;
		r->m->xattr_unsure = false;
	}
}

/* So many that the damaged member becomes head again, and gets requests, while files exist. */
static void one_data_op(struct run *r)
{
	uint64_t kind = rnd(r, 4);

	if (kind == 0)
		use_file(r);
	else if (kind == 1)
		read_file(r, (uint32_t)rnd(r, FILES));
	else
		use_shared_data(r);
	r->c->count.ops++;
	fiber_sleep_us(rnd(r, 60000));
}

static void one_op(struct run *r)
{
	static void (*const ops[])(struct run *) = {
		use_file,        use_file,        use_file,        use_file,
		rename_file,     unlink_file,     link_file,       use_symlink,
		use_subdir,      list_dir,        use_xattr,       race,
		append_records,  append_records,  use_shared_data, use_shared_data,
		use_shared_data, use_shared_data, use_shared_data, use_shared_names,
		use_cuts,        use_cuts,
	};
	uint64_t i = rnd(r, ARRAY_SIZE(ops) + 1);

	/* Where writes may fail, only operations whose result the model need not predict. */
	if (r->c->plan.refuse && i < 6)
		use_shared_data(r);
	else if (r->c->plan.refuse && (i == 12 || i == 13))
		use_shared_names(r);
	else if (i == ARRAY_SIZE(ops))
		read_file(r, (uint32_t)rnd(r, FILES));
	else
		ops[i](r);
	r->c->count.ops++;
}

/* ---- the last client: everything must be as the models say ---- */

static void verify_log(struct run *r)
{
	uint8_t rec[RECORD], want[RECORD];
	struct ll_file *file;
	struct attr a;
	bool changed;
	uint8_t(*seen)[RECORDS_MAX] = calloc(CLIENTS_MAX, RECORDS_MAX);
	int status = ll_lookup(r->client, &root, LEAT_ROOT_INO, bytes_str("log"), &a);

	if (status == 0 &&
	    expect(r, "open log", ll_open(r->client, &root, a.ino, O_RDONLY, &file, &a, &changed),
		   0)) {
		for (uint64_t off = 0; off < a.size && !r->c->failed; off += RECORD) {
			if (!expect(r, "read log", ll_pread(file, rec, RECORD, off), RECORD))
				break;
			uint32_t who, seq;
			memcpy(&who, rec, 4);
			memcpy(&seq, rec + 4, 4);
			if (who == 0 && seq == 0 && rec[8] == 0)
				continue; /* reserved by a client that died before it wrote */
			record_fill(want, who, seq);
			if (who >= CLIENTS_MAX || seq >= RECORDS_MAX ||
			    memcmp(rec, want, RECORD) != 0)
				cluster_fail(r->c, "log: garbage at %llu", (unsigned long long)off);
			else if (seen[who][seq]++)
				cluster_fail(r->c, "log: record %u of client %u twice", seq, who);
		}
		ll_release(file);
	}
	for (uint32_t i = 0; i < r->c->plan.n_clients; i++)
		for (uint32_t j = 0; j < r->w->client[i].n_records; j++)
			if (r->w->client[i].record_acked[j] && !seen[i][j])
				cluster_fail(r->c,
					     "log: acknowledged record %u of client %u is lost", j,
					     i);
	free(seen);
}

static void verify_races(struct run *r)
{
	struct attr a;
	char buf[16];

	for (uint32_t i = 0; i < RACES; i++) {
		bool there = ll_lookup(r->client, &root, LEAT_ROOT_INO, name_of(buf, "race", i),
				       &a) == 0;
		if (!there && r->w->winners[i])
			cluster_fail(r->c, "race %u: what the winner created is gone", i);
		if (there && !r->w->winners[i] && !r->w->unsure[i])
			cluster_fail(r->c, "race %u: exists, but nobody won", i);
		if (there)
			expect(r, "remove race",
			       ll_unlink(r->client, &root, LEAT_ROOT_INO, bytes_str(buf)), 0);
	}
}

static void remove_home(struct run *r)
{
	char buf[16];

	for (uint32_t i = 0; i < FILES; i++)
		if (r->m->file[i].exists)
			expect(r, "remove",
			       ll_unlink(r->client, &root, r->m->dir, name_of(buf, "f", i)), 0);
	for (uint32_t i = 0; i < DIRS; i++)
		if (r->m->subdir[i])
			expect(r, "remove",
			       ll_rmdir(r->client, &root, r->m->dir, name_of(buf, "d", i)), 0);
	uint32_t index = (uint32_t)(r->m - r->w->client);
	expect(r, "remove home",
	       ll_rmdir(r->client, &root, LEAT_ROOT_INO, name_of(buf, "c", index)), 0);
}

/* Everything was removed: 10 s later the object servers hold nothing. */
static void verify_space(struct run *r)
{
	struct ll_statfs st;
	char buf[16];

	(void)!ll_unlink(r->client, &root, LEAT_ROOT_INO, bytes_str("log"));
	for (uint32_t i = 1; i < r->c->n_shared_dirs; i++)
		expect(r, "remove shared directory",
		       ll_rmdir(r->client, &root, LEAT_ROOT_INO, name_of(buf, "r", i)), 0);
	for (int i = 0; i < 100; i++) {
		if (!expect(r, "statfs", ll_statfs(r->client, LEAT_ROOT_INO, &st), 0))
			return;
		if (st.total - st.free <= r->w->used_at_start)
			return;
		fiber_sleep_us(1000000);
	}
	cluster_fail(r->c, "space does not come back: %llu bytes still used",
		     (unsigned long long)(st.total - st.free));
}

static void verify(struct run *r)
{
	for (uint32_t i = 0; i < r->c->plan.n_clients && !r->c->failed; i++) {
		r->m = &r->w->client[i];
		r->index = i;
		for (uint32_t j = 0; j < FILES; j++)
			read_file(r, j);
		list_dir(r);
		remove_home(r);
	}
	shared_verify(r->w->shared, CLIENTS_MAX);
	if (!r->c->failed)
		cuts_verify(r->w->cuts, CLIENTS_MAX);
	verify_races(r);
	verify_log(r);
	verify_space(r);
	r->w->verified = true;
}

void workload_client(struct cluster *c, uint32_t index, struct client *client)
{
	struct workload *w = workload_now;
	struct run r = {.c = c, .w = w, .client = client, .index = index};

	make_shared_dirs(&r);
	if (c->failed)
		return;
	shared_client_start(w->shared, index, client);
	cuts_client_start(w->cuts, index, client);
	if (index == CLIENTS_MAX) {
		verify(&r);
		return;
	}
	r.m = &w->client[index];
	if (w->used_at_start == 0) {
		struct ll_statfs st;
		if (!expect(&r, "statfs", ll_statfs(client, LEAT_ROOT_INO, &st), 0))
			return;
		w->used_at_start = st.total - st.free;
	}
	if (!r.m->made)
		make_home(&r);
	adopt(&r);
	if (c->plan.cuts && !c->failed)
		cuts_contend(w->cuts, index, &r.m->ops_left);
	else if (c->plan.late && !c->failed)
		shared_contend_late(w->shared, index, &r.m->ops_left);
	else if (c->plan.contended && !c->failed)
		(c->plan.names ? shared_contend_names : shared_contend)(w->shared, index,
									&r.m->ops_left);
	while (r.m->ops_left > 0 && !c->failed) {
		r.m->ops_left--;
		(c->plan.damaged ? one_data_op : one_op)(&r);
	}
	shared_client_end(w->shared, index);
	cuts_client_end(w->cuts, index);
	/* A crash after this must not leave anything undefined. */
	c->client[index].running = false;
	client_destroy(client);
	r.m->done = true;
}

bool workload_done(void *arg)
{
	struct workload *w = arg;

	for (uint32_t i = 0; i < w->c->plan.n_clients; i++)
		if (!w->client[i].done)
			return false;
	return true;
}

bool workload_verified(void *arg)
{
	struct workload *w = arg;

	return w->verified;
}

struct workload *workload_create(struct cluster *c)
{
	struct workload *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->c = c;
	for (uint32_t i = 0; i < c->plan.n_clients; i++) {
		w->client[i].ops_left = c->plan.n_ops;
		for (int j = 0; j < FILES; j++) {
			w->client[i].file[j].data = calloc(1, FILE_MAX);
			if (!w->client[i].file[j].data)
				return NULL;
		}
	}
	w->shared = shared_create(c);
	w->cuts = cuts_create(c);
	c->client_main = workload_client;
	return w->shared != NULL && w->cuts != NULL ? w : NULL;
}
