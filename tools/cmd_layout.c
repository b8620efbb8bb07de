/* leat layout: how a file is laid over the targets, and what new files of a directory get. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "tools/tool.h"

#define CHUNK_SIZE_MIN (64ULL << 10)
#define CHUNK_SIZE_MAX (64ULL << 20)
#define WIDTH_MAX      65536u
#define REPLICAS_MAX   3u

/* To set: 0 leaves what there is. */
enum {
	COMPRESSION_LZ4 = 1,
	COMPRESSION_OFF = 2
};

static uint64_t member(const json_t *o, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(o, name));
}

/* "name=number name=number" to an object. */
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

/* 0 or an exit status after a message. */
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
	json_object_set_new(*ret_layout, "path", json_string(path));
	json_object_set_new(*ret_layout, "type",
			    json_string(S_ISDIR(st.st_mode) ? "directory" : "file"));
	return EXIT_OK;
}

static void print_layout(const json_t *o, const char *path)
{
	char size[SIZE_TEXT];
	uint64_t width = member(o, "width");
	bool dir = strcmp(json_string_value(json_object_get(o, "type")), "directory") == 0;

	printf("%s: %s of %s over ", path, dir ? "new files get chunks" : "chunks",
	       format_size(member(o, "chunk_size"), size));
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
		return tool_usage(t, "get: which PATH?");
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
	int code = fetch(t, path, &layout); /* first, for its errors */

	json_decref(layout);
	if (code != EXIT_OK)
		return code;
	if (setxattr(path, "leat.layout", text, strlen(text), 0) < 0) {
		const char *hint =
			errno == ENODEV
				? "Copies lie on different hosts, and there are not that many "
				  "(`leat status`)."
			: errno == EINVAL || errno == EBUSY || errno == ENOTEMPTY
				? "The layout of a file can be set only while it has no data."
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

static int set(struct tool *t, int argc, char **argv)
{
	static const struct option longs[] = {
		{"width", required_argument, NULL, 'w'},
		{"chunk-size", required_argument, NULL, 'c'},
		{"replicas", required_argument, NULL, 'r'},
		{"compression", required_argument, NULL, 'z'},
		{NULL, 0, NULL, 0},
	};
	uint64_t width = 0, chunk_size = 0, replicas = 0, compression = 0;
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
		if (c == '?')
			return tool_usage(t, "set: wrong options");
	}
	if (!width && !chunk_size && !replicas && !compression)
		return tool_usage(t, "set: give --width (1 or more), --chunk-size, --replicas, "
				     "--compression");
	if (chunk_size && (chunk_size < CHUNK_SIZE_MIN || chunk_size > CHUNK_SIZE_MAX ||
			   (chunk_size & (chunk_size - 1)) != 0))
		return tool_usage(t, "--chunk-size: a power of two from 64K to 64M");
	if (!argv[optind])
		return tool_usage(t, "set: which PATH?");
	snprintf(text, sizeof(text),
		 "width=%" PRIu64 " chunk_size=%" PRIu64 " replicas=%" PRIu64
		 " compression=%" PRIu64,
		 width, chunk_size, replicas, compression);
	char **paths = argv + optind;
	int n = argc - optind;
	for (int i = 0; i < n && code == EXIT_OK; i++)
		code = apply(t, paths[i], text);
	/* What it has become, in the form of `get`. */
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
	return tool_usage(t, argc < 2 ? "get or set?" : "neither get nor set: '%s'",
			  argc < 2 ? "" : argv[1]);
}

const struct command command_layout = {
	.name = "layout",
	.summary = "how files are laid over the targets",
	.usage = "usage: leat layout get PATH ...\n"
		 "       leat layout set [--width N] [--chunk-size SIZE] [--replicas N]\n"
		 "                       [--compression off|lz4] PATH ...\n"
		 "A file is cut into chunks, laid over N chains in turn. Set on a directory, a\n"
		 "layout counts for what is created in it later; set on a file, the file must\n"
		 "have no data yet.\n"
		 "  --width N           how many chains\n"
		 "  --chunk-size SIZE   a power of two from 64K to 64M\n"
		 "  --replicas N        how many copies of the data, 1 to 3, on different hosts\n"
		 "  --compression lz4   blocks are compressed where that saves space; off: they "
		 "are\n"
		 "                      not\n"
		 "Examples:\n"
		 "  leat layout get /mnt/leat/data\n"
		 "  leat layout set --width 4 --chunk-size 4M /mnt/leat/checkpoints\n",
	.run = run,
};
