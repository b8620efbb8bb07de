/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that outlives a daemon, and how the next daemon gets it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuse/restart/restart_state.h"
#include "fuse/restart/supervisor.h"

const char leat_build[] = "test"; /* else defined in the programs */

static void test_the_next_one_sees_it(void **state)
{
	struct restart *a, *b;
	int fd = -1;

	(void)state;
	a = restart_state_create(&fd);
	assert_non_null(a);
	assert_true(fd >= 0);
	assert_int_equal(a->files_top, 0);
	assert_int_equal(a->end, RESTART_KILLED); /* if the daemon records no other end */
	a->files[RESTART_FILES_MAX - 1].ino = 77;
	a->next_dir = 5;
	b = restart_state_open(fd);
	assert_non_null(b);
	assert_int_equal(b->files[RESTART_FILES_MAX - 1].ino, 77);
	assert_int_equal(b->next_dir, 5);
	munmap(a, sizeof(*a));
	munmap(b, sizeof(*b));
	close(fd);
}

/* Each field that may differ in another release, and values out of bounds. */
static void test_what_cannot_be_read_is_refused(void **state)
{
	struct restart *k;
	int fd = -1;

	(void)state;
	k = restart_state_create(&fd);
	k->version++;
	assert_null(restart_state_open(fd));
	k->version--;
	k->magic++;
	assert_null(restart_state_open(fd));
	k->magic--;
	k->size++;
	assert_null(restart_state_open(fd));
	k->size--;
	k->files_top = RESTART_FILES_MAX + 1;
	assert_null(restart_state_open(fd));
	k->files_top = RESTART_FILES_MAX;
	k->init_len = RESTART_INIT_MAX + 1;
	assert_null(restart_state_open(fd));
	k->init_len = 0;
	k->answer_len = RESTART_INIT_MAX + 1;
	assert_null(restart_state_open(fd));
	k->answer_len = RESTART_INIT_MAX;
	assert_non_null(restart_state_open(fd));
	assert_int_equal(ftruncate(fd, (off_t)sizeof(*k) - 4096), 0);
	assert_null(restart_state_open(fd));
	close(fd);
	assert_null(restart_state_open(fd));
}

static void test_without_a_supervisor(void **state)
{
	struct restart *k = restart_state_create(NULL);

	(void)state;
	assert_non_null(k);
	assert_int_equal(k->supervisor, 0);
	munmap(k, sizeof(*k));
}

static void test_ready(void **state)
{
	struct rpc_key key;
	struct restart *k = restart_state_create(NULL);

	(void)state;
	memset(&key, 7, sizeof(key));
	assert_int_equal(k->has_key, 0);
	restart_state_ready(k, &key);
	assert_int_equal(k->has_key, 1);
	assert_memory_equal(&k->key, &key, sizeof(key));
	assert_int_equal(k->n_ready, 1);
	assert_true(k->ready_ms > 0 && k->ready_ms <= monotonic_ms());
	munmap(k, sizeof(*k));
}

/* The supervisor passes its data to a daemon in an environment variable. */
static void test_a_daemon_knows_its_supervisor(void **state)
{
	struct supervised s;
	char text[200];
	int fd = -1, device = dup(0);
	struct restart *k = restart_state_create(&fd);

	(void)state;
	unsetenv("LEAT_MOUNT_DAEMON");
	assert_false(supervised_daemon(&s));
	setenv("LEAT_MOUNT_DAEMON", "1 2", 1);
	assert_false(supervised_daemon(&s));
	snprintf(text, sizeof(text), "%d %d -1 /mnt/with a blank", device, fd);
	setenv("LEAT_MOUNT_DAEMON", text, 1);
	assert_true(supervised_daemon(&s));
	assert_int_equal(s.device_fd, device);
	assert_int_equal(s.ready_fd, -1);
	assert_string_equal(s.mountpoint, "/mnt/with a blank");
	assert_non_null(s.restart);
	assert_int_equal(fcntl(device, F_GETFD), FD_CLOEXEC); /* not inherited by helper
							       * processes */
	assert_null(getenv("LEAT_MOUNT_DAEMON"));
	/* A memory file of another release: the daemon reports it, and exits. */
	k->version++;
	setenv("LEAT_MOUNT_DAEMON", text, 1);
	assert_true(supervised_daemon(&s));
	assert_null(s.restart);
	munmap(k, sizeof(*k));
	close(fd);
	close(device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_next_one_sees_it),
		cmocka_unit_test(test_what_cannot_be_read_is_refused),
		cmocka_unit_test(test_without_a_supervisor),
		cmocka_unit_test(test_ready),
		cmocka_unit_test(test_a_daemon_knows_its_supervisor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
