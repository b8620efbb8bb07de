/* SPDX-License-Identifier: Apache-2.0 */
/* leat cp: copies files and trees, many concurrently, between the local file system and Leat and
 * within Leat. */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/tree.h"

struct cp {
	bool recursive, no_target_dir;
	unsigned keep;
	uint64_t width;
	struct tree_tool tt;
};

/* Returns 1 for a directory, 0 for another file, -1 if there is none. follow: a link at the end. */
static int is_dir(struct cp *cp, const struct tree_path *p, bool follow)
{
	struct leat_stat ls;
	struct stat st;
	int rc;

	if (p->servers) {
		rc = follow ? leat_stat(cp->tt.fs, p->name, &ls)
			    : leat_lstat(cp->tt.fs, p->name, &ls);
		return rc < 0 ? -1 : S_ISDIR(ls.mode);
	}
	rc = follow ? stat(p->full, &st) : lstat(p->full, &st);
	return rc < 0 ? -1 : S_ISDIR(st.st_mode);
}

/* Gets the target of one source: in the directory `to`, or `to` itself. */
static bool target_of(const struct tree_path *from, const char *to, bool into, char buf[PATH_MAX])
{
	const char *base = strrchr(tree_name(from), '/');

	if (!into)
		return snprintf(buf, PATH_MAX, "%s", to) < PATH_MAX;
	return snprintf(buf, PATH_MAX, "%s/%s", strcmp(to, "/") == 0 ? "" : to,
			base ? base + 1 : tree_name(from)) < PATH_MAX;
}

/* True if path is dir, or is below it. */
static bool is_below(const char *path, const char *dir)
{
	size_t n = strcmp(dir, "/") == 0 ? 0 : strlen(dir);

	return *dir && strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* If only one of the two is worked on at the servers, their paths decide: local ones always; those
 * in a namespace only if it is the same one. */
static bool is_into_itself(const struct tree_tool *tt, const struct tree_path *from,
			   const struct tree_path *to, bool into)
{
	char target[PATH_MAX];

	if (from->servers == to->servers)
		return false;
	if (*to->full && target_of(from, to->full, into, target) && is_below(target, from->full))
		return true;
	return *to->name && target_of(from, to->name, into, target) &&
	       is_below(target, from->name) && tree_servers_have(tt, from) &&
	       tree_servers_have(tt, to);
}

static bool copy_one(struct cp *cp, const struct tree_path *from, const struct tree_path *to,
		     bool into)
{
	struct leat_tree_result r = {.size = sizeof(r)};
	struct leat_tree_place a = {.path = tree_name(from)}, b = {.fs = tree_at(&cp->tt, to)};
	char target[PATH_MAX];
	bool dir = is_dir(cp, from, false) == 1;

	a.fs = tree_at(&cp->tt, from);
	if (dir && !cp->recursive) {
		tree_fail(&cp->tt, "cannot copy", from->text,
			  "is a directory; give -r");
		return true;
	}
	/* Like cp(1): copies the contents of the directory, not the directory. */
	into = into && !tree_ends_in(from->text, ".");
	if ((into && from->top) || !target_of(from, tree_name(to), into, target)) {
		tree_fail(&cp->tt, "cannot copy", from->text,
			  "has no name for its copy; give one with -T");
		return true;
	}
	if (is_into_itself(&cp->tt, from, to, into)) {
		tree_fail(&cp->tt, "cannot copy", from->text,
			  dir ? "would be copied into itself" : "is the same file as its copy");
		return true;
	}
	b.path = target;
	return tree_took(&cp->tt, leat_tree_copy(&a, &b, cp->keep, &cp->tt.o, &r), &r);
}

/* Parses the target. A link to a directory means that directory. */
static int parse_target(struct tool *t, const char *text, struct tree_path *ret_path)
{
	static char real[PATH_MAX];
	struct stat st;
	int code = tree_parse(t, text, false, ret_path);

	if (code != EXIT_OK || ret_path->forced || stat(text, &st) < 0 || !S_ISDIR(st.st_mode))
		return code;
	if (!realpath(text, real))
		return tool_error(t, exit_of_errno(errno), NULL, "%s: %m", text);
	code = tree_parse(t, real, false, ret_path);
	ret_path->text = text;
	return code;
}

static int copy_all(struct cp *cp, struct tool *t, char **texts, int n)
{
	struct tree_path *paths = calloc((size_t)n, sizeof(*paths));
	struct tree_path *to = paths ? &paths[n - 1] : NULL;
	int code = paths ? EXIT_OK : EXIT_FAILED, dir;

	tree_begin(&cp->tt, t, "copying");
	cp->tt.o.width = (uint32_t)cp->width;
	for (int i = 0; i < n - 1 && code == EXIT_OK; i++)
		code = tree_parse(t, texts[i], false, &paths[i]);
	if (code == EXIT_OK)
		code = parse_target(t, texts[n - 1], to);
	if (code == EXIT_OK)
		code = tree_connect(&cp->tt, paths, n, n - 1);
	if (code == EXIT_OK) {
		dir = is_dir(cp, to, true);
		if (cp->no_target_dir)
			dir = 0;
		if (n > 2 && dir != 1)
			code = tool_usage(t, "'%s' is not a directory", to->text);
		for (int i = 0; i < n - 1 && code == EXIT_OK; i++)
			if (!copy_one(cp, &paths[i], to, dir == 1))
				break;
	}
	code = tree_end(&cp->tt, code, NULL);
	free(paths);
	return code;
}

static int run(struct tool *t, int argc, char **argv)
{
	static const struct option longs[] = {
		{"recursive", no_argument, NULL, 'r'},
		{"archive", no_argument, NULL, 'a'},
		{"no-clobber", no_argument, NULL, 'n'},
		{"no-target-directory", no_argument, NULL, 'T'},
		{"jobs", required_argument, NULL, 'j'},
		{NULL, 0, NULL, 0},
	};
	struct cp cp = {.keep = 0};
	int c;

	while ((c = getopt_long(argc, argv, "rRapnTj:", longs, NULL)) != -1) {
		if (c == '?')
			return tool_usage(t, "wrong options");
		if (c == 'j' && !parse_number_arg(t, "--jobs", optarg, 1024, &cp.width))
			return EXIT_USAGE;
		cp.recursive |= c == 'r' || c == 'R' || c == 'a';
		cp.no_target_dir |= c == 'T';
		cp.keep |= c == 'a' ? LEAT_KEEP_ALL : 0u;
		cp.keep |= c == 'p' ? LEAT_KEEP_MODE | LEAT_KEEP_OWNER | LEAT_KEEP_TIMES : 0u;
		cp.keep |= c == 'n' ? LEAT_TREE_NEW_ONLY : 0u;
	}
	if (argc - optind < 2)
		return tool_usage(t, "FROM and TO are missing");
	if (cp.no_target_dir && argc - optind > 2)
		return tool_usage(t, "-T needs exactly one FROM and one TO");
	return copy_all(&cp, t, argv + optind, argc - optind);
}

const struct command command_cp = {
	.name = "cp",
	.summary = "copy files and trees concurrently",
	.usage =
		"usage: leat cp [-r] [-a] [-p] [-n] [-T] [-j N] FROM ... TO\n"
		"Copies files, and with -r directories, concurrently, from and to Leat mounts "
		"and\n"
		"the local file system; leat:/PATH is in the namespace. Links are copied as "
		"links,\n"
		"holes stay holes. A file gets its name when it is complete; an existing file is\n"
		"replaced, never written into. A failure is reported, the other files are "
		"copied,\n"
		"and the exit status is 1.\n"
		"  -r, -R, --recursive  directories too\n"
		"  -a, --archive        -r, and keep mode, owner, times, attributes, access "
		"lists,\n"
		"                       several names of a file\n"
		"  -p                   keep mode, owner and times\n"
		"  -n, --no-clobber     existing files stay\n"
		"  -T, --no-target-directory\n"
		"                       TO is the copy, even if it is a directory\n"
		"  -j N, --jobs N       operations in flight (64)\n"
		"Examples:\n"
		"  leat cp -a /data/pictures /mnt/leat/\n"
		"  leat cp -r leat:/run7 /local/results\n",
	.run = run,
};
