/* SPDX-License-Identifier: Apache-2.0 */
/* Staging out where a rename that was executed returns an error, or fails. */
#include "client/include/leat/leat_stage.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/status.h"
#include "tests/lib/folder.h"

struct world {
	char root[FOLDER_MAX], src[96], dest[96], to[96];
};

/* The result of the next renames. */
static enum { AS_ALWAYS, DONE_AND_FAILED, FAILED } fault;

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
	int rc = fault == FAILED ? 0 : (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
	if (rc < 0 || fault == AS_ALWAYS)
		return rc;
	errno = EIO;
	return -1;
}

static void put_file(const char *dir, const char *name, const char *text)
{
	char path[300];
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	make_folder(NULL, "out", w->root);
	snprintf(w->src, sizeof(w->src), "%s/src", w->root);
	snprintf(w->to, sizeof(w->to), "%s/to", w->root);
	snprintf(w->dest, sizeof(w->dest), "%s/to/out", w->root);
	assert_int_equal(mkdir(w->src, 0755), 0);
	assert_int_equal(mkdir(w->to, 0755), 0);
	put_file(w->src, "file", "new");
	fault = AS_ALWAYS;
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

static int out(const struct world *w, bool replace)
{
	static struct leat_stage_result r;
	struct leat_stage_options o = {
		.size = sizeof(o), .source = w->dest, .to = w->src, .replace = replace};
	r = (struct leat_stage_result){.size = sizeof(r)};
	return leat_stage_out(&o, &r);
}

/* Checks the one line that the command prints. */
static void assert_said(const struct world *w, const char *command, const char *want)
{
	char cmd[400], line[512] = "";
	snprintf(cmd, sizeof(cmd), "cd %s && %s", w->to, command);
	FILE *f = popen(cmd, "r");
	assert_non_null(f);
	if (fgets(line, sizeof(line), f))
		line[strcspn(line, "\n")] = 0;
	pclose(f);
	assert_string_equal(line, want);
}

/* Something else gets the name that a repeated call finds, so that another name is used. */
static void occupy(const struct world *w)
{
	fault = FAILED;
	assert_int_equal(out(w, false), -LE_IO);
	fault = AS_ALWAYS;
	assert_said(w, "rm .leat-out-*/.leat-out-* .leat-out-*/file", "");
	assert_said(w, "echo own >$(echo .leat-out-*)/own", "");
}

static void test_done_though_it_failed(void **state)
{
	struct world *w = *state;
	fault = DONE_AND_FAILED;
	assert_int_equal(out(w, false), 0);
	assert_said(w, "ls -A | xargs", "out");
	assert_said(w, "cat out/file", "new");
	assert_said(w, "ls -A out | xargs", "file");
	put_file(w->src, "file", "newer");
	put_file(w->dest, "old", "old");
	assert_int_equal(out(w, true), 0);
	assert_said(w, "ls -A . out | xargs", ".: out out: file");
	assert_said(w, "cat out/file", "newer");
}

static void test_done_though_it_failed_under_another_name(void **state)
{
	struct world *w = *state;
	occupy(w);
	fault = DONE_AND_FAILED;
	assert_int_equal(out(w, false), 0);
	assert_said(w, "cat out/file", "new");
	assert_int_equal(out(w, true), 0);
	assert_said(w, "cat out/file .leat-out-*/own | xargs", "newown");
	assert_said(w, "ls -A | wc -l", "2");
}

static void test_failed(void **state)
{
	struct world *w = *state;
	struct stat st;
	char inode[32];
	/* The next call finds it, and gives its directory the name. */
	fault = FAILED;
	assert_int_equal(out(w, false), -LE_IO);
	assert_said(w, "stat -c %a .leat-out-*", "700");
	assert_said(w, "stat -c %a.%s .leat-out-*/.leat-out-*", "600.0");
	assert_int_equal(access(w->dest, F_OK), -1);
	fault = AS_ALWAYS;
	assert_said(w, "stat -c %i .leat-out-* >../inode", "");
	assert_int_equal(out(w, false), 0);
	assert_int_equal(stat(w->dest, &st), 0);
	snprintf(inode, sizeof(inode), "%lu", (unsigned long)st.st_ino);
	assert_said(w, "cat ../inode", inode);
	assert_int_equal(st.st_mode & 0777, 0755);
	assert_said(w, "ls -A . out | xargs", ".: out out: file");
}

static void test_failed_under_another_name(void **state)
{
	struct world *w = *state;
	occupy(w);
	fault = FAILED;
	assert_int_equal(out(w, false), -LE_IO);
	assert_said(w, "ls -A | wc -l", "1");
	assert_said(w, "cat .leat-out-*/own", "own");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_done_though_it_failed),
		T(test_done_though_it_failed_under_another_name),
		T(test_failed),
		T(test_failed_under_another_name),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
