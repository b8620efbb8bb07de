/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests and replies over a transport link: handshake with version and mutual authentication,
 * many requests in flight, credits, deadlines, cancellation, reconnect with back-off, callbacks
 * from server to client. Each side is owned by one loop.
 *
 *    Client:  rpc_client_create (reconnects for ever in the background) → rpc_call, from any number
 *             of fibers concurrently → rpc_client_destroy.
 *    Server:  rpc_server_create with a table of handlers; each request runs in a separate fiber.
 */
#ifndef LEAT_COMMON_RPC_RPC_H
#define LEAT_COMMON_RPC_RPC_H

#include "common/proto/messages.h"
#include "common/rpc/transport/transport.h"

#define RPC_KEY_SIZE 32
#define RPC_BULK_VECS_MAX 64u

struct rpc_key {
	uint8_t b[RPC_KEY_SIZE];
};
/* A refused key file. */
struct rpc_key_problem {
	char text[1200];  /* why it is refused */
	const char *hint; /* what to do about it */
};

enum rpc_role { ROLE_CLIENT = 1, ROLE_MDS = 2, ROLE_OSSD = 3, ROLE_AGENT = 4, ROLE_TOOL = 5 };

/* ---- client ---- */
struct rpc_client;

struct rpc_client_options {
	struct transport *transport;
	/* "host:port verbs:host:port ..." of one server (addr.h). They are tried in turn, together
	 * with the addresses that the server sends in the handshake. Those that the transport ranks
	 * best are first. */
	const char *addrs;
	const char *name;            /* of this node, for the server's log */
	enum rpc_role role;
	struct uuid cluster;         /* zero: the server's counts, and is required from then on */
	struct rpc_key key;
	uint32_t loop;               /* the server loop to reach */
	uint32_t in_flight_max;      /* 0: 256; further calls wait */
	uint32_t connect_timeout_ms; /* 0: 2000 */
	uint32_t backoff_max_ms;     /* 0: 500; first retry after about 1 ms */
	/* The number of connections to the server, each over another rail; requests are spread
	 * over them. 0: 1. Above 1, the server must not bind a session to a connection, and
	 * `connected` must not make calls. It is then called for each connection, and again after
	 * `disconnected` when one was lost and others are up. */
	uint32_t rails_max;
	/* True: if no configured host name resolves, calls before the first connection fail
	 * immediately with -LE_NO_HOST. False: they wait, as DNS may become available later. */
	bool hosts_known;
	void *arg;
	/* Called in a separate fiber, before other calls are sent over the connection. Opens a
	 * session with RPC_CALL_SETUP, for example. A negative result breaks the connection. May be
	 * NULL. */
	int (*connected)(void *arg, struct rpc_client *c);
	/* Called in a separate fiber, after `connected` of the same connection. May be NULL. */
	void (*disconnected)(void *arg, struct rpc_client *c, int why);
	/* Handles a callback from the server. Returns the status of the reply. */
	int (*callback)(void *arg, struct rpc_client *c, uint16_t op, const void *req, void *rep);
};

/* Creates a client on the current loop. It starts to connect; the call does not wait for that. */
int rpc_client_create(const struct rpc_client_options *opts,
		      struct rpc_client **ret_client) CHECK_RESULT;
/* Closes the connections and frees the client. Calls in flight return -LE_SHUTDOWN. Yields. */
void rpc_client_destroy(struct rpc_client *c);

enum rpc_call_flags {
	RPC_CALL_SETUP = 1,   /* From the connected hook: is sent before all other calls. */
	RPC_CALL_NO_WAIT = 2, /* Returns -LE_DISCONNECTED immediately if there is no connection. */
};

/* One attempt of a call. Zero the fields that you do not use. */
struct rpc_call {
	uint16_t op;
	uint16_t flags;
	const void *req; /* struct NAME_req */
	void *rep;       /* struct NAME_rep, filled on success; its bytes point into `body` */
	uint64_t deadline_us;
	uint64_t session, seq;
	uint32_t slot, epoch, target, chain;
	bool again;     /* FRAME_AGAIN */
	bool seen;      /* FRAME_SEEN */
	bool cancelled; /* FRAME_CANCEL_IF_NOT_STARTED */
	const struct slot_vec *bulk_out;
	uint32_t n_bulk_out;
	/* Buffers for the reply's data. If the data is larger, the call returns -LE_BAD_MESSAGE. */
	const struct slot_vec *bulk_in;
	uint32_t n_bulk_in;
	uint32_t ret_bulk_len; /* bytes of data received */
	/* Called when the server has accepted the request (rpc_accept), while rpc_call still waits:
	 * in the fiber that reads the connection, so it must not yield. May be NULL. */
	void (*accepted)(void *arg);
	void *accepted_arg;
	bool ret_accepted; /* The server accepted the last attempt, whatever the call returned. */
	bool ret_sent;     /* The last attempt may have reached the server. */
	void *body;        /* of the reply, until rpc_call_fini */
	uint64_t sent_us;  /* for the caller's use: when the last attempt began */
};
/*
 * Sends a request and waits for the reply. Returns the reply's status; -LE_TIMEDOUT, with a CANCEL
 * sent to the server; -LE_DISCONNECTED if the request was sent and its outcome is unknown;
 * -LE_INTR, -LE_CONNREFUSED, -LE_AUTH, -LE_VERSION, -LE_WRONG_CLUSTER, -LE_NO_HOST, -LE_NO_NAMES or
 * -LE_SHUTDOWN. If the deadline passes without a connection, the error of the last attempt to
 * connect replaces -LE_TIMEDOUT. No buffer is accessed after the return. Always call rpc_call_fini.
 * Yields.
 */
int rpc_call(struct rpc_client *c, struct rpc_call *call) CHECK_RESULT;
/* Releases `body`, and with it the bytes of the reply. Does nothing if there is none. */
void rpc_call_fini(struct rpc_call *call);

/* Returns true if there is a connection on which calls can be sent. */
bool rpc_client_connected(const struct rpc_client *c);
/* Logs, from now on, when the server cannot be reached and when it can be reached again: for
 * programs that wait for it unattended. server is its name in the log, and must outlive the
 * client. */
void rpc_client_report_unreachable(struct rpc_client *c, const char *server);
/* Returns the reason why the server cannot be reached, as a status: the one that was logged after
 * rpc_client_report_unreachable. Returns 0 if the server can be reached, or if nothing was logged
 * yet. */
int rpc_client_unreachable(const struct rpc_client *c);
/* Returns the cluster of the server; zero before the first connection. */
const struct uuid *rpc_client_cluster(const struct rpc_client *c);
/* Counts since the client was created. */
struct rpc_client_stats {
	uint64_t calls, replies, timeouts, disconnects, connects, bytes_out, bytes_in;
	uint64_t moves;  /* changes to a better address while connected */
	uint64_t broken; /* calls that lost their connection before the reply */
	uint32_t in_flight;
	char peer[96]; /* "tcp 127.0.0.1:7440", or why there is no connection */
};
/* Returns a snapshot of the counts. */
void rpc_client_stats(const struct rpc_client *c, struct rpc_client_stats *ret_stats);

/* One connection, for status reports. The strings are borrowed for the call. */
struct rpc_net {
	const char *state;     /* "up", "setup", "leaving", "connecting" */
	const char *transport; /* "verbs" */
	const char *name;      /* the peer's name for itself */
	const char *addr;      /* of the peer */
	enum rpc_role role;    /* of the peer; 0: unknown */
	uint32_t rail;         /* client: number of the path */
	int why;               /* without a connection: the reason */
	uint64_t age_us;
	uint64_t calls, replies; /* server: frames received and sent */
	/* bytes of data per second, averaged over at least one second */
	uint64_t in_rate, out_rate;
	uint32_t in_flight;
	/* client, over all its connections so far: */
	uint64_t reconnects, moves, repeated;
	struct link_stats link;
};
/* Calls fn for each connection, or once if there is none. fn must not yield. */
void rpc_client_net(const struct rpc_client *c, void (*fn)(void *arg, const struct rpc_net *n),
		    void *arg);
/* Sums over all connections of a transport, including those that have ended. Transports other than
 * verbs count as tcp. */
struct rpc_net_sum {
	uint64_t connections, connects; /* at present, and in total */
	uint64_t frames_in, frames_out, bulk_in, bulk_out, copied, stalls;
};
struct rpc_net_totals {
	struct rpc_net_sum tcp, verbs;
	struct transport_resources held; /* of the transport, not a sum */
};
/* Adds the client's traffic to the values in totals. */
void rpc_client_totals(const struct rpc_client *c, struct rpc_net_totals *totals);

/* ---- server ---- */
struct rpc_server;
struct rpc_req;

/* A connected client, as the server sees it. The struct lives until `closed` has returned and the
 * client's last request has ended. */
struct rpc_peer {
	enum rpc_role role;
	char name[64];      /* the client's name for itself */
	char addr[96];
	uint32_t version;   /* negotiated */
	uint64_t id;        /* unique in this process */
	void *user;         /* for the server program's use */
	bool gone;          /* The connection has ended. */
};

/*
 * A request, for its handler's fiber. `in` is the decoded request, whose bytes point into a copy of
 * the body that lives until the fiber ends. `out` is the zeroed reply struct; allocate its bytes
 * with rpc_req_alloc.
 */
struct rpc_req {
	struct rpc_server *server;
	struct rpc_peer *peer;
	const struct msg_desc *desc;
	struct frame_hdr hdr;      /* session, slot, seq, epoch, target, chain */
	const void *in;
	void *out;
	/* Data that came with the request. It is released after the reply. */
	struct slot_vec bulk[RPC_BULK_VECS_MAX];
	uint32_t n_bulk, bulk_len;
	/* Data to send back. One reference for each entry is taken over. */
	struct slot_vec reply_bulk[RPC_BULK_VECS_MAX];
	uint32_t n_reply_bulk;
	uint64_t deadline_us;
	uint64_t start_us;
	void *arg; /* of the server options */
};
#define RPC_ARENA_MAX (1u << 19)
/* Allocates memory that is freed after the reply is sent. Returns NULL if there is no memory, or if
 * the request would have more than RPC_ARENA_MAX. */
void *rpc_req_alloc(struct rpc_req *r, size_t size);
/*
 * For a handler: notifies the client that the request has taken effect, while the reply still waits
 * until that is durable. Only the first call counts. Does nothing if the connection has ended.
 * Yields, so that what is accepted in one turn of the loop is sent together.
 */
void rpc_accept(struct rpc_req *r);
/* Returns true if the client has cancelled the request or its connection has ended. Work that
 * changes nothing may stop then. */
bool rpc_req_canceled(const struct rpc_req *r);

struct rpc_handler {
	uint16_t op;
	int (*fn)(struct rpc_req *r, const void *in, void *out);
};

struct rpc_server_options {
	struct transport *transport;
	const char *addrs;     /* to listen on, separated by blanks (addr.h) */
	const char *advertise; /* sent to clients instead of addrs; NULL or empty: addrs are sent */
	const char *name;
	enum rpc_role role;
	struct uuid cluster;
	struct rpc_key key;
	struct slot_pool *bulk_pool; /* for incoming data; may be NULL if no request has any */
	uint32_t bulk_max;           /* maximum bytes of data in a request */
	uint32_t in_flight_max;      /* per connection (credits), 0: 256 */
	uint32_t requests_max;       /* in total, 0: 8192; beyond it -LE_OVERLOAD */
	uint32_t connections_max;    /* 0: 16384 */
	/* A client that receives nothing of a reply with data for so long is disconnected, because
	 * the reply holds slots for which other requests wait. 0: 4000. */
	uint32_t data_stall_ms;
	uint32_t slow_ms;            /* requests that take longer are logged; 0: none are */
	const struct rpc_handler *handlers;
	uint32_t n_handlers;
	void *arg;
	/* Called after authentication; a negative result refuses the client. May be NULL. */
	int (*opened)(void *arg, struct rpc_peer *p);
	/* Called after the end of an opened connection. May be NULL. */
	void (*closed)(void *arg, struct rpc_peer *p);
	/* Called after each request with its status, for metrics. May be NULL. */
	void (*served)(void *arg, const struct rpc_req *r, int status, uint64_t us);
};
/* Creates a server on the current loop, which listens. Borrows the handler table until the server
 * is destroyed. Returns -LE_CONFIG if no address can be used. */
int rpc_server_create(const struct rpc_server_options *opts,
		      struct rpc_server **ret_server) CHECK_RESULT;
/* Returns the transport of the server. */
struct transport *rpc_server_transport(const struct rpc_server *s);
/* Returns the addresses that the server listens on, as "host:port host:port" with the actual ports.
 * They have schemes where the transport has several. */
const char *rpc_server_addrs(const struct rpc_server *s);
/* Writes the addresses that are sent to clients to buf. The only wildcard among them is
 * "scheme:*:port", where the star stands for the host that the client used. */
void rpc_server_announced(const struct rpc_server *s, char *buf, size_t size);
/* Adds the server's traffic to the values in totals. */
void rpc_server_totals(struct rpc_server *s, struct rpc_net_totals *totals);
/* Calls fn for each authenticated connection. fn must not yield. */
void rpc_server_net(struct rpc_server *s, void (*fn)(void *arg, const struct rpc_net *n),
		    void *arg);
/* Stops accepting connections and requests, waits at most drain_ms for running requests, closes the
 * connections and frees the server. Yields. */
void rpc_server_destroy(struct rpc_server *s, uint32_t drain_ms);
/* Like rpc_call, but sends the request to a client over its connection. Returns -LE_INVAL if the
 * call has bulk data. Yields. */
int rpc_callback(struct rpc_peer *p, struct rpc_call *call) CHECK_RESULT;
/* Takes a reference. It keeps the struct, not the connection. */
void rpc_peer_ref(struct rpc_peer *p);
/* Drops a reference. */
void rpc_peer_unref(struct rpc_peer *p);
/* Breaks the connection, because its session was fenced or taken over by a newer connection. */
void rpc_peer_kill(struct rpc_peer *p);
/* Calls fn for each authenticated client. fn must not yield. */
void rpc_server_each_peer(struct rpc_server *s, void (*fn)(void *arg, struct rpc_peer *p),
			  void *arg);

#endif
