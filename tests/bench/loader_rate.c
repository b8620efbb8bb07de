/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of TFRecord shards in random order, each once, each CRC compared: by pread, or by the
 * loader.
 *
 *   loader_rate pread DIR RECORD THREADS [cold]   RECORD: bytes of every record in *.tfrecord
 *   loader_rate keep DIR RECORD THREADS [cold]    like pread, but the last records are kept, as
 * those of a batch are: each thread cycles through KEEP bytes instead of using one buffer again
 *   loader_rate leat DIR BATCH THREADS [cold]
 *   loader_rate servers PATH BATCH RECORD     fixed records in the files of PATH of a Leat file
 * system
 *
 * Prints "BYTES SECONDS CPU_SECONDS": of reading alone, not of opening (the index of the loader,
 * the list of records here), after which cold files are put out of the page cache.
 */
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <leat/leat.h>
#include <leat/leat_loader.h>

#include "common/base/crc32c.h"
#include "common/base/hmap.h"

#define HEAD 12u
#define TAIL 4u
#define KEEP (24u << 20)

struct record {
	int fd;
	uint64_t off;
};

struct job {
	struct record *records;
	uint64_t n, len;
	size_t space; /* of each thread */
	_Atomic uint64_t next;
};

static double now_s(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "loader_rate: %s\n", what);
	exit(1);
}

static void add_shard(struct job *j, const char *path)
{
	struct stat st;
	int fd = open(path, O_RDONLY);
	if (fd < 0 || fstat(fd, &st) < 0)
		die(path);
	uint64_t n = (uint64_t)st.st_size / (HEAD + j->len + TAIL);
	j->records = realloc(j->records, (j->n + n) * sizeof(*j->records));
	if (!j->records)
		die("out of memory");
	for (uint64_t i = 0; i < n; i++)
		j->records[j->n++] = (struct record){fd, i * (HEAD + j->len + TAIL)};
	/* Advice for the kernel, as a loader would give it: no read-ahead of a file that is read at
	 * random. */
	posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
}

static void shuffle(struct job *j)
{
	for (uint64_t i = j->n; i > 1; i--) {
		uint64_t k = hash_u64_2(7, i) % i;
		struct record r = j->records[i - 1];
		j->records[i - 1] = j->records[k];
		j->records[k] = r;
	}
}

static void *read_records(void *arg)
{
	struct job *j = arg;
	size_t size = HEAD + j->len + TAIL, at = 0;
	size_t space = j->space > size ? j->space : size;
	uint8_t *all = malloc(space);
	if (!all)
		die("out of memory");
	for (uint64_t i; (i = j->next++) < j->n; at += size) {
		const struct record *r = &j->records[i];
		at = at + size > space ? 0 : at;
		uint8_t *buf = all + at;
		uint32_t crc;
		if (pread(r->fd, buf, size, (off_t)r->off) != (ssize_t)size)
			die("short read");
		memcpy(&crc, buf + HEAD + j->len, 4);
		if (crc32c_unmask(crc) != crc32c(buf + HEAD, j->len))
			die("wrong checksum");
	}
	free(all);
	return NULL;
}

static uint64_t by_pread(struct job *j, int threads)
{
	pthread_t t[64];
	for (int i = 0; i < threads; i++) {
		if (pthread_create(&t[i], NULL, read_records, j) != 0)
			die("no thread");
	}
	for (int i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
	return j->n * j->len;
}

static uint64_t by_leat(struct leat_loader *ld)
{
	struct leat_batch *b;
	struct leat_view v = {.size = sizeof(v)};
	uint64_t bytes = 0;
	int rc;
	while ((rc = leat_next(ld, &b)) == 1) {
		if (leat_batch_field(b, "record", &v) < 0)
			die("no field");
		for (uint64_t i = 0; i < v.n; i++)
			bytes += v.lengths[i];
		leat_batch_unref(b);
	}
	if (rc < 0)
		die(leat_last_error()->message);
	return bytes;
}

struct clocks {
	double wall_s, cpu_s;
};

/* Called before the timed part: drops the files from the page cache if requested. */
static struct clocks begin(const glob_t *files, bool cold)
{
	for (size_t i = 0; cold && i < files->gl_pathc; i++) {
		int fd = open(files->gl_pathv[i], O_RDONLY);
		if (fd < 0 || fsync(fd) < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
			die("cannot make it cold");
		close(fd);
	}
	return (struct clocks){now_s(CLOCK_MONOTONIC), now_s(CLOCK_PROCESS_CPUTIME_ID)};
}

static uint64_t run_leat(char **argv, const glob_t *files, bool cold, struct clocks *ret_begin)
{
	struct leat_dataset_options o = {.size = sizeof(o), .threads = (uint32_t)atoi(argv[4])};
	struct leat_loader_options lo = {.size = sizeof(lo),
					 .seed = 7,
					 .batch = (uint32_t)atoi(argv[3]),
					 .epochs = 1,
					 .tail = "shorter"};
	struct leat_dataset *ds;
	struct leat_loader *ld;
	if (leat_dataset_open(argv[2], &o, &ds) < 0)
		die(leat_last_error()->message);
	*ret_begin = begin(files, cold);
	if (leat_loader_open(ds, &lo, &ld) < 0)
		die(leat_last_error()->message);
	uint64_t bytes = by_leat(ld);
	leat_loader_close(ld);
	leat_dataset_close(ds);
	return bytes;
}

static uint64_t run_servers(char **argv, struct clocks *ret_begin)
{
	char format[32];
	struct leat_dataset_options o = {.size = sizeof(o), .format = format};
	struct leat_loader_options lo = {.size = sizeof(lo),
					 .seed = 7,
					 .batch = (uint32_t)atoi(argv[3]),
					 .epochs = 1,
					 .tail = "shorter"};
	struct leat_dataset *ds;
	struct leat_loader *ld;
	snprintf(format, sizeof(format), "fixed:%d", atoi(argv[4]));
	if (leat_open_fs(NULL, NULL, &o.fs) < 0)
		die("cannot connect");
	if (leat_dataset_open(argv[2], &o, &ds) < 0)
		die(leat_last_error()->message);
	*ret_begin = begin(NULL, false);
	if (leat_loader_open(ds, &lo, &ld) < 0)
		die(leat_last_error()->message);
	uint64_t bytes = by_leat(ld);
	leat_loader_close(ld);
	leat_dataset_close(ds);
	leat_close_fs(o.fs);
	return bytes;
}

static uint64_t run_pread(char **argv, const glob_t *files, bool cold, struct clocks *ret_begin)
{
	struct job j = {.len = strtoull(argv[3], NULL, 10),
			.space = strcmp(argv[1], "keep") == 0 ? KEEP : 0};
	for (size_t i = 0; i < files->gl_pathc; i++)
		add_shard(&j, files->gl_pathv[i]);
	shuffle(&j);
	*ret_begin = begin(files, cold);
	return by_pread(&j, atoi(argv[4]));
}

static uint64_t run_local(char **argv, bool cold, struct clocks *ret_begin)
{
	char pattern[4096];
	glob_t files;
	snprintf(pattern, sizeof(pattern), "%s/*.tfrecord", argv[2]);
	if (glob(pattern, 0, NULL, &files) != 0)
		die("no shards");
	bool leat = strcmp(argv[1], "leat") == 0;
	return (leat ? run_leat : run_pread)(argv, &files, cold, ret_begin);
}

int main(int argc, char **argv)
{
	struct clocks from;
	bool cold = argc == 6 && strcmp(argv[5], "cold") == 0;
	bool servers = argc > 1 && strcmp(argv[1], "servers") == 0;
	if (argc != 5 + cold || atoi(argv[3]) < 1 || atoi(argv[4]) < 1 ||
	    (atoi(argv[4]) > 64 && !servers))
		die("loader_rate pread|keep|leat|servers DIR RECORD|BATCH THREADS|RECORD [cold]");
	uint64_t bytes = servers ? run_servers(argv, &from) : run_local(argv, cold, &from);
	printf("%" PRIu64 " %.6f %.6f\n", bytes, now_s(CLOCK_MONOTONIC) - from.wall_s,
	       now_s(CLOCK_PROCESS_CPUTIME_ID) - from.cpu_s);
	return 0;
}
