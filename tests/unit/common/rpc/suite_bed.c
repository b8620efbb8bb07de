/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers, a server, and the calls of the tests. */
#include "tests/unit/common/rpc/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct suite_seen suite_seen;
uint32_t suite_slowness = 1;

/* ---- pieces ---- */

static uint32_t cut_even(uint32_t size, uint32_t len, struct slot_vec *vec)
{
	uint32_t n = 0;

	while (len > 0) {
		vec[n] = (struct slot_vec){ NULL, 0, len < size ? len : size };
		len -= vec[n++].len;
	}
	return n;
}

/* Cuts len bytes into pieces of odd lengths at odd offsets, as far as n_max allows that. */
static uint32_t cut_odd(uint32_t size, uint32_t len, uint32_t seed, struct slot_vec *vec,
			uint32_t n_max)
{
	uint64_t rng = seed * 2654435761ull + len + 1;
	uint32_t n = 0;

	while (len > 0) {
		uint32_t left = n_max - n, fair = (len + left - 1) / left;
		assert_true(left > 0 && fair <= size);
		uint32_t off = (uint32_t)suite_random(&rng) % (size - fair + 1);
		uint32_t take = fair + (uint32_t)suite_random(&rng) % (size - off - fair + 1);
		if (take > len)
			take = len;
		if (take % 2 == 0 && take > fair && take < len)
			take--;
		if (off % 2 == 0 && off > 0)
			off--;
		vec[n++] = (struct slot_vec){ NULL, off, take };
		len -= take;
	}
	return n;
}

static void get_all(struct slot_pool *p, struct slot_vec *vec, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(slot_get(p, NO_DEADLINE, &vec[i].slot), 0);
}

uint32_t suite_slots(struct slot_pool *p, uint32_t len, struct slot_vec *vec)
{
	uint32_t n = cut_even(slot_pool_size(p), len, vec);

	get_all(p, vec, n);
	return n;
}

uint32_t suite_slots_odd(struct slot_pool *p, uint32_t len, uint32_t seed, struct slot_vec *vec,
			 uint32_t n_max)
{
	uint32_t n = cut_odd(slot_pool_size(p), len, seed, vec, n_max);

	get_all(p, vec, n);
	return n;
}

/* ---- handlers ---- */

/* Eight bytes of the pattern, from 8 * i on. By words: an emulated guest computes 10^8 bytes. */
static uint64_t pattern(uint32_t seed, uint64_t i)
{
	uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ull + seed * 0xff51afd7ed558ccdull;

	return x ^ x >> 29;
}

/* Returns how many bytes of the word at `at` are within the next len bytes; *ret_word: these
 * bytes. */
static uint32_t pattern_part(uint32_t seed, uint64_t at, uint32_t len, uint64_t *ret_word)
{
	uint32_t skip = at % 8, n = 8 - skip;

	*ret_word = pattern(seed, at / 8) >> 8 * skip;
	return n < len ? n : len;
}

void suite_fill(struct slot_vec *v, uint32_t n, uint32_t seed)
{
	uint64_t at = 0, word;

	for (uint32_t i = 0; i < n; i++) {
		uint8_t *to = v[i].slot->data + v[i].off;

		for (uint32_t k = 0, part; k < v[i].len; k += part, at += part) {
			part = pattern_part(seed, at, v[i].len - k, &word);
			if (part == 8)
				memcpy(to + k, &word, 8); /* one instruction */
			else
				memcpy(to + k, &word, part);
		}
	}
}

bool suite_is_pattern(const struct slot_vec *v, uint32_t n, uint32_t len, uint32_t seed)
{
	uint64_t at = 0, word;

	for (uint32_t i = 0; i < n && at < len; i++) {
		const uint8_t *from = v[i].slot->data + v[i].off;
		uint32_t space = v[i].len < len - at ? v[i].len : (uint32_t)(len - at);

		for (uint32_t k = 0, part; k < space; k += part, at += part) {
			part = pattern_part(seed, at, space - k, &word);
			if (part == 8 ? memcmp(from + k, &word, 8) : memcmp(from + k, &word, part))
				return false;
		}
	}
	return at == len;
}

static struct waitq gate;

static void pass_gate(void)
{
	if (!suite_seen.gate_shut)
		return;
	if (++suite_seen.at_gate > suite_seen.most_at_gate)
		suite_seen.most_at_gate = suite_seen.at_gate;
	/* A cancelled request stays too: that is the purpose of the gate. */
	while (suite_seen.gate_shut)
		(void)!waitq_wait(&gate, NO_DEADLINE);
	suite_seen.at_gate--;
}

void suite_gate_shut(void)
{
	waitq_init(&gate);
	suite_seen.gate_shut = true;
}

static void gate_open_fn(void *arg)
{
	(void)arg;
	suite_seen.gate_shut = false;
	waitq_wake_all(&gate);
}

void suite_gate_open(struct bed *b)
{
	b->at_server(b, gate_open_fn, NULL);
}

static void gate_later(void *arg)
{
	(void)!fiber_sleep_us(SLOWLY(20000));
	gate_open_fn(arg);
}

static void spawn_gate_later(void *arg)
{
	assert_int_equal(fiber_spawn("gate", gate_later, arg), 0);
}

void suite_gate_open_soon(struct bed *b)
{
	b->at_server(b, spawn_gate_later, NULL);
}

static int on_ping(struct rpc_req *r, const void *in, void *out)
{
	const struct mds_ping_req *q = in;
	struct mds_ping_rep *p = out;

	(void)r;
	p->map_epoch = q->map_epoch + 1;
	return 0;
}

/* Accepts, then sleeps for ino ms or at the gate. If ino is odd it accepts twice. */
static int on_getattr(struct rpc_req *r, const void *in, void *out)
{
	const struct mds_getattr_req *q = in;
	struct mds_getattr_rep *p = out;

	if (++suite_seen.running > suite_seen.most_running)
		suite_seen.most_running = suite_seen.running;
	rpc_accept(r);
	if (q->ino.v % 2)
		rpc_accept(r);
	int rc = 0;
	if (q->ino.v == NAP_AT_GATE)
		pass_gate();
	else
		rc = fiber_sleep_us(q->ino.v * 1000);
	suite_seen.running--;
	suite_seen.canceled += rpc_req_canceled(r);
	p->attr.ino = q->ino;
	return rc;
}

/* Replies with ino bytes of text. */
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

	suite_seen.writes++;
	if (r->bulk_len != q->len || !suite_is_pattern(r->bulk, r->n_bulk, q->len, q->flags)) {
		suite_seen.wrong_data++;
		return -LE_CORRUPT_WIRE;
	}
	p->end = q->len;
	if (q->grant_want > 0)
		return fiber_sleep_us(q->grant_want);
	return 0;
}

static struct fmutex collecting;

/* off: milliseconds to wait first. flags: the seed of the pattern, SUITE_GATE, SUITE_ODD. */
static int on_read(struct rpc_req *r, const void *in, void *out)
{
	const struct oss_read_req *q = in;
	struct oss_read_rep *p = out;
	struct slot_pool *pool = *(struct slot_pool **)r->arg;

	suite_seen.running++;
	if (q->off > 0)
		(void)fiber_sleep_us(q->off * 1000ull);
	if ((q->flags & SUITE_GATE) != 0)
		pass_gate();
	suite_seen.running--;
	uint32_t size = slot_pool_size(pool);
	uint32_t n = (q->flags & SUITE_ODD) != 0
			     ? cut_odd(size, q->len, q->flags, r->reply_bulk, RPC_BULK_VECS_MAX)
			     : cut_even(size, q->len, r->reply_bulk);
	/* one request at a time: two could each wait for the other's slots */
	fmutex_lock(&collecting);
	int rc = 0;
	while (r->n_reply_bulk < n && rc == 0) {
		rc = slot_get(pool, NO_DEADLINE, &r->reply_bulk[r->n_reply_bulk].slot);
		r->n_reply_bulk += rc == 0;
	}
	fmutex_unlock(&collecting);
	TRY(rc);
	suite_fill(r->reply_bulk, r->n_reply_bulk, q->flags);
	p->end = q->len;
	return 0;
}

/* Calls the client back before the reply. */
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

struct slot_pool *suite_pool(struct bed *b, uint32_t n_slots, enum pool_use use)
{
	struct slot_pool *p;

	assert_int_equal(slot_pool_create(b->slot_size, n_slots, &p), 0);
	assert_int_equal(b->transport->ops->add_pool(b->transport, p, use), 0);
	return p;
}

void suite_spawn(struct suite_caller *a, uint32_t n, void (*fn)(void *), struct latch *done,
		 const struct suite_caller *like)
{
	latch_init(done, n);
	for (uint32_t i = 0; i < n; i++) {
		a[i] = *like;
		a[i].i = i;
		a[i].done = done;
		assert_int_equal(fiber_spawn("caller", fn, &a[i]), 0);
	}
}

void suite_until(const uint32_t *n, uint32_t value)
{
	uint64_t limit_us = loop_deadline_ms(SLOWLY(60000));

	while (*(const volatile uint32_t *)n < value) {
		assert_true(loop_now_us() < limit_us);
		(void)fiber_sleep_us(50);
	}
}

uint64_t suite_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	return *state ^= *state << 17;
}

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

	fmutex_init(&collecting);
	if (o.bulk_pool == NULL) {
		/* the server registers it */
		assert_int_equal(slot_pool_create(b->slot_size, b->n_slots, &b->server_pool), 0);
		o.bulk_pool = b->server_pool;
	} else {
		b->server_pool = suite_pool(b, b->n_slots, POOL_SOURCE);
	}
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

int suite_ping_in_vain(struct rpc_client *c, int status)
{
	uint64_t ms = SLOWLY(20);
	int rc;

	do {
		rc = suite_ping(c, 1, ms);
		ms *= 2;
	} while (rc != status && ms < 2 * VAIN_MS);
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

int suite_body(struct rpc_client *c, uint32_t len, uint64_t deadline_ms)
{
	struct mds_readlink_req q = { .ino = { len } };
	struct mds_readlink_rep p;
	struct rpc_call call = { .op = OP_mds_readlink, .req = &q, .rep = &p,
				 .deadline_us = loop_deadline_ms(deadline_ms) };
	int rc = rpc_call(c, &call);

	if (rc == 0)
		assert_int_equal(p.target.len, len);
	for (uint32_t k = 0; rc == 0 && k < len; k++)
		if (((const char *)p.target.data)[k] != 'x')
			rc = -LE_CORRUPT_WIRE;
	rpc_call_fini(&call);
	return rc;
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
