/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that are killed at every stage. The other end of the connection is this program,
 * started again. It kills itself by SIGKILL before or after its n-th operation on the transport,
 * for all n until the script completes; then at times in the middle of bulk transfers.
 */
#include "tests/unit/common/rpc/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define KILL_LEN   ((4u << 20) + 777u)
#define BRIEF_LEN  ((1u << 20) + 777u)
#define BRIEF_SLOT (64u << 10)
#define KILL_MS    60000
#define STEPS_MAX  400u
#define MOMENTS    12u

extern char **environ;

static uint32_t kill_len(const struct bed *b)
{
	return b->brief ? BRIEF_LEN : KILL_LEN;
}

static uint32_t moments(const struct bed *b)
{
	return b->brief ? MOMENTS / 2 : MOMENTS * b->scale;
}

/* ---- in the child ---- */

static struct {
	bool server, brief;
	const char *addr;
	uint32_t die_at_op;    /* 0: never */
	uint32_t die_after_us; /* from the first bulk data on; 0: never */
	uint32_t n_ops;
	bool armed;
	const struct transport_ops *real;
	struct transport_ops ops;
} child;

static void step(void)
{
	if (++child.n_ops == child.die_at_op)
		kill(getpid(), SIGKILL);
}

/* There is little between one operation and the next. */
static void step_before(void)
{
	if (!child.brief)
		step();
}

static void bulk_begins(void)
{
	struct itimerval it = {
		.it_value = {child.die_after_us / 1000000, child.die_after_us % 1000000}};

	if (child.armed || child.die_after_us == 0)
		return;
	child.armed = true;
	/* SIGALRM ends the process as SIGKILL does, because it has no handler. */
	setitimer(ITIMER_REAL, &it, NULL);
}

static int hook_connect(struct transport *t, const char *addr, uint64_t deadline_us,
			struct link **ret_link)
{
	step_before();
	int rc = child.real->connect(t, addr, deadline_us, ret_link);
	if (rc == 0)
		(*ret_link)->ops = &child.ops;
	step();
	return rc;
}

static int hook_accept(struct listener *ls, struct link **ret_link)
{
	int rc = child.real->accept(ls, ret_link);

	if (rc == 0)
		(*ret_link)->ops = &child.ops;
	step();
	return rc;
}

static int hook_send(struct link *k, const struct link_tx *tx, uint64_t deadline_us)
{
	if (tx->n_bulk > 0 || tx->n_bulk_in > 0)
		bulk_begins();
	step_before();
	int rc = child.real->send(k, tx, deadline_us);
	step();
	return rc;
}

static int hook_recv(struct link *k, struct link_rx *ret_rx)
{
	int rc = child.real->recv(k, ret_rx);

	step();
	return rc;
}

static int hook_recv_bulk(struct link *k, const struct link_rx *rx, const struct slot_vec *vec,
			  uint32_t n)
{
	bulk_begins();
	step_before();
	int rc = child.real->recv_bulk(k, rx, vec, n);
	step();
	return rc;
}

/* A link checks its own magic number, not its table, so the table may be replaced. */
static void hook(struct transport *t)
{
	child.real = t->ops;
	child.ops = *t->ops;
	child.ops.connect = hook_connect;
	child.ops.accept = hook_accept;
	child.ops.send = hook_send;
	child.ops.recv = hook_recv;
	child.ops.recv_bulk = hook_recv_bulk;
	t->ops = &child.ops;
}

static int callback(void *arg, struct rpc_client *c, uint16_t op, const void *req, void *rep)
{
	(void)arg, (void)c, (void)op, (void)req, (void)rep;
	return 0;
}

static int ask_for_callback(struct rpc_client *c)
{
	struct mds_map_get_req q = {0};
	struct mds_map_get_rep p;
	struct rpc_call call = {.op = OP_mds_map_get,
				.req = &q,
				.rep = &p,
				.deadline_us = loop_deadline_ms(KILL_MS)};
	int rc = rpc_call(c, &call);

	rpc_call_fini(&call);
	return rc;
}

/* One call of each kind, up to the first failure. */
static int script(struct bed *b, struct rpc_client *c, struct slot_vec *vec, uint32_t n)
{
	TRY(suite_ping(c, 1, KILL_MS));
	suite_fill(vec, n, 1);
	TRY(suite_write(c, kill_len(b), 1, vec, n, KILL_MS));
	TRY(suite_read(c, kill_len(b), 2 | SUITE_ODD, vec, n, KILL_MS));
	TRY(ask_for_callback(c));
	return suite_body(c, 100000, KILL_MS);
}

static void child_client(struct bed *b)
{
	struct slot_vec vec[RPC_BULK_VECS_MAX];
	struct rpc_client_options o;

	snprintf(b->addrs, sizeof(b->addrs), "%s", child.addr);
	suite_client_options(b, &o);
	o.callback = callback;
	struct rpc_client *c = suite_client_of(&o);
	uint32_t n = suite_slots_odd(b->client_pool, kill_len(b), 9, vec, RPC_BULK_VECS_MAX);
	int rc = script(b, c, vec, n);
	if (rc < 0)
		fprintf(stderr, "suite-peer: %s\n", status_name(rc));
	/* for processes that are not killed */
	suite_slots_put(vec, n);
	rpc_client_destroy(c);
	if (rc < 0)
		_exit(3);
}

/* Serves until the parent kills this process. */
static void child_server(struct bed *b)
{
	suite_server_start(b, NULL);
	if (dprintf(1, "%s\n", b->addrs) < 0)
		_exit(3);
	for (;;)
		(void)fiber_sleep_us(1000000);
}

static void child_main(struct bed *b)
{
	hook(b->transport);
	if (child.server)
		child_server(b);
	else
		child_client(b);
}

int suite_peer_main(int argc, char **argv, const struct suite_real *how)
{
	struct suite_real own = *how;

	if (argc != 6 || strcmp(argv[1], "suite-peer") != 0)
		return -1;
	/* ends this process with its parent, however that ends */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	child.server = strcmp(argv[2], "server") == 0;
	child.brief = how->brief;
	child.addr = argv[3];
	child.die_at_op = (uint32_t)strtoul(argv[4], NULL, 10);
	child.die_after_us = (uint32_t)strtoul(argv[5], NULL, 10);
	/* Registering slots takes most of the start on an emulated processor. */
	if (how->brief)
		own.slot_size = BRIEF_SLOT;
	suite_real_run(&own, child_main);
	return 0;
}

/* ---- in the parent ---- */

struct peer {
	pid_t pid;
	int out;
};

static struct peer start_peer(struct bed *b, bool server, uint32_t die_at_op, uint32_t die_after_us)
{
	posix_spawn_file_actions_t fa;
	char op[16], us[16];
	char *argv[] = {(char *)b->program,
			"suite-peer",
			server ? "server" : "client",
			server ? "-" : b->addrs,
			op,
			us,
			NULL};
	struct peer p;
	int fd[2];

	snprintf(op, sizeof(op), "%u", die_at_op);
	snprintf(us, sizeof(us), "%u", die_after_us);
	assert_int_equal(pipe2(fd, O_CLOEXEC | O_NONBLOCK), 0);
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_adddup2(&fa, fd[1], 1);
	/* Not fork: devices do not support copies of registered memory. */
	assert_int_equal(posix_spawn(&p.pid, b->program, &fa, NULL, argv, environ), 0);
	posix_spawn_file_actions_destroy(&fa);
	close(fd[1]);
	p.out = fd[0];
	return p;
}

/* Reads the address it listens on. Returns false if it died before. */
static bool peer_addr(struct peer *p, char *buf, size_t size)
{
	uint64_t limit_us = loop_deadline_ms(KILL_MS);
	size_t have = 0;

	for (;;) {
		ssize_t n = read(p->out, buf + have, size - 1 - have);
		if (n == 0)
			return false;
		if (n > 0)
			have += (size_t)n;
		buf[have] = 0;
		if (have > 0 && buf[have - 1] == '\n') {
			buf[have - 1] = 0;
			return true;
		}
		assert_true(n > 0 || errno == EAGAIN);
		assert_true(loop_now_us() < limit_us);
		(void)fiber_sleep_us(200);
	}
}

/* Waits for its end; true: it completed. The server serves another client throughout. */
static bool peer_end(struct peer *p, struct rpc_client *beside)
{
	uint64_t limit_us = loop_deadline_ms(2 * KILL_MS);
	int status;

	while (waitpid(p->pid, &status, WNOHANG) == 0) {
		assert_true(loop_now_us() < limit_us);
		if (beside != NULL)
			assert_int_equal(suite_ping(beside, 1, KILL_MS), 0);
		(void)fiber_sleep_us(200);
	}
	close(p->out);
	if (WIFSIGNALED(status))
		assert_true(WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGALRM);
	else
		assert_int_equal(WEXITSTATUS(status), 0);
	return WIFEXITED(status);
}

/* The server has released everything of a dead client, and has taken no partial data for
 * complete. */
static void after_client(struct bed *b, struct rpc_client *beside)
{
	uint64_t limit_us = loop_deadline_ms(KILL_MS);

	while (suite_seen.closed + 1 < suite_seen.opened ||
	       slot_pool_free(b->server_pool) < slot_pool_total(b->server_pool)) {
		assert_true(loop_now_us() < limit_us);
		(void)fiber_sleep_us(200);
	}
	assert_int_equal(suite_seen.wrong_data, 0);
	assert_int_equal(suite_ping(beside, 1, KILL_MS), 0);
}

static void test_killed_client(struct bed *b)
{
	uint32_t n = 0;
	bool through = false;

	if (b->program == NULL)
		return;
	suite_server_start(b, NULL);
	struct rpc_client *beside = suite_client(b);
	assert_int_equal(suite_ping(beside, 1, KILL_MS), 0);
	while (!through) {
		struct peer p = start_peer(b, false, ++n, 0);
		assert_true(n < STEPS_MAX);
		through = peer_end(&p, beside);
		after_client(b, beside);
	}
	/* The handshake has four steps, each call two or more, connect two. */
	assert_true(n > (b->brief ? 10 : 20));
	rpc_client_destroy(beside);
	suite_server_stop(b, 1000);
}

static uint64_t whole_us(struct bed *b, struct rpc_client *c)
{
	struct slot_vec vec[RPC_BULK_VECS_MAX];
	uint32_t n = suite_slots_odd(b->client_pool, kill_len(b), 9, vec, RPC_BULK_VECS_MAX);

	fiber_yield();
	uint64_t t = loop_now_us();
	assert_int_equal(suite_read(c, kill_len(b), 2 | SUITE_ODD, vec, n, KILL_MS), 0);
	suite_fill(vec, n, 1);
	assert_int_equal(suite_write(c, kill_len(b), 1, vec, n, KILL_MS), 0);
	fiber_yield();
	suite_slots_put(vec, n);
	return loop_now_us() - t;
}

static void test_killed_client_in_bulk(struct bed *b)
{
	if (b->program == NULL)
		return;
	suite_server_start(b, NULL);
	struct rpc_client *beside = suite_client(b);
	uint64_t us = whole_us(b, beside);
	for (uint32_t i = 1; i <= moments(b); i++) {
		struct peer p = start_peer(b, false, 0, (uint32_t)(us * i / moments(b)) + 1);
		(void)peer_end(&p, beside);
		after_client(b, beside);
	}
	rpc_client_destroy(beside);
	suite_server_stop(b, 1000);
}

static bool peer_lives(const struct peer *p)
{
	siginfo_t info = {0};

	return waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	       info.si_pid == 0;
}

/* The script waits for a new server, and there is none: this fiber ends it. */
struct mourner {
	const struct peer *p;
	struct fiber *script;
	bool over;
	struct latch done;
};

static void mourn(void *arg)
{
	struct mourner *m = arg;

	while (!m->over && peer_lives(m->p))
		(void)!fiber_sleep_us(1000);
	for (int i = 0; i < 100 && !m->over; i++)
		(void)!fiber_sleep_us(SLOWLY(500));
	if (!m->over)
		fiber_interrupt(m->script);
	latch_done(&m->done);
}

/* Like script, but ends soon after the server has ended. */
static int mourned_script(struct bed *b, const struct peer *p, struct rpc_client *c,
			  struct slot_vec *vec, uint32_t n)
{
	struct mourner m = {.p = p, .script = fiber_self()};

	latch_init(&m.done, 1);
	assert_int_equal(fiber_spawn("mourner", mourn, &m), 0);
	int rc = script(b, c, vec, n);
	m.over = true;
	latch_wait(&m.done);
	(void)!fiber_interrupt_clear();
	return rc;
}

enum end {
	DIED,
	RAN_THROUGH,
	TOO_SLOW
};

/* The server dies during the script: every call ends, and no buffer is written afterwards.
 * TOO_SLOW: patience_ms has passed, and the server still ran. */
static enum end with_dying_server(struct bed *b, uint32_t die_at_op, uint32_t die_after_us,
				  uint64_t patience_ms)
{
	struct peer p = start_peer(b, true, die_at_op, die_after_us);
	struct slot_vec vec[RPC_BULK_VECS_MAX];
	struct rpc_client_options o;

	if (!peer_addr(&p, b->addrs, sizeof(b->addrs))) {
		(void)peer_end(&p, NULL);
		return DIED;
	}
	suite_client_options(b, &o);
	o.callback = callback;
	o.connect_timeout_ms = 500;
	struct rpc_client *c = suite_client_of(&o);
	uint32_t n = suite_slots_odd(b->client_pool, kill_len(b), 9, vec, RPC_BULK_VECS_MAX);
	uint64_t limit_us = loop_deadline_ms(patience_ms + KILL_MS / 2);
	fiber_set_deadline(loop_deadline_ms(patience_ms));
	int rc = mourned_script(b, &p, c, vec, n);
	fiber_set_deadline(NO_DEADLINE);
	assert_true(loop_now_us() < limit_us);
	suite_fill(vec, n, 99);
	/* On a slow machine it may still run. */
	bool lives = peer_lives(&p);
	kill(p.pid, SIGKILL);
	(void)peer_end(&p, NULL);
	assert_true(rc == 0 || rc == -LE_DISCONNECTED || rc == -LE_CONNREFUSED ||
		    rc == -LE_TIMEDOUT || (rc == -LE_INTR && !lives));
	rpc_client_destroy(c);
	assert_true(suite_is_pattern(vec, n, kill_len(b), 99));
	suite_slots_put(vec, n);
	assert_int_equal(slot_pool_free(b->client_pool), slot_pool_total(b->client_pool));
	if (rc == 0)
		return RAN_THROUGH;
	return rc == -LE_TIMEDOUT && lives ? TOO_SLOW : DIED;
}

/* Returns several times the duration of the script. */
static uint64_t patience(struct bed *b)
{
	uint64_t t = loop_now_us();

	assert_true(with_dying_server(b, 0, 0, KILL_MS) == RAN_THROUGH);
	return (loop_now_us() - t) * 3 / 1000 + 50;
}

static void test_killed_server(struct bed *b)
{
	uint32_t n = 0;

	if (b->program == NULL)
		return;
	uint64_t patience_ms = patience(b);
	for (enum end end = DIED; end != RAN_THROUGH;) {
		end = with_dying_server(b, ++n, 0, patience_ms);
		assert_true(n < STEPS_MAX);
		if (end == TOO_SLOW) {
			assert_true(patience_ms < KILL_MS);
			patience_ms *= 2;
			n--;
		}
	}
	assert_true(n > (b->brief ? 8 : 15));
}

static void test_killed_server_in_bulk(struct bed *b)
{
	if (b->program == NULL)
		return;
	uint64_t patience_ms = patience(b), us = patience_ms * 120;
	for (uint32_t i = 1; i <= moments(b); i++)
		(void)with_dying_server(b, 0, (uint32_t)(us * i / moments(b)) + 1, patience_ms);
}

const struct suite_test suite_kill_tests[] = {
	{"killed_client", test_killed_client},
	{"killed_client_in_bulk", test_killed_client_in_bulk},
	{"killed_server", test_killed_server},
	{"killed_server_in_bulk", test_killed_server_in_bulk},
	{NULL, NULL},
};
