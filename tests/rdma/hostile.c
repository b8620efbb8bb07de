/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attacks over real verbs. A server runs in a process of its own, beside it a well-behaved client
 * that never stops sending requests and checking replies; this process attacks. After each attack:
 * the attacker's connection has been closed, the server's log says why, and the client was served
 * as before: no call failed, and it still has its first connection.
 *
 *   hostile      where RDMA_IP is the address of a device
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/rpc/auth.h"
#include "common/rpc/verbs/transport_verbs.h"
#include "tests/rdma/raw.h"
#include "tests/unit/common/rpc/suite.h"

#define BESIDE_LEN    70001u
#define BESIDE_ROUNDS 10u /* calls of the client after each attack */
#define WAIT_MS       12000
#define QPS_MAX       24u

extern char **environ;

/* What the processes share: a page of a file. */
struct shared {
	volatile uint64_t beside_rounds, beside_failures, beside_connects;
	char addrs[128];
	volatile uint32_t ready;
};
static struct shared *shared;
static char log_path[256], shared_path[256];
static pid_t server_pid, beside_pid;

static int create_server(struct transport **ret_transport)
{
	struct transport_verbs_options o = {.qps_max = QPS_MAX};

	return transport_verbs_create(&o, ret_transport);
}

static int create_plain(struct transport **ret_transport)
{
	return transport_verbs_create(NULL, ret_transport);
}

static struct suite_real how = {.create = create_plain, .scale = 1};

/* ---- the other processes ---- */

static void be_server(struct bed *b)
{
	struct rpc_server_options o = suite_server_options(b);

	o.in_flight_max = 16;
	o.data_stall_ms = 500;
	suite_server_start(b, &o);
	memcpy(shared->addrs, b->addrs, sizeof(shared->addrs));
	shared->ready = 1;
	for (;;)
		(void)fiber_sleep_us(1000000);
}

static void be_beside(struct bed *b)
{
	struct slot_vec vec[8];
	struct rpc_client_stats st;

	memcpy(b->addrs, shared->addrs, sizeof(b->addrs));
	struct rpc_client *c = suite_client(b);
	uint32_t n = suite_slots_odd(b->client_pool, BESIDE_LEN, 3, vec, 8);
	for (uint32_t i = 1;; i++) {
		int rc = suite_ping(c, i, WAIT_MS);
		suite_fill(vec, n, i);
		if (rc == 0)
			rc = suite_write(c, BESIDE_LEN, i, vec, n, WAIT_MS);
		if (rc == 0)
			rc = suite_read(c, BESIDE_LEN, i + 1, vec, n, WAIT_MS);
		if (rc < 0) {
			fprintf(stderr, "beside: %s\n", status_name(rc));
			shared->beside_failures++;
		}
		rpc_client_stats(c, &st);
		shared->beside_connects = st.connects;
		shared->beside_rounds++;
		(void)fiber_sleep_us(1000);
	}
}

static void map_shared(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0 && ftruncate(fd, sizeof(struct shared)) == 0);
	shared = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(shared != MAP_FAILED);
	close(fd);
}

static int other_process(const char *what, const char *path)
{
	/* It ends with its parent, however the parent ends. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	map_shared(path);
	log_init(what, getenv("HOSTILE_DEBUG") ? LOG_DEBUG : LOG_WARN);
	if (strcmp(what, "server") == 0)
		how.create = create_server;
	suite_real_run(&how, strcmp(what, "server") == 0 ? be_server : be_beside);
	return 0;
}

static pid_t start(const char *program, const char *what, const char *stderr_path)
{
	char *argv[] = {(char *)program, (char *)what, shared_path, NULL};
	posix_spawn_file_actions_t fa;
	pid_t pid;

	posix_spawn_file_actions_init(&fa);
	if (stderr_path != NULL)
		posix_spawn_file_actions_addopen(&fa, 2, stderr_path, O_WRONLY | O_CREAT | O_APPEND,
						 0600);
	assert_int_equal(posix_spawn(&pid, program, &fa, NULL, argv, environ), 0);
	posix_spawn_file_actions_destroy(&fa);
	return pid;
}

/* ---- checks after each attack ---- */

static off_t log_size(void)
{
	struct stat st;

	return stat(log_path, &st) == 0 ? st.st_size : 0;
}

/* Waits for text in the log after `from`. (What many peers could cause is logged once a minute for
 * each host and reason: then from is 0.) */
static bool log_says(off_t from, const char *text)
{
	static char buf[1 << 20];

	for (int ms = 0; ms < WAIT_MS; ms += 20) {
		int fd = open(log_path, O_RDONLY | O_CLOEXEC);
		ssize_t n = fd >= 0 ? pread(fd, buf, sizeof(buf) - 1, from) : 0;
		if (fd >= 0)
			close(fd);
		buf[n > 0 ? n : 0] = 0;
		if (strstr(buf, text) != NULL)
			return true;
		usleep(20000);
	}
	fprintf(stderr, "the log does not say '%s':\n%s\n", text, buf);
	return false;
}

static void check_beside(void)
{
	uint64_t want = shared->beside_rounds + BESIDE_ROUNDS;

	for (int ms = 0; ms < WAIT_MS && shared->beside_rounds < want; ms += 20)
		usleep(20000);
	assert_true(shared->beside_rounds >= want);
	assert_int_equal(shared->beside_failures, 0);
	assert_int_equal(shared->beside_connects, 1);
	assert_int_equal(waitpid(server_pid, NULL, WNOHANG), 0);
	assert_int_equal(waitpid(beside_pid, NULL, WNOHANG), 0);
}

/* ---- strangers: messages without the key ---- */

static struct raw *hello_and_connect(void)
{
	struct raw_hello h = RAW_HELLO_GOOD;
	struct raw *r = raw_create(shared->addrs, 16);

	assert_int_equal(raw_connect(r, &h, sizeof(h)), RAW_CONNECTED);
	return r;
}

/* The connection is closed by the server, and the log says why. */
static void expect_closed(struct raw *r, off_t from, const char *why)
{
	assert_true(raw_wait_closed(r, WAIT_MS));
	raw_destroy(r);
	assert_true(log_says(from, why));
	check_beside();
}

static void refused_hello(const void *data, uint32_t len)
{
	struct raw *r = raw_create(shared->addrs, 16);

	enum raw_result rc = raw_connect(r, data, len);
	if (rc != RAW_REFUSED)
		fprintf(stderr, "not refused: private data of %u bytes\n", len);
	assert_int_equal(rc, RAW_REFUSED);
	raw_destroy(r);
}

static void test_private_data(void **state)
{
	struct raw_hello good = RAW_HELLO_GOOD, h;
	uint8_t junk[56];

	(void)state;
	memset(junk, 0xff, sizeof(junk));
	refused_hello(NULL, 0);
	refused_hello(junk, sizeof(junk));
	/* Some fabrics fill a short message up with zeros. */
	refused_hello(&good, 13);
	h = good, h.magic ^= 1, refused_hello(&h, sizeof(h));
	h = good, h.version = 99, refused_hello(&h, sizeof(h));
	h = good, h.recv_size = 0, refused_hello(&h, sizeof(h));
	h = good, h.recv_size = UINT32_MAX, refused_hello(&h, sizeof(h));
	h = good, h.credits = 0, refused_hello(&h, sizeof(h));
	h = good, h.credits = UINT32_MAX, refused_hello(&h, sizeof(h));
	assert_true(log_says(0, "refused a connection"));
	check_beside();
}

struct message {
	const char *what;
	uint8_t kind;
	uint16_t credits;
	uint32_t left, len;
	const char *why; /* in the log */
	bool once;       /* logged once a minute */
};

static void say(const struct message *m)
{
	uint8_t buf[4096];
	struct raw_head h = {.kind = m->kind, .credits = m->credits, .left = m->left};
	off_t from = m->once ? 0 : log_size();
	struct raw *r = hello_and_connect();

	memset(buf, 0xa5, sizeof(buf));
	memcpy(buf, &h, sizeof(h));
	raw_send(r, buf, m->len);
	expect_closed(r, from, m->why);
}

static void test_malformed_messages(void **state)
{
	static const struct message messages[] = {
		{"short", 1, 0, 72, 5, "malformed message", false},
		{"empty", 1, 0, 0, 0, "malformed message", false},
		{"kind 0", 0, 0, 72, 80, "malformed message", false},
		{"kind 200", 200, 0, 72, 80, "malformed message", false},
		{"an answer to nothing", 6, 0, 0, 80, "malformed message", false},
		{"credits", 1, 60000, 72, 80, "credits that it never had", false},
		{"tiny frame", 1, 0, 10, 18, "malformed", false},
		{"huge frame", 1, 0, UINT32_MAX, 80, "connection lost", false},
		{"more of nothing", 2, 0, 72, 80, "connection lost", false},
		{"frame of junk", 1, 0, 72, 80, "connection lost", false},
		{"longer than it says", 1, 0, 72, 200, "connection lost", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {
		fprintf(stderr, "message: %s\n", messages[i].what);
		say(&messages[i]);
	}
}

/* A stranger may test the path once; the reply costs a message of full size. */
static void test_tries_twice(void **state)
{
	uint8_t buf[4096] = {0};
	struct raw_head h = {.kind = 5};
	off_t from = log_size();
	struct raw *r = hello_and_connect();

	(void)state;
	memcpy(buf, &h, sizeof(h));
	raw_send(r, buf, sizeof(buf));
	raw_send(r, buf, sizeof(buf));
	expect_closed(r, from, "malformed message");
}

/* Frames whose header is right except for one field. */
static void say_frame(const struct frame_hdr *h, const struct frame_desc *descs, uint32_t body_len,
		      uint32_t extra)
{
	static uint8_t buf[512 << 10];
	uint32_t n_desc = h->n_desc < 64 ? h->n_desc : 64;
	uint32_t len = FRAME_HEADER_SIZE + n_desc * FRAME_DESC_SIZE + body_len;
	struct raw_head head = {.kind = 1, .left = len + extra};
	uint8_t *frame = buf + sizeof(head);
	off_t from = log_size();
	struct raw *r = hello_and_connect();

	memcpy(buf, &head, sizeof(head));
	memcpy(frame + FRAME_HEADER_SIZE, descs, n_desc * FRAME_DESC_SIZE);
	frame_encode(h, descs, frame + FRAME_HEADER_SIZE + n_desc * FRAME_DESC_SIZE, frame);
	raw_send(r, buf, (uint32_t)sizeof(head) + len + extra);
	expect_closed(r, from, "connection lost");
}

static void test_malformed_frames(void **state)
{
	static struct frame_desc descs[128];
	struct frame_hdr h = {.type = FRAME_HELLO, .id = 1, .body_len = 100};

	(void)state;
	h.body_len = 300000;
	say_frame(&h, descs, 100, 0);
	h.body_len = 100;
	say_frame(&h, descs, 100, 7);
	h.n_desc = 65;
	say_frame(&h, descs, 100, 0);
	/* Data that no descriptor covers; descriptors that are larger than the data. */
	h = (struct frame_hdr){
		.type = FRAME_REQUEST, .id = 1, .op = OP_oss_write, .bulk_len = 5000, .n_desc = 1};
	descs[0].len = 4999;
	say_frame(&h, descs, 0, 0);
	h.n_desc = 64;
	for (int i = 0; i < 64; i++)
		descs[i].len = UINT32_MAX;
	say_frame(&h, descs, 0, 0);
	h.bulk_len = UINT32_MAX;
	say_frame(&h, descs, 0, 0);
}

static void test_handshake(void **state)
{
	struct frame_hdr h = {.type = FRAME_HELLO, .id = 1, .body_len = 100};
	uint8_t buf[400] = {0};
	struct raw_head head = {.kind = 1, .left = FRAME_HEADER_SIZE + 100};

	(void)state;
	/* A handshake of zeros, then a request instead of one. */
	for (int i = 0; i < 2; i++) {
		struct raw *r = hello_and_connect();
		if (i == 1)
			h.type = FRAME_REQUEST;
		memcpy(buf, &head, sizeof(head));
		frame_encode(&h, NULL, buf + sizeof(head) + FRAME_HEADER_SIZE, buf + sizeof(head));
		raw_send(r, buf, (uint32_t)sizeof(head) + head.left);
		expect_closed(r, 0, "refused");
	}
}

static void test_too_many_messages(void **state)
{
	struct raw_head credit = {.kind = 3};
	off_t from = log_size();
	struct raw *r = hello_and_connect();

	(void)state;
	/* Words of credit cost no credit only as far as credits are returned. A server that keeps
	 * up returns them, half of its 32 at a time, while it has credits itself: 31 of them
	 * here. */
	for (int i = 0, ms = 0; i < 1000 && ms < WAIT_MS && !raw_failed(r);) {
		if (raw_has_room(r)) {
			raw_send(r, &credit, sizeof(credit));
			i++;
		} else {
			usleep(1000);
			ms++;
		}
	}
	/* iWARP's own receive queue may be empty before the server has counted the messages. */
	const char *dev = getenv("RDMA_DEV");
	bool iwarp = dev != NULL && strstr(dev, "siw") != NULL;
	expect_closed(r, from, iwarp ? "connection lost" : "sends more than it has credits for");
}

/* A message that fits no receive buffer: the device cuts it off. */
static void test_too_long_message(void **state)
{
	static uint8_t big[60000];
	off_t from = log_size();
	struct raw *r = hello_and_connect();

	(void)state;
	raw_send(r, big, sizeof(big));
	expect_closed(r, from, "connection lost");
}

/* Guessed addresses in the server's memory: its device refuses each, which costs the queue pair. */
static void test_guessed_keys(void **state)
{
	struct raw *r[12];

	(void)state;
	for (uint32_t i = 0; i < 12; i++) {
		r[i] = hello_and_connect();
		uint32_t own = raw_key(r[i]);
		uint32_t key = i % 3 == 0 ? own : i % 3 == 1 ? own + 256 * i : i * 77;
		raw_touch(r[i], i % 2 == 0, i < 6 ? raw_address(r[i]) : 0x7f0000000000ull, key);
	}
	for (uint32_t i = 0; i < 12; i++) {
		assert_true(raw_wait_failed(r[i], WAIT_MS));
		/* The server's end is closed too: with its queue pair, or because it is silent. */
		assert_true(raw_wait_disconnected(r[i], WAIT_MS));
		raw_destroy(r[i]);
	}
	check_beside();
}

static void test_silent(void **state)
{
	(void)state;
	struct raw *r = hello_and_connect();
	expect_closed(r, 0, "timed out");
}

/* The attacker has no receive buffers and polls nothing: the server's messages wait for ever. */
static void test_never_polls(void **state)
{
	struct raw_hello h = RAW_HELLO_GOOD;
	struct raw *r = raw_create(shared->addrs, 0);
	uint8_t buf[400] = {0};

	(void)state;
	assert_int_equal(raw_connect(r, &h, sizeof(h)), RAW_CONNECTED);
	uint32_t len = raw_first_hello(buf + sizeof(struct raw_head));
	struct raw_head head = {.kind = 1, .left = len};
	memcpy(buf, &head, sizeof(head));
	raw_send(r, buf, (uint32_t)sizeof(head) + len);
	expect_closed(r, 0, "timed out");
}

/* As many connections as the server has queue pairs: the others are refused, the silent ones are
 * closed, and clients that were connected before are not affected. */
static void test_all_connections(void **state)
{
	struct raw_hello h = RAW_HELLO_GOOD;
	struct raw *r[QPS_MAX + 8];
	uint32_t n_connected = 0, n_refused = 0;
	off_t from = log_size();

	(void)state;
	for (uint32_t i = 0; i < QPS_MAX + 8; i++) {
		r[i] = raw_create(shared->addrs, 4);
		int rc = raw_connect(r[i], &h, sizeof(h));
		n_connected += rc == RAW_CONNECTED;
		n_refused += rc == RAW_REFUSED;
	}
	assert_int_equal(n_connected + n_refused, QPS_MAX + 8);
	assert_true(n_connected < QPS_MAX && n_connected > QPS_MAX / 2);
	assert_true(log_says(from, "queue pairs"));
	check_beside();
	for (uint32_t i = 0; i < QPS_MAX + 8; i++) {
		if (raw_connected(r[i]))
			assert_true(raw_wait_closed(r[i], WAIT_MS));
		raw_destroy(r[i]);
	}
	struct raw *again = hello_and_connect();
	raw_destroy(again);
	check_beside();
}

/* ---- traitors: attackers with the key ---- */

static void (*betrayal)(struct bed *b, struct link *k);
static uint32_t n_betrayals;

static void betray(struct bed *b)
{
	struct auth_self self = {.role = ROLE_TOOL, .name = "tester", .key = &b->key};
	struct auth_peer peer;
	struct link *k;

	memcpy(b->addrs, shared->addrs, sizeof(b->addrs));
	assert_int_equal(
		b->transport->ops->connect(b->transport, b->addrs, loop_deadline_ms(SHORT_MS), &k),
		0);
	assert_int_equal(auth_client(k, &self, &peer), 0);
	betrayal(b, k);
	/* The server closes the connection. */
	struct link_rx rx;
	fiber_set_deadline(loop_deadline_ms(WAIT_MS));
	int rc;
	do
		rc = k->ops->recv(k, &rx);
	while (rc == 0);
	assert_int_equal(rc, -LE_DISCONNECTED);
	k->ops->shutdown(k);
	k->ops->close(k);
	n_betrayals++;
}

static void traitor(void (*fn)(struct bed *b, struct link *k), const char *why)
{
	off_t from = log_size();
	uint32_t n = n_betrayals;

	betrayal = fn;
	suite_real_run(&how, betray);
	assert_int_equal(n_betrayals, n + 1);
	assert_true(log_says(from, why));
	check_beside();
}

static uint64_t last_id;

static void ask(struct link *k, uint16_t op, uint32_t bulk_len, const struct frame_desc *descs,
		uint16_t n_desc)
{
	struct oss_read_req rq = {.len = 4096};
	struct oss_write_req wq = {.len = bulk_len};
	struct frame_hdr h = {.type = FRAME_REQUEST,
			      .id = ++last_id,
			      .op = op,
			      .bulk_len = bulk_len,
			      .n_desc = n_desc};
	uint8_t body[512], frame[2048];
	struct wire_w w;

	wire_w_init(&w, body, sizeof(body));
	if (op == OP_oss_read)
		wire_put_oss_read_req(&w, &rq);
	else
		wire_put_oss_write_req(&w, &wq);
	h.body_len = (uint32_t)w.len;
	frame_encode(&h, descs, body, frame);
	memcpy(frame + FRAME_HEADER_SIZE, descs, n_desc * FRAME_DESC_SIZE);
	memcpy(frame + FRAME_HEADER_SIZE + n_desc * FRAME_DESC_SIZE, body, w.len);
	raw_link_send(k, frame, FRAME_HEADER_SIZE + n_desc * FRAME_DESC_SIZE + (uint32_t)w.len);
}

static struct frame_desc own_memory(struct bed *b, struct link *k)
{
	struct slot *s;

	assert_int_equal(slot_get(b->client_pool, NO_DEADLINE, &s), 0);
	struct frame_desc d = {(uintptr_t)s->data, 4096, raw_link_key(k, s)};
	slot_unref(s);
	return d;
}

static void read_into_wrong_key(struct bed *b, struct link *k)
{
	struct frame_desc d = own_memory(b, k);

	d.key ^= 0x5a5a00;
	ask(k, OP_oss_read, 0, &d, 1);
}

static void read_beyond_slot(struct bed *b, struct link *k)
{
	struct frame_desc d = own_memory(b, k);

	d.addr += b->slot_size - 100;
	ask(k, OP_oss_read, 0, &d, 1);
}

static void write_from_wrong_key(struct bed *b, struct link *k)
{
	struct frame_desc d = own_memory(b, k);

	d.key ^= 0x5a5a00;
	ask(k, OP_oss_write, 4096, &d, 1);
}

static void write_from_beyond_slot(struct bed *b, struct link *k)
{
	struct frame_desc d = own_memory(b, k);

	d.addr += b->slot_size - 100;
	ask(k, OP_oss_write, 4096, &d, 1);
}

static void descs_too_short(struct bed *b, struct link *k)
{
	struct frame_desc d = own_memory(b, k);

	d.len = 100;
	ask(k, OP_oss_write, 4096, &d, 1);
}

static void touch_server_write(struct bed *b, struct link *k)
{
	(void)b;
	raw_link_touch(k, true, 0x7f1234500000, 0x1234);
}

static void touch_server_read(struct bed *b, struct link *k)
{
	(void)b;
	raw_link_touch(k, false, 0x7f1234500000, 0x1234);
}

static void test_wrong_keys(void **state)
{
	(void)state;
	traitor(read_into_wrong_key, "connection lost");
	traitor(read_beyond_slot, "connection lost");
	traitor(write_from_wrong_key, "connection lost");
	traitor(write_from_beyond_slot, "connection lost");
	traitor(descs_too_short, "connection lost");
}

static void test_outside_its_region(void **state)
{
	(void)state;
	traitor(touch_server_write, "connection lost");
	traitor(touch_server_read, "connection lost");
}

/* Takes no frame and so returns no credit, while it sends more requests than the server has credits
 * to answer. */
static void keep_credits(struct bed *b, struct link *k)
{
	struct frame_desc d = own_memory(b, k);
	uint64_t limit_us = loop_deadline_ms(WAIT_MS);

	for (int i = 0; i < 50 && raw_link_alive(k); i++) {
		ask(k, OP_oss_read, 0, &d, 1);
		(void)fiber_sleep_us(5000);
	}
	while (raw_link_alive(k) && loop_now_us() < limit_us)
		(void)fiber_sleep_us(5000);
}

static void test_keeps_credits(void **state)
{
	(void)state;
	traitor(keep_credits, "cut off");
}

static int set_up(const char *program)
{
	const char *dir = getenv("TMPDIR");

	snprintf(log_path, sizeof(log_path), "%s/hostile.log", dir != NULL ? dir : "/tmp");
	snprintf(shared_path, sizeof(shared_path), "%s/hostile.shared", dir != NULL ? dir : "/tmp");
	unlink(log_path);
	unlink(shared_path);
	map_shared(shared_path);
	server_pid = start(program, "server", log_path);
	for (int ms = 0; ms < WAIT_MS && !shared->ready; ms += 10)
		usleep(10000);
	if (!shared->ready) {
		fprintf(stderr, "hostile: the server does not start, see %s\n", log_path);
		return -1;
	}
	beside_pid = start(program, "beside", NULL);
	for (int ms = 0; ms < WAIT_MS && shared->beside_rounds == 0; ms += 10)
		usleep(10000);
	return shared->beside_rounds > 0 ? 0 : -1;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_private_data),      cmocka_unit_test(test_malformed_messages),
		cmocka_unit_test(test_malformed_frames),  cmocka_unit_test(test_handshake),
		cmocka_unit_test(test_too_many_messages), cmocka_unit_test(test_too_long_message),
		cmocka_unit_test(test_guessed_keys),      cmocka_unit_test(test_silent),
		cmocka_unit_test(test_never_polls),       cmocka_unit_test(test_all_connections),
		cmocka_unit_test(test_wrong_keys),        cmocka_unit_test(test_outside_its_region),
		cmocka_unit_test(test_tries_twice),       cmocka_unit_test(test_keeps_credits),
	};
	const char *ip = getenv("RDMA_IP");
	static char listen[128];

	if (ip == NULL) {
		fprintf(stderr, "hostile: RDMA_IP, the address of a device, is not set\n");
		return 2;
	}
	snprintf(listen, sizeof(listen), "%s:0", ip);
	how.listen = listen;
	if (argc == 3)
		return other_process(argv[1], argv[2]);
	log_init("hostile", getenv("HOSTILE_DEBUG") ? LOG_DEBUG : LOG_ERROR);
	if (set_up(argv[0]) < 0)
		return 1;
	if (argc == 2)
		cmocka_set_test_filter(argv[1]);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	kill(beside_pid, SIGKILL);
	kill(server_pid, SIGKILL);
	(void)waitpid(beside_pid, NULL, 0);
	(void)waitpid(server_pid, NULL, 0);
	return failed;
}
