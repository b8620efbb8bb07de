/* SPDX-License-Identifier: Apache-2.0 */
/* Staging between local directories, through the public calls.
 * waits: yes */
#include "client/include/leat/leat_stage.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/status.h"
#include "tests/lib/folder.h"

#define BIG (9u << 20)

struct world {
	char root[FOLDER_MAX], src[96], to[96];
};

static void put_file(const char *dir, const char *name, size_t len, uint32_t seed)
{
	char path[256];
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	for (size_t i = 0; i < len; i += 4) {
		seed = seed * 1664525 + 1013904223;
		fwrite(&seed, 1, len - i < 4 ? len - i : 4, f);
	}
	assert_int_equal(fclose(f), 0);
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	char path[256];
	make_folder(NULL, "stage", w->root);
	snprintf(w->src, sizeof(w->src), "%s/src", w->root);
	snprintf(w->to, sizeof(w->to), "%s/to", w->root);
	assert_int_equal(mkdir(w->src, 0755), 0);
	assert_int_equal(mkdir(w->to, 0755), 0);
	snprintf(path, sizeof(path), "%s/sub", w->src);
	assert_int_equal(mkdir(path, 0755), 0);
	put_file(w->src, "big", BIG + 12345, 1);
	put_file(w->src, "empty", 0, 0);
	put_file(w->src, "sub/small", 100, 2);
	put_file(w->src, "sub/chunk", 1u << 20, 3);
	snprintf(path, sizeof(path), "%s/link", w->src);
	assert_int_equal(symlink("big", path), 0);
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

static struct leat_stage_options options(const struct world *w)
{
	return (struct leat_stage_options){
		.size = sizeof(struct leat_stage_options), .source = w->src, .to = w->to};
}

static struct leat_stage_result *result(void)
{
	static struct leat_stage_result r;
	memset(&r, 0, sizeof(r));
	r.size = sizeof(r);
	return &r;
}

static void assert_same(const struct world *w, const char *copy)
{
	char *cmd;
	assert_true(asprintf(&cmd, "diff -r --no-dereference %s %s", w->src, copy) > 0);
	assert_int_equal(system(cmd), 0);
	free(cmd);
}

static char *said(const char *format, const char *arg)
{
	char cmd[512], *line = calloc(1, 512);
	assert_true(snprintf(cmd, sizeof(cmd), format, arg) < (int)sizeof(cmd));
	FILE *f = popen(cmd, "r");
	assert_non_null(f);
	if (fgets(line, 512, f))
		line[strcspn(line, "\n")] = 0;
	assert_int_equal(pclose(f), 0);
	return line;
}

static uint64_t total_bytes(void)
{
	return BIG + 12345 + 100 + (1u << 20);
}

static void test_a_second_run_moves_nothing(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	struct leat_stage_result *r = result();
	assert_int_equal(leat_stage_in(&o, r), 0);
	assert_int_equal(r->code, LEAT_STAGE_DONE);
	assert_int_equal(r->bytes, total_bytes());
	assert_int_equal(r->bytes_moved, total_bytes());
	assert_int_equal(r->bytes_verified, total_bytes());
	assert_int_equal(r->files, 4);
	assert_int_equal(r->skipped, 0);
	assert_same(w, r->path);
	o.readback = 1;
	r = result();
	assert_int_equal(leat_stage_in(&o, r), 0);
	assert_int_equal(r->bytes_moved, 0);
	assert_int_equal(r->bytes_verified, total_bytes());
}

/* A call that continues a copy accepts only files that it has made, or given away, itself. */
static void test_a_file_of_somebody_else_is_fetched_anew(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	struct leat_stage_result *r = result();
	char file[sizeof(r->path) + 16], ready[sizeof(r->path) + 16];
	if (geteuid() != 0)
		skip();
	assert_int_equal(leat_stage_in(&o, r), 0);
	snprintf(file, sizeof(file), "%.4000s/sub/chunk", r->path);
	snprintf(ready, sizeof(ready), "%.4000s/../READY", r->path);
	for (int foreign = 0; foreign < 2; foreign++) {
		assert_int_equal(unlink(ready), 0);
		if (foreign)
			assert_int_equal(chown(file, 12345, 12345), 0);
		r = result();
		assert_int_equal(leat_stage_in(&o, r), 0);
		assert_int_equal(r->bytes_moved, foreign ? 1u << 20 : 0);
		assert_same(w, r->path);
	}
}

/* No user can list names of data sets or directories. */
static void test_what_was_made_of_a_source_has_no_name(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	assert_int_equal(leat_stage_in(&o, result()), 0);
	char *modes = said("stat -c %%a %1$s/.leat %1$s/.leat/sources | xargs", w->to);
	char *names = said("ls %s/.leat/sources | grep -cvE '^[0-9a-f]{64}$' || true", w->to);
	assert_string_equal(modes, "755 711");
	assert_string_equal(names, "0");
	free(modes);
	free(names);
}

static void test_status_path_lease_and_evict(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	struct leat_stage_result *r = result();
	struct leat_stage_copy c = {.size = sizeof(c)};
	struct leat_stage_lease *lease;
	char path[4096], prefix[9];
	assert_int_equal(leat_stage_status(w->to, w->src, &c), -LE_NOENT);
	assert_int_equal(leat_stage_in(&o, r), 0);
	assert_int_equal(leat_stage_status(w->to, w->src, &c), 0);
	assert_int_equal(c.state, LEAT_COPY_READY);
	assert_int_equal(c.leased, 0);
	assert_int_equal(c.bytes_verified, total_bytes());
	snprintf(prefix, sizeof(prefix), "%.8s", c.id);
	assert_int_equal(leat_stage_path(w->to, prefix, path, sizeof(path)), 0);
	assert_string_equal(path, r->path);
	assert_int_equal(leat_stage_path(w->to, prefix, path, 10), -LE_RANGE);
	assert_int_equal(leat_stage_lease(w->to, c.id, &lease), 0);
	assert_int_equal(leat_stage_evict(w->to, c.id), -LE_BUSY);
	assert_int_equal(leat_stage_status(w->to, c.id, &c), 0);
	assert_int_equal(c.leased, 1);
	leat_stage_release(lease);
	assert_int_equal(leat_stage_evict(w->to, c.id), 0);
	assert_int_equal(leat_stage_status(w->to, c.id, &c), -LE_NOENT);
	assert_int_not_equal(access(path, F_OK), 0);
}

static void damage(const char *dir, const char *name, off_t off)
{
	char path[4200];
	char c;
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	chmod(path, 0644);
	int fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &c, 1, off), 1);
	c ^= 1;
	assert_int_equal(pwrite(fd, &c, 1, off), 1);
	close(fd);
}

static void test_damage_is_found_named_and_healed(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	struct leat_stage_result *r = result();
	struct leat_stage_copy c = {.size = sizeof(c)};
	char copy[4096];
	assert_int_equal(leat_stage_in(&o, r), 0);
	memcpy(copy, r->path, sizeof(copy));
	assert_int_equal(leat_stage_verify(&o, w->src, result()), 0);
	damage(copy, "big", 5000000);
	r = result();
	assert_int_equal(leat_stage_verify(&o, w->src, r), -LE_CORRUPT);
	assert_int_equal(r->code, LEAT_STAGE_LOCAL_CORRUPT);
	assert_string_equal(r->fail_path, "big");
	assert_int_equal(r->fail_offset, 5000000 / 16384 * 16384);
	assert_int_equal(leat_stage_status(w->to, w->src, &c), 0);
	assert_int_equal(c.state, LEAT_COPY_PARTIAL);
	r = result();
	assert_int_equal(leat_stage_in(&o, r), 0);
	assert_int_equal(r->bytes_moved, 1u << 20);
	assert_same(w, copy);
	/* A missing file is detected without reading. */
	char path[4200];
	snprintf(path, sizeof(path), "%s/sub/chunk", copy);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(leat_stage_status(w->to, w->src, &c), 0);
	assert_int_equal(c.state, LEAT_COPY_DEGRADED);
	r = result();
	assert_int_equal(leat_stage_in(&o, r), 0);
	assert_int_equal(r->bytes_moved, 1u << 20);
	assert_same(w, copy);
}

static volatile int cancel_flag;
static uint64_t die_at;

static void on_progress(void *arg, const struct leat_stage_progress *p)
{
	if (strcmp(p->phase, "copy") == 0 && p->bytes >= die_at) {
		if (arg)
			cancel_flag = 1;
		else
			raise(SIGKILL);
	}
}

static void test_a_killed_process_is_gone_on_from(void **state)
{
	struct world *w = *state;
	uint64_t moved = 0;
	for (int round = 0; round < 3; round++) {
		pid_t pid = fork();
		if (pid == 0) {
			struct leat_stage_options o = options(w);
			o.progress = on_progress;
			die_at = (uint64_t)(round + 1) << 20;
			leat_stage_in(&o, result());
			_exit(1);
		}
		int status;
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
		struct leat_stage_copy c = {.size = sizeof(c)};
		assert_int_equal(leat_stage_status(w->to, w->src, &c), 0);
		assert_int_equal(c.state, LEAT_COPY_PARTIAL);
	}
	struct leat_stage_options o = options(w);
	struct leat_stage_result *r = result();
	assert_int_equal(leat_stage_in(&o, r), 0);
	moved += r->bytes_moved;
	assert_int_equal(r->bytes_verified, total_bytes());
	/* What the killed processes wrote is still in the page cache, and is verified, not copied
	 * again. */
	assert_true(moved < total_bytes());
	assert_same(w, r->path);
}

static void test_cancelled_and_resumed(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	struct leat_stage_result *r = result();
	cancel_flag = 0;
	die_at = 1;
	o.progress = on_progress;
	o.arg = w;
	o.cancel = &cancel_flag;
	assert_int_equal(leat_stage_in(&o, r), -LE_CANCELED);
	assert_int_equal(r->code, LEAT_STAGE_CANCELLED);
	uint64_t before = r->bytes_moved;
	cancel_flag = 0;
	o.progress = NULL;
	r = result();
	assert_int_equal(leat_stage_in(&o, r), 0);
	assert_int_equal(before + r->bytes_moved, total_bytes());
	assert_same(w, r->path);
}

static void *stage_thread(void *arg)
{
	struct leat_stage_options o = options(arg);
	struct leat_stage_result *r = calloc(1, sizeof(*r));
	r->size = sizeof(*r);
	if (leat_stage_in(&o, r) < 0)
		r->bytes_moved = UINT64_MAX;
	return r;
}

static void test_one_copies_and_all_wait(void **state)
{
	struct world *w = *state;
	pthread_t threads[4];
	uint64_t moved = 0;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, stage_thread, w), 0);
	for (int i = 0; i < 4; i++) {
		void *r;
		pthread_join(threads[i], &r);
		assert_int_equal(((struct leat_stage_result *)r)->bytes_verified, total_bytes());
		moved += ((struct leat_stage_result *)r)->bytes_moved;
		free(r);
	}
	assert_int_equal(moved, total_bytes());
}

static void test_failures_have_their_codes(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	struct leat_stage_result *r = result();
	o.source = "relative/dir";
	assert_true(leat_stage_in(&o, r) < 0);
	assert_int_equal(r->code, LEAT_STAGE_USAGE);
	o.source = "/no/such/directory";
	r = result();
	assert_int_equal(leat_stage_in(&o, r), -LE_NOENT);
	assert_int_equal(r->code, LEAT_STAGE_SOURCE_GONE);
	assert_non_null(strstr(r->message, "/no/such/directory"));
	o.source = w->src;
	o.capacity = 1000;
	r = result();
	assert_int_equal(leat_stage_in(&o, r), -LE_NOSPC);
	assert_int_equal(r->code, LEAT_STAGE_NO_CAPACITY);
	assert_int_equal(r->bytes_missing, total_bytes() - 1000);
	assert_int_equal(r->bytes_moved, 0);
}

static void test_a_source_that_lies_is_refused(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	struct leat_dataset_info info = {.size = sizeof(info)};
	struct leat_stage_result *r = result();
	char catalog[128];
	snprintf(catalog, sizeof(catalog), "%s/catalog", w->root);
	o.catalog = catalog;
	assert_int_equal(leat_dataset_create(&o, "pictures@v1", &info, r), 0);
	struct stat st;
	char path[256];
	snprintf(path, sizeof(path), "%s/big", w->src);
	assert_int_equal(stat(path, &st), 0);
	damage(w->src, "big", 77777);
	/* The time has not changed: damaged. */
	struct timespec times[2] = {st.st_atim, st.st_mtim};
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	o.source = "pictures@v1";
	r = result();
	assert_int_equal(leat_stage_in(&o, r), -LE_CORRUPT);
	assert_int_equal(r->code, LEAT_STAGE_SOURCE_CORRUPT);
	assert_string_equal(r->fail_path, "big");
	assert_int_equal(r->fail_offset, 77777 / 16384 * 16384);
	/* The time has changed: another version. */
	times[1].tv_sec++;
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	r = result();
	assert_int_equal(leat_stage_in(&o, r), -LE_STALE);
	assert_int_equal(r->code, LEAT_STAGE_SOURCE_GONE);
	damage(w->src, "big", 77777);
	r = result();
	assert_int_equal(leat_stage_in(&o, r), 0);
	assert_same(w, r->path);
}

static int count_info(void *arg, const struct leat_dataset_info *i)
{
	assert_int_equal(i->bytes, total_bytes());
	++*(int *)arg;
	return 0;
}

static int count_damaged(void *arg, const struct leat_dataset_info *i)
{
	assert_string_equal(i->name, "a");
	assert_string_equal(i->version, "1.tmp");
	assert_int_equal(i->damaged, 1);
	++*(int *)arg;
	return 0;
}

static void test_a_dataset_without_its_folder(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	struct leat_dataset_info info = {.size = sizeof(info)};
	char catalog[128];
	int n = 0;
	snprintf(catalog, sizeof(catalog), "%s/catalog", w->root);
	o.catalog = catalog;
	assert_int_equal(leat_dataset_create(&o, "a@1.tmp", &info, result()), 0);
	free(said("rm -r %s/by-id", catalog));
	assert_int_equal(leat_dataset_list(NULL, catalog, count_damaged, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(leat_dataset_show(NULL, catalog, "a@1.tmp", &info), -LE_NOENT);
	free(said("echo x >%s/a@1.tmp", catalog));
	assert_int_equal(leat_dataset_list(NULL, catalog, count_damaged, &n), 0);
	assert_int_equal(n, 2);
	assert_int_equal(leat_dataset_remove(NULL, catalog, "a@1.tmp"), 0);
	assert_int_equal(leat_dataset_list(NULL, catalog, count_damaged, &n), 0);
	assert_int_equal(n, 2);
}

static void test_datasets(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	struct leat_dataset_info info = {.size = sizeof(info)};
	char catalog[128];
	int n = 0;
	snprintf(catalog, sizeof(catalog), "%s/catalog", w->root);
	o.catalog = catalog;
	assert_int_equal(leat_dataset_create(&o, "../evil", &info, result()), -LE_INVAL);
	assert_int_equal(leat_dataset_create(&o, "a@1", &info, result()), 0);
	assert_int_equal(info.files, 4);
	assert_int_equal(info.samples, 4);
	assert_string_equal(info.format, "files");
	assert_int_equal(leat_dataset_create(&o, "a@1", &info, result()), -LE_EXIST);
	assert_int_equal(leat_dataset_create(&o, "b", &info, result()), 0);
	assert_string_equal(info.version, "latest");
	assert_int_equal(leat_dataset_list(NULL, catalog, count_info, &n), 0);
	assert_int_equal(n, 2);
	o.source = "a@1";
	assert_int_equal(leat_stage_in(&o, result()), 0);
	assert_int_equal(leat_dataset_remove(NULL, catalog, "a@1"), 0);
	assert_int_equal(leat_dataset_show(NULL, catalog, "a@1", &info), -LE_NOENT);
	assert_int_equal(leat_dataset_show(NULL, catalog, "b", &info), 0);
	assert_int_equal(leat_dataset_remove(NULL, catalog, "b@latest"), 0);
	o.source = "b";
	struct leat_stage_result *r = result();
	assert_int_equal(leat_stage_in(&o, r), -LE_NOENT);
	assert_int_equal(r->code, LEAT_STAGE_SOURCE_GONE);
}

static struct leat_dataset_info shown(const char *catalog, const char *alias)
{
	struct leat_dataset_info info = {.size = sizeof(info)};
	assert_int_equal(leat_dataset_show(NULL, catalog, alias, &info), 0);
	return info;
}

/* Each is a copy of its own files, even if other data sets have equal content. */
static void test_datasets_of_the_same_content(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	struct leat_dataset_info info = {.size = sizeof(info)};
	char catalog[128], twin[128];
	snprintf(catalog, sizeof(catalog), "%s/catalog", w->root);
	snprintf(twin, sizeof(twin), "%s/twin", w->root);
	free(said("cd %s && cp -a src twin", w->root));
	o.catalog = catalog;
	assert_int_equal(leat_dataset_create(&o, "a@1", &info, result()), 0);
	o.source = twin;
	assert_int_equal(leat_dataset_create(&o, "b@1", &info, result()), 0);
	assert_string_equal(info.id, shown(catalog, "a@1").id);
	assert_string_equal(shown(catalog, "a@1").source, w->src);
	assert_string_equal(shown(catalog, "b@1").source, twin);
	assert_int_equal(leat_dataset_remove(NULL, catalog, "b@1"), 0);
	free(said("rm -r %s", twin));
	assert_string_equal(shown(catalog, "a@1").source, w->src);
	o.source = "a@1";
	assert_int_equal(leat_stage_in(&o, result()), 0);
	assert_int_equal(leat_dataset_remove(NULL, catalog, "a@1"), 0);
	char *left = said("find %s -type f", catalog);
	assert_string_equal(left, "");
	free(left);
}

struct creation {
	const struct world *w;
	const char *source;
	int rc;
};

static void *create_thread(void *arg)
{
	struct creation *c = arg;
	struct leat_stage_options o = options(c->w);
	struct leat_dataset_info info = {.size = sizeof(info)};
	struct leat_stage_result *r = calloc(1, sizeof(*r));
	char catalog[128];
	snprintf(catalog, sizeof(catalog), "%s/catalog", c->w->root);
	r->size = sizeof(*r);
	o.catalog = catalog;
	o.source = c->source;
	c->rc = leat_dataset_create(&o, "a@1", &info, r);
	free(r);
	return NULL;
}

static void test_of_several_who_give_a_name_one_does(void **state)
{
	struct world *w = *state;
	pthread_t threads[4];
	char catalog[128], other[128];
	snprintf(catalog, sizeof(catalog), "%s/catalog", w->root);
	snprintf(other, sizeof(other), "%s/to", w->root);
	put_file(other, "file", 1000, 5);
	for (int round = 0; round < 10; round++) {
		/* Other content, and then equal content elsewhere. */
		if (round == 5)
			free(said("cd %s && rm -r to && cp -a src to", w->root));
		struct creation c[4];
		int done = -1;
		for (int i = 0; i < 4; i++) {
			c[i] = (struct creation){w, i % 2 ? other : w->src, 0};
			assert_int_equal(pthread_create(&threads[i], NULL, create_thread, &c[i]),
					 0);
		}
		for (int i = 0; i < 4; i++)
			pthread_join(threads[i], NULL);
		for (int i = 0; i < 4; i++) {
			assert_true(c[i].rc == -LE_EXIST || (c[i].rc == 0 && done < 0));
			if (c[i].rc == 0)
				done = i;
		}
		assert_true(done >= 0);
		assert_string_equal(shown(catalog, "a@1").source, c[done].source);
		assert_int_equal(leat_dataset_remove(NULL, catalog, "a@1"), 0);
	}
	char *left = said("find %s -type f", catalog);
	assert_string_equal(left, "");
	free(left);
}

static void test_several_directories(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	struct leat_stage_result *r = result();
	struct leat_stage_copy c = {.size = sizeof(c)};
	char dir[128], path[400];
	const char *more[] = {dir, NULL};
	snprintf(dir, sizeof(dir), "%s/two", w->root);
	for (int i = 0; i < 20; i++) {
		snprintf(path, sizeof(path), "part%d", i);
		put_file(w->src, path, 300000, (uint32_t)i);
	}
	o.more_dirs = more;
	assert_int_equal(leat_stage_in(&o, r), 0);
	char *cmd;
	assert_true(asprintf(&cmd, "diff -r -x link %s %s", w->src, r->path) > 0);
	assert_int_equal(system(cmd), 0);
	free(cmd);
	snprintf(path, sizeof(path),
		 "test $(find %s -name 'part*' -type f | wc -l) -ge 5 && "
		 "test $(find %s -name 'part*' -type l | wc -l) -ge 5",
		 dir, w->to);
	assert_int_equal(system(path), 0);
	/* A wrong list of directories: the copy has the right one. */
	snprintf(path, sizeof(path), "%.90s/.leat/%.64s/places", w->to, r->id);
	assert_int_equal(leat_stage_status(w->to, r->id, &c), 0);
	assert_int_equal(c.state, LEAT_COPY_READY);
	FILE *f = fopen(path, "r+");
	assert_non_null(f);
	fputs("leat places 1\n/etc", f);
	fclose(f);
	assert_int_equal(leat_stage_status(w->to, r->id, &c), 0);
	assert_int_equal(c.state, LEAT_COPY_DEGRADED);
}

static void test_out_and_in_again(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	struct leat_stage_result *r = result();
	char dest[128], path[256];
	snprintf(dest, sizeof(dest), "%s/results", w->root);
	snprintf(path, sizeof(path), "%s/old", w->to);
	o.to = w->src;
	o.source = dest;
	assert_int_equal(leat_stage_out(&o, r), 0);
	assert_int_equal(r->files, 4);
	assert_same(w, dest);
	assert_int_equal(leat_stage_out(&o, result()), -LE_EXIST);
	put_file(w->src, "sub/small", 77, 9);
	o.replace = 1;
	assert_int_equal(leat_stage_out(&o, result()), 0);
	assert_same(w, dest);
	o.source = "relative";
	assert_int_equal(leat_stage_out(&o, result()), -LE_INVAL);
}

static void make_dest(void *arg, const struct leat_stage_progress *p)
{
	const char *dest = arg;
	if (strcmp(p->phase, "copy") == 0 && mkdir(dest, 0755) == 0)
		put_file(dest, "theirs", 10, 1);
}

static void test_out_replaces_nothing_unasked(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	struct leat_stage_result *r = result();
	char dest[128], path[256];
	snprintf(dest, sizeof(dest), "%s/results", w->root);
	snprintf(path, sizeof(path), "%s/theirs", dest);
	o.to = w->src;
	o.source = dest;
	o.progress = make_dest;
	o.arg = dest;
	assert_int_equal(leat_stage_out(&o, r), -LE_EXIST);
	assert_int_equal(r->code, LEAT_STAGE_USAGE);
	assert_int_equal(access(path, F_OK), 0);
	o.replace = 1;
	o.progress = NULL;
	assert_int_equal(leat_stage_out(&o, result()), 0);
	assert_same(w, dest);
}

/* Only where this process may set a host name. */
static void test_out_of_two_hosts_has_two_places(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	char dest[128];
	int status;
	snprintf(dest, sizeof(dest), "%s/results", w->root);
	o.to = w->src;
	o.source = dest;
	o.cancel = &cancel_flag;
	o.progress = on_progress;
	o.arg = w;
	die_at = 1;
	for (int i = 0; i < 2; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			if (i == 1 &&
			    (unshare(CLONE_NEWUTS) < 0 || sethostname("other.host", 10) < 0))
				_exit(77);
			_exit(leat_stage_out(&o, result()) == -LE_CANCELED ? 0 : 1);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (i == 1 && WIFEXITED(status) && WEXITSTATUS(status) == 77)
			skip();
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	char *n = said("ls -d %s/.leat-out-* | wc -l", w->root);
	assert_string_equal(n, "2");
	free(n);
}

/* Leftovers of an exchange whose process was killed, or files that a user has put there. */
static void test_out_takes_nothing_else_with_it(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	char dest[128];
	snprintf(dest, sizeof(dest), "%s/results", w->root);
	o.to = w->src;
	o.source = dest;
	o.cancel = &cancel_flag;
	o.progress = on_progress;
	o.arg = w;
	die_at = 1;
	assert_int_equal(leat_stage_out(&o, result()), -LE_CANCELED);
	cancel_flag = 0;
	o.progress = NULL;
	char *tmp = said("ls -d %s/.leat-out-*", w->root);
	put_file(w->root, "other", 2u << 20, 7);
	/* A folder that is a link, another name of a file in use, and the previous content. */
	free(said("cd %s && rm -rf sub big && ln -s ../to sub && ln ../other big && "
		  "mkdir -p old/er hollow/.leat-x && touch old/er/file && ln -s /nowhere dangling",
		  tmp));
	assert_int_equal(leat_stage_out(&o, result()), 0);
	assert_same(w, dest);
	char *line = said("cksum <%s/other", w->root);
	put_file(w->root, "again", 2u << 20, 7);
	char *want = said("cksum <%s/again", w->root);
	assert_string_equal(line, want);
	free(want);
	free(line);
	line = said("ls -A %s/to", w->root);
	assert_string_equal(line, "");
	free(line);
	free(tmp);
}

static void test_what_is_kept_from_eviction(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	struct leat_stage_result *r = result();
	struct leat_stage_gc_options g = {.size = sizeof(g), .to = w->to, .capacity = 1};
	char path[256];
	uint64_t bytes;
	o.lease = "job.1";
	assert_int_equal(leat_stage_in(&o, r), 0);
	assert_int_equal(leat_stage_gc(&g, &bytes), 0);
	assert_int_equal(bytes, 0);
	assert_int_equal(leat_stage_evict(w->to, r->id), -LE_BUSY);
	assert_int_equal(leat_stage_release_job(w->to, NULL, "job.2"), -LE_NOENT);
	assert_int_equal(leat_stage_release_job(w->to, NULL, "../pin"), -LE_INVAL);
	assert_int_equal(leat_stage_release_job(w->to, NULL, "job.1"), 0);
	assert_int_equal(leat_stage_pin(w->to, r->id, 1), 0);
	assert_int_equal(leat_stage_evict(w->to, r->id), -LE_BUSY);
	assert_int_equal(leat_stage_pin(w->to, r->id, 0), 0);
	/* The last copy of content that its source does not have any longer. */
	snprintf(path, sizeof(path), "%s/sub/small", w->src);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(leat_stage_gc(&g, &bytes), 0);
	assert_int_equal(bytes, 0);
	put_file(w->src, "sub/small", 100, 2);
	struct timespec t[2] = {{0, UTIME_OMIT}, {0, 0}};
	struct stat st;
	snprintf(path, sizeof(path), "%.200s/sub/small", r->path);
	assert_int_equal(stat(path, &st), 0);
	t[1] = st.st_mtim;
	snprintf(path, sizeof(path), "%s/sub/small", w->src);
	assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
	assert_int_equal(leat_stage_gc(&g, &bytes), 0);
	assert_int_equal(bytes, total_bytes());
}

/* A directory's name finds the copy of its present content, whatever it was in between. */
static void test_a_directory_that_is_as_before(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	struct leat_stage_copy c = {.size = sizeof(c)};
	char first[4096], path[4096], id[2][LEAT_ID_SIZE], *twin;
	for (int i = 0; i < 4; i++) {
		struct leat_stage_result *r = result();
		put_file(w->src, "sub/small", 100, i % 2 ? 9 : 2);
		assert_int_equal(leat_stage_in(&o, r), 0);
		assert_int_equal(leat_stage_path(w->to, w->src, path, sizeof(path)), 0);
		assert_string_equal(path, r->path);
		memcpy(id[i % 2], r->id, sizeof(id[0]));
		if (i == 0)
			memcpy(first, path, sizeof(first));
		if (i == 2)
			assert_string_equal(path, first);
		if (i == 0)
			continue;
		assert_int_equal(leat_stage_status(w->to, id[1 - i % 2], &c), 0);
		assert_int_equal(c.state, LEAT_COPY_STALE);
		assert_int_equal(leat_stage_status(w->to, id[i % 2], &c), 0);
		assert_int_equal(c.state, LEAT_COPY_READY);
	}
	/* Another directory with equal content. */
	free(said("cd %s && cp -a src twin", w->root));
	assert_true(asprintf(&twin, "%s/twin", w->root) > 0);
	o.source = twin;
	struct leat_stage_result *r = result();
	assert_int_equal(leat_stage_in(&o, r), 0);
	assert_int_equal(r->bytes_moved, 0);
	assert_int_equal(leat_stage_path(w->to, twin, path, sizeof(path)), 0);
	assert_string_equal(path, r->path);
	assert_int_equal(leat_stage_path(w->to, w->src, path, sizeof(path)), 0);
	assert_string_equal(path, r->path);
	free(twin);
}

static bool has_mark(const struct world *w, const char *id, const char *mark)
{
	char path[256];
	struct stat st;
	assert_true(snprintf(path, sizeof(path), "%s/.leat/%s/%s", w->to, id, mark) <
		    (int)sizeof(path));
	return stat(path, &st) == 0;
}

/* Stages in a process that is killed while it marks the copy `other`. `there`: whether `mark` of
 * `id` exists immediately before. */
static void die_at_mark(const struct world *w, const char *other, const char *id, const char *mark,
			bool there)
{
	char fifo[256];
	int status;
	pid_t pid = fork();
	/* Where the mark is written before it gets its name: a process that opens this waits for
	 * ever. */
	assert_true(snprintf(fifo, sizeof(fifo), "%s/.leat/%s/stale.%d.tmp", w->to, other,
			     (int)(pid ? pid : getpid())) < (int)sizeof(fifo));
	if (pid == 0) {
		struct leat_stage_options o = options(w);
		if (mkfifo(fifo, 0600) == 0)
			leat_stage_in(&o, result());
		_exit(1);
	}
	while (has_mark(w, id, mark) != there)
		usleep(1000);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(unlink(fifo), 0);
}

static void stage_over(const struct world *w, const char *other)
{
	struct leat_stage_options o = options(w);
	struct leat_stage_copy c = {.size = sizeof(c)};
	assert_int_equal(leat_stage_status(w->to, other, &c), 0);
	assert_int_equal(c.state, LEAT_COPY_READY);
	assert_int_equal(leat_stage_in(&o, result()), 0);
	assert_int_equal(leat_stage_status(w->to, other, &c), 0);
	assert_int_equal(c.state, LEAT_COPY_STALE);
}

/* The next stager marks a superseded copy as stale: else it could never be evicted. */
static void test_killed_before_the_old_one_is_stale(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	char id[2][LEAT_ID_SIZE];
	for (int i = 0; i < 2; i++) {
		struct leat_stage_result *r = result();
		put_file(w->src, "sub/small", 100, i ? 9 : 2);
		assert_int_equal(leat_stage_in(&o, r), 0);
		memcpy(id[i], r->id, sizeof(id[0]));
	}
	/* The copy exists already. */
	put_file(w->src, "sub/small", 100, 2);
	die_at_mark(w, id[1], id[0], "stale", false);
	stage_over(w, id[1]);
	/* The copy is made. */
	assert_int_equal(leat_stage_evict(w->to, id[1]), 0);
	put_file(w->src, "sub/small", 100, 9);
	die_at_mark(w, id[0], id[1], "READY", true);
	stage_over(w, id[0]);
}

/* Stages while the copy `other` cannot be marked. */
static void fail_to_mark(const struct world *w, const char *other)
{
	struct leat_stage_options o = options(w);
	char temp[256];
	/* Where the mark is written before it gets its name. */
	assert_true(snprintf(temp, sizeof(temp), "%s/.leat/%s/stale.%d.tmp", w->to, other,
			     (int)getpid()) < (int)sizeof(temp));
	assert_int_equal(mkdir(temp, 0755), 0);
	assert_int_equal(leat_stage_in(&o, result()), 0);
	assert_int_equal(rmdir(temp), 0);
}

/* As if the stager had been killed: the next one marks it. */
static void test_the_old_one_could_not_be_marked(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	struct leat_stage_result *r = result();
	char id[2][LEAT_ID_SIZE];
	assert_int_equal(leat_stage_in(&o, r), 0);
	memcpy(id[0], r->id, sizeof(id[0]));
	/* The copy is made. */
	put_file(w->src, "sub/small", 100, 9);
	fail_to_mark(w, id[0]);
	stage_over(w, id[0]);
	assert_int_equal(leat_stage_in(&o, r), 0);
	memcpy(id[1], r->id, sizeof(id[1]));
	/* The copy exists already. */
	put_file(w->src, "sub/small", 100, 2);
	fail_to_mark(w, id[1]);
	stage_over(w, id[1]);
}

static void test_a_stale_copy_that_is_mended_is_ready(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	struct leat_stage_copy c = {.size = sizeof(c)};
	char copy[4096], path[4200];
	for (int i = 0; i < 3; i++) {
		struct leat_stage_result *r = result();
		put_file(w->src, "sub/small", 100, i % 2 ? 9 : 2);
		assert_int_equal(leat_stage_in(&o, r), 0);
		if (i == 0)
			memcpy(copy, r->path, sizeof(copy));
		snprintf(path, sizeof(path), "%s/sub/chunk", copy);
		if (i == 1)
			assert_int_equal(unlink(path), 0);
	}
	assert_int_equal(leat_stage_status(w->to, w->src, &c), 0);
	assert_string_equal(c.path, copy);
	assert_int_equal(c.state, LEAT_COPY_READY);
}

static void test_order_and_window(void **state)
{
	struct world *w = *state;
	struct leat_stage_options o = options(w);
	struct leat_stage_result *r = result();
	o.order = "seed=1,batch=2,world=2,rank=1,mode=global";
	o.first_window = 1;
	assert_int_equal(leat_stage_in(&o, r), 0);
	assert_same(w, r->path);
	assert_int_equal(leat_stage_evict(w->to, r->id), 0);
	o.order = "seed=1,batch=3,world=2";
	r = result();
	assert_int_equal(leat_stage_in(&o, r), -LE_INVAL);
	assert_int_equal(r->code, LEAT_STAGE_USAGE);
	o.order = "seed=1,batch=2,world=2,rank=2";
	assert_int_equal(leat_stage_in(&o, r), -LE_INVAL);
}

struct changing {
	const struct world *w;
	bool pipe; /* else a link to a device */
};

static void change_source(void *arg, enum leat_stage_milestone m)
{
	const struct changing *c = arg;
	char path[256];
	if (m != LEAT_STAGE_RESERVED)
		return;
	snprintf(path, sizeof(path), "%s/sub/small", c->w->src);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(c->pipe ? mkfifo(path, 0644) : symlink("/dev/zero", path), 0);
}

/* What has replaced a file is not waited for, nor read. */
static void test_a_source_that_is_no_file_any_more(void **state)
{
	struct world *w = *state;
	for (int pipe = 0; pipe < 2; pipe++) {
		struct leat_stage_options o = options(w);
		struct leat_stage_result *r = result();
		struct changing c = {w, pipe};
		char path[256];
		o.reached = change_source;
		o.arg = &c;
		alarm(60); /* ends the test */
		assert_int_equal(leat_stage_in(&o, r), -LE_STALE);
		alarm(0);
		assert_int_equal(r->code, LEAT_STAGE_SOURCE_GONE);
		assert_string_equal(r->fail_path, "sub/small");
		assert_non_null(strstr(r->message, "the source has changed"));
		snprintf(path, sizeof(path), "%s/sub/small", w->src);
		assert_int_equal(unlink(path), 0);
		put_file(w->src, "sub/small", 100, 2);
	}
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_a_second_run_moves_nothing),
		T(test_a_file_of_somebody_else_is_fetched_anew),
		T(test_what_was_made_of_a_source_has_no_name),
		T(test_status_path_lease_and_evict),
		T(test_damage_is_found_named_and_healed),
		T(test_a_killed_process_is_gone_on_from),
		T(test_cancelled_and_resumed),
		T(test_one_copies_and_all_wait),
		T(test_failures_have_their_codes),
		T(test_a_source_that_lies_is_refused),
		T(test_datasets),
		T(test_a_dataset_without_its_folder),
		T(test_datasets_of_the_same_content),
		T(test_of_several_who_give_a_name_one_does),
		T(test_several_directories),
		T(test_out_and_in_again),
		T(test_out_replaces_nothing_unasked),
		T(test_out_of_two_hosts_has_two_places),
		T(test_out_takes_nothing_else_with_it),
		T(test_what_is_kept_from_eviction),
		T(test_a_directory_that_is_as_before),
		T(test_killed_before_the_old_one_is_stale),
		T(test_the_old_one_could_not_be_marked),
		T(test_a_stale_copy_that_is_mended_is_ready),
		T(test_order_and_window),
		T(test_a_source_that_is_no_file_any_more),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
