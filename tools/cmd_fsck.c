/* SPDX-License-Identifier: Apache-2.0 */
/* leat fsck: checks the whole file system while it is in use, and repairs the classes of
 * --repair. */
#include <getopt.h>
#include <inttypes.h>
#include <string.h>

#include "common/base/names.h"
#include "tools/fsck.h"
#include "tools/fsck_data.h"
#include "tools/fsck_names.h"
#include "tools/progress.h"

/* Bits like those of e2fsck(8); errors of the command itself are 8. */
enum {
	FSCK_CLEAN = 0,
	FSCK_REPAIRED = 1,
	FSCK_LEFT = 4,
	FSCK_FAILED = 8,
	FSCK_USAGE = 16,
	FSCK_INTERRUPTED = 32
};

#define ROUNDS         5u
#define WINDOW_DEFAULT (1u << 20)

/* ---- rounds ---- */

/* Checks everything once, from a new snapshot. Adds to the counts of what was repaired. */
static int one_round(struct fsck *f)
{
	f->again = false;
	f->snapshot = f->busy = f->n_chunks = 0;
	memset(f->left, 0, sizeof(f->left));
	json_array_clear(f->findings);
	json_array_clear(f->notes);
	TRY(fsck_names(f));
	return fsck_data(f);
}

static uint64_t sum(const uint64_t v[FSCK_N_CLASSES])
{
	uint64_t n = 0;

	for (int i = 0; i < FSCK_N_CLASSES; i++)
		n += v[i];
	return n;
}

static json_t *counts_json(const struct fsck *f)
{
	json_t *o = json_object();

	for (int i = 0; i < FSCK_N_CLASSES; i++)
		json_object_set_new(o, fsck_classes[i].name,
				    json_pack("{s:I,s:I}", "left", (json_int_t)f->left[i],
					      "repaired", (json_int_t)f->repaired[i]));
	return o;
}

static void print_text(const struct fsck *f)
{
	const json_t *v;
	char what[512];
	size_t i;

	json_array_foreach(f->findings, i, v) if (name_json_get(v, "what", what, sizeof(what)))
		fsck_print_finding(json_string_value(json_object_get(v, "kind")), what, "");
	json_array_foreach(f->notes, i, v) printf("note: %s\n", json_string_value(v));
	if (f->busy)
		printf("note: %" PRIu64 " files are in use: their sizes were not checked\n",
		       f->busy);
	if (f->unread)
		printf("note: %u copies of chains could not be read: files without data were not "
		       "searched for\n",
		       f->unread);
	for (int k = 0; k < FSCK_N_CLASSES; k++)
		if (f->left[k] || f->repaired[k])
			printf("%" PRIu64 " %s, %" PRIu64 " repaired%s%s\n",
			       f->left[k] + f->repaired[k], fsck_classes[k].text, f->repaired[k],
			       f->left[k] && fsck_classes[k].mend ? "; --repair=" : "",
			       f->left[k] && fsck_classes[k].mend ? fsck_classes[k].name : "");
	printf("%" PRIu64 " inodes, %" PRIu64 " entries, %" PRIu64 " chunks: %s\n", f->n_inodes,
	       f->n_entries, f->n_chunks,
	       sum(f->left)       ? "NOT SOUND"
	       : sum(f->repaired) ? "sound now"
				  : "sound");
}

static int print(const struct fsck *f)
{
	if (!f->c->tool->json) {
		print_text(f);
		return 0;
	}
	return tool_print_json(
		json_pack("{s:b,s:I,s:I,s:I,s:I,s:I,s:o,s:O,s:O,s:O}", "sound", sum(f->left) == 0,
			  "inodes", (json_int_t)f->n_inodes, "entries", (json_int_t)f->n_entries,
			  "chunks", (json_int_t)f->n_chunks, "busy", (json_int_t)f->busy, "unread",
			  (json_int_t)f->unread, "counts", counts_json(f), "findings", f->findings,
			  "repairs", f->repairs, "notes", f->notes));
}

static int check(struct cluster *c, void *arg)
{
	struct fsck *f = arg;
	int rc = 0;

	f->c = c;
	TRY(cluster_fetch(c, 0));
	progress_init(&f->progress, "fsck");
	for (uint32_t i = 0; i < ROUNDS && rc == 0 && (i == 0 || f->again); i++)
		rc = one_round(f);
	progress_finish(&f->progress, 0);
	if (rc == -LE_CANCELED) {
		f->code = FSCK_INTERRUPTED;
		return 0;
	}
	if (rc == -LE_STALE || rc == -LE_BUSY) {
		(void)tool_error(c->tool, FSCK_FAILED, "Run `leat fsck` again while no other one "
						       "runs.",
				 "another fsck has started, or this one was stopped for a minute");
		f->code = FSCK_FAILED;
		return 0;
	}
	TRY(rc);
	f->code = (sum(f->left) ? FSCK_LEFT : 0) | (sum(f->repaired) ? FSCK_REPAIRED : 0) |
		  (f->unread ? FSCK_FAILED : 0);
	return print(f) == 0 ? 0 : -LE_IO;
}

/* ---- command line ---- */

static bool parse_repair(struct tool *t, char *words, uint32_t *ret_bits)
{
	char *save = NULL;

	for (char *w = strtok_r(words, ",", &save); w; w = strtok_r(NULL, ",", &save)) {
		bool known = false;

		for (int i = 0; i < FSCK_N_CLASSES; i++) {
			if (!fsck_classes[i].mend ||
			    (strcmp(w, fsck_classes[i].name) != 0 && strcmp(w, "all") != 0))
				continue;
			*ret_bits |= 1u << i;
			known = true;
		}
		if (!known) {
			(void)tool_usage(t, "--repair: unknown class '%s'", w);
			return false;
		}
	}
	return true;
}

static int parse(struct tool *t, int argc, char **argv, struct fsck *f)
{
	static const struct option longs[] = {{"repair", required_argument, NULL, 'r'},
					      {"window", required_argument, NULL, 'w'},
					      {NULL, 0, NULL, 0}};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'r') {
			if (!parse_repair(t, optarg, &f->repair))
				return FSCK_USAGE;
		} else if (c == 'w') {
			if (!parse_number_arg(t, "--window", optarg, 1u << 30, &f->window))
				return FSCK_USAGE;
		} else {
			(void)tool_usage(t, "wrong options");
			return FSCK_USAGE;
		}
	}
	if (optind != argc || f->window == 0) {
		(void)tool_usage(t, optind != argc ? "too many arguments" : 
				"--window must be at least 1");
		return FSCK_USAGE;
	}
	return FSCK_CLEAN;
}

static int run(struct tool *t, int argc, char **argv)
{
	struct fsck f = {.window = WINDOW_DEFAULT};
	int code;

	t->exit_error = FSCK_USAGE;
	code = parse(t, argc, argv, &f);
	if (code != FSCK_CLEAN)
		return code;
	if (tool_load_conf(t) != EXIT_OK)
		return FSCK_USAGE;
	t->exit_error = FSCK_FAILED;
	f.findings = json_array();
	f.repairs = json_array();
	f.notes = json_array();
	catch_interrupts();
	code = cluster_run(t, FSCK_CALL_MS, check, &f) == EXIT_OK ? f.code : FSCK_FAILED;
	json_decref(f.findings);
	json_decref(f.repairs);
	json_decref(f.notes);
	return code;
}

const struct command command_fsck = {
	.name = "fsck",
	.summary = "check the whole file system while it is in use",
	.usage = "usage: leat fsck [--repair WHAT[,WHAT...]] [--window N]\n"
		 "Compares inodes, directory entries, and the chunks of all copies, and prints "
		 "each\n"
		 "error. Nothing is changed without --repair:\n"
		 "  --repair WHAT  entries, links, names, orphans, sizes, copies, or all\n"
		 "  --window N     inodes in memory at a time, about 90 bytes each (1048576)\n"
		 "Exit status, added up: 0 sound, 1 repaired, 4 errors are left, 8 not "
		 "everything\n"
		 "could be checked, 16 wrong usage, 32 interrupted.\n"
		 "Examples:\n"
		 "  leat fsck\n"
		 "  leat fsck --repair=orphans,links --json\n",
	.run = run,
};
