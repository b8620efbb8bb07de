/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection, as both sides have it: the link, the calls of this side that are in flight, and
 * buffers for bodies. Owned by the loop of the link; one fiber reads (the owner's), any number
 * call. Inside of common/rpc only.
 *
 * A call occupies a slot of the window until its reply arrives, even if its caller has given up. So
 * this side never has more requests in flight than the peer granted. The id of a call is a running
 * number and its slot; a call is found by one array access.
 */
#ifndef LEAT_COMMON_RPC_CONN_H
#define LEAT_COMMON_RPC_CONN_H

#include "common/rpc/rpc.h"

#define CONN_WINDOW_MAX 4096u
#define BODY_SIZE 8192u
#define HANDSHAKE_MS 5000u /* for the whole handshake, on each side */
#define GOODBYE_MS 100u    /* for sending GOODBYE */

/* Reused buffers for encoded bodies. Each holds a reference, so the pool outlives its owner. */
struct body_pool {
	uint32_t refs, n_free;
	struct list free;
};
struct body {
	struct list link;
	struct body_pool *pool;
	uint32_t cap;
	uint8_t data[];
};
/* Creates a pool with one reference, for the caller. -LE_NOMEM */
int body_pool_create(struct body_pool **ret_pool) CHECK_RESULT;
void body_pool_unref(struct body_pool *p);
struct body *body_get(struct body_pool *p, uint32_t size); /* NULL: no memory */
void body_put(struct body *b);                             /* NULL is fine */
/* Encodes a message into a buffer of the pool. -LE_TOO_BIG: it exceeds FRAME_BODY_MAX. */
int body_encode(struct body_pool *p, void (*put)(struct wire_w *w, const void *m), const void *m,
		struct body **ret_body, uint32_t *ret_len) CHECK_RESULT;

struct pending;
struct window_slot {
	uint64_t id;              /* 0: free */
	struct pending *pending;  /* NULL: the caller has given up */
	uint64_t given_up_us;
};

#define CONN_MAGIC 0x434f4e4eu
struct conn {
	uint32_t magic;
	uint32_t refs;
	struct link *k;
	struct loop *loop;
	bool dead;
	int why;
	uint64_t last_rx_us, probed_us;
	struct timer watchdog; /* kills the connection when it fires */
	struct body_pool *bodies;
	void (*destroy)(struct conn *c); /* frees the enclosing struct */

	struct window_slot *window;
	uint16_t *free_slots;
	uint32_t n_window, n_free;
	uint64_t next_number;
	struct turnq space; /* callers waiting for a free slot */

	uint64_t n_calls, n_replies, n_timeouts, bytes_out, bytes_in;
	uint32_t in_flight;
	uint32_t n_exposed; /* calls that let the peer access their memory */
	/* Byte counts at the last update of the rates, and the rates since the update before it. */
	struct conn_rate {
		uint64_t at_us, bulk_in, bulk_out, in_rate, out_rate;
	} rate;
};

/* Initializes a zeroed c. Takes over the link: the last unref closes it. */
void conn_init(struct conn *c, struct link *k, struct body_pool *bodies,
	       void (*destroy)(struct conn *c));
/* Sets how many calls this side may have in flight. Once, before the first call. */
int conn_set_window(struct conn *c, uint32_t n) CHECK_RESULT;
void conn_ref(struct conn *c);
void conn_unref(struct conn *c);
/* Ends the connection: calls in flight return -LE_DISCONNECTED. The first `why` is kept. Does not
 * yield. */
void conn_kill(struct conn *c, int why);
/* Ends the connection unless conn_watch_end is called within ms. */
void conn_watch(struct conn *c, uint64_t ms);
void conn_watch_end(struct conn *c);

/* Like rpc_call, over this connection. *ret_sent: the peer may have received the request. */
int conn_call(struct conn *c, struct rpc_call *call, enum frame_type type, uint64_t deadline_us,
	      bool *ret_sent) CHECK_RESULT;
/* Called by the reader on a reply: delivers it, with the bulk data, to its caller. An error must
 * end the connection. */
int conn_reply_arrived(struct conn *c, const struct link_rx *rx) CHECK_RESULT;
/* Called by the reader on ACCEPTED: runs the call's `accepted` function. Does not yield. */
void conn_accepted(struct conn *c, uint64_t id);
/* Called by the reader on RELEASED: the peer no longer accesses the memory of this call. Does not
 * yield. */
void conn_released(struct conn *c, uint64_t id);
/* Sends a frame without body or data. */
int conn_send_plain(struct conn *c, enum frame_type type, uint64_t id,
		    uint64_t deadline_us) CHECK_RESULT;
/* The earlier of the call's own deadline (0: none) and the fiber's. */
uint64_t conn_deadline(const struct rpc_call *call);

/* Fills in a connection's counters for status reports; leaves the other fields of ret_net alone. */
void conn_net(struct conn *c, struct rpc_net *ret_net);
/* Adds the connection to the totals, as a live or an ended one. */
void conn_total(struct conn *c, bool ended, struct rpc_net_totals *totals);
/* Adds the sums of connections; leaves `held` alone. */
void net_totals_add(struct rpc_net_totals *to, const struct rpc_net_totals *from);

#endif
