/*
 * One connection, as both sides have it: the link, the calls that this side made and waits for,
 * and buffers for bodies. Owned by the loop of the link; one fiber reads (the owner's), any
 * number call. Inside of common/rpc only.
 *
 * A call occupies a slot of the window until its reply has come, also when its caller has given up:
 * so no more requests are under way than the peer granted. The id of a call is a running
 * number and its slot, which makes finding it an array access.
 */
#ifndef LEAT_RPC_CONN_H
#define LEAT_RPC_CONN_H

#include "common/rpc/rpc.h"

#define CONN_WINDOW_MAX 4096u
#define BODY_SIZE 8192u

/* Buffers for encoded bodies, reused; each holds a reference, so the pool outlives its owner. */
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
int body_pool_create(struct body_pool **ret_pool) CHECK_RESULT;
void body_pool_unref(struct body_pool *p);
struct body *body_get(struct body_pool *p, uint32_t size); /* NULL: no memory */
void body_put(struct body *b);                             /* NULL is fine */
/* -LE_TOO_BIG when the message is larger than FRAME_BODY_MAX. */
int body_encode(struct body_pool *p, void (*put)(struct wire_w *w, const void *m), const void *m,
		struct body **ret_body, uint32_t *ret_len) CHECK_RESULT;

struct pending;
struct window_slot {
	uint64_t id;              /* 0: free */
	struct pending *pending;  /* NULL: its caller has given up */
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
	void (*destroy)(struct conn *c); /* frees what it is embedded in */

	struct window_slot *window;
	uint16_t *free_slots;
	uint32_t n_window, n_free;
	uint64_t next_number;
	struct turnq room; /* who waits for a free slot */

	uint64_t n_calls, n_replies, n_timeouts, bytes_out, bytes_in;
	uint32_t in_flight;
	uint32_t n_lent; /* calls whose memory the peer may touch */
	/* When conn_net last looked, and what it saw: rates are of the time since. */
	struct conn_rate {
		uint64_t at_us, bulk_in, bulk_out, in_rate, out_rate;
	} rate;
};

/* Takes the link over: closes it with the last reference. c is zeroed. */
void conn_init(struct conn *c, struct link *k, struct body_pool *bodies,
	       void (*destroy)(struct conn *c));
/* How many calls this side may have under way; before the first call, once. */
int conn_set_window(struct conn *c, uint32_t n) CHECK_RESULT;
void conn_ref(struct conn *c);
void conn_unref(struct conn *c);
/* Ends the connection: calls in flight get -LE_DISCONNECTED. Does not yield. The first reason
 * stays. */
void conn_kill(struct conn *c, int why);
/* Kill it if conn_watch_end does not come within ms. */
void conn_watch(struct conn *c, uint64_t ms);
void conn_watch_end(struct conn *c);

/* As rpc_call, over this connection. ret_sent: the peer may have seen it. */
int conn_call(struct conn *c, struct rpc_call *call, enum frame_type type, uint64_t deadline_us,
	      bool *ret_sent) CHECK_RESULT;
/* The reader has received a reply: hands it to its caller, with the bulk data. An error ends the
 * connection. */
int conn_reply_arrived(struct conn *c, const struct link_rx *rx) CHECK_RESULT;
/* The reader has received the word that a call is accepted. Does not yield. */
void conn_accepted(struct conn *c, uint64_t id);
/* The peer does not touch the memory of a call any more. Does not yield. */
void conn_released(struct conn *c, uint64_t id);
/* A frame without anything behind it. */
int conn_send_plain(struct conn *c, enum frame_type type, uint64_t id,
		    uint64_t deadline_us) CHECK_RESULT;
/* The earlier of the call's own deadline (0: none) and the fiber's. */
uint64_t conn_deadline(const struct rpc_call *call);

/* What a connection counts, for people; the rest of ret_net is left alone. */
void conn_net(struct conn *c, struct rpc_net *ret_net);
/* Adds it to the totals, as one that is there or as one that has ended. */
void conn_total(struct conn *c, bool ended, struct rpc_net_totals *totals);
void net_totals_add(struct rpc_net_totals *to, const struct rpc_net_totals *from);

#endif
