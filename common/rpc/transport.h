/*
 * What carries frames between two processes: tcp, verbs, sim. One small table of operations;
 * everything that differs between them is behind it. A link belongs to the loop that made it.
 *
 * Bulk data on tcp and sim follows the frame into the receiver's slots. With remote memory access
 * (verbs) requests carry descriptors instead: send() adds those of tx->bulk and tx->bulk_in
 * (request) or does the RDMA WRITE before the SEND (reply); recv_bulk() does the RDMA READ
 * (server) or has nothing to do (client). rpc code is the same for all, but for two things that
 * ops says: whether the data may be fetched apart from the frames, and how to take memory back
 * from the peer (sever).
 */
#ifndef LEAT_RPC_TRANSPORT_H
#define LEAT_RPC_TRANSPORT_H

#include <stdbool.h>
#include <sys/uio.h>

#include "common/proto/frame.h"
#include "common/rt/loop.h"
#include "common/rt/slot.h"

struct lent_memory;
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
	/* reply only: where the request's sender wants the data, from the descriptors that came
	 * with it (verbs). More data than that is refused: the peer gets -LE_BAD_MESSAGE. */
	const struct frame_desc *peer_descs;
	uint32_t n_peer_descs;
	/* Where a frame goes out in parts (tcp): once the first has, all of it has so long, if that
	 * is later than the deadline; 0: it is not. */
	uint64_t rest_us;
};

struct link_rx {
	struct frame_hdr hdr;
	const uint8_t *body; /* borrowed: valid until the next recv on this link */
	struct frame_desc descs[FRAME_DESCS_MAX];
};

/* What the slots of a pool are used for, which decides who may touch them; each includes those
 * before it. A pool may be added again with a further use. */
enum pool_use {
	POOL_SOURCE, /* data goes out of them: nobody else does anything with them */
	POOL_SINK,   /* requests' data is received into them (a server's bulk_pool) */
	POOL_REMOTE, /* calls carry them: the server reads and writes them meanwhile */
};

/* Counted since the link was made; what does not apply stays 0. */
struct link_stats {
	uint64_t frames_out, frames_in;
	uint64_t bulk_out, bulk_in;   /* bytes of bulk data */
	uint64_t bytes_copied;        /* of bulk data, by this library */
	uint64_t sends, recvs, writes, reads; /* work requests */
	uint64_t posts, completions;  /* doorbells rung, completions seen */
	uint64_t wakeups;             /* of the loop, by all its links */
	uint64_t credit_stalls, queue_stalls; /* a frame waited for credits, for room */
	uint64_t credit_frames;       /* sent for nothing but returning credits */
	char device[32];              /* "rxe0"; "" without one */
	uint16_t port;
};

/* What devices hold for a transport, now. */
struct transport_resources {
	uint64_t queue_pairs, completion_queues, regions, registered_bytes;
};

enum addr_use { ADDR_LISTEN, ADDR_CONNECT, ADDR_TELL };

struct transport_ops {
	const char *name; /* "tcp" */
	/* recv_bulk of a request may be called by any fiber and after further calls of recv. */
	bool bulk_apart;
	/* addr "host:port"; port 0 picks one; ret_addr (ADDR_TEXT_SIZE) has the real one. */
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
	/* NULL where the peer never touches our memory by itself. Shuts down, and when it returns
	 * nothing that the peer or the device still has under way can touch a slot of ours. */
	void (*sever)(struct link *k);
	/* NULL where silence is noticed anyway. Somebody has waited for a second, and nothing came:
	 * is the peer still there? If not, the link breaks by itself. Does not yield. */
	void (*probe)(struct link *k);
	/* Nobody may be in a call on the link any more. */
	void (*close)(struct link *k);
	void (*peer_name)(struct link *k, char *buf, size_t size); /* "tcp 10.0.0.1:7440" */
	void (*stats)(struct link *k, struct link_stats *ret_stats);
	/* Registers the memory of a pool (verbs), so that its slots may travel; nothing on tcp.
	 * On the pool's loop, at any time; the end of the pool ends it. */
	int (*add_pool)(struct transport *t, struct slot_pool *pool, enum pool_use use);
	/* NULL: what is received lands in any memory. See transport_lend. */
	int (*lend)(struct transport *t, void *base, uint64_t len, struct lent_memory **ret_lent);
	void (*take_back)(struct transport *t, struct lent_memory *m);
	bool (*lands)(struct transport *t, const void *base, uint64_t len);
	void (*destroy)(struct transport *t);
	/* NULL: addresses are taken as they are. What an address of the configuration stands for
	 * ("scheme:host:port ...", blank-separated, of at most size bytes; "": it is of no use
	 * here), or, ADDR_TELL, what others are told of an address that listen returned. */
	int (*expand)(struct transport *t, const char *addr, enum addr_use use, char *buf,
		      size_t size);
	/* NULL: one address is as good as another. Lower is better; negative: it cannot be used. */
	int (*rank)(struct transport *t, const char *addr);
	/* NULL: nothing to say. A JSON object: which transports there are, and why not verbs. */
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

/* All 0 without devices. Any thread. */
void transport_resources(struct transport *t, struct transport_resources *ret);
int transport_numa_node(struct transport *t); /* -1: none, or unknown. In a fiber. */
/*
 * Memory that is not a pool's: what a call receives lands in it without a copy, by a slot on the
 * caller's stack without a pool. One region per piece, for the peer's use like a slot of
 * POOL_REMOTE; its pages are pinned until it is taken back, and it has to stay where it is. Any
 * thread; takes a while for much of it. *ret_lent NULL: any memory will do. -LE_NOMEM with a log
 * line: cannot be registered, so what is meant for it has to be copied there.
 */
int transport_lend(struct transport *t, void *base, uint64_t len,
		   struct lent_memory **ret_lent) CHECK_RESULT;
/* No call may be using it. NULL is fine. */
void transport_take_back(struct transport *t, struct lent_memory *m);
/* Does what is received land there, in lent memory or in a slot for the peer's use? Any thread. */
bool transport_lands(struct transport *t, const void *base, uint64_t len);
int transport_tcp_create(struct transport **ret_transport) CHECK_RESULT;

#ifdef HAVE_VERBS
enum verbs_srq { VERBS_SRQ_AUTO, VERBS_SRQ_ON, VERBS_SRQ_OFF };

/* RDMA by libibverbs and librdmacm. Zero is the default everywhere; all are upper limits that a
 * card may lower further. Addresses are "host:port", the device is the one that reaches them. */
struct transport_verbs_options {
	const char *devices;    /* the only ones to use: "mlx5_0 mlx5_1"; NULL: any */
	uint32_t credits;       /* receive buffers per connection, 32 */
	uint32_t recv_size;     /* of a receive buffer, 8 KiB; larger frames go in several sends */
	uint32_t qps_max;       /* queue pairs per device, as many as it has */
	uint32_t wrs_max;       /* work requests in a queue, 128; at least 8 */
	uint32_t sges_max;      /* pieces of a WRITE, 16 */
	uint32_t inline_max;    /* bytes sent without a buffer, 256; UINT32_MAX: none */
	uint32_t mrs_max;       /* memory regions per device, as many as it has */
	uint32_t reads_max;     /* RDMA READs outstanding per connection, 16 */
	uint32_t ack_timeout;   /* 4.096 us << this, eight times: a silent peer is gone, 16 */
	uint32_t keepalive_ms;  /* an idle link is tried so often, 10000 */
	enum verbs_srq srq;     /* AUTO: not for iWARP: there an empty one breaks all links */
};
/* opts may be NULL. -LE_NODEV with a log line when there is no RDMA on this machine. */
int transport_verbs_create(const struct transport_verbs_options *opts,
			   struct transport **ret_transport) CHECK_RESULT;
#endif
/* Whether there is RDMA on this machine, and what there is ("rxe0 siw0") or why there is none. Also
 * in a program built without it. Blocking: at start. */
bool transport_verbs_available(char *ret_text, size_t size);

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
