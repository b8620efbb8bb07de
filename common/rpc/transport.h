/*
 * What carries frames between two processes: tcp, sim, later verbs. One small table of operations;
 * everything that differs between them is behind it. A link belongs to the loop that made it.
 *
 * Bulk data on tcp and sim follows the frame into the receiver's slots. With remote memory access
 * (verbs) requests carry descriptors instead: send() adds those of tx->bulk_out / tx->bulk_in
 * (request) or does the RDMA WRITE before the SEND (reply); recv_bulk() does the RDMA READ
 * (server) or has nothing to do (client). rpc code is the same for all.
 */
#ifndef LEAT_RPC_TRANSPORT_H
#define LEAT_RPC_TRANSPORT_H

#include <sys/uio.h>

#include "common/proto/frame.h"
#include "common/rt/loop.h"
#include "common/rt/slot.h"

struct link;
struct listener;
struct transport;

struct link_tx {
	struct frame_hdr hdr; /* body_len, bulk_len, n_desc and hash are filled in by send */
	const void *body;
	uint32_t body_len;
	const struct slot_vec *bulk; /* data that goes with the frame (write request, read reply) */
	uint32_t n_bulk;
	const struct slot_vec *bulk_in; /* request only: where the reply's data shall land */
	uint32_t n_bulk_in;
	/* reply only: the descriptors that came with the request (verbs) */
	const struct frame_desc *peer_descs;
	uint32_t n_peer_descs;
};

struct link_rx {
	struct frame_hdr hdr;
	const uint8_t *body; /* borrowed: valid until the next recv on this link */
	struct frame_desc descs[FRAME_DESCS_MAX];
};

struct transport_ops {
	const char *name; /* "tcp" */
	/* addr "host:port"; port 0 picks one; ret_addr (NET_ADDR_TEXT_SIZE) has the real one. */
	int (*listen)(struct transport *t, struct loop *l, const char *addr,
		      struct listener **ret_listener, char *ret_addr);
	/* Yields; -LE_SHUTDOWN after listener_close. */
	int (*accept)(struct listener *ls, struct link **ret_link);
	void (*listener_close)(struct listener *ls);
	int (*connect)(struct transport *t, const char *addr, uint64_t deadline_us,
		       struct link **ret_link);
	/* One frame, whole. Several fibers may call at once: frames go out in the order of the
	 * calls, those that wait together are sent together. Yields (the peer is slow): bytes are
	 * not touched after it returns. -LE_TIMEDOUT, -LE_INTR: nothing of it was sent.
	 * -LE_DISCONNECTED: it may or may not have arrived. */
	int (*send)(struct link *k, const struct link_tx *tx, uint64_t deadline_us);
	/* The next frame, checked by frame_decode and frame_check. One reader at a time. Yields. */
	int (*recv)(struct link *k, struct link_rx *ret_rx);
	/* After recv of a frame with bulk_len > 0, exactly once: the data into vec (of bulk_len
	 * bytes in all), or, vec NULL, thrown away. */
	int (*recv_bulk)(struct link *k, const struct link_rx *rx, const struct slot_vec *vec,
			 uint32_t n);
	/* Both directions, at once: whoever waits in send or recv gets -LE_DISCONNECTED.
	 * Idempotent. Does not yield; fibers, timers and mail handlers may call it. */
	void (*shutdown)(struct link *k);
	/* Nobody may be in a call on the link any more. */
	void (*close)(struct link *k);
	void (*peer_name)(struct link *k, char *buf, size_t size); /* "tcp 10.0.0.1:7440" */
	/* Registers the memory of a pool (verbs), so that its slots may travel; nothing on tcp. */
	int (*add_pool)(struct transport *t, struct slot_pool *pool);
	void (*destroy)(struct transport *t);
};

struct transport {
	const struct transport_ops *ops;
};
/* Every link starts with this. */
struct link {
	const struct transport_ops *ops;
};

int transport_tcp_create(struct transport **ret_transport) CHECK_RESULT;

struct sim;
/* The simulated network: frames between sim_procs, per frame and seed delayed, lost, doubled,
 * reordered, links broken; addresses are "NAME:port" of the listening process. */
struct transport_sim_options {
	uint64_t delay_us_max;  /* 0: 300 */
	uint32_t lose_ppm, double_ppm, reorder_ppm, break_ppm;
	/* the copy of a doubled frame comes so much later; 0: as any other */
	uint64_t double_late_us_max;
	uint32_t corrupt_ppm; /* a bit of the frame or of the bulk flips */
};
int transport_sim_create(struct sim *s, const struct transport_sim_options *opts,
			 struct transport **ret_transport) CHECK_RESULT;
void transport_sim_set_options(struct transport *t, const struct transport_sim_options *opts);
/* No frames between two processes (by name) until healed. */
void transport_sim_partition(struct transport *t, const char *a, const char *b, bool cut);
void transport_destroy(struct transport *t);

#endif
