/* SPDX-License-Identifier: Apache-2.0 */
#include "client/servers/map_refresh.h"

#include <stdlib.h>
#include <string.h>

#include "client/base/background.h"
#include "client/client.h"
#include "client/servers/cluster_map.h"
#include "client/servers/mds_call.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/proto/mds_proto.h"
#include "common/proto/wire.h"
#include "common/rpc/rpc.h"
#include "common/rt/fiber.h"
#include "common/rt/loop.h"

/* The reply comes in pages, which are joined. PAGES_BYTES_MAX limits how much a server can make the
 * client store. */
#define PAGES_BYTES_MAX (16u << 20)
#define PAGE_RESTARTS   8u

struct pages {
	uint8_t *data[3]; /* targets, chains, tables */
	uint32_t len[3];
	uint32_t epoch, next;
};

static int pages_add(struct pages *p, const struct mds_map_get_rep *rep)
{
	const struct bytes part[3] = {rep->targets, rep->chains, rep->tables};

	for (uint32_t i = 0; i < 3; i++) {
		uint8_t *d;

		if (part[i].len == 0)
			continue;
		if (p->len[i] + part[i].len > PAGES_BYTES_MAX)
			return -LE_BAD_MESSAGE;
		d = realloc(p->data[i], p->len[i] + part[i].len);
		if (d == NULL)
			return -LE_NOMEM;
		memcpy(d + p->len[i], part[i].data, part[i].len);
		p->data[i] = d;
		p->len[i] += part[i].len;
	}
	p->epoch = rep->epoch;
	p->next = rep->next;
	return 0;
}

static void pages_fini(struct pages *p)
{
	for (uint32_t i = 0; i < 3; i++)
		free(p->data[i]);
	*p = (struct pages){0};
}

/* Fetches the next page. Returns 1 if the map changed meanwhile, and the fetch has to start again
 * at the first page. */
static int fetch_page(struct client *c, struct pages *p, uint32_t *restarts)
{
	struct mds_map_get_req req = {.have_epoch = p->next == 0 ? c->map.epoch : 0,
				      .from = p->next};
	struct mds_map_get_rep rep;
	struct rpc_call call;
	int rc = mds_call(c, OP_mds_map_get, &req, &rep, &call);

	if (rc >= 0 && rep.next != 0 && rep.next <= req.from)
		rc = -LE_BAD_MESSAGE;
	if (rc >= 0 && req.from != 0 && rep.epoch != p->epoch) {
		pages_fini(p);
		rc = ++*restarts > PAGE_RESTARTS ? -LE_STALE_EPOCH : 1;
	} else if (rc >= 0) {
		rc = pages_add(p, &rep);
	}
	rpc_call_fini(&call);
	return rc;
}

static int fetch(struct client *c)
{
	struct pages p = {0};
	uint32_t restarts = 0;
	int rc;

	do
		rc = fetch_page(c, &p, &restarts);
	while (rc > 0 || (rc == 0 && p.next != 0));
	/* An empty reply means that the client's map is current. */
	if (rc >= 0 && (p.len[0] > 0 || p.epoch != c->map.epoch)) {
		struct mds_map_get_rep rep = {.epoch = p.epoch,
					      .targets = bytes_of(p.data[0], p.len[0]),
					      .chains = bytes_of(p.data[1], p.len[1]),
					      .tables = bytes_of(p.data[2], p.len[2])};

		rc = map_apply(c, &rep);
	}
	pages_fini(&p);
	if (rc < 0)
		log_debug("client %s: cannot fetch the cluster map: %s", c->name, status_name(rc));
	return rc;
}

int map_refresh(struct client *c, uint64_t deadline_us)
{
	struct cluster_map *m = &c->map;
	int rc;

	if (m->refreshing)
		return waitq_wait(&m->q, deadline_us);
	m->refreshing = true;
	rc = fetch(c);
	m->refreshing = false;
	waitq_wake_all(&m->q);
	return rc;
}

static void refresh_fiber(void *arg)
{
	struct client *c = arg;
	int rc = 0;

	while (rc >= 0 && c->map.epoch < c->map.wanted && !c->stopping) {
		uint32_t before = c->map.epoch;

		rc = map_refresh(c, loop_deadline_ms(c->params.request_timeout_ms));
		/* A reply may mention a wrong epoch: one fetch without progress ends the loop. */
		if (c->map.epoch == before)
			break;
	}
	client_bg_end(c);
}

int map_refresh_start(struct client *c)
{
	return client_bg_spawn(c, "map_refresh", refresh_fiber, c);
}
