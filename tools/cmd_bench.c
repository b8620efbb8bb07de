/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leat bench: a small benchmark of a directory, for a first impression and for comparing two
 * mounts.
 *
 *   a new folder below DIR → one file: write + fsync, read → 4 KiB random reads by some
 *   threads → small files: create, stat, read, unlink → all is removed, also after Ctrl-C
 *
 * Reads come after posix_fadvise(DONTNEED): from the servers' memory rather than from this
 * machine's page cache, where the file system allows that. tests/bench measures properly.
 *
 * leat bench loader is another one: bench_loader.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/hmap.h"
#include "tools/bench_loader.h"
#include "tools/progress.h"
#include "tools/tool.h"

#define BLOCK        (1u << 20)
#define RANDOM_BLOCK 4096u
#define SMALL_FILE   4096u
#define JOBS_MAX     256u

struct bench {
	struct tool *tool;
	char dir[PATH_MAX], file[PATH_MAX + 8];
	uint64_t size, n_files, jobs, seconds;
	uint8_t *block;
	json_t *figures;
	struct progress progress;
};

/* One phase. run returns 0 or -errno, and in *ret_n the bytes or operations that were done. */
struct phase {
	const char *name, *unit, *what;
	int (*run)(struct bench *b, uint64_t *ret_n);
};

static int stop_status(void)
{
	return interrupted() ? -EINTR : 0;
}

static int write_file(struct bench *b, uint64_t *ret_n)
{
	int fd = open(b->file, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600), rc = 0;

	if (fd < 0)
		return -errno;
	for (uint64_t off = 0; off < b->size && rc == 0;) {
		size_t len = b->size - off < BLOCK ? (size_t)(b->size - off) : BLOCK;
		ssize_t n = write(fd, b->block, len);
		if (n < 0)
			rc = -errno;
		else
			off += (uint64_t)n;
		if (rc == 0)
			rc = stop_status();
		progress_update(&b->progress, off, b->size, "writing");
	}
	if (rc == 0 && fsync(fd) < 0)
		rc = -errno;
	if (close(fd) < 0 && rc == 0)
		rc = -errno;
	*ret_n = b->size;
	return rc;
}

static int read_file(struct bench *b, bool drop, uint64_t *ret_n)
{
	int fd = open(b->file, O_RDONLY | O_CLOEXEC), rc = 0;
	uint64_t off = 0;

	if (fd < 0)
		return -errno;
	if (drop)
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	while (off < b->size && rc == 0) {
		ssize_t n = read(fd, b->block, BLOCK);
		if (n <= 0)
			rc = n < 0 ? -errno : -EIO;
		else
			off += (uint64_t)n;
		if (rc == 0)
			rc = stop_status();
		progress_update(&b->progress, off, b->size, "reading");
	}
	close(fd);
	*ret_n = off;
	return rc;
}

static int read_first(struct bench *b, uint64_t *ret_n)
{
	return read_file(b, true, ret_n);
}

static int read_again(struct bench *b, uint64_t *ret_n)
{
	return read_file(b, false, ret_n);
}

#define READER_MAGIC 0x4c524452u /* LRDR */

struct reader {
	uint32_t magic;
	struct bench *b;
	pthread_t thread;
	uint64_t seed, n;
	double until_s;
	int rc;
};

/* Reads blocks at random; with O_DIRECT, so that each is a request, where the file system supports
 * it. */
static void *random_reader(void *arg)
{
	struct reader *r = CAST_OBJ(arg, struct reader, READER_MAGIC);
	uint64_t n_blocks = r->b->size / RANDOM_BLOCK;
	void *buf = NULL;
	int fd = open(r->b->file, O_RDONLY | O_CLOEXEC | O_DIRECT);

	if (fd < 0)
		fd = open(r->b->file, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || posix_memalign(&buf, RANDOM_BLOCK, RANDOM_BLOCK) != 0)
		r->rc = fd < 0 ? -errno : -ENOMEM;
	while (r->rc == 0 && now_s() < r->until_s) {
		uint64_t at = hash_u64_2(r->seed, r->n) % n_blocks * RANDOM_BLOCK;
		ssize_t n = pread(fd, buf, RANDOM_BLOCK, (off_t)at);
		if (n != (ssize_t)RANDOM_BLOCK)
			r->rc = n < 0 ? -errno : -EIO;
		else
			r->rc = stop_status();
		r->n += r->rc == 0;
	}
	free(buf);
	if (fd >= 0)
		close(fd);
	return NULL;
}

static int read_random(struct bench *b, uint64_t *ret_n)
{
	struct reader r[JOBS_MAX];
	uint64_t n_started = 0, n = 0;
	int rc = 0;

	for (uint64_t i = 0; i < b->jobs && rc == 0; i++) {
		r[i] = (struct reader){
			.magic = READER_MAGIC,
			.b = b,
			.seed = i + 1,
			.until_s = now_s() + (double)b->seconds};
		rc = -pthread_create(&r[i].thread, NULL, random_reader, &r[i]);
		n_started += rc == 0;
	}
	for (uint64_t i = 0; i < n_started; i++) {
		pthread_join(r[i].thread, NULL);
		n += r[i].n;
		if (r[i].rc < 0)
			rc = r[i].rc;
	}
	*ret_n = n;
	return rc;
}

static int each_file(struct bench *b, int (*fn)(struct bench *b, const char *path), uint64_t *ret_n)
{
	char path[PATH_MAX + 32];
	int rc = 0;

	for (*ret_n = 0; *ret_n < b->n_files && rc == 0; ++*ret_n) {
		snprintf(path, sizeof(path), "%s/small%06" PRIu64, b->dir, *ret_n);
		rc = fn(b, path) < 0 ? -errno : stop_status();
	}
	return rc;
}

static int create_one(struct bench *b, const char *path)
{
	int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);

	if (fd < 0)
		return -1;
	ssize_t n = write(fd, b->block, SMALL_FILE);
	return close(fd) < 0 || n != (ssize_t)SMALL_FILE ? -1 : 0;
}

static int stat_one(struct bench *b, const char *path)
{
	struct stat st;

	(void)b;
	return stat(path, &st);
}

static int read_one(struct bench *b, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	ssize_t n = read(fd, b->block, SMALL_FILE);
	close(fd);
	return n == (ssize_t)SMALL_FILE ? 0 : -1;
}

static int unlink_one(struct bench *b, const char *path)
{
	(void)b;
	return unlink(path);
}

static int create_files(struct bench *b, uint64_t *ret_n)
{
	return each_file(b, create_one, ret_n);
}
static int stat_files(struct bench *b, uint64_t *ret_n)
{
	return each_file(b, stat_one, ret_n);
}
static int read_files(struct bench *b, uint64_t *ret_n)
{
	return each_file(b, read_one, ret_n);
}
static int unlink_files(struct bench *b, uint64_t *ret_n)
{
	return each_file(b, unlink_one, ret_n);
}

static const struct phase phases[] = {
	{"seq_write", "MiB/s", "sequential write, 1 MiB, with fsync", write_file},
	{"seq_read", "MiB/s", "sequential read", read_first},
	{"seq_read_again", "MiB/s", "the same again", read_again},
	{"rand_read", "IOPS", "random read, 4 KiB", read_random},
	{"create", "files/s", "create and write 4 KiB, one process", create_files},
	{"stat", "files/s", "stat", stat_files},
	{"read", "files/s", "open, read, close", read_files},
	{"unlink", "files/s", "unlink", unlink_files},
};

static int run_phases(struct bench *b)
{
	for (size_t i = 0; i < ARRAY_SIZE(phases); i++) {
		const struct phase *p = &phases[i];
		uint64_t n = 0;
		double start_s = now_s();
		int rc;

		progress_init(&b->progress, "leat bench");
		rc = p->run(b, &n);
		progress_finish(&b->progress, 0);
		if (rc == -EINTR)
			return tool_error(b->tool, EXIT_INTERRUPTED, NULL, "interrupted");
		if (rc < 0)
			return tool_error(b->tool, exit_of_errno(-rc), NULL, "%s: %s: %s", b->dir,
					  p->what, strerror(-rc));
		double value = (double)n / (now_s() - start_s);
		if (strcmp(p->unit, "MiB/s") == 0)
			value /= 1 << 20;
		json_array_append_new(b->figures, json_pack("{s:s,s:f,s:s}", "figure", p->name,
							    "value", value, "unit", p->unit));
		if (!b->tool->json) {
			printf("%-38s %10.*f %s\n", p->what, value < 100 ? 1 : 0, value, p->unit);
			fflush(stdout);
		}
	}
	return EXIT_OK;
}

/* Removes the files that exist: after an interruption that may be any of them. */
static void tidy_up(struct bench *b)
{
	char path[PATH_MAX + 32];

	unlink(b->file);
	for (uint64_t i = 0; i < b->n_files; i++) {
		snprintf(path, sizeof(path), "%s/small%06" PRIu64, b->dir, i);
		if (unlink(path) < 0 && errno == ENOENT && i > 0)
			break;
	}
	/* The phase that unlinks was interrupted early: other files exist although the first does
	 * not. */
	if (rmdir(b->dir) < 0 && errno == ENOTEMPTY) {
		for (uint64_t i = 0; i < b->n_files; i++) {
			snprintf(path, sizeof(path), "%s/small%06" PRIu64, b->dir, i);
			unlink(path);
		}
		rmdir(b->dir);
	}
}

static int parse(struct tool *t, int argc, char **argv, struct bench *b)
{
	static const struct option longs[] = {
		{"size", required_argument, NULL, 's'},
		{"files", required_argument, NULL, 'f'},
		{"jobs", required_argument, NULL, 'j'},
		{"seconds", required_argument, NULL, 't'},
		{NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		bool good = c == 's'   ? parse_size_arg(t, "--size", optarg, &b->size)
			    : c == 'f' ? parse_number_arg(t, "--files", optarg, 999999, &b->n_files)
			    : c == 'j' ? parse_number_arg(t, "--jobs", optarg, JOBS_MAX, &b->jobs)
			    : c == 't' ? parse_number_arg(t, "--seconds", optarg, 3600, &b->seconds)
				       : (tool_usage(t, "wrong options"), false);
		if (!good)
			return EXIT_USAGE;
	}
	if (argc - optind != 1)
		return tool_usage(t, argc == optind ? "DIRECTORY is missing"
						    : "too many arguments");
	if (b->size < BLOCK || b->jobs == 0 || b->n_files == 0 || b->seconds == 0)
		return tool_usage(t, "--size must be 1M or more, the others at least 1");
	if (snprintf(b->dir, PATH_MAX, "%s/leat-bench.XXXXXX", argv[optind]) >= PATH_MAX)
		return tool_usage(t, "the path is too long");
	return EXIT_OK;
}

static int run(struct tool *t, int argc, char **argv)
{
	static struct bench b;
	int code;

	if (argc > 1 && strcmp(argv[1], "loader") == 0)
		return bench_loader(t, argc - 1, argv + 1);
	b = (struct bench){.tool = t, .size = 256 << 20, .n_files = 1000, .jobs = 16, .seconds = 3};
	code = parse(t, argc, argv, &b);
	if (code != EXIT_OK)
		return code;
	b.block = aligned_alloc(4096, BLOCK);
	if (!b.block)
		return tool_error(t, EXIT_FAILED, NULL, "out of memory");
	/* Some file systems do not store zeros. */
	for (uint64_t i = 0; i < BLOCK / 8; i++) {
		uint64_t word = hash_u64(i + 1);
		memcpy(b.block + i * 8, &word, 8);
	}
	catch_interrupts(); /* before anything exists that must be removed */
	if (!mkdtemp(b.dir)) {
		free(b.block);
		return tool_error(t, exit_of_errno(errno), NULL, "%s: %m", argv[optind]);
	}
	snprintf(b.file, sizeof(b.file), "%s/big", b.dir);
	b.figures = json_array();
	code = run_phases(&b);
	tidy_up(&b);
	free(b.block);
	if (t->json && code == EXIT_OK)
		return tool_print_json(json_pack("{s:s,s:I,s:I,s:I,s:o}", "directory", argv[optind],
						 "size", (json_int_t)b.size, "files",
						 (json_int_t)b.n_files, "jobs", (json_int_t)b.jobs,
						 "figures", b.figures));
	json_decref(b.figures);
	return code;
}

const struct command command_bench = {
	.name = "bench",
	.summary = "a small benchmark of a directory, or of training from it",
	.usage = "usage: leat bench [--size SIZE] [--files N] [--jobs N] [--seconds N] "
		 "DIRECTORY\n"
		 "Writes, reads, random reads and small files, in a new folder below\n"
		 "DIRECTORY that is removed afterwards. Works on any file system.\n"
		 "  --size SIZE   of the large file (256M)\n"
		 "  --files N     small files (1000)\n"
		 "  --jobs N      threads of the random read (16)\n"
		 "  --seconds N   of the random read (3)\n"
		 "Examples:\n"
		 "  leat bench /mnt/leat\n"
		 "  leat bench --json --size 4G /mnt/leat > today.json\n" BENCH_LOADER_USAGE,
	.run = run,
};
