/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structures shared by the files of the verbs transport, which alone include this.
 *
 *    verbs      the transport: devices, pools. Protected by its lock, used at set-up only.
 *    device     an RDMA device with its protection domain; one for all loops.
 *    verbs loop        the state of one loop: event channel, completion channels, groups.
 *    group      up to 64 links of one loop over one device that share a completion queue, a shared
 *               receive queue (where there is one), and the registered memory of their messages.
 *    link       a connection: one queue pair.
 *
 * Verbs loops, groups and links belong to the loop of their verbs loop.
 */
#ifndef LEAT_COMMON_RPC_VERBS_VERBS_IMPL_H
#define LEAT_COMMON_RPC_VERBS_VERBS_IMPL_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>

#include "common/rpc/transport/transport.h"
#include "common/rpc/verbs/transport_verbs.h"
#include "common/rt/net.h"

#define VERBS_DEVICES_MAX SLOT_REGS
#define VERBS_GROUP_LINKS 64u
#define VERBS_BATCH 32u      /* work requests per doorbell, completions per poll */
#define VERBS_SGES 16u
#define VERBS_CREDITS_MIN 4u
#define VERBS_NO_BUF UINT32_MAX
#define VERBS_SEND_ID (1ull << 63) /* in the wr_id of a send; without it: a receive buffer */
#define VERBS_WAY_HINT \
	"the MTU has to be the same on both sides and on all switches between: `ibv_devinfo`, " \
	"`ip link`"
#define VERBS_SPARE 16u      /* receive buffers of a group that are promised to no link */

/* Header of every SEND. */
enum verbs_kind {
	VERBS_FRAME = 1,  /* the start of a frame of `left` bytes */
	VERBS_MORE = 2,   /* continues a frame, `left` bytes are missing before this */
	VERBS_CREDIT = 3, /* returns credits only */
	VERBS_BYE = 4,    /* the last message */
	/* Messages of the maximum size, which prove to both sides that the path carries them (MTU).
	 * The connecting side sends one TRY before anything else. */
	VERBS_TRY = 5,
	VERBS_TRIED = 6,
};
struct verbs_head {
	uint8_t kind, zero;
	uint16_t credits; /* receive buffers that the sender has freed */
	uint32_t left;
};
_Static_assert(sizeof(struct verbs_head) == 8, "as it travels");

struct verbs_reg {
	struct ibv_mr *mr;
	bool remote;
};

struct verbs_device {
	struct verbs *v;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	uint32_t index;
	char name[32];
	bool iwarp, srq;
	atomic_bool gone;                /* lost permanently */
	atomic_uint down;                /* bit mask of ports that are down */
	uint32_t wrs, sges, inline_max, credits, reads, serve_reads, cqes, srq_wrs, msg_max;
	uint32_t n_qps, qps_max, n_mrs, mrs_max, n_cqs; /* under the lock */
	uint64_t mr_bytes;                       /* under the lock */
	struct verbs_loop *watcher;       /* reads the asynchronous events in its loop */
	struct loop_watch watch;
};

/* A pool and its regions; under the lock. */
struct verbs_pool {
	struct list link;
	struct slot_pool_hook hook;
	struct verbs *v;
	struct slot_pool *pool;
	enum pool_use use;
	struct verbs_reg *regs[VERBS_DEVICES_MAX]; /* one array per device, one entry per slot */
};

/* Memory outside of slot pools that the transport's user registered; under the lock. */
struct user_memory {
	struct list link;
	uint8_t *base;
	uint64_t len;
	struct verbs_reg regs[VERBS_DEVICES_MAX];
};

#define VERBS_MAGIC 0x56455242u
struct verbs {
	struct transport base;
	uint32_t magic;
	struct transport_verbs_options opts;
	char *names;
	pthread_mutex_t lock;
	struct verbs_device *devices[VERBS_DEVICES_MAX];
	uint32_t n_devices;
	struct list pools, loops, user_memory;
	void (*events_ready)(struct loop_watch *w); /* handles events of the connection manager */
	_Atomic uint64_t logged_us[8]; /* enum verbs_trouble: when it was logged last; any thread */
};

struct verbs_channel {
	struct verbs_loop *vl;
	struct ibv_comp_channel *ch;
	struct loop_watch watch;
	uint32_t n_armed; /* number of its armed completion queues */
};

struct verbs_loop {
	struct list link; /* of verbs->verbs loops */
	struct verbs *v;
	struct loop *loop;
	struct rdma_event_channel *events;
	struct loop_watch watch;
	struct verbs_channel channels[VERBS_DEVICES_MAX];
	struct loop_poller poller;
	struct timer keepalive;
	struct list groups;
	struct list doomed, owing; /* links to be broken; links that owe their peers credits */
	atomic_uint n_users;       /* links and listeners; 0: it uses no time of its loop */
	uint64_t wakeups;
	struct mail mail;          /* sent when a device was lost */
	atomic_bool mailed;
	/* Work requests of one link that will be posted by one doorbell. */
	struct verbs_link *staged;
	uint32_t n_staged;
	struct ibv_send_wr wrs[VERBS_BATCH];
	struct ibv_sge sges[VERBS_BATCH][VERBS_SGES];
};

struct verbs_group {
	struct list link; /* of verbs loop->groups */
	struct verbs_loop *vl;
	struct verbs_device *dev;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	bool armed;
	uint32_t unacked;
	uint32_t n_links, links_max, qp_hint;
	struct verbs_link *links[VERBS_GROUP_LINKS];
	uint32_t worn; /* receive buffers that may have been lost with a queue pair */
	/* Messages: n_rx buffers to receive, then n_tx to send, of buf_size bytes each. */
	uint8_t *memory;
	uint64_t memory_len;
	struct ibv_mr *mr;
	uint32_t buf_size, n_rx, n_tx;
	uint32_t *rx_next, *rx_len; /* per buffer of a link's queue: the next one, its bytes */
	uint32_t *tx_free, n_tx_free;
	struct waitq tx_space;
	uint32_t repost[VERBS_BATCH], n_repost; /* to be posted to the shared queue */
};

/* A fiber that waits for work requests to complete; on its stack. */
struct verbs_wait {
	struct fiber *fiber;
	bool done, parked;
	int status;
};

struct verbs_sent {
	uint32_t buf;
	bool read, done;
	struct verbs_wait *wait;
};

/* A fiber that waits to send; on its stack. */
struct verbs_turn {
	struct list link;
	struct fiber *fiber;
	bool mine, parked;
};

#define VERBS_LINK_MAGIC 0x5652424cu
/* The bools are no phases: the connection manager, the peer, this side and the fibers that send
 * each set their own, in any order. */
struct verbs_link {
	struct link base;
	uint32_t magic;
	struct verbs_loop *vl;
	struct verbs_device *dev;
	struct verbs_group *group;
	uint32_t place;           /* index in the group */
	struct rdma_cm_id *id;
	struct ibv_qp *qp;
	struct net_addr peer;
	struct link_stats stats;
	struct list doomed, owing, ready; /* in lists of the verbs loop (two); of the listener */

	bool accepted;    /* the peer has connected */
	bool established; /* in both directions */
	bool eof;         /* no further frames will arrive */
	bool dead;        /* shut down by this side */
	bool lingering;   /* dead, but the last message is still in flight */
	bool detached;    /* closed: freed with its queue pair */
	bool sent_bye, received_bye;
	/* The peer's TRY is not answered yet; its TRY or TRIED has arrived. */
	bool owes_try, tried;
	const char *reason; /* why it is to be broken */
	int reason_status;
	struct timer linger;
	uint64_t active_us;

	/* The connection manager's part. */
	struct verbs_listener *listener;
	bool cm_done;
	int cm_status;
	struct waitq cm;

	/* Sending. */
	bool tx_busy;
	struct list turns;
	struct waitq space;
	uint32_t credits, credits_max; /* the peer's receive buffers: free, in total */
	uint32_t piece;                /* bytes of a frame in one SEND */
	struct verbs_sent *sent;       /* array of sq_size */
	uint32_t sq_size, sq_head, sq_tail; /* running numbers: next, oldest not completed */
	uint32_t inline_max;
	/* A request is in flight that the device completes only if the peer is alive: its number,
	 * and when it was sent. */
	bool probing;
	uint32_t probe_no;
	uint64_t probe_us;

	/* Receiving. Buffers: first and last of the queue, and the one that the reader uses. */
	uint32_t rx_first, rx_last, rx_current;
	uint32_t granted, to_return, credits_given;
	struct waitq rx;
	uint8_t *big;
	uint32_t big_size, big_have, big_total, big_idle;
};

struct verbs_listener {
	uint32_t magic;
	struct verbs_loop *vl;
	struct rdma_cm_id *id;
	uint32_t refs, n_pending;
	bool closed;
	struct list ready;
	uint32_t n_ready;
	struct waitq q;
};
#define VERBS_LISTENER_MAGIC 0x5652424du

#endif
