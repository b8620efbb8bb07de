/* SPDX-License-Identifier: Apache-2.0 */
/* The files and the locks of the cache; belady.c chooses the piece to drop. */
#include "client/loader/source/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "client/dataset/beneath.h"
#include "common/base/assert.h"
#include "common/base/checksum.h"
#include "common/base/log.h"
#include "common/rt/env.h"

#define MAGIC        0x314543454950544cULL /* "LTPIECE1" */
#define FANOUT       256u
#define DIR_MAX      3900u
#define SWEEPS       64u /* times per epoch that put_right runs */
#define FAILURES_MAX 16u /* failed writes in a row, after which the cache writes nothing */

struct trailer {
	uint64_t magic, len, sum, zero;
};

struct cache {
	struct leat_dataset *ds;
	char dir[DIR_MAX + 64]; /* for messages */
	char at[32];            /* path of dir_fd in /proc, valid even if the folder is renamed */
	int dir_fd, lock_fd, slot_fd;
	struct order_deal deal;
	uint32_t local_ranks, rank, stride, slot, n_slots;
	uint64_t lag; /* most steps by which loaders of a node differ in reading ahead */

	pthread_mutex_t lock;
	struct belady books;
	struct sequence order;
	uint64_t swept; /* the time of the last put_right */
	uint64_t hits, misses, bytes, bad, failed;
	uint32_t failed_in_a_row;
	bool told;
};

/* ---- when a piece is used next, and by which loader ---- */

static uint32_t rank_at(const struct cache *c, uint64_t position)
{
	const struct order_deal *d = &c->deal;
	uint64_t base = position / d->batch * d->batch, m = d->batch;
	if (d->tail == ORDER_TAIL_SHORTER && d->n - base < m)
		m = d->n - base;
	/* The last rank whose share begins at or before the position (order_share). */
	uint64_t rank = ((position - base + 1) * d->world - 1) / m;
	ASSERT(rank < d->world);
	return (uint32_t)rank;
}

static uint32_t slot_at(const struct cache *c, uint64_t time)
{
	uint64_t position = time % c->deal.n;
	return rank_at(c, position) % c->local_ranks * c->stride +
	       (uint32_t)(position / c->deal.batch % c->stride);
}

static bool is_used_here(void *arg, uint64_t time)
{
	const struct cache *c = arg;
	uint64_t position = time % c->deal.n;
	return position / c->deal.batch < order_steps(&c->deal) &&
	       rank_at(c, position) / c->local_ranks == c->rank / c->local_ranks;
}

/* With the lock. */
static uint64_t next_use(struct cache *c, uint64_t sample, uint64_t from)
{
	uint64_t next;
	int rc = sequence_next(&c->order, sample, from, is_used_here, c, &next);
	return rc < 0 ? SEQUENCE_NEVER : next;
}

/* ---- files ---- */

static void path_of(const struct cache *c, const struct belady_key *k, char ret_path[4096])
{
	snprintf(ret_path, 4096, "%s/%02x/%x-%" PRIx64 "-%x", c->at,
		 (unsigned)(hash_u64_2(k->file, k->off) % FANOUT), k->file, k->off, k->len);
}

/* Checksum of the bytes and of the piece's identity: content, file and offset. */
static uint64_t sum_of(const struct cache *c, const struct belady_key *k, const void *data)
{
	return checksum64_seed(data, k->len,
			       hash_u64_2(hash_u64_2(c->ds->content, k->file), k->off));
}

static void unlink_one(struct cache *c, const struct belady_key *k)
{
	char path[4096];
	path_of(c, k, path);
	int rc = env_unlink(c->ds->io.env, path);
	(void)rc; /* another loader has removed it, or the next loader will find it */
}

static void unlink_all(struct cache *c, struct list *gone)
{
	struct list *l;
	while ((l = list_pop(gone))) {
		struct belady_entry *e = container_of(l, struct belady_entry, link);
		unlink_one(c, &e->key);
		free(e);
	}
}

static int read_piece(struct cache *c, const struct belady_key *k, void *dst)
{
	struct trailer t;
	struct iovec iov[2] = {{dst, k->len}, {&t, sizeof(t)}};
	struct env_file *f;
	char path[4096];
	path_of(c, k, path);
	/* Does not block on a pipe and does not follow a link. */
	TRY(env_file_open(c->ds->io.env, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0, &f));
	int rc = env_file_preadv(f, iov, 2, 0);
	env_file_close(f);
	TRY(rc);
	return t.magic == MAGIC && t.len == k->len && t.sum == sum_of(c, k, dst) ? 0 : -LE_CORRUPT;
}

static int write_piece(struct cache *c, const struct belady_key *k, const void *data)
{
	struct trailer t = {MAGIC, k->len, sum_of(c, k, data), 0};
	struct iovec iov[2] = {{(void *)data, k->len}, {&t, sizeof(t)}};
	struct env *env = c->ds->io.env;
	struct env_file *f;
	char path[4096], tmp[4120];
	path_of(c, k, path);
	snprintf(tmp, sizeof(tmp), "%s.%u.tmp", path, c->slot);
	TRY(env_file_open(env, tmp, O_WRONLY | O_CREAT | O_EXCL, 0600, &f));
	int rc = env_file_pwritev(f, iov, 2, 0);
	env_file_close(f);
	if (rc == 0)
		rc = env_rename(env, tmp, path);
	if (rc < 0) {
		int gone = env_unlink(env, tmp);
		(void)gone; /* the next loader removes it */
	}
	return rc;
}

/* ---- the tables ---- */

/* With the lock. Corrects entries whose next use is in the past. If another loader of the node
 * was to use the piece, it has an entry itself, and this one is dropped. If this loader skipped
 * the use, or a jump moved it, the next use is computed again. */
static void put_right(struct cache *c, uint64_t now, struct list *gone)
{
	uint64_t lag = c->lag;
	bool back = now + lag < c->swept;
	if (!back && now < c->swept + c->deal.n / SWEEPS)
		return;
	c->swept = now;
	size_t n = c->books.n;
	struct belady_entry **all = n ? malloc(n * sizeof(struct belady_entry *)) : NULL;
	if (!all)
		return;
	memcpy(all, c->books.heap, n * sizeof(*all));
	for (size_t i = 0; i < n; i++) {
		struct belady_entry *e = all[i];
		if (!back && e->next + lag >= now)
			continue;
		bool ours = back || slot_at(c, e->next) == c->slot;
		uint64_t next = ours ? next_use(c, e->sample, now) : 0;
		if (ours && next != SEQUENCE_NEVER) {
			belady_move(&c->books, e, next);
			continue;
		}
		belady_remove(&c->books, e);
		if (ours)
			list_push(gone, &e->link);
		else
			free(e);
	}
	free(all);
}

static void forget(struct cache *c, const struct belady_key *k)
{
	pthread_mutex_lock(&c->lock);
	struct belady_entry *e = belady_find(&c->books, k);
	if (e && e->ready) {
		belady_remove(&c->books, e);
		free(e);
	}
	pthread_mutex_unlock(&c->lock);
}

/* Call after a use of the piece: computes its next use. Each loader has an entry for every piece
 * that it has used. */
static void used(struct cache *c, const struct cache_use *u)
{
	struct list gone;
	bool keep = false;
	list_init(&gone);
	pthread_mutex_lock(&c->lock);
	c->hits++;
	c->bytes += u->key.len;
	uint64_t next = next_use(c, u->sample, u->time + 1);
	struct belady_entry *e = belady_find(&c->books, &u->key);
	if (e && !e->ready) {
		keep = true; /* it is being written again */
	} else if (e && next == SEQUENCE_NEVER) {
		belady_remove(&c->books, e);
		free(e);
	} else if (e) {
		belady_move(&c->books, e, next);
		keep = true;
	} else if ((e = belady_add(&c->books, &u->key, next, &gone))) {
		e->sample = u->sample;
		belady_ready(&c->books, e);
		keep = true;
	}
	put_right(c, u->time, &gone);
	pthread_mutex_unlock(&c->lock);
	if (!keep)
		unlink_one(c, &u->key);
	unlink_all(c, &gone);
}

bool cache_get(struct cache *c, const struct cache_use *u, void *dst)
{
	pthread_mutex_lock(&c->lock);
	const struct belady_entry *e = belady_find(&c->books, &u->key);
	/* A piece without an entry here may have one in another loader. */
	bool maybe = e ? e->ready : c->n_slots > 1;
	pthread_mutex_unlock(&c->lock);
	int rc = maybe ? read_piece(c, &u->key, dst) : -LE_NOENT;
	if (rc == 0) {
		used(c, u);
		return true;
	}
	if (maybe)
		forget(c, &u->key);
	pthread_mutex_lock(&c->lock);
	c->misses++;
	c->bad += rc != -LE_NOENT;
	pthread_mutex_unlock(&c->lock);
	if (rc != -LE_NOENT)
		unlink_one(c, &u->key);
	return false;
}

/* With the lock. Logs the first failure and counts all. */
static void write_failed(struct cache *c, int rc)
{
	bool full = rc == -LE_NOSPC || rc == -LE_DQUOT;
	c->failed++;
	c->failed_in_a_row++;
	/* The disk is full: the cache does not grow beyond its present size. */
	if (full)
		c->books.limit = c->books.used;
	if (!c->told)
		log_warn("cache %s: %s; training goes on, reading from the source what is not in "
			 "the cache",
			 c->dir, status_text(rc));
	c->told = true;
}

void cache_put(struct cache *c, const struct cache_use *u, const void *data)
{
	struct list gone;
	list_init(&gone);
	pthread_mutex_lock(&c->lock);
	struct belady_entry *e = NULL;
	put_right(c, u->time, &gone);
	if (c->failed_in_a_row < FAILURES_MAX && !belady_find(&c->books, &u->key))
		e = belady_add(&c->books, &u->key, next_use(c, u->sample, u->time + 1), &gone);
	if (e)
		e->sample = u->sample;
	pthread_mutex_unlock(&c->lock);
	unlink_all(c, &gone);
	if (!e)
		return;
	int rc = write_piece(c, &u->key, data);
	pthread_mutex_lock(&c->lock);
	if (rc < 0) {
		belady_remove(&c->books, e);
		free(e);
		write_failed(c, rc);
	} else {
		c->failed_in_a_row = 0;
		belady_ready(&c->books, e);
	}
	pthread_mutex_unlock(&c->lock);
}

void cache_drop(struct cache *c, const struct belady_key *k)
{
	forget(c, k);
	unlink_one(c, k);
}

void cache_metrics(struct cache *c, struct leat_loader_metrics *m)
{
	pthread_mutex_lock(&c->lock);
	m->cache_hits = c->hits;
	m->cache_misses = c->misses;
	m->bytes_cache = c->bytes;
	m->cache_bad = c->bad;
	m->cache_failed = c->failed;
	m->cache_bytes = c->books.used;
	m->cache_limit = c->books.limit;
	pthread_mutex_unlock(&c->lock);
}

/* ---- pieces of earlier runs ---- */

/* Opens a folder that only this user can have made and can write to. */
static int open_folder(int dirfd, const char *name)
{
	struct stat st;
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ELOOP || errno == ENOTDIR ? -LE_FOREIGN : status_from_errno(errno);
	int rc = fstat(fd, &st) < 0          ? status_from_errno(errno)
		 : !beneath_is_ours(&st) ? -LE_FOREIGN
					 : fd;
	if (rc < 0)
		close(fd);
	return rc;
}

/* Finds the last sample of the file that begins at or before the piece; false if the piece does
 * not lie in it. */
static bool sample_of(const struct cache *c, const struct belady_key *k, uint64_t *ret_sample)
{
	const struct sample_index *x = c->ds->x;
	if (k->file >= x->n_files || k->len == 0 || k->off > x->files[k->file].plain ||
	    k->len > x->files[k->file].plain - k->off)
		return false;
	uint64_t lo = x->files[k->file].first, hi = x->files[k->file + 1].first;
	if (lo == hi)
		return false;
	while (hi - lo > 1) {
		uint64_t mid = lo + (hi - lo) / 2;
		uint64_t first = x->samples[mid].first;
		if (first < x->n_members && x->members[first].off <= k->off)
			lo = mid;
		else
			hi = mid;
	}
	uint64_t end = 0;
	for (uint64_t m = x->samples[lo].first; m < x->samples[lo + 1].first; m++) {
		if (x->members[m].off + x->members[m].len > end)
			end = x->members[m].off + x->members[m].len;
	}
	*ret_sample = lo;
	return k->off + k->len <= end;
}

/* Adds a file to the tables if this loader is its next user. False: the file is to be removed. */
static bool adopt(struct cache *c, uint32_t folder, const char *name, uint64_t now)
{
	struct belady_key k;
	struct list gone;
	char path[4096], found[4096];
	uint64_t sample;
	int end = 0;
	list_init(&gone);
	if (sscanf(name, "%x-%" SCNx64 "-%x%n", &k.file, &k.off, &k.len, &end) != 3 || name[end] ||
	    !sample_of(c, &k, &sample))
		return false;
	/* A file in another folder, or with another spelling of the numbers, would never be
	 * read. */
	path_of(c, &k, path);
	snprintf(found, sizeof(found), "%s/%02x/%.255s", c->at, folder, name);
	if (strcmp(path, found) != 0)
		return false;
	uint64_t next = next_use(c, sample, now);
	if (next == SEQUENCE_NEVER)
		return c->slot != 0;
	if (slot_at(c, next) != c->slot)
		return true;
	struct belady_entry *e = belady_add(&c->books, &k, next, &gone);
	if (e) {
		e->sample = sample;
		belady_ready(&c->books, e);
	}
	struct list *l;
	while ((l = list_pop(&gone))) {
		struct belady_entry *g = container_of(l, struct belady_entry, link);
		path_of(c, &g->key, path);
		unlink(path);
		free(g);
	}
	return e != NULL;
}

/* True if the name is that of a temporary file (write_piece) which another loader may be
 * writing. The loader of slot 0 removes those of slots that do not exist. */
static bool is_of_another(const struct cache *c, const char *name)
{
	const char *dot = strchr(name, '.');
	uint32_t slot;
	int end = 0;
	if (!dot || sscanf(dot, ".%u.tmp%n", &slot, &end) != 1 || end == 0 || dot[end])
		return false;
	return slot != c->slot && (c->slot != 0 || slot < c->n_slots);
}

static int scan_folder(struct cache *c, uint32_t folder, uint64_t now)
{
	const struct dirent *e;
	char name[8];
	snprintf(name, sizeof(name), "%02x", folder);
	int fd = open_folder(c->dir_fd, name);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		if (fd >= 0)
			close(fd);
		/* Another process that cleans the cache has removed it. */
		return fd == -LE_NOENT ? 0 : fd < 0 ? fd : -LE_NOMEM;
	}
	while ((e = readdir(d))) {
		if (e->d_name[0] != '.' && !is_of_another(c, e->d_name) &&
		    !adopt(c, folder, e->d_name, now))
			unlinkat(fd, e->d_name, 0);
	}
	closedir(d);
	return 0;
}

/* ---- open and close ---- */

/* Like open_folder, but for a regular file: refuses links, and does not block on a pipe. */
static int open_lock(const struct cache *c, const char *name)
{
	struct stat st;
	int fd = openat(c->dir_fd, name,
			O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
	if (fd < 0)
		return errno == ELOOP || errno == EISDIR || errno == ENXIO
			       ? -LE_FOREIGN
			       : status_from_errno(errno);
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink <= 1 && beneath_is_ours(&st))
		return fd;
	close(fd);
	return -LE_FOREIGN;
}

static int try_lock(const struct cache *c, const char *name, int how, int *ret_fd)
{
	int fd = open_lock(c, name);
	if (fd < 0)
		return fd;
	if (flock(fd, how | LOCK_NB) < 0) {
		int rc = errno == EWOULDBLOCK ? -LE_BUSY : status_from_errno(errno);
		close(fd);
		return rc;
	}
	*ret_fd = fd;
	return 0;
}

/* The first loader writes the identity of its job and order into the lock file; later loaders
 * must have the same. The change from exclusive to shared is not atomic, so the text is read
 * again. */
static int lock_folder(struct cache *c, const char *who)
{
	char text[256];
	for (int tries = 0; tries < 20; tries++) {
		int rc = try_lock(c, "lock", LOCK_EX, &c->lock_fd);
		if (rc == 0) {
			if (ftruncate(c->lock_fd, 0) < 0 ||
			    pwrite(c->lock_fd, who, strlen(who), 0) != (ssize_t)strlen(who))
				return status_from_errno(errno);
			rc = flock(c->lock_fd, LOCK_SH | LOCK_NB) < 0 ? -LE_BUSY : 0;
		} else if (rc == -LE_BUSY) {
			rc = try_lock(c, "lock", LOCK_SH, &c->lock_fd);
		}
		if (rc == 0) {
			ssize_t n = pread(c->lock_fd, text, sizeof(text) - 1, 0);
			text[n > 0 ? n : 0] = 0;
			return strcmp(text, who) == 0 ? 0 : -LE_BUSY;
		}
		if (c->lock_fd >= 0)
			close(c->lock_fd);
		c->lock_fd = -1;
		if (rc != -LE_BUSY)
			return rc;
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	}
	return -LE_BUSY;
}

/* Any user may be able to write to DIR, so all that is below it is opened from the folder's
 * descriptor. */
static int make_folders(struct cache *c, const char *dir)
{
	char name[8];
	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return status_from_errno(errno);
	int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC), rc = 0;
	if (fd < 0)
		return status_from_errno(errno);
	const char *content = strrchr(c->dir, '/') + 1;
	if (mkdirat(fd, content, 0700) < 0 && errno != EEXIST)
		rc = status_from_errno(errno);
	if (rc == 0)
		rc = c->dir_fd = open_folder(fd, content);
	close(fd);
	TRY(rc);
	snprintf(c->at, sizeof(c->at), "/proc/self/fd/%d", c->dir_fd);
	for (uint32_t i = 0; i < FANOUT; i++) {
		snprintf(name, sizeof(name), "%02x", i);
		if (mkdirat(c->dir_fd, name, 0700) < 0 && errno != EEXIST)
			return status_from_errno(errno);
	}
	return 0;
}

static int take_folder(struct cache *c, const struct cache_options *o)
{
	char who[200], slot[32];
	snprintf(who, sizeof(who),
		 "order %d %016" PRIx64 " %s:%u seed %" PRIu64 " G %u tail %d ranks %u node %u "
		 "stride %u\n",
		 ORDER_VERSION, c->ds->of.word, order_mode_name(o->mode), o->window, o->seed,
		 o->deal.batch, (int)o->deal.tail, o->deal.world, o->rank / c->local_ranks,
		 c->stride);
	TRY(make_folders(c, o->dir));
	TRY(lock_folder(c, who));
	snprintf(slot, sizeof(slot), "slot-%u.lock", c->slot);
	TRY(try_lock(c, slot, LOCK_EX, &c->slot_fd));
	for (uint32_t i = 0; i < FANOUT; i++)
		TRY(scan_folder(c, i, o->epoch * c->deal.n + o->step * c->deal.batch));
	return 0;
}

int cache_open(const struct cache_options *o, struct cache **ret_cache, struct detail *d)
{
	*ret_cache = NULL;
	if (strlen(o->dir) > DIR_MAX)
		return detail_set(d, -LE_NAMETOOLONG, o->dir, UINT64_MAX, "too long a path");
	struct cache *c = calloc(1, sizeof(*c));
	if (!c)
		return -LE_NOMEM;
	c->ds = o->ds;
	c->dir_fd = c->lock_fd = c->slot_fd = -1;
	c->deal = o->deal;
	c->local_ranks = o->local_ranks;
	c->rank = o->rank;
	c->stride = o->stride;
	c->n_slots = c->local_ranks * c->stride;
	c->lag = (uint64_t)o->depth * c->stride * c->deal.batch;
	c->slot = c->rank % c->local_ranks * c->stride + o->phase;
	c->swept = o->epoch * c->deal.n + o->step * c->deal.batch;
	snprintf(c->dir, sizeof(c->dir), "%s/%016" PRIx64, o->dir, o->ds->content);
	pthread_mutex_init(&c->lock, NULL);
	belady_init(&c->books, o->bytes / c->n_slots);
	int rc = sequence_init(&c->order, &o->ds->of, o->mode, o->window, o->seed);
	if (rc == 0)
		rc = take_folder(c, o);
	if (rc == 0) {
		*ret_cache = c;
		return 0;
	}
	if (rc == -LE_BUSY) {
		log_warn("cache %s: another loader is using it; this one runs without a cache",
			 c->dir);
		rc = 0;
	} else if (rc == -LE_FOREIGN) {
		detail_set(d, rc, c->dir, UINT64_MAX,
			   "cannot be used as a cache: it, or a lock or folder in it, is a link, "
			   "another user's, or others may write to it: name another directory, or "
			   "see what it is and remove it");
	} else {
		detail_set(d, rc, c->dir, UINT64_MAX, "cannot be used as a cache: %s",
			   status_text(rc));
	}
	cache_close(c);
	return rc;
}

void cache_close(struct cache *c)
{
	if (!c)
		return;
	belady_fini(&c->books);
	sequence_fini(&c->order);
	if (c->slot_fd >= 0)
		close(c->slot_fd);
	if (c->lock_fd >= 0)
		close(c->lock_fd);
	if (c->dir_fd >= 0)
		close(c->dir_fd);
	pthread_mutex_destroy(&c->lock);
	free(c);
}
