/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes one line per event to stderr:
 *   2026-01-31T12:00:00.123456Z W mds session=17 op=mds_create: text
 * If stderr is the journal (systemd sets JOURNAL_STREAM), a line begins with its priority in the
 * form of sd-daemon(3), and has no time and no name, because the journal adds both:
 *   <4>session=17 op=mds_create: text
 * A program without a reader of its stderr calls log_to_system. A failure is logged once, where it
 * is handled. Libraries do not log above DEBUG. Any thread may call; a line is written by one
 * write(2) or send(2).
 */
#ifndef LEAT_COMMON_BASE_LOG_H
#define LEAT_COMMON_BASE_LOG_H

#include <stdbool.h>

#include "common/base/status.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* name: of the program, as in each line. Default level INFO. */
void log_init(const char *name, enum log_level level);
/* For a daemon: from now on a line is lost if stderr, a pipe or a socket, does not accept it
 * immediately, so a slow reader does not block the daemon. The next accepted line is preceded by
 * the number of lost ones. */
void log_never_wait(void);
/* Call after stderr was redirected to another file. */
void log_stderr_changed(void);
/* Sends later lines to the log of this machine, as "name[pid]" of facility daemon: to the journal
 * or the syslog daemon that listens at path (NULL: /dev/log). Never waits: a line that the log does
 * not accept is lost, and the next accepted one is preceded by the number of lost ones. */
void log_to_system(const char *path);
bool log_is_to_system(void);
void log_set_level(enum log_level level);
/* Parses "error" | "warn" | "info" | "debug". Returns 0 or -LE_CONFIG. */
int log_level_parse(const char *s, enum log_level *ret_level) CHECK_RESULT;
bool log_enabled(enum log_level level);
void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_write(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(...) \
	do { \
		if (log_enabled(LOG_DEBUG)) \
			log_write(LOG_DEBUG, __VA_ARGS__); \
	} while (0)

#endif
