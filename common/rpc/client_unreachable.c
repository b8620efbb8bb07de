/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logs that the server of a client cannot be reached: at the first poll after the first attempt has
 * failed, or at the second poll after a connection was lost (a restarting server is not worth a
 * line); then every SAY_AGAIN_S, and when the server is reached again. A timer polls; no fiber
 * waits.
 */
#include "common/rpc/client_unreachable.h"

#include <stdio.h>
#include <string.h>

#include "common/base/log.h"

#define POLL_MS     1000u
#define SAY_AGAIN_S 30u
#define ADDRS_SIZE  320u

/* The configured addresses, without those that the server sent. */
static const char *addrs_of(const struct rpc_client *c, char *buf, size_t size)
{
	size_t n = 0;

	buf[0] = '\0';
	for (uint32_t i = 0; i < c->n_candidates && n < size; i++)
		if (!c->candidates[i].announced)
			n += (size_t)snprintf(buf + n, size - n, "%s%s", n > 0 ? ", " : "",
					      c->candidates[i].addr);
	return buf[0] != '\0' ? buf : "no address";
}

static uint64_t seconds(uint64_t from_us, uint64_t to_us)
{
	return (to_us - from_us) / 1000000;
}

static void is_there(struct rpc_client *c, uint64_t now)
{
	struct client_away *a = &c->away;
	char addrs[ADDRS_SIZE];

	if (a->why < 0)
		log_info("%s at %s is reached again, after %llu s", a->server,
			 addrs_of(c, addrs, sizeof(addrs)),
			 (unsigned long long)seconds(a->since_us, now));
	a->since_us = 0;
	a->why = 0;
}

static void is_away(struct rpc_client *c, uint64_t now)
{
	struct client_away *a = &c->away;
	bool first = a->why == 0;
	char addrs[ADDRS_SIZE], since[48] = "";

	if (a->since_us == 0) {
		a->since_us = now;
		if (c->stats.connects > 0)
			return;
	}
	a->why = c->last_error;
	/* log_failure has logged a wrong key, version or cluster already. */
	if (is_hard(a->why) || (!first && seconds(a->said_us, now) < SAY_AGAIN_S))
		return;
	a->said_us = now;
	if (!first)
		snprintf(since, sizeof(since), ", for %llu s now",
			 (unsigned long long)seconds(a->since_us, now));
	log_warn("%s at %s cannot be reached%s: %s", a->server, addrs_of(c, addrs, sizeof(addrs)),
		 since, status_text(a->why));
}

static void look(struct timer *t)
{
	struct rpc_client *c = container_of(t, struct rpc_client, away.timer);
	uint64_t now = loop_now_us();

	/* Neither holds while a connection is being set up, and before the first attempt. */
	if (client_connected(c))
		is_there(c, now);
	else if (c->last_error < 0)
		is_away(c, now);
	timer_set(t, loop_deadline_ms(POLL_MS));
}

void rpc_client_report_unreachable(struct rpc_client *c, const char *server)
{
	if (c->away.server != NULL)
		return;
	c->away.server = server;
	timer_init(&c->away.timer, look);
	timer_set(&c->away.timer, loop_deadline_ms(POLL_MS));
}

void client_away_end(struct rpc_client *c)
{
	if (c->away.server != NULL)
		timer_cancel(&c->away.timer);
}

int rpc_client_unreachable(const struct rpc_client *c)
{
	return c->away.why;
}
