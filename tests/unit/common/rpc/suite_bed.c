/* Handlers, a server, and the calls that the tests are made of. */
#include "tests/unit/common/rpc/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct suite_seen suite_seen;

/* ---- handlers ---- */

static uint8_t pattern(uint32_t seed, uint64_t i)
{
	return (uint8_t)((i * 0x9e3779b97f4a7c15ull + seed * 0xff51afd7ed558ccdull) >> 40);
}

void suite_fill(struct slot_vec *v, uint32_t n, uint32_t seed)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < v[i].len; k++)
			v[i].slot->data[v[i].off + k] = pattern(seed, at++);
}

bool suite_is_pattern(const struct slot_vec *v, uint32_t n, uint32_t len, uint32_t seed)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < v[i].len && at < len; k++)
			if (v[i].slot->data[v[i].off + k] != pattern(seed, at++))
				return false;
	return at == len;
}

static int on_ping(struct rpc_req *r, const void *in, void *out)
{
	const struct mds_ping_req *q = in;
	struct mds_ping_rep *p = out;

	(void)r;
	p->map_epoch = q->map_epoch + 1;
	return 0;
}

/* Sleeps ino ms, having accepted; an odd number of them says so twice. */
static int on_getattr(struct rpc_req *r, const void *in, void *out)
{
	const struct mds_getattr_req *q = in;
	struct mds_getattr_rep *p = out;

	if (++suite_seen.running > suite_seen.most_running)
		suite_seen.most_running = suite_seen.running;
	rpc_accept(r);
	if (q->ino.v % 2)
		rpc_accept(r);
	int rc = fiber_sleep_us(q->ino.v * 1000);
	suite_seen.running--;
	suite_seen.canceled += rpc_req_canceled(r);
	p->attr.ino = q->ino;
	return rc;
}

/* ino bytes of text. */
static int on_readlink(struct rpc_req *r, const void *in, void *out)
{
	const struct mds_readlink_req *q = in;
	struct mds_readlink_rep *p = out;
	char *text = rpc_req_alloc(r, q->ino.v);

	if (text == NULL)
		return -LE_NOMEM;
	memset(text, 'x', q->ino.v);
	p->target = bytes_of(text, (uint32_t)q->ino.v);
	return 0;
}

static int on_statfs(struct rpc_req *r, const void *in, void *out)
{
	(void)r, (void)in, (void)out;
	return -LE_NOSPC;
}

/* flags: the seed of the pattern. */
static int on_write(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_write_req *q = in;
	struct oss_write_rep *p = out;

	if (r->bulk_len != q->len || !suite_is_pattern(r->bulk, r->n_bulk, q->len, q->flags))
		return -LE_CORRUPT_WIRE;
	p->end = q->len;
	if (q->grant_want > 0)
		return fiber_sleep_us(q->grant_want);
	return 0;
}

/* off: milliseconds to wait first. */
static int on_read(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_read_req *q = in;
	struct oss_read_rep *p = out;
	uint32_t left = q->len;

	(void)fiber_sleep_us(q->off * 1000ull);
	while (left > 0) {
		struct slot *s;
		TRY(slot_get(*(struct slot_pool **)r->arg, NO_DEADLINE, &s));
		uint32_t len = left < SLOT_SIZE ? left : SLOT_SIZE;
		r->reply_bulk[r->n_reply_bulk++] = (struct slot_vec){ s, 0, len };
		left -= len;
	}
	suite_fill(r->reply_bulk, r->n_reply_bulk, q->flags);
	p->end = q->len;
	return 0;
}

/* Asks the client first. */
static int on_map_get(struct rpc_req *r, const void *in, void *out)
{
	const struct mds_map_get_req *q = in;
	struct mds_map_get_rep *p = out;
	struct cb_map_changed_req cb = { .epoch = q->have_epoch };
	struct cb_map_changed_rep rep;
	struct rpc_call call = { .op = OP_cb_map_changed, .req = &cb, .rep = &rep,
				 .deadline_us = loop_deadline_ms(SHORT_MS) };

	int rc = rpc_callback(r->peer, &call);
	rpc_call_fini(&call);
	p->epoch = q->have_epoch;
	return rc;
}

static int on_session_open(struct rpc_req *r, const void *in, void *out)
{
	struct mds_session_open_rep *p = out;

	(void)r, (void)in;
	p->session = 17;
	return 0;
}

static const struct rpc_handler handlers[] = {
	{ OP_mds_ping, on_ping },	  { OP_mds_getattr, on_getattr }, { OP_mds_readlink, on_readlink },
	{ OP_mds_statfs, on_statfs },	  { OP_oss_write, on_write },	  { OP_oss_read, on_read },
	{ OP_mds_map_get, on_map_get },	  { OP_mds_session_open, on_session_open },
};

static int on_opened(void *arg, struct rpc_peer *p)
{
	(void)arg;
	assert_string_equal(p->name, "tester");
	assert_int_equal(p->role, ROLE_TOOL);
	suite_seen.opened++;
	return suite_seen.refuse_open;
}

static void on_closed(void *arg, struct rpc_peer *p)
{
	(void)arg;
	assert_true(p->gone);
	suite_seen.closed++;
}

static void on_served(void *arg, const struct rpc_req *r, int status, uint64_t us)
{
	(void)arg, (void)r, (void)status, (void)us;
	suite_seen.served++;
}

/* ---- server and client of a test ---- */

struct starting {
	struct bed *bed;
	const struct rpc_server_options *opts;
	uint32_t drain_ms;
};

static void start_fn(void *arg)
{
	struct starting *st = arg;
	struct bed *b = st->bed;
	struct rpc_server_options o = *st->opts;

	assert_int_equal(slot_pool_create(SLOT_SIZE, 80, &b->server_pool), 0);
	if (o.bulk_pool == NULL)
		o.bulk_pool = b->server_pool;
	o.arg = &b->server_pool;
	assert_int_equal(rpc_server_create(&o, &b->server), 0);
	snprintf(b->addrs, sizeof(b->addrs), "%s", rpc_server_addrs(b->server));
}

static void stop_fn(void *arg)
{
	struct starting *st = arg;

	rpc_server_destroy(st->bed->server, st->drain_ms);
	slot_pool_destroy(st->bed->server_pool);
	st->bed->server = NULL;
}

struct rpc_server_options suite_server_options(struct bed *b)
{
	return (struct rpc_server_options){
		.transport = b->transport,
		.addrs = b->addrs[0] != 0 ? b->addrs : b->listen,
		.name = "server",
		.role = ROLE_MDS,
		.cluster = b->cluster,
		.key = b->key,
		.bulk_max = 16u << 20,
		.handlers = handlers,
		.n_handlers = sizeof(handlers) / sizeof(handlers[0]),
		.slow_ms = 60000,
		.opened = on_opened,
		.closed = on_closed,
		.served = on_served,
	};
}

void suite_server_start(struct bed *b, const struct rpc_server_options *opts)
{
	struct rpc_server_options o = opts != NULL ? *opts : suite_server_options(b);
	struct starting st = { .bed = b, .opts = &o };

	b->at_server(b, start_fn, &st);
}

void suite_server_stop(struct bed *b, uint32_t drain_ms)
{
	struct starting st = { .bed = b, .drain_ms = drain_ms };

	b->at_server(b, stop_fn, &st);
}

void suite_client_options(struct bed *b, struct rpc_client_options *o)
{
	*o = (struct rpc_client_options){ .transport = b->transport,
					  .addrs = b->addrs,
					  .name = "tester",
					  .role = ROLE_TOOL,
					  .key = b->key,
					  .backoff_max_ms = 50 };
}

struct rpc_client *suite_client_of(const struct rpc_client_options *o)
{
	struct rpc_client *c;

	assert_int_equal(rpc_client_create(o, &c), 0);
	return c;
}

struct rpc_client *suite_client(struct bed *b)
{
	struct rpc_client_options o;

	suite_client_options(b, &o);
	return suite_client_of(&o);
}

int suite_ping(struct rpc_client *c, uint32_t value, uint64_t deadline_ms)
{
	struct mds_ping_req q = { .map_epoch = value };
	struct mds_ping_rep p = { 0 };
	struct rpc_call call = { .op = OP_mds_ping, .req = &q, .rep = &p,
				 .deadline_us = loop_deadline_ms(deadline_ms) };
	int rc = rpc_call(c, &call);

	rpc_call_fini(&call);
	if (rc == 0)
		assert_int_equal(p.map_epoch, value + 1);
	return rc;
}

int suite_nap(struct rpc_client *c, uint64_t nap_ms, uint64_t deadline_ms)
{
	struct mds_getattr_req q = { .ino = { nap_ms } };
	struct mds_getattr_rep p;
	struct rpc_call call = { .op = OP_mds_getattr, .req = &q, .rep = &p,
				 .deadline_us = loop_deadline_ms(deadline_ms) };
	int rc = rpc_call(c, &call);

	rpc_call_fini(&call);
	return rc;
}

uint32_t suite_slots(struct slot_pool *p, uint32_t len, struct slot_vec *vec)
{
	uint32_t n = 0;

	while (len > 0) {
		struct slot *s;
		assert_int_equal(slot_get(p, NO_DEADLINE, &s), 0);
		vec[n] = (struct slot_vec){ s, 0, len < SLOT_SIZE ? len : SLOT_SIZE };
		len -= vec[n++].len;
	}
	return n;
}

void suite_slots_put(struct slot_vec *vec, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		slot_unref(vec[i].slot);
}

int suite_read(struct rpc_client *c, uint32_t len, uint32_t seed, struct slot_vec *vec, uint32_t n,
	       uint64_t deadline_ms)
{
	struct oss_read_req q = { .len = len, .flags = seed };
	struct oss_read_rep p;
	struct rpc_call call = { .op = OP_oss_read,
				 .req = &q,
				 .rep = &p,
				 .bulk_in = vec,
				 .n_bulk_in = n,
				 .deadline_us = loop_deadline_ms(deadline_ms) };
	int rc = rpc_call(c, &call);

	rpc_call_fini(&call);
	if (rc == 0) {
		assert_int_equal(call.ret_bulk_len, len);
		/* The simulated network may damage bulk data: block checksums are above rpc. */
		if (!suite_is_pattern(vec, n, len, seed))
			rc = -LE_CORRUPT_WIRE;
	}
	return rc;
}

int suite_write(struct rpc_client *c, uint32_t len, uint32_t seed, struct slot_vec *vec, uint32_t n,
		uint64_t deadline_ms)
{
	struct oss_write_req q = { .len = len, .flags = seed };
	struct oss_write_rep p;
	struct rpc_call call = { .op = OP_oss_write,
				 .req = &q,
				 .rep = &p,
				 .bulk_out = vec,
				 .n_bulk_out = n,
				 .deadline_us = loop_deadline_ms(deadline_ms) };
	int rc = rpc_call(c, &call);

	rpc_call_fini(&call);
	if (rc == 0)
		assert_int_equal(p.end, len);
	return rc;
}
