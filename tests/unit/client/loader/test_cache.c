/* SPDX-License-Identifier: Apache-2.0 */
/* The disk cache of the loader: right bytes whatever the files contain, eviction by the future
 * order, several loaders, full disks. */
#include "client/include/leat/leat_loader.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/crc32c.h"
#include "common/base/status.h"
#include "tests/lib/folder.h"

#define FILES   6u
#define EACH    100u
#define SAMPLES (FILES * EACH)
#define RECORD  3000u
#define COST    4096u /* of a record in the cache */

struct world {
	char root[FOLDER_MAX], src[96], dir[96];
};

static uint8_t byte_of(uint64_t sample, uint32_t i)
{
	return (uint8_t)(sample * 31 + i * (sample % 7 + 1) + (i >> 8));
}

static void put_files(const struct world *w)
{
	static uint8_t buf[RECORD];
	for (uint32_t f = 0; f < FILES; f++) {
		char path[200];
		snprintf(path, sizeof(path), "%s/%u.bin", w->src, f);
		FILE *out = fopen(path, "w");
		assert_non_null(out);
		for (uint32_t k = 0; k < EACH; k++) {
			for (uint32_t i = 0; i < RECORD; i++)
				buf[i] = byte_of(f * EACH + k, i);
			fwrite(buf, 1, RECORD, out);
		}
		assert_int_equal(fclose(out), 0);
	}
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	/* Thousands of small files: in memory, where the machine has /dev/shm. */
	make_folder(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : NULL, "cache", w->root);
	snprintf(w->src, sizeof(w->src), "%s/src", w->root);
	snprintf(w->dir, sizeof(w->dir), "%s/cache", w->root);
	assert_int_equal(mkdir(w->src, 0755), 0);
	put_files(w);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	remove_folder(w->root);
	free(w);
	return 0;
}

static struct leat_dataset *open_records(const struct world *w)
{
	struct leat_dataset_options o = {.size = sizeof(o), .format = "fixed:3000"};
	struct leat_dataset *ds;
	assert_int_equal(leat_dataset_open(w->src, &o, &ds), 0);
	return ds;
}

static struct leat_loader_options with_cache(const struct world *w, uint64_t bytes)
{
	return (struct leat_loader_options){.size = sizeof(struct leat_loader_options),
					    .batch = 20,
					    .seed = 3,
					    .tail = "shorter",
					    /* The read-ahead is a small part of the data set, as in
					     * real use. */
					    .depth = 6,
					    .cache_dir = w->dir,
					    .cache_bytes = bytes};
}

static struct leat_loader *open_loader(struct leat_dataset *ds, const struct leat_loader_options *o)
{
	struct leat_loader *ld;
	assert_int_equal(leat_loader_open(ds, o, &ld), 0);
	return ld;
}

static void check(const struct leat_batch *b)
{
	struct leat_view v = {.size = sizeof(v)};
	assert_int_equal(leat_batch_field(b, "record", &v), 0);
	for (uint32_t i = 0; i < leat_batch_len(b); i++) {
		assert_int_equal(v.lengths[i], RECORD);
		for (uint32_t k = 0; k < RECORD; k += 7)
			assert_int_equal(v.base[v.offsets[i] + k],
					 byte_of(leat_batch_ids(b)[i], k));
	}
}

/* Batches until the end of the epoch, or n of them. */
static void run(struct leat_loader *ld, uint32_t n)
{
	struct leat_batch *b;
	int rc = 0;
	while (n-- && (rc = leat_next(ld, &b)) == 1) {
		check(b);
		leat_batch_unref(b);
	}
	assert_true(rc >= 0);
}

static struct leat_loader_metrics metrics(struct leat_loader *ld)
{
	struct leat_loader_metrics m = {.size = sizeof(m)};
	assert_int_equal(leat_loader_metrics(ld, &m), 0);
	return m;
}

/* Waits until as much is read ahead as the loader allows. */
static struct leat_loader_metrics settled(struct leat_loader *ld)
{
	while (metrics(ld).ready < metrics(ld).ahead)
		usleep(1000);
	return metrics(ld);
}

static uint64_t found_bytes;
static char first_path[4096], found_path[4096]; /* the first and the last piece */

static int each_file(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	const char *name = path + ftw->base;
	if (flag == FTW_F && strchr(name, '-') && !strstr(name, ".lock")) {
		found_bytes += (uint64_t)(st->st_size + 4095) / 4096 * 4096;
		snprintf(found_path, sizeof(found_path), "%s", path);
		if (!first_path[0])
			snprintf(first_path, sizeof(first_path), "%s", path);
	}
	return 0;
}

static uint64_t bytes_on_disk(const struct world *w)
{
	found_bytes = 0;
	found_path[0] = first_path[0] = 0;
	assert_int_equal(nftw(w->dir, each_file, 16, FTW_PHYS), 0);
	return found_bytes;
}

static void test_half_of_it_saves_half_of_the_reads(void **state)
{
	static const char *const orders[] = {"global", "window:2", "sequential", "file"};
	struct leat_dataset *ds = open_records(*state);
	for (int i = 0; i < 4; i++) {
		struct leat_loader_options o = with_cache(*state, SAMPLES / 2 * COST);
		o.order = orders[i];
		struct leat_loader *ld = open_loader(ds, &o);
		run(ld, UINT32_MAX);
		struct leat_loader_metrics before = metrics(ld), m;
		for (int epoch = 1; epoch < 6; epoch++)
			run(ld, UINT32_MAX);
		m = settled(ld);
		/* The optimum is at least a half: as if one half stayed cached for ever. */
		uint64_t hits = m.cache_hits - before.cache_hits;
		uint64_t misses = m.cache_misses - before.cache_misses;
		assert_true(hits + misses >= 4 * SAMPLES);
		assert_true(hits >= (hits + misses) * 48 / 100);
		assert_int_equal(m.bytes_cache, m.cache_hits * RECORD);
		assert_int_equal(m.bytes_local, m.cache_misses * RECORD);
		assert_true(m.cache_bytes <= m.cache_limit);
		leat_loader_close(ld);
		assert_true(bytes_on_disk(*state) <= SAMPLES / 2 * COST);
	}
	leat_dataset_close(ds);
}

static void test_a_whole_one_is_read_once_also_by_the_next_job(void **state)
{
	struct leat_dataset *ds = open_records(*state);
	struct leat_loader_options o = with_cache(*state, SAMPLES * COST);
	struct leat_loader *ld = open_loader(ds, &o);
	for (int epoch = 0; epoch < 3; epoch++)
		run(ld, UINT32_MAX);
	leat_loader_close(ld);
	o.seed = 77;
	o.epoch = 5;
	ld = open_loader(ds, &o);
	run(ld, UINT32_MAX);
	assert_int_equal(metrics(ld).bytes_local, 0);
	leat_loader_close(ld);
	leat_dataset_close(ds);
}

/* Flipped bits, truncated files, garbage under a right name: read again, never delivered. */
static void damage(const struct world *w, int how)
{
	assert_true(bytes_on_disk(w) > 0);
	int fd = open(found_path, O_RDWR);
	uint8_t c;
	assert_true(fd >= 0);
	if (how == 0) {
		assert_int_equal(pread(fd, &c, 1, 1234), 1);
		c ^= 1;
		assert_int_equal(pwrite(fd, &c, 1, 1234), 1);
	} else if (how == 1) {
		assert_int_equal(ftruncate(fd, 1000), 0);
	} else if (how == 2) {
		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(ftruncate(fd, RECORD + 32), 0);
	}
	close(fd);
	/* The bytes of another piece, whose checksum is for that one. */
	if (how == 3) {
		char other[RECORD + 32];
		int from = open(first_path, O_RDONLY), to = open(found_path, O_WRONLY);
		assert_string_not_equal(first_path, found_path);
		assert_int_equal(read(from, other, sizeof(other)), sizeof(other));
		assert_int_equal(pwrite(to, other, sizeof(other), 0), sizeof(other));
		close(from);
		close(to);
	}
}

/* Neighbours are read by a few large reads, with half of them in the cache or none, and all are
 * cached. */
static void test_neighbours_are_read_at_once_and_kept_one_by_one(void **state)
{
	struct world *w = *state;
	struct leat_dataset *ds = open_records(w);
	struct leat_loader_options o = with_cache(w, 1 << 20);
	o.order = "sequential";
	for (int pass = 0; pass < 3; pass++) {
		struct leat_loader *ld = open_loader(ds, &o);
		run(ld, UINT32_MAX);
		run(ld, UINT32_MAX);
		assert_true(metrics(ld).cache_misses > 0);
		leat_loader_close(ld);
		/* Other neighbours are missing the next time. */
		o.cache_bytes /= 2;
	}
	o = with_cache(w, (uint64_t)1 << 30);
	o.order = "sequential";
	struct leat_loader *ld = open_loader(ds, &o);
	run(ld, UINT32_MAX);
	run(ld, UINT32_MAX);
	assert_true(metrics(ld).cache_hits >= SAMPLES);
	assert_true(metrics(ld).bytes_local <= (uint64_t)SAMPLES * RECORD);
	leat_loader_close(ld);
	leat_dataset_close(ds);
}

static void test_damage_is_noticed(void **state)
{
	struct leat_dataset *ds = open_records(*state);
	for (int how = 0; how < 4; how++) {
		struct leat_loader_options o = with_cache(*state, SAMPLES * COST);
		struct leat_loader *ld = open_loader(ds, &o);
		run(ld, UINT32_MAX);
		/* Waits until the loader has read ahead of the next epoch. */
		settled(ld);
		leat_loader_close(ld);
		damage(*state, how);
		ld = open_loader(ds, &o);
		for (int epoch = 0; epoch < 2; epoch++)
			run(ld, UINT32_MAX);
		assert_int_equal(metrics(ld).cache_bad, 1);
		assert_int_equal(metrics(ld).bytes_local, RECORD);
		leat_loader_close(ld);
	}
	leat_dataset_close(ds);
}

static void test_what_does_not_belong_there_is_removed(void **state)
{
	struct world *w = *state;
	struct leat_dataset *ds = open_records(w);
	struct leat_loader_options o = with_cache(w, SAMPLES * COST);
	struct leat_loader *ld = open_loader(ds, &o);
	run(ld, UINT32_MAX);
	leat_loader_close(ld);
	static const char *const names[] = {"0-0-bb8.0.tmp", "ffff-0-bb8",  "0-1-bb8",
					    "0-0-ffffffff",  "0-7a120-bb8", "nonsense-x",
					    "0-0-0"};
	bytes_on_disk(w);
	*strrchr(found_path, '/') = 0;
	char path[4200];
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", found_path, names[i]);
		FILE *f = fopen(path, "w");
		fputs("rubbish", f);
		fclose(f);
	}
	ld = open_loader(ds, &o);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", found_path, names[i]);
		if (i != 2) /* looks like a piece across two records: taken for none when read */
			assert_int_equal(access(path, F_OK), -1);
	}
	for (int epoch = 0; epoch < 2; epoch++)
		run(ld, UINT32_MAX);
	assert_int_equal(metrics(ld).bytes_local, 0);
	leat_loader_close(ld);
	leat_dataset_close(ds);
}

/* Of two pieces one becomes a pipe, the other a link: the loader does not wait for the pipe nor
 * follow the link. */
static void test_what_is_no_file_is_not_opened(void **state)
{
	static const char text[] = "not of the cache";
	struct world *w = *state;
	struct leat_dataset *ds = open_records(w);
	struct leat_loader_options o = with_cache(w, SAMPLES * COST);
	struct leat_loader *ld = open_loader(ds, &o);
	char other[FOLDER_MAX + 16], now[sizeof(text) + 1] = "";
	struct stat st;
	run(ld, UINT32_MAX);
	settled(ld);
	leat_loader_close(ld);
	bytes_on_disk(w);
	assert_string_not_equal(first_path, found_path);
	snprintf(other, sizeof(other), "%s/other", w->root);
	int fd = open(other, O_CREAT | O_RDWR, 0600);
	assert_int_equal(write(fd, text, sizeof(text)), sizeof(text));
	assert_int_equal(unlink(first_path) | unlink(found_path), 0);
	assert_int_equal(mkfifo(first_path, 0600) | symlink(other, found_path), 0);
	alarm(30);
	ld = open_loader(ds, &o);
	for (int epoch = 0; epoch < 2; epoch++)
		run(ld, UINT32_MAX);
	alarm(0);
	assert_int_equal(metrics(ld).cache_bad, 2);
	assert_int_equal(metrics(ld).bytes_local, 2 * RECORD);
	leat_loader_close(ld);
	/* The loader has put right pieces in their places. */
	assert_int_equal(lstat(first_path, &st), 0);
	assert_true(S_ISREG(st.st_mode));
	assert_int_equal(lstat(found_path, &st), 0);
	assert_true(S_ISREG(st.st_mode));
	assert_int_equal(pread(fd, now, sizeof(now), 0), sizeof(text));
	assert_string_equal(now, text);
	close(fd);
	leat_dataset_close(ds);
}

/* Finds the cache folder of the data set. */
static void find_folder(const struct world *w, char *ret_path, size_t size)
{
	DIR *d = opendir(w->dir);
	const struct dirent *e;
	ret_path[0] = 0;
	assert_non_null(d);
	while ((e = readdir(d)))
		if (e->d_name[0] != '.')
			snprintf(ret_path, size, "%s/%s", w->dir, e->d_name);
	closedir(d);
	assert_true(ret_path[0]);
}

static void refused(struct leat_dataset *ds, const struct leat_loader_options *o)
{
	struct leat_loader *ld = NULL;
	alarm(30);
	assert_int_equal(leat_loader_open(ds, o, &ld), -LE_FOREIGN);
	alarm(0);
	assert_non_null(strstr(leat_last_error()->message, "name another directory"));
}

/* The folder of the data set, a folder in it, and the locks: links, pipes, and files that other
 * users may write. */
static void test_what_others_have_put_there_is_refused(void **state)
{
	struct world *w = *state;
	struct leat_dataset *ds = open_records(w);
	struct leat_loader_options o = with_cache(w, SAMPLES * COST);
	static const char *const locks[] = {"lock", "slot-0.lock"};
	char folder[4200], aside[4200], path[4300];
	leat_loader_close(open_loader(ds, &o));
	find_folder(w, folder, sizeof(folder));
	snprintf(aside, sizeof(aside), "%s/aside", w->root);
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, locks[i]);
		assert_int_equal(unlink(path) | mkfifo(path, 0600), 0);
		refused(ds, &o);
		assert_int_equal(unlink(path) | symlink(aside, path), 0);
		refused(ds, &o);
		assert_int_equal(access(aside, F_OK), -1);
		assert_int_equal(unlink(path), 0);
	}
	assert_int_equal(chmod(folder, 0777), 0);
	refused(ds, &o);
	assert_int_equal(chmod(folder, 0700) | rename(folder, aside) | symlink(aside, folder), 0);
	refused(ds, &o);
	assert_int_equal(unlink(folder) | rename(aside, folder), 0);
	snprintf(path, sizeof(path), "%s/07", folder);
	assert_int_equal(rename(path, aside) | symlink(aside, path), 0);
	refused(ds, &o);
	assert_int_equal(unlink(path) | rename(aside, path), 0);
	if (geteuid() == 0) {
		assert_int_equal(chown(folder, 1000, 1000), 0);
		refused(ds, &o);
		assert_int_equal(chown(folder, 0, 0), 0);
	}
	leat_loader_close(open_loader(ds, &o));
	leat_dataset_close(ds);
}

static bool is_there(const char *name)
{
	char path[4200];
	snprintf(path, sizeof(path), "%s/%s", found_path, name);
	return access(path, F_OK) == 0;
}

/* A loader that opens the cache late leaves alone what the others write at that time. */
static void test_what_others_write_stays(void **state)
{
	struct world *w = *state;
	struct leat_dataset *ds = open_records(w);
	struct leat_loader_options o = with_cache(w, SAMPLES * COST);
	/* Temporary files of two ranks; the last is of a job with more ranks. */
	static const char *const names[] = {"0-0-bb8.0.tmp", "0-0-bb8.1.tmp", "0-0-bb8.2.tmp"};
	o.world = o.cache_ranks = 2;
	struct leat_loader *ld = open_loader(ds, &o);
	run(ld, UINT32_MAX);
	settled(ld);
	leat_loader_close(ld);
	bytes_on_disk(w);
	*strrchr(found_path, '/') = 0;
	for (size_t i = 0; i < 3; i++) {
		char path[4200];
		snprintf(path, sizeof(path), "%s/%s", found_path, names[i]);
		fclose(fopen(path, "w"));
	}
	ld = open_loader(ds, &o);
	assert_false(is_there(names[0]));
	assert_true(is_there(names[1]));
	assert_false(is_there(names[2]));
	leat_loader_close(ld);
	o.rank = 1;
	ld = open_loader(ds, &o);
	assert_false(is_there(names[1]));
	leat_loader_close(ld);
	leat_dataset_close(ds);
}

/* Killed at a random moment, and again. */
static void test_kill_9(void **state)
{
	struct world *w = *state;
	for (int i = 0; i < 12; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			struct leat_dataset *ds = open_records(w);
			struct leat_loader_options o = with_cache(w, SAMPLES * COST / 2);
			o.epoch = (uint64_t)i;
			struct leat_loader *ld = open_loader(ds, &o);
			for (;;)
				run(ld, 1);
		}
		usleep(2000 + (useconds_t)i * 7000);
		kill(pid, SIGKILL);
		int status;
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	}
	struct leat_dataset *ds = open_records(w);
	struct leat_loader_options o = with_cache(w, SAMPLES * COST / 2);
	struct leat_loader *ld = open_loader(ds, &o);
	run(ld, UINT32_MAX);
	assert_true(metrics(ld).cache_hits > 0);
	leat_loader_close(ld);
	assert_true(bytes_on_disk(w) <= SAMPLES / 2 * COST);
	leat_dataset_close(ds);
}

static void test_another_job_goes_without(void **state)
{
	struct leat_dataset *ds = open_records(*state);
	struct leat_loader_options o = with_cache(*state, SAMPLES * COST);
	struct leat_loader *first = open_loader(ds, &o), *again = open_loader(ds, &o);
	o.seed = 4;
	struct leat_loader *other = open_loader(ds, &o);
	for (int epoch = 0; epoch < 2; epoch++) {
		run(first, UINT32_MAX);
		run(other, UINT32_MAX);
		run(again, UINT32_MAX);
	}
	assert_int_equal(metrics(first).cache_limit, SAMPLES * COST);
	assert_int_equal(metrics(other).cache_limit, 0);
	assert_int_equal(metrics(again).cache_limit, 0);
	assert_int_equal(metrics(other).cache_hits, 0);
	leat_loader_close(first);
	leat_loader_close(other);
	leat_loader_close(again);
	other = open_loader(ds, &o);
	assert_int_equal(metrics(other).cache_limit, SAMPLES * COST);
	leat_loader_close(other);
	leat_dataset_close(ds);
}

/* Four ranks with two worker processes each share one folder. */
static void test_the_ranks_of_a_node_share_it(void **state)
{
	struct leat_dataset *ds = open_records(*state);
	struct leat_loader *ld[8];
	uint64_t hits = 0, all = 0;
	for (uint32_t i = 0; i < 8; i++) {
		struct leat_loader_options o = with_cache(*state, SAMPLES / 2 * COST);
		o.batch = 4;
		o.depth = 2;
		o.rank = i / 2;
		o.world = 4;
		o.stride = 2;
		o.phase = i % 2;
		o.cache_ranks = 4;
		ld[i] = open_loader(ds, &o);
	}
	for (int epoch = 0; epoch < 6; epoch++) {
		/* In step, as training keeps the ranks. */
		for (uint32_t step = 0; step <= SAMPLES / 4 / 2; step++) {
			for (int i = 0; i < 8; i++)
				run(ld[i], 1);
		}
		uint64_t h = 0, a = 0;
		for (int i = 0; i < 8; i++) {
			struct leat_loader_metrics m = metrics(ld[i]);
			h += m.cache_hits;
			a += m.cache_hits + m.cache_misses;
		}
		if (epoch == 1) {
			hits = h;
			all = a;
		}
		if (epoch == 5)
			assert_true((h - hits) * 100 >= (a - all) * 40);
	}
	for (int i = 0; i < 8; i++)
		leat_loader_close(ld[i]);
	/* Each rank keeps to its share; a piece that one rank passed on to another counts twice for
	 * a while. */
	assert_true(bytes_on_disk(*state) <= SAMPLES / 2 * COST);
	leat_dataset_close(ds);
}

static void test_other_content_is_another_cache(void **state)
{
	struct world *w = *state;
	struct leat_dataset *ds = open_records(w);
	struct leat_loader_options o = with_cache(w, SAMPLES * COST);
	struct leat_loader *ld = open_loader(ds, &o);
	run(ld, UINT32_MAX);
	leat_loader_close(ld);
	leat_dataset_close(ds);
	usleep(20000);
	put_files(w); /* the same sizes, later */
	ds = open_records(w);
	ld = open_loader(ds, &o);
	run(ld, UINT32_MAX);
	assert_true(metrics(ld).bytes_local >= SAMPLES * RECORD);
	leat_loader_close(ld);
	leat_dataset_close(ds);
}

/* Writes fail from some point on: no error, and the cached pieces are used. */
static void test_a_disk_that_takes_no_more(void **state)
{
	struct world *w = *state;
	struct leat_loader_options o = with_cache(w, SAMPLES * COST);
	char text[2000] = "", log[200];
	snprintf(log, sizeof(log), "%s/log", w->root);
	pid_t pid = fork();
	if (pid == 0) {
		/* Files of 3032 bytes exceed this limit; the signal becomes an error. */
		struct rlimit limit = {2000, 2000};
		int fd = open(log, O_WRONLY | O_CREAT, 0600);
		dup2(fd, 2);
		signal(SIGXFSZ, SIG_IGN);
		struct leat_dataset *own = open_records(w);
		struct leat_loader *ld = open_loader(own, &o);
		run(ld, 10);
		setrlimit(RLIMIT_FSIZE, &limit);
		run(ld, UINT32_MAX);
		run(ld, UINT32_MAX);
		struct leat_loader_metrics m = metrics(ld);
		leat_loader_close(ld);
		_exit(m.errors || m.cache_failed < 5 || m.cache_hits == 0 || m.skipped);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	int fd = open(log, O_RDONLY);
	assert_true(read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	/* One line. */
	assert_non_null(strstr(text, "goes on"));
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

/* Jumps between epochs, as restored states and validation make loaders do. */
static void test_jumps(void **state)
{
	struct leat_dataset *ds = open_records(*state);
	struct leat_loader_options o = with_cache(*state, SAMPLES / 2 * COST);
	struct leat_loader *ld = open_loader(ds, &o);
	static const uint64_t epochs[] = {5, 0, 9, 9, 8, 1000000, 3};
	for (int i = 0; i < 7; i++) {
		assert_int_equal(leat_loader_set_epoch(ld, epochs[i]), 0);
		run(ld, 7 + (uint32_t)i);
	}
	assert_int_equal(leat_loader_set_epoch(ld, 2), 0);
	run(ld, UINT32_MAX);
	struct leat_loader_metrics before = settled(ld), m;
	for (int epoch = 0; epoch < 3; epoch++)
		run(ld, UINT32_MAX);
	m = settled(ld);
	assert_true(m.cache_hits - before.cache_hits >= 3 * SAMPLES * 45 / 100);
	leat_loader_close(ld);
	assert_true(bytes_on_disk(*state) <= SAMPLES / 2 * COST);
	leat_dataset_close(ds);
}

static uint32_t crc_masked(const void *data, size_t len)
{
	uint32_t c = crc32c(data, len);
	return (c >> 15 | c << 17) + 0xa282ead8u;
}

/* A record that was read wrongly once (the file is repaired later) does not stay in the cache. */
static void test_wrong_records_are_not_kept(void **state)
{
	struct world *w = *state;
	char path[200];
	uint64_t len = 400;
	uint8_t data[400];
	remove_folder(w->src);
	assert_int_equal(mkdir(w->src, 0755), 0);
	snprintf(path, sizeof(path), "%s/one.tfrecord", w->src);
	FILE *f = fopen(path, "w+");
	for (int i = 0; i < 20; i++) {
		memset(data, i, sizeof(data));
		uint32_t head = crc_masked(&len, 8), body = crc_masked(data, sizeof(data));
		fwrite(&len, 8, 1, f);
		fwrite(&head, 4, 1, f);
		fwrite(data, 1, sizeof(data), f);
		fwrite(&body, 4, 1, f);
	}
	fflush(f);
	struct leat_dataset *ds;
	assert_int_equal(leat_dataset_open(w->src, NULL, &ds), 0);
	struct leat_loader_options o = with_cache(w, SAMPLES * COST);
	struct leat_loader *ld;
	struct leat_batch *b;
	o.batch = 20;
	o.depth = 2;
	assert_int_equal(pwrite(fileno(f), "!", 1, 416 * 7 + 12 + 99), 1);
	ld = open_loader(ds, &o);
	for (int i = 0; i < 3; i++)
		assert_int_equal(leat_next(ld, &b), -LE_CORRUPT);
	data[0] = 7;
	assert_int_equal(pwrite(fileno(f), data, 1, 416 * 7 + 12 + 99), 1);
	fclose(f);
	for (int i = 0; i < 4 && leat_next(ld, &b) != 1; i++)
		b = NULL; /* what was read before the repair */
	assert_non_null(b);
	assert_int_equal(leat_batch_len(b), 20);
	leat_batch_unref(b);
	assert_int_equal(leat_next(ld, &b), 0);
	assert_int_equal(leat_next(ld, &b), 1);
	leat_batch_unref(b);
	assert_int_equal(metrics(ld).cache_bad, 0);
	assert_true(metrics(ld).cache_hits >= 19);
	leat_loader_close(ld);
	leat_dataset_close(ds);
}

/* Writes a record of `len` bytes, each of them `byte`; without a head and a checksum if not
 * framed. */
static void put_large(const char *path, uint8_t byte, uint64_t len, bool framed)
{
	uint8_t *data = malloc(len);
	uint32_t head = crc_masked(&len, 8), body;
	FILE *f = fopen(path, "w");
	memset(data, byte, len);
	body = crc_masked(data, len);
	if (framed) {
		fwrite(&len, 8, 1, f);
		fwrite(&head, 4, 1, f);
	}
	fwrite(data, 1, len, f);
	if (framed)
		fwrite(&body, 4, 1, f);
	assert_int_equal(fclose(f), 0);
	free(data);
}

/* The format decides which file is the first: the record ends in its file where the record of
 * another file ends, and both are one piece of a first file. */
static void test_formats_of_one_folder_are_apart(void **state)
{
	struct world *w = *state;
	const uint64_t len = (4u << 20) + 1000;
	char path[200];
	remove_folder(w->src);
	assert_int_equal(mkdir(w->src, 0755), 0);
	snprintf(path, sizeof(path), "%s/a.bin", w->src);
	put_large(path, 'a', len + 12, false);
	snprintf(path, sizeof(path), "%s/b.tfrecord", w->src);
	put_large(path, 'b', len, true);
	static const char *const formats[] = {"tfrecord", "files"};
	for (uint64_t i = 0; i < 2; i++) {
		struct leat_dataset_options o = {.size = sizeof(o), .format = formats[i]};
		struct leat_loader_options lo = with_cache(w, 64u << 20);
		struct leat_view v = {.size = sizeof(v)};
		struct leat_dataset *ds;
		struct leat_batch *b;
		lo.batch = 1;
		lo.order = "sequential";
		assert_int_equal(leat_dataset_open(w->src, &o, &ds), 0);
		struct leat_loader *ld = open_loader(ds, &lo);
		assert_int_equal(leat_next(ld, &b), 1);
		assert_int_equal(leat_batch_field(b, i ? "data" : "record", &v), 0);
		for (uint64_t k = 0; k < v.lengths[0]; k++)
			assert_int_equal(v.base[v.offsets[0] + k], i ? 'a' : 'b');
		leat_batch_unref(b);
		leat_loader_close(ld);
		leat_dataset_close(ds);
	}
}

static void test_options(void **state)
{
	struct world *w = *state;
	struct leat_dataset *ds = open_records(w);
	struct leat_loader_options o = with_cache(w, 0);
	struct leat_loader *ld;
	assert_int_equal(leat_loader_open(ds, &o, &ld), -LE_INVAL);
	o.cache_bytes = 1000;
	o.cache_ranks = 2;
	assert_int_equal(leat_loader_open(ds, &o, &ld), -LE_INVAL);
	o.cache_ranks = 0;
	o.cache_dir = "/no/such/folder/at/all";
	assert_int_equal(leat_loader_open(ds, &o, &ld), -LE_NOENT);
	assert_non_null(strstr(leat_last_error()->message, "cache"));
	/* Less than a record: nothing is cached. */
	o.cache_dir = w->dir;
	ld = open_loader(ds, &o);
	run(ld, UINT32_MAX);
	assert_int_equal(metrics(ld).cache_bytes, 0);
	leat_loader_close(ld);
	leat_dataset_close(ds);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_half_of_it_saves_half_of_the_reads),
		T(test_a_whole_one_is_read_once_also_by_the_next_job),
		T(test_neighbours_are_read_at_once_and_kept_one_by_one),
		T(test_damage_is_noticed),
		T(test_what_does_not_belong_there_is_removed),
		T(test_what_is_no_file_is_not_opened),
		T(test_what_others_have_put_there_is_refused),
		T(test_what_others_write_stays),
		T(test_kill_9),
		T(test_another_job_goes_without),
		T(test_the_ranks_of_a_node_share_it),
		T(test_other_content_is_another_cache),
		T(test_a_disk_that_takes_no_more),
		T(test_jumps),
		T(test_wrong_records_are_not_kept),
		T(test_formats_of_one_folder_are_apart),
		T(test_options),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
