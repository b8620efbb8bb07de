/* SPDX-License-Identifier: Apache-2.0 */
/* leat scrub: starts and stops the scrubs of object servers, and prints their progress. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/cluster.h"

struct scrub_options {
	enum scrub_what what;
	uint64_t target; /* 0: all */
	int code;        /* the worst of all targets */
	json_t *rows;
};

static void format_time(int64_t ns, char *buf, size_t size)
{
	time_t t = (time_t)(ns / 1000000000);
	struct tm tm;

	if (ns == 0 || !gmtime_r(&t, &tm) || strftime(buf, size, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
		snprintf(buf, size, "-");
}

static void print_header(void)
{
	printf("%6s  %-8s %5s %10s %12s %8s %8s %8s %7s %10s  %s\n", "TARGET", "SCRUB", "DONE",
	       "CHUNKS", "BYTES", "DAMAGED", "REPAIRED", "LOST", "DIFFER", "UNCOMPARED", "SINCE");
}

static void print_row(uint32_t id, const struct oss_scrub_rep *r)
{
	uint64_t done = r->used ? r->bytes * 100 / r->used : 100;
	char bytes[SIZE_TEXT], since[32], percent[8] = "-";

	format_time(r->running ? r->began_ns : r->ended_ns, since, sizeof(since));
	if (r->running)
		snprintf(percent, sizeof(percent), "%" PRIu64 "%%", done > 99 ? 99 : done);
	printf("%6" PRIu32 "  %-8s %5s %10" PRIu64 " %12s %8" PRIu64 " %8" PRIu64 " %8" PRIu64
	       " %7" PRIu64 " %9" PRIu64 "%c  %s\n",
	       id,
	       r->running    ? "running"
	       : r->ended_ns ? "ended"
			     : "never",
	       percent, r->chunks, format_size(r->bytes, bytes), r->damaged, r->repaired,
	       r->unrepaired, r->differing, r->uncompared, r->moved ? '*' : ' ', since);
}

static json_t *row_json(uint32_t id, const struct oss_scrub_rep *r)
{
	return json_pack("{s:I,s:b,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b,s:I,s:I}", "target",
			 (json_int_t)id, "running", (int)r->running, "chunks",
			 (json_int_t)r->chunks, "bytes", (json_int_t)r->bytes, "used",
			 (json_int_t)r->used, "damaged", (json_int_t)r->damaged, "repaired",
			 (json_int_t)r->repaired, "unrepaired", (json_int_t)r->unrepaired,
			 "differing", (json_int_t)r->differing, "uncompared",
			 (json_int_t)r->uncompared, "moved", (int)r->moved, "began",
			 (json_int_t)(r->began_ns / 1000000000), "ended",
			 (json_int_t)(r->ended_ns / 1000000000));
}

/* Reports a target that does not answer. With --json it is a row of the one document. */
static void failed(struct cluster *c, struct scrub_options *o, const struct target_view *v, int rc)
{
	if (c->tool->json) {
		json_array_append_new(o->rows, json_pack("{s:I,s:s}", "target", (json_int_t)v->id,
							 "error", status_text(rc)));
		o->code = exit_of_status(rc);
		return;
	}
	o->code = tool_error(c->tool, exit_of_status(rc), "`leat status` shows which servers "
							  "answer.",
			     "target %u: %s", v->id, status_text(rc));
}

static int scrub_cluster(struct cluster *c, void *arg)
{
	struct scrub_options *o = arg;
	bool found = false;

	TRY(cluster_fetch(c, 0));
	if (!c->tool->json)
		print_header();
	for (uint32_t i = 0; i < c->n_targets; i++) {
		struct target_view *v = &c->targets[i];
		struct oss_scrub_req req = {o->what};
		struct oss_scrub_rep rep = {0};
		int rc;

		if (o->target && v->id != o->target)
			continue;
		found = true;
		rc = cluster_target_call(c, v, OP_oss_scrub, &req, &rep);
		if (rc < 0)
			failed(c, o, v, rc);
		else if (c->tool->json)
			json_array_append_new(o->rows, row_json(v->id, &rep));
		else
			print_row(v->id, &rep);
		/* A block that is damaged on every member cannot be repaired by another scrub. */
		if (rc == 0 && rep.unrepaired && o->code == EXIT_OK)
			o->code = EXIT_LOCAL_CORRUPT;
	}
	if (!found && o->target)
		o->code = tool_error(c->tool, EXIT_MISSING, "`leat status` lists the targets.",
				     "target %" PRIu64 " does not exist", o->target);
	return 0;
}

static bool parse_what(const char *word, enum scrub_what *ret_what)
{
	if (strcmp(word, "start") == 0)
		*ret_what = SCRUB_START;
	else if (strcmp(word, "stop") == 0)
		*ret_what = SCRUB_STOP;
	else if (strcmp(word, "status") == 0)
		*ret_what = SCRUB_STATUS;
	else
		return false;
	return true;
}

static int run(struct tool *t, int argc, char **argv)
{
	static const struct option longs[] = {{"target", required_argument, NULL, 't'},
					      {NULL, 0, NULL, 0}};
	struct scrub_options o = {.code = EXIT_OK};
	int c, code;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1)
		if (c != 't' || !parse_number_arg(t, "--target", optarg, UINT32_MAX, &o.target))
			return c == 't' ? EXIT_USAGE : tool_usage(t, "wrong options");
	if (argc - optind > 1)
		return tool_usage(t, "too many arguments");
	if (optind != argc - 1 || !parse_what(argv[optind], &o.what))
		return tool_usage(t, "give a verb: start, stop or status");
	code = tool_load_conf(t);
	if (code != EXIT_OK)
		return code;
	o.rows = json_array();
	code = cluster_run(t, 30000, scrub_cluster, &o);
	if (code == EXIT_OK && t->json)
		(void)tool_print_json(json_pack("{s:O}", "targets", o.rows));
	json_decref(o.rows);
	return code == EXIT_OK ? o.code : code;
}

const struct command command_scrub = {
	.name = "scrub",
	.summary = "verify all stored data, repair it from other copies",
	.usage = "usage: leat scrub start|stop|status [--target N]\n"
		 "Object servers read all their data, compare it with its checksums and with the "
		 "other\n"
		 "copies, and repair damaged blocks from good copies. A scrub continues after a\n"
		 "restart. Without --target: all targets. UNCOMPARED: chunks that were not "
		 "compared\n"
		 "with a copy whose server was down or did not answer; with a * the members of "
		 "chains\n"
		 "have changed meanwhile, and another scrub compares the chunks that this one did "
		 "not.\n"
		 "Exit status 7: some blocks could not be repaired.\n"
		 "Examples:\n"
		 "  leat scrub start\n"
		 "  leat scrub status --target 3 --json\n",
	.run = run,
};
