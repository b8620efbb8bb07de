/* SPDX-License-Identifier: Apache-2.0 */
/* leat rm: removes files and trees, many concurrently. */
#include <getopt.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tools/tree.h"

struct rm {
	bool recursive, force;
	uint64_t width;
};

static bool is_dir(struct tree_tool *tt, const struct tree_path *p)
{
	struct leat_stat ls;
	struct stat st;

	if (p->servers)
		return leat_lstat(tt->fs, p->name, &ls) == 0 && S_ISDIR(ls.mode);
	return lstat(p->full, &st) == 0 && S_ISDIR(st.st_mode);
}

static const char *refuse(struct tree_tool *tt, const struct rm *rm, const struct tree_path *p)
{
	if (tree_ends_in(p->text, ".") || tree_ends_in(p->text, ".."))
		return "'.' and '..' are not removed";
	if (p->top)
		return "is the root of a file system";
	if (!rm->recursive && is_dir(tt, p))
		return "is a directory; give -r";
	return NULL;
}

static int remove_all(struct tool *t, const struct rm *rm, char **texts, int n)
{
	struct tree_path *paths = calloc((size_t)n, sizeof(*paths));
	struct tree_tool tt;
	int code = paths ? EXIT_OK : EXIT_FAILED, n_paths = 0;

	tree_begin(&tt, t, "removing");
	tt.o.width = (uint32_t)rm->width;
	tt.ignore_missing = rm->force;
	for (int i = 0; i < n && code == EXIT_OK; i++) {
		code = tree_parse(t, texts[i], rm->force, &paths[n_paths]);
		if (code == EXIT_OK)
			n_paths++;
		else if (code == EXIT_MISSING && rm->force)
			code = EXIT_OK; /* the next path uses its entry */
	}
	if (code == EXIT_OK)
		code = tree_connect(&tt, paths, n_paths, 0);
	for (int i = 0; i < n_paths && code == EXIT_OK; i++) {
		struct leat_tree_result r = {.size = sizeof(r)};
		struct leat_fs *fs = tree_at(&tt, &paths[i]);
		const char *why = refuse(&tt, rm, &paths[i]);

		if (why) {
			tree_fail(&tt, "cannot remove", paths[i].text, why);
			continue;
		}
		if (!tree_took(&tt, leat_tree_remove(fs, tree_name(&paths[i]), &tt.o, &r), &r))
			break;
	}
	code = tree_end(&tt, code, NULL);
	free(paths);
	return code;
}

static int run(struct tool *t, int argc, char **argv)
{
	static const struct option longs[] = {
		{"recursive", no_argument, NULL, 'r'},
		{"force", no_argument, NULL, 'f'},
		{"jobs", required_argument, NULL, 'j'},
		{NULL, 0, NULL, 0},
	};
	struct rm rm = {.width = 0};
	int c;

	while ((c = getopt_long(argc, argv, "rRfj:", longs, NULL)) != -1) {
		if (c == '?')
			return tool_usage(t, "wrong options");
		if (c == 'j' && !parse_number_arg(t, "--jobs", optarg, 1024, &rm.width))
			return EXIT_USAGE;
		rm.recursive |= c == 'r' || c == 'R';
		rm.force |= c == 'f';
	}
	if (optind == argc)
		return rm.force ? EXIT_OK : tool_usage(t, "PATH is missing");
	return remove_all(t, &rm, argv + optind, argc - optind);
}

const struct command command_rm = {
	.name = "rm",
	.summary = "remove files and trees concurrently",
	.usage =
		"usage: leat rm [-r] [-f] [-j N] PATH ...\n"
		"Removes files, and with -r directories with their contents, concurrently and "
		"without\n"
		"confirmation. PATH lies on a Leat mount, or is leat:/PATH in the namespace. A "
		"failure\n"
		"is reported, the other files are removed, and the exit status is 1.\n"
		"  -r, -R, --recursive  directories too\n"
		"  -f, --force          a missing file is no error\n"
		"  -j N, --jobs N       operations in flight (64)\n"
		"Examples:\n"
		"  leat rm -r /mnt/leat/run6\n"
		"  leat rm -rf leat:/scratch/old\n",
	.run = run,
};
