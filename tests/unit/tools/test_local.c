/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that work on this machine alone, without servers: cp, rm, du, staging from a local
 * directory, and data sets in a local catalogue. What they print, and the structure of --json. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/assert.h"
#include "tests/unit/tools/run.h"

#define ID "4b37e460a62e9ffa368628a8208a8680ace9e4766283aea010345408c848b0b1"

static void assert_run(const char *lines, int code, const char *out)
{
	struct run r = run_lines(lines);

	if (r.code != code)
		fprintf(stderr, "%s\n%s", lines, r.err);
	assert_int_equal(r.code, code);
	assert_string_equal(r.out, out);
	run_fini(&r);
}

/* Asserts that standard output contains `start`. */
static void assert_line(const char *lines, int code, const char *start)
{
	struct run r = run_lines(lines);

	if (r.code != code || !strstr(r.out, start))
		fprintf(stderr, "%s\n%s%s", lines, r.out, r.err);
	assert_int_equal(r.code, code);
	assert_non_null(strstr(r.out, start));
	run_fini(&r);
}

/* Returns the last line's JSON, without members that differ from run to run. */
static json_t *json_of(const char *lines, int code)
{
	static const char *const vary[] = {"seconds", "free", "made", "used", "disk"};
	struct run r = run_lines(lines);
	json_error_t error;
	json_t *o = json_loads(r.out, 0, &error);

	if (!o || r.code != code)
		fprintf(stderr, "%s\n%s%s", lines, r.out, r.err);
	assert_int_equal(r.code, code);
	assert_non_null(o);
	for (size_t i = 0; i < ARRAY_SIZE(vary); i++)
		json_object_del(o, vary[i]);
	run_fini(&r);
	return o;
}

static void assert_json(const char *lines, int code, const char *expected)
{
	json_t *o = json_of(lines, code), *want = json_loads(expected, 0, NULL);

	assert_non_null(want);
	if (!json_equal(o, want))
		json_dumpf(o, stderr, 0);
	assert_true(json_equal(o, want));
	json_decref(o);
	json_decref(want);
}

/* ---- trees ---- */

static void cp_copies_files_and_trees(void **state)
{
	(void)state;
	assert_run("cp file new\ncp -T new file\ncp new copies\ndu --inodes copies", 0,
		   "2\tcopies\n");
	assert_run("cp -r dir copies\ndu --inodes copies", 0,
		   "2\tcopies/dir/sub\n4\tcopies/dir\n5\tcopies\n");
	assert_run("cp -rT dir new\ndu --inodes new", 0, "2\tnew/sub\n4\tnew\n");
	assert_run("cp -r dir/ copies/\ndu --inodes copies/dir", 0,
		   "2\tcopies/dir/sub\n4\tcopies/dir\n");
	assert_run("cp -r -p -j 2 dir file copies\ndu -s --inodes copies", 0, "6\tcopies\n");
	assert_run("cp --recursive --no-clobber --no-target-directory --jobs 3 dir dir2", 0, "");
	assert_run("cp -a -n dir copies", 0, "");
	assert_run("cp --archive dir copies", 0, "");
	assert_run("cp -R dir copies", 0, "");
}

static void cp_tells_programs_what_it_copied(void **state)
{
	(void)state;
	assert_json("--json cp -a dir copies", 0,
		    "{\"files\":2,\"directories\":2,\"bytes\":5001,\"via\":\"files\","
		    "\"n_failed\":0,\"failed\":[],\"interrupted\":false}");
	assert_json("--json cp none copies", 1,
		    "{\"files\":0,\"directories\":0,\"bytes\":0,\"via\":\"files\",\"n_failed\":1,"
		    "\"failed\":[{\"path\":\"none\",\"error\":\"no such file or directory\"}],"
		    "\"interrupted\":false}");
}

static void what_exists_is_replaced_or_left(void **state)
{
	(void)state;
	assert_run("cp -T dir/a file\ndu -b file", 0, "5000\tfile\n");
	assert_run("cp -nT dir/a file\ndu -b file", 0, "6\tfile\n");
}

static void rm_removes_files_and_trees(void **state)
{
	(void)state;
	assert_run("rm file\ndu -s --inodes file", 1, "");
	assert_run("rm -r dir copies\ndu dir", 1, "");
	assert_run("rm -rf dir none", 0, "");
	assert_run("rm --recursive --force --jobs 2 dir", 0, "");
	assert_run("rm -R dir", 0, "");
	/* the other files are removed nevertheless */
	assert_run("rm none file\ndu -s --inodes file", 1, "");
	assert_json("--json rm -r dir", 0,
		    "{\"files\":2,\"directories\":2,\"bytes\":0,\"via\":\"files\",\"n_failed\":0,"
		    "\"failed\":[],\"interrupted\":false}");
	assert_json("--json rm none file", 1,
		    "{\"files\":1,\"directories\":0,\"bytes\":0,\"via\":\"files\",\"n_failed\":1,"
		    "\"failed\":[{\"path\":\"none\",\"error\":\"no such file or directory\"}],"
		    "\"interrupted\":false}");
}

static void du_counts(void **state)
{
	(void)state;
	assert_run("du --inodes dir", 0, "2\tdir/sub\n4\tdir\n");
	assert_run("du --inodes -s dir", 0, "4\tdir\n");
	assert_run("du --inodes --summarize dir", 0, "4\tdir\n");
	assert_run("du --inodes -d 0 dir", 0, "4\tdir\n");
	assert_run("du --inodes --max-depth 1 dir", 0, "2\tdir/sub\n4\tdir\n");
	assert_run("du --inodes -c dir copies", 0, "2\tdir/sub\n4\tdir\n1\tcopies\n5\ttotal\n");
	assert_run("du --inodes --total -j 2 dir/sub file", 0, "2\tdir/sub\n1\tfile\n3\ttotal\n");
	assert_run("du --apparent-size -b file dir/a", 0, "6\tfile\n5000\tdir/a\n");
	assert_run("du --apparent-size -k file dir/a", 0, "1\tfile\n5\tdir/a\n");
	assert_run("du --apparent-size -m dir/a", 0, "1\tdir/a\n");
	assert_run("du --apparent-size -h file dir/a", 0, "6\tfile\n4.9K\tdir/a\n");
}

static void du_tells_programs_each_sum(void **state)
{
	json_t *o = json_of("--json du dir", 0), *usage, *row;

	(void)state;
	usage = json_object_get(o, "usage");
	assert_int_equal(json_array_size(usage), 2);
	row = json_array_get(usage, 0);
	assert_string_equal(json_string_value(json_object_get(row, "path")), "dir/sub");
	assert_int_equal(json_integer_value(json_object_get(row, "inodes")), 2);
	assert_true(json_is_integer(json_object_get(row, "disk")));
	row = json_array_get(usage, 1);
	assert_string_equal(json_string_value(json_object_get(row, "path")), "dir");
	assert_int_equal(json_integer_value(json_object_get(row, "inodes")), 4);
	assert_true(json_integer_value(json_object_get(row, "apparent")) >= 5001);
	json_decref(o);
}

/* ---- staging ---- */

#define IN "stage in dir --to ~/copies\n"

static void staging_makes_a_copy(void **state)
{
	(void)state;
	assert_line(IN, 0, "/s), 4.9 KiB moved\n~/copies/.leat/" ID "/data\n");
	assert_json("--json " IN, 0,
		    "{\"state\":\"READY\",\"id\":\"" ID "\",\"to\":\"~/copies\",\"path\":"
		    "\"~/copies/.leat/" ID "/data\",\"files\":2,\"bytes\":5001,"
		    "\"bytes_verified\":5001,\"bytes_moved\":5001,\"source\":5001,\"peers\":0,"
		    "\"skipped\":0,\"not_copied\":[],\"hard_links\":0,\"narrowed\":0}");
}

static void staging_takes_every_option(void **state)
{
	static const char *const options[] = {
		"--capacity 1G",
		"--timeout 100 --verify memory",
		"--verify readback --progress none",
		"--evict --lease job7 --ttl 10",
		"--max-rate 100M --progress plain",
		"--order seed=1,batch=2,world=1,rank=0,epoch=0,mode=global --window 1M",
		"--skip links,special --catalog ~/copies",
		"--wait ready --scheduler sge",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		char line[256];

		snprintf(line, sizeof(line), "stage in dir --to ~/copies %s", options[i]);
		assert_line(line, 0, "READY: 2 files");
	}
}

static void progress_may_be_an_object_a_line(void **state)
{
	struct run r = run_leat("stage in dir --to ~/copies --progress json");
	char *end = strchr(r.out, '\n');
	json_t *o;

	(void)state;
	assert_non_null(end);
	*end = '\0';
	o = json_loads(r.out, 0, NULL);
	assert_non_null(o);
	assert_string_equal(json_string_value(json_object_get(o, "event")), "progress");
	assert_true(json_is_string(json_object_get(o, "phase")));
	assert_true(json_is_integer(json_object_get(o, "bytes_total")));
	assert_true(json_is_number(json_object_get(o, "seconds")));
	json_decref(o);
	run_fini(&r);
}

static void a_plan_changes_nothing(void **state)
{
	(void)state;
	assert_line("stage plan dir --to ~/copies", 0, "2 files, 4.9 KiB; 4.9 KiB to be copied, ");
	assert_run("stage plan dir --to ~/copies\nstage ls --to ~/copies", 0,
		   "STATE       DONE       SIZE    FILES  ID            OF\n");
	assert_line("stage plan dir --to ~/copies --capacity 1000", 8,
		    "the copy does not fit: 3.9 KiB more needed\n");
	assert_json("--json stage plan dir --to ~/copies --capacity 1000", 8,
		    "{\"id\":\"" ID "\",\"files\":2,\"bytes\":5001,\"needed\":5001,\"evictable\":0,"
		    "\"missing\":4001,\"fits\":false}");
}

#define PATH "~/copies/.leat/" ID "/data\n"
#define ROW  "READY       100%    4.9 KiB        2  4b37e460a62e  ~/dir"

static const struct run_row list_rows[] = {
	{"stage in dir --to ~/copies", 0, "*READY: 2 files", ""},
	{"stage ls --to ~/copies", 0, "*" ROW "\n", ""},
	{"stage status dir --to ~/copies", 0, "*" ROW "\n", ""},
	{"stage path dir --to ~/copies", 0, PATH, ""},
	{"stage path 4b37e4 --to ~/copies", 0, PATH, ""},
	{"stage path 4b37e --to ~/copies", 9, "", NULL},
	{"stage path --share dir --to ~/copies", 0, PATH, ""},
	{"stage path file --to ~/copies", 9, "", NULL},
	{"--json stage path dir --to ~/copies", 0, "*\"path\":\"~/copies/.leat/" ID "/data\"", ""},
	{"--json stage status dir --to ~/copies", 0,
	 "*{\"state\":\"READY\",\"id\":\"" ID "\",\"files\":2,\"bytes\":5001,\"bytes_data\":5001,"
	 "\"bytes_verified\":5001,\"leased\":false,\"pinned\":false,\"used\":",
	 ""},
	{"--json stage ls --to ~/copies", 0, "*{\"copies\":[{\"state\":\"READY\"", ""},
	{"stage wait dir --to ~/copies --timeout 1 --wait first-window", 0, "*READY", ""},
	{"stage verify dir --to ~/copies --progress none", 0, "*READY: 2 files", ""},
	{"stage events --to ~/copies", 0, "*\"event\":\"READY\"", ""},
	/* the second time nothing is copied */
	{"stage in dir --to ~/copies", 0, "*, 0 B moved\n" PATH, ""},
	{"stage plan dir --to ~/copies", 0, "*2 files, 4.9 KiB; 0 B to be copied, ", ""},
};

static void copies_are_listed(void **state)
{
	(void)state;
	run_steps(list_rows, ARRAY_SIZE(list_rows));
}

static const struct run_row keep_rows[] = {
	{"stage in dir --to ~/copies", 0, NULL, ""},
	{"stage pin dir --to ~/copies", 0, "dir pinned\n", ""},
	{"stage ls --to ~/copies", 0, "*~/dir  (pinned)\n", ""},
	{"stage evict dir --to ~/copies", 1, "",
	 "leat stage: dir is in use\n"
	 "  Wait for the processes that use it.\n"},
	{"--json stage unpin dir --to ~/copies", 0, "{\"what\":\"dir\",\"unpinned\":true}\n", ""},
	{"stage lease dir --to ~/copies --lease j7 --ttl 60", 0, "*leased\n", ""},
	{"stage ls --to ~/copies", 0, "*~/dir  (in use)\n", ""},
	{"stage evict dir --to ~/copies", 1, "", "*dir is in use\n"},
	{"stage release dir --to ~/copies --lease j8", 9, "",
	 "leat stage: job j8 has no lease on these copies\n"},
	{"stage release --to ~/copies --lease j7", 0, "j7 released\n", ""},
	{"stage release --to ~/copies --lease j7", 9, "", NULL},
	{"stage cancel dir --to ~/copies", 9, "", "leat stage: no process is making dir\n"},
	{"--json stage evict dir --to ~/copies", 0, "{\"what\":\"dir\",\"evicted\":true}\n", ""},
	{"stage evict dir --to ~/copies", 9, "", NULL},
	{"stage status dir --to ~/copies", 9, NULL, NULL},
};

static void pinned_and_leased_copies_stay(void **state)
{
	(void)state;
	run_steps(keep_rows, ARRAY_SIZE(keep_rows));
}

static void a_directory_is_staged_out(void **state)
{
	(void)state;
	assert_run("stage out dir ~/new", 0, "~/new: 2 files, 4.9 KiB, written and compared\n");
	assert_run("stage out dir ~/copies", 1, "");
	assert_run("stage out dir ~/copies --replace --timeout 9 --max-rate 1G --progress none "
		   "--skip links",
		   0, "~/copies: 2 files, 4.9 KiB, written and compared\n");
	assert_json("--json stage out dir ~/new", 0,
		    "{\"path\":\"~/new\",\"files\":2,\"bytes\":5001,\"bytes_moved\":5001,"
		    "\"skipped\":0,\"not_copied\":[],\"hard_links\":0,\"narrowed\":0}");
}

/* ---- data sets ---- */

#define CREATE "dataset create --catalog ~/copies a@v1 dir\n"

static const struct run_row set_rows[] = {
	{"dataset create --catalog ~/copies a@v1 dir", 0,
	 "*a@v1                        4.9 KiB        2          2 files  4b37e460a62e  ", ""},
	{"dataset ls --catalog ~/copies", 0, "*a@v1 ", ""},
	{"dataset show --catalog ~/copies a@v1", 0, "*  ~/dir\nfields: data\nclasses: 1\n", ""},
	{"dataset show --catalog ~/copies none@v1", 9, "",
	 "*leat dataset: none@v1: no such data set, and no copy of it\n"},
	{"dataset create --catalog ~/copies a@v1 dir", 1, "",
	 "leat dataset: a@v1 exists already\n"
	 "  Data sets never change: make another version.\n"},
	{"dataset create --catalog ~/copies --format fixed:1 --skip special b@v1 dir", 0, "*fixed",
	 ""},
	/* without a version */
	{"dataset create --catalog ~/copies a dir", 0, "*a@latest ", ""},
	{"stage in a@v1 --to ~/copies --catalog ~/copies", 0, "*READY: 2 files", ""},
	{"stage status a@v1 --to ~/copies", 0, "*4b37e460a62e  a@v1\n", ""},
	{"dataset rm --catalog ~/copies a@v1", 0, "a@v1 removed; its files stay\n", ""},
	{"dataset rm --catalog ~/copies a@v1", 9, "", NULL},
	{"du -s --inodes dir", 0, "4\tdir\n", ""},
};

static void a_data_set_is_named_shown_and_staged(void **state)
{
	(void)state;
	run_steps(set_rows, ARRAY_SIZE(set_rows));
	assert_json("--json " CREATE, 0,
		    "{\"name\":\"a\",\"version\":\"v1\",\"id\":\"" ID "\",\"source\":\"~/dir\","
		    "\"files\":2,\"bytes\":5001,\"samples\":2,\"format\":\"files\",\"n_fields\":1,"
		    "\"fields\":[\"data\"],\"classes\":1,\"left_out\":[],\"sealed\":false,"
		    "\"damaged\":false,\"denied\":false,\"skipped\":0,\"not_copied\":[],"
		    "\"hard_links\":0,\"narrowed\":0}");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cp_copies_files_and_trees),
		cmocka_unit_test(cp_tells_programs_what_it_copied),
		cmocka_unit_test(what_exists_is_replaced_or_left),
		cmocka_unit_test(rm_removes_files_and_trees),
		cmocka_unit_test(du_counts),
		cmocka_unit_test(du_tells_programs_each_sum),
		cmocka_unit_test(staging_makes_a_copy),
		cmocka_unit_test(staging_takes_every_option),
		cmocka_unit_test(progress_may_be_an_object_a_line),
		cmocka_unit_test(a_plan_changes_nothing),
		cmocka_unit_test(copies_are_listed),
		cmocka_unit_test(pinned_and_leased_copies_stay),
		cmocka_unit_test(a_directory_is_staged_out),
		cmocka_unit_test(a_data_set_is_named_shown_and_staged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
