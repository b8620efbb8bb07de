/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each line is assembled on the stack and written by one write(2), so lines of different threads
 * never mix, and no line is lost in a buffer when the program crashes.
 *
 * syslog(3) is not used: it waits while the log's socket is full. A syslog daemon that writes its
 * files to a mount would then wait for a daemon of that mount, which waits for the syslog daemon.
 */
#include "common/base/log.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES  2048
#define SYSTEM_LOG      "/dev/log"
#define FACILITY_DAEMON (3 << 3)

enum form {
	FORM_TIME,    /* on stderr, for people */
	FORM_JOURNAL, /* on stderr, which is the journal */
	FORM_SYSTEM,
};

static char program[32] = "leat";
static _Atomic int threshold = LOG_INFO;
static _Atomic int form = FORM_TIME;

/* Guarded by the lock. A thread holds it for one non-blocking send at most. */
static pthread_mutex_t system_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sockaddr_un system_addr = {.sun_family = AF_UNIX};
static int system_fd = -1;
static unsigned long n_lost;
static _Atomic unsigned long stderr_lost; /* lines */
static _Atomic bool stderr_torn;          /* the last line was written in part */
static _Atomic bool never_wait;

/* JOURNAL_STREAM is "device:inode" of the journal's socket; stderr may have been redirected
 * since. */
static bool stderr_is_journal(void)
{
	const char *text = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;

	return text != NULL && sscanf(text, "%llu:%llu", &dev, &ino) == 2 &&
	       fstat(STDERR_FILENO, &st) == 0 && st.st_dev == dev && st.st_ino == ino;
}

void log_init(const char *name, enum log_level level)
{
	snprintf(program, sizeof(program), "%s", name);
	log_stderr_changed();
	log_set_level(level);
}

void log_never_wait(void)
{
	never_wait = true;
}

void log_stderr_changed(void)
{
	form = stderr_is_journal() ? FORM_JOURNAL : FORM_TIME;
}

void log_to_system(const char *path)
{
	pthread_mutex_lock(&system_lock);
	snprintf(system_addr.sun_path, sizeof(system_addr.sun_path), "%s",
		 path != NULL ? path : SYSTEM_LOG);
	if (system_fd >= 0)
		close(system_fd);
	system_fd = -1;
	form = FORM_SYSTEM;
	pthread_mutex_unlock(&system_lock);
}

bool log_is_to_system(void)
{
	return form == FORM_SYSTEM;
}

void log_set_level(enum log_level level)
{
	threshold = (int)level;
}

int log_level_parse(const char *s, enum log_level *ret_level)
{
	static const char *const names[] = {"error", "warn", "info", "debug"};
	for (int i = 0; i < 4; i++) {
		if (strcmp(s, names[i]) == 0) {
			*ret_level = (enum log_level)i;
			return 0;
		}
	}
	return -LE_CONFIG;
}

bool log_enabled(enum log_level level)
{
	return (int)level <= __atomic_load_n((int *)&threshold, __ATOMIC_RELAXED);
}

/* Returns the priority of syslog(3). */
static int priority_of(enum log_level level)
{
	static const int priorities[] = {3, 4, 6, 7};

	return priorities[level];
}

static size_t add_time(char *line, size_t size, enum log_level level)
{
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	struct tm tm;
	gmtime_r(&ts.tv_sec, &tm);
	size_t n = strftime(line, size, "%Y-%m-%dT%H:%M:%S", &tm);
	int m = snprintf(line + n, size - n, ".%06ldZ %c %s ", ts.tv_nsec / 1000, "EWID"[level],
			 program);
	return n + (m > 0 ? (size_t)m : 0);
}

/* Writes the header of RFC 3164, section 4.1, which readers of /dev/log expect. */
static size_t add_header(char *line, size_t size, enum log_level level)
{
	time_t now = time(NULL);
	struct tm tm;
	char when[32];

	localtime_r(&now, &tm);
	strftime(when, sizeof(when), "%b %e %H:%M:%S", &tm);
	return (size_t)snprintf(line, size, "<%d>%s %s[%d]: ", FACILITY_DAEMON | priority_of(level),
				when, program, (int)getpid());
}

static size_t add_prefix(char *line, size_t size, int as, enum log_level level)
{
	if (as == FORM_JOURNAL)
		return (size_t)snprintf(line, size, "<%d>", priority_of(level));
	return as == FORM_SYSTEM ? add_header(line, size, level) : add_time(line, size, level);
}

/* ---- the log of this machine ---- */

static bool system_open(void)
{
	system_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (system_fd >= 0 &&
	    connect(system_fd, (struct sockaddr *)&system_addr, sizeof(system_addr)) == 0)
		return true;
	if (system_fd >= 0)
		close(system_fd);
	system_fd = -1;
	return false;
}

/* Sends a line, once more over a new socket if that fails: the log's daemon may have restarted. */
static bool system_try(const char *line, size_t n)
{
	for (int i = 0; i < 2; i++) {
		if (system_fd < 0 && !system_open())
			return false;
		if (send(system_fd, line, n, MSG_NOSIGNAL) == (ssize_t)n)
			return true;
		if (errno == EAGAIN || errno == ENOBUFS)
			return false;
		close(system_fd);
		system_fd = -1;
	}
	return false;
}

static void system_send(const char *line, size_t n)
{
	char text[256];
	size_t m;

	pthread_mutex_lock(&system_lock);
	if (n_lost > 0) {
		m = add_header(text, sizeof(text), LOG_WARN);
		m += (size_t)snprintf(text + m, sizeof(text) - m,
				      "%lu lines before this one are lost: the log of this machine "
				      "did not take them",
				      n_lost);
		if (system_try(text, m))
			n_lost = 0;
	}
	n_lost += !system_try(line, n);
	pthread_mutex_unlock(&system_lock);
}

/* ---- stderr: a terminal, a file, the journal ---- */

/* Returns whether a write to stderr does not wait. A pipe that poll reports as writable has space
 * for PIPE_BUF bytes, more than a line; only another process that writes to it at the same time can
 * still make the write wait. */
static bool stderr_has_space(void)
{
	struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};

	return !never_wait || poll(&p, 1, 0) != 0;
}

/* Writes a line. If a full disk does not accept it, it is lost: the caller must not wait. */
static bool stderr_try(const char *line, size_t n)
{
	ssize_t done;

	if (!stderr_has_space())
		return false;
	done = write(STDERR_FILENO, line, n);
	if (done > 0 && (size_t)done < n)
		atomic_store(&stderr_torn, true);
	return done == (ssize_t)n;
}

static void stderr_send(int as, const char *line, size_t n)
{
	unsigned long lost = atomic_exchange(&stderr_lost, 0);

	if (lost > 0) {
		char text[256] = "\n";
		size_t m = atomic_load(&stderr_torn) ? 1 : 0;

		m += add_prefix(text + m, sizeof(text) - m, as, LOG_WARN);
		m += (size_t)snprintf(text + m, sizeof(text) - m,
				      "%lu lines before this one are lost: this log could not be "
				      "written\n",
				      lost);
		if (stderr_try(text, m))
			atomic_store(&stderr_torn, false);
		else
			atomic_fetch_add(&stderr_lost, lost);
	}
	if (!stderr_try(line, n))
		atomic_fetch_add(&stderr_lost, 1);
}

void log_write(enum log_level level, const char *fmt, ...)
{
	if (!log_enabled(level))
		return;
	char line[LINE_MAX_BYTES];
	const int as = form;
	size_t n = add_prefix(line, sizeof(line), as, level);
	size_t start = n;
	va_list ap;
	va_start(ap, fmt);
	int m = vsnprintf(line + n, sizeof(line) - n - 1, fmt, ap);
	va_end(ap);
	if (m > 0)
		n += (size_t)m < sizeof(line) - n - 1 ? (size_t)m : sizeof(line) - n - 2;
	/* Lines contain file names and texts of peers, which must not forge lines. */
	for (size_t i = start; i < n; i++) {
		if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
			line[i] = ' ';
	}
	if (as == FORM_SYSTEM) {
		system_send(line, n);
		return;
	}
	line[n++] = '\n';
	stderr_send(as, line, n);
}
