/*
 * The frame: a fixed header, a body (one encoded message), and behind it on TCP the bulk data.
 * All integers little-endian. Offsets in bytes:
 *
 *   0 magic "LEAT"   4 type   5 flags   6 op      8 id        16 session   24 slot   28 epoch
 *  32 seq           40 status 44 body_len  48 bulk_len  52 n_desc  54 credits  56 timeout_ms
 *  60 target        64 chain    68 reserved (0)
 *  72 hash = xxh3(header without hash, then descriptors, then body)
 *
 * Bulk data is not hashed: it has its own block checksums. n_desc descriptors (16 bytes each:
 * address u64, length u32, key u32) follow the header on transports with remote memory access.
 */
#ifndef LEAT_PROTO_FRAME_H
#define LEAT_PROTO_FRAME_H

#include <stdint.h>

#include "common/base/status.h"

#define FRAME_MAGIC 0x5441454cu /* "LEAT" */
#define FRAME_HEADER_SIZE 80u
#define FRAME_DESC_SIZE 16u
#define FRAME_DESCS_MAX 64u
#define FRAME_BODY_MAX (1u << 18)
#define FRAME_BULK_MAX (64u << 20)

/* 2: struct piece has stored_sum. 3: what was accepted is repeated first (FRAME_SEEN). 4:
 * who has an inode open is told of its new owner (cb_owner). */
#define PROTO_VERSION_MIN 4u
#define PROTO_VERSION_MAX 4u

enum frame_type {
	FRAME_HELLO = 1,      /* handshake, client's and server's messages alike */
	FRAME_REQUEST = 2,
	FRAME_REPLY = 3,
	FRAME_CALLBACK = 4,   /* server to client, answered by FRAME_CALLBACK_REPLY */
	FRAME_CALLBACK_REPLY = 5,
	FRAME_CANCEL = 6,     /* client gave up on request id */
	FRAME_GOODBYE = 7,    /* orderly end: no more requests are taken */
	FRAME_ACCEPTED = 8,   /* server to client: request id has taken effect, its reply follows */
	/* server to client: the memory described in request id is not touched any more; its reply
	 * follows, without data */
	FRAME_RELEASED = 9,
};

/* Of a request: it was sent before, and what became of it is not known. SEEN: then it was also
 * accepted (FRAME_ACCEPTED), by a process that may have lost it since. WITHDRAWN: whoever asked for
 * it is gone; if it has not been done it shall not be: -LE_CANCELED. */
enum frame_flags { FRAME_AGAIN = 1, FRAME_WITHDRAWN = 2, FRAME_SEEN = 4 };

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

/* hash is computed here over header, descriptors and body. */
void frame_encode(const struct frame_hdr *h, const void *descs, const void *body,
		  uint8_t out[FRAME_HEADER_SIZE]);
/* Checks magic and limits (-LE_BAD_FRAME, -LE_TOO_BIG), not the hash. */
int frame_decode(const uint8_t in[FRAME_HEADER_SIZE], struct frame_hdr *ret_hdr) CHECK_RESULT;
/* -LE_BAD_HASH */
int frame_check(const uint8_t header[FRAME_HEADER_SIZE], const struct frame_hdr *h,
		const void *descs, const void *body) CHECK_RESULT;

#endif
