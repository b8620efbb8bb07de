/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of commands that need no servers: findings of fsck, the options of `leat stage` for its
 * verbs, names of target states, mounts, and the data and the graph of `leat bench loader`. */
#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/assert.h"
#include "tests/unit/tools/run.h"
#include "tools/bench_loader_data.h"
#include "tools/bench_loader_plot.h"
#include "tools/bench_loader_run.h"
#include "tools/cluster.h"
#include "tools/cmd_config.h"
#include "tools/fsck.h"
#include "tools/mounts.h"
#include "tools/stage_args.h"

static struct tool tool = {.command = "unit"};

/* ---- fsck ---- */

static void init_fsck(struct fsck *f, struct cluster *c, const struct tool *t)
{
	*c = (struct cluster){.tool = t};
	*f = (struct fsck){
		.c = c, .findings = json_array(), .repairs = json_array(), .notes = json_array()};
}

static void fini_fsck(struct fsck *f)
{
	json_decref(f->findings);
	json_decref(f->repairs);
	json_decref(f->notes);
}

static void findings_are_counted_by_class(void **state)
{
	struct cluster c;
	struct fsck f;
	json_t *row;

	(void)state;
	init_fsck(&f, &c, &tool);
	assert_int_equal(fsck_found(&f, FSCK_links, NULL, "inode %d: link count %u", 5, 2u), 0);
	assert_int_equal(fsck_found(&f, FSCK_links, NULL, "inode 6"), 0);
	assert_int_equal(fsck_found(&f, FSCK_damaged, NULL, "inode 7"), 0);
	assert_int_equal(f.found[FSCK_links], 2);
	assert_int_equal(f.left[FSCK_links], 2);
	assert_int_equal(f.repaired[FSCK_links], 0);
	assert_int_equal(f.left[FSCK_damaged], 1);
	assert_int_equal(json_array_size(f.findings), 3);
	assert_int_equal(json_array_size(f.repairs), 0);
	row = json_array_get(f.findings, 0);
	assert_string_equal(json_string_value(json_object_get(row, "kind")), "links");
	assert_string_equal(json_string_value(json_object_get(row, "what")),
			    "inode 5: link count 2");
	fini_fsck(&f);
}

static void many_findings_are_counted_and_not_all_kept(void **state)
{
	struct cluster c;
	struct fsck f;

	(void)state;
	init_fsck(&f, &c, &tool);
	for (int i = 0; i < 10100; i++)
		assert_int_equal(fsck_found(&f, FSCK_orphans, NULL, "inode %d", i), 0);
	assert_int_equal(f.left[FSCK_orphans], 10100);
	assert_int_equal(json_array_size(f.findings), 10000);
	fini_fsck(&f);
}

static void a_note_is_taken_once(void **state)
{
	struct cluster c;
	struct fsck f;

	(void)state;
	init_fsck(&f, &c, &tool);
	fsck_note(&f, "chain %d", 1);
	fsck_note(&f, "chain %d", 2);
	fsck_note(&f, "chain %d", 1);
	assert_int_equal(json_array_size(f.notes), 2);
	assert_string_equal(json_string_value(json_array_get(f.notes, 1)), "chain 2");
	fini_fsck(&f);
}

static void print_one(void *arg)
{
	fsck_print_finding("entries", arg, ": repaired");
}

static void names_in_findings_are_printable(void **state)
{
	(void)state;
	assert_prints(print_one, "entry 'a\033b' in 1",
		      "entries: entry 'a\\x1bb' in 1: repaired\n");
}

static void going(void *arg)
{
	struct cluster c;
	struct fsck f;

	init_fsck(&f, &c, arg);
	progress_init(&f.progress, "fsck");
	assert_int_equal(fsck_going(&f, "entries", 5, 10), 0);
	assert_int_equal(fsck_going(&f, "entries", 15, 10), 0);
	fini_fsck(&f);
}

static void progress_is_for_people(void **state)
{
	struct tool json = {.command = "fsck", .json = true};

	(void)state;
	assert_says(going, &tool, "entries: 50% 5 of about 10\n");
	assert_says(going, &json, "");
}

static void each_class_has_a_name_and_a_text(void **state)
{
	unsigned repairable = 0;

	(void)state;
	for (int i = 0; i < FSCK_N_CLASSES; i++) {
		assert_true(strlen(fsck_classes[i].name) > 3);
		assert_true(strlen(fsck_classes[i].text) > 10);
		repairable += fsck_classes[i].mend;
	}
	assert_string_equal(fsck_classes[FSCK_copies].name, "copies");
	assert_int_equal(repairable, FSCK_N_CLASSES - 2);
	assert_false(fsck_classes[FSCK_missing].mend || fsck_classes[FSCK_damaged].mend);
}

/* ---- options of stage ---- */

static int run_nothing(struct tool *t, struct stage_args *a)
{
	(void)t;
	(void)a;
	return EXIT_OK;
}

static const struct stage_verb verb = {
	"in",
	run_nothing,
	"to capacity timeout verify order window wait detach max-rate lease ttl evict progress "
	"scheduler placement nodes agent unpack together listen skip catalog free follow dry-run "
	"replace share",
	1,
	2,
	true};

static struct stage_args args;

static int parse(const char *line)
{
	static char copy[1024];
	char *argv[40] = {"in"}, *save = NULL;
	int argc = 1;

	snprintf(copy, sizeof(copy), "%s", line);
	for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
		argv[argc++] = w;
	return stage_args_parse(&tool, &verb, argc, argv, &args);
}

static void options_reach_the_verb(void **state)
{
	(void)state;
	assert_int_equal(parse("--to /a --to /b --to /c src dst"), EXIT_OK);
	assert_string_equal(args.to, "/a");
	assert_int_equal(args.n_more, 2);
	assert_string_equal(args.more[1], "/c");
	assert_null(args.more[2]);
	assert_string_equal(args.what, "src");
	assert_string_equal(args.dest, "dst");
	assert_int_equal(parse("--to /a --capacity 2G --free 1K --window 4M --max-rate 1M src"),
			 EXIT_OK);
	assert_int_equal(args.capacity, 2ull << 30);
	assert_int_equal(args.free, 1024);
	assert_int_equal(args.window, 4 << 20);
	assert_int_equal(args.max_rate, 1 << 20);
	assert_null(args.dest);
	assert_int_equal(parse("--to /a --timeout 7 --ttl 8 --lease j --order o --catalog c x"),
			 EXIT_OK);
	assert_int_equal(args.timeout_s, 7);
	assert_int_equal(args.ttl_s, 8);
	assert_string_equal(args.lease, "j");
	assert_string_equal(args.order, "o");
	assert_string_equal(args.catalog, "c");
	assert_int_equal(parse("--to /a --detach --evict --unpack --replace --dry-run --follow "
			       "--share x"),
			 EXIT_OK);
	assert_true(args.detach && args.evict && args.unpack && args.replace && args.dry_run &&
		    args.follow && args.share);
	assert_int_equal(parse("--nodes n[1-2] --agent h:1 --together @ --listen h:2 x"), EXIT_OK);
	assert_string_equal(args.nodes, "n[1-2]");
	assert_string_equal(args.agent, "h:1");
	assert_string_equal(args.together, "@");
	assert_string_equal(args.listen, "h:2");
}

static void words_become_numbers(void **state)
{
	static const struct {
		const char *word;
		uint32_t placement, copies;
	} places[] = {
		{"replicate", 0, 1}, {"spread", 1, 1}, {"spread:3", 1, 3},
		{"partition", 2, 1}, {"auto", 3, 1},
	};
	char line[64];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		snprintf(line, sizeof(line), "--to /a --placement %s x", places[i].word);
		assert_int_equal(parse(line), EXIT_OK);
		assert_int_equal(args.placement, places[i].placement);
		assert_int_equal(args.copies, places[i].copies);
	}
	assert_int_equal(parse("--to /a --wait none --progress json --verify readback x"), EXIT_OK);
	assert_int_equal(args.wait, WAIT_NONE);
	assert_int_equal(args.progress, PROGRESS_JSON);
	assert_true(args.readback);
	assert_int_equal(parse("--to /a --wait first-window --progress plain --verify memory x"),
			 EXIT_OK);
	assert_int_equal(args.wait, WAIT_WINDOW);
	assert_int_equal(args.progress, PROGRESS_PLAIN);
	assert_false(args.readback);
	assert_int_equal(parse("--to /a --skip special x"), EXIT_OK);
	assert_int_equal(args.skip, LEAT_SKIP_SPECIAL);
}

static void a_scheduler_gets_success(void **state)
{
	(void)state;
	assert_int_equal(parse("--to /a x"), EXIT_OK);
	assert_int_equal(stage_exit(&args, EXIT_NO_SPACE), EXIT_NO_SPACE);
	assert_int_equal(parse("--to /a --scheduler pbs x"), EXIT_OK);
	assert_int_equal(stage_exit(&args, EXIT_NO_SPACE), EXIT_OK);
}

static void directories_may_come_from_the_environment(void **state)
{
	(void)state;
	setenv("LEAT_STAGE_DIR", "/x::/y", 1);
	assert_int_equal(parse("src"), EXIT_OK);
	assert_string_equal(args.to, "/x");
	assert_int_equal(args.n_more, 1);
	assert_string_equal(args.more[0], "/y");
	assert_int_equal(parse("--to /z src"), EXIT_OK);
	assert_string_equal(args.to, "/z");
	assert_int_equal(args.n_more, 0);
	unsetenv("LEAT_STAGE_DIR");
}

static void a_verb_has_whole_options(void **state)
{
	(void)state;
	assert_true(stage_verb_knows(&verb, "to"));
	assert_true(stage_verb_knows(&verb, "share"));
	assert_true(stage_verb_knows(&verb, "max-rate"));
	assert_false(stage_verb_knows(&verb, "rate"));
	assert_false(stage_verb_knows(&verb, "t"));
	assert_false(stage_verb_knows(&verb, "dry"));
}

/* ---- words and mounts ---- */

static void states_of_targets_have_words(void **state)
{
	(void)state;
	assert_string_equal(target_state_name(0), "new");
	assert_string_equal(target_state_name(1), "up");
	assert_string_equal(target_state_name(2), "down");
	assert_string_equal(target_state_name(77), "unknown");
	assert_string_equal(target_service_name(0), "in use");
	assert_string_equal(target_service_name(TARGET_DRAINING), "draining");
	assert_string_equal(target_service_name(TARGET_DRAINING | TARGET_BAD), "bad");
	assert_string_equal(target_service_name(TARGET_BAD | TARGET_REMOVED), "removed");
}

static void a_mount_takes_its_servers_along(void **state)
{
	struct leat_mount m = {.source = "h1:7440,h2:7440:/sub"};
	struct tool t = {.command = "unit"};

	(void)state;
	snprintf(t.cluster.mds, sizeof(t.cluster.mds), "conf:1");
	mount_take_cluster(&m, &t);
	assert_string_equal(t.cluster.mds, "h1:7440 h2:7440");
	/* mounted with the servers of leat.conf */
	snprintf(m.source, sizeof(m.source), "leat:/sub");
	mount_take_cluster(&m, &t);
	assert_string_equal(t.cluster.mds, "h1:7440 h2:7440");
}

static void other_file_systems_are_no_mounts(void **state)
{
	struct leat_inside in;
	struct leat_mount m;

	(void)state;
	assert_false(mount_of_path("/proc", &m));
	assert_false(mount_of_path("/no-such-path", &m));
	assert_false(mount_find("/proc", &m));
	assert_false(mount_inside("/proc", &in));
	assert_null(virtual_attribute("/proc", "leat.status"));
	assert_true(errno != 0);
	assert_null(mount_status("/no-such-path"));
}

static void judge_agent(void *arg)
{
	struct tool t = {.command = "agent", .conf = arg};

	leave(agent_config_check(&t));
}

static void an_agent_needs_a_good_configuration(void **state)
{
	struct run r = run_function(judge_agent, "/no-such/leat.conf");

	(void)state;
	assert_int_equal(r.code, EXIT_USAGE);
	run_fini(&r);
	assert_says(judge_agent, "/no-such/leat.conf",
		    "leat agent: /no-such/leat.conf: No such file or directory\n"
		    "  `leat config sample` prints every parameter with its range.\n");
}

/* ---- bench loader ---- */

static void workloads_have_the_shape_of_mlperf(void **state)
{
	const struct workload *w = workload_find("resnet50");

	(void)state;
	assert_non_null(w);
	assert_string_equal(w->format, "tfrecord");
	assert_int_equal(w->samples_per_file, 1251);
	assert_int_equal(w->batch, 400);
	assert_true(w->compute_s[ACCELERATOR_H100] < w->compute_s[ACCELERATOR_A100]);
	assert_string_equal(workload_find("unet3d")->format, "npz");
	assert_true(workload_find("cosmoflow")->goal < 0.9);
	assert_null(workload_find("bert"));
	assert_null(workload_find(""));
	assert_string_equal(accelerator_names[ACCELERATOR_A100], "a100");
}

static void percentiles_leave_out_first_steps(void **state)
{
	/* Two epochs of three steps, two accelerators. */
	float waits[] = {9, 9, 1, 2, 3, 4, 9, 9, 5, 6, 7, 8};
	struct loader_bench b = {.n_accelerators = 2};
	struct bench_result r = {.wait_s = waits, .n_steps = 3, .n_epochs = 2};

	(void)state;
	assert_true(bench_wait_percentile(&b, &r, 0) == 1);
	assert_true(bench_wait_percentile(&b, &r, 0.5) == 5);
	assert_true(bench_wait_percentile(&b, &r, 1) == 8);
}

static void made_data(void *arg)
{
	char path[PATH_MAX];
	struct loader_bench b = {.tool = &tool,
				 .w = workload_find(arg),
				 .n_accelerators = 1,
				 .steps = 2,
				 .scale = 0.001,
				 .seed = 7};
	struct stat st;

	assert_int_equal(bench_data_make(&b, "/tmp", path, sizeof(path)), EXIT_OK);
	assert_int_equal(stat(path, &st), 0);
	printf("%lu links\n", (unsigned long)st.st_nlink);
	bench_data_remove(path);
	assert_int_equal(access(path, F_OK), -1);
}

static void generated_data_is_removed(void **state)
{
	(void)state;
	assert_prints(made_data, "cosmoflow", "2 links\n");
}

static void too_large(void *arg)
{
	char path[PATH_MAX];
	struct loader_bench b = {.tool = &tool,
				 .w = workload_find("unet3d"),
				 .n_accelerators = 1,
				 .steps = 2,
				 .scale = 10};

	leave(bench_data_make(&b, arg, path, sizeof(path)));
}

static void bad_folder(void *arg)
{
	char path[PATH_MAX];
	struct loader_bench b = {.tool = &tool,
				 .w = workload_find("cosmoflow"),
				 .n_accelerators = 1,
				 .steps = 2,
				 .scale = 0.001};

	leave(bench_data_make(&b, arg, path, sizeof(path)));
}

static void data_that_cannot_be_made_has_a_reason(void **state)
{
	(void)state;
	assert_says(too_large, "/tmp",
		    "leat unit: --scale: samples of more than 2 GiB\n"
		    "  See: leat unit --help\n");
	assert_says(bad_folder, "/no-such-folder",
		    "leat unit: /no-such-folder: No such file or directory\n");
}

static void plot(void *arg)
{
	float waits[] = {1e-3f, 2e-4f, 5e-2f, 3e-6f};
	struct loader_bench b = {.tool = &tool,
				 .w = workload_find("unet3d"),
				 .type = ACCELERATOR_H100,
				 .n_accelerators = 1,
				 .scale = 1};
	struct bench_result r = {.wait_s = waits, .n_steps = 2, .n_epochs = 2};
	char path[64], line[512];
	FILE *f;

	(void)arg;
	snprintf(path, sizeof(path), "/tmp/leat-unit-%d.svg", (int)getpid());
	assert_int_equal(bench_plot(&b, &r, path), 0);
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		fputs(line, stdout);
	fclose(f);
	unlink(path);
	assert_int_equal(bench_plot(&b, &r, "/no-such-folder/x.svg"), -ENOENT);
}

static void the_waits_are_drawn(void **state)
{
	(void)state;
	assert_prints(plot, NULL,
		      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"960\" height=\"320\" "
		      "viewBox=\"0 0 960 320\">\n"
		      "<style>text{font:12px "
		      "sans-serif;fill:#333}.grid{stroke:#ddd}.epoch{stroke:#888;stroke-dasharr"
		      "ay:4 3}.compute{stroke:#c33}.wait{fill:#37a}</style>\n"
		      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
		      "<text x=\"70.0\" y=\"24.0\" text-anchor=\"start\">unet3d, 1 h100, scale "
		      "1: longest wait for a batch at each step</text>\n"
		      "<line x1=\"70.0\" y1=\"280.0\" x2=\"940.0\" y2=\"280.0\" "
		      "class=\"grid\"/>\n"
		      "<text x=\"64.0\" y=\"284.0\" text-anchor=\"end\">1 us</text>\n"
		      "<line x1=\"70.0\" y1=\"240.7\" x2=\"940.0\" y2=\"240.7\" "
		      "class=\"grid\"/>\n"
		      "<text x=\"64.0\" y=\"244.7\" text-anchor=\"end\">10 us</text>\n"
		      "<line x1=\"70.0\" y1=\"201.3\" x2=\"940.0\" y2=\"201.3\" "
		      "class=\"grid\"/>\n"
		      "<text x=\"64.0\" y=\"205.3\" text-anchor=\"end\">100 us</text>\n"
		      "<line x1=\"70.0\" y1=\"162.0\" x2=\"940.0\" y2=\"162.0\" "
		      "class=\"grid\"/>\n"
		      "<text x=\"64.0\" y=\"166.0\" text-anchor=\"end\">1 ms</text>\n"
		      "<line x1=\"70.0\" y1=\"122.7\" x2=\"940.0\" y2=\"122.7\" "
		      "class=\"grid\"/>\n"
		      "<text x=\"64.0\" y=\"126.7\" text-anchor=\"end\">10 ms</text>\n"
		      "<line x1=\"70.0\" y1=\"83.3\" x2=\"940.0\" y2=\"83.3\" class=\"grid\"/>\n"
		      "<text x=\"64.0\" y=\"87.3\" text-anchor=\"end\">100 ms</text>\n"
		      "<line x1=\"70.0\" y1=\"44.0\" x2=\"940.0\" y2=\"44.0\" class=\"grid\"/>\n"
		      "<text x=\"64.0\" y=\"48.0\" text-anchor=\"end\">1 s</text>\n"
		      "<text x=\"70.0\" y=\"296.0\" text-anchor=\"middle\">0</text>\n"
		      "<text x=\"287.5\" y=\"296.0\" text-anchor=\"middle\">1</text>\n"
		      "<text x=\"505.0\" y=\"296.0\" text-anchor=\"middle\">2</text>\n"
		      "<text x=\"722.5\" y=\"296.0\" text-anchor=\"middle\">3</text>\n"
		      "<text x=\"940.0\" y=\"296.0\" text-anchor=\"middle\">4</text>\n"
		      "<text x=\"505.0\" y=\"314.0\" text-anchor=\"middle\">step</text>\n"
		      "<line x1=\"505.0\" y1=\"44.0\" x2=\"505.0\" y2=\"280.0\" "
		      "class=\"epoch\"/>\n"
		      "<rect x=\"70.00\" y=\"162.0\" width=\"217.00\" height=\"118.0\" "
		      "class=\"wait\"/>\n"
		      "<rect x=\"287.50\" y=\"189.5\" width=\"217.00\" height=\"90.5\" "
		      "class=\"wait\"/>\n"
		      "<rect x=\"505.00\" y=\"95.2\" width=\"217.00\" height=\"184.8\" "
		      "class=\"wait\"/>\n"
		      "<rect x=\"722.50\" y=\"261.2\" width=\"217.00\" height=\"18.8\" "
		      "class=\"wait\"/>\n"
		      "<line x1=\"70.0\" y1=\"63.3\" x2=\"940.0\" y2=\"63.3\" "
		      "class=\"compute\"/>\n"
		      "<text x=\"940.0\" y=\"59.3\" text-anchor=\"end\">compute 323 ms</text>\n"
		      "</svg>\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(findings_are_counted_by_class),
		cmocka_unit_test(many_findings_are_counted_and_not_all_kept),
		cmocka_unit_test(a_note_is_taken_once),
		cmocka_unit_test(names_in_findings_are_printable),
		cmocka_unit_test(progress_is_for_people),
		cmocka_unit_test(each_class_has_a_name_and_a_text),
		cmocka_unit_test(options_reach_the_verb),
		cmocka_unit_test(words_become_numbers),
		cmocka_unit_test(a_scheduler_gets_success),
		cmocka_unit_test(directories_may_come_from_the_environment),
		cmocka_unit_test(a_verb_has_whole_options),
		cmocka_unit_test(states_of_targets_have_words),
		cmocka_unit_test(a_mount_takes_its_servers_along),
		cmocka_unit_test(other_file_systems_are_no_mounts),
		cmocka_unit_test(an_agent_needs_a_good_configuration),
		cmocka_unit_test(workloads_have_the_shape_of_mlperf),
		cmocka_unit_test(percentiles_leave_out_first_steps),
		cmocka_unit_test(generated_data_is_removed),
		cmocka_unit_test(data_that_cannot_be_made_has_a_reason),
		cmocka_unit_test(the_waits_are_drawn),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
