/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/dies.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/planted_bug.h"

static void run_child(const char *bug, void (*fn)(void *arg), void *arg, int err)
{
	const struct rlimit no_core = {0, 0};
	if (dup2(err, STDERR_FILENO) < 0 || setrlimit(RLIMIT_CORE, &no_core) < 0 ||
	    !planted_bug_enable(bug))
		_exit(1);
	fn(arg);
	_exit(0);
}

void assert_dies(const char *bug, void (*fn)(void *arg), void *arg, const char *assertion)
{
	char text[8192];
	size_t len = 0;
	int fds[2], status;
	assert_int_equal(pipe(fds), 0);
	fflush(NULL);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		run_child(bug, fn, arg, fds[1]);
	close(fds[1]);
	/* What does not fit is read all the same, so that the child does not wait. */
	for (ssize_t n = 1; n > 0;) {
		char more[512];
		n = read(fds[0], more, sizeof(more));
		for (ssize_t i = 0; i < n && len + 1 < sizeof(text); i++)
			text[len++] = more[i];
	}
	text[len] = 0;
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !strstr(text, assertion))
		fail_msg("%s: status %x, and not \"%s\" but: %s", bug, (unsigned)status, assertion,
			 text);
}
