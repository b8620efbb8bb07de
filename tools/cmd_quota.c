/* SPDX-License-Identifier: Apache-2.0 */
/* leat quota: limits the space and the number of inodes below a directory. */
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "common/base/names.h"
#include "common/proto/types.h"
#include "tools/mounts.h"
#include "tools/progress.h"
#include "tools/quota_list.h"

static uint64_t member(const json_t *o, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(o, name));
}

/* Returns the quota that path counts to; NULL with errno (ENODATA: none). */
static json_t *fetch(const char *path)
{
	char *text = virtual_attribute(path, "leat.quota"), *save = NULL;
	json_t *o;

	if (!text)
		return NULL;
	o = json_object();
	for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
		char *value = strchr(word, '=');

		if (!value)
			continue;
		*value++ = '\0';
		json_object_set_new(o, word, json_integer((json_int_t)strtoull(value, NULL, 10)));
	}
	json_object_set_new(o, "own", json_boolean(member(o, "own")));
	if (name_json_set(o, "path", path) < 0)
		json_object_clear(o);
	free(text);
	return o;
}

static int missing(struct tool *t, const char *path)
{
	struct leat_mount m;
	struct stat st;

	if (stat(path, &st) < 0)
		return tool_error(t, exit_of_errno(errno), NULL, "%s: %m", path);
	if (!mount_of_path(path, &m))
		return tool_error(t, EXIT_MISSING, NULL, "%s is not on a Leat mount", path);
	return EXIT_OK;
}

static void print_limits(const char *what, const json_t *o, const char *name, bool bytes)
{
	char key[3][32], text[3][SIZE_TEXT];
	uint64_t v[3];

	snprintf(key[0], sizeof(key[0]), "%s", name);
	snprintf(key[1], sizeof(key[1]), "%s_soft", name);
	snprintf(key[2], sizeof(key[2]), "%s_hard", name);
	for (int i = 0; i < 3; i++) {
		v[i] = member(o, key[i]);
		if (i > 0 && v[i] == 0)
			snprintf(text[i], SIZE_TEXT, "none");
		else if (bytes)
			format_size(v[i], text[i]);
		else
			snprintf(text[i], SIZE_TEXT, "%" PRIu64, v[i]);
	}
	printf("  %-7s %s used, limit %s, soft limit %s", what, text[0], text[2], text[1]);
	snprintf(key[0], sizeof(key[0]), "%s_over_s", name);
	if (v[1] != 0 && v[0] > v[1])
		printf(", exceeded for %" PRIu64 " s of %" PRIu64, member(o, key[0]),
		       member(o, "grace_s"));
	putchar('\n');
}

static int show(struct tool *t, int argc, char **argv)
{
	json_t *all = json_array();
	int code = EXIT_OK;

	if (argc < 2)
		return tool_usage(t, "show: PATH is missing");
	for (int i = 1; i < argc && code == EXIT_OK; i++) {
		json_t *o;

		code = missing(t, argv[i]);
		if (code != EXIT_OK)
			break;
		o = fetch(argv[i]);
		if (!o && errno != ENODATA)
			code = tool_error(t, exit_of_errno(errno), NULL, "%s: %m", argv[i]);
		else if (!o && !t->json)
			tool_write_name(argv[i]), puts(": no quota");
		if (o && !t->json) {
			tool_write_name(argv[i]);
			printf(": quota %" PRIu64 "%s\n", member(o, "project"),
			       json_is_true(json_object_get(o, "own")) ? ""
								       : " of a directory above");
			print_limits("space", o, "bytes", true);
			print_limits("inodes", o, "inodes", false);
		}
		if (o)
			json_array_append_new(all, o);
	}
	if (t->json && code == EXIT_OK)
		return tool_print_json(json_pack("{s:o}", "quotas", all));
	json_decref(all);
	return code;
}

/* ---- everything below a directory ---- */

/* The longest path that fts can hold; a new walk begins below that. */
#define WALK_PATH_MAX 32000u
/* Walks in a row that moved nothing and missed something. */
#define MISSED_MAX 5

struct adoption {
	struct tool *t;
	const char *again; /* the next step after an interruption */
	uint64_t project;  /* everything is to count to that */
	struct progress progress;
	uint64_t n_seen, n_moved; /* n_moved: inodes that counted to another one */
	bool missed;		  /* a directory was moved or removed during the walk */
};

/* Gets the project that path counts to (0: none), and whether its quota begins there. Returns 0, or
 * -1 with errno. Requests leat.quota, which the server answers: for a sealed file the client caches
 * the attributes for ever. */
static int counts_to(const char *path, uint64_t *ret_project, bool *ret_own)
{
	char text[512];
	ssize_t n = lgetxattr(path, "leat.quota", text, sizeof(text) - 1);
	unsigned int project = 0;
	int own = 0;

	if (n < 0 && errno != ENODATA)
		return -1;
	text[n < 0 ? 0 : n] = '\0';
	if (n >= 0 && sscanf(text, "project=%u own=%d ", &project, &own) != 2) {
		errno = EPROTO;
		return -1;
	}
	*ret_project = project;
	*ret_own = own != 0;
	return 0;
}

/* True if the file was removed, renamed or exchanged after fts found it. */
static bool is_gone(int err)
{
	return err == ENOENT || err == ENOTDIR || err == ELOOP;
}

static int walk(struct adoption *a, char *path);

static int adopt_one(struct adoption *a, FTS *fts, FTSENT *e)
{
	uint64_t project;
	char text[24];
	bool own;

	if (e->fts_info == FTS_DP) {
		a->missed |= e->fts_errno != 0; /* another file is in its place: not entered */
		return EXIT_OK;
	}
	errno = e->fts_errno;
	if (e->fts_info == FTS_ERR || e->fts_info == FTS_DNR || e->fts_info == FTS_NS)
		goto failed;
	if (e->fts_info == FTS_D && e->fts_pathlen > WALK_PATH_MAX) {
		fts_set(fts, e, FTS_SKIP);
		return walk(a, e->fts_accpath);
	}
	if (counts_to(e->fts_accpath, &project, &own) < 0)
		goto failed;
	if (project == a->project)
		return EXIT_OK;
	if (own) { /* another quota begins here */
		fts_set(fts, e, FTS_SKIP);
		return EXIT_OK;
	}
	snprintf(text, sizeof(text), "%" PRIu64, a->project);
	if (lsetxattr(e->fts_accpath, "leat.project", text, strlen(text), 0) < 0)
		goto failed;
	a->n_moved++;
	return EXIT_OK;

failed:
	if (!is_gone(errno))
		return tool_error(a->t, exit_of_errno(errno), a->again, "%s: %m", e->fts_path);
	a->missed |= e->fts_info != FTS_NS && S_ISDIR(e->fts_statp->st_mode);
	return EXIT_OK;
}

/* Moves everything at and below path to the project. A directory comes before its contents, so that
 * new files in it count already. fts enters each directory (no FTS_NOCHDIR) and checks that it is
 * the one it found: by a path, a link that replaces a directory could lead root out of the tree. */
static int walk(struct adoption *a, char *path)
{
	char *const paths[] = {path, NULL};
	FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_XDEV, NULL);
	int code = EXIT_OK;
	FTSENT *e;

	if (!fts)
		return tool_error(a->t, EXIT_FAILED, a->again, "%s: %m", path);
	/* fts sets FTS_NOCHDIR if it could not return to the present directory. */
	if ((fts->fts_options & FTS_NOCHDIR) != 0)
		code = tool_error(a->t, EXIT_FAILED, a->again, "%s: directories are nested "
							       "too deeply", path);
	while (code == EXIT_OK && (errno = 0, e = fts_read(fts)) != NULL) {
		char text[64];

		code = interrupted() ? tool_error(a->t, EXIT_INTERRUPTED, a->again, "interrupted")
				     : adopt_one(a, fts, e);
		snprintf(text, sizeof(text), "%" PRIu64 " inodes",
			 a->n_seen += e->fts_info != FTS_DP);
		if (!a->t->json)
			progress_update(&a->progress, 0, 0, text);
	}
	/* fts cannot return from a directory that was moved meanwhile. */
	if (code == EXIT_OK && is_gone(errno))
		a->missed = true;
	else if (code == EXIT_OK && errno != 0)
		code = tool_error(a->t, exit_of_errno(errno), a->again, "%s: %m", path);
	fts_close(fts);
	return code;
}

/* Repeats the walk until it moves nothing: an inode that is renamed during a walk may have no name
 * where the walk passes. ret_any: something was moved (may be NULL). */
static int adopt(struct tool *t, char *path, uint64_t project, const char *again, bool *ret_any)
{
	struct adoption a = {.t = t, .again = again, .project = project};
	bool any = false;
	int code, missed = 0;

	catch_interrupts();
	progress_init(&a.progress, "counting");
	do {
		a.n_moved = 0;
		a.missed = false;
		code = walk(&a, path);
		any |= a.n_moved > 0;
		missed = a.n_moved > 0 ? 0 : missed + 1;
	} while (code == EXIT_OK && (a.n_moved > 0 || (a.missed && missed < MISSED_MAX)));
	progress_finish(&a.progress, 0);
	if (code == EXIT_OK && a.missed)
		return tool_error(t, EXIT_PARTIAL, again,
				  "%s: directories were moved or removed during each pass", path);
	if (ret_any)
		*ret_any = any;
	return code;
}

static int refused(struct tool *t, const char *path)
{
	return tool_error(t, exit_of_errno(errno),
			  errno == EPERM     ? "Only root sets quotas."
			  : errno == ENODATA ? "The directory has no quota of its own."
					     : NULL,
			  "%s: %m", path);
}

static int set_one(struct tool *t, char *path, const char *text, bool all)
{
	char full[PATH_MAX];
	json_t *before, *after;
	uint64_t project;
	bool made;
	int code = missing(t, path);

	if (code != EXIT_OK)
		return code;
	if (!realpath(path, full))
		return tool_error(t, exit_of_errno(errno), NULL, "%s: %m", path);
	before = fetch(path);
	if (setxattr(path, "leat.quota", text, strlen(text), 0) < 0) {
		json_decref(before);
		return refused(t, path);
	}
	after = fetch(path);
	if (!after) {
		json_decref(before);
		return tool_error(t, exit_of_errno(errno), NULL, "%s: %m", path);
	}
	made = !before || member(before, "project") != member(after, "project");
	project = member(after, "project");
	json_decref(before);
	json_decref(after);
	if (!made && !all)
		return EXIT_OK;
	return adopt(t, full, project, "Run the command again with --adopt.", NULL);
}

static int set(struct tool *t, int argc, char **argv)
{
	static const struct option longs[] = {
		{"bytes", required_argument, NULL, 'b'},
		{"bytes-soft", required_argument, NULL, 'B'},
		{"inodes", required_argument, NULL, 'i'},
		{"inodes-soft", required_argument, NULL, 'I'},
		{"adopt", no_argument, NULL, 'a'},
		{NULL, 0, NULL, 0},
	};
	char text[256] = "";
	int c, code = EXIT_OK;
	bool all = false;

	optind = 1;
	while ((c = getopt_long(argc, argv, "+", longs, NULL)) != -1) {
		size_t len = strlen(text);
		uint64_t v = 0;

		if (c == '?')
			return tool_usage(t, "set: wrong options");
		if ((c == 'b' || c == 'B') &&
		    !parse_size_arg(t, c == 'b' ? "--bytes" : "--bytes-soft", optarg, &v))
			return EXIT_USAGE;
		if ((c == 'i' || c == 'I') &&
		    !parse_number_arg(t, c == 'i' ? "--inodes" : "--inodes-soft", optarg,
				      INT64_MAX, &v))
			return EXIT_USAGE;
		all |= c == 'a';
		if (c != 'a')
			snprintf(text + len, sizeof(text) - len, "%s_%s=%" PRIu64 " ",
				 c == 'b' || c == 'B' ? "bytes" : "inodes",
				 c == 'b' || c == 'i' ? "hard" : "soft", v);
	}
	if (!text[0] && !all)
		return tool_usage(t, "set: give --bytes, --bytes-soft, --inodes, --inodes-soft");
	if (!argv[optind])
		return tool_usage(t, "set: DIRECTORY is missing");
	for (int i = optind; i < argc && code == EXIT_OK; i++)
		code = set_one(t, argv[i], text, all);
	return code == EXIT_OK ? show(t, argc - optind + 1, argv + optind - 1) : code;
}

/* Gets the project of the parent directory. Fails at the root of the mount, which may be a subtree
 * of the file system: ".." leads elsewhere there. */
static int project_above(struct tool *t, const char *full, uint64_t *ret_project)
{
	char up[PATH_MAX + 4], *text;
	struct statx st;

	snprintf(up, sizeof(up), "%s/..", full);
	if (statx(AT_FDCWD, full, 0, STATX_INO, &st) < 0)
		return tool_error(t, exit_of_errno(errno), NULL, "%s: %m", full);
	*ret_project = 0;
	if (st.stx_ino == LEAT_ROOT_INO.v)
		return EXIT_OK; /* the root has no parent */
	if (!(st.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) ||
	    (st.stx_attributes & STATX_ATTR_MOUNT_ROOT))
		return tool_error(t, EXIT_FAILED, "Run this on a mount that includes the parent "
						  "directory.",
				  "%s: the parent directory is outside of this mount", full);
	text = virtual_attribute(up, "leat.project");
	if (!text)
		return tool_error(t, exit_of_errno(errno), NULL, "%s: %m", up);
	*ret_project = strtoull(text, NULL, 10);
	free(text);
	return EXIT_OK;
}

/* Removes a quota. What it counted counts to the quota of the parent directory, if that has one.
 * After an interruption the quota may be removed already, while inodes still count to it. */
static int rm_one(struct tool *t, char *path)
{
	char full[PATH_MAX];
	uint64_t project;
	bool had, any;
	int code = missing(t, path);

	if (code != EXIT_OK)
		return code;
	if (!realpath(path, full))
		return tool_error(t, exit_of_errno(errno), NULL, "%s: %m", path);
	code = project_above(t, full, &project);
	if (code != EXIT_OK)
		return code;
	had = setxattr(full, "leat.quota", "remove=1", 8, 0) == 0;
	if (!had && errno != ENODATA)
		return refused(t, path);
	code = adopt(t, full, project, "Run the command again.", &any);
	if (code == EXIT_OK && !had && !any) {
		errno = ENODATA;
		return refused(t, path);
	}
	return code;
}

static int rm(struct tool *t, int argc, char **argv)
{
	int code = EXIT_OK;

	if (argc < 2)
		return tool_usage(t, "rm: DIRECTORY is missing");
	for (int i = 1; i < argc && code == EXIT_OK; i++)
		code = rm_one(t, argv[i]);
	return t->json && code == EXIT_OK ? tool_print_json(json_object()) : code;
}

static int run(struct tool *t, int argc, char **argv)
{
	if (argc >= 2 && strcmp(argv[1], "show") == 0)
		return show(t, argc - 1, argv + 1);
	if (argc >= 2 && strcmp(argv[1], "set") == 0)
		return set(t, argc - 1, argv + 1);
	if (argc >= 2 && strcmp(argv[1], "rm") == 0)
		return rm(t, argc - 1, argv + 1);
	if (argc == 2 && strcmp(argv[1], "ls") == 0)
		return quota_list(t);
	if (argc > 2 && strcmp(argv[1], "ls") == 0)
		return tool_usage(t, "ls: too many arguments; `leat quota show PATH` shows one");
	return tool_usage(t, argc < 2 ? "give a verb: set, show, ls or rm" : 
			"unknown verb '%s'; give set, show, ls or rm",
			  argc < 2 ? "" : argv[1]);
}

const struct command command_quota = {
	.name = "quota",
	.summary = "limits for space and files of a directory",
	.usage = "usage: leat quota set [--bytes SIZE] [--bytes-soft SIZE] [--inodes N]\n"
		 "                      [--inodes-soft N] [--adopt] DIRECTORY ...\n"
		 "       leat quota show PATH ...\n"
		 "       leat quota ls\n"
		 "       leat quota rm DIRECTORY ...\n"
		 "Limits the space and the inodes below a directory, for all users together; 0: "
		 "no\n"
		 "limit. Existing files are counted. A quota below another one is separate from "
		 "it.\n"
		 "ls lists all quotas of the file system and needs no mount; users other than "
		 "root see\n"
		 "quotas of directories that they could find by listing.\n"
		 "  --bytes SIZE        space, as du counts it\n"
		 "  --inodes N          files, directories, links\n"
		 "  --bytes-soft SIZE, --inodes-soft N\n"
		 "                      may be exceeded for quota_grace_s (a week)\n"
		 "  --adopt             count the existing files again (after an interruption)\n"
		 "Examples:\n"
		 "  leat quota set --bytes 10T --inodes 5000000 /mnt/leat/projects/vision\n"
		 "  leat quota show /mnt/leat/projects/*\n"
		 "  leat quota ls\n",
	.run = run,
};
