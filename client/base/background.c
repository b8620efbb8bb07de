/* SPDX-License-Identifier: Apache-2.0 */
#include "client/base/background.h"

#include "client/client.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

int client_bg_spawn(struct client *c, const char *name, void (*fn)(void *arg), void *arg)
{
	int rc;

	latch_add(&c->bg, 1);
	rc = fiber_spawn_on(c->loop, name, fn, arg);
	if (rc < 0)
		latch_done(&c->bg);
	return rc;
}

void client_bg_end(struct client *c)
{
	latch_done(&c->bg);
}

uint64_t client_deadline(const struct client *c)
{
	uint64_t at = loop_deadline_ms(c->params.request_timeout_ms);

	return at < fiber_deadline() ? at : fiber_deadline();
}
