/* SPDX-License-Identifier: Apache-2.0 */
/* What is read from a usage text: verbs, the part about one verb, and suggestions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tools/help.h"

static const struct command family = {
	.name = "mill",
	.usage = "usage: leat mill grind [--fast]\n"
		 "                       [--stone N] CORN\n"
		 "       leat mill stop|start\n"
		 "What it is.\n"
		 "  --fast     quick\n"
		 "  --stone N  which of them,\n"
		 "             from 1 on\n"
		 "  --json     for all\n"
		 "Examples:\n"
		 "  leat mill grind --fast wheat\n"
		 "  leat mill start\n",
};

static bool whose(const char *verb, const char *option)
{
	return strcmp(verb, "in") == 0 && strcmp(option, "to") == 0;
}

static const struct command by_table = {
	.name = "barn",
	.option_of = whose,
	.usage = "usage: leat barn VERB [OPTIONS]\n"
		 "  in WHAT     brings it\n"
		 "              home\n"
		 "  pin, unpin  holds it\n"
		 "  --to DIR    where\n"
		 "  --all       everything\n"
		 "Example: leat barn in hay\n",
};

static char *text_of(const struct command *c, const char *verb)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	help_print(c, verb, f);
	fclose(f);
	return text;
}

static void a_verb_has_its_part(void **state)
{
	char *text;

	(void)state;
	text = text_of(&family, "grind");
	assert_string_equal(text, "usage: leat mill grind [--fast]\n"
				  "                       [--stone N] CORN\n"
				  "What it is.\n"
				  "  --fast     quick\n"
				  "  --stone N  which of them,\n"
				  "             from 1 on\n"
				  "  --json     for all\n"
				  "Examples:\n"
				  "  leat mill grind --fast wheat\n"
				  "`leat mill --help` shows all its verbs.\n");
	free(text);
	text = text_of(&family, "start");
	assert_string_equal(text, "usage: leat mill stop|start\n"
				  "What it is.\n"
				  "  --json     for all\n"
				  "Examples:\n"
				  "  leat mill start\n"
				  "`leat mill --help` shows all its verbs.\n");
	free(text);
	text = text_of(&by_table, "in");
	assert_string_equal(text, "usage: leat barn VERB [OPTIONS]\n"
				  "  in WHAT     brings it\n"
				  "              home\n"
				  "  --to DIR    where\n"
				  "Example: leat barn in hay\n"
				  "`leat barn --help` shows all its verbs.\n");
	free(text);
	text = text_of(&by_table, "unpin");
	assert_string_equal(text, "usage: leat barn VERB [OPTIONS]\n"
				  "  pin, unpin  holds it\n"
				  "`leat barn --help` shows all its verbs.\n");
	free(text);
	text = text_of(&family, "hay");
	assert_string_equal(text, family.usage);
	free(text);
	text = text_of(&family, NULL);
	assert_string_equal(text, family.usage);
	free(text);
}

static void knows_what_was_meant(void **state)
{
	static const char *const words[] = {"status", "stage", "df", "du", "ls"};

	(void)state;
	assert_string_equal(help_nearest("statsu", words, 5), "status");
	assert_string_equal(help_nearest("stagee", words, 5), "stage");
	assert_string_equal(help_nearest("sl", words, 5), "ls");
	assert_null(help_nearest("xy", words, 5));
	assert_null(help_nearest("mount", words, 5));
	assert_null(help_nearest("df", words, 5)); /* it is a command itself */
	assert_null(help_nearest("", words, 5));
	assert_null(help_nearest("a word that is longer than any word may be", words, 5));
}

static bool explained(const struct command *c, const char *text, const char *line, char *buf)
{
	char copy[128], *argv[16], *save = NULL;
	int argc = 0;

	snprintf(copy, sizeof(copy), "%s", line);
	for (char *w = strtok_r(copy, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save))
		argv[argc++] = w;
	return help_explain(c, argc, argv, text, buf, 256);
}

static void says_what_is_wrong(void **state)
{
	char buf[256];

	(void)state;
	assert_true(explained(&family, "wrong options", "grind --fats x", buf));
	assert_string_equal(buf, "unknown option '--fats': did you mean --fast?");
	assert_true(explained(&family, "grind: wrong options", "grind --fa --xyzzy=1", buf));
	assert_string_equal(buf, "unknown option '--xyzzy'");
	assert_true(explained(&family, "wrong options", "grind --stone", buf));
	assert_non_null(strstr(buf, "'--stone' needs a value"));
	assert_true(explained(&family, "what?", "strat", buf));
	assert_string_equal(buf, "unknown verb 'strat': did you mean 'start'?");
	assert_true(explained(&by_table, "what?", "unpn", buf));
	assert_string_equal(buf, "unknown verb 'unpn': did you mean 'unpin'?");
	/* The command's own message is better. */
	assert_false(explained(&family, "of what?", "grind", buf));
	assert_false(explained(&family, "what?", "something", buf));
	assert_false(explained(&family, "what?", "--fast", buf));
	assert_false(explained(&family, "what?", "", buf));
	assert_false(explained(&family, "wrong options", "grind -x", buf));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_verb_has_its_part),
		cmocka_unit_test(knows_what_was_meant),
		cmocka_unit_test(says_what_is_wrong),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
