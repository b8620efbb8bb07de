/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/ossd/chain/chain_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/checksum.h"
#include "common/kv/kv.h"
#include "common/kv/kv_sim.h"
#include "common/rpc/transport/transport_sim.h"
#include "ossd/chain/chains.h"
#include "ossd/dispatch.h"
#include "ossd/format.h"
#include "ossd/server.h"

/* Processes that crash, and those that run when the simulation ends, do not free their memory.
 * Weak, because a test may link both rigs. */
int __lsan_is_turned_off(void) __attribute__((weak));
int __lsan_is_turned_off(void)
{
	return 1;
}

#define LIMIT_US (3600ULL * 1000000)
#define CALL_MS  20000u

/* ---- the servers ---- */

static void lease_main(void *arg)
{
	struct member *m = arg;

	while (m->running) {
		struct env *env = m->target.env;

		if (m->rig->lease_ms)
			chains_lease(m->target.chains, env_now_us(env), m->rig->lease_ms);
		(void)!fiber_sleep_us(50000);
	}
}

static void open_target(struct member *m, struct env *env)
{
	struct target *t = &m->target;
	const struct uuid cluster = {{7, 7}};
	struct chains_options o = {.transport = m->rig->transport,
				   .key = &m->rig->key,
				   .name = m->name,
				   .window_max = m->params.window_max,
				   .changed_max = 1000,
				   .waiting_max = 4,
				   .kept_max = 8,
				   .kept_merged_max = 2};

	*t = (struct target){.magic = TARGET_MAGIC,
			     .env = env,
			     .p = &m->params,
			     .metrics = &m->metrics,
			     .ready = true,
			     .id = (uint32_t)(m - m->rig->m) + 1};
	cap_key_derive(&m->rig->key, &t->cap_key);
	chunk_leases_init(&t->leases, env, &m->metrics.leases_run_out);
	assert_int_equal(chunk_store_open(env, &m->params, &m->metrics, &t->store), 0);
	assert_int_equal(chunk_store_set_owner(t->store, &cluster, t->id), 0);
	fence_init(&t->fence, env, &t->store->writers);
	t->fence.open = true;
	grace_init(&t->grace, t->store, 64);
	t->grace.over |= m->rig->grace_ms == 0;
	grace_begin(&t->grace, m->rig->grace_ms);
	o.store = t->store;
	o.start_us = env_now_us(env);
	assert_int_equal(chains_open(&o, &t->chains), 0);
}

static void server_main(struct loop *loop, void *arg)
{
	struct member *m = arg;
	struct rpc_server_options so = {
		.transport = m->rig->transport,
		.addrs = m->params.listen,
		.name = m->name,
		.role = ROLE_OSSD,
		.cluster = {{7, 7}},
		.key = m->rig->key,
		.bulk_max = 4 << 20,
		.handlers = ossd_handlers,
		.n_handlers = n_ossd_handlers,
		.arg = &m->target,
	};

	if (!m->formatted)
		assert_int_equal(ossd_format(loop_env(loop), &m->params, false), 0);
	m->formatted = true;
	open_target(m, loop_env(loop));
	assert_int_equal(slot_pool_create(OSSD_SLOT_SIZE, 16, &m->bulk), 0);
	so.bulk_pool = m->bulk;
	assert_int_equal(rpc_server_create(&so, &m->server), 0);
	m->running = true;
	assert_int_equal(fiber_spawn("lease", lease_main, m), 0);
}

static void wait_running(struct member *m)
{
	while (!m->running)
		(void)!fiber_sleep_us(1000);
}

void crig_crash(struct chain_rig *r, uint32_t i)
{
	r->m[i].running = false;
	sim_proc_crash(r->m[i].proc);
}

void crig_restart(struct chain_rig *r, uint32_t i)
{
	assert_int_equal(sim_proc_start(r->m[i].proc, server_main, &r->m[i]), 0);
	wait_running(&r->m[i]);
}

void crig_cut_off(struct chain_rig *r, uint32_t a, uint32_t b, bool cut)
{
	transport_sim_partition(r->transport, r->m[a].name, r->m[b].name, cut);
}

static void member_init(struct chain_rig *r, uint32_t i)
{
	struct member *m = &r->m[i];
	struct config_section s = {"ossd", ossd_param_table, n_ossd_params, &m->params};

	m->rig = r;
	config_defaults(&s, 1);
	snprintf(m->name, sizeof(m->name), "ossd%u", i + 1);
	snprintf(m->params.data_dir, sizeof(m->params.data_dir), "/store");
	snprintf(m->params.listen, sizeof(m->params.listen), "%s:1", m->name);
	m->params.data_size = r->disk ? r->disk : 32 << 20;
	m->params.grow_step = 4 << 20;
	m->params.zero_ahead = 0;
	m->params.read_slots = 8;
	m->params.merge_slots = 4;
	m->params.reserve = 1 << 20;
	m->params.window_max = 4;
	m->state = MEMBER_SYNC;
	r->order[i] = i;
	m->proc = sim_proc_create(r->sim, m->name);
	assert_int_equal(sim_proc_start(m->proc, server_main, m), 0);
}

/* ---- the metadata server's part ---- */

static uint32_t put_chain(struct chain_rig *r, uint8_t *buf, size_t size)
{
	struct chain_member m[RIG_MEMBERS];
	uint8_t members[CHAIN_MEMBERS_BUF];
	struct chain_info info = {.id = RIG_CHAIN, .epoch = r->epoch, .replicas = r->n};
	struct wire_w w;

	for (uint32_t i = 0; i < r->n; i++)
		m[i] = (struct chain_member){r->order[i] + 1, r->m[r->order[i]].state};
	chain_members_put(m, r->n, members, &info);
	wire_w_init(&w, buf, size);
	wire_put_chain_info(&w, &info);
	assert_int_equal(w.status, 0);
	return (uint32_t)w.len;
}

static uint32_t put_targets(struct chain_rig *r, uint8_t *buf, size_t size)
{
	struct wire_w w;

	wire_w_init(&w, buf, size);
	for (uint32_t i = 0; i < r->n; i++) {
		struct target_info t = {.id = i + 1, .addrs = bytes_str(r->m[i].params.listen)};

		wire_put_target_info(&w, &t);
	}
	assert_int_equal(w.status, 0);
	return (uint32_t)w.len;
}

void crig_tell(struct chain_rig *r, uint32_t i)
{
	uint8_t chains[256], targets[1024];
	struct oss_chain_set_req req = {
		.chains = bytes_of(chains, put_chain(r, chains, sizeof(chains))),
		.targets = bytes_of(targets, put_targets(r, targets, sizeof(targets)))};
	struct oss_chain_set_rep rep;
	struct rpc_call call = {.op = OP_oss_chain_set,
				.req = &req,
				.rep = &rep,
				.target = i + 1,
				.deadline_us = loop_deadline_ms(CALL_MS)};

	assert_int_equal(rpc_call(r->m[i].client, &call), 0);
	rpc_call_fini(&call);
}

void crig_members(struct chain_rig *r)
{
	r->epoch++;
	for (uint32_t i = 0; i < r->n; i++)
		if (r->m[i].running)
			crig_tell(r, i);
}

/* ---- running ---- */

static void client_main(struct loop *loop, void *arg)
{
	struct chain_rig *r = arg;

	(void)loop;
	assert_int_equal(slot_pool_create(OSSD_SLOT_SIZE, 64, &r->pool), 0);
	for (uint32_t i = 0; i < r->n; i++) {
		struct rpc_client_options o = {.transport = r->transport,
					       .addrs = r->m[i].params.listen,
					       .name = "test",
					       .role = ROLE_MDS,
					       .cluster = {{7, 7}},
					       .key = r->key};

		wait_running(&r->m[i]);
		assert_int_equal(rpc_client_create(&o, &r->m[i].client), 0);
	}
	crig_members(r);
	r->fn(r);
	r->done = true;
}

static bool is_done(void *arg)
{
	return ((struct chain_rig *)arg)->done;
}

void chain_rig_run_on(struct chain_rig *r, uint64_t seed, uint32_t n,
		      void (*fn)(struct chain_rig *r))
{
	struct sim_options so = {.kv_open = kv_sim_open, .disk_us_max = r->disk_us};

	r->n = n;
	r->fn = fn;
	r->lease_ms = 1000;
	memset(&r->key, 7, sizeof(r->key));
	assert_int_equal(sim_create(seed, &so, &r->sim), 0);
	assert_int_equal(transport_sim_create(r->sim, NULL, &r->transport), 0);
	for (uint32_t i = 0; i < n; i++)
		member_init(r, i);
	r->client = sim_proc_create(r->sim, "client");
	assert_int_equal(sim_proc_start(r->client, client_main, r), 0);
	assert_int_equal(sim_run(r->sim, is_done, r, sim_now_us(r->sim) + LIMIT_US), 0);
	sim_destroy(r->sim);
	transport_destroy(r->transport);
}

void chain_rig_run(uint64_t seed, uint32_t n, void (*fn)(struct chain_rig *r))
{
	struct chain_rig *r = calloc(1, sizeof(*r));

	assert_non_null(r);
	chain_rig_run_on(r, seed, n, fn);
	free(r);
}

/* ---- calls ---- */

static uint32_t cut(const struct crig_write *w, uint8_t *out)
{
	const uint8_t *data = w->data;
	uint32_t n = 0;

	for (uint32_t pos = 0; pos < w->len;) {
		uint32_t space = RIG_BS - (w->off + pos) % RIG_BS;
		uint32_t part = space < w->len - pos ? space : w->len - pos;
		struct piece p = {w->off + pos, part, part, part < RIG_BS ? PIECE_FRAGMENT : 0,
				  checksum64(data + pos, part), 0};

		piece_encode(&p, out + (size_t)n++ * PIECE_WIRE_SIZE);
		pos += part;
	}
	return n;
}

static struct rpc_call call_of(struct chain_rig *r, uint32_t i, uint16_t op, const void *req,
			       void *rep)
{
	return (struct rpc_call){.op = op,
				 .req = req,
				 .rep = rep,
				 .target = i + 1,
				 .chain = RIG_CHAIN,
				 .epoch = r->epoch,
				 .deadline_us = loop_deadline_ms(CALL_MS)};
}

static void accepted(void *arg)
{
	*(bool *)arg = true;
}

int crig_write(struct chain_rig *r, uint32_t i, struct crig_write *w, uint64_t timeout_ms)
{
	uint8_t pieces[(RIG_CS / RIG_BS + 1) * PIECE_WIRE_SIZE];
	struct oss_write_req req = {.chunk = w->chunk,
				    .chunk_size = RIG_CS,
				    .off = w->off,
				    .len = w->len,
				    .flags = w->flags,
				    .base = w->base,
				    .pieces = bytes_of(pieces, cut(w, pieces) * PIECE_WIRE_SIZE)};
	struct oss_write_rep rep;
	struct rpc_call call = call_of(r, i, OP_oss_write, &req, &rep);
	struct slot_vec v = {.len = w->len};
	int rc;

	assert_int_equal(slot_get(r->pool, NO_DEADLINE, &v.slot), 0);
	memcpy(v.slot->data, w->data, w->len);
	call.deadline_us = loop_deadline_ms(timeout_ms);
	call.bulk_out = &v;
	call.n_bulk_out = 1;
	call.session = w->session;
	call.slot = w->slot;
	call.seq = w->seq;
	call.again = w->again || w->seen;
	call.seen = w->seen;
	call.accepted = accepted;
	call.accepted_arg = &w->accepted;
	rc = rpc_call(r->m[i].client, &call);
	rpc_call_fini(&call);
	slot_unref(v.slot);
	return rc;
}

int64_t crig_read_as(struct chain_rig *r, uint32_t i, uint64_t session,
		     const struct chunk_id *chunk, void *buf, uint32_t len)
{
	struct oss_read_req req = {.chunk = *chunk, .len = len, .flags = READ_VERIFY};
	struct oss_read_rep rep;
	struct rpc_call call = call_of(r, i, OP_oss_read, &req, &rep);
	struct slot_vec v = {.len = len};
	int rc;

	call.session = session;
	assert_int_equal(slot_get(r->pool, NO_DEADLINE, &v.slot), 0);
	call.bulk_in = &v;
	call.n_bulk_in = 1;
	rc = rpc_call(r->m[i].client, &call);
	if (rc == 0)
		memcpy(buf, v.slot->data, call.ret_bulk_len);
	rpc_call_fini(&call);
	slot_unref(v.slot);
	return rc < 0 ? rc : (int64_t)call.ret_bulk_len;
}

int64_t crig_read(struct chain_rig *r, uint32_t i, const struct chunk_id *chunk, void *buf,
		 uint32_t len)
{
	return crig_read_as(r, i, 0, chunk, buf, len);
}

int crig_remove(struct chain_rig *r, uint32_t i, struct ino ino, uint64_t seq)
{
	uint8_t files[12];
	struct oss_remove_req req = {0};
	struct oss_remove_rep rep;
	struct rpc_call call = call_of(r, i, OP_oss_remove, &req, &rep);
	uint32_t gen = 1;
	struct wire_w w;
	int rc;

	wire_w_init(&w, files, sizeof(files));
	wire_put_u64(&w, &ino.v);
	wire_put_u32(&w, &gen);
	req.files = bytes_of(files, sizeof(files));
	call.session = 1;
	call.slot = 77;
	call.seq = seq;
	rc = rpc_call(r->m[i].client, &call);
	rpc_call_fini(&call);
	return rc;
}

int crig_trim(struct chain_rig *r, uint32_t i, const struct chunk_id *file, uint64_t size,
	     uint64_t seq, uint8_t *ret_shown)
{
	struct oss_trim_req req = {
		.ino = file->ino, .gen = file->gen, .chunk_size = RIG_CS, .size = size};
	struct oss_trim_rep rep;
	struct rpc_call call = call_of(r, i, OP_oss_trim, &req, &rep);
	int rc;

	call.session = 1;
	call.slot = 78;
	call.seq = seq;
	rc = rpc_call(r->m[i].client, &call);
	if (rc >= 0 && ret_shown)
		*ret_shown = rep.shown;
	rpc_call_fini(&call);
	return rc;
}

int crig_punch(struct chain_rig *r, uint32_t i, const struct chunk_id *file, uint64_t off,
	       uint64_t len, uint64_t seq)
{
	struct oss_punch_req req = {.ino = file->ino,
				    .gen = file->gen,
				    .chunk_size = RIG_CS,
				    .off = off,
				    .len = len};
	struct oss_punch_rep rep;
	struct rpc_call call = call_of(r, i, OP_oss_punch, &req, &rep);
	int rc;

	call.session = 1;
	call.slot = 79;
	call.seq = seq;
	rc = rpc_call(r->m[i].client, &call);
	rpc_call_fini(&call);
	return rc;
}

int64_t crig_read_any(struct chain_rig *r, uint32_t i, const struct chunk_id *chunk, uint8_t *buf)
{
	int64_t n;

	while ((n = crig_read(r, i, chunk, buf, RIG_CS)) == -LE_PENDING)
		(void)!fiber_sleep_us(1000);
	return n;
}

static void async_main(void *arg)
{
	struct crig_async *a = arg;

	a->rc = crig_write(a->r, a->at, &a->w, a->timeout_ms);
	a->ended = true;
}

void crig_start(struct crig_async *a)
{
	assert_int_equal(fiber_spawn("async", async_main, a), 0);
}

void crig_wait(struct crig_async *a)
{
	while (!a->ended)
		(void)!fiber_sleep_us(1000);
}

int crig_say(struct chain_rig *r, uint32_t i, const struct oss_forward_req *req)
{
	struct oss_forward_rep rep;
	struct rpc_call call = {.op = OP_oss_forward,
				.req = req,
				.rep = &rep,
				.target = i + 1,
				.chain = RIG_CHAIN,
				.epoch = r->epoch,
				.deadline_us = loop_deadline_ms(3000)};
	struct rpc_client_options o = {.transport = r->transport,
				       .addrs = r->m[i].params.listen,
				       .name = "other",
				       .role = ROLE_OSSD,
				       .cluster = {{7, 7}},
				       .key = r->key};
	struct rpc_client *client;
	int rc;

	assert_int_equal(rpc_client_create(&o, &client), 0);
	rc = rpc_call(client, &call);
	rpc_call_fini(&call);
	rpc_client_destroy(client);
	return rc;
}

void crig_fill(uint8_t *p, uint32_t len, uint64_t seed)
{
	for (uint32_t i = 0; i < len; i++)
		p[i] = (uint8_t)hash_u64(seed + i / 7) + (uint8_t)i;
}

static void writer_main(void *arg)
{
	struct crig_writer *a = arg;

	for (uint32_t k = 0; k < a->n; k++) {
		uint8_t data[64];
		uint32_t off = k % 200 * 1024 + a->i * 64;
		struct crig_write w = {
			a->chunk, off, 64, data, .session = 100 + a->i, .seq = k + 1};
		int rc;

		crig_fill(data, 64, a->i * 1000 + k);
		memcpy(a->model + off, data, 64);
		do {
			rc = crig_write(a->r, 0, &w, a->timeout_ms);
		} while (rc == -LE_OVERLOAD || (rc < 0 && a->again));
		assert_int_equal(rc, 0);
	}
}

void crig_write_many(struct crig_writer *like)
{
	struct crig_writer a[RIG_WRITERS];

	for (uint32_t i = 0; i < RIG_WRITERS; i++) {
		a[i] = *like;
		a[i].i = i;
	}
	fiber_parallel("writer", writer_main, a, sizeof(a[0]), RIG_WRITERS, RIG_WRITERS);
}

/* ---- what the stores hold ---- */

static const struct chain *chain_at(struct chain_rig *r, uint32_t i)
{
	const struct chain *c = chain_find(r->m[i].target.chains, RIG_CHAIN);

	assert_non_null(c);
	return c;
}

void crig_wait_quiet(struct chain_rig *r)
{
	for (uint32_t i = 0; i < r->n; i++)
		while (r->m[i].running && chain_at(r, i)->n_pending)
			(void)!fiber_sleep_us(10000);
}

static int64_t list_chain(struct chain_rig *r, uint32_t i, uint8_t *buf, size_t size)
{
	struct oss_list_req req = {.max = 1000};
	struct oss_list_rep rep;
	struct rpc_call call = call_of(r, i, OP_oss_list, &req, &rep);
	int64_t len;

	assert_int_equal(rpc_call(r->m[i].client, &call), 0);
	assert_false(rep.more);
	assert_true(rep.chunks.len <= size);
	len = rep.chunks.len;
	memcpy(buf, rep.chunks.data, rep.chunks.len);
	rpc_call_fini(&call);
	return len;
}

void crig_check_equal(struct chain_rig *r)
{
	static uint8_t first[1 << 16], other[1 << 16];
	int64_t n = -1;

	crig_wait_quiet(r);
	for (uint32_t i = 0; i < r->n; i++) {
		int64_t len;

		if (!r->m[i].running || r->m[i].state == MEMBER_OUT)
			continue;
		len = list_chain(r, i, n < 0 ? first : other, sizeof(first));
		if (n >= 0) {
			assert_int_equal(len, n);
			assert_memory_equal(first, other, (size_t)n);
		}
		n = len;
	}
}
