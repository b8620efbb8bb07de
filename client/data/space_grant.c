/* SPDX-License-Identifier: Apache-2.0 */
#include "client/data/space_grant.h"

#include <stddef.h>

#include "client/base/background.h"
#include "client/cache/inode_cache.h"
#include "client/client.h"
#include "client/servers/cluster_map.h"
#include "client/servers/target.h"
#include "common/base/assert.h"
#include "common/base/hmap.h"
#include "common/proto/oss_proto.h"
#include "common/rpc/rpc.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

#define GRANT_AGAIN_US   200000u
#define GRANT_RETURN_MS  500u /* how long the end of a client waits for a server */

bool grant_reserve(struct target *t, uint64_t len)
{
	if (t->reserved + len > t->grant)
		return false;
	t->reserved += len;
	return true;
}

void grant_release(struct target *t, uint64_t len)
{
	t->reserved -= len < t->reserved ? len : t->reserved;
}

uint64_t grant_need(uint32_t block_size, uint64_t off, uint64_t len)
{
	uint64_t first = off / block_size, end = (off + len + block_size - 1) / block_size;

	return (end - first) * block_size;
}

uint64_t grant_want(const struct client *c)
{
	return c->params.dirty_max;
}

static void grant_call(struct target *t, uint64_t want, uint32_t timeout_ms)
{
	struct client *c = t->c;
	struct oss_grant_req req = {.want = want};
	struct oss_grant_rep rep = {0};
	struct rpc_call call = {
		.op = OP_oss_grant,
		.req = &req,
		.rep = &rep,
		.session = c->session,
		.target = t->id,
		.chain = t->chain,
		.epoch = t->epoch,
		.deadline_us = loop_deadline_ms(timeout_ms),
	};
	int rc = t->rpc != NULL ? rpc_call(t->rpc, &call) : -LE_DISCONNECTED;

	if (rc >= 0)
		t->grant = rep.grant;
	rpc_call_fini(&call);
}

static void grant_fiber(void *arg)
{
	struct target *t = arg;
	struct client *c = t->c;

	grant_call(t, grant_want(c), GRANT_TIMEOUT_MS);
	t->grant_asking = false;
	client_bg_end(c);
}

static void grant_return_fiber(void *arg)
{
	struct target *t = arg;

	grant_call(t, 0, GRANT_RETURN_MS);
	client_bg_end(t->c);
}

void grant_return_all(struct client *c)
{
	for (struct hmap_node *n = hmap_next(&c->map.targets, NULL); n != NULL;
	     n = hmap_next(&c->map.targets, n)) {
		struct target *t = container_of(n, struct target, node);

		/* A server that is not connected lets the grant expire. */
		if (t->grant > 0 && t->up &&
		    client_bg_spawn(c, "oss_grant", grant_return_fiber, t) < 0)
			break;
	}
	latch_wait(&c->bg);
}

void grant_ask(struct inode_io *d)
{
	struct client *c = d->c;
	const struct layout *l = &d->inode->attr.layout;
	uint32_t width = map_width(c, l);
	uint64_t now = loop_now_us();
	struct target *t;

	if (grant_want(c) == 0)
		return;
	for (uint32_t i = 0; i < width && i < 64; i++) {
		const struct chain *ch = map_chain(c, l, i);

		t = map_head(c, l, i);
		if (t == NULL || t->grant_asking || t->grant > grant_want(c) / 4)
			continue;
		if (t->grant_asked_us != 0 && now < t->grant_asked_us + GRANT_AGAIN_US)
			continue;
		if (target_connect(t) < 0)
			continue;
		target_asked(t, ch);
		t->grant_asked_us = now;
		t->grant_asking = true;
		if (client_bg_spawn(c, "oss_grant", grant_fiber, t) < 0)
			t->grant_asking = false;
	}
}
