/* SPDX-License-Identifier: Apache-2.0 */
/* leat du: how much data trees contain. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/tree.h"

struct du {
	bool apparent, inodes, human, summary, total;
	uint64_t unit, max_depth, width;
	struct tree_tool tt;
	json_t *rows;
	struct leat_tree_sum all;
};

static uint64_t value(const struct du *d, const struct leat_tree_sum *sum)
{
	uint64_t v = d->inodes ? sum->inodes : d->apparent ? sum->apparent : sum->disk;

	return d->inodes || d->human ? v : (v + d->unit - 1) / d->unit;
}

/* Prints like du -h: rounded up, one digit after the point below 10. */
static void print_human(uint64_t v)
{
	static const char units[] = "KMGTPE";
	uint64_t whole = v, tenths = 0;
	int u = -1;

	while (whole >= 1024 || (u >= 0 && whole == 1023 && tenths > 9)) {
		uint64_t all = whole * 10 + tenths;

		u++;
		whole = all / 10240;
		tenths = (all % 10240 + 1023) / 1024;
		whole += tenths / 10;
		tenths %= 10;
	}
	if (u < 0)
		printf("%" PRIu64, whole);
	else if (whole < 10)
		printf("%" PRIu64 ".%" PRIu64 "%c", whole, tenths, units[u]);
	else
		printf("%" PRIu64 "%c", whole + (tenths > 0), units[u]);
}

static void print_row(struct du *d, const char *path, const struct leat_tree_sum *sum)
{
	if (d->tt.t->json) {
		json_array_append_new(d->rows, json_pack("{s:o,s:I,s:I,s:I}", "path",
							 tool_json_text(path), "disk",
							 (json_int_t)sum->disk, "apparent",
							 (json_int_t)sum->apparent, "inodes",
							 (json_int_t)sum->inodes));
		return;
	}
	if (d->tt.progress.tty && d->tt.progress.drawn)
		fputs("\r\033[K", stderr);
	if (d->human && !d->inodes)
		print_human(value(d, sum));
	else
		printf("%" PRIu64, value(d, sum));
	putchar('\t');
	tool_write_name(path);
	putchar('\n');
}

static void on_dir(void *arg, const char *path, uint32_t depth, const struct leat_tree_sum *sum)
{
	struct tree_tool *tt = arg;
	struct du *d = (struct du *)((char *)tt - offsetof(struct du, tt));
	char *user = tree_user_path(tt->at, path);

	if (depth == 0) {
		d->all.disk += sum->disk;
		d->all.apparent += sum->apparent;
		d->all.inodes += sum->inodes;
	}
	print_row(d, user ? user : path, sum);
	free(user);
}

static int count_all(struct du *d, struct tool *t, char **texts, int n)
{
	struct tree_path *paths = calloc((size_t)n, sizeof(*paths));
	int code = paths ? EXIT_OK : EXIT_FAILED;

	tree_begin(&d->tt, t, "counting");
	d->tt.o.width = (uint32_t)d->width;
	d->rows = json_array();
	for (int i = 0; i < n && code == EXIT_OK; i++)
		code = tree_parse(t, texts[i], false, &paths[i]);
	if (code == EXIT_OK)
		code = tree_connect(&d->tt, paths, n, n);
	for (int i = 0; i < n && code == EXIT_OK; i++) {
		struct leat_tree_result r = {.size = sizeof(r)};
		struct leat_fs *fs = tree_at(&d->tt, &paths[i]);
		int rc = leat_tree_usage(fs, tree_name(&paths[i]), (uint32_t)d->max_depth, on_dir,
					 &d->tt.o, &r);

		if (!tree_took(&d->tt, rc, &r))
			break;
	}
	if (code == EXIT_OK && d->total && !interrupted())
		print_row(d, "total", &d->all);
	code = tree_end(&d->tt, code, json_pack("{s:o}", "usage", d->rows));
	free(paths);
	return code;
}

static int take_option(struct tool *t, struct du *d, int c)
{
	d->summary |= c == 's';
	d->human |= c == 'h';
	d->total |= c == 'c';
	d->inodes |= c == 'I';
	d->apparent |= c == 'A' || c == 'b';
	if (c == 'b' || c == 'k' || c == 'm')
		d->unit = c == 'b' ? 1 : c == 'k' ? 1024 : 1 << 20;
	if (c == 'd' && !parse_number_arg(t, "--max-depth", optarg, UINT32_MAX, &d->max_depth))
		return EXIT_USAGE;
	if (c == 'j' && !parse_number_arg(t, "--jobs", optarg, 1024, &d->width))
		return EXIT_USAGE;
	return c == '?' ? tool_usage(t, "wrong options") : EXIT_OK;
}

static int run(struct tool *t, int argc, char **argv)
{
	static const struct option longs[] = {
		{"summarize", no_argument, NULL, 's'},
		{"human-readable", no_argument, NULL, 'h'},
		{"bytes", no_argument, NULL, 'b'},
		{"total", no_argument, NULL, 'c'},
		{"apparent-size", no_argument, NULL, 'A'},
		{"inodes", no_argument, NULL, 'I'},
		{"max-depth", required_argument, NULL, 'd'},
		{"jobs", required_argument, NULL, 'j'},
		{NULL, 0, NULL, 0},
	};
	struct du d = {.unit = 1024, .max_depth = UINT32_MAX};
	char here[] = ".", *dot[] = {here};
	int c, code = EXIT_OK;

	while (code == EXIT_OK && (c = getopt_long(argc, argv, "shbkmcd:j:", longs, NULL)) != -1)
		code = take_option(t, &d, c);
	if (code != EXIT_OK)
		return code;
	if (d.summary)
		d.max_depth = 0;
	return optind < argc ? count_all(&d, t, argv + optind, argc - optind)
			     : count_all(&d, t, dot, 1);
}

const struct command command_du = {
	.name = "du",
	.summary = "the space that trees occupy",
	.usage =
		"usage: leat du [-s] [-d N] [-c] [-h|-b|-k|-m] [--apparent-size|--inodes] [-j N]\n"
		"               [PATH ...]\n"
		"Prints the space of the files below PATH, in KiB, for each directory after those "
		"in\n"
		"it. A file with several names counts once. PATH lies on a Leat mount, or is "
		"leat:/PATH.\n"
		"  -s, --summarize       only PATH itself\n"
		"  -d N, --max-depth N   directories down to this depth\n"
		"  -c, --total           also the sum of all PATHs\n"
		"  -h, -b, -k, -m        for people; bytes of size; KiB; MiB\n"
		"  --apparent-size       sizes, not the space that is occupied\n"
		"  --inodes              the number of inodes\n"
		"  -j N, --jobs N        requests in flight (64)\n"
		"Examples:\n"
		"  leat du -sh /mnt/leat/projects/*\n"
		"  leat du -d 1 --inodes /mnt/leat\n",
	.own_h = true,
	.run = run,
};
