/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator: repeatable, and exact about what a crash leaves on disk. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/assert.h"
#include "common/rt/env.h"
#include "common/rt/loop.h"
#include "common/rt/sim/sim.h"

#define FOREVER (UINT64_MAX - 1)

static bool is_set(void *arg)
{
	return *(bool *)arg;
}

static struct sim *new_sim(uint64_t seed)
{
	struct sim *s;
	assert_int_equal(sim_create(seed, NULL, &s), 0);
	return s;
}

/* ---- repeatable ---- */

static uint32_t order[64], n_order;

static void busy_fiber(void *arg)
{
	for (int i = 0; i < 4; i++) {
		if (n_order < ARRAY_SIZE(order))
			order[n_order++] = *(uint32_t *)arg;
		if (i % 2 == 0)
			fiber_sleep_us(env_random_u64(loop_env(loop_self())) % 50);
		else
			fiber_yield();
	}
}

static void busy_main(struct loop *l, void *arg)
{
	static uint32_t ids[8] = {0, 1, 2, 3, 4, 5, 6, 7};
	struct env_file *f;
	(void)arg;
	for (int i = 0; i < 8; i++)
		ASSERT(fiber_spawn("busy", busy_fiber, &ids[i]) == 0);
	ASSERT(env_file_open(loop_env(l), "/f", O_RDWR | O_CREAT, 0600, &f) == 0);
	ASSERT(env_file_pwrite(f, "hello", 5, 0) == 0);
	ASSERT(env_file_datasync(f) == 0);
	env_file_close(f);
}

static uint64_t busy_run(uint64_t seed, uint32_t ret_order[64])
{
	struct sim *s = new_sim(seed);
	n_order = 0;
	for (int i = 0; i < 2; i++)
		assert_int_equal(sim_proc_start(sim_proc_create(s, "p"), busy_main, NULL), 0);
	while (sim_step(s))
		;
	uint64_t hash = sim_trace_hash(s);
	assert_true(sim_events(s) > 10);
	sim_destroy(s);
	memcpy(ret_order, order, sizeof(order));
	return hash;
}

static void same_seed_same_trace(void **state)
{
	uint32_t a[64], b[64], c[64];
	(void)state;
	uint64_t h1 = busy_run(1, a), h2 = busy_run(1, b), h3 = busy_run(2, c);
	assert_true(h1 == h2 && h1 != h3);
	assert_memory_equal(a, b, sizeof(a));
	assert_memory_not_equal(a, c, sizeof(a));
}

/* ---- time ---- */

static bool done;
static struct timer a_timer;
static uint64_t timer_at;

static void on_timer(struct timer *t)
{
	(void)t;
	timer_at = loop_now_us();
}

static void time_main(struct loop *l, void *arg)
{
	struct env *env = loop_env(l);
	uint64_t before = env_now_us(env);
	int64_t wall = env_wall_ns(env);
	(void)arg;
	timer_init(&a_timer, on_timer);
	timer_set(&a_timer, before + 500);
	fiber_sleep_us(3600ULL * 1000000);
	ASSERT(env_now_us(env) == before + 3600ULL * 1000000);
	ASSERT(env_wall_ns(env) - wall == 3600LL * 1000000000);
	ASSERT(timer_at == before + 500);
	done = true;
}

static void an_hour_takes_no_time(void **state)
{
	(void)state;
	struct sim *s = new_sim(3);
	done = false;
	struct sim_proc *p = sim_proc_create(s, "p");
	assert_int_equal(sim_proc_start(p, time_main, NULL), 0);
	assert_int_equal(sim_run(s, is_set, &done, sim_now_us(s) + 1000000), -LE_TIMEDOUT);
	assert_int_equal(sim_run(s, is_set, &done, FOREVER), 0);
	done = false;
	assert_int_equal(sim_run(s, is_set, &done, FOREVER), -LE_NODATA);
	assert_ptr_equal(sim_of_env(sim_proc_env(p)), s);
	assert_ptr_equal(sim_proc_of_env(sim_proc_env(p)), p);
	sim_destroy(s);
}

/* ---- workers and busy waiting ---- */

static int worked;

static void work(void *arg)
{
	ASSERT(loop_self() == NULL);
	worked += *(int *)arg;
}

static void work_main(struct loop *l, void *arg)
{
	int three = 3;
	(void)arg;
	uint64_t before = loop_now_us();
	ASSERT(env_offload(loop_env(l), work, &three) == 0);
	ASSERT(worked == 3 && loop_now_us() > before);
	/* A fiber that waits by yielding must not stop time. */
	for (uint64_t until = env_now_us(loop_env(l)) + 3; env_now_us(loop_env(l)) < until;)
		fiber_yield();
	done = true;
}

static void workers(void **state)
{
	(void)state;
	struct sim *s = new_sim(4);
	done = false;
	worked = 0;
	assert_int_equal(sim_proc_start(sim_proc_create(s, "p"), work_main, NULL), 0);
	assert_int_equal(sim_run(s, is_set, &done, FOREVER), 0);
	sim_destroy(s);
}

/* ---- crashes ---- */

static int n_hooked, n_fired;

static void on_crash(void *arg, struct sim_proc *p)
{
	(void)arg;
	ASSERT(!sim_proc_alive(p));
	n_hooked++;
}

static void fired(void *arg)
{
	(void)arg;
	n_fired++;
}

static void forever_main(struct loop *l, void *arg)
{
	struct sim *s = sim_of_env(loop_env(l));
	(void)arg;
	ASSERT(sim_after(s, 1000, l, fired, NULL) == 0);
	ASSERT(sim_after(s, 1000, NULL, fired, NULL) == 0);
	done = true;
	for (;;)
		fiber_sleep_us(10);
}

static void suicide_main(struct loop *l, void *arg)
{
	(void)arg;
	sim_proc_crash(sim_proc_of_env(loop_env(l)));
	done = true;
	fiber_yield();
	ASSERT(!"a dead process goes on");
}

static void crash_ends_everything(void **state)
{
	(void)state;
	struct sim *s = new_sim(5);
	struct sim_proc *p = sim_proc_create(s, "p");
	n_hooked = n_fired = 0;
	sim_on_crash(s, on_crash, NULL);
	done = false;
	assert_false(sim_proc_alive(p));
	assert_int_equal(sim_proc_start(p, forever_main, NULL), 0);
	assert_int_equal(sim_run(s, is_set, &done, FOREVER), 0);
	assert_true(sim_proc_alive(p));
	uint32_t incarnation = sim_proc_incarnation(p);
	sim_proc_crash(p);
	assert_int_equal(n_hooked, 1);
	assert_int_equal(sim_proc_incarnation(p), incarnation + 1);
	while (sim_step(s))
		;
	assert_int_equal(n_fired, 1); /* the one that belongs to no loop */

	done = false;
	assert_int_equal(sim_proc_start(p, suicide_main, NULL), 0);
	while (sim_step(s))
		;
	assert_true(done);
	assert_int_equal(n_hooked, 2);
	sim_destroy(s);
}

/* ---- disk ---- */

static void make_file(struct env *env, const char *path, const void *data, size_t len, bool sync)
{
	struct env_file *f;
	ASSERT(env_file_open(env, path, O_RDWR | O_CREAT, 0600, &f) == 0);
	ASSERT(env_file_pwrite(f, data, len, 0) == 0);
	if (sync)
		ASSERT(env_file_datasync(f) == 0);
	env_file_close(f);
}

static bool there(struct env *env, const char *path)
{
	struct stat st;
	int rc = env_stat(env, path, &st);
	ASSERT(rc == 0 || rc == -LE_NOENT);
	return rc == 0;
}

static int count_name(void *arg, const struct env_dirent *e)
{
	(*(int *)arg)++;
	return strcmp(e->name, "stop") == 0 ? 7 : 0;
}

static void files_main(struct loop *l, void *arg)
{
	struct env *env = loop_env(l);
	struct env_file *f;
	struct stat st;
	char buf[16] = {0};
	int n = 0;
	(void)arg;
	ASSERT(env_mkdirs(env, "/a/b", 0755) == 0 && env_mkdir(env, "/a", 0755) == -LE_EXIST);
	make_file(env, "/a/b/f", "0123456789", 10, false);
	ASSERT(env_file_open(env, "/a/b/f", O_RDWR | O_CREAT | O_EXCL, 0600, &f) == -LE_EXIST);
	ASSERT(env_file_open(env, "/a/b/f", O_RDWR, 0, &f) == 0);
	ASSERT(env_file_pread(f, buf, 10, 0) == 0 && memcmp(buf, "0123456789", 10) == 0);
	ASSERT(env_file_pread(f, buf, 10, 5) == -LE_NODATA);
	ASSERT(env_file_truncate(f, 4) == 0 && env_file_truncate(f, 8) == 0);
	ASSERT(env_file_pread(f, buf, 8, 0) == 0 && memcmp(buf, "0123\0\0\0\0", 8) == 0);
	ASSERT(env_file_fallocate(f, 0, 0, 100000) == 0);
	ASSERT(env_file_stat(f, &st) == 0 && st.st_size == 100000 && S_ISREG(st.st_mode));
	env_file_close(f);
	ASSERT(env_rename(env, "/a/b/f", "/a/g") == 0 && !there(env, "/a/b/f"));
	ASSERT(env_list(env, "/a", count_name, &n) == 0 && n == 2);
	make_file(env, "/a/stop", "", 0, false);
	ASSERT(env_list(env, "/a", count_name, &n) == 7);
	ASSERT(env_rmdir(env, "/a") == -LE_NOTEMPTY && env_rmdir(env, "/a/b") == 0);
	ASSERT(env_unlink(env, "/a/g") == 0 && env_unlink(env, "/a/g") == -LE_NOENT);
	ASSERT(env_rename(env, "/a/none", "/x") == -LE_NOENT);
	char *text;
	size_t len;
	ASSERT(env_write_file(env, "/a/w", "text", 4, 0600) == 0);
	ASSERT(env_read_file(env, "/a/w", 100, &text, &len) == 0 && strcmp(text, "text") == 0);
	free(text);
	struct sim_proc *p = sim_proc_of_env(env);
	sim_proc_disk_full(p, true);
	ASSERT(env_file_open(env, "/a/w", O_RDWR, 0, &f) == 0);
	ASSERT(env_file_pwrite(f, "TEXT", 4, 0) == 0);
	ASSERT(env_file_pwrite(f, "TEXT", 4, 2) == -LE_NOSPC);
	env_file_close(f);
	ASSERT(env_file_open(env, "/a/n", O_RDWR | O_CREAT, 0600, &f) == -LE_NOSPC);
	sim_proc_disk_full(p, false);
	ASSERT(sim_proc_corrupt(p, "/a/w", 0, 4) == 0);
	ASSERT(env_read_file(env, "/a/w", 100, &text, &len) == 0 && strcmp(text, "TEXT") != 0);
	free(text);
	done = true;
}

static void files(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed < 10; seed++) {
		struct sim *s = new_sim(seed);
		done = false;
		assert_int_equal(sim_proc_start(sim_proc_create(s, "p"), files_main, NULL), 0);
		assert_int_equal(sim_run(s, is_set, &done, FOREVER), 0);
		sim_destroy(s);
	}
}

#define SECTORS 16
static uint8_t image[SECTORS * 512];

/* Leaves /d/f (synced with 'A', then written with 'B' without a sync), and names with and without
 * syncdir. */
static void before_crash(struct loop *l, void *arg)
{
	struct env *env = loop_env(l);
	struct env_file *f;
	(void)arg;
	ASSERT(env_mkdir(env, "/d", 0755) == 0 && env_syncdir(env, "/") == 0);
	memset(image, 'A', sizeof(image));
	make_file(env, "/d/f", image, sizeof(image), true);
	make_file(env, "/d/old", "old", 3, true);
	make_file(env, "/d/new", "new", 3, true);
	ASSERT(env_syncdir(env, "/d") == 0);
	ASSERT(env_rename(env, "/d/new", "/d/old") == 0);
	make_file(env, "/d/unsynced", "", 0, true);
	memset(image, 'B', sizeof(image));
	ASSERT(env_file_open(env, "/d/f", O_RDWR, 0, &f) == 0);
	ASSERT(env_file_pwrite(f, image, sizeof(image), 0) == 0);
	done = true;
	fiber_park();
}

static struct {
	bool kept, dropped, garbage, name_kept, name_dropped, renamed, not_renamed;
} seen;

static void after_crash(struct loop *l, void *arg)
{
	struct env *env = loop_env(l);
	char *text;
	size_t len;
	(void)arg;
	ASSERT(env_read_file(env, "/d/f", sizeof(image), &text, &len) == 0 && len == sizeof(image));
	for (int i = 0; i < SECTORS; i++) {
		const char *p = text + i * 512;
		bool a = p[0] == 'A', b = p[0] == 'B', whole = memcmp(p, p + 1, 511) == 0;
		seen.dropped |= a && whole;
		seen.kept |= b && whole;
		seen.garbage |= !whole;
	}
	free(text);
	bool new_there = there(env, "/d/new");
	ASSERT(env_read_file(env, "/d/old", 10, &text, &len) == 0);
	/* atomic: both names, or neither */
	ASSERT(new_there == (strcmp(text, "old") == 0));
	free(text);
	seen.renamed |= !new_there;
	seen.not_renamed |= new_there;
	bool name = there(env, "/d/unsynced");
	seen.name_kept |= name;
	seen.name_dropped |= !name;
	done = true;
}

static void crash_forgets_the_unsynced(void **state)
{
	(void)state;
	memset(&seen, 0, sizeof(seen));
	for (uint64_t seed = 1; seed <= 150; seed++) {
		struct sim *s = new_sim(seed);
		struct sim_proc *p = sim_proc_create(s, "p");
		done = false;
		assert_int_equal(sim_proc_start(p, before_crash, NULL), 0);
		assert_int_equal(sim_run(s, is_set, &done, FOREVER), 0);
		sim_proc_crash(p);
		done = false;
		assert_int_equal(sim_proc_start(p, after_crash, NULL), 0);
		assert_int_equal(sim_run(s, is_set, &done, FOREVER), 0);
		sim_destroy(s);
	}
	assert_true(seen.kept && seen.dropped && seen.garbage && seen.name_kept);
	assert_true(seen.name_dropped && seen.renamed && seen.not_renamed);
}

static void direct_main(struct loop *l, void *arg)
{
	struct env_file *f;
	_Alignas(4096) static uint8_t buf[8192];
	(void)arg;
	ASSERT(env_file_open(loop_env(l), "/f", O_RDWR | O_CREAT | O_DIRECT, 0600, &f) == 0);
	ASSERT(env_file_is_direct(f));
	ASSERT(env_file_pwrite(f, buf, 4096, 0) == 0);
	ASSERT(env_file_pwrite(f, buf + 1, 4096, 0) == -LE_INVAL);
	ASSERT(env_file_pwrite(f, buf, 4096, 100) == -LE_INVAL);
	env_file_close(f);
	done = true;
}

static void direct_io_is_picky(void **state)
{
	(void)state;
	struct sim *s = new_sim(1);
	done = false;
	assert_int_equal(sim_proc_start(sim_proc_create(s, "p"), direct_main, NULL), 0);
	assert_int_equal(sim_run(s, is_set, &done, FOREVER), 0);
	sim_destroy(s);
}

static void failing_main(struct loop *l, void *arg)
{
	int *n_failed = arg;
	for (int i = 0; i < 200; i++) {
		struct stat st;
		int rc = env_stat(loop_env(l), "/", &st);
		ASSERT(rc == 0 || rc == -LE_IO);
		*n_failed += rc < 0;
	}
	done = true;
}

static void disk_errors_come(void **state)
{
	(void)state;
	struct sim_options opts = {.disk_error_ppm = 100000};
	struct sim *s;
	int n_failed = 0;
	assert_int_equal(sim_create(1, &opts, &s), 0);
	done = false;
	assert_int_equal(sim_proc_start(sim_proc_create(s, "p"), failing_main, &n_failed), 0);
	assert_int_equal(sim_run(s, is_set, &done, FOREVER), 0);
	assert_in_range(n_failed, 5, 50);
	sim_destroy(s);
}

static void make_dirs(struct loop *l, void *arg)
{
	struct env *env = loop_env(l);
	(void)arg;
	ASSERT(env_mkdirs(env, "/a/b/c", 0755) == 0);
	ASSERT(env_mkdirs(env, "/a/b/d/", 0755) == 0);
	ASSERT(env_mkdirs(env, "/a/b/c", 0755) == 0);
	ASSERT(env_mkdirs(env, "/", 0755) == 0);
	ASSERT(env_write_file(env, "/a/file", "A", 1, 0600) == 0);
	ASSERT(env_mkdirs(env, "/a/file", 0755) == -LE_NOTDIR);
	ASSERT(env_mkdirs(env, "/a/file/b/c", 0755) == -LE_NOTDIR);
	done = true;
	fiber_park();
}

static void dirs_are_there(struct loop *l, void *arg)
{
	(void)arg;
	ASSERT(there(loop_env(l), "/a/b/c") && there(loop_env(l), "/a/b/d"));
	done = true;
}

/* A store with an unsynced directory would be lost with everything that was synced in it. */
static void made_directories_survive_a_crash(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct sim *s = new_sim(seed);
		struct sim_proc *p = sim_proc_create(s, "p");
		done = false;
		assert_int_equal(sim_proc_start(p, make_dirs, NULL), 0);
		assert_int_equal(sim_run(s, is_set, &done, FOREVER), 0);
		sim_proc_crash(p);
		done = false;
		assert_int_equal(sim_proc_start(p, dirs_are_there, NULL), 0);
		assert_int_equal(sim_run(s, is_set, &done, FOREVER), 0);
		sim_destroy(s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(same_seed_same_trace),
		cmocka_unit_test(an_hour_takes_no_time),
		cmocka_unit_test(workers),
		cmocka_unit_test(crash_ends_everything),
		cmocka_unit_test(files),
		cmocka_unit_test(crash_forgets_the_unsynced),
		cmocka_unit_test(direct_io_is_picky),
		cmocka_unit_test(disk_errors_come),
		cmocka_unit_test(made_directories_survive_a_crash),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
