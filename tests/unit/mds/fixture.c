/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/mds/fixture.h"

#include <fcntl.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/kv/kv.h"
#include "common/kv/kv_sim.h"
#include "common/rpc/transport/transport_sim.h"
#include "mds/check.h"
#include "mds/dispatch.h"
#include "mds/format.h"

/* ---- object servers ---- */

/* In one slot of a chain an older request never follows a newer one. */
static int on_intent(struct fx *f, const struct frame_hdr *h)
{
	uint64_t *last = &f->intent_seq[h->chain - 1][h->slot % FX_SLOTS];

	if (h->seq < *last)
		return -LE_STALE_SEQ;
	*last = h->seq;
	return f->oss_fail ? -LE_OVERLOAD : 0;
}

static int on_trim(struct rpc_req *r, const void *in, void *out)
{
	struct fx *f = r->arg;
	struct oss_trim_rep *p = out;

	(void)in;
	f->n_trims++;
	p->shown = f->shown;
	p->n_chunks = f->cut;
	if (f->n_lost > 0 && f->n_lost-- > 0) {
		f->cut = 0;
		return -LE_OVERLOAD;
	}
	return on_intent(f, &r->hdr);
}

static int on_punch(struct rpc_req *r, const void *in, void *out)
{
	struct fx *f = r->arg;

	(void)in, (void)out;
	f->n_punches++;
	return on_intent(f, &r->hdr);
}

static int on_sync(struct rpc_req *r, const void *in, void *out)
{
	struct fx *f = r->arg;
	const struct oss_sync_req *q = in;

	(void)out;
	f->n_syncs += q->ino.v != 0;
	return 0;
}

static int on_remove(struct rpc_req *r, const void *in, void *out)
{
	struct fx *f = r->arg;
	const struct oss_remove_req *q = in;

	(void)out;
	if (f->oss_fail)
		return -LE_OVERLOAD;
	f->n_removed += q->files.len / 12;
	return 0;
}

static int on_stat(struct rpc_req *r, const void *in, void *out)
{
	struct fx *f = r->arg;

	(void)in;
	*(struct oss_stat_rep *)out = f->stat;
	return f->oss_fail || (f->punched_fails && f->n_punches > 0) ? -LE_OVERLOAD : 0;
}

static const struct rpc_handler oss_handlers[] = {
	{OP_oss_trim, on_trim},
	{OP_oss_punch, on_punch},
	{OP_oss_remove, on_remove},
	{OP_oss_stat, on_stat},
	{OP_oss_sync, on_sync},
};

static const struct uuid test_cluster = {{7, 7, 7}};

static void oss_main(struct loop *l, void *arg)
{
	struct fx *f = arg;

	(void)l;
	for (uint32_t i = 0; i < FX_TARGETS; i++) {
		char addr[32];
		struct rpc_server_options o = {
			.transport = f->net,
			.addrs = addr,
			.name = "oss",
			.role = ROLE_OSSD,
			.cluster = test_cluster,
			.key = f->key,
			.handlers = oss_handlers,
			.n_handlers = ARRAY_SIZE(oss_handlers),
			.arg = f,
		};

		snprintf(addr, sizeof(addr), "oss:%u", 9000 + i);
		ASSERT(rpc_server_create(&o, &f->oss[i]) == 0);
		snprintf(f->oss_addr[i], sizeof(f->oss_addr[i]), "%s", rpc_server_addrs(f->oss[i]));
	}
	while (!f->oss_stop)
		fiber_sleep_us(1000);
	for (uint32_t i = 0; i < FX_TARGETS; i++)
		rpc_server_destroy(f->oss[i], 100);
	f->done = true;
}

/* ---- the server ---- */

static void register_targets(struct fx *f)
{
	for (uint32_t i = 0; i < FX_TARGETS; i++) {
		struct mds_target_register_req q = {
			.uuid = {{100, (uint8_t)i}},
			.commits = 1,
			.addrs = bytes_str(f->oss_addr[i]),
			.capacity = 1 << 30,
			.free = 1 << 29,
		};
		struct mds_target_register_rep p;

		int rc = fx_call_as(f, 0, 0, 0, OP_mds_target_register, &q, &p);

		/* A target that was given up stays away. */
		ASSERT(rc == 0 || rc == -LE_REMOVED || rc == -LE_LEAVING);
		ASSERT(rc < 0 || p.target == i + 1);
	}
}

static void start_server(struct fx *f)
{
	struct env *env = loop_env(loop_self());
	struct mds_options o = {.transport = f->net, .key = f->key, .params = f->params};
	int rc = mds_start(&o, &f->m);

	if (rc < 0) {
		ASSERT(mds_format(env, &f->params, &test_cluster) == 0);
		rc = mds_start(&o, &f->m);
	}
	ASSERT(rc == 0);
	if (!f->no_targets)
		register_targets(f);
	if (f->session == 0)
		f->session = fx_session(f, 1);
}

static void mds_main(struct loop *l, void *arg)
{
	struct fx *f = arg;

	(void)l;
	start_server(f);
	for (;;) {
		if (f->body != NULL) {
			f->body(f);
			f->body = NULL;
			f->done = true;
		}
		fiber_sleep_us(1000);
	}
}

static bool is_done(void *arg)
{
	return ((struct fx *)arg)->done;
}

/* Of the leak sanitizer; NULL without it. */
void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));

struct fx *fx_create_to_crash(uint64_t seed)
{
	struct fx *f;

	if (__lsan_disable != NULL)
		__lsan_disable();
	f = fx_create(seed);
	f->to_crash = true;
	return f;
}

struct fx *fx_create(uint64_t seed)
{
	struct fx *f = calloc(1, sizeof(*f));
	struct sim_options so = {.kv_open = kv_sim_open};
	struct transport_sim_options no = {.delay_us_max = 100};
	struct config_section section = {"mds", mds_param_table, n_mds_params, &f->params};

	log_init("test", getenv("LEAT_TEST_LOG") != NULL ? LOG_DEBUG : LOG_ERROR);
	config_defaults(&section, 1);
	snprintf(f->params.data_dir, sizeof(f->params.data_dir), "/mds");
	snprintf(f->params.listen, sizeof(f->params.listen), "mds:7440");
	f->params.reclaim_delay_ms = 10;
	f->params.lease_ms = 600000; /* no target sends heartbeats here */
	memset(f->key.b, 3, sizeof(f->key.b));
	list_init(&f->op.notified_sessions);
	list_init(&f->op.memory);
	assert_int_equal(sim_create(seed, &so, &f->sim), 0);
	assert_int_equal(transport_sim_create(f->sim, &no, &f->net), 0);
	f->mds_proc = sim_proc_create(f->sim, "mds");
	f->oss_proc = sim_proc_create(f->sim, "oss");
	assert_int_equal(sim_proc_start(f->oss_proc, oss_main, f), 0);
	assert_int_not_equal(sim_run(f->sim, is_done, f, sim_now_us(f->sim) + 10000), 0);
	return f;
}

static void stop_body(struct fx *f)
{
	mds_stop(f->m);
	f->m = NULL;
}

void fx_destroy(struct fx *f)
{
	op_fini(&f->op);
	if (f->m != NULL && sim_proc_alive(f->mds_proc))
		fx_run(f, stop_body);
	f->oss_stop = true;
	f->done = false;
	assert_int_equal(sim_run(f->sim, is_done, f, sim_now_us(f->sim) + 10000000), 0);
	op_fini(&f->op);
	sim_destroy(f->sim);
	transport_destroy(f->net);
	if (f->to_crash && __lsan_enable != NULL)
		__lsan_enable();
	free(f);
}

void fx_start(struct fx *f, void (*body)(struct fx *f))
{
	f->done = false;
	f->body = body;
	if (!sim_proc_alive(f->mds_proc))
		assert_int_equal(sim_proc_start(f->mds_proc, mds_main, f), 0);
}

void fx_run(struct fx *f, void (*body)(struct fx *f))
{
	fx_start(f, body);
	assert_int_equal(sim_run(f->sim, is_done, f, sim_now_us(f->sim) + 3600000000ull), 0);
}

void fx_crash(struct fx *f)
{
	op_fini(&f->op);
	sim_proc_crash(f->mds_proc);
	f->m = NULL;
}

uint64_t fx_session(struct fx *f, uint8_t client)
{
	struct mds_session_open_req q = {
		.client = {{client, 1}}, .name = bytes_str("test"), .slots = FX_SLOTS};
	struct mds_session_open_rep p;

	ASSERT(fx_call_as(f, 0, 0, 0, OP_mds_session_open, &q, &p) == 0);
	return p.session;
}

int fx_call_as(struct fx *f, uint64_t session, uint32_t slot, uint64_t seq, uint16_t op,
	       const void *in, void *out)
{
	struct frame_hdr hdr = {.op = op, .session = session, .slot = slot, .seq = seq};

	op_fini(&f->op);
	op_init(&f->op, f->m);
	if (out)
		memset(out, 0, msg_find(op)->rep_size);
	return op_run(&f->op, &hdr, in, out);
}

int fx_call(struct fx *f, uint16_t op, const void *in, void *out)
{
	uint64_t none[MSG_STRUCT_MAX / 8];
	uint64_t seq = msg_find(op)->kind == MSG_WRITE ? ++f->seq[f->slot] : 0;

	return fx_call_as(f, f->session, f->slot, seq, op, in, out != NULL ? out : none);
}

/* ---- shorthands ---- */

int fx_create_file(struct fx *f, struct ino dir, const char *name, uint32_t flags,
		   struct attr *ret_attr)
{
	struct mds_create_req q = {.cred = f->cred,
				   .parent = dir,
				   .name = bytes_str(name),
				   .mode = 0644,
				   .flags = flags};
	struct mds_create_rep p;

	TRY(fx_call(f, OP_mds_create, &q, &p));
	if (ret_attr != NULL)
		*ret_attr = p.attr;
	return 0;
}

int fx_mkdir(struct fx *f, struct ino dir, const char *name, struct ino *ret_ino)
{
	struct mds_mkdir_req q = {f->cred, dir, bytes_str(name), 0755};
	struct mds_mkdir_rep p;

	TRY(fx_call(f, OP_mds_mkdir, &q, &p));
	if (ret_ino != NULL)
		*ret_ino = p.attr.ino;
	return 0;
}

int fx_lookup(struct fx *f, struct ino dir, const char *name, struct attr *ret_attr)
{
	struct mds_lookup_req q = {f->cred, dir, bytes_str(name)};
	struct mds_lookup_rep p;

	TRY(fx_call(f, OP_mds_lookup, &q, &p));
	if (ret_attr != NULL)
		*ret_attr = p.attr;
	return 0;
}

int fx_getattr(struct fx *f, struct ino ino, struct attr *ret_attr)
{
	struct mds_getattr_req q = {f->cred, ino};
	struct mds_getattr_rep p;

	TRY(fx_call(f, OP_mds_getattr, &q, &p));
	*ret_attr = p.attr;
	return 0;
}

struct attr fx_attr(struct fx *f, struct ino ino)
{
	struct attr a;

	assert_int_equal(fx_getattr(f, ino, &a), 0);
	return a;
}

void fx_sleep_ms(uint32_t ms)
{
	assert_int_equal(fiber_sleep_us(ms * 1000ull), 0);
}

int fx_reclaim(struct fx *f, struct ino ino, uint32_t flags, bool done, uint32_t *ret_lost)
{
	uint8_t buf[16];
	struct wire_w w;
	struct mds_reclaim_req q = {.done = done};
	struct mds_reclaim_rep p;

	wire_w_init(&w, buf, sizeof(buf));
	wire_put_u64(&w, &ino.v);
	wire_put_u32(&w, &flags);
	wire_put_u32(&w, &(uint32_t){1});
	q.opens = bytes_of(buf, 16);
	TRY(fx_call(f, OP_mds_reclaim, &q, &p));
	*ret_lost = p.n_lost;
	return 0;
}

int fx_unlink(struct fx *f, struct ino dir, const char *name)
{
	struct mds_unlink_req q = {.cred = f->cred, .parent = dir, .name = bytes_str(name)};

	return fx_call(f, OP_mds_unlink, &q, NULL);
}

int fx_rmdir(struct fx *f, struct ino dir, const char *name)
{
	struct mds_rmdir_req q = {f->cred, dir, bytes_str(name)};

	return fx_call(f, OP_mds_rmdir, &q, NULL);
}

int fx_rename(struct fx *f, struct ino dir, const char *name, struct ino dir2, const char *name2,
	      uint32_t flags)
{
	struct mds_rename_req q = {.cred = f->cred,
				   .parent = dir,
				   .name = bytes_str(name),
				   .new_parent = dir2,
				   .new_name = bytes_str(name2),
				   .flags = flags};

	return fx_call(f, OP_mds_rename, &q, NULL);
}

int fx_link(struct fx *f, struct ino ino, struct ino dir, const char *name)
{
	struct mds_link_req q = {f->cred, ino, dir, bytes_str(name)};

	return fx_call(f, OP_mds_link, &q, NULL);
}

int fx_open(struct fx *f, struct ino ino, uint32_t flags)
{
	struct mds_open_req q = {f->cred, ino, flags};

	return fx_call(f, OP_mds_open, &q, NULL);
}

int fx_close(struct fx *f, struct ino ino, uint32_t flags, uint64_t size)
{
	struct mds_close_req q = {ino, flags, size != UINT64_MAX, size, 5, UINT64_MAX};

	if (size == UINT64_MAX)
		q.size = 0;
	return fx_call(f, OP_mds_close, &q, NULL);
}

int fx_truncate(struct fx *f, struct ino ino, uint64_t size)
{
	struct mds_setattr_req q = {f->cred, ino, SET_SIZE, {.size = size}};

	return fx_call(f, OP_mds_setattr, &q, NULL);
}

/* ---- check ---- */

struct check {
	struct fx *f;
	bool repair, done;
	uint64_t problems;
	int rc;
	FILE *report;
};

static void check_main(struct loop *l, void *arg)
{
	struct check *c = arg;

	(void)l;
	c->rc = mds_check(loop_env(loop_self()), &c->f->params, c->repair, c->report, &c->problems);
	c->done = true;
}

static bool check_done(void *arg)
{
	return ((struct check *)arg)->done;
}

static struct check checked(struct fx *f, bool repair)
{
	struct check c = {.f = f, .repair = repair};

	if (f->m != NULL && !f->to_crash)
		fx_run(f, stop_body);
	op_fini(&f->op);
	f->m = NULL;
	if (sim_proc_alive(f->mds_proc))
		sim_proc_crash(f->mds_proc);
	c.report = fopen(getenv("LEAT_TEST_LOG") != NULL ? "/dev/stderr" : "/dev/null", "w");
	assert_int_equal(sim_proc_start(f->mds_proc, check_main, &c), 0);
	assert_int_equal(sim_run(f->sim, check_done, &c, sim_now_us(f->sim) + 600000000), 0);
	fclose(c.report);
	sim_proc_crash(f->mds_proc);
	return c;
}

uint64_t fx_check(struct fx *f, bool repair)
{
	struct check c = checked(f, repair);

	assert_int_equal(c.rc, 0);
	return c.problems;
}

int fx_check_status(struct fx *f)
{
	return checked(f, false).rc;
}
