/* SPDX-License-Identifier: Apache-2.0 */
/* The messages to the service manager, received by a socket of the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/notify.h"

static int manager = -1;

/* In the abstract name space, so that no file remains. */
static void manage(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	char name[64];
	int n = snprintf(name, sizeof(name), "@leat-notify-%d", (int)getpid());

	memcpy(a.sun_path + 1, name + 1, (size_t)n - 1);
	manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_true(manager >= 0);
	assert_int_equal(bind(manager, (struct sockaddr *)&a,
			      (socklen_t)(sizeof(a.sun_family) + (size_t)n)),
			 0);
	setenv("NOTIFY_SOCKET", name, 1);
}

static const char *heard(void)
{
	static char text[1024];
	ssize_t n = recv(manager, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	return text;
}

/* notify_init may be called once in a process: each test runs in one. */
static void in_a_process(void (*fn)(void))
{
	int st;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		unsetenv("WATCHDOG_USEC");
		unsetenv("WATCHDOG_PID");
		unsetenv("NOTIFY_SOCKET");
		fn();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_int_equal(st, 0);
}

static void check(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "not so: %s\n", what);
	_exit(1);
}
#define CHECK(x) check(x, #x)
#define HEARD(x) \
	do { \
		const char *was = heard(); \
		if (strcmp(was, x) != 0) { \
			fprintf(stderr, "line %d: heard '%s'\n", __LINE__, was); \
			_exit(1); \
		} \
	} while (0)

static void life(void)
{
	manage();
	notify_init();
	CHECK(notify_wanted());
	CHECK(notify_watchdog_us() == 0);
	notify_status("waits for %s", "the metadata server");
	HEARD("STATUS=waits for the metadata server\n");
	notify_status("waits for %s", "the metadata server");
	HEARD("");
	notify_alive();
	HEARD("EXTEND_TIMEOUT_USEC=60000000");
	notify_ready();
	HEARD("READY=1\n");
	notify_ready();
	HEARD("");
	notify_alive(); /* no effect without a watchdog */
	HEARD("");
	notify_status("a\nREADY=1");
	HEARD("STATUS=a READY=1\n");
	notify_reloading();
	CHECK(strncmp(heard(), "RELOADING=1\nMONOTONIC_USEC=", 27) == 0);
	notify_ready();
	HEARD("READY=1\n");
	notify_stopping();
	HEARD("STOPPING=1\n");
	notify_ready();
	HEARD("");
}

static void watched(void)
{
	char pid[16];

	manage();
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	setenv("WATCHDOG_PID", pid, 1);
	setenv("WATCHDOG_USEC", "6000000", 1);
	notify_init();
	CHECK(notify_watchdog_us() == 6000000);
	CHECK(notify_alive_us() == 2000000);
	notify_ready();
	HEARD("READY=1\n");
	notify_alive();
	HEARD("WATCHDOG=1");
}

/* The watchdog is for another process of the service. */
static void watched_elsewhere(void)
{
	manage();
	setenv("WATCHDOG_PID", "1", 1);
	setenv("WATCHDOG_USEC", "6000000", 1);
	notify_init();
	notify_ready();
	notify_alive();
	HEARD("READY=1\n");
	HEARD("");
}

static void alone(void)
{
	notify_init();
	CHECK(!notify_wanted());
	notify_status("x");
	notify_ready();
	notify_alive();
	setenv("NOTIFY_SOCKET", "vsock:2:1", 1);
	notify_init();
	CHECK(!notify_wanted());
}

/* The manager's socket is full: no caller waits, and the last state is sent later. */
static void busy_manager(void)
{
	const char *last = "";
	int n = 0;

	manage();
	notify_init();
	for (int i = 0; i < 3000; i++)
		notify_alive();
	notify_status("serves");
	notify_ready();
	while (strcmp(last = heard(), "EXTEND_TIMEOUT_USEC=60000000") == 0)
		n++;
	CHECK(n > 0 && n < 3000);
	CHECK(last[0] == '\0');
	notify_alive();
	HEARD("READY=1\nSTATUS=serves\n");
}

#define IN_A_PROCESS(fn) \
	static void test_##fn(void **state) \
	{ \
		(void)state; \
		in_a_process(fn); \
	}
IN_A_PROCESS(life)
IN_A_PROCESS(watched)
IN_A_PROCESS(watched_elsewhere)
IN_A_PROCESS(alone)
IN_A_PROCESS(busy_manager)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_life),
		cmocka_unit_test(test_watched),
		cmocka_unit_test(test_watched_elsewhere),
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_busy_manager),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
