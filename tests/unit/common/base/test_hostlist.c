/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of nodes as schedulers and launchers write them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/hostlist.h"

/* Returns the names, with blanks between them, or "!" and the error message. */
static const char *parsed(enum hostlist_format format, const char *text)
{
	static char out[4096];
	struct hostlist l;
	size_t at = 1;

	out[0] = '!';
	if (hostlist_parse(format, text, strlen(text), &l, out + 1, sizeof(out) - 1) < 0)
		return out;
	at = 0;
	for (uint32_t i = 0; i < l.n; i++)
		at += (size_t)snprintf(out + at, sizeof(out) - at, "%s%s", i ? " " : "",
				       l.names[i]);
	hostlist_fini(&l);
	return out;
}

static void expressions_of_slurm(void **state)
{
	static const char *const good[][2] = {
		{"x", "x"},
		{"node[001-004,7],x", "node001 node002 node003 node004 node7 x"},
		{"a,b,a", "a b"},
		{"n[9-11]", "n9 n10 n11"},
		{"n[08-10]-ib", "n08-ib n09-ib n10-ib"},
		{"r[1-2]n[3,5]", "r1n3 r1n5 r2n3 r2n5"},
		{"[1-2]", "1 2"},
		{"a.b-c_d[0-0]", "a.b-c_d0"},
		{"a\n", "a"},
	};
	static const char *const bad[] = {
		"",
		",",
		"a,",
		",a",
		"a,,b",
		"n[",
		"n[]",
		"n[1",
		"n[1-",
		"n[1-]",
		"n[2-1]",
		"n[a]",
		"n[1]]",
		"n]",
		"n[1,]",
		"n[-1]",
		"a b",
		"-x",
		"../x",
		"a/b",
		"n[0-99999]",
		"n[0-255]m[0-255]p[0-255]",
		"n[1234567890]",
		"a;b",
		"$(a)",
		"n[1-2:1]",
		"n[1][1][1][1][1][1][1][1][1]",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_string_equal(parsed(HOSTLIST_SLURM, good[i][0]), good[i][1]);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(parsed(HOSTLIST_SLURM, bad[i])[0], '!');
}

static void files(void **state)
{
	(void)state;
	assert_string_equal(parsed(HOSTLIST_PBS, "n1\nn1\nn2\n\n"), "n1 n2");
	assert_string_equal(parsed(HOSTLIST_PBS, "n1\nn2 4\n"), "!line 2: '4' is not understood");
	assert_string_equal(parsed(HOSTLIST_SGE, "n1.x 4 all.q@n1 UNDEFINED\nn2 1 q <NULL>\n"),
			    "n1.x n2");
	assert_string_equal(parsed(HOSTLIST_SGE, "n1\n"), "!line 1: name and slots are needed");
	assert_int_equal(parsed(HOSTLIST_SGE, "n1 many\n")[0], '!');
	assert_string_equal(parsed(HOSTLIST_OPENMPI,
				   "# of today\nn1 slots=4 max_slots=8\n\n  n2 # spare\nn3:2"),
			    "n1 n2 n3");
	assert_int_equal(parsed(HOSTLIST_OPENMPI, "^n1\n")[0], '!');
	assert_string_equal(parsed(HOSTLIST_HYDRA, "n1:4\nn2:2 binding=core\r\nn1:1\n"), "n1 n2");
	assert_int_equal(parsed(HOSTLIST_HYDRA, "n1:x\n")[0], '!');
	assert_int_equal(parsed(HOSTLIST_HYDRA, "# nobody\n")[0], '!');
}

static void bounds(void **state)
{
	struct hostlist l;
	char name[300], err[64];

	(void)state;
	memset(name, 'a', sizeof(name));
	assert_int_equal(hostlist_parse(HOSTLIST_SLURM, name, HOSTLIST_NAME_MAX, &l, NULL, 0), 0);
	hostlist_fini(&l);
	assert_int_equal(hostlist_parse(HOSTLIST_SLURM, name, HOSTLIST_NAME_MAX + 1, &l, NULL, 0),
			 -LE_INVAL);
	name[253] = '[', name[254] = '1', name[255] = ']';
	assert_int_equal(hostlist_parse(HOSTLIST_SLURM, name, 256, &l, NULL, 0), -LE_INVAL);
	assert_int_equal(hostlist_parse(HOSTLIST_SLURM, "n[0-65535]", 10, &l, NULL, 0), 0);
	assert_int_equal(l.n, HOSTLIST_MAX);
	assert_string_equal(l.names[65535], "n65535");
	hostlist_fini(&l);
	assert_int_equal(hostlist_parse(HOSTLIST_SLURM, "n[0-65535],x", 12, &l, err, sizeof(err)),
			 -LE_INVAL);
	assert_string_equal(err, "more than 65536 nodes");
	assert_int_equal(hostlist_parse(HOSTLIST_PBS, "a\0b", 3, &l, NULL, 0), -LE_INVAL);
}

static void of_a_file_and_of_the_job(void **state)
{
	char path[] = "/tmp/hostlist-XXXXXX", at[64], err[256];
	int fd = mkstemp(path);
	struct hostlist l;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "n1 4 q x\nn2 4 q x\n", 18), 18);
	close(fd);
	snprintf(at, sizeof(at), "@%s", path);
	assert_int_equal(hostlist_read(at, &l, err, sizeof(err)), 0);
	assert_int_equal(l.n, 2);
	hostlist_fini(&l);
	assert_int_equal(hostlist_read("n[1-3]", &l, err, sizeof(err)), 0);
	assert_int_equal(l.n, 3);
	hostlist_fini(&l);

	unsetenv("SLURM_JOB_NODELIST");
	unsetenv("PBS_NODEFILE");
	unsetenv("PE_HOSTFILE");
	assert_int_equal(hostlist_of_job(&l, err, sizeof(err)), -LE_NOENT);
	setenv("PE_HOSTFILE", path, 1);
	assert_int_equal(hostlist_of_job(&l, err, sizeof(err)), 0);
	assert_int_equal(l.n, 2);
	hostlist_fini(&l);
	setenv("PBS_NODEFILE", path, 1);
	assert_int_equal(hostlist_of_job(&l, err, sizeof(err)), -LE_INVAL);
	assert_non_null(strstr(err, path));
	unlink(path);
	assert_int_equal(hostlist_of_job(&l, err, sizeof(err)), -LE_NOENT);
	setenv("SLURM_JOB_NODELIST", "a[1-2]", 1);
	assert_int_equal(hostlist_of_job(&l, err, sizeof(err)), 0);
	assert_int_equal(l.n, 2);
	hostlist_fini(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(expressions_of_slurm),
		cmocka_unit_test(files),
		cmocka_unit_test(bounds),
		cmocka_unit_test(of_a_file_and_of_the_job),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
