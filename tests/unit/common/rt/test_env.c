/* SPDX-License-Identifier: Apache-2.0 */
/* The real env: files, names, whole files, workers, more operations than the ring holds. */
#include "common/rt/env_real.h"
#include "tests/unit/common/rt/rt_test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/rt/env_backend.h"

static char dir[64];

static const char *in_dir(const char *name)
{
	static char path[4][128];
	static unsigned turn;
	char *p = path[turn++ % 4];

	snprintf(p, sizeof(path[0]), "%s/%s", dir, name);
	return p;
}

static void files_main(void *arg)
{
	struct env *env = loop_env(loop_self());
	char a[100], b[200], back[300];
	struct iovec out[3] = { { a, 100 }, { NULL, 0 }, { b, 200 } };
	struct iovec in[2] = { { back, 50 }, { back + 50, 250 } };
	struct env_file *f = NULL;
	struct stat st;

	(void)arg;
	memset(a, 'a', sizeof(a));
	memset(b, 'b', sizeof(b));
	assert_int_equal(env_file_open(env, in_dir("none"), O_RDONLY, 0, &f), -LE_NOENT);
	assert_int_equal(env_file_open(env, in_dir("f"), O_RDWR | O_CREAT, 0644, &f), 0);
	assert_false(env_file_is_direct(f));
	assert_int_equal(env_file_pwritev(f, out, 3, 1000), 0);
	assert_int_equal(env_file_datasync(f), 0);
	assert_int_equal(env_file_preadv(f, in, 2, 1000), 0);
	assert_memory_equal(back, a, 100);
	assert_memory_equal(back + 100, b, 200);
	assert_int_equal(env_file_pread(f, back, 300, 1100), -LE_NODATA);
	assert_int_equal(env_file_pread_some(f, back, 300, 1100), 200);
	assert_int_equal(env_file_pread_some(f, back, 300, 1300), 0);
	assert_int_equal(env_file_stat(f, &st), 0);
	assert_int_equal(st.st_size, 1300);
	assert_int_equal(env_file_truncate(f, 10), 0);
	assert_int_equal(env_stat(env, in_dir("f"), &st), 0);
	assert_int_equal(st.st_size, 10);
	assert_int_equal(env_file_fallocate(f, 0, 0, 8192), 0);
	assert_int_equal(env_file_stat(f, &st), 0);
	assert_int_equal(st.st_size, 8192);
	env_file_close(f);
	env_file_close(NULL);
	assert_int_equal(env_unlink(env, in_dir("f")), 0);
	assert_int_equal(env_unlink(env, in_dir("f")), -LE_NOENT);
}

static void test_files(void **state)
{
	(void)state;
	rt_run(files_main, NULL);
}

/* More vectors than one call takes. */
static void long_vector_main(void *arg)
{
	struct env *env = loop_env(loop_self());
	struct env_file *f = NULL;
	struct iovec iov[200];
	uint32_t out[200], in[200];

	(void)arg;
	assert_int_equal(env_file_open(env, in_dir("v"), O_RDWR | O_CREAT, 0644, &f), 0);
	for (uint32_t i = 0; i < 200; i++) {
		out[i] = i * 7;
		iov[i] = (struct iovec){ &out[i], i % 5 == 0 ? 0 : 4 };
	}
	assert_int_equal(env_file_pwritev(f, iov, 200, 0), 0);
	for (uint32_t i = 0; i < 200; i++)
		iov[i].iov_base = &in[i];
	assert_int_equal(env_file_preadv(f, iov, 200, 0), 0);
	for (uint32_t i = 0; i < 200; i++)
		if (i % 5 != 0)
			assert_int_equal(in[i], out[i]);
	env_file_close(f);
	assert_int_equal(env_unlink(env, in_dir("v")), 0);
}

static void test_long_vectors(void **state)
{
	(void)state;
	rt_run(long_vector_main, NULL);
}

static void direct_main(void *arg)
{
	struct env *env = loop_env(loop_self());
	struct env_file *f = NULL;
	uint8_t *buf = NULL;
	int flags = O_RDWR | O_CREAT | O_EXCL | O_DIRECT;

	(void)arg;
	assert_int_equal(posix_memalign((void **)&buf, 4096, 8192), 0);
	assert_int_equal(env_file_open(env, in_dir("d"), flags, 0644, &f), 0);
	memset(buf, 7, 4096);
	assert_int_equal(env_file_pwrite(f, buf, 4096, 4096), 0);
	assert_int_equal(env_file_pread(f, buf, 8192, 0), 0);
	assert_int_equal(buf[0], 0);
	assert_int_equal(buf[4096], 7);
	assert_int_equal(env_file_open(env, in_dir("d"), flags, 0644, &f), -LE_EXIST);
	env_file_close(f);
	free(buf);
	assert_int_equal(env_unlink(env, in_dir("d")), 0);
}

static void test_direct(void **state)
{
	(void)state;
	rt_run(direct_main, NULL);
}

static int count_entry(void *arg, const struct env_dirent *e)
{
	int *n = arg;

	assert_true(e->is_dir == (strcmp(e->name, "b") == 0));
	return ++*n == 3 ? 77 : 0;
}

static void names_main(void *arg)
{
	struct env *env = loop_env(loop_self());
	char parent[4096] = "none";
	int n = 0;

	(void)arg;
	assert_int_equal(env_find_parent(env, in_dir("x/y//"), parent, sizeof(parent)), -LE_NOENT);
	assert_string_equal(parent, in_dir("x"));
	assert_int_equal(env_find_parent(env, in_dir("x"), parent, sizeof(parent)), 0);
	assert_int_equal(env_find_parent(env, "x", parent, sizeof(parent)), 0);
	assert_int_equal(env_find_parent(env, "/", parent, sizeof(parent)), 0);
	assert_int_equal(env_find_parent(env, "/dev/null/x", parent, sizeof(parent)), -LE_NOTDIR);
	assert_string_equal(parent, "/dev/null");
	assert_int_equal(env_mkdirs(env, in_dir("x/y/z"), 0755), 0);
	assert_int_equal(env_mkdirs(env, in_dir("x/y/z"), 0755), 0);
	assert_int_equal(symlink("y", in_dir("x/link")), 0);
	assert_int_equal(env_mkdirs(env, in_dir("x/link"), 0755), 0);
	assert_int_equal(env_unlink(env, in_dir("x/link")), 0);
	assert_int_equal(env_mkdir(env, in_dir("x"), 0755), -LE_EXIST);
	assert_int_equal(env_rmdir(env, in_dir("x/y")), -LE_NOTEMPTY);
	assert_int_equal(env_write_file(env, in_dir("x/y/z/a"), "A", 1, 0600), 0);
	assert_int_equal(env_rename(env, in_dir("x/y/z"), in_dir("x/b")), 0);
	assert_int_equal(env_rmdir(env, in_dir("x/y")), 0);
	assert_int_equal(env_write_file(env, in_dir("x/c"), "C", 1, 0600), 0);
	assert_int_equal(env_mkdirs(env, in_dir("x/c"), 0755), -LE_NOTDIR);
	assert_int_equal(env_mkdirs(env, in_dir("x/c/"), 0755), -LE_NOTDIR);
	assert_int_equal(env_mkdirs(env, in_dir("x/c/d/e"), 0755), -LE_NOTDIR);
	assert_int_equal(env_list(env, in_dir("x"), count_entry, &n), 0);
	assert_int_equal(n, 2);
	n = 2;
	assert_int_equal(env_list(env, in_dir("x"), count_entry, &n), 77);
	assert_int_equal(env_list(env, in_dir("none"), count_entry, &n), -LE_NOENT);
	assert_int_equal(env_syncdir(env, in_dir("x")), 0);
	assert_int_equal(env_syncdir(env, in_dir("none")), -LE_NOENT);
	assert_int_equal(env_unlink(env, in_dir("x/c")), 0);
	assert_int_equal(env_unlink(env, in_dir("x/b/a")), 0);
	assert_int_equal(env_rmdir(env, in_dir("x/b")), 0);
	assert_int_equal(env_rmdir(env, in_dir("x")), 0);
}

static void test_names(void **state)
{
	(void)state;
	rt_run(names_main, NULL);
}

static void whole_main(void *arg)
{
	struct env *env = loop_env(loop_self());
	char *data = NULL;
	size_t len = 0;

	(void)arg;
	assert_int_equal(env_write_file(env, in_dir("w"), "hello", 5, 0600), 0);
	assert_int_equal(env_write_file(env, in_dir("w"), "hello!", 6, 0600), 0);
	assert_int_equal(env_read_file(env, in_dir("w"), 5, &data, &len), -LE_FBIG);
	assert_null(data);
	assert_int_equal(env_read_file(env, in_dir("w"), 6, &data, &len), 0);
	assert_int_equal(len, 6);
	assert_string_equal(data, "hello!");
	free(data);
	assert_int_equal(env_unlink(env, in_dir("w")), 0);
	assert_int_equal(env_write_file(env, in_dir("no/w"), "x", 1, 0600), -LE_NOENT);
}

static void test_whole_files(void **state)
{
	(void)state;
	rt_run(whole_main, NULL);
}

struct job_arg {
	struct env *env;
	struct loop *seen;
	int rc;
};

static void off_loop(void *arg)
{
	struct job_arg *a = arg;

	a->seen = loop_self();
	usleep(500);
}

static void job(void *arg)
{
	struct job_arg *a = arg;

	a->seen = loop_self();
	a->rc = env_offload(a->env, off_loop, a);
}

static void offload_main(void *arg)
{
	struct job_arg jobs[20];

	(void)arg;
	for (int i = 0; i < 20; i++)
		jobs[i] = (struct job_arg){ loop_env(loop_self()), NULL, -1 };
	fiber_parallel("job", job, jobs, sizeof(jobs[0]), 20, 10);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(jobs[i].rc, 0);
		assert_null(jobs[i].seen);
	}
}

static void test_offload(void **state)
{
	(void)state;
	rt_run(offload_main, NULL);
}

struct io_arg {
	struct env_file *f;
	uint64_t number;
	int rc;
};

static void io(void *arg)
{
	struct io_arg *a = arg;
	uint64_t back = 0;

	a->rc = env_file_pwrite(a->f, &a->number, 8, a->number * 8);
	if (a->rc == 0)
		a->rc = env_file_pread(a->f, &back, 8, a->number * 8);
	if (a->rc == 0 && back != a->number)
		a->rc = -LE_CORRUPT;
}

/* More concurrent operations than the ring has entries. */
static void many_main(void *arg)
{
	struct env *env = loop_env(loop_self());
	struct io_arg *args = calloc(2000, sizeof(*args));
	struct env_file *f = NULL;

	(void)arg;
	assert_int_equal(env_file_open(env, in_dir("m"), O_RDWR | O_CREAT, 0644, &f), 0);
	for (uint64_t i = 0; i < 2000; i++)
		args[i] = (struct io_arg){ f, i, -1 };
	fiber_parallel("io", io, args, sizeof(*args), 2000, 1000);
	for (int i = 0; i < 2000; i++)
		assert_int_equal(args[i].rc, 0);
	env_file_close(f);
	free(args);
	assert_int_equal(env_unlink(env, in_dir("m")), 0);
}

static void test_more_than_the_ring_holds(void **state)
{
	struct loop_options opts = { .name = "test", .ring_entries = 16 };

	(void)state;
	rt_run_opts(many_main, NULL, &opts);
}

static void test_clock_and_randomness(void **state)
{
	struct env *env = rt_env();
	uint64_t a = env_now_us(env);

	(void)state;
	assert_true(env_now_us(env) >= a);
	assert_true(env_wall_ns(env) > 1600000000ll * 1000000000);
	assert_true(env_random_u64(env) != env_random_u64(env));
	env_real_destroy(env);
}

/* An env in which every first call returns -LE_INTR. */
static struct {
	int n_calls;
	struct env_file file;
} flaky;

static bool give_up(void)
{
	return flaky.n_calls++ % 2 == 0;
}

static int flaky_open(struct env *env, const char *path, int flags, mode_t mode,
		      struct env_file **ret_file)
{
	(void)path, (void)flags, (void)mode;
	flaky.file.env = env;
	*ret_file = &flaky.file;
	return give_up() ? -LE_INTR : 0;
}

static int64_t flaky_move(struct env_file *f, const struct iovec *iov, int n_iov, uint64_t off)
{
	(void)f, (void)n_iov, (void)off;
	return give_up() ? -LE_INTR : (int64_t)iov->iov_len;
}

static int flaky_sync(struct env_file *f)
{
	(void)f;
	return give_up() ? -LE_INTR : 0;
}

static int flaky_fallocate(struct env_file *f, int mode, uint64_t off, uint64_t len)
{
	(void)f, (void)mode, (void)off, (void)len;
	return give_up() ? -LE_INTR : 0;
}

static void test_file_calls_are_not_interrupted(void **state)
{
	static const struct env_ops ops = { .file_open = flaky_open, .file_preadv = flaky_move,
					    .file_pwritev = flaky_move,
					    .file_datasync = flaky_sync,
					    .file_fallocate = flaky_fallocate };
	struct env env = { .ops = &ops };
	struct env_file *f = NULL;
	char buf[8];

	(void)state;
	assert_int_equal(env_file_open(&env, "f", O_RDWR, 0, &f), 0);
	assert_int_equal(env_file_pwrite(f, "12345678", 8, 0), 0);
	assert_int_equal(env_file_pread(f, buf, 8, 0), 0);
	assert_int_equal(env_file_pread_some(f, buf, 8, 0), 8);
	assert_int_equal(env_file_datasync(f), 0);
	assert_int_equal(env_file_fallocate(f, 0, 0, 8), 0);
	assert_int_equal(flaky.n_calls, 12);
}

static int make_dir(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/leat-test-env-XXXXXX");
	return mkdtemp(dir) == NULL;
}

static int remove_dir(void **state)
{
	(void)state;
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_long_vectors),
		cmocka_unit_test(test_direct),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_whole_files),
		cmocka_unit_test(test_offload),
		cmocka_unit_test(test_more_than_the_ring_holds),
		cmocka_unit_test(test_clock_and_randomness),
		cmocka_unit_test(test_file_calls_are_not_interrupted),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
