/* SPDX-License-Identifier: Apache-2.0 */
/* What scripts rely on: exit statuses, sizes as text, and how mounts are found. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/assert.h"
#include "common/base/status.h"
#include "tools/mounts.h"
#include "tools/progress.h"
#include "tools/tool.h"

static void exit_statuses_are_frozen(void **state)
{
	static const struct {
		int status, code;
	} rows[] = {
		{ 0, 0 },
		{ -LE_IO, 1 },
		{ -LE_INVAL, 2 },
		{ -LE_CONFIG, 2 },
		{ -LE_TIMEDOUT, 4 },
		{ -LE_NOSPC, 8 },
		{ -LE_NOENT, 9 },
		{ -LE_ACCES, 10 },
		{ -LE_AUTH, 10 },
		{ -LE_WRONG_CLUSTER, 10 },
		{ -LE_CONNREFUSED, 11 },
		{ -LE_DISCONNECTED, 11 },
		{ -LE_INTR, 75 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(exit_of_status(rows[i].status), rows[i].code);
	assert_int_equal(exit_of_errno(ENOENT), 9);
	assert_int_equal(exit_of_errno(EDQUOT), 8);
	assert_int_equal(exit_of_errno(ELOOP), 1);
}

/* The text of each status names a cause and blames no one. Each status ends a command with an exit
 * status that scripts expect; errors of the server have a next step. */
static void every_status_tells_a_cause(void **state)
{
	static const struct {
		int number;
		const char *text;
	} all[] = {
#define X(name, number, parent, retry, text) { number, text },
		STATUS_TABLE(X)
#undef X
	};
	static const char *const blames[] = {
		"internal", "wrong usage", "unknown status", "bad config", "error:", "unexpected",
	};
	static const char known[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 75 };

	(void)state;
	const struct tool tool = {.conf = "/etc/leat/leat.conf"};
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		int code = exit_of_status(-all[i].number);

		assert_true(strlen(all[i].text) >= 4);
		for (size_t k = 0; k < ARRAY_SIZE(blames); k++)
			assert_null(strstr(all[i].text, blames[k]));
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(all[i].text, all[k].text);
		assert_non_null(memchr(known, code, sizeof(known)));
		assert_int_equal(code == EXIT_OK, all[i].number == 0);
		assert_int_equal(status_errno(-all[i].number) == 0, all[i].number == 0);
		assert_true(status_errno(-all[i].number) < 1000);
		assert_string_equal(status_text(-all[i].number), all[i].text);
		assert_true(strlen(tool_server_hint(&tool, -all[i].number)) > 20);
	}
	for (int s = LE_NETDOWN; s <= LE_HOSTUNREACH; s++)
		if (strcmp(status_name(s), "?") != 0 && s != LE_TIMEDOUT)
			assert_int_equal(exit_of_status(-s), EXIT_UNREACHABLE);
	assert_non_null(strstr(tool_server_hint(&tool, -LE_PERM), "export"));
	assert_non_null(strstr(tool_server_hint(&tool, -LE_UNKNOWN_OP), "leat-mds"));
}

static void names_do_not_drive_the_terminal(void **state)
{
	static const struct {
		const char *text, *shown;
	} rows[] = {
		{ "plain-name_1.tar", "plain-name_1.tar" },
		{ "\xe5\xbe\xae \xc3\xa4 \xf0\x9f\x98\x80", "\xe5\xbe\xae \xc3\xa4 \xf0\x9f\x98\x80" },
		{ "a\033[31mb", "a\\x1b[31mb" },
		{ "two\nlines\r\t\x7f", "two\\x0alines\\x0d\\x09\\x7f" },
		{ "\xc2\x9b" "31m \xc2\xa0", "\\xc2\\x9b31m \xc2\xa0" },
		{ "\xe4 \x9b\xff", "\\xe4 \\x9b\\xff" },
		{ "cut \xe5\xbe", "cut \\xe5\\xbe" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char *buf = NULL;
		size_t size;
		FILE *f = open_memstream(&buf, &size);

		assert_non_null(f);
		tool_write_text(f, rows[i].text);
		fclose(f);
		assert_string_equal(buf, rows[i].shown);
		free(buf);
	}
}

static void sizes_for_people(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} rows[] = {
		{ 0, "0 B" },
		{ 1023, "1023 B" },
		{ 1024, "1.0 KiB" },
		{ 1536, "1.5 KiB" },
		{ 100ULL << 20, "100 MiB" },
		{ 5ULL << 40, "5.0 TiB" },
		{ UINT64_MAX, "16.0 EiB" },
	};
	char buf[SIZE_TEXT];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_string_equal(format_size(rows[i].bytes, buf), rows[i].text);
}

static void other_mounts_are_not_ours(void **state)
{
	struct leat_mount m = { .source = "untouched" };

	(void)state;
	assert_false(mount_of_path("/proc", &m));
	assert_false(mount_of_path("/no/such/path", &m));
	assert_false(mount_find("/proc", &m));
	assert_string_equal(m.source, "untouched");
	assert_null(virtual_attribute("/proc", "leat.status"));
}

static void programs_are_found_and_run(void **state)
{
	char path[4096];

	(void)state;
	assert_true(find_program("true", path, sizeof(path)));
	assert_int_equal(run_program((const char *const[]){ path, NULL }), 0);
	assert_true(find_program("false", path, sizeof(path)));
	assert_int_equal(run_program((const char *const[]){ path, NULL }), 1);
	assert_false(find_program("no-such-program-at-all", path, sizeof(path)));
	assert_int_equal(run_program((const char *const[]){ "/no/such", NULL }), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exit_statuses_are_frozen),
		cmocka_unit_test(every_status_tells_a_cause),
		cmocka_unit_test(names_do_not_drive_the_terminal),
		cmocka_unit_test(sizes_for_people),
		cmocka_unit_test(other_mounts_are_not_ours),
		cmocka_unit_test(programs_are_found_and_run),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
