/* SPDX-License-Identifier: Apache-2.0 */
/* The progress line: a bar on a TTY, plain lines every 10 s elsewhere. On stderr, so that stdout
 * stays clean. */
#include "tools/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/tool.h"

enum {
	BAR_WIDTH = 28
};
#define TTY_INTERVAL_S   0.1
#define PLAIN_INTERVAL_S 10.0

void progress_init(struct progress *p, const char *what)
{
	*p = (struct progress){.what = what, .start_s = now_s(), .tty = isatty(STDERR_FILENO)};
	p->shown_s = p->start_s;
}

static void bar_of(double part, char bar[BAR_WIDTH + 1])
{
	memset(bar, '.', BAR_WIDTH);
	memset(bar, '#', (size_t)(part * BAR_WIDTH));
	bar[BAR_WIDTH] = '\0';
}

static void draw_head(struct progress *p, double part)
{
	char bar[BAR_WIDTH + 1];

	bar_of(part, bar);
	if (p->tty)
		fprintf(stderr, "\r%s [%s] %3.0f%%", p->what, bar, part * 100);
	else
		fprintf(stderr, "%s: %.0f%%", p->what, part * 100);
}

static void draw_end(struct progress *p)
{
	fputs(p->tty ? "\033[K" : "\n", stderr);
	fflush(stderr);
	p->drawn = true;
}

static void draw(struct progress *p, double now, uint64_t done, uint64_t total, const char *text)
{
	char a[SIZE_TEXT], b[SIZE_TEXT], c[SIZE_TEXT];
	double seconds = now - p->start_s;
	double rate = seconds > 0 ? (double)done / seconds : 0;
	double part = total ? (double)done / (double)total : 0;

	draw_head(p, part > 1 ? 1 : part);
	fprintf(stderr, " %s of %s, %s/s", format_size(done, a), format_size(total, b),
		format_size((uint64_t)rate, c));
	if (rate > 0 && done < total)
		fprintf(stderr, ", %.0f s left", (double)(total - done) / rate);
	if (text)
		fprintf(stderr, ", %s", text);
	draw_end(p);
}

/* True if it is time to draw again. */
static bool is_due(struct progress *p)
{
	double now = now_s();

	if (now - p->shown_s < (p->tty ? TTY_INTERVAL_S : PLAIN_INTERVAL_S))
		return false;
	p->shown_s = now;
	return true;
}

void progress_update(struct progress *p, uint64_t done, uint64_t total, const char *text)
{
	if (is_due(p))
		draw(p, p->shown_s, done, total, text);
}

void progress_note(struct progress *p, uint64_t done, uint64_t total, const char *text)
{
	if (p->drawn && !is_due(p))
		return;
	if (total)
		draw_head(p, done < total ? (double)done / (double)total : 1);
	else
		fprintf(stderr, p->tty ? "\r%s:" : "%s:", p->what);
	fprintf(stderr, " %s", text);
	draw_end(p);
}

void progress_finish(struct progress *p, uint64_t total)
{
	if (p->tty && total)
		draw(p, now_s(), total, total, NULL);
	if (p->tty && p->drawn)
		fputs(total ? "\n" : "\r\033[K", stderr);
	fflush(stderr);
	p->drawn = false;
}
