/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Four frames of type HELLO; their id is the step:
 *   1 client: versions, cluster, role, name, nonce    2 server: likewise, choice, limits, proof
 *   3 client: proof                                   4 server: accepted or not
 *
 * A body is a MAC (32 bytes, zero in step 1 and in a refusal), then the message. A MAC is keyed
 * BLAKE2b over the step and all messages up to and with this one. The step in it separates the two
 * sides, so that a message sent back to its sender proves nothing; the nonces make each transcript
 * unique.
 *
 * A refusal in step 2 or 3 is not authenticated: a peer without the key can send it, but such a
 * peer could also have cut the connection.
 */
#include "common/rpc/auth.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/names.h"
#include "common/rt/env.h"

#define MAC_SIZE 32u
#define NONCE_SIZE 32u
#define HELLO_MAX (320u + ADDR_LIST_SIZE)
/* How many frames of an earlier step are ignored: a network doubles few. */
#define REPEATED_MAX 4u

#define hello_client_FIELDS(F) \
	F(u32, version_min) F(u32, version_max) F(uuid, cluster) F(u8, role) F(u32, loop) F(bytes, name) \
	F(bytes, nonce) F(u32, credits) F(u32, bulk_max)
#define hello_server_FIELDS(F) \
	F(i32, status) F(u32, version_min) F(u32, version_max) F(u32, version) F(uuid, cluster) F(u8, role) \
	F(bytes, name) F(bytes, nonce) F(u32, credits) F(u32, bulk_max) F(bytes, addrs)
#define hello_status_FIELDS(F) F(i32, status)
WIRE_STRUCT(hello_client)
WIRE_STRUCT(hello_server)
WIRE_STRUCT(hello_status)
WIRE_DEFINE_MESSAGE(hello_client)
WIRE_DEFINE_MESSAGE(hello_server)
WIRE_DEFINE_MESSAGE(hello_status)

/* The cluster key itself is used only to derive keys for one purpose each. */
static void state_init(struct auth_state *st, const struct rpc_key *key)
{
	static const char purpose[] = "leat handshake 1";

	crypto_generichash(st->key, sizeof(st->key), (const uint8_t *)purpose, sizeof(purpose) - 1,
			   key->b, sizeof(key->b));
	st->len = 0;
}

/* Adds a message, preceded by its length, so that different sequences of messages never produce the
 * same bytes. */
static int transcript_add(struct auth_state *st, const uint8_t *msg, uint32_t len)
{
	if (len > AUTH_TRANSCRIPT_MAX || st->len + 2 + len > AUTH_TRANSCRIPT_MAX)
		return -LE_TOO_BIG;
	st->transcript[st->len++] = (uint8_t)len;
	st->transcript[st->len++] = (uint8_t)(len >> 8);
	memcpy(st->transcript + st->len, msg, len);
	st->len += len;
	return 0;
}

static void mac_of(const struct auth_state *st, uint8_t step, uint8_t out[MAC_SIZE])
{
	crypto_generichash_state h;

	crypto_generichash_init(&h, st->key, sizeof(st->key), MAC_SIZE);
	crypto_generichash_update(&h, &step, 1);
	crypto_generichash_update(&h, st->transcript, st->len);
	crypto_generichash_final(&h, out, MAC_SIZE);
}

/* body: MAC_SIZE free bytes, then the message. */
static int hello_send(struct link *k, struct auth_state *st, uint8_t step, uint8_t *body,
		      uint32_t len, bool proven)
{
	TRY(transcript_add(st, body + MAC_SIZE, len));
	memset(body, 0, MAC_SIZE);
	if (proven)
		mac_of(st, step, body);
	struct link_tx tx = { .hdr = { .type = FRAME_HELLO, .id = step }, .body = body,
			      .body_len = MAC_SIZE + len };
	return k->ops->send(k, &tx, NO_DEADLINE);
}

/* Receives the message of a step; ret_proven: its MAC is right. The bytes are valid until the next
 * recv. */
static int hello_recv(struct link *k, struct auth_state *st, uint8_t step, struct wire_r *ret_r,
		      bool *ret_proven)
{
	uint32_t n_repeated = 0;
	struct link_rx rx;
	uint8_t mac[MAC_SIZE];

	do {
		TRY(k->ops->recv(k, &rx));
		/* A repeated earlier step is a frame that the network doubled. */
	} while (rx.hdr.type == FRAME_HELLO && rx.hdr.id < step && rx.hdr.bulk_len == 0 &&
		 n_repeated++ < REPEATED_MAX);
	if (rx.hdr.type != FRAME_HELLO || rx.hdr.id != step || rx.hdr.body_len < MAC_SIZE ||
	    rx.hdr.bulk_len > 0)
		return -LE_BAD_MESSAGE;
	TRY(transcript_add(st, rx.body + MAC_SIZE, rx.hdr.body_len - MAC_SIZE));
	mac_of(st, step, mac);
	*ret_proven = sodium_memcmp(mac, rx.body, MAC_SIZE) == 0;
	wire_r_init(ret_r, rx.body + MAC_SIZE, rx.hdr.body_len - MAC_SIZE);
	return 0;
}

static void copy_name(char to[64], struct bytes name)
{
	uint32_t n = name.len < 63 ? name.len : 63;

	/* The name is logged: keep printable characters only. */
	for (uint32_t i = 0; i < n; i++) {
		char c = ((const char *)name.data)[i];
		to[i] = c > 0x20 && c < 0x7f ? c : '_';
	}
	to[n] = 0;
}

/* Keeps only characters that an address can have; the text is logged too. */
static void copy_addrs(char to[ADDR_LIST_SIZE], struct bytes addrs)
{
	uint32_t n = addrs.len < ADDR_LIST_SIZE - 1 ? addrs.len : ADDR_LIST_SIZE - 1;

	for (uint32_t i = 0; i < n; i++) {
		char c = ((const char *)addrs.data)[i];
		bool fits = (c >= '0' && c <= ':') || (c >= 'a' && c <= 'z') ||
			    (c >= 'A' && c <= 'Z') || (c != 0 && strchr("-_.[]%*", c) != NULL);
		to[i] = fits ? c : ' ';
	}
	to[n] = 0;
}

static struct bytes short_name(const char *name)
{
	return bytes_of(name != NULL ? name : "", name != NULL ? (uint32_t)strnlen(name, 63) : 0);
}

static int send_status(struct link *k, struct auth_state *st, uint8_t step, int status, bool proven)
{
	uint8_t body[MAC_SIZE + 16];
	struct hello_status m = { .status = status };
	struct wire_w w;

	wire_w_init(&w, body + MAC_SIZE, sizeof(body) - MAC_SIZE);
	wire_put_hello_status(&w, &m);
	return hello_send(k, st, step, body, (uint32_t)w.len, proven);
}

/* ---- client ---- */

static int client_step1(struct link *k, struct auth_state *st, const struct auth_self *self)
{
	uint8_t nonce[NONCE_SIZE], body[MAC_SIZE + HELLO_MAX];
	struct wire_w w;

	env_random(loop_env(loop_self()), nonce, sizeof(nonce));
	struct hello_client m = {
		.version_min = PROTO_VERSION_MIN,
		.version_max = PROTO_VERSION_MAX,
		.cluster = self->cluster,
		.role = (uint8_t)self->role,
		.loop = self->loop,
		.name = short_name(self->name),
		.nonce = bytes_of(nonce, sizeof(nonce)),
		.credits = self->credits,
		.bulk_max = self->bulk_max,
	};
	wire_w_init(&w, body + MAC_SIZE, HELLO_MAX);
	wire_put_hello_client(&w, &m);
	TRY(w.status);
	return hello_send(k, st, 1, body, (uint32_t)w.len, false);
}

static int client_check(const struct hello_server *m, bool proven, const struct auth_self *self)
{
	if (m->status < 0)
		return m->status;
	if (m->version < PROTO_VERSION_MIN || m->version > PROTO_VERSION_MAX)
		return -LE_VERSION;
	if (!proven || m->nonce.len != NONCE_SIZE)
		return -LE_AUTH;
	if (!uuid_is_zero(&self->cluster) && !uuid_is_zero(&m->cluster) &&
	    !uuid_equal(&self->cluster, &m->cluster))
		return -LE_WRONG_CLUSTER;
	return m->credits == 0 ? -LE_BAD_MESSAGE : 0;
}

int auth_client(struct link *k, const struct auth_self *self, struct auth_peer *ret_peer)
{
	struct auth_state st;
	struct hello_server m;
	struct hello_status fin;
	struct wire_r r;
	bool proven;

	state_init(&st, self->key);
	TRY(client_step1(k, &st, self));
	TRY(hello_recv(k, &st, 2, &r, &proven));
	wire_get_hello_server(&r, &m);
	TRY(r.status);
	int rc = client_check(&m, proven, self);
	if (rc < 0) {
		/* Sent so that the server logs the reason too. */
		if (m.status == 0)
			(void)!send_status(k, &st, 3, rc, false);
		return rc;
	}
	struct auth_peer p = { .role = m.role, .cluster = m.cluster, .version = m.version,
			       .credits = m.credits, .bulk_max = m.bulk_max };
	copy_name(p.name, m.name);
	copy_addrs(p.addrs, m.addrs);
	TRY(send_status(k, &st, 3, 0, true));
	TRY(hello_recv(k, &st, 4, &r, &proven));
	wire_get_hello_status(&r, &fin);
	TRY(r.status);
	TRY(fin.status);
	if (!proven)
		return -LE_AUTH;
	*ret_peer = p;
	return 0;
}

/* ---- server ---- */

static int server_check(const struct hello_client *m, const struct auth_self *self,
			uint32_t *ret_version)
{
	uint32_t v = m->version_max < PROTO_VERSION_MAX ? m->version_max : PROTO_VERSION_MAX;

	if (v < m->version_min || v < PROTO_VERSION_MIN)
		return -LE_VERSION;
	if (!uuid_is_zero(&self->cluster) && !uuid_is_zero(&m->cluster) &&
	    !uuid_equal(&self->cluster, &m->cluster))
		return -LE_WRONG_CLUSTER;
	if (m->nonce.len != NONCE_SIZE || m->role < ROLE_CLIENT || m->role > ROLE_TOOL)
		return -LE_BAD_MESSAGE;
	*ret_version = v;
	return 0;
}

static int server_step2(struct link *k, struct auth_state *st, const struct auth_self *self,
			int status, uint32_t version)
{
	uint8_t nonce[NONCE_SIZE], body[MAC_SIZE + HELLO_MAX];
	struct wire_w w;

	env_random(loop_env(loop_self()), nonce, sizeof(nonce));
	struct hello_server m = {
		.status = status,
		.version_min = PROTO_VERSION_MIN,
		.version_max = PROTO_VERSION_MAX,
		.version = version,
		.cluster = self->cluster,
		.role = (uint8_t)self->role,
		.name = short_name(self->name),
		.nonce = bytes_of(nonce, sizeof(nonce)),
		.credits = self->credits,
		.bulk_max = self->bulk_max,
		.addrs = bytes_str(self->addrs != NULL ? self->addrs : ""),
	};
	wire_w_init(&w, body + MAC_SIZE, HELLO_MAX);
	wire_put_hello_server(&w, &m);
	TRY(w.status);
	return hello_send(k, st, 2, body, (uint32_t)w.len, status == 0);
}

int auth_server(struct link *k, const struct auth_self *self, struct auth_state *ret_state,
		struct auth_peer *ret_peer)
{
	struct auth_state *st = ret_state;
	struct hello_client m;
	struct hello_status confirm;
	struct wire_r r;
	bool proven;
	uint32_t version = 0;

	state_init(st, self->key);
	TRY(hello_recv(k, st, 1, &r, &proven));
	wire_get_hello_client(&r, &m);
	TRY(r.status);
	struct auth_peer p = {
		.role = m.role, .cluster = m.cluster, .loop = m.loop, .bulk_max = m.bulk_max
	};
	p.credits = m.credits > 0 && m.credits < self->credits ? m.credits : self->credits;
	copy_name(p.name, m.name);
	/* Set already here, for the log of a failure. */
	*ret_peer = p;
	int rc = server_check(&m, self, &version);
	struct auth_self reply = *self;
	reply.credits = p.credits;
	TRY(server_step2(k, st, &reply, rc, version));
	TRY(rc);
	ret_peer->version = version;
	TRY(hello_recv(k, st, 3, &r, &proven));
	wire_get_hello_status(&r, &confirm);
	TRY(r.status);
	TRY(confirm.status);
	if (!proven) {
		TRY(send_status(k, st, 4, -LE_AUTH, false));
		return -LE_AUTH;
	}
	return 0;
}

int auth_server_finish(struct link *k, struct auth_state *st, int status)
{
	return send_status(k, st, 4, status, true);
}

/* ---- the key ---- */

static int key_parse(const char *text, size_t len, struct rpc_key *ret_key)
{
	size_t n = 0;
	const char *end;
	struct rpc_key key;

	while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r' || text[len - 1] == ' '))
		len--;
	if (len != 2 * RPC_KEY_SIZE ||
	    sodium_hex2bin(key.b, sizeof(key.b), text, len, NULL, &n, &end) != 0 ||
	    n != RPC_KEY_SIZE)
		return -LE_CONFIG;
	*ret_key = key;
	sodium_memzero(&key, sizeof(key));
	return 0;
}

/* Reads the start of the file: the number of bytes, or a negative status. */
static ssize_t key_read(const char *path, char *text, size_t size, mode_t *ret_mode)
{
	struct stat st = {0};
	ssize_t n = -1;
	int rc = 0, fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return status_from_errno(errno);
	if (fstat(fd, &st) == 0)
		n = read(fd, text, size);
	if (n < 0)
		rc = status_from_errno(errno);
	close(fd);
	*ret_mode = st.st_mode;
	return rc < 0 ? rc : n;
}

int rpc_key_check(const char *path, struct rpc_key *ret_key, struct rpc_key_problem *ret_problem)
{
	char text[256];
	mode_t mode = 0;
	ssize_t n = key_read(path, text, sizeof(text), &mode);
	int rc = n < 0 ? (int)n : 0;
	const char *why = status_text(rc);
	const char *hint = "The key_file of [cluster] in leat.conf names it.";

	if (rc == -LE_NOENT) {
		hint = "The key_file of [cluster] in leat.conf names it; all hosts have the same "
		       "key.";
	} else if (rc == -LE_ACCES) {
		hint = "Run as a user who may read it, or name another leat.conf.";
	} else if (rc == 0 && (mode & (S_IRWXG | S_IRWXO)) != 0) {
		rc = -LE_ACCES;
		why = "others than its owner may use it";
		hint = "chmod 0600 it.";
	} else if (rc == 0 && key_parse(text, (size_t)n, ret_key) < 0) {
		rc = -LE_CONFIG;
		why = "it does not hold 64 hex digits";
		hint = "`openssl rand -hex 32` makes a key; all hosts have the same.";
	}
	sodium_memzero(text, sizeof(text));
	if (rc < 0) {
		snprintf(ret_problem->text, sizeof(ret_problem->text), "cluster key %s: %s", path,
			 why);
		text_make_printable(ret_problem->text);
		ret_problem->hint = hint;
	}
	return rc;
}

int rpc_key_load(const char *path, struct rpc_key *ret_key)
{
	struct rpc_key_problem problem;
	int rc = rpc_key_check(path, ret_key, &problem);

	if (rc < 0)
		log_error("%s. %s", problem.text, problem.hint);
	return rc;
}
