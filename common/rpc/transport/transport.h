/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What carries frames between two processes: tcp, verbs, sim. One table of operations hides the
 * differences. A link belongs to the loop that made it.
 *
 * On tcp and sim, bulk data follows the frame into the receiver's slots. With remote memory access
 * (verbs), requests carry descriptors instead. send() adds the descriptors of tx->bulk and
 * tx->bulk_in (request) or does the RDMA WRITE before the SEND (reply); recv_bulk() does the RDMA
 * READ (server) or nothing (client). The rpc code is common to all but for two properties in ops:
 * whether data may be fetched apart from the frames (bulk_apart), and how to revoke the peer's
 * access to memory (sever).
 */
#ifndef LEAT_COMMON_RPC_TRANSPORT_TRANSPORT_H
#define LEAT_COMMON_RPC_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <sys/uio.h>

#include "common/proto/frame.h"
#include "common/rt/loop.h"
#include "common/rt/slot.h"

/* Number of small frames after which a link frees its buffer for large ones. */
#define TRANSPORT_BIG_KEEP 256u

struct user_memory;
struct link;
struct listener;
struct transport;

struct link_tx {
	struct frame_hdr hdr; /* body_len, bulk_len, n_desc and hash are filled in by send */
	const void *body;
	uint32_t body_len;
	const struct slot_vec *bulk; /* data sent with the frame (write request, read reply) */
	uint32_t n_bulk;
	const struct slot_vec *bulk_in; /* request only: where the reply's data is to be placed */
	uint32_t n_bulk_in;
	/* reply only: where the peer wants the data, from the descriptors of its request (verbs).
	 * Data that exceeds it is not sent: the peer gets -LE_BAD_MESSAGE. */
	const struct frame_desc *peer_descs;
	uint32_t n_peer_descs;
	/* For transports that send a frame in parts (tcp): once the first part is sent, the rest
	 * has so long, if that ends after the deadline. 0: the deadline holds. */
	uint64_t rest_us;
};

struct link_rx {
	struct frame_hdr hdr;
	const uint8_t *body; /* borrowed: valid until the next recv on this link */
	struct frame_desc descs[FRAME_DESCS_MAX];
};

/* Use of a pool's slots, which decides what a peer may access. Each use includes those before it. A
 * pool may be added again with a further use. */
enum pool_use {
	POOL_SOURCE, /* data is sent from them: no peer accesses them */
	POOL_SINK,   /* data of requests is received into them (a server's bulk_pool) */
	POOL_REMOTE, /* calls carry them: the server reads and writes them during the call */
};

/* Counters since the link was made; those that do not apply stay 0. */
struct link_stats {
	uint64_t frames_out, frames_in;
	uint64_t bulk_out, bulk_in;           /* bytes of bulk data */
	uint64_t bytes_copied;                /* of bulk data, by the transport */
	uint64_t sends, recvs, writes, reads; /* work requests */
	uint64_t posts, completions;          /* doorbells rung, completions polled */
	uint64_t wakeups;                     /* of the loop, for all its links */
	uint64_t credit_stalls, queue_stalls; /* frames that waited for credits, for queue space */
	uint64_t credit_frames;               /* frames sent only to return credits */
	char device[32];                      /* "rxe0"; "" without one */
	uint16_t port;
};

/* Resources that a transport holds on devices, at present. */
struct transport_resources {
	uint64_t queue_pairs, completion_queues, regions, registered_bytes;
};

enum addr_use {
	ADDR_LISTEN,
	ADDR_CONNECT,
	ADDR_TELL
};

struct transport_ops {
	const char *name; /* "tcp" */
	/* recv_bulk of a request may be called in any fiber, and after later calls of recv. */
	bool bulk_apart;
	/* addr "host:port"; port 0 picks one; ret_addr (ADDR_TEXT_SIZE) gets the actual address. */
	int (*listen)(struct transport *t, struct loop *l, const char *addr,
		      struct listener **ret_listener, char *ret_addr);
	/* Yields; -LE_SHUTDOWN after listener_close. */
	int (*accept)(struct listener *ls, struct link **ret_link);
	void (*listener_close)(struct listener *ls);
	int (*connect)(struct transport *t, const char *addr, uint64_t deadline_us,
		       struct link **ret_link);
	/* Sends one frame, whole. Fibers may call concurrently: frames are sent in the order of the
	 * calls, waiting ones together. Yields (if the peer is slow); does not access the bytes
	 * after its return. -LE_TIMEDOUT, -LE_INTR: nothing was sent. -LE_DISCONNECTED: the frame
	 * may have arrived. */
	int (*send)(struct link *k, const struct link_tx *tx, uint64_t deadline_us);
	/* Receives the next frame, checked by frame_decode and frame_check. One reader at a time.
	 * Yields. */
	int (*recv)(struct link *k, struct link_rx *ret_rx);
	/* Receives the data of a frame with bulk_len > 0 into vec (of bulk_len bytes in all), or,
	 * if vec is NULL, discards it. Exactly once after recv. */
	int (*recv_bulk)(struct link *k, const struct link_rx *rx, const struct slot_vec *vec,
			 uint32_t n);
	/* Ends both directions immediately: fibers in send or recv get -LE_DISCONNECTED.
	 * Idempotent. Does not yield; fibers, timers and mail handlers may call it. */
	void (*shutdown)(struct link *k);
	/* NULL where the peer never accesses our memory by itself. Shuts the link down; after the
	 * return no operation of the peer or the device can access a slot of ours. */
	void (*sever)(struct link *k);
	/* Called when a caller has waited for a second without a frame: checks that the peer is
	 * alive, and breaks the link if it is not. NULL where the transport detects silence by
	 * itself. Does not yield. */
	void (*probe)(struct link *k);
	/* No fiber may be in a call on the link. */
	void (*close)(struct link *k);
	void (*peer_name)(struct link *k, char *buf, size_t size); /* "tcp 10.0.0.1:7440" */
	void (*stats)(struct link *k, struct link_stats *ret_stats);
	/* Registers the memory of a pool (verbs), so that its slots may be transferred; nothing on
	 * tcp. On the pool's loop, at any time; lasts until the pool ends. */
	int (*add_pool)(struct transport *t, struct slot_pool *pool, enum pool_use use);
	/* NULL: received data can be placed in any memory. See transport_register. */
	int (*register_memory)(struct transport *t, void *base, uint64_t len,
			       struct user_memory **ret_memory);
	void (*unregister_memory)(struct transport *t, struct user_memory *m);
	bool (*lands)(struct transport *t, const void *base, uint64_t len);
	void (*destroy)(struct transport *t);
	/* NULL: addresses are used unchanged. Writes the addresses that a configured address stands
	 * for ("scheme:host:port ...", blank-separated, at most size bytes; "": unusable with this
	 * transport), or, for ADDR_TELL, the addresses to send to clients for an address that
	 * listen returned. */
	int (*expand)(struct transport *t, const char *addr, enum addr_use use, char *buf,
		      size_t size);
	/* NULL: all addresses are equal. Lower is better; negative: unusable. */
	int (*rank)(struct transport *t, const char *addr);
	/* NULL: nothing to report. Writes a JSON object: the available transports, and why verbs is
	 * not. */
	void (*describe)(struct transport *t, char *buf, size_t size);
	/* NULL: none. */
	void (*resources)(struct transport *t, struct transport_resources *ret);
	/* NULL or negative: none. The NUMA node of its device. */
	int (*numa_node)(struct transport *t);
};

struct transport {
	const struct transport_ops *ops;
};
/* Every link starts with this. */
struct link {
	const struct transport_ops *ops;
};

/* Sets all fields to 0 without devices. Any thread. */
void transport_resources(struct transport *t, struct transport_resources *ret);
int transport_numa_node(struct transport *t); /* -1: none, or unknown. In a fiber. */
/*
 * Registers user memory (outside of slot pools): data that a call receives is placed in it without
 * a copy, by a slot on the caller's stack without a pool. Makes one region per range, with peer
 * access as for POOL_REMOTE. Its pages are pinned until transport_unregister; it must not move. Any
 * thread; slow for large ranges. *ret_memory NULL: any memory will do. -LE_NOMEM with a log line:
 * cannot be registered; the caller has to copy received data there.
 */
int transport_register(struct transport *t, void *base, uint64_t len,
		       struct user_memory **ret_memory) CHECK_RESULT;
/* Deregisters the memory. No call may be using it. NULL is fine. */
void transport_unregister(struct transport *t, struct user_memory *m);
/* True if received data can be placed there directly: registered user memory, or a slot that peers
 * may access. Any thread. */
bool transport_lands(struct transport *t, const void *base, uint64_t len);

void transport_destroy(struct transport *t);

#endif
