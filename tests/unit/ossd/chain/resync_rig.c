/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/ossd/chain/resync_rig.h"

#include <stdlib.h>

#include "common/base/checksum.h"
#include "common/kv/kv.h"
#include "common/kv/kv_sim.h"
#include "common/rpc/transport/transport_sim.h"
#include "ossd/chain/chains.h"
#include "ossd/format.h"

/* Processes that crash, and those that run when the simulation ends, do not free their memory.
 * Weak, because a test may link both rigs. */
int __lsan_is_turned_off(void) __attribute__((weak));
int __lsan_is_turned_off(void)
{
	return 1;
}

#define LIMIT_US (7200ULL * 1000000)
#define POLL_US  500u

static const struct uuid CLUSTER = {{3, 1, 4}};

static struct rrig *rig_of_synced; /* one rig at a time */

/* ---- nodes ---- */

static int synced(void *arg, uint32_t chain, uint32_t epoch, uint32_t target)
{
	struct rnode *n = arg;

	ASSERT(chain == RRIG_CHAIN);
	if (epoch != rig_of_synced->epoch)
		return -LE_STALE_EPOCH;
	n->synced_epoch = epoch;
	n->synced_target = target;
	return 0;
}

static void put_info(const struct rrig *r, struct wire_w *w)
{
	uint8_t buf[CHAIN_MEMBERS_BUF];
	struct chain_info info = {.id = RRIG_CHAIN, .epoch = r->epoch, .replicas = r->n_members};

	chain_members_put(r->members, r->n_members, buf, &info);
	wire_put_chain_info(w, &info);
}

static void follow(struct rnode *n)
{
	struct rrig *r = n->rig;
	uint32_t orders = r->orders;
	uint8_t buf[512], addrs[1024];
	struct wire_w w, a;
	bool member = false;

	wire_w_init(&w, buf, sizeof(buf));
	wire_w_init(&a, addrs, sizeof(addrs));
	for (uint32_t i = 0; i < r->n_nodes; i++) {
		char text[32];
		struct target_info t = {.id = r->node[i].id};

		snprintf(text, sizeof(text), "%s:7000", r->node[i].name);
		t.addrs = bytes_str(text);
		wire_put_target_info(&a, &t);
	}
	ASSERT(chains_addrs(n->target->chains, bytes_of(addrs, (uint32_t)a.len)) == 0);
	for (uint32_t i = 0; i < r->n_members; i++)
		member |= r->members[i].target == n->id;
	if (member)
		put_info(r, &w);
	if (r->epoch) {
		struct bytes all = bytes_of(buf, (uint32_t)w.len);
		int rc = chains_adopt(n->target->chains, all, UINT64_MAX);

		ASSERT(rc == 0);
		maintenance_members_known(n->target->maintenance);
		n->target->ready = true;
	}
	n->adopted = orders;
}

static void open_target(struct rnode *n, struct env *env)
{
	struct target *t = calloc(1, sizeof(*t));
	struct chains_options co = {.transport = n->rig->net,
				    .key = &n->rig->key,
				    .name = n->name,
				    .window_max = 8,
				    .changed_max = n->params.resync_log_max,
				    .waiting_max = 32,
				    .kept_max = 8,
				    .kept_merged_max = 2};
	struct maintenance_options ao = {.transport = n->rig->net,
				  .p = &n->params,
				  .metrics = &n->metrics,
				  .synced = synced,
				  .arg = n};
	int rc;

	ASSERT(t);
	*t = (struct target){.magic = TARGET_MAGIC,
			     .env = env,
			     .p = &n->params,
			     .metrics = &n->metrics,
			     .addrs = n->name};
	chunk_leases_init(&t->leases, env, &n->metrics.leases_run_out);
	if (!n->formatted)
		ASSERT(ossd_format(env, &n->params, false) == 0);
	rc = chunk_store_open(env, &n->params, &n->metrics, &t->store);
	ASSERT(rc == 0);
	fence_init(&t->fence, env, &t->store->writers);
	t->fence.open = true;
	grace_init(&t->grace, t->store, 64);
	t->grace.over = true;
	if (!n->formatted)
		ASSERT(chunk_store_set_owner(t->store, &CLUSTER, n->id) == 0);
	n->formatted = true;
	t->id = n->id;
	co.store = t->store;
	ASSERT(chains_open(&co, &t->chains) == 0);
	ao.chains = t->chains;
	ASSERT(maintenance_start(&ao, &t->maintenance) == 0);
	ASSERT(scrub_open(t->maintenance, &t->scrub) == 0);
	n->target = t;
}

static void served(void *arg, const struct rpc_req *r, int status, uint64_t us)
{
	struct target *t = arg;

	(void)status, (void)us;
	if (r->peer->role != ROLE_OSSD)
		metric_add(&t->metrics->client_requests, 1);
}

static void serve(struct rnode *n)
{
	char addr[32];
	struct rpc_server_options o = {
		.transport = n->rig->net,
		.addrs = addr,
		.name = n->name,
		.role = ROLE_OSSD,
		.cluster = CLUSTER,
		.key = n->rig->key,
		.bulk_max = 4 << 20,
		.handlers = ossd_handlers,
		.n_handlers = n_ossd_handlers,
		.arg = n->target,
		.served = served,
	};

	snprintf(addr, sizeof(addr), "%s:7000", n->name);
	ASSERT(slot_pool_create(OSSD_SLOT_SIZE, 16, &n->pool) == 0);
	o.bulk_pool = n->pool;
	ASSERT(rpc_server_create(&o, &n->server) == 0);
}

static void node_main(struct loop *loop, void *arg)
{
	struct rnode *n = arg;

	n->adopted = 0;
	open_target(n, loop_env(loop));
	serve(n);
	n->up = true;
	while (!n->stop) {
		if (n->adopted != n->rig->orders)
			follow(n);
		if (n->fn)
			n->fn(n, n->arg);
		n->fn = NULL;
		chains_lease(n->target->chains, env_now_us(loop_env(loop)), 5000);
		ASSERT(fiber_sleep_us(POLL_US) == 0);
	}
	chains_stop(n->target->chains);
	scrub_close(n->target->scrub);
	maintenance_stop(n->target->maintenance);
	rpc_server_destroy(n->server, 1000);
	chains_close(n->target->chains);
	scrub_free(n->target->scrub);
	maintenance_free(n->target->maintenance);
	chunk_store_close(n->target->store);
	slot_pool_destroy(n->pool);
	free(n->target);
	n->target = NULL;
	n->up = false;
}

void rrig_start(struct rrig *r, uint32_t node)
{
	struct rnode *n = &r->node[node];

	n->up = n->stop = false;
	ASSERT(sim_proc_start(n->proc, node_main, n) == 0);
	while (r->driver && fiber_self() && !n->up)
		ASSERT(fiber_sleep_us(POLL_US) == 0);
}

void rrig_crash(struct rrig *r, uint32_t node)
{
	struct rnode *n = &r->node[node];

	sim_proc_crash(n->proc);
	n->up = false;
	n->target = NULL;
}

void rrig_do(struct rrig *r, uint32_t node, void (*fn)(struct rnode *n, void *arg), void *arg)
{
	struct rnode *n = &r->node[node];

	n->arg = arg;
	n->fn = fn;
	while (n->fn)
		ASSERT(fiber_sleep_us(POLL_US) == 0);
}

void rrig_init(struct rrig *r, uint32_t n_nodes, uint64_t seed)
{
	struct sim_options so = {.kv_open = kv_sim_open};
	struct transport_sim_options calm = {.delay_us_max = 200};

	*r = (struct rrig){.n_nodes = n_nodes, .seed = seed};
	memset(&r->key, 7, sizeof(r->key));
	ASSERT(sim_create(seed, &so, &r->sim) == 0);
	ASSERT(transport_sim_create(r->sim, &calm, &r->net) == 0);
	for (uint32_t i = 0; i < n_nodes; i++) {
		struct rnode *n = &r->node[i];
		struct config_section s = {"ossd", ossd_param_table, n_ossd_params, &n->params};

		config_defaults(&s, 1);
		n->rig = r;
		n->id = i + 1;
		snprintf(n->name, sizeof(n->name), "n%u", i + 1);
		snprintf(n->params.data_dir, sizeof(n->params.data_dir), "/store");
		n->params.data_size = 64 << 20;
		n->params.zero_ahead = 0;
		n->params.grow_step = 1 << 20;
		n->params.scrub_interval_h = 0;
		n->params.scrub_rate_mib_s = 0;
		n->params.resync_share = 100;
		n->proc = sim_proc_create(r->sim, n->name);
	}
	r->driver = sim_proc_create(r->sim, "driver");
	rig_of_synced = r;
}

void rrig_fini(struct rrig *r)
{
	for (uint32_t i = 0; i < r->n_nodes; i++)
		if (sim_proc_alive(r->node[i].proc))
			sim_proc_crash(r->node[i].proc);
	transport_destroy(r->net);
	sim_destroy(r->sim);
}

/* ---- the test's process ---- */

static void driver_main(struct loop *loop, void *arg)
{
	struct rrig *r = arg;

	(void)loop;
	ASSERT(slot_pool_create(OSSD_SLOT_SIZE, 4, &r->slots) == 0);
	for (uint32_t i = 0; i < r->n_nodes; i++) {
		char addr[32];
		struct rpc_client_options o = {.transport = r->net,
					       .addrs = addr,
					       .name = "driver",
					       .role = ROLE_MDS,
					       .cluster = CLUSTER,
					       .key = r->key,
					       .backoff_max_ms = 20};

		snprintf(addr, sizeof(addr), "%s:7000", r->node[i].name);
		ASSERT(rpc_client_create(&o, &r->node[i].client) == 0);
		if (!sim_proc_alive(r->node[i].proc))
			rrig_start(r, i);
	}
	r->fn(r, r->arg);
	for (uint32_t i = 0; i < r->n_nodes; i++)
		rpc_client_destroy(r->node[i].client);
	slot_pool_destroy(r->slots);
	r->done = true;
}

static bool is_done(void *arg)
{
	return ((struct rrig *)arg)->done;
}

void rrig_run(struct rrig *r, void (*fn)(struct rrig *r, void *arg), void *arg)
{
	r->fn = fn;
	r->arg = arg;
	r->done = false;
	ASSERT(sim_proc_start(r->driver, driver_main, r) == 0);
	ASSERT(sim_run(r->sim, is_done, r, sim_now_us(r->sim) + LIMIT_US) == 0);
	sim_proc_crash(r->driver);
}

void rrig_set(struct rrig *r, const char *order, const char *states)
{
	bool all = false;

	r->n_members = 0;
	for (uint32_t i = 0; order[i]; i++) {
		enum member_state s = states[i] == 'S'   ? MEMBER_SYNC
				      : states[i] == 'Y' ? MEMBER_SYNCING
							 : MEMBER_OUT;

		r->members[r->n_members++] =
			(struct chain_member){(uint32_t)(order[i] - '0') + 1, s};
	}
	r->epoch++;
	r->orders++;
	while (!all) {
		all = true;
		for (uint32_t i = 0; i < r->n_nodes; i++)
			all &= !r->node[i].up || r->node[i].adopted == r->orders;
		ASSERT(fiber_sleep_us(POLL_US) == 0);
	}
}

bool rrig_wait_synced(struct rrig *r, uint32_t node, uint32_t ms)
{
	for (uint32_t t = 0; t < ms; t++) {
		for (uint32_t i = 0; i < r->n_nodes; i++)
			if (r->node[i].synced_epoch == r->epoch &&
			    r->node[i].synced_target == r->node[node].id)
				return true;
		ASSERT(fiber_sleep_us(1000) == 0);
	}
	return false;
}

static int ask(struct rrig *r, uint32_t node, struct rpc_call *call)
{
	call->deadline_us = loop_deadline_ms(3000);
	call->target = r->node[node].id;
	call->chain = RRIG_CHAIN;
	call->epoch = r->epoch;
	return rpc_call(r->node[node].client, call);
}

static uint32_t head(const struct rrig *r)
{
	return r->members[0].target - 1;
}

int rrig_write(struct rrig *r, uint64_t ino, uint64_t idx, uint8_t value, uint32_t len)
{
	uint8_t pieces[8 * PIECE_WIRE_SIZE];
	uint32_t bs = chunk_block_size(RRIG_CS), n = 0;
	struct slot_vec v = {.len = len};
	struct oss_write_req req = {.chunk = {{ino}, 1, idx}, .chunk_size = RRIG_CS, .len = len};
	struct oss_write_rep rep;
	int rc = -LE_AGAIN;

	ASSERT(slot_get(r->slots, NO_DEADLINE, &v.slot) == 0);
	memset(v.slot->data, value, len);
	for (uint32_t pos = 0; pos < len; pos += bs, n++) {
		uint32_t part = len - pos < bs ? len - pos : bs;
		struct piece p = {pos, part, part, 0, checksum64(v.slot->data + pos, part), 0};

		piece_encode(&p, pieces + (size_t)n * PIECE_WIRE_SIZE);
	}
	req.pieces = bytes_of(pieces, n * PIECE_WIRE_SIZE);
	for (int i = 0; i < 20 && rc < 0; i++) {
		struct rpc_call call = {.op = OP_oss_write,
					.req = &req,
					.rep = &rep,
					.bulk_out = &v,
					.n_bulk_out = 1};

		rc = ask(r, head(r), &call);
		rpc_call_fini(&call);
		if (rc < 0)
			(void)fiber_sleep_us(2000);
	}
	slot_unref(v.slot);
	return rc;
}

int rrig_remove(struct rrig *r, uint64_t first, uint64_t last)
{
	uint8_t buf[12 * 16];
	uint32_t gen = 1;
	struct oss_remove_rep rep;
	struct wire_w w;
	int rc = -LE_AGAIN;

	wire_w_init(&w, buf, sizeof(buf));
	for (uint64_t ino = last; ino >= first; ino--) {
		wire_put_u64(&w, &ino);
		wire_put_u32(&w, &gen);
	}
	ASSERT(w.status == 0);
	for (int i = 0; i < 20 && rc < 0; i++) {
		struct oss_remove_req req = {bytes_of(buf, (uint32_t)w.len)};
		struct rpc_call call = {.op = OP_oss_remove, .req = &req, .rep = &rep};

		rc = ask(r, head(r), &call);
		rpc_call_fini(&call);
	}
	return rc;
}

int rrig_trim_as(struct rrig *r, uint64_t ino, uint64_t size, uint64_t seq)
{
	struct oss_trim_req req = {.ino = {ino}, .gen = 1, .chunk_size = RRIG_CS, .size = size};
	struct oss_trim_rep rep;
	int rc = -LE_AGAIN;

	for (int i = 0; i < 20 && rc < 0; i++) {
		struct rpc_call call = {
			.op = OP_oss_trim, .req = &req, .rep = &rep, .session = !!seq, .seq = seq};

		rc = ask(r, head(r), &call);
		rpc_call_fini(&call);
	}
	return rc;
}

int rrig_trim(struct rrig *r, uint64_t ino, uint64_t size)
{
	return rrig_trim_as(r, ino, size, 0);
}

int rrig_read(struct rrig *r, uint32_t node, uint64_t ino, uint64_t idx, uint8_t *ret_value)
{
	struct oss_read_req req = {.chunk = {{ino}, 1, idx}, .len = RRIG_CS, .flags = READ_VERIFY};
	struct oss_read_rep rep = {0};
	struct slot_vec v = {.len = RRIG_CS};
	struct rpc_call call = {
		.op = OP_oss_read, .req = &req, .rep = &rep, .bulk_in = &v, .n_bulk_in = 1};
	int rc;

	ASSERT(slot_get(r->slots, NO_DEADLINE, &v.slot) == 0);
	rc = ask(r, node, &call);
	*ret_value = rc == 0 && rep.end ? v.slot->data[0] : 0;
	rpc_call_fini(&call);
	slot_unref(v.slot);
	return rc;
}

struct summaries {
	struct chunk_summary c[1024];
	uint32_t n;
	bool more;
};

static void list_node(struct rrig *r, uint32_t node, const struct chunk_id *from,
		      struct summaries *s)
{
	struct oss_list_req req = {*from, 1000};
	struct oss_list_rep rep = {0};
	struct rpc_call call = {.op = OP_oss_list, .req = &req, .rep = &rep};
	struct wire_r w;
	int rc = ask(r, node, &call);

	ASSERT(rc == 0);
	wire_r_init(&w, rep.chunks.data, rep.chunks.len);
	for (s->n = 0; !wire_r_end(&w); s->n++)
		wire_get_chunk_summary(&w, &s->c[s->n]);
	s->more = rep.more;
	rpc_call_fini(&call);
}

uint64_t rrig_same(struct rrig *r, uint32_t a, uint32_t b)
{
	struct summaries *x = calloc(2, sizeof(*x)), *y = x + 1;
	struct chunk_id from = {0};
	uint64_t n = 0;

	ASSERT(x);
	ASSERT(fiber_sleep_us(3000000) == 0); /* until commits have reached all members */
	do {
		list_node(r, a, &from, x);
		list_node(r, b, &from, y);
		if (x->n != y->n)
			PANIC("chunks: %u and %u", x->n, y->n);
		for (uint32_t i = 0; i < x->n; i++) {
			ASSERT(x->c[i].chunk.ino.v == y->c[i].chunk.ino.v);
			ASSERT(x->c[i].chunk.idx == y->c[i].chunk.idx);
			if (x->c[i].version != y->c[i].version || x->c[i].sum != y->c[i].sum)
				PANIC("inode %llu: versions %llu and %llu",
				      (unsigned long long)x->c[i].chunk.ino.v,
				      (unsigned long long)x->c[i].version,
				      (unsigned long long)y->c[i].version);
		}
		n += x->n;
		if (x->n)
			from = x->c[x->n - 1].chunk;
		from.idx++;
	} while (x->more || y->more);
	free(x);
	return n;
}
