/* SPDX-License-Identifier: Apache-2.0 */
/* What `leat cp`, `rm` and `du` share: paths, failures, the sum, and the progress line. */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/assert.h"
#include "tests/unit/tools/run.h"
#include "common/base/status.h"
#include "tools/progress.h"
#include "tools/tree.h"

static struct tool tool = {.command = "rm"};
static struct tool tool_json = {.command = "rm", .json = true};

/* ---- paths ---- */

static void the_last_component_is_compared_without_slashes(void **state)
{
	(void)state;
	assert_true(tree_ends_in("..", ".."));
	assert_true(tree_ends_in("a/..", ".."));
	assert_true(tree_ends_in("a/..//", ".."));
	assert_false(tree_ends_in("a/...", ".."));
	assert_false(tree_ends_in("a..", ".."));
	assert_false(tree_ends_in("../a", ".."));
	assert_true(tree_ends_in("x/./", "."));
	assert_false(tree_ends_in("", "."));
}

static void paths_of_the_namespace(void **state)
{
	static const struct {
		const char *text, *name;
		bool top;
	} rows[] = {
		{"leat:/a/b", "/a/b", false},   {"leat:/a/b//", "/a/b", false},
		{"leat:/a/b/.", "/a/b", false}, {"leat:/", "/", true},
		{"leat:///", "/", true},        {"leat:/..", "/..", false},
	};
	struct tree_path p;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(tree_parse(&tool, rows[i].text, false, &p), EXIT_OK);
		assert_string_equal(p.name, rows[i].name);
		assert_true(p.servers && p.forced);
		assert_int_equal(p.top, rows[i].top);
		assert_string_equal(tree_name(&p), rows[i].name);
	}
}

static void paths_of_this_machine(void **state)
{
	struct tree_path p;

	(void)state;
	assert_int_equal(tree_parse(&tool, "/proc/self/../version", false, &p), EXIT_OK);
	assert_true(p.exists && !p.servers && !p.forced && !p.top);
	assert_int_equal(tree_parse(&tool, "/", false, &p), EXIT_OK);
	assert_string_equal(p.full, "/");
	assert_true(p.top && p.exists);
	assert_int_equal(tree_parse(&tool, "/proc/", false, &p), EXIT_OK);
	assert_string_equal(p.full, "/proc");
	assert_string_equal(tree_name(&p), "/proc");
	/* The last component need not exist; its directory must. */
	assert_int_equal(tree_parse(&tool, "/proc/no-such", false, &p), EXIT_OK);
	assert_false(p.exists);
	assert_int_equal(tree_parse(&tool, "/no-such/x", true, &p), EXIT_MISSING);
}

static void parse_bad(void *arg)
{
	struct tree_path p;

	leave(tree_parse(&tool, arg, false, &p));
}

static void paths_that_cannot_be(void **state)
{
	static char longest[PATH_MAX + 50];
	struct run r;

	(void)state;
	assert_says(parse_bad, "", "leat rm: '': No such file or directory\n");
	assert_says(parse_bad, "/no-such/x", "leat rm: /no-such/x: No such file or directory\n");
	assert_says(parse_bad, "/proc/version/", "leat rm: /proc/version/: Not a directory\n");
	assert_says(parse_bad, "/proc/version/x", "leat rm: /proc/version/x: Not a directory\n");
	memset(longest, 'b', sizeof(longest) - 1);
	assert_says(parse_bad, longest,
		    "leat rm: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
		    "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb...: File name too long\n");
	memcpy(longest, "leat:/", 6);
	r = run_function(parse_bad, longest);
	assert_int_equal(r.code, EXIT_FAILED);
	run_fini(&r);
	r = run_function(parse_bad, "/no-such/x");
	assert_int_equal(r.code, EXIT_MISSING);
	run_fini(&r);
}

static void failures_name_paths_as_the_user_did(void **state)
{
	static const struct {
		const char *text, *below, *shown;
	} rows[] = {
		{"dir", "/base/dir/a/b", "dir/a/b"}, {"dir/", "/base/dir/a", "dir/a"},
		{"dir", "/base/dir", "dir"},         {"/", "/base/dir/x", "/x"},
		{".", "/base/dir/x", "./x"},         {"dir", "elsewhere", "dir/elsewhere"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct tree_path p = {.text = rows[i].text, .full = "/base/dir"};
		char *shown = tree_user_path(&p, rows[i].below);

		assert_string_equal(shown, rows[i].shown);
		free(shown);
	}
}

/* ---- reporting ---- */

static void two_failures(void *arg)
{
	struct tree_tool tt;
	struct tree_path p = {.text = "dir", .full = "/base/dir"};
	struct leat_tree_result r = {
		.size = sizeof(r), .files = 3, .dirs = 2, .bytes = 4096, .elapsed_us = 1500000};

	tree_begin(&tt, arg, "removing");
	assert_null(tree_at(&tt, &p));
	tree_fail(&tt, "cannot remove", "a\tb", "device or resource busy");
	tt.o.failed(&tt, "cannot remove", "/base/dir/c", -LE_NOTEMPTY);
	assert_true(tree_took(&tt, 0, &r));
	assert_true(tree_took(&tt, 0, &r));
	leave(tree_end(&tt, EXIT_OK, json_pack("{s:i}", "more", 7)));
}

static void failures_are_reported_and_counted(void **state)
{
	struct run r;

	(void)state;
	assert_says(two_failures, &tool,
		    "leat rm: cannot remove 'a\\x09b': device or resource busy\n"
		    "leat rm: cannot remove 'dir/c': directory not empty\n");
	assert_prints(two_failures, &tool, "");
	assert_prints(two_failures, &tool_json,
		      "{\"files\":6,\"directories\":4,\"bytes\":8192,\"seconds\":3.0,\"via\":\""
		      "files\",\"n_failed\":2,\"failed\":[{\"path\":\"a\\tb\",\"error\":\"devic"
		      "e or resource busy\"},{\"path\":\"dir/c\",\"error\":\"directory not "
		      "empty\"}],\"interrupted\":false,\"more\":7}\n");
	r = run_function(two_failures, &tool);
	assert_int_equal(r.code, EXIT_FAILED);
	run_fini(&r);
}

static void missing_ones(void *arg)
{
	struct tree_tool tt;
	struct tree_path p = {.text = "dir", .full = "/base/dir"};
	const bool *ignore = arg;

	tree_begin(&tt, &tool, "removing");
	(void)tree_at(&tt, &p);
	tt.ignore_missing = *ignore;
	tt.o.failed(&tt, "cannot remove", "/base/dir", -LE_NOENT);
	leave(tree_end(&tt, EXIT_OK, NULL));
}

static void with_force_a_missing_file_is_no_failure(void **state)
{
	bool ignore = true;
	struct run r = run_function(missing_ones, &ignore);

	(void)state;
	assert_int_equal(r.code, EXIT_OK);
	assert_string_equal(r.err, "");
	run_fini(&r);
	ignore = false;
	assert_says(missing_ones, &ignore,
		    "leat rm: cannot remove 'dir': no such file or directory\n");
	r = run_function(missing_ones, &ignore);
	assert_int_equal(r.code, EXIT_FAILED);
	run_fini(&r);
}

static void whole_call_fails(void *arg)
{
	struct tree_tool tt;
	struct tree_path p = {.text = "leat:/x", .name = "/x", .servers = true};
	struct leat_tree_result r = {.size = sizeof(r)};

	(void)arg;
	tree_begin(&tt, &tool_json, "removing");
	(void)tree_at(&tt, &p);
	assert_true(tree_took(&tt, -LE_IO, &r));
	leave(tree_end(&tt, EXIT_OK, NULL));
}

static void a_call_that_fails_as_a_whole_names_the_path(void **state)
{
	(void)state;
	assert_says(whole_call_fails, NULL,
		    "leat rm: cannot work on 'leat:/x': input/output error\n");
	assert_prints(whole_call_fails, NULL,
		      "{\"files\":0,\"directories\":0,\"bytes\":0,\"seconds\":0.0,\"via\":\"ser"
		      "vers\",\"n_failed\":1,\"failed\":[{\"path\":\"leat:/x\",\"error\":\"inpu"
		      "t/output error\"}],\"interrupted\":false}\n");
}

static void an_error_that_was_reported_keeps_its_status(void **state)
{
	struct tree_tool tt;

	(void)state;
	tree_begin(&tt, &tool_json, "removing");
	assert_int_equal(tree_end(&tt, EXIT_UNREACHABLE, NULL), EXIT_UNREACHABLE);
}

/* ---- progress ---- */

static void plain_lines(void *arg)
{
	struct progress p;

	(void)arg;
	progress_init(&p, "copying");
	assert_false(p.tty);
	progress_update(&p, 1, 2, "not yet due");
	p.shown_s -= 11; /* printed every 10 s without a terminal */
	p.start_s = now_s() - 4;
	progress_update(&p, 3 << 20, 4 << 20, "3 files");
	progress_update(&p, 4 << 20, 4 << 20, "again not due");
	progress_finish(&p, 4 << 20);
}

static void counted_lines(void *arg)
{
	struct progress p;

	(void)arg;
	progress_init(&p, "draining");
	progress_note(&p, 1, 4, "3 left"); /* the first one is always printed */
	progress_note(&p, 2, 4, "2 left");
	p.shown_s -= 11;
	progress_note(&p, 4, 4, "0 left");
	progress_finish(&p, 0);
	progress_init(&p, "looking");
	progress_note(&p, 0, 0, "5 files");
}

static void a_bar(void *arg)
{
	struct progress p;

	(void)arg;
	progress_init(&p, "copying");
	p.tty = true;
	progress_note(&p, 1, 2, "half");
	p.shown_s -= 1;
	progress_note(&p, 3, 2, "more than all");
	progress_finish(&p, 0);
	progress_finish(&p, 0); /* nothing more is drawn */
}

static void without_a_terminal_there_are_plain_lines(void **state)
{
	struct run r = run_function(plain_lines, NULL);
	const char *start = "copying: 75% 3.0 MiB of 4.0 MiB, ";

	(void)state;
	assert_memory_equal(r.err, start, strlen(start));
	assert_non_null(strstr(r.err, " s left, 3 files\n"));
	assert_null(strstr(r.err, "due"));
	assert_string_equal(r.out, "");
	run_fini(&r);
	assert_says(counted_lines, NULL,
		    "draining: 25% 3 left\n"
		    "draining: 100% 0 left\n"
		    "looking: 5 files\n");
}

static void a_terminal_gets_a_bar(void **state)
{
	(void)state;
	assert_says(a_bar, NULL,
		    "\rcopying [##############..............]  50% half\033[K"
		    "\rcopying [############################] 100% more than all\033[K"
		    "\r\033[K");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_last_component_is_compared_without_slashes),
		cmocka_unit_test(paths_of_the_namespace),
		cmocka_unit_test(paths_of_this_machine),
		cmocka_unit_test(paths_that_cannot_be),
		cmocka_unit_test(failures_name_paths_as_the_user_did),
		cmocka_unit_test(failures_are_reported_and_counted),
		cmocka_unit_test(with_force_a_missing_file_is_no_failure),
		cmocka_unit_test(a_call_that_fails_as_a_whole_names_the_path),
		cmocka_unit_test(an_error_that_was_reported_keeps_its_status),
		cmocka_unit_test(without_a_terminal_there_are_plain_lines),
		cmocka_unit_test(a_terminal_gets_a_bar),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
