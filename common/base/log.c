/*
 * Each line is put together on the stack and goes out by one write(2), so that lines of
 * different threads never mix and nothing is lost in a buffer when the program dies.
 */
#include "common/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 2048

static char program[32] = "leat";
static _Atomic int threshold = LOG_INFO;

void log_init(const char *name, enum log_level level)
{
	snprintf(program, sizeof(program), "%s", name);
	log_set_level(level);
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

static size_t add_prefix(char *line, size_t size, enum log_level level)
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

void log_write(enum log_level level, const char *fmt, ...)
{
	if (!log_enabled(level))
		return;
	char line[LINE_MAX_BYTES];
	size_t n = add_prefix(line, sizeof(line), level);
	size_t start = n;
	va_list ap;
	va_start(ap, fmt);
	int m = vsnprintf(line + n, sizeof(line) - n - 1, fmt, ap);
	va_end(ap);
	if (m > 0)
		n += (size_t)m < sizeof(line) - n - 1 ? (size_t)m : sizeof(line) - n - 2;
	/* Names of files and peers' words get in here: they shall not forge lines. */
	for (size_t i = start; i < n; i++) {
		if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
			line[i] = ' ';
	}
	line[n++] = '\n';
	ssize_t ignored = write(STDERR_FILENO, line, n);
	(void)ignored;
}
