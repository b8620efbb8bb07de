/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frame: a fixed header, a body (one encoded message), and after it on TCP the bulk data. All
 * integers are little-endian. Offsets in bytes:
 *
 *   0 magic "LEAT"   4 type   5 flags   6 op      8 id        16 session   24 slot   28 epoch
 *  32 seq           40 status 44 body_len  48 bulk_len  52 n_desc  54 credits  56 timeout_ms
 *  60 target        64 chain    68 reserved (0)
 *  72 hash = xxh3(header without hash, then descriptors, then body)
 *
 * Bulk data is not hashed: it has its own block checksums. n_desc descriptors (16 bytes each:
 * address u64, length u32, key u32) follow the header on transports with remote memory access.
 */
#ifndef LEAT_COMMON_PROTO_FRAME_H
#define LEAT_COMMON_PROTO_FRAME_H

#include <stdint.h>

#include "common/base/status.h"

#define FRAME_MAGIC 0x5441454cu /* "LEAT" */
#define FRAME_HEADER_SIZE 80u
#define FRAME_DESC_SIZE 16u
#define FRAME_DESCS_MAX 64u
#define FRAME_BODY_MAX (1u << 18)
#define FRAME_BULK_MAX (64u << 20)

/* 2: struct piece has stored_sum. 3: accepted writes are repeated first (FRAME_SEEN). 4: clients
 * that have an inode open are notified of its new owner (cb_owner). 5: targets that were given up,
 * clocks in heartbeats, the next chunk of a file. 6: append reservations are a mode of leases. */
#define PROTO_VERSION_MIN 6u
#define PROTO_VERSION_MAX 6u

enum frame_type {
	FRAME_HELLO = 1,      /* handshake, messages of both sides */
	FRAME_REQUEST = 2,
	FRAME_REPLY = 3,
	FRAME_CALLBACK = 4,   /* server to client, answered by FRAME_CALLBACK_REPLY */
	FRAME_CALLBACK_REPLY = 5,
	FRAME_CANCEL = 6,     /* client to server: the caller of request id has given up */
	FRAME_GOODBYE = 7,    /* orderly end: the sender accepts no further requests */
	FRAME_ACCEPTED = 8,   /* server to client: request id has taken effect, its reply follows */
	/* server to client: the server no longer accesses the memory described in request id; its
	 * reply follows, without data */
	FRAME_RELEASED = 9,
};

/* Flags of a request. AGAIN: it was sent before, and its outcome is unknown. SEEN, with AGAIN: it
 * was accepted (FRAME_ACCEPTED), by a process that may have lost it since. CANCEL_IF_NOT_STARTED:
 * its program has ended; if the server has not begun to execute it, it answers -LE_CANCELED. */
enum frame_flags { FRAME_AGAIN = 1, FRAME_CANCEL_IF_NOT_STARTED = 2, FRAME_SEEN = 4 };

struct frame_hdr {
	uint8_t type, flags;
	uint16_t op;
	uint64_t id;
	uint64_t session;
	uint32_t slot, epoch;
	uint64_t seq; /* of a mutation, from 1 per (session, slot); 0: not a mutation */
	int32_t status;
	uint32_t body_len, bulk_len;
	uint16_t n_desc, credits;
	uint32_t timeout_ms;
	uint32_t target, chain;
	uint64_t hash;
};

struct frame_desc {
	uint64_t addr;
	uint32_t len, key;
};

/* Computes h's hash over header, descriptors and body, and encodes the header. */
void frame_encode(const struct frame_hdr *h, const void *descs, const void *body,
		  uint8_t out[FRAME_HEADER_SIZE]);
/* Decodes a header. Checks magic and limits (-LE_BAD_FRAME, -LE_TOO_BIG), not the hash. */
int frame_decode(const uint8_t in[FRAME_HEADER_SIZE], struct frame_hdr *ret_hdr) CHECK_RESULT;
/* Verifies the hash over header, descriptors and body: 0 or -LE_BAD_HASH. */
int frame_check(const uint8_t header[FRAME_HEADER_SIZE], const struct frame_hdr *h,
		const void *descs, const void *body) CHECK_RESULT;

#endif
