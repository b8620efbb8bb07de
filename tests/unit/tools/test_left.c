/* SPDX-License-Identifier: Apache-2.0 */
/* What staging left out of a tree, and why staging failed: as text, as JSON, and in the exit
 * status. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/assert.h"
#include "tests/unit/tools/run.h"
#include "tools/left.h"
#include "tools/progress.h"
#include "tools/source.h"

static struct tool tool = {.command = "stage"};

/* ---- left out ---- */

static void add_left(struct leat_stage_result *r, const char *why, unsigned skip, uint64_t n,
		     const char *first, const char *second)
{
	struct leat_stage_left *l = &r->left[r->n_left++];

	snprintf(l->why, sizeof(l->why), "%s", why);
	l->skip = skip;
	l->n = n;
	for (const char *name = first; name; name = name == first ? second : NULL)
		snprintf(l->names[l->n_names++], sizeof(l->names[0]), "%s", name);
	r->skipped += (uint32_t)n;
}

static void some_left(struct leat_stage_result *r)
{
	*r = (struct leat_stage_result){.size = sizeof(*r)};
	add_left(r, "dangling", LEAT_SKIP_LINKS, 1, "a/b", NULL);
	add_left(r, "pipe", LEAT_SKIP_SPECIAL, 7, "p1", "p\033[31m2");
}

static void words_of_skip(void **state)
{
	static const struct {
		const char *text;
		unsigned skip;
	} rows[] = {
		{"links", LEAT_SKIP_LINKS},
		{"special", LEAT_SKIP_SPECIAL},
		{"links,special", LEAT_SKIP_LINKS | LEAT_SKIP_SPECIAL},
		{"special,links,special", LEAT_SKIP_LINKS | LEAT_SKIP_SPECIAL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		unsigned skip = 0;

		assert_int_equal(left_parse_skip(&tool, rows[i].text, &skip), EXIT_OK);
		assert_int_equal(skip, rows[i].skip);
	}
}

static void bad_skip(void *arg)
{
	unsigned skip = 0;

	assert_int_equal(left_parse_skip(&tool, arg, &skip), EXIT_USAGE);
}

static void other_words_of_skip_are_refused(void **state)
{
	(void)state;
	assert_says(bad_skip, "",
		    "leat stage: --skip: links, special or links,special, not ''\n"
		    "  See: leat stage --help\n");
	assert_says(bad_skip, "links,",
		    "leat stage: --skip: links, special or links,special, not 'links,'\n"
		    "  See: leat stage --help\n");
	assert_says(bad_skip, "Links",
		    "leat stage: --skip: links, special or links,special, not 'Links'\n"
		    "  See: leat stage --help\n");
	assert_says(bad_skip,
		    "links,links,links,links,links,links,links,links,links,links,links,links,links",
		    "leat stage: --skip: links, special or links,special, not "
		    "'links,links,links,links,links,links,links,links,links,links,links,links"
		    ",links'\n"
		    "  See: leat stage --help\n");
}

static void only_what_was_not_asked_for_is_partial(void **state)
{
	struct leat_stage_result r = {.size = sizeof(r)};

	(void)state;
	assert_int_equal(left_status(&r, 0), EXIT_OK);
	some_left(&r);
	assert_int_equal(left_status(&r, 0), EXIT_PARTIAL);
	assert_int_equal(left_status(&r, LEAT_SKIP_LINKS), EXIT_PARTIAL);
	assert_int_equal(left_status(&r, LEAT_SKIP_SPECIAL), EXIT_PARTIAL);
	assert_int_equal(left_status(&r, LEAT_SKIP_LINKS | LEAT_SKIP_SPECIAL), EXIT_OK);
}

static void print_left(void *arg)
{
	const unsigned *skip = arg;
	struct leat_stage_result r;

	some_left(&r);
	r.hard_links = 3;
	r.narrowed = 2;
	left_print(&r, *skip);
}

static void print_kinds(void *arg)
{
	static const char *const kinds[] = {"directory", "outside", "loop",   "denied",
					    "device",    "socket",  "member", "newer"};
	struct leat_stage_result r = {.size = sizeof(r)};

	(void)arg;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		add_left(&r, kinds[i], LEAT_SKIP_LINKS, 1, "x", NULL);
	left_print(&r, LEAT_SKIP_LINKS);
}

static void print_nothing(void *arg)
{
	struct leat_stage_result r = {.size = sizeof(r)};

	(void)arg;
	left_print(&r, 0);
}

static void people_get_a_line_for_each_kind(void **state)
{
	unsigned skip = 0;

	(void)state;
	assert_prints(print_nothing, NULL, "");
	assert_prints(print_left, &skip,
		      "not copied: 1 symbolic links to nothing, or to something left out (a/b)\n"
		      "not copied: 7 named pipes (p1, p\033[31m2, ...)\n"
		      "The copy is complete without these: repair them and run this again, or "
		      "give --skip links,special.\n"
		      "3 files with several names are separate files in the copy\n"
		      "2 files and folders may be read by fewer users than at the source: only "
		      "root can give files to their owners, and only where the file system has "
		      "access lists\n");
	skip = LEAT_SKIP_LINKS | LEAT_SKIP_SPECIAL;
	assert_prints(print_left, &skip,
		      "not copied: 1 symbolic links to nothing, or to something left out (a/b)\n"
		      "not copied: 7 named pipes (p1, p\033[31m2, ...)\n"
		      "3 files with several names are separate files in the copy\n"
		      "2 files and folders may be read by fewer users than at the source: only "
		      "root can give files to their owners, and only where the file system has "
		      "access lists\n");
	assert_prints(print_kinds, NULL,
		      "not copied: 1 symbolic links to a directory outside of the tree (x)\n"
		      "not copied: 1 symbolic links to another file system, or not to a "
		      "regular file (x)\n"
		      "not copied: 1 symbolic links that lead back to themselves (x)\n"
		      "not copied: 1 symbolic links without permission to read the target (x)\n"
		      "not copied: 1 devices (x)\n"
		      "not copied: 1 sockets (x)\n"
		      "not copied: 1 members of archives that are neither files nor hard links "
		      "(x)\n"
		      "not copied: 1 newer (x)\n");
}

static void programs_get_an_object(void **state)
{
	struct leat_stage_result r, back = {.size = sizeof(back)};
	json_t *o = json_object(), *rows, *row;

	(void)state;
	some_left(&r);
	r.hard_links = 3;
	left_to_json(o, &r);
	assert_int_equal(json_integer_value(json_object_get(o, "skipped")), 8);
	assert_int_equal(json_integer_value(json_object_get(o, "hard_links")), 3);
	assert_int_equal(json_integer_value(json_object_get(o, "narrowed")), 0);
	rows = json_object_get(o, "not_copied");
	assert_int_equal(json_array_size(rows), 2);
	row = json_array_get(rows, 1);
	assert_string_equal(json_string_value(json_object_get(row, "why")), "pipe");
	assert_int_equal(json_integer_value(json_object_get(row, "count")), 7);
	assert_int_equal(json_array_size(json_object_get(row, "names")), 2);
	/* Agents send the bit too. */
	json_object_set_new(json_array_get(rows, 0), "skip", json_integer(LEAT_SKIP_LINKS));
	json_object_set_new(row, "skip", json_integer(LEAT_SKIP_SPECIAL));
	left_from_json(o, &back);
	assert_int_equal(back.n_left, 2);
	assert_int_equal(back.skipped, 8);
	assert_int_equal(back.hard_links, 3);
	assert_string_equal(back.left[1].names[1], "p\033[31m2");
	assert_int_equal(left_status(&back, LEAT_SKIP_LINKS), EXIT_PARTIAL);
	json_decref(o);
}

static void of_several_agents_the_one_with_most_counts(void **state)
{
	struct leat_stage_result r;
	json_t *less = json_pack("{s:[{s:s,s:i,s:i,s:[]}],s:i}", "not_copied", "why", "pipe",
				 "skip", LEAT_SKIP_SPECIAL, "count", 2, "names", "hard_links", 9);

	(void)state;
	some_left(&r);
	left_from_json(less, &r);
	assert_int_equal(r.n_left, 2);
	assert_int_equal(r.skipped, 8);
	assert_int_equal(r.hard_links, 9);
	json_decref(less);
}

static void what_agents_send_may_be_wrong(void **state)
{
	static const char *const texts[] = {
		"{}",
		"{\"not_copied\":7}",
		"{\"not_copied\":[7]}",
		"{\"not_copied\":[{\"why\":\"pipe\",\"skip\":2,\"count\":-1,\"names\":[]}]}",
		("{\"not_copied\":[{\"why\":\"a word that is much too long\",\"skip\":2,"
		 "\"count\":1,\"names\":[]}]}"),
		"{\"not_copied\":[{\"why\":\"pipe\",\"count\":1,\"names\":[]}]}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct leat_stage_result r = {.size = sizeof(r)};
		json_t *o = json_loads(texts[i], 0, NULL);

		assert_non_null(o);
		left_from_json(o, &r);
		assert_int_equal(r.n_left, 0);
		assert_int_equal(r.skipped, 0);
		json_decref(o);
	}
}

/* ---- failures ---- */

struct failure {
	int rc, code;
	uint64_t missing;
	const char *message;
	int exit;
};

static void fail_stage(void *arg)
{
	const struct failure *f = arg;
	struct leat_stage_result r = {
		.size = sizeof(r), .code = f->code, .bytes_missing = f->missing};

	snprintf(r.message, sizeof(r.message), "%s", f->message);
	leave(stage_failed(&tool, f->rc, &r) == f->exit ? 0 : 1);
}

static void each_outcome_has_a_sentence_and_a_next_step(void **state)
{
	static struct {
		struct failure f;
		const char *err;
	} rows[] = {
		{{0, LEAT_STAGE_INTERNAL, 0, "m", 1},
		 "leat stage: failed: m\n"
		 "  Remove the cause and run the same command again: copied data is kept.\n"},
		{{0, LEAT_STAGE_USAGE, 0, "m", 2},
		 "leat stage: refused: m\n"
		 "  NAME@VERSION of a data set, or a directory: /PATH, leat:/PATH; `leat "
		 "stage --help` says more.\n"},
		{{0, LEAT_STAGE_NOT_READY, 0, "m", 3}, "leat stage: not ready yet: m\n"},
		{{0, LEAT_STAGE_TIMEOUT, 0, "m", 4},
		 "leat stage: timed out: m\n"
		 "  Run the same command again to continue; `leat status` shows which "
		 "servers answer.\n"},
		{{0, LEAT_STAGE_PARTIAL, 0, "m", 5},
		 "leat stage: partial: m\n"
		 "  Run the same command again to continue.\n"},
		{{0, LEAT_STAGE_SOURCE_CORRUPT, 0, "m", 6},
		 "leat stage: source corrupt: m\n"
		 "  The file is damaged, or not of the format of its name: repair it, or "
		 "move it away. No damaged data was kept.\n"},
		{{0, LEAT_STAGE_LOCAL_CORRUPT, 0, "m", 7},
		 "leat stage: local copy corrupt: m\n"
		 "  `leat stage in` repairs the copy.\n"},
		{{0, LEAT_STAGE_NO_CAPACITY, 5 << 20, "m", 8},
		 "leat stage: no capacity: m (5.0 MiB more needed)\n"
		 "  `leat stage ls` shows the copies there, `leat stage evict` removes "
		 "one.\n"},
		{{0, LEAT_STAGE_NO_CAPACITY, 0, "m", 8},
		 "leat stage: no capacity: m\n"
		 "  `leat stage ls` shows the copies there, `leat stage evict` removes "
		 "one.\n"},
		{{0, LEAT_STAGE_SOURCE_GONE, 0, "m", 9},
		 "leat stage: source missing or changed: m\n"
		 "  `leat dataset ls` shows the data sets; if files have changed, create "
		 "a new version.\n"},
		{{0, LEAT_STAGE_PERMISSION, 0, "m", 10},
		 "leat stage: permission denied: m\n"
		 "  The user who stages must be able to read the source and to write to "
		 "the directory of --to.\n"},
		{{0, LEAT_STAGE_AGENT, 0, "m", 11},
		 "leat stage: agent unreachable: m\n"
		 "  `leat status` shows which servers answer.\n"},
		{{0, LEAT_STAGE_CANCELLED, 0, "m", 12}, "leat stage: cancelled: m\n"},
		{{0, LEAT_STAGE_INTERRUPTED, 0, "m", 75},
		 "leat stage: interrupted, resumable: m\n"
		 "  Run the same command again: data that was kept is not copied again.\n"},
		{{-ENOENT, 0, 0, "", 9},
		 "leat stage: source missing or changed: No such file or directory\n"
		 "  `leat dataset ls` shows the data sets; if files have changed, create "
		 "a new version.\n"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct run r = run_function(fail_stage, &rows[i].f);

		assert_int_equal(r.code, 0);
		run_fini(&r);
		assert_says(fail_stage, &rows[i].f, rows[i].err);
	}
}

static void fail_plainly(void *arg)
{
	const struct failure *f = arg;

	leave(stage_error(&tool, f->rc, f->message) == f->exit ? 0 : 1);
}

static void a_status_becomes_a_sentence_about_the_copy(void **state)
{
	static struct {
		struct failure f;
		const char *err;
	} rows[] = {
		{{-EAGAIN, 0, 0, "a@v1", EXIT_NOT_READY},
		 "leat stage: a@v1 is not ready\n"
		 "  `leat stage status` shows the progress.\n"},
		{{-EEXIST, 0, 0, "a1b2c3", EXIT_USAGE},
		 "leat stage: a1b2c3: several copies match, or the name exists already\n"},
		{{-EBUSY, 0, 0, "a@v1", EXIT_FAILED},
		 "leat stage: a@v1 is in use\n"
		 "  Wait for the processes that use it.\n"},
		{{-EINVAL, 0, 0, "a@@v1", EXIT_USAGE},
		 "leat stage: a@@v1 is not a name of a data set\n"
		 "  NAME@VERSION of letters, digits, . _ and -; or 6 digits of an id that "
		 "`leat stage ls` shows.\n"},
		{{-ENOENT, 0, 0, "a@v1", EXIT_MISSING},
		 "leat stage: a@v1: no such data set, and no copy of it\n"
		 "  `leat dataset ls` shows the data sets; if files have changed, create "
		 "a new version.\n"},
		{{-ENOENT, 0, 0, "/a/b", EXIT_MISSING},
		 "leat stage: /a/b: no such file or directory\n"
		 "  `leat dataset ls` shows the data sets; if files have changed, create "
		 "a new version.\n"},
		{{-EACCES, 0, 0, "/a/b", EXIT_PERMISSION},
		 "leat stage: /a/b: permission denied\n"
		 "  The user who stages must be able to read the source and to write to "
		 "the directory of --to.\n"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct run r = run_function(fail_plainly, &rows[i].f);

		assert_int_equal(r.code, 0);
		run_fini(&r);
		assert_says(fail_plainly, &rows[i].f, rows[i].err);
	}
}

/* ---- sources ---- */

static void sources_are_told_apart(void **state)
{
	static const struct {
		const char *text, *name;
		bool local;
	} rows[] = {
		{"leat:/a/b", "/a/b", false},
		{"leat:imagenet@v1", "imagenet@v1", false},
		{"no-such-name-here@v1", "no-such-name-here@v1", false},
		{"/", "/", true},
		{"/proc/../proc", "/proc", true},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct source s;

		assert_int_equal(source_parse(&tool, rows[i].text, &s), EXIT_OK);
		assert_string_equal(s.name, rows[i].name);
		assert_int_equal(s.local, rows[i].local);
		assert_string_equal(s.mds, "");
	}
}

static void a_local_source_needs_no_connection(void **state)
{
	struct source s = {.local = true};
	struct leat_fs *fs = NULL;

	(void)state;
	assert_int_equal(source_connect(&tool, &s, &fs), EXIT_OK);
	assert_null(fs);
}

static void too_long(void *arg)
{
	char text[PATH_MAX + 100];
	struct source s;

	(void)arg;
	memset(text, 'a', sizeof(text));
	memcpy(text, "leat:/", 6);
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(source_parse(&tool, text, &s), EXIT_FAILED);
}

static void a_source_that_is_too_long_is_shown_in_part(void **state)
{
	(void)state;
	assert_says(too_long, NULL,
		    "leat stage: leat:/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...: File name too long\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words_of_skip),
		cmocka_unit_test(other_words_of_skip_are_refused),
		cmocka_unit_test(only_what_was_not_asked_for_is_partial),
		cmocka_unit_test(people_get_a_line_for_each_kind),
		cmocka_unit_test(programs_get_an_object),
		cmocka_unit_test(of_several_agents_the_one_with_most_counts),
		cmocka_unit_test(what_agents_send_may_be_wrong),
		cmocka_unit_test(each_outcome_has_a_sentence_and_a_next_step),
		cmocka_unit_test(a_status_becomes_a_sentence_about_the_copy),
		cmocka_unit_test(sources_are_told_apart),
		cmocka_unit_test(a_local_source_needs_no_connection),
		cmocka_unit_test(a_source_that_is_too_long_is_shown_in_part),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
