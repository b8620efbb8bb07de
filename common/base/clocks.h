/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the wall clocks of two machines. The difference is exact up to half the time of a round
 * trip. A watch reports each change once: the clocks differ, the difference has become much larger
 * or smaller, the clocks agree again.
 *
 * Any thread; a clock_watch has one owner.
 */
#ifndef LEAT_COMMON_BASE_CLOCKS_H
#define LEAT_COMMON_BASE_CLOCKS_H

#include <stdbool.h>
#include <stdint.h>

/* A larger difference is reported. */
#define CLOCKS_APART_US 1000000

struct clock_watch {
	bool apart;
	int64_t told_us; /* the difference that was reported last */
};
enum clock_news { CLOCKS_NO_NEWS, CLOCKS_APART, CLOCKS_CHANGED, CLOCKS_AGREE };

/* Compares a new measurement with the last report. ahead_us: how far the watched clock is ahead
 * (less than 0: behind), give or take bound_us. Returns what to report now; CLOCKS_NO_NEWS also if
 * bound_us is too large for a decision. */
enum clock_news clock_watch_update(struct clock_watch *w, int64_t ahead_us, uint32_t bound_us);

/* The clock of a peer that compares it with this machine's and reports the difference. */
struct clock_seen {
	int64_t ahead_us;
	uint32_t bound_us; /* 0: no report has come */
	struct clock_watch watch;
};
/* Records a report of the peer and returns what to report now. The values are not trusted; a bound
 * of 0 means no measurement. */
enum clock_news clock_seen_update(struct clock_seen *s, int64_t ahead_us, uint32_t bound_us);

#define CLOCK_AHEAD_TEXT 48
/* Formats a difference, rounded: "1.5 s behind", "10 days 3 h ahead of". The caller appends the
 * name of the other clock. */
const char *clock_format_ahead(int64_t ahead_us, char buf[CLOCK_AHEAD_TEXT]);
#define CLOCK_TIME_TEXT 40
/* "2026-11-28 02:00:41 UTC". */
const char *clock_format_time(int64_t wall_ns, char buf[CLOCK_TIME_TEXT]);

#endif
