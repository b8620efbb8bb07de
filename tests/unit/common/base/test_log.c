/* SPDX-License-Identifier: Apache-2.0 */
/* The form of a log line for each destination: a terminal, the journal, the syslog daemon. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <regex.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/log.h"

/* ---- stderr, replaced by a pipe ---- */

static int pipe_fds[2], stderr_fd;

static int begin(void **state)
{
	(void)state;
	unsetenv("JOURNAL_STREAM");
	stderr_fd = dup(2);
	return stderr_fd < 0 || pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) < 0 ||
	       dup2(pipe_fds[1], 2) < 0;
}

static int end(void **state)
{
	(void)state;
	dup2(stderr_fd, 2);
	close(stderr_fd);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	return 0;
}

static const char *take(int fd)
{
	static char text[4096];
	ssize_t n = read(fd, text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = '\0';
	return text;
}

static bool matches(const char *text, const char *pattern)
{
	regex_t re;
	bool yes;

	assert_int_equal(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
	yes = regexec(&re, text, 0, NULL, 0) == 0;
	regfree(&re);
	if (!yes)
		print_message("'%s' is not as '%s'\n", text, pattern);
	return yes;
}

static void people_get_time_level_and_name(void **state)
{
	(void)state;
	log_init("mds", LOG_INFO);
	log_warn("op=%s: text\nW forged", "mds_create");
	assert_true(matches(take(pipe_fds[0]),
			    "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\\.[0-9]{6}Z W mds "
			    "op=mds_create: text W forged\n$"));
	log_debug("not at this level");
	assert_string_equal(take(pipe_fds[0]), "");
}

static void set_journal(int fd, int off)
{
	struct stat st;
	char text[64];

	assert_int_equal(fstat(fd, &st), 0);
	snprintf(text, sizeof(text), "%llu:%llu", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino + (unsigned)off);
	setenv("JOURNAL_STREAM", text, 1);
}

static void the_journal_gets_the_priority_alone(void **state)
{
	(void)state;
	set_journal(2, 0);
	log_init("mds", LOG_DEBUG);
	log_stderr_changed();
	log_error("one");
	log_warn("two");
	log_info("three");
	log_debug("four\n<0>forged");
	assert_string_equal(take(pipe_fds[0]), "<3>one\n<4>two\n<6>three\n<7>four <0>forged\n");
	/* A mount by the service manager with log=FILE. */
	set_journal(pipe_fds[0], 1);
	log_stderr_changed();
	log_warn("text");
	assert_true(matches(take(pipe_fds[0]), "Z W mds text\n$"));
}

/* JOURNAL_STREAM names another stream: this program's stdout, or one of the program that started
 * it. */
static void not_when_stderr_is_something_else(void **state)
{
	(void)state;
	set_journal(2, 1);
	log_init("mds", LOG_INFO);
	log_warn("text");
	assert_true(matches(take(pipe_fds[0]), "Z W mds text\n$"));
}

/* ---- the syslog daemon ---- */

static struct sockaddr_un addr = {.sun_family = AF_UNIX};

static int listen_at(const char *path)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_true(fd >= 0);
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	return fd;
}

static char dir[] = "/tmp/leat-log-XXXXXX", path[64];

static void syslog_gets_priority_name_and_pid(void **state)
{
	char pattern[128];
	int fd;

	(void)state;
	fd = listen_at(path);
	log_init("mount.leat", LOG_INFO);
	assert_false(log_is_to_system());
	log_to_system(path);
	assert_true(log_is_to_system());
	log_warn("target %d\nis down", 2);
	/* Facility daemon is 3: 3 * 8 + warning 4 */
	snprintf(pattern, sizeof(pattern),
		 "^<28>[A-Z][a-z]{2} [ 1-3][0-9] [0-9:]{8} mount\\.leat\\[%d\\]: target 2 is down$",
		 (int)getpid());
	assert_true(matches(take(fd), pattern));
	log_error("x");
	assert_true(matches(take(fd), "^<27>"));
	log_info("x");
	assert_true(matches(take(fd), "^<30>"));
	assert_string_equal(take(pipe_fds[0]), "");
	close(fd);
	unlink(path);
}

/* The syslog daemon is away, has restarted, or is stuck: no caller waits for it, and lost lines are
 * counted. */
static void what_syslog_did_not_take_is_counted(void **state)
{
	int fd, n = 0;

	(void)state;
	log_init("mount.leat", LOG_INFO);
	log_to_system(path);
	log_warn("nobody listens");
	log_warn("nobody listens");
	fd = listen_at(path);
	log_warn("here");
	assert_true(matches(take(fd), "^<28>.*: 2 lines before this one are lost: the log of this "
				      "machine did not take them$"));
	assert_true(matches(take(fd), ": here$"));
	close(fd);
	unlink(path);
	fd = listen_at(path);
	log_warn("to another one");
	assert_true(matches(take(fd), ": to another one$"));

	for (int i = 0; i < 3000; i++)
		log_info("line %d", i);
	while (strstr(take(fd), ": line ") != NULL)
		n++;
	assert_in_range(n, 1, 2999);
	log_info("room again");
	assert_true(matches(take(fd), ": [0-9]+ lines before this one are lost"));
	assert_true(matches(take(fd), ": room again$"));
	close(fd);
	unlink(path);
}

/* A file on a full disk: no caller waits, and lost lines are counted. The last line that was
 * written may be incomplete. */
static void what_a_full_disk_did_not_take_is_counted(void **state)
{
	struct rlimit all, some = {100, RLIM_INFINITY};
	char text[4096];
	int fd = open(path, O_CREAT | O_RDWR | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
	ssize_t n;

	(void)state;
	log_init("mds", LOG_INFO);
	assert_true(fd >= 0 && dup2(fd, 2) >= 0);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
	some.rlim_max = all.rlim_max;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &some), 0);
	for (int i = 1; i <= 4; i++)
		log_info("line %d %s", i, "of some length, so that few of them fit");
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
	log_info("room again");
	log_info("and again");
	n = pread(fd, text, sizeof(text) - 1, 0);
	assert_true(n > 0);
	text[n] = '\0';
	assert_true(matches(text, "^[^\n]* I mds line 1 [^\n]*\n[^\n]*\n"
				  "[^\n]* W mds 3 lines before this one are lost: this log could "
				  "not be written\n"
				  "[^\n]* I mds room again\n[^\n]* I mds and again\n$"));
	close(fd);
	unlink(path);
}

/* No process reads the pipe: a daemon continues. */
static void what_a_full_pipe_did_not_take_is_counted(void **state)
{
	const char *text;
	int n_reads = 0;

	(void)state;
	assert_int_equal(fcntl(pipe_fds[1], F_SETFL, 0), 0);
	log_init("mds", LOG_INFO);
	log_never_wait();
	alarm(60);
	for (int i = 0; i < 3000; i++)
		log_info("line %d of some length, so that the pipe is full soon", i);
	alarm(0);
	while (text = take(pipe_fds[0]), *text != '\0')
		n_reads++;
	assert_true(n_reads > 0);
	log_info("room again");
	assert_true(matches(take(pipe_fds[0]), " W mds [0-9]+ lines before this one are lost: "
					       "this log could not be written\n.* room again\n$"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(people_get_time_level_and_name, begin, end),
		cmocka_unit_test_setup_teardown(the_journal_gets_the_priority_alone, begin, end),
		cmocka_unit_test_setup_teardown(not_when_stderr_is_something_else, begin, end),
		cmocka_unit_test_setup_teardown(syslog_gets_priority_name_and_pid, begin, end),
		cmocka_unit_test_setup_teardown(what_syslog_did_not_take_is_counted, begin, end),
		cmocka_unit_test_setup_teardown(what_a_full_disk_did_not_take_is_counted, begin,
						end),
		cmocka_unit_test_setup_teardown(what_a_full_pipe_did_not_take_is_counted, begin,
						end),
	};
	int rc;

	if (mkdtemp(dir) == NULL)
		return 1;
	snprintf(path, sizeof(path), "%s/log", dir);
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	rmdir(dir);
	return rc;
}
