/*
 * What the files of the verbs transport know of each other. Nobody else includes this.
 *
 *   verbs      the transport: devices, pools. Guarded by its lock, used when things are set up.
 *   device     an RDMA device with its protection domain; one for all loops.
 *   hub        what a loop has of the transport: event channel, completion channels, groups.
 *   group      up to 64 links of one loop over one device that share a completion queue, a shared
 *              receive queue (where there is one), and the registered memory of their messages.
 *   link       a connection: one queue pair.
 *
 * Below the lock everything belongs to the loop of its hub.
 */
#ifndef LEAT_RPC_VERBS_IMPL_H
#define LEAT_RPC_VERBS_IMPL_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>

#include "common/rpc/transport.h"
#include "common/rt/net.h"

#define VERBS_DEVICES_MAX SLOT_REGS
#define VERBS_GROUP_LINKS 64u
#define VERBS_BATCH 32u      /* work requests per doorbell, completions per poll */
#define VERBS_SGES 16u
#define VERBS_CREDITS_MIN 4u
#define VERBS_NO_BUF UINT32_MAX
#define VERBS_WAY_HINT \
	"the MTU has to be the same on both sides and on all switches between: `ibv_devinfo`, " \
	"`ip link`"
#define VERBS_SPARE 16u      /* receive buffers of a group that no link is promised */

/* In front of every SEND. */
enum verbs_kind {
	VERBS_FRAME = 1,  /* the beginning of a frame of `left` bytes */
	VERBS_MORE = 2,   /* more of it, `left` bytes are missing before this */
	VERBS_CREDIT = 3, /* nothing but credits */
	VERBS_BYE = 4,    /* nothing follows */
	/* As large as messages get, so that both know that the way carries them: who connects
	 * asks once, before anything else. */
	VERBS_TRY = 5,
	VERBS_TRIED = 6,
};
struct verbs_head {
	uint8_t kind, zero;
	uint16_t credits; /* receive buffers that the sender has made free */
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
	atomic_bool gone;                /* lost for good */
	atomic_uint down;                /* ports that are down, a bit each */
	uint32_t wrs, sges, inline_max, credits, reads, serve_reads, cqes, srq_wrs, msg_max;
	uint32_t n_qps, qps_max, n_mrs, mrs_max, n_cqs; /* under the lock */
	uint64_t mr_bytes;                       /* the same */
	struct verbs_hub *watcher;       /* whose loop reads the asynchronous events */
	struct loop_watch watch;
};

/* A pool and its regions; under the lock. */
struct verbs_pool {
	struct list link;
	struct slot_pool_hook hook;
	struct verbs *v;
	struct slot_pool *pool;
	enum pool_use use;
	struct verbs_reg *regs[VERBS_DEVICES_MAX]; /* an array each, one entry per slot */
};

/* Memory of somebody else's; under the lock. */
struct lent_memory {
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
	struct list pools, hubs, lent;
	uint64_t logged_us[8];
};

struct verbs_channel {
	struct verbs_hub *hub;
	struct ibv_comp_channel *ch;
	struct loop_watch watch;
	uint32_t n_armed; /* of its queues */
};

struct verbs_hub {
	struct list link; /* of verbs->hubs */
	struct verbs *v;
	struct loop *loop;
	struct rdma_event_channel *events;
	struct loop_watch watch;
	struct verbs_channel channels[VERBS_DEVICES_MAX];
	struct loop_poller poller;
	struct timer keepalive;
	struct list groups;
	struct list doomed, owing; /* links: to be broken; that owe their peers credits */
	atomic_uint n_users;       /* links and listeners: without any, the loop is left alone */
	uint64_t wakeups;
	struct mail mail;          /* a device was lost */
	atomic_bool mailed;
	/* Work requests of one link that will be posted together. */
	struct verbs_link *staged;
	uint32_t n_staged;
	struct ibv_send_wr wrs[VERBS_BATCH];
	struct ibv_sge sges[VERBS_BATCH][VERBS_SGES];
};

struct verbs_group {
	struct list link; /* of hub->groups */
	struct verbs_hub *hub;
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
	uint32_t *rx_next, *rx_len; /* of buffers in a link's queue */
	uint32_t *tx_free, n_tx_free;
	struct waitq tx_room;
	uint32_t repost[VERBS_BATCH], n_repost; /* into the shared queue */
};

/* Somebody who waits for the end of work requests; on the stack of the fiber. */
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

/* Somebody who waits to send; on the stack of the fiber. */
struct verbs_turn {
	struct list link;
	struct fiber *fiber;
	bool mine, parked;
};

#define VERBS_LINK_MAGIC 0x5652424cu
struct verbs_link {
	struct link base;
	uint32_t magic;
	struct verbs_hub *hub;
	struct verbs_device *dev;
	struct verbs_group *group;
	uint32_t place;           /* in the group */
	struct rdma_cm_id *id;
	struct ibv_qp *qp;
	struct net_addr peer;
	struct link_stats stats;
	struct list doomed, owing, ready; /* of the hub; of the listener */

	bool accepted;    /* the other side has connected */
	bool established; /* both ways */
	bool eof;         /* nothing more will come */
	bool dead;        /* shut down by this side */
	bool lingering;   /* dead, but what was sent last is still on its way */
	bool detached;    /* closed: to be freed with its queue pair */
	bool said_bye, heard_bye;
	/* A message of full size: asked for by the peer and not answered yet; has come. */
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
	struct waitq room;
	uint32_t credits, credits_max; /* the peer's receive buffers: free, in all */
	uint32_t piece;                /* bytes of a frame in one SEND */
	struct verbs_sent *sent;       /* sq_size of them */
	uint32_t sq_size, sq_head, sq_tail; /* running numbers: next, oldest not completed */
	uint32_t inline_max;
	bool looking;     /* a message is under way that shows whether the peer is there: */
	uint32_t look_no; /* its number */
	uint64_t look_us; /* when it was sent */

	/* Receiving. */
	uint32_t rx_first, rx_last, rx_current; /* buffers: queue, the one lent to the reader */
	uint32_t granted, to_return, credits_given;
	struct waitq rx;
	uint8_t *big;
	uint32_t big_size, big_have, big_total, big_idle;
};

struct verbs_listener {
	uint32_t magic;
	struct verbs_hub *hub;
	struct rdma_cm_id *id;
	uint32_t refs, n_pending;
	bool closed;
	struct list ready;
	uint32_t n_ready;
	struct waitq q;
};
#define VERBS_LISTENER_MAGIC 0x5652424du

/* ---- verbs_device.c ---- */
/* The device of a context, opened and with all pools registered when it is the first time. */
int verbs_device_get(struct verbs *v, struct ibv_context *ctx,
		     struct verbs_device **ret_dev) CHECK_RESULT;
/* All there are: for who listens on every address. */
int verbs_device_all(struct verbs *v) CHECK_RESULT;
void verbs_device_close(struct verbs_device *dev);
/* Loop of the hub: somebody has to read what happens to the device. */
int verbs_device_watch(struct verbs_device *dev, struct verbs_hub *hub) CHECK_RESULT;
/* For a new connection. What was seen to go down may have come back unseen: while a process has no
 * connection, nobody reads the device's events. */
bool verbs_device_port_down(struct verbs_device *dev, int port);
int verbs_pool_add(struct verbs *v, struct slot_pool *pool, enum pool_use use) CHECK_RESULT;
void verbs_pools_free(struct verbs *v);
/* ---- verbs_lent.c ---- */
int verbs_lend(struct verbs *v, void *base, uint64_t len, struct lent_memory **ret_lent)
	CHECK_RESULT;
void verbs_take_back(struct verbs *v, struct lent_memory *m);
/* With a device that comes into use; under the lock. */
void verbs_lent_register(struct verbs *v, struct verbs_device *dev);
bool verbs_lands(struct verbs *v, const void *base, uint64_t len);
/* The registration with dev of memory that the peer may use; NULL: there is none. It stays as long
 * as that memory is lent, or its pool is there. */
struct verbs_reg *verbs_reg_at(struct verbs_device *dev, const void *base, uint64_t len);
struct ibv_mr *verbs_register(struct verbs_device *dev, void *base, uint64_t len, int access,
			      int *ret_status);
/* Under the lock, which is let go meanwhile. */
struct ibv_mr *verbs_register_apart(struct verbs_device *dev, void *base, uint64_t len, int access,
				    int *ret_status);
/* Under the lock. */
void verbs_deregister(struct verbs_device *dev, struct ibv_mr *mr);
/* May this be logged? Once a minute for each kind. */
enum verbs_trouble { TROUBLE_MEMORY, TROUBLE_REGIONS, TROUBLE_QPS, TROUBLE_ADDR, TROUBLE_ROUTE,
		     TROUBLE_QUEUES, TROUBLE_PEER, TROUBLE_WAY };
bool verbs_may_log(struct verbs *v, enum verbs_trouble what);

/* ---- verbs_hub.c: hubs, groups, completions ---- */
/* Of the current loop. */
int verbs_hub_get(struct verbs *v, struct verbs_hub **ret_hub) CHECK_RESULT;
int verbs_hub_use(struct verbs_hub *hub) CHECK_RESULT;
void verbs_hub_unuse(struct verbs_hub *hub);
void verbs_hub_free(struct verbs_hub *hub);
/* A place in a group of the device. */
int verbs_group_join(struct verbs_link *k) CHECK_RESULT;
void verbs_group_leave(struct verbs_link *k);
/* Takes what has completed. Not from within itself. */
void verbs_group_poll(struct verbs_group *g);
/* The same until nothing is left. */
void verbs_group_drain(struct verbs_group *g);
/* A receive buffer that nobody has any more; only a shared queue takes it back here. */
void verbs_rx_drop(struct verbs_group *g, uint32_t buf);
void verbs_group_repost(struct verbs_group *g);
static inline uint8_t *verbs_buf(const struct verbs_group *g, uint32_t buf)
{
	return g->memory + (uint64_t)buf * g->buf_size;
}
uint32_t verbs_tx_get(struct verbs_group *g); /* VERBS_NO_BUF: none free */
void verbs_tx_put(struct verbs_group *g, uint32_t buf);
/* Rings the doorbell for what is staged. */
void verbs_flush(struct verbs_hub *hub);
/* Breaks what is to be broken, pays what is owed. */
void verbs_hub_settle(struct verbs_hub *hub);

/* ---- verbs_link.c, verbs_send.c: queue pairs, credits, frames ---- */
/* For an id whose address is resolved. */
int verbs_link_create(struct verbs_hub *hub, struct rdma_cm_id *id, struct verbs_link **ret_link)
	CHECK_RESULT;
int verbs_link_queue_pair(struct verbs_link *k) CHECK_RESULT;
/* To be broken as soon as nobody is in the middle of something. */
void verbs_link_doom(struct verbs_link *k, const char *reason, int status);
/* The peer is gone, or the link is of no use any more: ends its queue pair. */
void verbs_link_break(struct verbs_link *k, const char *reason, int status);
/* The queue pair is gone when it returns. Not from within verbs_group_poll. */
void verbs_link_end_qp(struct verbs_link *k);
void verbs_link_shutdown(struct verbs_link *k);
void verbs_link_free(struct verbs_link *k);
void verbs_link_sent(struct verbs_link *k, uint32_t upto, const struct ibv_wc *wc);
void verbs_link_received(struct verbs_link *k, uint32_t buf, uint32_t len);
/* Tells the peer that this is the end; false when that cannot be said now. */
bool verbs_link_bye(struct verbs_link *k);
void verbs_link_pay(struct verbs_link *k);
void verbs_link_ping(struct verbs_link *k);
void verbs_link_look(struct verbs_link *k);
/* Sends the message of full size that the peer answers; then `tried` is set, `cm` woken. False when
 * no buffer is free. */
bool verbs_link_try(struct verbs_link *k);
/* What a completion's status means for the connection. */
const char *verbs_wc_reason(enum ibv_wc_status status);
int verbs_send(struct link *base, const struct link_tx *tx, uint64_t deadline_us) CHECK_RESULT;
int verbs_recv(struct link *base, struct link_rx *ret_rx) CHECK_RESULT;
int verbs_recv_bulk(struct link *base, const struct link_rx *rx, const struct slot_vec *vec,
		    uint32_t n) CHECK_RESULT;
/* ---- transport_verbs.c ---- */
void verbs_events_ready(struct loop_watch *w); /* of the connection manager */
extern const struct transport_ops verbs_ops;
struct verbs_link *verbs_link_of(struct link *base);

#endif
