/* SPDX-License-Identifier: Apache-2.0 */
/* leat layout: how the data of a file are distributed over targets, and the layout of new files in
 * a directory. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "common/rt/loop.h"
#include "tools/cluster.h"
#include "tools/mounts.h"
#include "tools/progress.h"

#define CHUNK_SIZE_MIN (64ULL << 10)
#define CHUNK_SIZE_MAX (64ULL << 20)
#define WIDTH_MAX      65536u
#define REPLICAS_MAX   3u

static uint64_t member(const json_t *o, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(o, name));
}

/* Parses "name=number name=number" into an object. */
static json_t *parse_layout(char *text)
{
	json_t *o = json_object();
	char *save = NULL;

	for (char *word = strtok_r(text, " \n", &save); word; word = strtok_r(NULL, " \n", &save)) {
		char *value = strchr(word, '=');

		if (!value)
			continue;
		*value++ = '\0';
		json_object_set_new(o, word, json_integer(strtoll(value, NULL, 10)));
	}
	json_object_set_new(
		o, "compression",
		json_string(member(o, "compression") == COMPRESSION_LZ4 ? "lz4" : "off"));
	return o;
}

/* Gets the layout of a path. Returns 0, or an exit status after a message. */
static int fetch(struct tool *t, const char *path, json_t **ret_layout)
{
	struct leat_mount m;
	struct stat st;
	char *text;

	if (stat(path, &st) < 0)
		return tool_error(t, exit_of_errno(errno), NULL, "%s: %m", path);
	if (!mount_of_path(path, &m))
		return tool_error(t, EXIT_MISSING,
				  "Layouts belong to files and directories of a Leat mount.",
				  "%s is not on a Leat mount", path);
	text = virtual_attribute(path, "leat.layout");
	if (!text)
		return tool_error(t, exit_of_errno(errno), NULL, "%s: %m", path);
	*ret_layout = parse_layout(text);
	free(text);
	json_object_set_new(*ret_layout, "path", tool_json_text(path));
	json_object_set_new(*ret_layout, "type",
			    json_string(S_ISDIR(st.st_mode) ? "directory" : "file"));
	return EXIT_OK;
}

static void print_layout(const json_t *o, const char *path)
{
	char size[SIZE_TEXT];
	uint64_t width = member(o, "width");
	bool dir = strcmp(json_string_value(json_object_get(o, "type")), "directory") == 0;

	/* 0 in a directory: the metadata server's default_chunk_size when a file is created. */
	tool_write_name(path);
	printf(": %s of %s over ", dir ? "new files get chunks" : "chunks",
	       member(o, "chunk_size") ? format_size(member(o, "chunk_size"), size)
				       : "the default size");
	if (width == 0)
		fputs("all chains", stdout);
	else
		printf("%" PRIu64 " chain%s", width, width == 1 ? "" : "s");
	if (member(o, "replicas") > 1)
		printf(" of %" PRIu64 " copies", member(o, "replicas"));
	if (strcmp(json_string_value(json_object_get(o, "compression")), "off") != 0)
		printf(", compressed with %s",
		       json_string_value(json_object_get(o, "compression")));
	if (dir)
		fputs(member(o, "inherited") ? " (inherited)" : " (set here)", stdout);
	else
		printf(", from position %" PRIu64 " of chain table %" PRIu64, member(o, "seed"),
		       member(o, "table"));
	putchar('\n');
}

static int get(struct tool *t, int argc, char **argv)
{
	json_t *all = json_array();
	int code = EXIT_OK;

	if (argc < 2)
		return tool_usage(t, "get: PATH is missing");
	for (int i = 1; i < argc && code == EXIT_OK; i++) {
		json_t *layout = NULL;

		code = fetch(t, argv[i], &layout);
		if (code == EXIT_OK && !t->json)
			print_layout(layout, argv[i]);
		if (code == EXIT_OK)
			json_array_append(all, layout);
		json_decref(layout);
	}
	if (t->json && code == EXIT_OK)
		return tool_print_json(json_pack("{s:o}", "layouts", all));
	json_decref(all);
	return code;
}

static int apply(struct tool *t, const char *path, const char *text)
{
	json_t *layout = NULL;
	int code = fetch(t, path, &layout); /* to report its errors first */

	json_decref(layout);
	if (code != EXIT_OK)
		return code;
	if (setxattr(path, "leat.layout", text, strlen(text), 0) < 0) {
		const char *hint =
			errno == ENODEV
				? "Copies lie on different hosts, and there are too few of them "
				  "(`leat status`)."
			: errno == EINVAL || errno == EBUSY || errno == ENOTEMPTY
				? "The layout of a file can be set only while it has no data; its "
				  "copies at any time: --replicas N --existing."
				: NULL;
		return tool_error(t, exit_of_errno(errno), hint, "%s: %m", path);
	}
	if (t->json)
		return EXIT_OK;
	code = fetch(t, path, &layout);
	if (code == EXIT_OK)
		print_layout(layout, path);
	json_decref(layout);
	return code;
}

static bool parse_compression(const char *arg, uint64_t *ret_value)
{
	bool lz4 = strcmp(arg, "lz4") == 0;

	*ret_value = lz4 ? COMPRESSION_LZ4 : COMPRESSION_OFF;
	return lz4 || strcmp(arg, "off") == 0;
}

/* ---- existing files ---- */

#define FOLLOW_US 300000u

struct following {
	const char *path;
	uint64_t inode, replicas;
	int code;
};

/* Returns the metadata server's record of the conversion, valid until the next fetch; NULL:
 * none. */
static const json_t *account(const struct cluster *c, const char *list, const struct following *f)
{
	const json_t *v;
	size_t i;

	json_array_foreach(json_object_get(c->mds_status, list), i, v)
	{
		if (member(v, "inode") == f->inode)
			return v;
	}
	return NULL;
}

/* Prints the outcome of the conversion. An unknown outcome is no success: the caller may be about
 * to rely on the copies. */
static int outcome(const struct cluster *c, const struct following *f)
{
	const json_t *now = account(c, "conversions", f);
	const json_t *end = now ? now : account(c, "conversions_ended", f);
	const char *how = json_string_value(json_object_get(end, "outcome"));

	if (!end)
		return tool_error(c->tool, EXIT_FAILED,
				  "Run the same command again to check; converted files are "
				  "skipped.",
				  "%s: the metadata server at %s does not know how its conversion "
				  "ended",
				  f->path, c->tool->cluster.mds);
	if (member(end, "replicas") != f->replicas)
		return tool_error(c->tool, EXIT_CANCELLED, NULL,
				  "%s: another command has requested %" PRIu64 " copies meanwhile",
				  f->path, member(end, "replicas"));
	if (how && strcmp(how, "complete") == 0)
		return EXIT_OK;
	return tool_error(c->tool, EXIT_CANCELLED, NULL,
			  "%s: not everything has %" PRIu64 " copies: it was %s", f->path,
			  f->replicas, how ? how : "ended");
}

static void conversion_text(const json_t *o, char *text, size_t size)
{
	char bytes[SIZE_TEXT];
	const char *error = json_string_value(json_object_get(o, "error"));

	snprintf(text, size,
		 "%" PRIu64 " files, %s converted, %" PRIu64 " seen, %" PRIu64
		 " in use or just written%s%s",
		 member(o, "converted"), format_size(member(o, "bytes"), bytes), member(o, "seen"),
		 member(o, "waiting"), error && *error ? "; " : "", error ? error : "");
}

/* Follows the conversion. The metadata server may be restarted meanwhile. */
static int follow(struct cluster *c, void *arg)
{
	struct following *f = arg;
	double gone_s = 0;
	const json_t *now;
	char text[300];
	struct progress p;
	int rc;

	progress_init(&p, "converting");
	for (;;) {
		c->deadline_us = loop_deadline_ms(10000);
		rc = cluster_fetch_mds(c);
		now = rc == 0 ? account(c, "conversions", f) : NULL;
		if (rc == 0 && (!now || member(now, "replicas") != f->replicas))
			break;
		if (rc == 0) {
			gone_s = 0;
			conversion_text(now, text, sizeof(text));
			if (!c->tool->json)
				progress_note(&p, 0, 0, text);
		} else if (exit_of_status(rc) == EXIT_PERMISSION) {
			return rc;
		} else if (gone_s == 0) {
			gone_s = now_s();
		} else if (now_s() - gone_s > 60) {
			return rc;
		}
		if (interrupted()) {
			progress_finish(&p, 0);
			f->code = tool_error(c->tool, EXIT_INTERRUPTED,
					     "The conversion continues without this command: "
					     "`leat status` shows it, `leat layout stop` ends it.",
					     "interrupted");
			return 0;
		}
		TRY(fiber_sleep_us(FOLLOW_US));
	}
	progress_finish(&p, 0);
	f->code = outcome(c, f);
	return 0;
}

static int ask(struct tool *t, const char *path, const char *text)
{
	json_t *layout = NULL;
	int code = fetch(t, path, &layout); /* to report its errors first */

	json_decref(layout);
	if (code != EXIT_OK || setxattr(path, "leat.layout", text, strlen(text), 0) == 0)
		return code;
	return tool_error(t, exit_of_errno(errno),
			  errno == EPERM || errno == EACCES ? "Only root may convert files."
			  : errno == EBUSY ? "A directory above it is being converted to another "
					     "number of copies (`leat status`)."
					   : NULL,
			  "%s: %m", path);
}

/* Converts everything at and below path to that many copies, and waits for it. */
static int convert(struct tool *t, const char *path, uint64_t replicas)
{
	struct following f = {.path = path, .replicas = replicas, .code = EXIT_OK};
	struct leat_mount m;
	struct stat st;
	char text[64];
	int code;

	snprintf(text, sizeof(text), "convert=1 replicas=%" PRIu64, replicas);
	code = ask(t, path, text);
	if (code != EXIT_OK)
		return code;
	if (stat(path, &st) < 0)
		return tool_error(t, exit_of_errno(errno), NULL, "%s: %m", path);
	f.inode = st.st_ino;
	catch_interrupts();
	code = tool_load_conf(t);
	if (code == EXIT_OK && mount_of_path(path, &m))
		mount_take_cluster(&m, t);
	if (code == EXIT_OK)
		code = cluster_run(t, 10000, follow, &f);
	return code == EXIT_OK ? f.code : code;
}

static int stop(struct tool *t, int argc, char **argv)
{
	int code = EXIT_OK;

	if (argc < 2)
		return tool_usage(t, "stop: PATH is missing");
	for (int i = 1; i < argc && code == EXIT_OK; i++)
		code = ask(t, argv[i], "convert=0");
	return code;
}

static int set(struct tool *t, int argc, char **argv)
{
	static const struct option longs[] = {
		{"width", required_argument, NULL, 'w'},
		{"chunk-size", required_argument, NULL, 'c'},
		{"replicas", required_argument, NULL, 'r'},
		{"compression", required_argument, NULL, 'z'},
		{"existing", no_argument, NULL, 'e'},
		{NULL, 0, NULL, 0},
	};
	uint64_t width = 0, chunk_size = 0, replicas = 0, compression = 0;
	bool existing = false;
	char text[128];
	int c, code = EXIT_OK;

	optind = 0;
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'w' && !parse_number_arg(t, "--width", optarg, WIDTH_MAX, &width))
			return EXIT_USAGE;
		if (c == 'c' && !parse_size_arg(t, "--chunk-size", optarg, &chunk_size))
			return EXIT_USAGE;
		if (c == 'r' && !parse_number_arg(t, "--replicas", optarg, REPLICAS_MAX, &replicas))
			return EXIT_USAGE;
		if (c == 'z' && !parse_compression(optarg, &compression))
			return tool_usage(t, "--compression: off or lz4");
		existing |= c == 'e';
		if (c == '?')
			return tool_usage(t, "set: wrong options");
	}
	if (!width && !chunk_size && !replicas && !compression)
		return tool_usage(t, "set: give --width (1 or more), --chunk-size, --replicas, "
				     "--compression");
	if (existing && (!replicas || width || chunk_size || compression))
		return tool_usage(t, "--existing goes with --replicas alone");
	if (chunk_size && (chunk_size < CHUNK_SIZE_MIN || chunk_size > CHUNK_SIZE_MAX ||
			   (chunk_size & (chunk_size - 1)) != 0))
		return tool_usage(t, "--chunk-size: a power of two from 64K to 64M");
	if (!argv[optind])
		return tool_usage(t, "set: PATH is missing");
	snprintf(text, sizeof(text),
		 "width=%" PRIu64 " chunk_size=%" PRIu64 " replicas=%" PRIu64
		 " compression=%" PRIu64,
		 width, chunk_size, replicas, compression);
	char **paths = argv + optind;
	int n = argc - optind;
	for (int i = 0; i < n && code == EXIT_OK; i++)
		code = existing ? convert(t, paths[i], replicas) : apply(t, paths[i], text);
	/* The new layout, in the form of `get`. */
	if (t->json && code == EXIT_OK)
		code = get(t, n + 1, paths - 1);
	return code;
}

static int run(struct tool *t, int argc, char **argv)
{
	if (argc >= 2 && strcmp(argv[1], "get") == 0)
		return get(t, argc - 1, argv + 1);
	if (argc >= 2 && strcmp(argv[1], "set") == 0)
		return set(t, argc - 1, argv + 1);
	if (argc >= 2 && strcmp(argv[1], "stop") == 0)
		return stop(t, argc - 1, argv + 1);
	return tool_usage(t, argc < 2 ? "give a verb: get, set or stop" : 
			"unknown verb '%s'; give get, set or stop",
			  argc < 2 ? "" : argv[1]);
}

const struct command command_layout = {
	.name = "layout",
	.summary = "how files are striped over the targets",
	.usage = "usage: leat layout get PATH ...\n"
		 "       leat layout set [--width N] [--chunk-size SIZE] [--replicas N]\n"
		 "                       [--compression off|lz4] PATH ...\n"
		 "       leat layout set --replicas N --existing PATH ...\n"
		 "       leat layout stop PATH ...\n"
		 "A file is divided into chunks, which are striped over N chains. The layout of "
		 "a\n"
		 "directory applies to files that are created in it later. The layout of a file "
		 "can be\n"
		 "set while it has no data; --existing converts files that have.\n"
		 "  --width N           chains of a file\n"
		 "  --chunk-size SIZE   a power of two from 64K to 64M\n"
		 "  --replicas N        copies of the data, 1 to 3, on different hosts\n"
		 "  --compression lz4   compress blocks if that saves space; off: do not\n"
		 "  --existing          convert existing files too, in the background: each "
		 "while\n"
		 "                      it is closed and has not changed for a minute. Ctrl-C "
		 "ends\n"
		 "                      the display of the progress, stop ends the conversion\n"
		 "Examples:\n"
		 "  leat layout get /mnt/leat/data\n"
		 "  leat layout set --width 4 --chunk-size 4M /mnt/leat/checkpoints\n"
		 "  leat layout set --replicas 2 --existing /mnt/leat/results\n",
	.run = run,
};
