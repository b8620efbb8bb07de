/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations of one kind through the client library, many of them in flight, for so long that
 * memory that grows with their number in a server or client shows.
 *
 *   bulk_storm CONF DIR files N      create, write 100 bytes, close, unlink; at most ALIVE files
 *   bulk_storm CONF DIR opens N      open for writing, lock, unlock, close one of SHARED files
 *   bulk_storm CONF DIR leases N     two clients take the lease on one of SHARED files alternately
 *   bulk_storm CONF DIR sessions N   connect, stat DIR, disconnect
 *
 * DIR must exist and be empty; it is empty again at the end. Prints the number of operations after
 * each tenth of N.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/leat_impl.h"
#include "common/base/assert.h"

#define ALIVE    8192u
#define SHARED   256u
#define AT_ONCE  64u
#define SMALL    100u
#define TENTHS   10u

struct storm {
	const char *conf, *path;
	struct leat_fs *fs;
	struct ino dir;
	struct ino shared[SHARED];
	uint64_t n, end, next, done; /* end: n of this run */
	int (*step)(struct storm *s, uint64_t i);
	int rc;
	struct latch fibers;
};

static void name_of(char name[32], uint64_t i)
{
	snprintf(name, 32, "f%llu", (unsigned long long)i);
}

static int make(struct storm *s, uint64_t i, struct ino *ret_ino)
{
	const uint8_t data[SMALL] = {1};
	struct ll_file *f;
	char name[32];
	int64_t got;

	name_of(name, i);
	TRY(ll_create(s->fs->client, &s->fs->cred, s->dir, bytes_str(name), 0644,
		      O_WRONLY | O_CREAT | O_EXCL, &f, NULL));
	got = ll_pwrite(f, data, sizeof(data), 0);
	*ret_ino = ll_file_ino(f);
	ll_release(f);
	return got < 0 ? (int)got : 0;
}

static int drop(struct storm *s, uint64_t i)
{
	char name[32];

	name_of(name, i);
	return ll_unlink(s->fs->client, &s->fs->cred, s->dir, bytes_str(name));
}

static int step_files(struct storm *s, uint64_t i)
{
	struct ino ino;

	TRY(make(s, i, &ino));
	return i >= ALIVE ? drop(s, i - ALIVE) : 0;
}

static int step_opens(struct storm *s, uint64_t i)
{
	struct file_lock lock = {.owner = i, .last = UINT64_MAX, .pid = 1,
				 .kind = FILE_LOCK_POSIX, .type = FILE_LOCK_READ};
	struct ll_file *f;
	struct attr a;
	bool changed;
	int rc;

	TRY(ll_open(s->fs->client, &s->fs->cred, s->shared[i % SHARED], O_RDWR, &f, &a, &changed));
	rc = ll_lock(f, &lock, false);
	lock.type = FILE_LOCK_NONE;
	if (rc == 0)
		rc = ll_lock(f, &lock, false);
	ll_release(f);
	return rc;
}

/* The mode changes, so the metadata server recalls the other client's lease first. */
static int step_leases(struct storm *s, uint64_t i)
{
	struct attr a = {.mode = (i & 1) != 0 ? 0640 : 0600}, now;

	return ll_setattr(s->fs->client, &s->fs->cred, s->shared[i % SHARED], NULL, SET_MODE, &a,
			  &now);
}

static void tell(struct storm *s)
{
	uint64_t tenth = s->n / TENTHS > 0 ? s->n / TENTHS : 1;

	if (++s->done % tenth != 0)
		return;
	printf("%llu\n", (unsigned long long)s->done);
	fflush(stdout);
}

static void worker(void *arg)
{
	struct storm *s = arg;

	while (s->rc == 0 && s->next < s->end) {
		int rc = s->step(s, s->next++);

		if (rc < 0)
			s->rc = rc;
		else
			tell(s);
	}
	latch_done(&s->fibers);
}

static void run(void *arg)
{
	struct storm *s = arg;

	latch_init(&s->fibers, AT_ONCE);
	for (uint32_t i = 0; i < AT_ONCE; i++)
		ASSERT(fiber_spawn("worker", worker, s) == 0);
	latch_wait(&s->fibers);
}

/* Called in the first client. */
static void begin(void *arg)
{
	struct storm *s = arg;
	struct attr a;

	s->rc = path_find(s->fs, s->path, true, &a);
	s->dir = a.ino;
	for (uint32_t i = 0; s->rc == 0 && s->step != step_files && i < SHARED; i++)
		s->rc = make(s, i, &s->shared[i]);
	if (s->rc == 0)
		s->rc = ll_drain(s->fs->client, NO_DEADLINE);
}

static void end(void *arg)
{
	struct storm *s = arg;
	uint64_t alive = s->n < ALIVE ? s->n : ALIVE;
	uint64_t from = s->step == step_files ? s->n - alive : 0;
	uint64_t to = s->step == step_files ? s->n : SHARED;

	for (uint64_t i = from; s->rc == 0 && i < to; i++)
		s->rc = drop(s, i);
}

static int call(struct storm *s, void (*fn)(void *arg))
{
	int rc = loop_call(s->fs->loop, "storm", fn, s);

	return rc < 0 ? rc : s->rc;
}

/* Two clients, each in a loop of its own, use all files alternately. */
static int leases(struct storm *s)
{
	struct leat_options o = {.size = sizeof(o)};
	struct storm other = *s;
	uint64_t n = s->n;
	int rc = leat_open_fs(s->conf, &o, &other.fs);

	if (rc < 0)
		return rc;
	for (uint64_t from = 0; rc == 0 && from < n; from += SHARED) {
		struct storm *now = (from / SHARED & 1) != 0 ? &other : s;

		now->next = from;
		now->end = from + SHARED < n ? from + SHARED : n;
		now->done = from;
		rc = call(now, run);
	}
	leat_close_fs(other.fs);
	return rc;
}

static int sessions(struct storm *s)
{
	struct leat_options o = {.size = sizeof(o)};
	int rc = 0;

	for (uint64_t i = 0; rc == 0 && i < s->n; i++) {
		struct leat_fs *fs;
		struct leat_stat st;

		rc = leat_open_fs(s->conf, &o, &fs);
		if (rc < 0)
			break;
		rc = leat_stat(fs, s->path, &st);
		leat_close_fs(fs);
		tell(s);
	}
	return rc;
}

static int storm(struct storm *s, const char *what)
{
	struct leat_options o = {.size = sizeof(o)};
	int rc;

	if (strcmp(what, "sessions") == 0)
		return sessions(s);
	TRY(leat_open_fs(s->conf, &o, &s->fs));
	rc = call(s, begin);
	if (rc == 0)
		rc = s->step == step_leases ? leases(s) : call(s, run);
	if (rc == 0)
		rc = call(s, end);
	leat_close_fs(s->fs);
	return rc;
}

int main(int argc, char **argv)
{
	struct storm s = {0};
	int rc = -1;

	if (argc == 5) {
		s.conf = argv[1];
		s.path = argv[2];
		s.n = s.end = strtoull(argv[4], NULL, 10);
		s.step = strcmp(argv[3], "files") == 0    ? step_files
			 : strcmp(argv[3], "opens") == 0  ? step_opens
			 : strcmp(argv[3], "leases") == 0 ? step_leases
							  : NULL;
	}
	if (s.n == 0 || (s.step == NULL && strcmp(argv[3], "sessions") != 0)) {
		fprintf(stderr, "usage: bulk_storm CONF DIR files|opens|leases|sessions N\n");
		return 2;
	}
	rc = storm(&s, argv[3]);
	if (rc < 0)
		fprintf(stderr, "bulk_storm: %s\n", leat_strerror(rc));
	return rc < 0 ? 1 : 0;
}
