/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Raw verbs, for hostile.c: a queue pair, made by rdma_cm with blocking calls, which can send
 * anything; and functions that send anything on the queue pair of a link that transport_verbs has
 * made. Only for tests: an unexpected failure ends the test.
 */
#ifndef LEAT_TESTS_RDMA_RAW_H
#define LEAT_TESTS_RDMA_RAW_H

#include <stdbool.h>
#include <stdint.h>

#include "common/rpc/transport/transport.h"

/* Like those of transport_verbs.c and verbs_impl.h; written again so that a change there is noticed
 * here. Little-endian machines only, as verbs in general. */
struct raw_hello {
	uint32_t magic, version;
	int32_t status;
	uint32_t recv_size, credits, reads;
};
#define RAW_HELLO_GOOD                                                                             \
	{                                                                                          \
		0x4256454cu, 2, 0, 8192, 32, 4                                                     \
	}
struct raw_head {
	uint8_t kind, zero;
	uint16_t credits;
	uint32_t left;
};

struct raw;
enum raw_result {
	RAW_CONNECTED,
	RAW_REFUSED,
	RAW_FAILED
};

/* Makes one for a connection to "host:port", with n_receives receive buffers. */
struct raw *raw_create(const char *addr, uint32_t n_receives);
enum raw_result raw_connect(struct raw *r, const void *private_data, uint32_t len);
bool raw_connected(const struct raw *r);
void raw_send(struct raw *r, const void *data, uint32_t len);
/* Returns whether its own send queue has space for another request. */
bool raw_has_room(struct raw *r);
/* Starts an RDMA WRITE or READ of 64 bytes at that address of the peer. */
void raw_touch(struct raw *r, bool write, uint64_t addr, uint32_t key);
uint32_t raw_key(const struct raw *r); /* of its own memory */
uint64_t raw_address(const struct raw *r);
bool raw_failed(struct raw *r); /* a request has failed */
/* Waits until the device, or the peer's, has refused a request. */
bool raw_wait_failed(struct raw *r, int timeout_ms);
/* Waits until the peer has ended the connection in an orderly way. */
bool raw_wait_disconnected(struct raw *r, int timeout_ms);
/* Waits until the peer has ended the connection in either way. Returns false at the time limit. */
bool raw_wait_closed(struct raw *r, int timeout_ms);
void raw_destroy(struct raw *r);
/* Encodes a correct first frame of a handshake. Returns its length. */
uint32_t raw_first_hello(uint8_t *out);

/* Sends a frame in one message on the queue pair of a link, without checking credits. */
void raw_link_send(struct link *k, const void *frame, uint32_t len);
void raw_link_touch(struct link *k, bool write, uint64_t addr, uint32_t key);
uint32_t raw_link_key(struct link *k, const struct slot *s);
bool raw_link_alive(struct link *k);

#endif
