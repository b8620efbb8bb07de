/* SPDX-License-Identifier: Apache-2.0 */
#include "client/servers/retry.h"

#include "client/client.h"
#include "common/base/status.h"
#include "common/rt/env.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

#define BACKOFF_FIRST_US 1000u
#define BACKOFF_MAX_US   200000u
/* Limit of the first attempt, doubled for each later one. */
#define ATTEMPT_FIRST_US 3000000u
#define ATTEMPT_MAX_US   12000000u

void retry_begin(struct retry *r, struct client *c)
{
	uint64_t deadline = loop_deadline_ms(c->params.request_timeout_ms);

	*r = (struct retry){
		.c = c,
		.deadline_us = deadline < fiber_deadline() ? deadline : fiber_deadline(),
		.backoff_us = BACKOFF_FIRST_US,
		.attempt_us = ATTEMPT_FIRST_US,
	};
}

uint64_t retry_attempt_deadline(struct retry *r)
{
	uint64_t at = loop_now_us() + r->attempt_us;

	if (r->attempt_us < ATTEMPT_MAX_US)
		r->attempt_us *= 2;
	return at < r->deadline_us ? at : r->deadline_us;
}

bool retry_is_worth(const struct retry *r, int status)
{
	if (status == -LE_SHUTDOWN && r->c->stopping)
		return false;
	return status_retry(status) != RETRY_NEVER;
}

int retry_allowed(struct retry *r, int status)
{
	if (!retry_is_worth(r, status))
		return status == -LE_CANCELED ? -LE_INTR : status;
	if (loop_now_us() + r->backoff_us >= r->deadline_us)
		return -LE_IO;
	r->c->stats.retries++;
	if (status_retry(status) == RETRY_CONN || status == -LE_TIMEDOUT)
		r->unknown = true;
	return 0;
}

uint64_t retry_wait_us(struct retry *r)
{
	uint64_t jitter = env_random_u64(r->c->env) % (r->backoff_us / 2 + 1);
	uint64_t until_us = loop_now_us() + r->backoff_us + jitter;

	if (r->backoff_us < BACKOFF_MAX_US)
		r->backoff_us *= 2;
	return until_us;
}

int retry_next(struct retry *r, int status)
{
	uint64_t until_us;

	TRY(retry_allowed(r, status));
	until_us = retry_wait_us(r);
	return fiber_sleep_us(until_us - loop_now_us());
}
