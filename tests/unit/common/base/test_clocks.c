/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks of two machines: when they count as apart, and what is logged. */
#include "common/base/clocks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define S 1000000ll

static void news_come_once(void **state)
{
	struct clock_watch w = {0};
	(void)state;

	assert_int_equal(clock_watch_update(&w, 900000, 1000), CLOCKS_NO_NEWS);
	assert_int_equal(clock_watch_update(&w, -5 * S, 1000), CLOCKS_APART);
	assert_int_equal(clock_watch_update(&w, -5 * S, 1000), CLOCKS_NO_NEWS);
	assert_int_equal(clock_watch_update(&w, -6 * S, 1000), CLOCKS_NO_NEWS);
	assert_int_equal(clock_watch_update(&w, -8 * S, 1000), CLOCKS_CHANGED);
	assert_int_equal(clock_watch_update(&w, 3 * S, 1000), CLOCKS_CHANGED);
	/* Neither certainly apart nor certainly together. */
	assert_int_equal(clock_watch_update(&w, S, 1000), CLOCKS_NO_NEWS);
	assert_int_equal(clock_watch_update(&w, 990000, 1000), CLOCKS_AGREE);
	assert_int_equal(clock_watch_update(&w, 990000, 1000), CLOCKS_NO_NEWS);
	assert_int_equal(clock_watch_update(&w, 2 * S, 1000), CLOCKS_APART);
}

static void a_long_way_says_nothing(void **state)
{
	struct clock_watch w = {0};
	(void)state;

	assert_int_equal(clock_watch_update(&w, 3 * S, 2 * S), CLOCKS_NO_NEWS);
	assert_int_equal(clock_watch_update(&w, 3 * S + 1, 2 * S), CLOCKS_APART);
	assert_int_equal(clock_watch_update(&w, 0, S), CLOCKS_NO_NEWS);
	assert_int_equal(clock_watch_update(&w, 0, S - 1), CLOCKS_AGREE);
}

static void any_number_will_do(void **state)
{
	struct clock_watch w = {0};
	(void)state;

	assert_int_equal(clock_watch_update(&w, INT64_MIN, UINT32_MAX), CLOCKS_APART);
	assert_int_equal(clock_watch_update(&w, INT64_MAX, UINT32_MAX), CLOCKS_CHANGED);
	assert_int_equal(clock_watch_update(&w, INT64_MIN, 0), CLOCKS_CHANGED);
	assert_int_equal(clock_watch_update(&w, INT64_MIN, 0), CLOCKS_NO_NEWS);
	assert_int_equal(clock_watch_update(&w, 0, 0), CLOCKS_AGREE);
}

static void in_words(void **state)
{
	char a[CLOCK_AHEAD_TEXT], t[CLOCK_TIME_TEXT];
	(void)state;

	assert_string_equal(clock_format_ahead(-1590000, a), "1.6 s behind");
	assert_string_equal(clock_format_ahead(59960000, a), "1 min 0 s ahead of");
	assert_string_equal(clock_format_ahead(3600 * S - 1, a), "1 h 0 min ahead of");
	assert_string_equal(clock_format_ahead(1 - 86400 * S, a), "1 day 0 h behind");
	assert_string_equal(clock_format_ahead(61 * S, a), "1 min 1 s ahead of");
	assert_string_equal(clock_format_ahead(3661 * S, a), "1 h 1 min ahead of");
	assert_string_equal(clock_format_ahead(864000 * S + 7200 * S, a), "10 days 2 h ahead of");
	assert_string_equal(clock_format_ahead(-86400 * S, a), "1 day 0 h behind");
	assert_string_equal(clock_format_ahead(INT64_MIN, a), "106751991 days 4 h behind");
	assert_string_equal(clock_format_time(1420070400000000000ll, t), "2015-01-01 00:00:00 UTC");
	assert_string_equal(clock_format_time(INT64_MAX, t), "2262-04-11 23:47:16 UTC");
	assert_string_equal(clock_format_time(INT64_MIN, t), "1677-09-21 00:12:44 UTC");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(news_come_once),
		cmocka_unit_test(a_long_way_says_nothing),
		cmocka_unit_test(any_number_will_do),
		cmocka_unit_test(in_words),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
