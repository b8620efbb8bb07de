/* SPDX-License-Identifier: Apache-2.0 */
/* Rights are given to the file that was found under a name, even if another process exchanges it
 * meanwhile. */
#include "client/dataset/vol.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/dataset/rights.h"
#include "client/dataset/vol_local.h"
#include "tests/lib/folder.h"
#include "tests/unit/common/rt/rt_test.h"

#define ROUNDS 3000

static char dir[FOLDER_MAX], file[FOLDER_MAX + 16], other[FOLDER_MAX + 16], victim[FOLDER_MAX + 16];

static void make(const char *path, mode_t mode)
{
	int fd = open(path, O_CREAT | O_WRONLY, 0600);

	assert_true(fd >= 0 && fchmod(fd, mode) == 0);
	close(fd);
}

static mode_t mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_mode & 07777;
}

/* The name is alternately that of the file and that of a link to the victim. */
static pid_t exchanger(void)
{
	pid_t pid = fork();

	while (pid == 0)
		if (getppid() == 1 ||
		    renameat2(AT_FDCWD, file, AT_FDCWD, other, RENAME_EXCHANGE) < 0)
			_exit(1);
	return pid;
}

static void swapped(void *unused)
{
	struct rights r = {.mode = 0444, .uid = geteuid(), .gid = getegid()};
	struct vol *v;
	pid_t pid;

	(void)unused;
	assert_int_equal(vol_local_create(loop_env(loop_self()), &v), 0);
	assert_int_equal(v->ops->set_rights(v, file, &r, 1000000000), 0);
	assert_int_equal(mode_of(file), 0444);
	pid = exchanger();
	for (int i = 0; i < ROUNDS; i++) {
		r.mode = i % 2 ? 0666 : 0444;
		assert_int_equal(v->ops->set_rights(v, file, &r, 1000000000), 0);
		if (mode_of(victim) != 0600)
			break;
	}
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	v->ops->destroy(v);
	assert_int_equal(mode_of(victim), 0600);
}

/* A new file is written, whatever exists under names that can be predicted; and a failure leaves
 * nothing. */
static void written(void *unused)
{
	char planted[FOLDER_MAX + 32], folder[FOLDER_MAX + 16];
	struct stat st;
	struct vol *v;
	char *text;
	size_t len;

	(void)unused;
	snprintf(planted, sizeof(planted), "%s.tmp", file);
	snprintf(folder, sizeof(folder), "%s/folder", dir);
	assert_int_equal(vol_local_create(loop_env(loop_self()), &v), 0);
	assert_int_equal(symlink(victim, planted), 0);
	assert_int_equal(vol_write_file(v, file, "new", 3), 0);
	assert_int_equal(stat(victim, &st), 0);
	assert_int_equal(st.st_size, 0);
	assert_int_equal(lstat(file, &st), 0);
	assert_true(S_ISREG(st.st_mode));
	assert_int_equal(vol_read_file(v, file, 10, &text, &len), 0);
	assert_string_equal(text, "new");
	free(text);
	assert_int_equal(unlink(planted), 0);
	assert_int_equal(vol_write_new(v, file, "other", 5), -LE_EXIST);
	assert_int_equal(unlink(file) | unlink(victim) | mkdir(folder, 0700), 0);
	assert_true(vol_write_file(v, folder, "x", 1) < 0);
	assert_int_equal(rmdir(folder), 0);
	v->ops->destroy(v);
	assert_int_equal(rmdir(dir), 0);
}

static void test_written(void **state)
{
	(void)state;
	make_folder(NULL, "vol_local", dir);
	snprintf(file, sizeof(file), "%s/file", dir);
	snprintf(victim, sizeof(victim), "%s/victim", dir);
	make(victim, 0600);
	rt_run(written, NULL);
}

static void test_swapped(void **state)
{
	(void)state;
	make_folder(NULL, "vol_local", dir);
	snprintf(file, sizeof(file), "%s/file", dir);
	snprintf(other, sizeof(other), "%s/other", dir);
	snprintf(victim, sizeof(victim), "%s/victim", dir);
	make(file, 0600);
	make(victim, 0600);
	assert_int_equal(symlink(victim, other), 0);
	rt_run(swapped, NULL);
	remove_folder(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_swapped),
		cmocka_unit_test(test_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
