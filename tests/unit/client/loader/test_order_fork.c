/* SPDX-License-Identifier: Apache-2.0 */
/* The order of a mixture in a process that is forked while another thread makes its tables.
 * timeout: 60
 * tsan: no (TSan refuses threads in a forked child) */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/include/leat/leat_loader.h"
#include "tests/lib/folder.h"

#define FILES     12u
#define POSITIONS 8u
#define FORKS     300u

struct forking {
	const struct leat_order *order;
	const int64_t *want;
	pthread_barrier_t begin;
	unsigned spins;
	bool ok;
};

static struct leat_dataset *open_files(const char *folder)
{
	struct leat_dataset_options o = {.size = sizeof(o)};
	struct leat_dataset *ds;
	char path[FOLDER_MAX + 16];
	for (unsigned i = 0; i < FILES; i++) {
		snprintf(path, sizeof(path), "%s/%02u.png", folder, i);
		int fd = open(path, O_CREAT | O_WRONLY, 0644);
		assert_true(fd >= 0 && write(fd, path, sizeof(path)) > 0);
		close(fd);
	}
	assert_int_equal(leat_dataset_open(folder, &o, &ds), 0);
	return ds;
}

static bool is_so(const struct leat_order *order, const int64_t want[POSITIONS])
{
	for (uint64_t i = 0; i < POSITIONS; i++)
		if (leat_order_at(order, i) != want[i])
			return false;
	return true;
}

static void spin(unsigned n)
{
	for (volatile unsigned i = 0; i < n; i++)
		;
}

static void *fork_and_ask(void *arg)
{
	struct forking *f = arg;
	int status = -1;
	pthread_barrier_wait(&f->begin);
	spin(f->spins);
	pid_t pid = fork();
	if (pid == 0) {
		alarm(20);
		_exit(is_so(f->order, f->want) ? 0 : 1);
	}
	f->ok = pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
	return NULL;
}

/* In a forked child: its first use of the order makes tables, while another thread forks. */
static bool make_and_fork(const struct leat_order *order, const int64_t want[POSITIONS], unsigned k)
{
	struct forking f = {.order = order, .want = want, .spins = k % 16 * 300};
	pthread_t t;
	if (pthread_barrier_init(&f.begin, NULL, 2) || pthread_create(&t, NULL, fork_and_ask, &f))
		return false;
	pthread_barrier_wait(&f.begin);
	spin(k / 16 % 64 * 1000);
	bool ok = is_so(order, want);
	pthread_join(t, NULL);
	return ok && f.ok;
}

/* The process that is forked then lacks the thread that makes them. */
static void test_a_fork_while_tables_are_made(void **state)
{
	char folder[FOLDER_MAX];
	struct leat_dataset *ds, *mix;
	struct leat_order *order;
	int64_t want[POSITIONS];
	(void)state;
	make_folder(NULL, "order", folder);
	ds = open_files(folder);
	struct leat_mix_part parts[2] = {{ds, 2}, {ds, 1}};
	assert_int_equal(leat_dataset_mix(parts, 2, NULL, &mix), 0);
	assert_int_equal(leat_order_open(mix, "global", 5, 1, 8, &order), 0);
	for (uint64_t i = 0; i < POSITIONS; i++)
		want[i] = leat_order_at(order, i);
	for (unsigned k = 0; k < FORKS; k++) {
		int status;
		pid_t pid = fork();
		if (pid == 0)
			_exit(make_and_fork(order, want, k) ? 0 : 1);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
	leat_order_close(order);
	leat_dataset_close(mix);
	leat_dataset_close(ds);
	remove_folder(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_fork_while_tables_are_made),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
