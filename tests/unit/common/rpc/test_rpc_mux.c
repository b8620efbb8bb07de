/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Choice of the transport, moves and rails, with a second tcp in place of verbs: the interface is
 * equal, and the test can break and restore it.
 */
#include <stdlib.h>
#include <string.h>

#include "common/rpc/addr.h"
#include "common/rpc/client_impl.h"
#include "common/rpc/transport/transport_mux.h"
#include "common/rpc/transport/transport_tcp.h"
#include "tests/unit/common/rpc/suite.h"

/* ---- tcp in place of verbs ---- */

struct fake {
	struct transport base;
	struct transport *tcp;
};

static bool verbs_down;          /* connects fail */
static struct link *links[64];   /* links of clients over it */
static uint32_t n_links, n_connects;

static int fake_listen(struct transport *t, struct loop *l, const char *addr,
		       struct listener **ret_listener, char *ret_addr)
{
	struct transport *tcp = ((struct fake *)t)->tcp;

	return tcp->ops->listen(tcp, l, addr, ret_listener, ret_addr);
}

static int fake_accept(struct listener *ls, struct link **ret_link);
static void fake_listener_close(struct listener *ls);
static const struct transport_ops *tcp_ops;

static int fake_accept(struct listener *ls, struct link **ret_link)
{
	return tcp_ops->accept(ls, ret_link);
}

static void fake_listener_close(struct listener *ls)
{
	tcp_ops->listener_close(ls);
}

static int fake_connect(struct transport *t, const char *addr, uint64_t deadline_us,
			struct link **ret_link)
{
	struct transport *tcp = ((struct fake *)t)->tcp;

	n_connects++;
	if (verbs_down)
		return -LE_NETUNREACH;
	int rc = tcp->ops->connect(tcp, addr, deadline_us, ret_link);
	if (rc == 0 && n_links < 64)
		links[n_links++] = *ret_link;
	return rc;
}

static int fake_add_pool(struct transport *t, struct slot_pool *pool, enum pool_use use)
{
	(void)t, (void)pool, (void)use;
	return 0;
}

static void fake_destroy(struct transport *t)
{
	transport_destroy(((struct fake *)t)->tcp);
	free(t);
}

static const struct transport_ops fake_ops = {
	.name = "verbs",
	.listen = fake_listen,
	.accept = fake_accept,
	.listener_close = fake_listener_close,
	.connect = fake_connect,
	.add_pool = fake_add_pool,
	.destroy = fake_destroy,
};

static struct transport *fake_create(void)
{
	struct fake *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	f->base.ops = &fake_ops;
	assert_int_equal(transport_tcp_create(&f->tcp), 0);
	tcp_ops = f->tcp->ops;
	return &f->base;
}

/* ---- the bed ---- */

static struct transport *mux(enum transport_mode mode, bool verbs)
{
	struct transport *tcp, *t;

	assert_int_equal(transport_tcp_create(&tcp), 0);
	struct transport *fake = verbs ? fake_create() : NULL;
	assert_int_equal(transport_mux_of(mode, tcp, fake, "a \"test\"", &t), 0);
	return t;
}

static int create(struct transport **ret_transport)
{
	verbs_down = false;
	n_links = n_connects = 0;
	*ret_transport = mux(TRANSPORT_AUTO, true);
	return 0;
}

static void run(void (*test)(struct bed *b))
{
	static const struct suite_real how = {
		.create = create, .listen = "127.0.0.1:0", .scale = 1};

	suite_real_run(&how, test);
}

/* ---- a client's connections ---- */

struct where {
	uint32_t n, n_verbs, n_up;
	char addr[ADDR_TEXT_SIZE];
	uint64_t moves, calls[8];
};

static void see(void *arg, const struct rpc_net *n)
{
	struct where *w = arg;

	w->moves = n->moves;
	if (strcmp(n->state, "up") != 0)
		return;
	w->calls[w->n++ % 8] = n->calls;
	w->n_verbs += addr_is_verbs(n->addr);
	snprintf(w->addr, sizeof(w->addr), "%s", n->addr);
}

static struct where where(struct rpc_client *c)
{
	struct where w = { 0 };

	rpc_client_net(c, see, &w);
	return w;
}

/* Waits until the client has n connections, all of them over verbs or none. */
static struct where wait_for(struct rpc_client *c, uint32_t n, bool verbs)
{
	struct where w;

	for (uint32_t i = 0; i < 12000; i++) {
		w = where(c);
		if (w.n == n && w.n_verbs == (verbs ? n : 0))
			return w;
		(void)fiber_sleep_us(5000);
	}
	fail_msg("%u connections, %u over verbs", w.n, w.n_verbs);
	return w;
}

static void cut(void)
{
	verbs_down = true;
	for (uint32_t i = 0; i < n_links; i++)
		links[i]->ops->shutdown(links[i]);
	n_links = 0;
}

/* Returns the server's tcp address without a scheme, as in a configuration. */
static const char *bare(const struct bed *b)
{
	const char *rest = strstr(b->addrs, "tcp:");
	static char out[ADDR_TEXT_SIZE];

	assert_non_null(rest);
	snprintf(out, sizeof(out), "%s", rest + 4);
	out[strcspn(out, " ")] = '\0';
	return out;
}

static struct rpc_client *client_at(struct bed *b, const char *addrs, uint32_t rails)
{
	struct rpc_client_options o;

	suite_client_options(b, &o);
	o.addrs = addrs;
	o.rails_max = rails;
	return suite_client_of(&o);
}

/* ---- tests ---- */

/* The configuration has only the tcp address; the handshake announces the others. */
static void finds_verbs(struct bed *b)
{
	suite_server_start(b, NULL);
	assert_non_null(strstr(b->addrs, "verbs:127.0.0.1:"));
	struct rpc_client *c = client_at(b, bare(b), 1);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	struct where w = wait_for(c, 1, true);
	assert_int_equal(w.moves, 1);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
}

static bool busy_stop;
static uint32_t n_busy;

static void busy(void *arg)
{
	while (!busy_stop) {
		int rc = suite_ping(arg, 1, SHORT_MS);
		/* Calls in flight when the connection breaks: the caller repeats them. */
		assert_true(rc == 0 || rc == -LE_DISCONNECTED);
	}
	n_busy--;
}

/* Verbs breaks under load and returns; no call fails for longer than the move takes. */
static void falls_back_and_returns(struct bed *b)
{
	suite_server_start(b, NULL);
	struct rpc_client *c = client_at(b, b->addrs, 1);
	(void)wait_for(c, 1, true);
	busy_stop = false;
	for (n_busy = 0; n_busy < 8;)
		if (fiber_spawn("busy", busy, c) == 0)
			n_busy++;
	(void)fiber_sleep_us(20000);
	cut();
	(void)wait_for(c, 1, false);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	/* While verbs is down the client stays on tcp, and tries verbs at intervals only. */
	uint32_t before = n_connects;
	uint64_t from_us = loop_now_us();
	(void)fiber_sleep_us(100000);
	assert_int_equal(where(c).n_verbs, 0);
	assert_true(n_connects - before <= 2 * (loop_now_us() - from_us) / 100000);
	verbs_down = false;
	struct where w = wait_for(c, 1, true);
	assert_int_equal(w.moves, 1);
	busy_stop = true;
	while (n_busy > 0)
		(void)fiber_sleep_us(1000);
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
}

/* The old connection answers calls that are in flight when a client moves. */
static void nap(void *arg)
{
	assert_int_equal(suite_nap(arg, 500, SHORT_MS), 0);
	n_busy--;
}

static void move_disturbs_nothing(struct bed *b)
{
	suite_server_start(b, NULL);
	verbs_down = true;
	struct rpc_client *c = client_at(b, b->addrs, 1);
	(void)wait_for(c, 1, false);
	n_busy = 1;
	assert_int_equal(fiber_spawn("nap", nap, c), 0);
	fiber_yield();
	verbs_down = false;
	while (n_busy > 0)
		(void)fiber_sleep_us(1000);
	(void)wait_for(c, 1, true);
	struct rpc_client_stats st;
	rpc_client_stats(c, &st);
	assert_int_equal(st.broken, 0);
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
}

static uint32_t n_hooks, n_lost;

static int hook(void *arg, struct rpc_client *c)
{
	struct mds_ping_req q = { .map_epoch = 1 };
	struct mds_ping_rep p = { 0 };
	struct rpc_call call = { .op = OP_mds_ping, .flags = RPC_CALL_SETUP, .req = &q, .rep = &p,
				 .deadline_us = loop_deadline_ms(SHORT_MS) };
	int rc = rpc_call(c, &call);

	(void)arg;
	rpc_call_fini(&call);
	n_hooks++;
	return rc;
}

static void lost(void *arg, struct rpc_client *c, int why)
{
	(void)arg, (void)c, (void)why;
	n_lost++;
}

/* The session moves too: the connected hook runs on the new connection first. */
static void session_moves(struct bed *b)
{
	struct rpc_client_options o;

	suite_server_start(b, NULL);
	suite_client_options(b, &o);
	o.addrs = bare(b);
	o.connected = hook;
	o.disconnected = lost;
	n_hooks = n_lost = 0;
	struct rpc_client *c = suite_client_of(&o);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	(void)wait_for(c, 1, true);
	assert_int_equal(n_hooks, 2);
	for (uint32_t i = 0; i < 100; i++)
		assert_int_equal(suite_ping(c, i, SHORT_MS), 0);
	assert_int_equal(n_lost, 0);
	rpc_client_destroy(c);
	assert_int_equal(n_lost, 1);
	suite_server_stop(b, 0);
}

/* Two rails: requests use both. When one is lost the other carries all; tcp is used only without
 * rails. */
static void two_rails(struct bed *b)
{
	struct rpc_server_options so = suite_server_options(b);

	so.addrs = "tcp:127.0.0.1:0 verbs:127.0.0.1:0 verbs:127.0.0.2:0";
	suite_server_start(b, &so);
	struct rpc_client *c = client_at(b, bare(b), 4);
	struct where w = wait_for(c, 2, true);
	for (uint32_t i = 0; i < 100; i++)
		assert_int_equal(suite_ping(c, i, SHORT_MS), 0);
	w = where(c);
	assert_true(w.calls[0] >= 50 && w.calls[1] >= 50);
	cut();
	(void)wait_for(c, 1, false);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	verbs_down = false;
	(void)wait_for(c, 2, true);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
}

static uint32_t n_candidates_of(const struct rpc_client *c, const char *addr)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->n_candidates; i++)
		n += strcmp(c->candidates[i].addr, addr) == 0;
	return n;
}

/* An address that the server no longer sends goes, also if it is part of one that it sends. */
static void drops_parts_of_addresses(struct bed *b)
{
	suite_server_start(b, NULL);
	struct rpc_client *c = client_at(b, bare(b), 1);
	struct where w = wait_for(c, 1, true);
	c->path_ops->announced(c, "verbs:127.0.0.1:1 verbs:127.0.0.1:2", w.addr);
	c->path_ops->announced(c, "verbs:127.0.0.1:12 verbs:127.0.0.1:2", w.addr);
	assert_int_equal(n_candidates_of(c, "verbs:127.0.0.1:1"), 0);
	assert_int_equal(n_candidates_of(c, "verbs:127.0.0.1:2"), 1);
	assert_int_equal(n_candidates_of(c, "verbs:127.0.0.1:12"), 1);
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
}

/* A client without verbs ignores announced verbs addresses. */
static void only_tcp(struct bed *b)
{
	struct rpc_client_options o;
	struct transport *plain = mux(TRANSPORT_AUTO, false);
	char text[256];

	suite_server_start(b, NULL);
	suite_client_options(b, &o);
	o.addrs = b->addrs;
	o.transport = plain;
	struct rpc_client *c = suite_client_of(&o);
	assert_int_equal(suite_ping(c, 1, SHORT_MS), 0);
	(void)fiber_sleep_us(50000);
	assert_int_equal(where(c).n_verbs, 0);
	assert_int_equal(n_connects, 0);
	rpc_client_destroy(c);
	plain->ops->describe(plain, text, sizeof(text));
	assert_string_equal(text, "{\"mode\":\"auto\",\"tcp\":true,\"verbs\":false,"
				  "\"why_not_verbs\":\"a 'test'\"}");
	transport_destroy(plain);
	suite_server_stop(b, 0);
}

/* A mode excludes the other transport; there is no silent fallback. */
static void modes(struct bed *b)
{
	struct transport *t = mux(TRANSPORT_TCP, false), *v = mux(TRANSPORT_VERBS, true);
	struct rpc_client_options o;
	char list[200];

	assert_int_equal(t->ops->expand(t, "a:7440", ADDR_LISTEN, list, sizeof(list)), 0);
	assert_string_equal(list, "tcp:a:7440");
	assert_int_equal(t->ops->expand(t, "verbs:a:7540", ADDR_CONNECT, list, sizeof(list)), 0);
	assert_string_equal(list, "");
	assert_int_equal(v->ops->expand(v, "a:7440", ADDR_CONNECT, list, sizeof(list)), 0);
	assert_string_equal(list, "verbs:a:7540");
	assert_int_equal(v->ops->expand(v, "tcp:a:7440", ADDR_CONNECT, list, sizeof(list)), 0);
	assert_string_equal(list, "");
	assert_int_equal(b->transport->ops->expand(b->transport, "a:7440", ADDR_LISTEN, list,
						   sizeof(list)),
			 0);
	assert_string_equal(list, "verbs:a:7540 tcp:a:7440");
	assert_int_equal(b->transport->ops->expand(b->transport, "a:7440", ADDR_CONNECT, list,
						   sizeof(list)),
			 0);
	assert_string_equal(list, "tcp:a:7440");
	/* A server without a usable address: the call fails immediately, not at its deadline. */
	suite_server_start(b, NULL);
	suite_client_options(b, &o);
	o.transport = v;
	snprintf(list, sizeof(list), "tcp:%s", bare(b));
	o.addrs = list;
	struct rpc_client *c = suite_client_of(&o);
	assert_int_equal(suite_ping(c, 1, 60000), -LE_CONFIG);
	rpc_client_destroy(c);
	suite_server_stop(b, 0);
	transport_destroy(t);
	transport_destroy(v);
}

#define TEST(fn) \
	static void test_##fn(void **state) \
	{ \
		(void)state; \
		run(fn); \
	}
TEST(finds_verbs)
TEST(falls_back_and_returns)
TEST(move_disturbs_nothing)
TEST(session_moves)
TEST(two_rails)
TEST(drops_parts_of_addresses)
TEST(only_tcp)
TEST(modes)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_finds_verbs),
		cmocka_unit_test(test_falls_back_and_returns),
		cmocka_unit_test(test_move_disturbs_nothing),
		cmocka_unit_test(test_session_moves),
		cmocka_unit_test(test_two_rails),
		cmocka_unit_test(test_drops_parts_of_addresses),
		cmocka_unit_test(test_only_tcp),
		cmocka_unit_test(test_modes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
