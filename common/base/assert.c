/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a failed assertion and ends the program. */
#include "common/base/assert.h"

#include <execinfo.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"

#define FRAMES_MAX 48

_Noreturn void assert_failed(const char *file, int line, const char *func, const char *fmt, ...)
{
	char text[1024];
	int n = snprintf(text, sizeof(text), "ASSERT %s:%d %s(): ", file, line, func);
	if (n < 0 || n >= (int)sizeof(text) - 2)
		n = 0;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text + n, sizeof(text) - (size_t)n - 1, fmt, ap);
	va_end(ap);
	n = (int)strlen(text);
	if (log_is_to_system())
		log_error("%s", text);
	text[n] = '\n';
	/* stdio may be broken, so the line is written by write(2) alone. */
	ssize_t ignored = write(STDERR_FILENO, text, (size_t)n + 1);
	(void)ignored;

	void *frames[FRAMES_MAX];
	backtrace_symbols_fd(frames, backtrace(frames, FRAMES_MAX), STDERR_FILENO);
	abort();
}
