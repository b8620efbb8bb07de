/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that has the key and sends any frames to a simulated server: the input is a list of
 * (type, flags, op, id, body length, bulk length, body). The server must neither crash nor hang nor
 * keep slots. If the first byte is odd, the frames are sent before the handshake.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/rpc/auth.h"
#include "common/rpc/transport/transport_sim.h"
#include "common/rt/sim/sim.h"

#define SLOT 65536u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct {
	const uint8_t *p, *end;
	struct transport *transport;
	struct rpc_server *server;
	struct slot_pool *pool;
	bool client_done, stop, stopped;
} f;

static const struct rpc_key key = { { 9 } };

static uint64_t take(unsigned n)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < n && f.p < f.end; i++)
		v |= (uint64_t)*f.p++ << (8 * i);
	return v;
}

static int on_any(struct rpc_req *r, const void *in, void *out)
{
	(void)in, (void)out;
	(void)!fiber_sleep_us(r->hdr.slot % 1000);
	return r->hdr.epoch % 2 == 0 ? 0 : -LE_IO;
}

static void server_main(struct loop *l, void *arg)
{
	static struct rpc_handler all[256];
	uint32_t n;
	const struct msg_desc *d = msg_table(&n);

	(void)arg, (void)l;
	for (uint32_t i = 0; i < n; i++)
		all[i] = (struct rpc_handler){ d[i].op, on_any };
	struct rpc_server_options o = { .transport = f.transport,
					.addrs = "server:1",
					.role = ROLE_MDS,
					.key = key,
					.bulk_pool = f.pool,
					.bulk_max = 8 * SLOT,
					.in_flight_max = 8,
					.handlers = all,
					.n_handlers = n };
	ASSERT(slot_pool_create(SLOT, 16, &f.pool) == 0);
	o.bulk_pool = f.pool;
	ASSERT(rpc_server_create(&o, &f.server) == 0);
	while (!f.stop)
		(void)!fiber_sleep_us(1000);
	rpc_server_destroy(f.server, 100);
	ASSERT(slot_pool_free(f.pool) == 16);
	slot_pool_destroy(f.pool);
	f.stopped = true;
}

static int send_one(struct link *k)
{
	static uint8_t body[4096];
	struct link_tx tx = { .hdr = { .type = (uint8_t)take(1),
				       .flags = (uint8_t)take(1),
				       .op = (uint16_t)take(2),
				       .id = take(2),
				       .slot = (uint32_t)take(1),
				       .epoch = (uint32_t)take(1) } };
	uint32_t body_len = (uint32_t)take(2) % sizeof(body), bulk_len = (uint32_t)take(1) * 4096;
	static uint8_t bulk[256 * 4096];
	struct slot s = { .data = bulk, .size = sizeof(bulk) };
	struct slot_vec vec = { &s, 0, bulk_len };

	for (uint32_t i = 0; i < body_len; i++)
		body[i] = (uint8_t)take(1);
	tx.body = body;
	tx.body_len = body_len;
	tx.bulk = &vec;
	tx.n_bulk = bulk_len > 0;
	return k->ops->send(k, &tx, NO_DEADLINE);
}

static void client_main(struct loop *l, void *arg)
{
	struct auth_self self = { .role = ROLE_TOOL, .name = "fuzz", .key = &key, .credits = 8 };
	struct auth_peer peer;
	struct link *k = NULL;
	int rc;

	(void)l, (void)arg;
	do {
		rc = f.transport->ops->connect(f.transport, "server:1", NO_DEADLINE, &k);
	} while (rc < 0);
	if (take(1) % 2 == 0)
		ASSERT(auth_client(k, &self, &peer) == 0);
	while (f.p < f.end && rc == 0) {
		rc = send_one(k);
		if (take(1) % 8 == 0)
			(void)!fiber_sleep_us(500);
	}
	(void)!fiber_sleep_us(2000);
	k->ops->close(k);
	f.client_done = true;
}

static bool client_done(void *arg)
{
	(void)arg;
	return f.client_done;
}

static bool stopped(void *arg)
{
	(void)arg;
	return f.stopped;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sim *s;

	log_set_level(LOG_ERROR);
	memset(&f, 0, sizeof(f));
	f.p = data;
	f.end = data + size;
	ASSERT(sim_create(1, NULL, &s) == 0);
	ASSERT(transport_sim_create(s, NULL, &f.transport) == 0);
	ASSERT(sim_proc_start(sim_proc_create(s, "server"), server_main, NULL) == 0);
	ASSERT(sim_proc_start(sim_proc_create(s, "client"), client_main, NULL) == 0);
	ASSERT(sim_run(s, client_done, NULL, sim_now_us(s) + 60000000) == 0);
	f.stop = true;
	ASSERT(sim_run(s, stopped, NULL, sim_now_us(s) + 60000000) == 0);
	sim_destroy(s);
	transport_destroy(f.transport);
	return 0;
}
