/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/clocks.h"

#include <stdio.h>
#include <time.h>

static uint64_t size_of(int64_t us)
{
	return us < 0 ? 0 - (uint64_t)us : (uint64_t)us;
}

/* Returns whether the difference has changed by more than half of the one reported last. */
static bool differs_much(const struct clock_watch *w, int64_t ahead_us, uint32_t bound_us)
{
	uint64_t told = size_of(w->told_us), now = size_of(ahead_us);
	bool other_way = (w->told_us < 0) != (ahead_us < 0);
	uint64_t by = other_way ? told + now : told > now ? told - now : now - told;

	return by > (uint64_t)bound_us + CLOCKS_APART_US && by > told / 2;
}

enum clock_news clock_watch_update(struct clock_watch *w, int64_t ahead_us, uint32_t bound_us)
{
	uint64_t size = size_of(ahead_us);
	bool apart = size > (uint64_t)bound_us + CLOCKS_APART_US;

	if (!w->apart && apart) {
		*w = (struct clock_watch){true, ahead_us};
		return CLOCKS_APART;
	}
	if (w->apart && size + bound_us < CLOCKS_APART_US) {
		w->apart = false;
		return CLOCKS_AGREE;
	}
	if (w->apart && apart && differs_much(w, ahead_us, bound_us)) {
		w->told_us = ahead_us;
		return CLOCKS_CHANGED;
	}
	return CLOCKS_NO_NEWS;
}

enum clock_news clock_seen_update(struct clock_seen *s, int64_t ahead_us, uint32_t bound_us)
{
	if (bound_us == 0)
		return CLOCKS_NO_NEWS;
	s->ahead_us = ahead_us;
	s->bound_us = bound_us;
	return clock_watch_update(&s->watch, ahead_us, bound_us);
}

/* Rounds to a whole number of units. */
static uint64_t in_units(uint64_t us, uint64_t unit_us)
{
	return us / unit_us + (us % unit_us >= unit_us / 2);
}

const char *clock_format_ahead(int64_t ahead_us, char buf[CLOCK_AHEAD_TEXT])
{
	const char *word = ahead_us < 0 ? "behind" : "ahead of";
	uint64_t us = size_of(ahead_us);
	unsigned long long n;

	if (in_units(us, 60000000) >= 1440) {
		n = in_units(us, 3600000000);
		snprintf(buf, CLOCK_AHEAD_TEXT, "%llu day%s %llu h %s", n / 24,
			 n < 48 ? "" : "s", n % 24, word);
	} else if (in_units(us, 1000000) >= 3600) {
		n = in_units(us, 60000000);
		snprintf(buf, CLOCK_AHEAD_TEXT, "%llu h %llu min %s", n / 60, n % 60, word);
	} else if (in_units(us, 100000) >= 600) {
		n = in_units(us, 1000000);
		snprintf(buf, CLOCK_AHEAD_TEXT, "%llu min %llu s %s", n / 60, n % 60, word);
	} else {
		n = in_units(us, 100000);
		snprintf(buf, CLOCK_AHEAD_TEXT, "%llu.%llu s %s", n / 10, n % 10, word);
	}
	return buf;
}

const char *clock_format_time(int64_t wall_ns, char buf[CLOCK_TIME_TEXT])
{
	time_t s = (time_t)(wall_ns / 1000000000);
	struct tm tm;

	if (gmtime_r(&s, &tm) == NULL || strftime(buf, CLOCK_TIME_TEXT, "%F %T UTC", &tm) == 0)
		snprintf(buf, CLOCK_TIME_TEXT, "an impossible time");
	return buf;
}
