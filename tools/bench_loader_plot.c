/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The waits as a drawing: for each step (or as many steps as share a column) the longest wait of
 * any accelerator, on a logarithmic scale from 1 us; the compute time of a batch as a line, since
 * read-ahead of one batch hides a wait below it; where epochs begin. SVG 1.1, written directly: a
 * drawing needs no library.
 */
#include "tools/bench_loader_plot.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#define WIDTH    960.0
#define HEIGHT   320.0
#define LEFT     70.0
#define RIGHT    20.0
#define TOP      44.0
#define BOTTOM   40.0
#define COLUMNS  800u /* at most: a column is wider than a point */
#define LOWEST_S 1e-6

struct plot {
	FILE *f;
	const struct loader_bench *b;
	const struct bench_result *r;
	uint64_t n, per_column; /* steps */
	double highest_s;       /* a power of ten */
};

static double x_of(const struct plot *p, uint64_t step)
{
	return LEFT + (WIDTH - LEFT - RIGHT) * (double)step / (double)p->n;
}

static double y_of(const struct plot *p, double seconds)
{
	double s = seconds < LOWEST_S ? LOWEST_S : seconds;
	double part = log10(s / LOWEST_S) / log10(p->highest_s / LOWEST_S);

	return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * part;
}

/* Returns the longest wait of all accelerators in the steps [from, to). */
static double longest(const struct plot *p, uint64_t from, uint64_t to)
{
	uint64_t row = p->b->n_accelerators;
	double max = 0;

	for (uint64_t i = from * row; i < to * row; i++)
		max = (double)p->r->wait_s[i] > max ? (double)p->r->wait_s[i] : max;
	return max;
}

static void text(const struct plot *p, double x, double y, const char *anchor, const char *s)
{
	fprintf(p->f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor,
		s);
}

static void line(const struct plot *p, double x1, double y1, double x2, double y2,
		 const char *style)
{
	fprintf(p->f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", x1,
		y1, x2, y2, style);
}

static const char *format_wait(double s, char buf[24])
{
	if (s < 1e-3)
		snprintf(buf, 24, "%.3g us", s * 1e6);
	else if (s < 1)
		snprintf(buf, 24, "%.3g ms", s * 1e3);
	else
		snprintf(buf, 24, "%.3g s", s);
	return buf;
}

static void draw_axes(const struct plot *p)
{
	char buf[24];
	uint64_t tick = 1;

	for (double s = LOWEST_S; s <= p->highest_s * 1.01; s *= 10) {
		line(p, LEFT, y_of(p, s), WIDTH - RIGHT, y_of(p, s), "grid");
		text(p, LEFT - 6, y_of(p, s) + 4, "end", format_wait(s, buf));
	}
	while (p->n / tick > 12)
		tick *= tick % 3 == 1 ? 2 : 5; /* 1 2 10 20 100 */
	for (uint64_t s = 0; s <= p->n; s += tick) {
		snprintf(buf, sizeof(buf), "%" PRIu64, s);
		text(p, x_of(p, s), HEIGHT - BOTTOM + 16, "middle", buf);
	}
	text(p, (WIDTH + LEFT - RIGHT) / 2, HEIGHT - 6, "middle", "step");
	for (uint64_t e = 1; e < p->r->n_epochs; e++)
		line(p, x_of(p, e * p->r->n_steps), TOP, x_of(p, e * p->r->n_steps),
		     HEIGHT - BOTTOM, "epoch");
}

static void draw_waits(const struct plot *p)
{
	double compute_s = p->b->w->compute_s[p->b->type];
	char buf[24], label[64];

	for (uint64_t s = 0; s < p->n; s += p->per_column) {
		uint64_t end = s + p->per_column < p->n ? s + p->per_column : p->n;
		double y = y_of(p, longest(p, s, end)), width = x_of(p, end) - x_of(p, s);
		fprintf(p->f,
			"<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" "
			"class=\"wait\"/>\n",
			x_of(p, s), y, width > 2 ? width - 0.5 : width, HEIGHT - BOTTOM - y);
	}
	line(p, LEFT, y_of(p, compute_s), WIDTH - RIGHT, y_of(p, compute_s), "compute");
	snprintf(label, sizeof(label), "compute %s", format_wait(compute_s, buf));
	text(p, WIDTH - RIGHT, y_of(p, compute_s) - 4, "end", label);
}

static void draw(const struct plot *p)
{
	char title[160];

	fprintf(p->f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
		"viewBox=\"0 0 %.0f %.0f\">\n<style>text{font:12px sans-serif;fill:#333}"
		".grid{stroke:#ddd}.epoch{stroke:#888;stroke-dasharray:4 3}"
		".compute{stroke:#c33}.wait{fill:#37a}</style>\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
		WIDTH, HEIGHT, WIDTH, HEIGHT);
	snprintf(title, sizeof(title),
		 "%s, %" PRIu64 " %s, scale %g: longest wait for a batch at each step",
		 p->b->w->name, p->b->n_accelerators, accelerator_names[p->b->type], p->b->scale);
	text(p, LEFT, TOP - 20, "start", title);
	draw_axes(p);
	draw_waits(p);
	fputs("</svg>\n", p->f);
}

int bench_plot(const struct loader_bench *b, const struct bench_result *r, const char *path)
{
	struct plot p = {.b = b, .r = r, .n = r->n_epochs * r->n_steps, .highest_s = 1e-3};
	double max = b->w->compute_s[b->type], wait;

	p.per_column = (p.n + COLUMNS - 1) / COLUMNS;
	wait = longest(&p, 0, p.n);
	max = wait > max ? wait : max;
	while (p.highest_s < max)
		p.highest_s *= 10;
	p.f = fopen(path, "we");
	if (!p.f)
		return -errno;
	draw(&p);
	int rc = ferror(p.f) ? -EIO : 0;
	if (fclose(p.f) != 0 && rc == 0)
		rc = -errno;
	if (rc < 0)
		unlink(path);
	return rc;
}
