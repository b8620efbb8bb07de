/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/rate_limit.h"

#include <stddef.h>

void rate_limit_set(struct rate_limit *r, uint64_t rate, uint64_t burst_us)
{
	r->rate = rate;
	r->burst_us = burst_us;
}

uint64_t rate_limit_charge(struct rate_limit *r, uint64_t n, uint64_t now_us)
{
	if (r == NULL || r->rate == 0)
		return 0;
	if (r->paid_until_us + r->burst_us < now_us)
		r->paid_until_us = now_us - r->burst_us;
	r->paid_until_us += (uint64_t)((__uint128_t)n * 1000000 / r->rate);
	return r->paid_until_us > now_us ? r->paid_until_us - now_us : 0;
}
