/* SPDX-License-Identifier: Apache-2.0 */
/* Freeing space, through the public calls: several directories, copies whose source has changed,
 * parts of copies in other directories. */
#include "client/include/leat/leat_stage.h"

#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/status.h"
#include "tests/lib/folder.h"

#define SIZE (3u << 20)

struct world {
	char root[FOLDER_MAX], src[96], a[96], b[96];
};

static void put_file(const char *dir, const char *name, size_t len, unsigned seed)
{
	char path[256];
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	for (size_t i = 0; i < len; i++) {
		seed = seed * 1664525 + 1013904223;
		fputc((int)(seed >> 24), f);
	}
	assert_int_equal(fclose(f), 0);
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	make_folder(NULL, "gc", w->root);
	snprintf(w->src, sizeof(w->src), "%s/src", w->root);
	snprintf(w->a, sizeof(w->a), "%s/a", w->root);
	snprintf(w->b, sizeof(w->b), "%s/b", w->root);
	assert_int_equal(mkdir(w->src, 0755), 0);
	for (unsigned i = 0; i < 8; i++) {
		char name[8];
		snprintf(name, sizeof(name), "f%u", i);
		put_file(w->src, name, SIZE / 8, i);
	}
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

static const struct leat_stage_result *stage(const char *src, const char *to, const char *more,
					     int want)
{
	static struct leat_stage_result r;
	const char *const dirs[] = {more, NULL};
	struct leat_stage_options o = {
		.size = sizeof(o), .source = src, .to = to, .more_dirs = more ? dirs : NULL};
	memset(&r, 0, sizeof(r));
	r.size = sizeof(r);
	assert_int_equal(leat_stage_in(&o, &r), want);
	return &r;
}

struct seen {
	int n, states[8];
};

static int see(void *arg, const struct leat_stage_copy *c)
{
	struct seen *s = arg;
	if (s->n < 8)
		s->states[s->n] = c->state;
	s->n++;
	return 0;
}

static struct seen look(const char *dir)
{
	struct seen s = {0};
	assert_int_equal(leat_stage_list(dir, see, &s), 0);
	return s;
}

static uint64_t gc(const char *to, const char *more, uint64_t capacity)
{
	const char *const dirs[] = {more, NULL};
	struct leat_stage_gc_options g = {
		.size = sizeof(g), .to = to, .capacity = capacity, .more_dirs = more ? dirs : NULL};
	uint64_t bytes = 0;
	assert_int_equal(leat_stage_gc(&g, &bytes), 0);
	return bytes;
}

static void test_what_was_replaced_goes_first(void **state)
{
	struct world *w = *state;
	stage(w->src, w->a, NULL, 0);
	put_file(w->src, "f3", 1000, 77);
	stage(w->src, w->a, NULL, 0);
	assert_int_equal(look(w->a).n, 2);
	assert_int_equal(gc(w->a, NULL, SIZE), SIZE);
	struct seen s = look(w->a);
	assert_int_equal(s.n, 1);
	assert_int_equal(s.states[0], LEAT_COPY_READY);
}

static void test_the_last_copy_of_what_was_stays(void **state)
{
	struct world *w = *state;
	stage(w->src, w->a, NULL, 0);
	put_file(w->src, "f3", 1000, 77);
	stage(w->src, w->a, NULL, 0);
	/* The directory's new content has no copy yet: both copies stay. */
	put_file(w->src, "f4", 1000, 78);
	assert_int_equal(gc(w->a, NULL, 1), 0);
	assert_int_equal(look(w->a).n, 2);
}

static void test_all_directories_count(void **state)
{
	struct world *w = *state;
	char other[128];
	snprintf(other, sizeof(other), "%s/other", w->root);
	assert_int_equal(mkdir(other, 0755), 0);
	put_file(other, "x", 1u << 20, 5);
	stage(w->src, w->a, NULL, 0);
	stage(other, w->b, NULL, 0);
	assert_int_equal(gc(w->a, w->b, SIZE + (1u << 20)), 0);
	/* The copy that was used longest ago is removed, in whichever directory. */
	assert_true(gc(w->a, w->b, SIZE) > 0);
	assert_int_equal(look(w->a).n + look(w->b).n, 1);
	gc(w->a, w->b, 1);
	assert_int_equal(look(w->a).n + look(w->b).n, 0);
}

static void test_a_part_is_no_copy(void **state)
{
	struct world *w = *state;
	const struct leat_stage_result *r = stage(w->src, w->a, w->b, 0);
	char id[LEAT_ID_SIZE], path[400];
	memcpy(id, r->id, sizeof(id));
	snprintf(path, sizeof(path), "%s/.leat/%s/data/f0", w->b, id);
	assert_int_equal(look(w->a).n, 1);
	assert_int_equal(look(w->b).n, 0);
	assert_int_equal(leat_stage_evict(w->b, id), -LE_NOENT);
	assert_int_equal(stage(w->src, w->b, NULL, -LE_EXIST)->code, LEAT_STAGE_USAGE);
	assert_int_equal(gc(w->b, NULL, 1), 0);
	assert_int_equal(look(w->a).states[0], LEAT_COPY_READY);
	/* The copy's home directory is lost: the part is removed, or becomes a copy again. */
	snprintf(path, sizeof(path), "%s/.leat/%s", w->a, id);
	remove_folder(path);
	assert_int_equal(look(w->b).states[0], LEAT_COPY_EVICTING);
	r = stage(w->src, w->b, NULL, 0);
	assert_true(r->bytes_moved < r->bytes);
	assert_int_equal(look(w->b).states[0], LEAT_COPY_READY);
}

static void test_what_is_left_of_a_part_goes(void **state)
{
	struct world *w = *state;
	char path[400];
	snprintf(path, sizeof(path), "%s/.leat/%s", w->a, stage(w->src, w->a, w->b, 0)->id);
	remove_folder(path);
	gc(w->b, NULL, 0);
	assert_int_equal(look(w->b).n, 0);
}

static void die_soon(void *arg, const struct leat_stage_progress *p)
{
	(void)arg;
	if (strcmp(p->phase, "copy") == 0)
		raise(SIGKILL);
}

/* A killed job has written more than it has verified. */
static void test_what_a_killed_job_has_taken_counts(void **state)
{
	struct world *w = *state;
	char other[128];
	int status;
	snprintf(other, sizeof(other), "%s/other", w->root);
	assert_int_equal(mkdir(other, 0755), 0);
	put_file(other, "x", SIZE, 5);
	pid_t pid = fork();
	if (pid == 0) {
		struct leat_stage_options o = {
			.size = sizeof(o), .source = other, .to = w->a, .progress = die_soon};
		struct leat_stage_result r = {.size = sizeof(r)};
		_exit(leat_stage_in(&o, &r) == 0 ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	stage(w->src, w->a, NULL, 0);
	assert_int_equal(look(w->a).n, 2);
	/* More than is verified, less than was written: whole files stay. */
	assert_true(gc(w->a, NULL, SIZE + SIZE / 2) >= SIZE / 2);
	struct seen s = look(w->a);
	assert_int_equal(s.n, 1);
	assert_int_equal(s.states[0], LEAT_COPY_READY);
}

/* Like a process that is about to remove the copy. */
static void test_what_is_being_removed_is_not_pinned(void **state)
{
	struct world *w = *state;
	char path[400];
	const struct leat_stage_result *r = stage(w->src, w->a, NULL, 0);
	snprintf(path, sizeof(path), "%s/.leat/%s/lease", w->a, r->id);
	int fd = open(path, O_RDWR | O_CREAT, 0644);
	assert_true(fd >= 0);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	assert_int_equal(leat_stage_pin(w->a, r->id, 1), -LE_BUSY);
	close(fd);
	assert_int_equal(leat_stage_pin(w->a, r->id, 1), 0);
	assert_int_equal(leat_stage_evict(w->a, r->id), -LE_BUSY);
	assert_int_equal(leat_stage_pin(w->a, r->id, 0), 0);
	assert_int_equal(leat_stage_evict(w->a, r->id), 0);
}

static void test_a_copy_of_its_own_keeps_its_files(void **state)
{
	struct world *w = *state;
	stage(w->src, w->b, NULL, 0);
	stage(w->src, w->a, w->b, 0);
	assert_int_equal(look(w->b).states[0], LEAT_COPY_READY);
	assert_int_equal(leat_stage_evict(w->b, w->src), 0);
	assert_int_equal(look(w->a).states[0], LEAT_COPY_READY);
}

/* An administrator has mounted something below a copy: the mount is not changed, and other copies
 * are still removed. */
static void test_no_mount_is_crossed(void **state)
{
	struct world *w = *state;
	char other[128], sub[128], at[400], file[160];
	struct stat st;
	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		skip();
	snprintf(other, sizeof(other), "%s/other", w->root);
	snprintf(sub, sizeof(sub), "%s/d", w->src);
	assert_int_equal(mkdir(other, 0711) | mkdir(sub, 0755), 0);
	put_file(sub, "x", 4096, 9);
	put_file(other, "x", 4096, 10);
	snprintf(file, sizeof(file), "%s/x", other);
	assert_int_equal(chmod(file, 0604), 0);
	const struct leat_stage_result *r = stage(w->src, w->a, NULL, 0);
	snprintf(at, sizeof(at), "%s/.leat/%s/data/d", w->a, r->id);
	assert_int_equal(mount(other, at, NULL, MS_BIND, NULL), 0);
	/* Rights are not changed in the mount, ... */
	assert_int_equal(chmod(sub, 0700), 0);
	r = stage(w->src, w->a, NULL, -LE_FOREIGN);
	assert_int_equal(r->code, LEAT_STAGE_PERMISSION);
	assert_non_null(strstr(r->message, "mounted"));
	assert_string_equal(r->fail_path, at);
	/* ... and nothing is removed. */
	assert_int_equal(leat_stage_evict(w->a, w->src), -LE_FOREIGN);
	assert_int_equal(stat(file, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0604);
	assert_int_equal(stat(other, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0711);
	stage(other, w->a, NULL, 0);
	assert_int_equal(look(w->a).n, 2);
	assert_int_equal(gc(w->a, NULL, 1), 4096);
	assert_int_equal(look(w->a).n, 1);
	assert_int_equal(umount(at), 0);
	gc(w->a, NULL, 0);
	assert_int_equal(look(w->a).n, 0);
	assert_int_equal(stat(file, &st), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_what_was_replaced_goes_first, setup, teardown),
		cmocka_unit_test_setup_teardown(test_the_last_copy_of_what_was_stays, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_all_directories_count, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_part_is_no_copy, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_is_left_of_a_part_goes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_copy_of_its_own_keeps_its_files, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_what_a_killed_job_has_taken_counts, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_no_mount_is_crossed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_is_being_removed_is_not_pinned, setup,
						teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
