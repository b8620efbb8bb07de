/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leat bench loader: options → data set (made here if requested) → bench_run → report. Data that
 * were made here are removed, also after Ctrl-C.
 */
#include "tools/bench_loader.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "tools/bench_loader_data.h"
#include "tools/bench_loader_plot.h"
#include "tools/bench_loader_run.h"
#include "tools/source.h"

#define DEFAULT_STEPS 20u
#define MEMORY_MIN    ((uint64_t)256 << 20)
#define LOADER_DEPTH  6u /* the default of a loader */
#define EPOCHS_MAX    1000u
#define THREADS_MAX   16u

const char *const accelerator_names[ACCELERATORS] = {"a100", "h100"};

static const struct workload workloads[] = {
	{"unet3d", "npz", 1, 7, 146600628, 68341808, {0.636, 0.323}, 0.90},
	{"resnet50", "tfrecord", 1251, 400, 114660.07, 0, {0.435, 0.224}, 0.90},
	{"cosmoflow", "tfrecord", 1, 1, 2828486, 71311, {0.00551, 0.0035}, 0.70},
};

const struct workload *workload_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(workloads); i++) {
		if (strcmp(workloads[i].name, name) == 0)
			return &workloads[i];
	}
	return NULL;
}

/* ---- options ---- */

enum {
	OPT_WORKLOAD = 1,
	OPT_TYPE,
	OPT_N,
	OPT_SCALE,
	OPT_STEPS,
	OPT_EPOCHS,
	OPT_THREADS,
	OPT_DEPTH,
	OPT_MEMORY,
	OPT_SEED,
	OPT_ORDER,
	OPT_DATA,
	OPT_STAGE,
	OPT_PLOT,
	OPT_GENERATE,
	OPT_KEEP,
	OPT_COLD
};

static bool parse_workload(struct loader_bench *b, const char *text)
{
	b->w = workload_find(text);
	if (!b->w)
		tool_usage(b->tool, "--workload is unet3d, resnet50 or cosmoflow, not %s", text);
	return b->w != NULL;
}

static bool parse_type(struct loader_bench *b, const char *text)
{
	for (int i = 0; i < ACCELERATORS; i++) {
		if (strcmp(text, accelerator_names[i]) == 0) {
			b->type = (enum accelerator)i;
			return true;
		}
	}
	tool_usage(b->tool, "--type is a100 or h100, not %s", text);
	return false;
}

static bool parse_scale(struct loader_bench *b, const char *text)
{
	char *end;

	b->scale = strtod(text, &end);
	if (end != text && !*end && b->scale >= 1e-6 && b->scale <= 10)
		return true;
	tool_usage(b->tool, "--scale: '%s' is not a number from 0.000001 to 10", text);
	return false;
}

static bool parse_count(struct loader_bench *b, const char *name, uint64_t max, uint64_t *ret_n)
{
	if (!parse_number_arg(b->tool, name, optarg, max, ret_n))
		return false;
	if (*ret_n == 0)
		tool_usage(b->tool, "%s must be at least 1", name);
	return *ret_n > 0;
}

static bool take_option(struct loader_bench *b, int c)
{
	switch (c) {
	case OPT_WORKLOAD:
		return parse_workload(b, optarg);
	case OPT_TYPE:
		return parse_type(b, optarg);
	case OPT_N:
		return parse_count(b, "--accelerators", BENCH_ACCELERATORS_MAX, &b->n_accelerators);
	case OPT_SCALE:
		return parse_scale(b, optarg);
	case OPT_STEPS:
		return parse_count(b, "--steps", BENCH_STEPS_MAX, &b->steps);
	case OPT_EPOCHS:
		return parse_count(b, "--epochs", EPOCHS_MAX, &b->epochs);
	case OPT_THREADS:
		return parse_count(b, "--threads", THREADS_MAX, &b->threads);
	case OPT_DEPTH:
		return parse_count(b, "--depth", 64, &b->depth);
	case OPT_MEMORY:
		return parse_size_arg(b->tool, "--memory", optarg, &b->memory);
	case OPT_SEED:
		return parse_number_arg(b->tool, "--seed", optarg, UINT32_MAX, &b->seed);
	default:
		break;
	}
	const char **texts[] = {[OPT_ORDER] = &b->order,
				[OPT_DATA] = &b->data,
				[OPT_STAGE] = &b->stage_dir,
				[OPT_PLOT] = &b->plot};
	bool *flags[] = {
		[OPT_GENERATE] = &b->generate, [OPT_KEEP] = &b->keep, [OPT_COLD] = &b->cold};
	if (c >= OPT_ORDER && c <= OPT_PLOT)
		*texts[c] = optarg;
	else if (c >= OPT_GENERATE && c <= OPT_COLD)
		*flags[c] = true;
	else
		tool_usage(b->tool, "wrong options");
	return c >= OPT_ORDER && c <= OPT_COLD;
}

static int parse(struct loader_bench *b, int argc, char **argv)
{
	static const struct option longs[] = {
		{"workload", required_argument, NULL, OPT_WORKLOAD},
		{"type", required_argument, NULL, OPT_TYPE},
		{"accelerators", required_argument, NULL, OPT_N},
		{"scale", required_argument, NULL, OPT_SCALE},
		{"steps", required_argument, NULL, OPT_STEPS},
		{"epochs", required_argument, NULL, OPT_EPOCHS},
		{"threads", required_argument, NULL, OPT_THREADS},
		{"depth", required_argument, NULL, OPT_DEPTH},
		{"memory", required_argument, NULL, OPT_MEMORY},
		{"seed", required_argument, NULL, OPT_SEED},
		{"order", required_argument, NULL, OPT_ORDER},
		{"data", required_argument, NULL, OPT_DATA},
		{"stage-dir", required_argument, NULL, OPT_STAGE},
		{"plot", required_argument, NULL, OPT_PLOT},
		{"generate", no_argument, NULL, OPT_GENERATE},
		{"keep", no_argument, NULL, OPT_KEEP},
		{"cold", no_argument, NULL, OPT_COLD},
		{NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (!take_option(b, c))
			return EXIT_USAGE;
	}
	if (optind != argc)
		return tool_usage(b->tool, "unexpected argument '%s'", argv[optind]);
	if (!b->w)
		return tool_usage(b->tool, "--workload is missing: unet3d, resnet50 or cosmoflow");
	if (!b->data)
		return tool_usage(b->tool, "--data is missing: a directory or a data set");
	if (b->keep && !b->generate)
		return tool_usage(b->tool, "--keep is allowed only with --generate");
	if (b->generate && !b->steps)
		b->steps = DEFAULT_STEPS;
	if (b->generate && b->steps < 2)
		return tool_usage(b->tool, "--steps must be at least 2");
	return EXIT_OK;
}

/* Fails before the measurement rather than after it. */
static int check_plot(const struct loader_bench *b)
{
	char dir[PATH_MAX];

	snprintf(dir, sizeof(dir), "%s", b->plot);
	if (access(dirname(dir), W_OK) == 0)
		return EXIT_OK;
	return tool_error(b->tool, exit_of_errno(errno), NULL, "--plot: %s: %m", b->plot);
}

/* As much as the loaders fill by default, with some space for uneven samples. */
static uint64_t default_memory(const struct loader_bench *b)
{
	const struct workload *w = b->w;
	double sample = (w->record_mean + 2 * w->record_sd) * b->scale;
	uint64_t n = (uint64_t)(sample * w->batch) * (b->depth ? b->depth : LOADER_DEPTH);

	n = n < MEMORY_MIN ? MEMORY_MIN : n;
	return n * b->n_accelerators;
}

/* ---- the report ---- */

static double mean(const struct bench_result *r, size_t member)
{
	double sum = 0;

	for (uint64_t e = 0; e < r->n_epochs; e++)
		sum += *(const double *)((const char *)&r->epochs[e] + member);
	return r->n_epochs ? sum / (double)r->n_epochs : 0;
}
#define MEAN(r, member) mean(r, offsetof(struct epoch_result, member))

static json_t *epochs_json(const struct bench_result *r)
{
	json_t *list = json_array();

	for (uint64_t i = 0; i < r->n_epochs; i++) {
		const struct epoch_result *e = &r->epochs[i];
		json_array_append_new(
			list,
			json_pack("{s:f,s:f,s:f,s:f,s:f,s:I,s:I,s:I,s:I,s:I}", "au", e->au,
				  "au_nominal", e->au_nominal, "au_with_first_step", e->au_whole,
				  "seconds", e->seconds, "first_wait_s", e->first_wait_s, "samples",
				  (json_int_t)e->samples, "bytes_delivered", (json_int_t)e->bytes,
				  "bytes_from_servers", (json_int_t)e->from.servers,
				  "bytes_from_peers", (json_int_t)e->from.peers, "bytes_from_local",
				  (json_int_t)e->from.local));
	}
	return list;
}

static json_t *stalls_json(const struct bench_result *r)
{
	json_t *o = json_object();

	for (int i = 0; i < LEAT_STALLS; i++)
		json_object_set_new(o, leat_stall_name(i), json_real((double)r->stall_us[i] / 1e6));
	return o;
}

static uint64_t total_samples(const struct bench_result *r)
{
	uint64_t n = 0;

	for (uint64_t e = 0; e < r->n_epochs; e++)
		n += r->epochs[e].samples;
	return n;
}

static json_t *report_json(const struct loader_bench *b, const struct bench_result *r,
			   const struct leat_dataset_stat *st)
{
	double seconds = MEAN(r, seconds) * (double)r->n_epochs;
	json_t *o = json_pack("{s:s,s:s,s:I,s:f,s:s,s:s,s:I,s:I,s:I}", "workload", b->w->name,
			      "type", accelerator_names[b->type], "accelerators",
			      (json_int_t)b->n_accelerators, "scale", b->scale, "format",
			      st->format, "source", st->source, "samples", (json_int_t)st->samples,
			      "steps", (json_int_t)r->n_steps, "epochs", (json_int_t)r->n_epochs);
	json_t *figures = json_pack(
		"{s:f,s:f,s:f,s:f,s:b,s:f,s:f,s:f,s:f,s:f}", "au", MEAN(r, au), "au_nominal",
		MEAN(r, au_nominal), "au_with_first_step", MEAN(r, au_whole), "au_goal", b->w->goal,
		"meets", MEAN(r, au_nominal) >= b->w->goal, "samples_per_s",
		(double)total_samples(r) / seconds, "mib_per_s",
		(double)r->delivered / seconds / (1 << 20), "wait_p50_s",
		bench_wait_percentile(b, r, 0.5), "wait_p99_s", bench_wait_percentile(b, r, 0.99),
		"wait_max_s", bench_wait_percentile(b, r, 1));
	json_t *reads = json_pack(
		"{s:I,s:I,s:I,s:I,s:I,s:I}", "bytes_delivered", (json_int_t)r->delivered,
		"bytes_from_servers_per_epoch", (json_int_t)(r->from.servers / r->n_epochs),
		"bytes_from_peers_per_epoch", (json_int_t)(r->from.peers / r->n_epochs),
		"bytes_from_local_per_epoch", (json_int_t)(r->from.local / r->n_epochs),
		"bytes_from_disk", (json_int_t)r->from_disk, "memory", (json_int_t)r->memory);

	json_object_update(o, figures);
	json_object_update(o, reads);
	json_decref(figures);
	json_decref(reads);
	json_object_set_new(o, "stalls_s", stalls_json(r));
	json_object_set_new(o, "per_epoch", epochs_json(r));
	return o;
}

static const char *wait_text(double s, char buf[24])
{
	snprintf(buf, 24,
		 s < 1e-3 ? "%.0f us"
		 : s < 1  ? "%.1f ms"
			  : "%.2f s",
		 s < 1e-3 ? s * 1e6
		 : s < 1  ? s * 1e3
			  : s);
	return buf;
}

static void print_epochs(const struct bench_result *r)
{
	char wait[24];

	printf("\n%5s %12s %9s %16s %11s %11s\n", "epoch", "utilisation", "nominal",
	       "with first step", "samples/s", "first wait");
	for (uint64_t i = 0; i < r->n_epochs; i++) {
		const struct epoch_result *e = &r->epochs[i];
		printf("%5" PRIu64 " %10.2f %% %7.2f %% %14.2f %% %11.1f %11s\n", i, e->au * 100,
		       e->au_nominal * 100, e->au_whole * 100, (double)e->samples / e->seconds,
		       wait_text(e->first_wait_s, wait));
	}
}

static void print_stalls(const struct bench_result *r)
{
	const char *sep = "";

	printf("waited for   ");
	for (int i = 0; i < LEAT_STALLS; i++) {
		if (r->stall_us[i] < 1000)
			continue;
		printf("%s%s %.2f s", sep, leat_stall_name(i), (double)r->stall_us[i] / 1e6);
		sep = ", ";
	}
	printf("%s, of all accelerators together\n", *sep ? "" : "nothing");
}

static void print_report(const struct loader_bench *b, const struct bench_result *r,
			 const struct leat_dataset_stat *st)
{
	char a[24], c[24], d[24], size[SIZE_TEXT], from[SIZE_TEXT], peers[SIZE_TEXT],
		disk[SIZE_TEXT];
	bool server = strcmp(st->source, "server") == 0;
	uint64_t read = r->from.servers + r->from.peers + r->from.local;

	printf("%s on %" PRIu64 " emulated %s, scale %g: %" PRIu64 " samples of %s (%s, %s), "
	       "%" PRIu64 " steps of %u each\n",
	       b->w->name, b->n_accelerators, accelerator_names[b->type], b->scale, st->samples,
	       format_size(st->samples ? st->bytes / st->samples : 0, size), st->format, st->source,
	       r->n_steps, b->w->batch);
	print_epochs(r);
	printf("\nutilisation  %.2f %% (nominal %.2f %%; with each first step %.2f %%): "
	       "the goal of %.0f %% is %s\n",
	       MEAN(r, au) * 100, MEAN(r, au_nominal) * 100, MEAN(r, au_whole) * 100,
	       b->w->goal * 100, MEAN(r, au_nominal) >= b->w->goal ? "met" : "missed");
	printf("waits        p50 %s, p99 %s, longest %s (without first steps)\n",
	       wait_text(bench_wait_percentile(b, r, 0.5), a),
	       wait_text(bench_wait_percentile(b, r, 0.99), c),
	       wait_text(bench_wait_percentile(b, r, 1), d));
	print_stalls(r);
	printf("read         %s from %s per epoch (%s of it from other nodes), %.3f times what was "
	       "delivered; %s from this machine's disks in all\n",
	       format_size(read / r->n_epochs, from), server ? "the servers" : "local files",
	       format_size(r->from.peers / r->n_epochs, peers),
	       r->delivered ? (double)read / (double)r->delivered : 0.0,
	       format_size(r->from_disk, disk));
}

/* ---- the command ---- */

static int open_data(struct loader_bench *b, const char *what, struct leat_fs **ret_fs)
{
	static struct source source;
	struct leat_dataset_options o = {
		.size = sizeof(o), .threads = (uint32_t)b->threads, .stage_dir = b->stage_dir};
	int code = source_parse(b->tool, what, &source);

	if (code == EXIT_OK)
		code = source_connect(b->tool, &source, ret_fs);
	if (code != EXIT_OK)
		return code;
	o.fs = *ret_fs;
	int rc = leat_dataset_open(source.name, &o, &b->ds);
	if (rc < 0)
		return tool_error(b->tool, exit_of_status(rc), NULL, "%s: %s", what,
				  leat_last_error()->message);
	return EXIT_OK;
}

static int report(struct loader_bench *b, const struct bench_result *r)
{
	static struct leat_dataset_stat st = {.size = sizeof(st)};
	int rc = leat_dataset_stat(b->ds, &st);

	if (rc == 0 && b->plot)
		rc = bench_plot(b, r, b->plot);
	if (rc < 0)
		return tool_error(b->tool, exit_of_errno(-rc), NULL, "%s: %s",
				  b->plot ? b->plot : b->data, strerror(-rc));
	if (b->tool->json)
		return tool_print_json(report_json(b, r, &st));
	print_report(b, r, &st);
	return EXIT_OK;
}

static int run_on(struct loader_bench *b, const char *what)
{
	struct bench_result r = {0};
	struct leat_fs *fs = NULL;
	int code = open_data(b, what, &fs);

	if (code == EXIT_OK)
		code = bench_run(b, &r);
	if (code == EXIT_OK)
		code = report(b, &r);
	bench_result_fini(&r);
	leat_dataset_close(b->ds);
	if (fs)
		leat_close_fs(fs);
	return code;
}

int bench_loader(struct tool *t, int argc, char **argv)
{
	static struct loader_bench b;
	static char made[PATH_MAX];

	b = (struct loader_bench){.tool = t,
				  .type = ACCELERATOR_H100,
				  .n_accelerators = 1,
				  .epochs = 2,
				  .scale = 1,
				  .seed = 1};
	int code = parse(&b, argc, argv);
	if (code == EXIT_OK && b.plot)
		code = check_plot(&b);
	if (code != EXIT_OK)
		return code;
	if (!b.memory)
		b.memory = default_memory(&b);
	catch_interrupts();
	if (!b.generate)
		return run_on(&b, b.data);
	code = bench_data_make(&b, b.data, made, sizeof(made));
	if (code != EXIT_OK)
		return code;
	code = run_on(&b, made);
	if (!b.keep || code == EXIT_INTERRUPTED)
		bench_data_remove(made);
	else
		fprintf(stderr, "leat bench: the data is in %s\n", made);
	return code;
}
