/* SPDX-License-Identifier: Apache-2.0 */
/* leat dataset: data sets, which are manifests with a name. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/assert.h"
#include "common/base/names.h"
#include "tools/left.h"
#include "tools/progress.h"
#include "tools/source.h"

#define FIELDS_SHOWN 8u

struct dataset_args {
	struct source catalog;
	const char *catalog_name; /* NULL: the default one */
	const char *format;       /* NULL: detected */
	unsigned skip;            /* enum leat_stage_skip */
	char **args;
	int n_args;
};

static int parse(struct tool *t, int argc, char **argv, int n_args, struct dataset_args *a)
{
	static const struct option longs[] = {
		{"catalog", required_argument, NULL, 'g'},
		{"format", required_argument, NULL, 'f'},
		{"skip", required_argument, NULL, 's'},
		{NULL, 0, NULL, 0},
	};
	int c, code;

	memset(a, 0, sizeof(*a));
	optind = 0;
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'f' && strcmp(argv[0], "create") == 0) {
			a->format = optarg;
			continue;
		}
		if (c == 's' && strcmp(argv[0], "create") == 0) {
			code = left_parse_skip(t, optarg, &a->skip);
			if (code != EXIT_OK)
				return code;
			continue;
		}
		if (c != 'g')
			return tool_usage(t, "%s: wrong options", argv[0]);
		code = source_parse(t, optarg, &a->catalog);
		if (code != EXIT_OK)
			return code;
		a->catalog_name = a->catalog.name;
	}
	a->args = argv + optind;
	a->n_args = argc - optind;
	if (a->n_args != n_args)
		return tool_usage(t, "%s needs %d arguments, not %d", argv[0], n_args, a->n_args);
	return EXIT_OK;
}

static json_t *fields_json(const struct leat_dataset_info *i)
{
	json_t *all = json_array();
	char names[sizeof(i->fields)], *rest = names, *name;

	memcpy(names, i->fields, sizeof(names));
	while ((name = strsep(&rest, "\n")) != NULL && i->n_fields)
		json_array_append_new(all, tool_json_text(name));
	return all;
}

static json_t *left_json(const struct leat_dataset_info *i)
{
	json_t *all = json_array();

	for (uint32_t k = 0; k < i->n_left; k++) {
		const struct leat_dataset_left *l = &i->left[k];

		json_array_append_new(all, json_pack("{s:s,s:o,s:o,s:I,s:I}", "why", l->why, "kind",
						     tool_json_text(l->kind), "first",
						     tool_json_text(l->first), "count",
						     (json_int_t)l->n, "bytes",
						     (json_int_t)l->bytes));
	}
	return all;
}

/* Returns the name of a user on this machine, or the number. */
static const char *user_name(uint32_t uid, char buf[64])
{
	const struct passwd *p = getpwuid(uid);

	if (p && p->pw_name[0] && strlen(p->pw_name) < 64)
		snprintf(buf, 64, "%s", p->pw_name);
	else
		snprintf(buf, 64, "%" PRIu32, uid);
	return buf;
}

/* Formats the time; returns false if it is unknown. utc: in the form of RFC 3339; else the local
 * time, to the minute. */
static bool made_time(const struct leat_dataset_info *i, bool utc, char buf[32])
{
	time_t s = (time_t)(i->made_ns / 1000000000);
	struct tm tm;

	if (i->made_ns <= 0 || !(utc ? gmtime_r(&s, &tm) : localtime_r(&s, &tm)))
		return false;
	return strftime(buf, 32, utc ? "%Y-%m-%dT%H:%M:%SZ" : "%Y-%m-%d %H:%M", &tm) > 0;
}

/* {"at":..,"uid":..,"user":..,"host":..}; null if unknown */
static json_t *made_json(const struct leat_dataset_info *i)
{
	char at[32], user[64];

	if (!made_time(i, true, at))
		return json_null();
	return json_pack("{s:s,s:I,s:o,s:o}", "at", at, "uid", (json_int_t)i->made_uid, "user",
			 tool_json_text(user_name(i->made_uid, user)), "host",
			 i->made_host[0] ? tool_json_text(i->made_host) : json_null());
}

static void print_made_by(const struct leat_dataset_info *i)
{
	char at[32] = "-", user[64], by[160] = "-";

	if (made_time(i, false, at))
		snprintf(by, sizeof(by), "%s%s%s", user_name(i->made_uid, user),
			 i->made_host[0] ? "@" : "", i->made_host);
	text_make_printable(by);
	printf("%-16s  %-20s  ", at, by);
}

static json_t *info_json(const struct leat_dataset_info *i)
{
	return json_pack("{s:s,s:s,s:s,s:o,s:I,s:I,s:I,s:s,s:i,s:o,s:i,s:o,s:b,s:b,s:b,s:o}",
			 "name", i->name, "version", i->version, "id", i->id, "source",
			 tool_json_text(i->source),
			 "files", (json_int_t)i->files, "bytes", (json_int_t)i->bytes, "samples",
			 (json_int_t)i->samples, "format", i->format, "n_fields", (int)i->n_fields,
			 "fields", fields_json(i), "classes", (int)i->n_classes, "left_out",
			 left_json(i), "sealed", i->sealed != 0, "damaged", i->damaged != 0,
			 "denied", i->denied != 0, "made", made_json(i));
}

static void print_info(const struct leat_dataset_info *i)
{
	char alias[300], size[SIZE_TEXT];

	snprintf(alias, sizeof(alias), "%s@%s", i->name, i->version);
	printf("%-24s %10s %8" PRIu64 " %10" PRIu64 " %-5s  %.12s  ", alias,
	       format_size(i->bytes, size), i->files, i->samples, i->format, i->id);
	print_made_by(i);
	tool_write_name(i->source);
	puts(i->denied	  ? "  (no permission)"
	     : i->damaged ? "  (damaged)"
	     : i->sealed  ? "  (sealed)"
			  : "");
}

static void print_header(const struct tool *t)
{
	if (!t->json)
		printf("%-24s %10s %8s %10s %-5s  %-12s  %-16s  %-20s  %s\n", "DATA SET", "SIZE",
		       "FILES", "SAMPLES", "FORM", "ID", "MADE", "BY", "SOURCE");
}

static void print_fields(const struct leat_dataset_info *i)
{
	char names[sizeof(i->fields)], *rest = names, *name;
	uint32_t n = 0;

	memcpy(names, i->fields, sizeof(names));
	printf("fields: ");
	while (n < FIELDS_SHOWN && (name = strsep(&rest, "\n")) != NULL) {
		fputs(n++ ? ", " : "", stdout);
		tool_write_name(name);
	}
	printf("%s\n", i->n_fields > n ? ", ..." : "");
}

static void print_left(const struct leat_dataset_left *l)
{
	static const char *const why[][2] = {
		{"hidden", "hidden, the name begins with a period"},
		{"format", "of another format"},
		{"beside", "beside the class folders, which have none of this kind"},
		{"member", "members of archives whose names give no key"},
	};

	printf("left out: %" PRIu64 "%s", l->n, l->kind[0] ? " ." : "");
	tool_write_name(l->kind);
	fputs(" (", stdout);
	tool_write_name(l->first);
	fputs(l->n > 1 ? ", ...)" : ")", stdout);
	for (size_t i = 0; i < ARRAY_SIZE(why); i++) {
		if (strcmp(l->why, why[i][0]) == 0)
			printf(": %s", why[i][1]);
	}
	putchar('\n');
}

static int print_one(const struct tool *t, const struct leat_dataset_info *i)
{
	if (t->json)
		return tool_print_json(info_json(i));
	print_header(t);
	print_info(i);
	if (i->n_fields)
		print_fields(i);
	if (i->n_classes)
		printf("classes: %" PRIu32 "\n", i->n_classes);
	for (uint32_t k = 0; k < i->n_left; k++)
		print_left(&i->left[k]);
	return EXIT_OK;
}

/* Prints the data set, and what of the tree it does not contain. */
static int print_made(const struct tool *t, const struct leat_dataset_info *i,
		      const struct leat_stage_result *r, unsigned skip)
{
	json_t *o = t->json ? info_json(i) : NULL;

	if (o)
		left_to_json(o, r);
	if (t->json) {
		tool_print_json(o);
	} else {
		print_one(t, i);
		left_print(r, skip);
	}
	return left_status(r, skip);
}

static int create(struct tool *t, int argc, char **argv)
{
	static struct leat_stage_result r = {.size = sizeof(r)};
	static struct leat_dataset_info info = {.size = sizeof(info)};
	struct leat_stage_options o;
	struct dataset_args a;
	struct source source;
	struct progress p;
	struct leat_fs *fs = NULL;
	int code = parse(t, argc, argv, 2, &a), rc;

	if (code == EXIT_OK)
		code = source_parse(t, a.args[1], &source);
	if (code == EXIT_OK && source.local && !a.catalog_name)
		code = tool_usage(t, "%s is not on a Leat mount; give --catalog DIRECTORY",
				  a.args[1]);
	if (code == EXIT_OK && a.catalog_name && a.catalog.local != source.local)
		code = tool_usage(
			t, "data set and catalogue must both be local or both in the namespace");
	if (code == EXIT_OK)
		code = source_connect(t, &source, &fs);
	if (code != EXIT_OK)
		return code;
	stage_options_init(&o, &p, "data set");
	o.fs = fs;
	o.source = source.name;
	o.catalog = a.catalog_name;
	o.format = a.format;
	rc = leat_dataset_create(&o, a.args[0], &info, &r);
	progress_finish(&p, 0);
	if (fs)
		leat_close_fs(fs);
	if (rc == -EEXIST)
		return tool_error(t, EXIT_FAILED, "Data sets never change: make another version.",
				  "%s exists already", a.args[0]);
	return rc < 0 || r.code ? stage_failed(t, rc, &r) : print_made(t, &info, &r, a.skip);
}

static int connect_catalog(struct tool *t, struct dataset_args *a, struct leat_fs **ret_fs)
{
	return source_connect(t, a->catalog_name ? &a->catalog : NULL, ret_fs);
}

struct listing {
	const struct tool *t;
	json_t *all;
};

static int list_one(void *arg, const struct leat_dataset_info *i)
{
	struct listing *l = arg;

	if (l->t->json)
		json_array_append_new(l->all, info_json(i));
	else
		print_info(i);
	return 0;
}

static int list(struct tool *t, int argc, char **argv)
{
	struct dataset_args a;
	struct listing l = {.t = t};
	struct leat_fs *fs = NULL;
	int code = parse(t, argc, argv, 0, &a), rc;

	if (code == EXIT_OK)
		code = connect_catalog(t, &a, &fs);
	if (code != EXIT_OK)
		return code;
	l.all = json_array();
	print_header(t);
	rc = leat_dataset_list(fs, a.catalog_name, list_one, &l);
	if (fs)
		leat_close_fs(fs);
	/* Without a catalogue there are no data sets: that is no error. */
	if (rc < 0 && rc != -ENOENT)
		code = stage_error(t, rc, a.catalog_name ? a.catalog_name : "the catalogue");
	else if (t->json)
		return tool_print_json(json_pack("{s:o}", "datasets", l.all));
	json_decref(l.all);
	return code;
}

static int show(struct tool *t, int argc, char **argv)
{
	static struct leat_dataset_info info = {.size = sizeof(info)};
	struct dataset_args a;
	struct leat_fs *fs = NULL;
	int code = parse(t, argc, argv, 1, &a), rc;

	if (code == EXIT_OK)
		code = connect_catalog(t, &a, &fs);
	if (code != EXIT_OK)
		return code;
	rc = leat_dataset_show(fs, a.catalog_name, a.args[0], &info);
	if (fs)
		leat_close_fs(fs);
	return rc < 0 ? stage_error(t, rc, a.args[0]) : print_one(t, &info);
}

static int seal(struct tool *t, int argc, char **argv)
{
	static struct leat_stage_result r = {.size = sizeof(r)};
	struct leat_stage_options o;
	struct dataset_args a;
	struct progress p;
	struct leat_fs *fs = NULL;
	int code = parse(t, argc, argv, 1, &a), rc;

	if (code == EXIT_OK && a.catalog_name && a.catalog.local)
		code = tool_usage(t, "only files of a Leat namespace can be sealed");
	if (code == EXIT_OK)
		code = connect_catalog(t, &a, &fs);
	if (code != EXIT_OK)
		return code;
	stage_options_init(&o, &p, "sealing");
	o.fs = fs;
	o.catalog = a.catalog_name;
	rc = leat_dataset_seal(&o, a.args[0], &r);
	progress_finish(&p, 0);
	leat_close_fs(fs);
	if (rc == -EBUSY)
		return tool_error(t, EXIT_FAILED, "Close the file, then run the command again.",
				  "%s", r.message);
	if (rc < 0 || r.code)
		return stage_failed(t, rc, &r);
	if (t->json)
		return tool_print_json(json_pack("{s:s,s:b,s:I}", "dataset", a.args[0], "sealed", 1,
						 "files", (json_int_t)r.files));
	printf("%s sealed: %" PRIu64 " files are immutable now\n", a.args[0], r.files);
	return EXIT_OK;
}

static int remove_one(struct tool *t, int argc, char **argv)
{
	struct dataset_args a;
	struct leat_fs *fs = NULL;
	int code = parse(t, argc, argv, 1, &a), rc;

	if (code == EXIT_OK)
		code = connect_catalog(t, &a, &fs);
	if (code != EXIT_OK)
		return code;
	rc = leat_dataset_remove(fs, a.catalog_name, a.args[0]);
	if (fs)
		leat_close_fs(fs);
	if (rc < 0)
		return stage_error(t, rc, a.args[0]);
	if (t->json)
		return tool_print_json(json_pack("{s:s,s:b}", "dataset", a.args[0], "removed", 1));
	printf("%s removed; its files stay\n", a.args[0]);
	return EXIT_OK;
}

static const struct {
	const char *name;
	int (*run)(struct tool *t, int argc, char **argv);
} verbs[] = {{"create", create}, {"ls", list}, {"show", show}, {"seal", seal}, {"rm", remove_one}};

static int run(struct tool *t, int argc, char **argv)
{
	if (argc < 2)
		return tool_usage(t, "give a verb: create, ls, show, seal or rm");
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		if (strcmp(argv[1], verbs[i].name) == 0)
			return verbs[i].run(t, argc - 1, argv + 1);
	return tool_usage(t, "unknown verb '%s'", argv[1]);
}

const struct command command_dataset = {
	.name = "dataset",
	.summary = "name data sets, list them",
	.usage = "usage: leat dataset create [--format FORMAT] [--skip WHAT] [--catalog PATH]\n"
		 "                           NAME@VERSION SOURCE\n"
		 "       leat dataset ls [--catalog PATH]\n"
		 "       leat dataset show NAME[@VERSION] [--catalog PATH]\n"
		 "       leat dataset seal NAME@VERSION [--catalog PATH]\n"
		 "       leat dataset rm NAME@VERSION [--catalog PATH]\n"
		 "A data set is a manifest of a directory: files, sizes, checksums, samples. It "
		 "never\n"
		 "changes. SOURCE: a directory on a mount, or leat:/DIRECTORY of the namespace.\n"
		 "seal makes its files immutable for ever, for all users (root may remove them).\n"
		 "rm removes the name, not the files.\n"
		 "  --catalog PATH   where data sets are kept (leat:/.leat/datasets)\n"
		 "  --format FORMAT  create: tar, tfrecord, mds, ffrecord, npz, npy (a sample "
		 "per\n"
		 "                   row), fixed:BYTES[+HEADER] or files; without it the format\n"
		 "                   of most bytes of the files\n"
		 "  --skip WHAT      create: links, special or links,special: links that lead "
		 "out\n"
		 "                   of the tree or to nothing, and devices, sockets, pipes, are\n"
		 "                   left out without exit status 5\n"
		 "create and show print format, samples, fields, and which files were left out\n"
		 "and why.\n"
		 "Example: leat dataset create imagenet@v1 /mnt/leat/imagenet\n",
	.run = run,
};
