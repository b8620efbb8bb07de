/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/mds_clock.h"

#include "common/base/log.h"

/* Limit of accepted times, so that sums cannot overflow. */
#define NOW_MAX_NS (INT64_MAX / 2)

void mds_clock_observe(struct mds_clock *k, struct env *env, int64_t now_ns, uint64_t sent_us)
{
	uint64_t now_us = env_now_us(env), trip_us = now_us - sent_us;
	int64_t wall_ns = env_wall_ns(env);

	if (now_ns < 0 || now_ns > NOW_MAX_NS || wall_ns < 0 || wall_ns > NOW_MAX_NS)
		return;
	if (trip_us > UINT32_MAX)
		trip_us = UINT32_MAX;
	/* The server read its clock some time during the round trip: assume the middle. */
	now_ns += (int64_t)(trip_us / 2) * 1000;
	k->base_ns = now_ns - (int64_t)now_us * 1000;
	k->ahead_us = (wall_ns - now_ns) / 1000;
	k->bound_us = (uint32_t)(trip_us / 2) + 1;
}

void mds_clock_observe_by(struct mds_clock *k, struct env *env, const char *who, int64_t now_ns,
			uint64_t sent_us)
{
	char ahead[CLOCK_AHEAD_TEXT], ours[CLOCK_TIME_TEXT], its[CLOCK_TIME_TEXT];
	enum clock_news news;

	mds_clock_observe(k, env, now_ns, sent_us);
	if (k->bound_us == 0)
		return;
	news = clock_watch_update(&k->watch, k->ahead_us, k->bound_us);
	if (news == CLOCKS_AGREE)
		log_info("%s: this machine's clock agrees with the metadata server's again", who);
	else if (news != CLOCKS_NO_NEWS)
		log_warn("%s: this machine's clock is %s the metadata server's (give or take %u "
			 "ms): here it is %s, there %s; set the wrong one, and see that both are "
			 "kept right (NTP)",
			 who, clock_format_ahead(k->ahead_us, ahead), k->bound_us / 1000 + 1,
			 clock_format_time(env_wall_ns(env), ours),
			 clock_format_time(mds_clock_now_ns(k, env), its));
}

int64_t mds_clock_now_ns(const struct mds_clock *k, struct env *env)
{
	return k->bound_us == 0 ? 0 : k->base_ns + (int64_t)env_now_us(env) * 1000;
}

int64_t mds_clock_stamp_ns(const struct mds_clock *k, struct env *env)
{
	int64_t wall_ns = env_wall_ns(env), ns = mds_clock_now_ns(k, env);
	int64_t apart_us = (wall_ns - ns) / 1000, most_us = CLOCKS_APART_US + k->bound_us;

	if (k->bound_us == 0 || (apart_us <= most_us && apart_us >= -most_us))
		return wall_ns;
	return ns;
}
