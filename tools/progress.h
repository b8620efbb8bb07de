/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The progress line, on stderr: a bar that is drawn over itself on a TTY, and a plain line every
 * 10 seconds elsewhere.
 */
#ifndef LEAT_TOOLS_PROGRESS_H
#define LEAT_TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
	const char *what;
	double start_s, shown_s;
	bool tty, drawn;
};
/* what: a word before the bar, borrowed until the end. */
void progress_init(struct progress *p, const char *what);
/* Shows that `done` of `total` bytes are done; text: an addition (may be NULL). Cheap: draws at
 * most 10 times a second. */
void progress_update(struct progress *p, uint64_t done, uint64_t total, const char *text);
/* Shows progress that is not in bytes, as the text describes it. total 0: it is unknown, and there
 * is no bar. The first call always draws. */
void progress_note(struct progress *p, uint64_t done, uint64_t total, const char *text);
/* Ends the line: on a TTY with a full bar of total bytes; total 0: erases it. */
void progress_finish(struct progress *p, uint64_t total);

#endif
