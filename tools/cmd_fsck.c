/* leat fsck: checks the whole file system while it is in use; repairs what it is told to. */
#include "tools/fsck.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/names.h"
#include "common/rt/loop.h"

/* Bits, as those of e2fsck(8); errors of the command itself are 8. */
enum {
	FSCK_CLEAN = 0,
	FSCK_REPAIRED = 1,
	FSCK_LEFT = 4,
	FSCK_FAILED = 8,
	FSCK_USAGE = 16,
	FSCK_INTERRUPTED = 32
};

#define CALL_MS        30000u
#define ROUNDS         5u
#define WINDOW_DEFAULT (1u << 20)
#define LISTED_MAX     10000u /* of what is wrong; all is counted */

static const struct {
	const char *name;
	bool mend;
	const char *text;
} classes[] = {
#define FSCK_ROW(name, mend, text) {#name, mend, text},
	FSCK_KINDS(FSCK_ROW)};

/* ---- what fsck.h promises ---- */

int fsck_call(struct fsck *f, uint16_t op, const void *req, void *rep, struct rpc_call *call)
{
	f->c->deadline_us = loop_deadline_ms(CALL_MS);
	return cluster_call(f->c, op, req, rep, call);
}

void fsck_cursor_fini(struct fsck_cursor *cur)
{
	if (cur->loaded)
		rpc_call_fini(&cur->call);
	cur->loaded = false;
}

static int load_page(struct fsck *f, struct fsck_cursor *cur)
{
	struct mds_fsck_page_req req = {f->snapshot, cur->kind, bytes_of(cur->from, cur->from_len),
					0};

	fsck_cursor_fini(cur);
	cur->rep = (struct mds_fsck_page_rep){0};
	cur->loaded = true;
	TRY(fsck_call(f, OP_mds_fsck_page, &req, &cur->rep, &cur->call));
	if (cur->rep.next.len > sizeof(cur->from))
		return -LE_BAD_MESSAGE;
	if (cur->rep.next.len)
		memcpy(cur->from, cur->rep.next.data, cur->rep.next.len);
	cur->from_len = cur->rep.next.len;
	cur->ended = cur->from_len == 0;
	cur->begun = true;
	f->snapshot = cur->rep.snapshot;
	f->next_ino = cur->rep.next_ino;
	f->n_inodes = cur->rep.n_inodes;
	wire_r_init(&cur->r, cur->rep.rows.data, cur->rep.rows.len);
	return 0;
}

int fsck_row(struct fsck *f, struct fsck_cursor *cur)
{
	while (!cur->loaded || wire_r_end(&cur->r)) {
		if (cur->begun && (cur->r.status < 0 || cur->ended))
			return cur->r.status;
		TRY(load_page(f, cur));
	}
	return 1;
}

void fsck_note(struct fsck *f, const char *fmt, ...)
{
	json_t *old;
	char text[300];
	va_list ap;
	size_t i;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	json_array_foreach(f->notes, i, old) if (strcmp(json_string_value(old), text) == 0) return;
	if (json_array_size(f->notes) < LISTED_MAX)
		json_array_append_new(f->notes, json_string(text));
}

int fsck_going(struct fsck *f, const char *what, uint64_t done, uint64_t total)
{
	char text[80];

	if (interrupted())
		return -LE_CANCELED;
	f->progress.what = what;
	snprintf(text, sizeof(text), "%" PRIu64 " of about %" PRIu64, done, total);
	if (!f->c->tool->json)
		progress_note(&f->progress, done, total > done ? total : done, text);
	return 0;
}

/* -LE_STALE: changed since the snapshot; the next round looks at it again. */
static int mend(struct fsck *f, const struct mds_fsck_repair_req *repair, bool *ret_done)
{
	struct mds_fsck_repair_rep rep = {0};
	struct rpc_call call;
	int rc = fsck_call(f, OP_mds_fsck_repair, repair, &rep, &call);

	rpc_call_fini(&call);
	*ret_done = rc == 0 && rep.done;
	f->again |= rc == 0 || rc == -LE_STALE;
	return rc == -LE_STALE || rc == -LE_EXIST || rc == -LE_TARGET_DOWN ? 0 : rc;
}

/* Names of files stand in it. */
static void print_finding(const char *kind, const char *text, const char *end)
{
	printf("%s: ", kind);
	tool_write_text(stdout, text);
	puts(end);
}

int fsck_found(struct fsck *f, enum fsck_class class, const struct mds_fsck_repair_req *repair,
	       const char *fmt, ...)
{
	bool done = false;
	char text[512];
	json_t *list, *row;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (repair && f->repair & 1u << class)
		TRY(mend(f, repair, &done));
	f->found[class]++;
	f->repaired[class] += done;
	f->left[class] += !done;
	list = done ? f->repairs : f->findings;
	if (json_array_size(list) < LISTED_MAX) {
		row = json_pack("{s:s}", "kind", classes[class].name);
		if (!row || name_json_set(row, "what", text) < 0) {
			json_decref(row);
			return -LE_NOMEM;
		}
		json_array_append_new(list, row);
	}
	if (done && !f->c->tool->json) {
		progress_finish(&f->progress, 0);
		print_finding(classes[class].name, text, ": repaired");
	}
	return 0;
}

/* ---- rounds ---- */

/* Everything once, out of a snapshot of its own. What was repaired stays counted. */
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
		json_object_set_new(o, classes[i].name,
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
		print_finding(json_string_value(json_object_get(v, "kind")), what, "");
	json_array_foreach(f->notes, i, v) printf("note: %s\n", json_string_value(v));
	if (f->busy)
		printf("note: %" PRIu64 " files are in use: their sizes could not be judged\n",
		       f->busy);
	if (f->unread)
		printf("note: %u copies of chains could not be read: files whose data is gone were "
		       "not looked for\n",
		       f->unread);
	for (int k = 0; k < FSCK_N_CLASSES; k++)
		if (f->left[k] || f->repaired[k])
			printf("%" PRIu64 " %s, %" PRIu64 " repaired%s%s\n",
			       f->left[k] + f->repaired[k], classes[k].text, f->repaired[k],
			       f->left[k] && classes[k].mend ? "; --repair=" : "",
			       f->left[k] && classes[k].mend ? classes[k].name : "");
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
		(void)tool_error(c->tool, FSCK_FAILED, "Run it again, alone.",
				 "another fsck has begun, or this one stood still for a minute");
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
			if (!classes[i].mend ||
			    (strcmp(w, classes[i].name) != 0 && strcmp(w, "all") != 0))
				continue;
			*ret_bits |= 1u << i;
			known = true;
		}
		if (!known) {
			(void)tool_usage(t, "--repair: '%s' is not known", w);
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
		(void)tool_usage(t, optind != argc ? "too many arguments" : "--window 0");
		return FSCK_USAGE;
	}
	return FSCK_CLEAN;
}

static int run(struct tool *t, int argc, char **argv)
{
	struct fsck f = {.window = WINDOW_DEFAULT};
	int code = parse(t, argc, argv, &f);

	if (code != FSCK_CLEAN)
		return code;
	if (tool_load_conf(t) != EXIT_OK)
		return FSCK_USAGE;
	f.findings = json_array();
	f.repairs = json_array();
	f.notes = json_array();
	catch_interrupts();
	code = cluster_run(t, CALL_MS, check, &f) == EXIT_OK ? f.code : FSCK_FAILED;
	json_decref(f.findings);
	json_decref(f.repairs);
	json_decref(f.notes);
	return code;
}

const struct command command_fsck = {
	.name = "fsck",
	.summary = "check the whole file system while it is in use",
	.usage = "usage: leat fsck [--repair WHAT[,WHAT...]] [--window N]\n"
		 "Compares inodes, directory entries, and the chunks of all copies, and says what\n"
		 "does not fit. Nothing is changed without --repair:\n"
		 "  --repair WHAT  entries, links, names, orphans, sizes, copies, or all\n"
		 "  --window N     inodes looked at together, about 90 bytes each (1048576)\n"
		 "Exit status, added up: 0 sound, 1 repaired, 4 errors are left, 8 not everything\n"
		 "could be checked, 16 wrong usage, 32 interrupted.\n"
		 "Examples:\n"
		 "  leat fsck\n"
		 "  leat fsck --repair=orphans,links --json\n",
	.run = run,
};
