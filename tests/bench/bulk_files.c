/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creates empty files through the client library, many of them in flight at a time.
 *
 *   bulk_files CONF DIR FILES [PER DIRECTORY, default 100000 [AT ONCE, default 64 [mknod]]]
 *
 * DIR must exist; directories are made in it, each filled before the next one. Files are created
 * and closed; with mknod, made without being opened. Prints the number of files after each
 * thousandth of them.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/leat_impl.h"
#include "common/base/assert.h"

#define STEPS 1000u

struct bulk {
	struct leat_fs *fs;
	struct attr top;
	const char *path;
	uint64_t n, per_dir, next, made;
	uint32_t at_once;
	bool mknod;
	struct ino dir; /* the current directory, number dir_no - 1 */
	uint64_t dir_no;
	struct fmutex lock; /* of dir */
	int rc;
	struct latch done;
};

/* Returns the directory of file i. */
static int dir_of(struct bulk *b, uint64_t i, struct ino *ret_dir)
{
	uint64_t no = i / b->per_dir;
	char name[32];
	struct attr a;
	int rc = 0;

	fmutex_lock(&b->lock);
	if (no >= b->dir_no) {
		snprintf(name, sizeof(name), "d%05llu", (unsigned long long)no);
		rc = ll_mkdir(b->fs->client, &b->fs->cred, b->top.ino, bytes_str(name), 0755, &a);
		if (rc == 0) {
			b->dir = a.ino;
			b->dir_no = no + 1;
		}
	}
	/* If another fiber has switched to the next directory, file i is made there: this makes no
	 * difference. */
	*ret_dir = b->dir;
	fmutex_unlock(&b->lock);
	return rc;
}

static int make(struct bulk *b, uint64_t i)
{
	struct client *c = b->fs->client;
	struct ll_file *f;
	struct ino dir;
	char name[32];

	TRY(dir_of(b, i, &dir));
	snprintf(name, sizeof(name), "file-%09llu", (unsigned long long)i);
	if (b->mknod)
		return ll_mknod(c, &b->fs->cred, dir, bytes_str(name), S_IFREG | 0644, 0, NULL);
	TRY(ll_create(c, &b->fs->cred, dir, bytes_str(name), 0644, O_WRONLY | O_CREAT | O_EXCL, &f,
		      NULL));
	ll_release(f);
	return 0;
}

static void maker(void *arg)
{
	struct bulk *b = arg;
	uint64_t step = b->n / STEPS > 0 ? b->n / STEPS : 1;

	while (b->rc == 0 && b->next < b->n) {
		int rc = make(b, b->next++);

		if (rc < 0)
			b->rc = rc;
		else if (++b->made % step == 0) {
			printf("%llu\n", (unsigned long long)b->made);
			fflush(stdout);
		}
	}
	latch_done(&b->done);
}

static void make_all(void *arg)
{
	struct bulk *b = arg;

	fmutex_init(&b->lock);
	b->rc = path_find(b->fs, b->path, true, &b->top);
	if (b->rc < 0)
		return;
	latch_init(&b->done, b->at_once);
	for (uint32_t i = 0; i < b->at_once; i++)
		ASSERT(fiber_spawn("maker", maker, b) == 0);
	latch_wait(&b->done);
	if (b->rc == 0)
		b->rc = ll_drain(b->fs->client, NO_DEADLINE);
}

int main(int argc, char **argv)
{
	struct bulk b = {
		.n = argc > 3 ? strtoull(argv[3], NULL, 10) : 0,
		.per_dir = argc > 4 ? strtoull(argv[4], NULL, 10) : 100000,
		.at_once = argc > 5 ? (uint32_t)strtoul(argv[5], NULL, 10) : 64,
		.mknod = argc > 6 && strcmp(argv[6], "mknod") == 0,
	};
	struct leat_options o = {.size = sizeof(o)};
	int rc;

	if (b.n == 0 || b.per_dir == 0 || b.at_once == 0) {
		fprintf(stderr,
			"usage: bulk_files CONF DIR FILES [PER DIRECTORY [AT ONCE [mknod]]]\n");
		return 2;
	}
	b.path = argv[2];
	rc = leat_open_fs(argv[1], &o, &b.fs);
	if (rc == 0) {
		rc = loop_call(b.fs->loop, "bulk", make_all, &b);
		rc = rc < 0 ? rc : b.rc;
		leat_close_fs(b.fs);
	}
	if (rc < 0)
		fprintf(stderr, "bulk_files: %s\n", leat_strerror(rc));
	return rc < 0 ? 1 : 0;
}
