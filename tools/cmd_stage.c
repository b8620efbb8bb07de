/* leat stage: verified copies of data sets in a local directory. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "tools/source.h"

struct stage_args {
	const char *to, *what;
	const char *catalog;
	uint64_t capacity, timeout_s;
	bool readback;
};

/* The options of all verbs; each takes what it knows. need_what: 1 one argument, 0 none, -1
 * perhaps. */
static int parse(struct tool *t, int argc, char **argv, int need_what, struct stage_args *a)
{
	static const struct option longs[] = {
		{"to", required_argument, NULL, 't'},
		{"catalog", required_argument, NULL, 'g'},
		{"capacity", required_argument, NULL, 'c'},
		{"timeout", required_argument, NULL, 'w'},
		{"verify", required_argument, NULL, 'v'},
		{NULL, 0, NULL, 0},
	};
	int c;

	*a = (struct stage_args){.to = getenv("LEAT_STAGE_DIR")};
	optind = 0;
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 't')
			a->to = optarg;
		else if (c == 'g')
			a->catalog = optarg;
		else if (c == 'v')
			a->readback = strcmp(optarg, "readback") == 0;
		else if (c == '?')
			return tool_usage(t, "%s: wrong options", argv[0]);
		if (c == 'v' && !a->readback && strcmp(optarg, "memory") != 0)
			return tool_usage(t, "--verify: memory or readback");
		if ((c == 'c' && !parse_size_arg(t, "--capacity", optarg, &a->capacity)) ||
		    (c == 'w' && !parse_number_arg(t, "--timeout", optarg, 4000000, &a->timeout_s)))
			return EXIT_USAGE;
	}
	if (!a->to || !*a->to)
		return tool_usage(t, "%s: --to DIRECTORY (or $LEAT_STAGE_DIR)?", argv[0]);
	a->what = argv[optind];
	if (argc - optind > (need_what != 0) || (need_what == 1 && !a->what))
		return tool_usage(t, a->what ? "%s: too many arguments" : "%s: of what?", argv[0]);
	return EXIT_OK;
}

/* A copy may be named by the directory it was made of; the library knows that by its own name. */
static int copy_name(const struct tool *t, const char *what, struct source *ret_source)
{
	return source_parse(t, what, ret_source);
}

/* ---- in, verify ---- */

static json_t *result_json(const struct leat_stage_result *r, const char *to)
{
	return json_pack("{s:s,s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:i,s:f}", "state",
			 leat_stage_state_text(LEAT_COPY_READY), "id", r->id, "to", to, "path",
			 r->path, "files", (json_int_t)r->files, "bytes", (json_int_t)r->bytes,
			 "bytes_verified", (json_int_t)r->bytes_verified, "bytes_moved",
			 (json_int_t)r->bytes_moved, "skipped", (int)r->skipped, "seconds",
			 (double)r->elapsed_us / 1e6);
}

static int report(const struct tool *t, const struct leat_stage_result *r, const char *to)
{
	char a[SIZE_TEXT], b[SIZE_TEXT], c[SIZE_TEXT];
	double seconds = (double)r->elapsed_us / 1e6;

	if (t->json)
		return tool_print_json(result_json(r, to));
	printf("READY: %" PRIu64 " files, %s, verified in %.2f s (%s/s), %s moved\n%s\n", r->files,
	       format_size(r->bytes, a), seconds,
	       format_size(seconds > 0 ? (uint64_t)((double)r->bytes / seconds) : 0, b),
	       format_size(r->bytes_moved, c), r->path);
	if (r->skipped)
		printf("%u links and special files were not copied\n", r->skipped);
	return EXIT_OK;
}

static int stage_in(struct tool *t, int argc, char **argv)
{
	static struct leat_stage_result r = {.size = sizeof(r)};
	struct leat_stage_options o;
	struct stage_args a;
	struct source source;
	struct progress p;
	struct leat_fs *fs = NULL;
	int code = parse(t, argc, argv, 1, &a), rc;

	if (code == EXIT_OK)
		code = source_parse(t, a.what, &source);
	if (code == EXIT_OK)
		code = source_connect(t, &source, &fs);
	if (code != EXIT_OK)
		return code;
	stage_options_init(&o, &p, "staging");
	o.fs = fs;
	o.source = source.name;
	o.catalog = a.catalog;
	o.to = a.to;
	o.capacity = a.capacity;
	o.timeout_ms = (uint32_t)a.timeout_s * 1000;
	o.readback = a.readback;
	rc = leat_stage_in(&o, &r);
	progress_finish(&p, rc < 0 || r.code ? 0 : r.bytes);
	if (fs)
		leat_close_fs(fs);
	return rc < 0 || r.code ? stage_failed(t, rc, &r) : report(t, &r, a.to);
}

static int stage_verify(struct tool *t, int argc, char **argv)
{
	static struct leat_stage_result r = {.size = sizeof(r)};
	struct leat_stage_options o;
	struct stage_args a;
	struct source source;
	struct progress p;
	int code = parse(t, argc, argv, 1, &a), rc;

	if (code == EXIT_OK)
		code = copy_name(t, a.what, &source);
	if (code != EXIT_OK)
		return code;
	stage_options_init(&o, &p, "verifying");
	o.to = a.to;
	rc = leat_stage_verify(&o, source.name, &r);
	progress_finish(&p, rc < 0 || r.code ? 0 : r.bytes);
	return rc < 0 || r.code ? stage_failed(t, rc, &r) : report(t, &r, a.to);
}

/* ---- status, ls ---- */

static json_t *copy_json(const struct leat_stage_copy *c)
{
	json_t *o = json_pack("{s:s,s:s,s:s,s:s,s:I,s:I,s:I,s:b}", "state",
			      leat_stage_state_text(c->state), "id", c->id, "source", c->source,
			      "path", c->path, "files", (json_int_t)c->files, "bytes",
			      (json_int_t)c->bytes, "bytes_verified", (json_int_t)c->bytes_verified,
			      "leased", c->leased != 0);

	if (c->name[0]) {
		json_object_set_new(o, "name", json_string(c->name));
		json_object_set_new(o, "version", json_string(c->version));
	}
	return o;
}

static void print_copy(const struct leat_stage_copy *c)
{
	char size[SIZE_TEXT], part[16] = "-";

	if (c->bytes)
		snprintf(part, sizeof(part), "%.0f%%",
			 100.0 * (double)c->bytes_verified / (double)c->bytes);
	printf("%-9s %5s %10s %8" PRIu64 "  %.12s  %s%s%s%s\n", leat_stage_state_text(c->state),
	       part, format_size(c->bytes, size), c->files, c->id, c->name[0] ? c->name : c->source,
	       c->name[0] ? "@" : "", c->name[0] ? c->version : "", c->leased ? "  (in use)" : "");
}

struct listing {
	const struct tool *t;
	json_t *copies;
};

static int list_one(void *arg, const struct leat_stage_copy *c)
{
	struct listing *l = arg;

	if (l->t->json)
		json_array_append_new(l->copies, copy_json(c));
	else
		print_copy(c);
	return interrupted();
}

static void print_header(const struct tool *t)
{
	if (!t->json)
		printf("%-9s %5s %10s %8s  %-12s  %s\n", "STATE", "DONE", "SIZE", "FILES", "ID",
		       "OF");
}

static int stage_ls(struct tool *t, int argc, char **argv)
{
	struct stage_args a;
	struct listing l = {.t = t};
	int code = parse(t, argc, argv, 0, &a), rc;

	if (code != EXIT_OK)
		return code;
	l.copies = json_array();
	print_header(t);
	rc = leat_stage_list(a.to, list_one, &l);
	if (rc < 0) {
		json_decref(l.copies);
		return stage_error(t, rc, a.to);
	}
	if (t->json)
		return tool_print_json(json_pack("{s:o}", "copies", l.copies));
	json_decref(l.copies);
	return EXIT_OK;
}

/* 0 when ready; 3 when it is there, but not ready. */
static int stage_status(struct tool *t, int argc, char **argv)
{
	static struct leat_stage_copy c = {.size = sizeof(c)};
	struct stage_args a;
	struct source source;
	int code = parse(t, argc, argv, -1, &a), rc;

	if (code != EXIT_OK)
		return code;
	if (!a.what)
		return stage_ls(t, argc, argv);
	code = copy_name(t, a.what, &source);
	if (code != EXIT_OK)
		return code;
	rc = leat_stage_status(a.to, source.name, &c);
	if (rc < 0)
		return stage_error(t, rc, a.what);
	if (t->json) {
		tool_print_json(copy_json(&c));
	} else {
		print_header(t);
		print_copy(&c);
	}
	return c.state == LEAT_COPY_READY ? EXIT_OK : EXIT_NOT_READY;
}

/* ---- path, evict ---- */

static int stage_path(struct tool *t, int argc, char **argv)
{
	struct stage_args a;
	struct source source;
	char path[PATH_MAX];
	int code = parse(t, argc, argv, 1, &a), rc;

	if (code == EXIT_OK)
		code = copy_name(t, a.what, &source);
	if (code != EXIT_OK)
		return code;
	rc = leat_stage_path(a.to, source.name, path, sizeof(path));
	if (rc < 0)
		return stage_error(t, rc, a.what);
	if (t->json)
		return tool_print_json(json_pack("{s:s}", "path", path));
	puts(path);
	return EXIT_OK;
}

static int stage_evict(struct tool *t, int argc, char **argv)
{
	struct stage_args a;
	struct source source;
	int code = parse(t, argc, argv, 1, &a), rc;

	if (code == EXIT_OK)
		code = copy_name(t, a.what, &source);
	if (code != EXIT_OK)
		return code;
	rc = leat_stage_evict(a.to, source.name);
	if (rc < 0)
		return stage_error(t, rc, a.what);
	if (t->json)
		return tool_print_json(json_pack("{s:s,s:b}", "what", a.what, "evicted", 1));
	printf("%s evicted\n", a.what);
	return EXIT_OK;
}

static const struct {
	const char *name;
	int (*run)(struct tool *t, int argc, char **argv);
} verbs[] = {
	{"in", stage_in},     {"status", stage_status}, {"verify", stage_verify},
	{"path", stage_path}, {"ls", stage_ls},         {"evict", stage_evict},
};

static int run(struct tool *t, int argc, char **argv)
{
	if (argc < 2)
		return tool_usage(t, "in, status, verify, path, ls or evict?");
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		if (strcmp(argv[1], verbs[i].name) == 0)
			return verbs[i].run(t, argc - 1, argv + 1);
	return tool_usage(t, "no such verb: '%s'", argv[1]);
}

const struct command command_stage = {
	.name = "stage",
	.summary = "verified copies of data sets on local disks",
	.usage =
		"usage: leat stage in SOURCE --to DIR [--capacity SIZE] [--timeout SECONDS]\n"
		"                     [--verify memory|readback] [--catalog PATH]\n"
		"       leat stage status [WHAT] --to DIR     is it ready? (0 yes, 3 no)\n"
		"       leat stage ls --to DIR                the copies there are\n"
		"       leat stage path WHAT --to DIR         where its files are\n"
		"       leat stage verify WHAT --to DIR       reads every block again\n"
		"       leat stage evict WHAT --to DIR        removes it\n"
		"SOURCE: NAME@VERSION of a data set, a directory, or leat:/DIRECTORY of the\n"
		"namespace where it is not mounted. WHAT: the same, or an id (6 digits suffice).\n"
		"The copy is plain files; ready means that every block was verified and synced.\n"
		"Interrupted, even by kill -9, the same command goes on where it was.\n"
		"  --to DIR         local directory that holds copies (or $LEAT_STAGE_DIR)\n"
		"  --capacity SIZE  refuse when all copies there would exceed this\n"
		"  --timeout S      how long to wait for another process that makes the same copy\n"
		"  --verify HOW     readback: read everything back from the disk before ready\n"
		"  --catalog PATH   where data sets are looked up (leat:/.leat/datasets)\n"
		"Examples:\n"
		"  leat stage in imagenet@v1 --to /local/nvme\n"
		"  cd \"$(leat stage path imagenet@v1 --to /local/nvme)\"\n",
	.run = run,
};
