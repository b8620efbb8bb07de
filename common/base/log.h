/*
 * One line per event on stderr (which the service manager keeps):
 *   2026-01-31T12:00:00.123456Z W mds session=17 op=mds_create: text
 * A failure is logged once, where it is handled. Libraries do not log above
 * DEBUG. Any thread may call; a line is written by one write(2).
 */
#ifndef LEAT_BASE_LOG_H
#define LEAT_BASE_LOG_H

#include <stdbool.h>

#include "common/base/status.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* name: of the program, as it stands in each line. Default level INFO. */
void log_init(const char *name, enum log_level level);
void log_set_level(enum log_level level);
/* "error" | "warn" | "info" | "debug"; -LE_CONFIG otherwise */
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
